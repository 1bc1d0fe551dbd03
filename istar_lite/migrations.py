"""Versions of the file: the schema files, whether a file is ours, bringing it up to date, checking that it is what
its version claims. Nothing here changes a file that is not ours, newer, or damaged."""

from __future__ import annotations

import contextlib
import hashlib
import os
import time
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Literal

from istar_lite.driver import BUSY_SECONDS, DAMAGE, begin, sqlite3, translate
from istar_lite.errors import FileDamaged, FileTooNew, NotAMemoryFile, ReadOnly

APPLICATION_ID = 0x69737472  # "istr"
# The setting that holds the fingerprint of the schema whose columns were found right.
CHECKED = "schema_checked"

# Of a new file. Each of some 85 tables and indices begins with a page: an empty file takes 300 KB, with SQLite's usual
# 4096 it takes 470, and a write leaves half as much in the log. A vector of 384 components still fits into a cell;
# with 1024 none does, and a file takes twice the room.
PAGE_SIZE = 2048
SMALLEST = 512  # bytes of a database of one page of the smallest size

State = Literal["new", "old", "ours"]


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


def wal_path(path: Path) -> Path:
    """The write-ahead log that belongs to `path`."""
    return path.with_name(path.name + "-wal")


def shm_path(path: Path) -> Path:
    """The shared-memory index of that log."""
    return path.with_name(path.name + "-shm")


# --- is it ours? ----------------------------------------------------------------------------------------------


def inspect_file(path: Path) -> State:
    """Whether `path` is to be created, is ours of an older version, or is ours; raises the error that fits
    otherwise, changing nothing.

    Asked through a read-only connection, never from the header bytes: after a crash in the first session they say
    0 while everything is in the WAL.
    """
    try:
        size = path.stat().st_size
    except FileNotFoundError:
        return "new"
    except OSError as error:
        raise ReadOnly(f"{path}: cannot be read ({error.strerror})") from error
    log = _size(wal_path(path))
    if size == 0 and log == 0:
        return "new"
    if not os.access(path, os.R_OK):
        raise ReadOnly(f"{path}: cannot be read")
    if 0 < size < SMALLEST:  # SQLite would take a few bytes for an empty file, and write over them
        raise NotAMemoryFile(f"{path}: is not an SQLite database")
    if log > 0:
        _refuse_foreign_log(path, size)
    try:
        with contextlib.closing(_inspecting_connection(path)) as connection:
            return _inspect(connection, path)
    except DAMAGE as error:
        raise translate(error, path) from error


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0


def _refuse_foreign_log(path: Path, size: int) -> None:
    """A -wal beside a file that was closed whole (so that it left WAL mode) belongs to another file: left behind
    when this one was copied over it. SQLite would play it into this file without a word."""
    if size == 0 or _held_in_this_process(path):
        return
    with open(path, "rb") as handle:
        header = handle.read(20)
    if header.startswith(b"SQLite format 3\0") and header[18] == 1:
        raise FileDamaged(
            f"{path}: the {wal_path(path).name} beside it belongs to another file (this one was closed whole); "
            f"it was not applied: move it away"
        )


def _held_in_this_process(path: Path) -> bool:
    """Whether this process may have the file open. Opening it once more as a plain file and closing that again
    would drop the locks of every connection here (POSIX locks belong to the process, not to the descriptor)."""
    if os.name == "nt" or not shm_path(path).exists():
        return False
    try:
        names = os.listdir("/proc/self/fd")
    except OSError:
        return True
    real = os.path.realpath(path)
    for name in names:
        with contextlib.suppress(OSError):
            if os.readlink(f"/proc/self/fd/{name}") == real:
                return True
    return False


def _inspecting_connection(path: Path) -> sqlite3.Connection:
    uri = path.as_uri() + "?mode=ro"
    connection = sqlite3.connect(uri, uri=True, timeout=BUSY_SECONDS)
    try:
        connection.execute("pragma application_id").fetchone()
    except sqlite3.OperationalError:
        connection.close()
        if _size(wal_path(path)) > 0:
            raise
        return sqlite3.connect(uri + "&immutable=1", uri=True)
    except BaseException:
        connection.close()
        raise
    return connection


def _inspect(connection: sqlite3.Connection, path: Path) -> State:
    application = connection.execute("pragma application_id").fetchone()[0]
    version = connection.execute("pragma user_version").fetchone()[0]
    if application != APPLICATION_ID:
        tables = _tables(connection)
        if not tables and application == 0:
            return "new"
        restored = _restored_version(connection, tables)
        if application != 0 or restored is None:
            raise NotAMemoryFile(f"{path}: is another program's database (application_id {application})")
        version = restored
    if version > latest_version():
        raise FileTooNew(
            f"{path}: has version {version}, this istar-lite knows versions up to {latest_version()}; upgrade it"
        )
    return "ours" if version == latest_version() and application == APPLICATION_ID else "old"


def _tables(connection: sqlite3.Connection) -> set[str]:
    return {row[0] for row in connection.execute("select name from sqlite_master")}


def _restored_version(connection: sqlite3.Connection, tables: set[str]) -> int | None:
    """Version of a file restored from `.dump`, which loses both numbers but not our settings."""
    if "setting" not in tables:
        return None
    try:
        rows = dict(connection.execute("select key, value from setting where key in ('format', 'schema_version')"))
    except sqlite3.OperationalError:
        return None
    version = rows.get("schema_version")
    return version if rows.get("format") == "istar-lite" and isinstance(version, int) else None


