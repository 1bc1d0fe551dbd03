"""The one SQLite file: which driver, opening and creating, short write transactions, readers, closing, copying.

Everything else imports `sqlite3` from here, so that one driver's classes (its exceptions above all) serve all.
"""

from __future__ import annotations

import contextlib
import importlib.util
import math
import os
import sys
import threading
import time
import warnings
import weakref
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from istar_lite.errors import BadInput, Busy, FileDamaged, FileTooNew, IstarError, NotAMemoryFile, ReadOnly

if TYPE_CHECKING:
    import sqlite3 as sqlite3
else:
    try:  # many builds of the standard module cannot load extensions; this one can, and is newer
        import pysqlite3 as sqlite3
    except ImportError:
        import sqlite3

APPLICATION_ID = 0x69737472  # "istr"
BUSY_SECONDS = 10.0
Durability = Literal["normal", "full"]


def schema_files() -> list[tuple[int, Path]]:
    """(version, file) of every schema file, in order; found in the installed package, else beside it."""
    package = Path(__file__).parent
    folder = package / "schema"
    if not folder.is_dir():  # an editable install or a bare checkout
        folder = package.parent / "schema"
    return sorted((int(path.name[:3]), path) for path in folder.glob("[0-9][0-9][0-9]_*.sql"))


@cache
def latest_version() -> int:
    """The version this library writes: the number of its last schema file."""
    return schema_files()[-1][0]


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


def add_missing_functions(connection: sqlite3.Connection) -> None:
    """exp, ln and sqrt for builds of SQLite without math functions: the views use exp."""
    known = {row[0] for row in connection.execute("select name from pragma_function_list")}
    for name, function in (("exp", math.exp), ("ln", math.log), ("sqrt", math.sqrt)):
        if name not in known:
            connection.create_function(name, 1, function, deterministic=True)


def translate(error: sqlite3.Error, path: Path) -> IstarError:
    """Our error for one of SQLite's, naming the file."""
    text = str(error)
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


@dataclass
class _Connections:
    """What an open file holds; apart from `File`, so that the finalizer does not keep that alive."""

    path: Path
    writer: sqlite3.Connection | None = None
    readers: dict[int, tuple[weakref.ref[threading.Thread], sqlite3.Connection]] = field(default_factory=dict)
    lock: threading.Lock = field(default_factory=threading.Lock)
    held_by_others: bool = False

    def close(self) -> None:
        """Readers first; then everything goes into the one file, which leaves WAL mode if nobody else is in it."""
        with self.lock:
            for _, reader in self.readers.values():
                reader.close()
            self.readers.clear()
            writer, self.writer = self.writer, None
            if writer is None:
                return
            try:
                writer.execute("pragma busy_timeout = 0")
                writer.execute("pragma wal_checkpoint(truncate)").fetchall()
                writer.execute("pragma journal_mode = delete").fetchall()
            except sqlite3.OperationalError:
                # Somebody else has the file open: it stays in WAL mode, and the last one to close tidies up.
                self.held_by_others = True
            finally:
                writer.close()


