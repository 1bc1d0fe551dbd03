"""Which SQLite: the driver, its vector extension, its missing functions, and our errors for its errors.

`database.py` hands all of it on: everything else imports `sqlite3` from there, so that one driver's classes (its
exceptions above all) serve all.
"""

from __future__ import annotations

import contextlib
import importlib.util
import math
import sys
import warnings
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from istar_lite.errors import Busy, FileDamaged, IstarError, NotAMemoryFile, ReadOnly

if TYPE_CHECKING:
    import sqlite3 as sqlite3
else:
    try:  # many builds of the standard module cannot load extensions; this one can, and is newer
        import pysqlite3 as sqlite3
    except ImportError:
        import sqlite3

BUSY_SECONDS = 10.0
# What a damaged file raises. A message of SQLite's may quote bytes of the damage, which the driver cannot decode.
DAMAGE = (sqlite3.DatabaseError, UnicodeDecodeError)
MATH = {"exp": math.exp, "ln": math.log, "sqrt": math.sqrt}


def as_text(raw: bytes) -> str:
    """Text of any tool comes out, with U+FFFD for what is no UTF-8: by default one such row would make every query
    that meets it fail."""
    return raw.decode("utf-8", "replace")


def driver() -> str:
    """Name and SQLite version of the driver in use, for `stats` and `bench`."""
    return f"{sqlite3.__name__} {sqlite3.sqlite_version} (Python {sys.version.split()[0]})"


@cache
def vector_extension() -> str | None:
    """Path of sqlite-vec's loadable library, found without importing the package (that would import numpy)."""
    spec = importlib.util.find_spec("sqlite_vec")
    if spec is None or not spec.submodule_search_locations:
        return None
    return str(Path(next(iter(spec.submodule_search_locations))) / "vec0")


@cache
def warn_once(message: str) -> None:
    """A warning that this process is told one time."""
    warnings.warn(message, stacklevel=3)


def load_vectors(connection: sqlite3.Connection) -> bool:
    """Loads sqlite-vec into `connection`; False, with one warning that says why, where that cannot be done."""
    path = vector_extension()
    if path is None:
        warn_once("sqlite-vec is not installed: vectors are compared with numpy (pip install sqlite-vec)")
        return False
    if not hasattr(connection, "enable_load_extension"):
        warn_once(
            "this Python's sqlite3 cannot load extensions: vectors are compared with numpy (pip install pysqlite3)"
        )
        return False
    try:
        connection.enable_load_extension(True)
        connection.load_extension(path)
        connection.enable_load_extension(False)
    except sqlite3.Error as error:
        warn_once(f"sqlite-vec could not be loaded ({error}): vectors are compared with numpy")
        return False
    return True


@cache
def missing_functions() -> tuple[str, ...]:
    """Which of exp, ln and sqrt this build of SQLite lacks. Asked once, of an empty database: asking a connection
    on a file makes it read the whole schema first."""
    connection = sqlite3.connect(":memory:")
    try:
        known = {row[0] for row in connection.execute("select name from pragma_function_list")}
    finally:
        connection.close()
    return tuple(name for name in MATH if name not in known)


def add_missing_functions(connection: sqlite3.Connection) -> None:
    """exp, ln and sqrt for builds of SQLite without math functions: the views use exp."""
    for name in missing_functions():
        connection.create_function(name, 1, MATH[name], deterministic=True)


def begin(connection: sqlite3.Connection) -> None:
    """`begin immediate`, with the schema as it is now.

    When another connection has declared anything since, an `update` that is the first statement to notice fails with
    "no such table" (seen in SQLite 3.40 to 3.53, on tables whose triggers assign row values); a `select` that notices
    reads the schema again. It costs 2 µs.
    """
    connection.execute("begin immediate")
    connection.execute("select 1 from sqlite_master limit 1").fetchone()


@contextlib.contextmanager
def watched(connection: sqlite3.Connection, told: Callable[[int], object] | None, every: int) -> Iterator[None]:
    """Calls `told(n)`, n = 1, 2, …, each time SQLite has gone `every` steps on `connection`: within one statement too.
    What it raises ends the statement, whatever becomes of the error of that, and is raised from here."""
    if told is None:
        yield
        return
    count = 0
    raised: list[BaseException] = []

    def step() -> int:
        nonlocal count
        count += 1
        try:
            told(count)
        except BaseException as error:  # noqa: BLE001 - carried through SQLite: Ctrl-C above all
            raised.append(error)
        return len(raised)

    connection.set_progress_handler(step, every)
    try:
        yield
    except (*DAMAGE, IstarError):
        if raised:
            raise raised[0] from None
        raise
    finally:
        connection.set_progress_handler(None, 0)
    if raised:
        raise raised[0]


def translate(error: Exception, path: Path) -> IstarError:
    """Our error for one of SQLite's, naming the file."""
    text = "malformed" if isinstance(error, UnicodeDecodeError) else str(error)
    if "locked" in text or "busy" in text:
        return Busy(f"{path}: somebody else is writing, and waiting {BUSY_SECONDS:g} s did not help; try again")
    if "readonly" in text or "read-only" in text:
        return ReadOnly(f"{path}: cannot be written ({text})")
    if "not a database" in text or "encrypted" in text:
        return NotAMemoryFile(f"{path}: is not an SQLite database")
    if "malformed" in text or "corrupt" in text:
        return FileDamaged(f"{path}: is damaged ({text}); `istar-lite check --fix` or `istar-lite export` may help")
    if "full" in text:
        return IstarError(f"{path}: the disk is full or the file reached its limit; nothing was written")
    return IstarError(f"{path}: {text}")


def is_trouble_of_the_file(error: Exception) -> bool:
    """Whether the file, its disk or its other users are at fault, not the statement: damage, I/O, locks."""
    if type(error) in DAMAGE:  # damage is never one of the subclasses
        return True
    text = str(error)
    return isinstance(error, sqlite3.OperationalError) and any(
        sign in text for sign in ("malformed", "corrupt", "disk I/O", "locked", "unable to open", "readonly")
    )


class ReaderCursor(sqlite3.Cursor):
    """A cursor whose reads raise our errors where the file is at fault: a damaged page shows only when it is read,
    which for the later rows is long after `execute`."""

    def fetchone(self) -> object:
        """One row, or None."""
        try:
            return super().fetchone()
        except DAMAGE as error:
            raise self._ours(error) from error

    def fetchall(self) -> list[object]:
        """All rows left."""
        try:
            return super().fetchall()
        except DAMAGE as error:
            raise self._ours(error) from error

    def fetchmany(self, size: int | None = 256) -> list[object]:
        """The next rows, at most `size`."""
        try:
            return super().fetchmany(size)
        except DAMAGE as error:
            raise self._ours(error) from error

    def __iter__(self) -> ReaderCursor:
        return self

    def __next__(self) -> object:
        try:
            return super().__next__()
        except DAMAGE as error:
            raise self._ours(error) from error

    def _ours(self, error: Exception) -> Exception:
        path = getattr(self.connection, "path", None)
        return translate(error, path) if path is not None and is_trouble_of_the_file(error) else error


class ReaderConnection(sqlite3.Connection):
    """A connection for reading: `execute` and its cursor raise our errors where the file is at fault."""

    path: Path

    def execute(self, sql: str, parameters: Any = (), /) -> ReaderCursor:
        """As `sqlite3.Connection.execute`."""
        cursor: ReaderCursor = self.cursor(ReaderCursor)
        try:
            cursor.execute(sql, parameters)
        except DAMAGE as error:
            if is_trouble_of_the_file(error):
                raise translate(error, self.path) from error
            raise
        return cursor