# --- bringing it up to date -----------------------------------------------------------------------------------


def enter_wal(connection: sqlite3.Connection) -> None:
    """Switches to WAL. The switch does not wait for others as statements do, so the waiting is done here."""
    deadline = time.monotonic() + BUSY_SECONDS
    while True:
        try:
            connection.execute(f"pragma page_size = {PAGE_SIZE}")  # a file that is there keeps its own
            connection.execute("pragma journal_mode = wal").fetchall()
            return
        except sqlite3.OperationalError as error:
            if "locked" not in str(error) or time.monotonic() > deadline:
                raise
            time.sleep(0.005)


def migrate(connection: sqlite3.Connection, path: Path) -> None:
    """Brings the file to the latest version in one transaction, and checks in it that the columns are there. The
    version is read again inside, since several processes may open a file at once."""
    try:
        begin(connection)
        version = _version(connection)
        # Someone newer may have been here since the file was inspected.
        if version > latest_version():
            raise FileTooNew(f"{path}: has version {version}, this istar-lite knows versions up to {latest_version()}")
        for number, file in schema_files():
            if number > version:
                for statement in statements(file.read_text(encoding="utf-8")):
                    connection.execute(statement)
        connection.execute(f"pragma application_id = {APPLICATION_ID}")
        connection.execute(f"pragma user_version = {latest_version()}")
        connection.execute(
            "update setting set value = ? where key = 'schema_version' and namespace = 0 and session = 0",
            (latest_version(),),
        )
        if version:
            require_columns(connection, path)
        note_checked(connection, fingerprint(connection))
        connection.execute("commit")
    finally:
        if connection.in_transaction:
            connection.execute("rollback")


def _version(connection: sqlite3.Connection) -> int:
    if int(connection.execute("pragma application_id").fetchone()[0]) == APPLICATION_ID:
        return int(connection.execute("pragma user_version").fetchone()[0])
    return _restored_version(connection, _tables(connection)) or 0


# --- is it what it claims to be? ------------------------------------------------------------------------------


@cache
def reference() -> sqlite3.Connection:
    """An empty file of the present version, in memory: what the schema files make. Takes some 30 ms, once."""
    connection = sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)
    for _, file in schema_files():
        for statement in statements(file.read_text(encoding="utf-8")):
            connection.execute(statement)
    return connection


def table_names(connection: sqlite3.Connection) -> list[str]:
    """Our plain tables, in the order of their making (so that a row's parents come before it)."""
    return [
        row[0]
        for row in connection.execute(
            "select name from sqlite_master where type = 'table' and name not like 'sqlite\\_%' escape '\\'"
            " and name not like 'document\\_fts%' escape '\\' order by rowid"
        )
    ]


@cache
def base_tables() -> tuple[str, ...]:
    """The plain tables of the present version, parents before the rows that refer to them."""
    return tuple(table_names(reference()))


@cache
def columns(table: str) -> tuple[str, ...]:
    """The stored columns of one of our tables, in order (generated ones left out)."""
    return tuple(row[0] for row in reference().execute("select name from pragma_table_info(?)", (table,)))


def fingerprint(connection: sqlite3.Connection) -> str:
    """A digest of everything the file declares. Same digest as when its columns were last found right: they are
    still right. (A hash of 60 KB; comparing the columns themselves would take fifty times as long.) The planner's
    statistics are no declaration of ours."""
    digest = hashlib.sha256(str(latest_version()).encode())
    for row in connection.execute(
        "select name, sql from sqlite_master where name not glob 'sqlite_stat?' order by type, name"
    ):
        digest.update(f"{row[0]}\0{row[1]}\0".encode(errors="surrogatepass"))
    return digest.hexdigest()[:32]


def is_noted(connection: sqlite3.Connection, print_: str) -> bool:
    """Whether the columns were found right under this fingerprint before."""
    row = connection.execute(
        "select value from setting where key = ? and namespace = 0 and session = 0", (CHECKED,)
    ).fetchone()
    return row is not None and row[0] == print_


def note_checked(connection: sqlite3.Connection, print_: str) -> None:
    """Remembers the fingerprint under which the columns were found right."""
    connection.execute(
        "insert into setting (key, value) values (?, ?) on conflict (key, namespace, session)"
        " do update set value = excluded.value where value is not excluded.value",
        (CHECKED, print_),
    )


def missing_columns(connection: sqlite3.Connection) -> list[str]:
    """Tables, and columns as `table.column`, that the version promises and the file lacks."""
    missing = []
    for table in base_tables():
        there = {row[0] for row in connection.execute("select name from pragma_table_xinfo(?)", (table,))}
        if not there:
            missing.append(table)
        else:
            missing += [f"{table}.{column}" for column in columns(table) if column not in there]
    return missing


def require_columns(connection: sqlite3.Connection, path: Path) -> None:
    """Raises `FileDamaged` naming the columns that the file's version promises and the file lacks."""
    missing = missing_columns(connection)
    if missing:
        raise FileDamaged(
            f"{path}: says version {latest_version()} but lacks {', '.join(missing)}; nothing was changed"
        )