class File:
    """An open memory file. Writes are short `begin immediate` transactions on one connection behind a lock; each
    thread reads on a connection of its own. All connections are closed by `close`, also at interpreter exit."""

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        read_only: bool = False,
        durability: Durability = "normal",
    ) -> None:
        self.path = absolute_path(path)
        self.read_only = read_only
        self.durability = durability
        self.closed = False
        self._writing = threading.RLock()
        self._write_depth = 0
        self._connections = _Connections(self.path)
        self._pid = os.getpid()
        if durability not in ("normal", "full"):
            raise BadInput("durability", f"{durability!r} is neither 'normal' nor 'full'")
        state = inspect_file(self.path)
        if read_only and state == "new":
            raise NotAMemoryFile(f"{self.path}: there is no memory to read")
        if not read_only:
            self._open_for_writing(state)
        self._finalizer = weakref.finalize(self, self._connections.close)

    def _open_for_writing(self, state: str) -> None:
        if state == "new":
            _create_private(self.path)
        elif not os.access(self.path, os.W_OK) or not os.access(self.path.parent, os.W_OK):
            raise ReadOnly(f"{self.path}: cannot be written; open it with read_only=True")
        try:
            writer = self._connect(str(self.path))
            self._connections.writer = writer
            enter_wal(writer)
            writer.execute(f"pragma synchronous = {self.durability}")
            migrate(writer)
        except sqlite3.Error as error:
            self._connections.close()
            raise translate(error, self.path) from error
        except BaseException:
            self._connections.close()
            raise

    def _connect(self, target: str, *, uri: bool = False) -> sqlite3.Connection:
        connection = sqlite3.connect(
            target, timeout=BUSY_SECONDS, isolation_level=None, check_same_thread=False, uri=uri, cached_statements=256
        )
        connection.row_factory = sqlite3.Row
        connection.execute("pragma foreign_keys = on")
        connection.execute("pragma recursive_triggers = on")
        connection.execute("pragma temp_store = memory")
        connection.execute("pragma secure_delete = on")
        add_missing_functions(connection)
        return connection

    def reader(self) -> sqlite3.Connection:
        """This thread's reading connection."""
        self._require_open()
        thread = threading.current_thread()
        known = self._connections.readers.get(thread.ident or 0)
        if known is not None and known[0]() is thread:
            return known[1]
        try:
            connection = self._connect_reader()
        except sqlite3.Error as error:
            raise translate(error, self.path) from error
        with self._connections.lock:
            # Threads come and go: the connections of those that went are closed here, or they would pile up.
            for ident, (owner, old) in list(self._connections.readers.items()):
                alive = owner()
                if alive is None or not alive.is_alive() or ident == thread.ident:
                    old.close()
                    del self._connections.readers[ident]
            self._connections.readers[thread.ident or 0] = (weakref.ref(thread), connection)
        return connection

    def _connect_reader(self) -> sqlite3.Connection:
        connection = self._connect_read_only() if self.read_only else self._connect(str(self.path))
        connection.execute("pragma query_only = on")
        return connection

    def _connect_read_only(self) -> sqlite3.Connection:
        uri = self.path.as_uri() + "?mode=ro"
        connection = self._connect(uri, uri=True)
        try:
            connection.execute("select 1 from sqlite_master").fetchone()
        except sqlite3.OperationalError:
            connection.close()
            # A WAL file in a folder that cannot be written needs `immutable`, which drops what lies in the -wal.
            if wal_path(self.path).exists() and wal_path(self.path).stat().st_size > 0:
                raise
            connection = self._connect(uri + "&immutable=1", uri=True)
        return connection

    @contextlib.contextmanager
    def write(self) -> Iterator[sqlite3.Connection]:
        """A write transaction: `begin immediate`, commit at the end, roll back on any exception.

        Entered again inside itself (by the same thread) it joins the outer one. Raises `ReadOnly`, `Busy` after a
        bounded wait, `FileDamaged`; then nothing was written.
        """
        self._require_open()
        if self.read_only:
            raise ReadOnly(f"{self.path}: was opened read-only")
        if not self._writing.acquire(timeout=BUSY_SECONDS):
            raise Busy(
                f"{self.path}: another thread is writing, and waiting {BUSY_SECONDS:g} s did not help; try again"
            )
        try:
            writer = self._connections.writer
            if writer is None:
                raise IstarError(f"{self.path}: is closed")
            if self._write_depth:
                yield writer
                return
            yield from self._transaction(writer)
        finally:
            self._writing.release()

    def _transaction(self, writer: sqlite3.Connection) -> Iterator[sqlite3.Connection]:
        try:
            writer.execute("begin immediate")
            self._write_depth += 1
            try:
                yield writer
                writer.execute("commit")
            finally:
                self._write_depth -= 1
                # After a full disk SQLite has rolled back by itself.
                if writer.in_transaction:
                    writer.execute("rollback")
        except sqlite3.IntegrityError:
            raise
        except sqlite3.DatabaseError as error:
            raise translate(error, self.path) from error

    @contextlib.contextmanager
    def reading(self) -> Iterator[sqlite3.Connection]:
        """Several reads that see one state of the file (a deferred transaction on this thread's reader)."""
        connection = self.reader()
        if connection.in_transaction:
            yield connection
            return
        connection.execute("begin")
        try:
            yield connection
        except sqlite3.DatabaseError as error:
            raise translate(error, self.path) from error
        finally:
            if connection.in_transaction:
                connection.execute("rollback")

    def _require_open(self) -> None:
        if self.closed:
            raise IstarError(f"{self.path}: is closed")
        if os.getpid() != self._pid:
            raise IstarError(f"{self.path}: was opened before a fork; open it again in this process")

    def close(self) -> bool:
        """Closes every connection and leaves one complete file. False when somebody else still has it open: then
        the file stays in WAL mode (with its -wal beside it) until they close it. Closing twice does nothing."""
        self.closed = True
        self._finalizer()
        return not self._connections.held_by_others

    def snapshot(self, target: str | os.PathLike[str], *, overwrite: bool = False) -> Path:
        """A complete copy as one file, safe while others write: made under a temporary name, synced, renamed."""
        goal = absolute_path(target)
        if goal.exists() and not overwrite:
            raise BadInput("path", f"{goal} exists; say overwrite=True to replace it")
        for beside in (wal_path(goal), goal.with_name(goal.name + "-shm")):
            if beside.exists():
                raise BadInput("path", f"{beside} lies beside it: that file is open, or its last writes are in there")
        if goal == self.path:
            raise BadInput("path", "a file cannot be its own copy")
        draft = goal.with_name(f".{goal.name}.{os.getpid()}.{threading.get_ident()}.tmp")
        try:
            _create_private(draft)
            self.reader().execute("vacuum into ?", (str(draft),))
            with open(draft, "rb+") as handle:
                os.fsync(handle.fileno())
            os.replace(draft, goal)
        except sqlite3.Error as error:
            raise translate(error, goal) from error
        finally:
            draft.unlink(missing_ok=True)
        return goal


def absolute_path(path: object) -> Path:
    """`path` made absolute: SQLite takes a relative `file:a.db` for a URI even where URIs are off."""
    if not isinstance(path, (str, os.PathLike)):
        raise BadInput("path", f"a path is wanted, not {type(path).__name__}")
    text = os.fspath(path)
    if not isinstance(text, str) or not text or "\0" in text:
        raise BadInput("path", f"{text!r} is no path")
    if text == ":memory:":
        raise BadInput("path", "a memory lives in a file: name one")
    absolute = Path(text).expanduser().absolute()
    if not absolute.parent.is_dir():
        raise BadInput("path", f"the folder {absolute.parent} does not exist")
    if absolute.is_dir():
        raise BadInput("path", f"{absolute} is a folder")
    return absolute


def wal_path(path: Path) -> Path:
    """The write-ahead log that belongs to `path`."""
    return path.with_name(path.name + "-wal")


def _create_private(path: Path) -> None:
    """An empty file that only its owner can read; memories are private. An existing one is left alone."""
    try:
        os.close(os.open(path, os.O_CREAT | os.O_RDWR, 0o600))
    except OSError as error:
        raise ReadOnly(f"{path}: cannot be created ({error.strerror})") from error


def inspect_file(path: Path) -> Literal["new", "ours"]:
    """Whether `path` is to be created or is ours; raises the error that fits otherwise, changing nothing.

    Asked through a read-only connection, never from the header bytes: after a crash in the first session they say
    0 while everything is in the WAL.
    """
    if not path.exists() or (path.stat().st_size == 0 and not wal_path(path).exists()):
        return "new"
    if not os.access(path, os.R_OK):
        raise ReadOnly(f"{path}: cannot be read")
    try:
        with contextlib.closing(_inspecting_connection(path)) as connection:
            return _inspect(connection, path)
    except sqlite3.DatabaseError as error:
        raise translate(error, path) from error


def _inspecting_connection(path: Path) -> sqlite3.Connection:
    uri = path.as_uri() + "?mode=ro"
    connection = sqlite3.connect(uri, uri=True, timeout=BUSY_SECONDS)
    try:
        connection.execute("pragma application_id").fetchone()
        return connection
    except sqlite3.OperationalError:
        connection.close()
        if wal_path(path).exists() and wal_path(path).stat().st_size > 0:
            raise
        return sqlite3.connect(uri + "&immutable=1", uri=True)


def _inspect(connection: sqlite3.Connection, path: Path) -> Literal["new", "ours"]:
    application = connection.execute("pragma application_id").fetchone()[0]
    version = connection.execute("pragma user_version").fetchone()[0]
    if application != APPLICATION_ID:
        tables = {row[0] for row in connection.execute("select name from sqlite_master")}
        if not tables and application == 0:
            return "new"
        version = _restored_version(connection, tables)
        if application != 0 or version is None:
            raise NotAMemoryFile(f"{path}: is another program's database (application_id {application})")
    if version > latest_version():
        raise FileTooNew(
            f"{path}: has version {version}, this istar-lite knows versions up to {latest_version()}; upgrade it"
        )
    pages = connection.execute("pragma page_count").fetchone()[0]
    size = connection.execute("pragma page_size").fetchone()[0]
    if pages * size > path.stat().st_size and not wal_path(path).exists():
        raise FileDamaged(f"{path}: is cut off: {path.stat().st_size} of {pages * size} bytes are there")
    return "ours"


def _restored_version(connection: sqlite3.Connection, tables: set[str]) -> int | None:
    """Version of a file restored from `.dump`, which loses both numbers but not our settings."""
    if "setting" not in tables:
        return None
    try:
        rows = dict(connection.execute("select key, value from setting where key in ('format', 'schema_version')"))
    except sqlite3.OperationalError:
        return None
    return int(rows["schema_version"]) if rows.get("format") == "istar-lite" and "schema_version" in rows else None


def enter_wal(connection: sqlite3.Connection) -> None:
    """Switches to WAL. The switch does not wait for others as statements do, so the waiting is done here."""
    deadline = time.monotonic() + BUSY_SECONDS
    while True:
        try:
            connection.execute("pragma journal_mode = wal").fetchall()
            return
        except sqlite3.OperationalError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.005)


def migrate(connection: sqlite3.Connection) -> None:
    """Brings the file to the latest version in one transaction; the version is read again inside it, since several
    processes may open a new file at once."""
    if _version(connection) == latest_version():
        return
    connection.execute("begin immediate")
    try:
        version = _version(connection)
        for number, path in schema_files():
            if number > version:
                for statement in statements(path.read_text(encoding="utf-8")):
                    connection.execute(statement)
        connection.execute(f"pragma application_id = {APPLICATION_ID}")
        connection.execute(f"pragma user_version = {latest_version()}")
        connection.execute(
            "update setting set value = ? where key = 'schema_version' and namespace = 0 and session = 0",
            (latest_version(),),
        )
        connection.execute("commit")
    finally:
        if connection.in_transaction:
            connection.execute("rollback")


def _version(connection: sqlite3.Connection) -> int:
    if int(connection.execute("pragma application_id").fetchone()[0]) == APPLICATION_ID:
        return int(connection.execute("pragma user_version").fetchone()[0])
    tables = {row[0] for row in connection.execute("select name from sqlite_master")}
    return _restored_version(connection, tables) or 0


def statements(script: str) -> Iterator[str]:
    """The statements of an SQL script. (`executescript` would commit the transaction first.)"""
    lines: list[str] = []
    for line in script.splitlines(keepends=True):
        lines.append(line)
        # complete_statement() scans all it is given: ask only where a statement can end.
        if ";" in line and sqlite3.complete_statement("".join(lines)):
            yield "".join(lines)
            lines.clear()
    if "".join(lines).strip():
        raise ValueError("the script ends inside a statement")


def driver() -> str:
    """Name and SQLite version of the driver in use, for `stats` and `bench`."""
    return f"{sqlite3.__name__} {sqlite3.sqlite_version} (Python {sys.version.split()[0]})"
