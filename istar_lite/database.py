"""The one SQLite file: opening and creating, short write transactions, readers, closing, copying.

Everything else imports `sqlite3` from here (see driver.py).
"""

from __future__ import annotations

import contextlib
import logging
import os
import threading
import weakref
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import chain
from pathlib import Path
from types import TracebackType
from typing import Any, Literal

from istar_lite.driver import (
    BUSY_SECONDS,
    DAMAGE,
    ReaderConnection,
    add_missing_functions,
    as_text,
    begin,
    driver,
    load_vectors,
    sqlite3,
    translate,
    warn_once,
    watched,
)
from istar_lite.errors import BadInput, Busy, FileDamaged, IstarError, NotAMemoryFile, ReadOnly
from istar_lite.migrations import (
    APPLICATION_ID,
    enter_wal,
    fingerprint,
    inspect_file,
    is_noted,
    latest_version,
    migrate,
    note_checked,
    require_columns,
    schema_files,
    shm_path,
    statements,
    wal_path,
)

__all__ = [
    "APPLICATION_ID",
    "BUSY_SECONDS",
    "Durability",
    "File",
    "absolute_path",
    "add_missing_functions",
    "driver",
    "holders",
    "insert_rows",
    "latest_version",
    "load_vectors",
    "schema_files",
    "sqlite3",
    "statements",
    "translate",
    "wal_path",
    "warn_once",
]

Durability = Literal["normal", "full"]
_log = logging.getLogger("istar_lite")
WAL_WORTH_TRUNCATING = 8 * 2**20  # bytes; SQLite starts a log anew only when nobody reads at that moment
WRITES_BETWEEN_LOOKS = 32
STEPS_BETWEEN_LOOKS = 50_000  # of SQLite, while the file is copied: some milliseconds
ROWS_AT_ONCE = 64  # of one insert; few sizes (powers of two), so that their statements stay prepared

# Connections that a fork brought into this process: kept, never closed. Closing one here would close the parent's.
_inherited: list[object] = []


@dataclass
class _Connections:
    """What an open file holds; apart from `File`, so that the finalizer does not keep that alive."""

    path: Path
    writer: sqlite3.Connection | None = None
    readers: dict[int, tuple[weakref.ref[threading.Thread], sqlite3.Connection]] = field(default_factory=dict)
    lock: threading.Lock = field(default_factory=threading.Lock)
    pid: int = field(default_factory=os.getpid)
    identity: tuple[int, int] | None = None
    read_only: bool = False
    held_by_others: bool = False

    def close(self) -> None:
        """Readers first; then everything goes into the one file, which leaves WAL mode if nobody else is in it."""
        if os.getpid() != self.pid:
            _inherited.append((self.writer, dict(self.readers)))
            return
        with self.lock:
            self._close_readers()
            writer, self.writer = self.writer, None
            if not self.read_only and self.identity == identity(self.path):
                # A file that was only read has no writer, but may be in WAL mode since a process died in it.
                writer = writer or self._tidier()
            if writer is not None:
                self._leave_one_file(writer)

    def _close_readers(self) -> None:
        me = threading.get_ident()
        for ident, (owner, reader) in list(self.readers.items()):
            thread = owner()
            if ident == me or thread is None or not thread.is_alive():
                reader.close()
        # The connection of another live thread may be in the middle of a step, and closing it there would pull the
        # rows away under it. It closes by itself when the last cursor lets go of it: at once, if the thread idles.
        self.readers.clear()

    def _tidier(self) -> sqlite3.Connection | None:
        if not wal_path(self.path).exists():
            return None
        return sqlite3.connect(str(self.path), timeout=0, isolation_level=None, check_same_thread=False)

    def _leave_one_file(self, writer: sqlite3.Connection) -> None:
        try:
            if self.identity == identity(self.path):
                writer.execute("pragma busy_timeout = 0")
                writer.execute("pragma wal_checkpoint(truncate)").fetchall()
                writer.execute("pragma journal_mode = delete").fetchall()
                # No error is raised where another connection of this process still reads.
                self.held_by_others = wal_path(self.path).exists()
        except sqlite3.DatabaseError:
            # Somebody else has the file open (it stays in WAL mode, and the last one to close tidies up), or the
            # disk fails: the rows are safe in the file and its -wal, and closing must not hide the first error.
            self.held_by_others = True
        finally:
            writer.close()


def identity(path: str | Path) -> tuple[int, int] | None:
    """Which file lies at `path`: device and number, None if none does."""
    try:
        status = os.stat(path)
    except OSError:
        return None
    return (status.st_dev, status.st_ino)


class File:
    """An open memory file. Writes are short `begin immediate` transactions on one connection behind a lock; each
    thread reads on a connection of its own. All connections are closed by `close`, also at interpreter exit.

    Opening makes one connection, a reader: reading the schema costs more than all the rest, and many who open a
    file only read. The writer is made, and WAL mode entered, by the first write or the first long read.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        read_only: bool = False,
        durability: Durability = "normal",
    ) -> None:
        self.path = absolute_path(path)
        self._name = str(self.path)  # what asks for it after every write need not make it anew
        self.read_only = read_only
        self.durability = durability
        self.closed = False
        self._writing = threading.RLock()
        self._write_depth = 0
        self._writes = 0
        self._in_wal = False
        self._connections = _Connections(self.path, read_only=read_only)
        if durability not in ("normal", "full"):
            raise BadInput("durability", f"{durability!r} is neither 'normal' nor 'full'")
        self._finalizer = weakref.finalize(self, self._connections.close)
        try:
            self._open()
        except BaseException:
            self.close()
            raise

    def _open(self) -> None:
        state = inspect_file(self.path)
        if self.read_only:
            if state == "new":
                raise NotAMemoryFile(f"{self.path}: there is no memory to read")
            if state == "old":
                raise ReadOnly(
                    f"{self.path}: was written by an older istar-lite and must be brought up to version "
                    f"{latest_version()} first; open it once without read_only"
                )
        elif state == "new":
            _create_private(self.path)
        elif not os.access(self.path, os.W_OK) or not os.access(self.path.parent, os.W_OK):
            raise ReadOnly(f"{self.path}: cannot be written; open it with read_only=True")
        self._connections.identity = identity(self.path)
        try:
            if state != "ours":
                migrate(self._writer(), self.path)
            self._verify()
        except DAMAGE as error:
            raise translate(error, self.path) from error

    def _verify(self) -> None:
        """Checks the real columns, not only the version; in well under a millisecond when nothing was declared
        since they were last found right."""
        reader = self.reader()
        self._refuse_cut_off(reader)
        print_ = fingerprint(reader)
        try:
            noted = is_noted(reader, print_)
        except sqlite3.OperationalError:  # no table of settings
            noted = False
        if noted:
            return
        require_columns(reader, self.path)
        if not self.read_only:
            # Only a note that saves time: a file that cannot take it now opens all the same.
            with contextlib.suppress(IstarError), self.write() as tx:
                note_checked(tx, print_)

    def _refuse_cut_off(self, reader: sqlite3.Connection) -> None:
        if wal_path(self.path).exists():
            return
        pages = reader.execute("pragma page_count").fetchone()[0] * reader.execute("pragma page_size").fetchone()[0]
        size = self.path.stat().st_size
        # Asked twice: between the two readings somebody may have begun to write.
        if pages > size and not wal_path(self.path).exists():
            raise FileDamaged(f"{self.path}: is cut off: {size} of {pages} bytes are there")

    def _connect(
        self, target: str, *, uri: bool = False, factory: type[sqlite3.Connection] = sqlite3.Connection
    ) -> sqlite3.Connection:
        connection = sqlite3.connect(
            target,
            timeout=BUSY_SECONDS,
            isolation_level=None,
            check_same_thread=False,
            uri=uri,
            # The statements that make a new file are some 300, and this cache does not forget what it held first.
            cached_statements=1024,
            factory=factory,
        )
        if isinstance(connection, ReaderConnection):
            connection.path = self.path
        connection.row_factory = sqlite3.Row
        connection.text_factory = as_text
        connection.execute("pragma foreign_keys = on")
        connection.execute("pragma recursive_triggers = on")
        connection.execute("pragma temp_store = memory")
        connection.execute("pragma secure_delete = on")
        add_missing_functions(connection)
        return connection

    # --- reading ----------------------------------------------------------------------------------------------

    def reader(self) -> sqlite3.Connection:
        """This thread's reading connection."""
        self._require_open()
        thread = threading.current_thread()
        known = self._connections.readers.get(thread.ident or 0)
        if known is not None and known[0]() is thread:
            return known[1]
        try:
            connection = self._connect_reader()
        except DAMAGE as error:
            raise translate(error, self.path) from error
        with self._connections.lock:
            if self.closed:
                connection.close()
                raise IstarError(f"{self.path}: is closed")
            # Threads come and go: the connections of those that went are closed here, or they would pile up.
            for ident, (owner, old) in list(self._connections.readers.items()):
                alive = owner()
                if alive is None or not alive.is_alive() or ident == thread.ident:
                    old.close()
                    del self._connections.readers[ident]
            self._connections.readers[thread.ident or 0] = (weakref.ref(thread), connection)
        return connection

    def _connect_reader(self) -> sqlite3.Connection:
        target = str(self.path)
        connection = self._connect_read_only() if self.read_only else self._connect(target, factory=ReaderConnection)
        connection.execute("pragma query_only = on")
        return connection

    def _connect_read_only(self) -> sqlite3.Connection:
        uri = self.path.as_uri() + "?mode=ro"
        connection = self._connect(uri, uri=True, factory=ReaderConnection)
        try:
            connection.execute("select 1 from sqlite_master").fetchone()
        except (sqlite3.OperationalError, IstarError):
            connection.close()
            # A WAL file in a folder that cannot be written needs `immutable`, which drops what lies in the -wal.
            if wal_path(self.path).exists() and wal_path(self.path).stat().st_size > 0:
                raise
            connection = self._connect(uri + "&immutable=1", uri=True, factory=ReaderConnection)
        return connection

    @contextlib.contextmanager
    def reading(self) -> Iterator[sqlite3.Connection]:
        """Several reads that see one state of the file (a deferred transaction on this thread's reader)."""
        connection = self.reader()
        if connection.in_transaction:
            yield connection
            return
        if not self.read_only and not self._in_wal:
            # Outside WAL mode a long read would hold up the first writer that comes.
            with self._writer_lock():
                self._writer()
        connection.execute("begin")
        try:
            yield connection
        except DAMAGE as error:
            raise translate(error, self.path) from error
        finally:
            if connection.in_transaction:
                connection.execute("rollback")

    def glance(self, sql: str, parameters: Any = ()) -> sqlite3.Row | None:
        """One row, for what is asked after every write: from the writer, whose pages are still at hand, unless
        another thread is using it. (Each write makes a reader forget all its pages.)"""
        self._require_open()
        writer = self._connections.writer
        if writer is None or not self._writing.acquire(blocking=False):
            rows = self.reader().execute(sql, parameters).fetchall()
        else:
            try:
                rows = writer.execute(sql, parameters).fetchall()
            except sqlite3.DatabaseError as error:
                raise translate(error, self.path) from error
            finally:
                self._writing.release()
        return rows[0] if rows else None

    # --- writing ----------------------------------------------------------------------------------------------

    def write(self) -> Writing:
        """A write transaction: `begin immediate`, commit at the end, roll back on any exception.

        Entered again inside itself (by the same thread) it joins the outer one. Raises `ReadOnly`, `Busy` after a
        bounded wait, `FileDamaged`; then nothing was written.
        """
        return Writing(self)

    def _begin(self) -> sqlite3.Connection:
        self._require_open()
        if self.read_only:
            raise ReadOnly(f"{self.path}: was opened read-only")
        self._acquire_writer()
        try:
            writer = self._writer()
            if not self._write_depth:
                try:
                    begin(writer)
                except BaseException as error:
                    self._roll_back(writer, error)
                    raise
            self._write_depth += 1
        except BaseException:
            self._writing.release()
            raise
        return writer

    def _end(self, error: BaseException | None) -> None:
        writer = self._connections.writer
        assert writer is not None
        try:
            if self._write_depth == 1:
                self._finish(writer, error)
        finally:
            self._write_depth -= 1
            self._writing.release()

    def _finish(self, writer: sqlite3.Connection, error: BaseException | None) -> None:
        if error is not None:
            self._roll_back(writer, error)
            return
        try:
            writer.execute("commit")
        except BaseException as failure:
            self._roll_back(writer, failure)
            raise
        self._require_present()
        self._hold_down_log(writer)

    def _roll_back(self, writer: sqlite3.Connection, cause: BaseException) -> None:
        """Undoes the transaction that `cause` ended, and raises our error for it where it was SQLite's."""
        try:
            if writer.in_transaction:  # after a full disk SQLite has rolled back by itself
                writer.execute("rollback")
        except DAMAGE as error:
            raise translate(error, self.path) from error
        if isinstance(cause, DAMAGE) and not isinstance(cause, sqlite3.IntegrityError):
            raise translate(cause, self.path) from cause

    @contextlib.contextmanager
    def spare_write(self) -> Iterator[sqlite3.Connection]:
        """A write transaction for what can wait: `Busy` at once where anybody else is writing, or this thread is."""
        self._require_open()
        if not self._writing.acquire(blocking=False):
            raise Busy(f"{self.path}: another thread is writing")
        try:
            if self._write_depth:
                raise Busy(f"{self.path}: a write is under way")
            writer = self._writer()
            writer.execute("pragma busy_timeout = 0")
            try:
                with self.write() as tx:
                    yield tx
            finally:
                writer.execute(f"pragma busy_timeout = {int(BUSY_SECONDS * 1000)}")
        finally:
            self._writing.release()

    @contextlib.contextmanager
    def _writer_lock(self) -> Iterator[None]:
        self._acquire_writer()
        try:
            yield
        finally:
            self._writing.release()

    def _acquire_writer(self) -> None:
        if not self._writing.acquire(timeout=BUSY_SECONDS):
            raise Busy(
                f"{self.path}: another thread is writing, and waiting {BUSY_SECONDS:g} s did not help; try again"
            )

    def _writer(self) -> sqlite3.Connection:
        """The writing connection, in WAL mode; made when it is first needed. The caller holds the lock."""
        writer = self._connections.writer
        if writer is not None:
            return writer
        self._require_open()
        self._require_present()
        try:
            writer = self._connect(self._name)
            try:
                enter_wal(writer)
                writer.execute(f"pragma synchronous = {self.durability}")
                writer.execute(f"pragma journal_size_limit = {WAL_WORTH_TRUNCATING}").fetchall()
            except BaseException:
                writer.close()
                raise
        except DAMAGE as error:
            raise translate(error, self.path) from error
        self._connections.writer = writer
        self._in_wal = True
        return writer

    def _require_present(self) -> None:
        """SQLite goes on writing into a file that was deleted or replaced, and all of it would be lost. Asked after
        each write, for 1 µs: what was gone before is gone then too."""
        if identity(self._name) != self._connections.identity:
            raise IstarError(f"{self.path}: was deleted or replaced while it was open; close it and open it again")

    def _hold_down_log(self, writer: sqlite3.Connection) -> None:
        """Where somebody always reads, SQLite's own checkpoint never comes to start the log anew: from a certain
        size on we wait for the readers, for a bounded time."""
        self._writes += 1
        if self._writes % WRITES_BETWEEN_LOOKS:
            return
        try:
            if wal_path(self.path).stat().st_size < 2 * WAL_WORTH_TRUNCATING:
                return
            writer.execute("pragma busy_timeout = 1000")
            writer.execute("pragma wal_checkpoint(restart)").fetchall()
        except (OSError, sqlite3.DatabaseError):
            pass  # the rows are committed; the log is tried again after as many writes
        finally:
            writer.execute(f"pragma busy_timeout = {int(BUSY_SECONDS * 1000)}")

    def compact(self) -> bool:
        """Rewrites the file without what was deleted, and empties its log. False when another connection still reads
        older pages, which therefore stay in the log (after a bounded wait)."""
        self._require_open()
        if self.read_only:
            raise ReadOnly(f"{self.path}: was opened read-only")
        with self._writer_lock():
            if self._write_depth:
                raise IstarError(f"{self.path}: cannot be rewritten inside a write")
            writer = self._writer()
            self._require_present()
            try:
                writer.execute("vacuum")
                # It raises nothing where a reader is in the way, and only says so in its row.
                busy: int = writer.execute("pragma wal_checkpoint(truncate)").fetchone()[0]
            except sqlite3.DatabaseError as error:
                raise translate(error, self.path) from error
        return not busy

    @property
    def was_written(self) -> bool:
        """Whether this object has written anything yet."""
        return self._writes > 0

    def _require_open(self) -> None:
        if self.closed:
            raise IstarError(f"{self.path}: is closed")
        if os.getpid() != self._connections.pid:
            raise IstarError(f"{self.path}: was opened before a fork; open it again in this process")

    # --- closing and copying ----------------------------------------------------------------------------------

    def close(self) -> bool:
        """Closes every connection and leaves one complete file. False when somebody else still has it open: then
        the file stays in WAL mode (with its -wal beside it) until they close it. Closing twice does nothing.

        A write under way in another thread is waited for; `Busy` if it does not end."""
        if os.getpid() != self._connections.pid or not self._finalizer.alive:
            self.closed = True
            self._finalizer()
            return not self._connections.held_by_others
        if self._write_depth and self._writing.acquire(blocking=False):
            self._writing.release()
            raise IstarError(f"{self.path}: cannot be closed inside its own write")
        with self._writer_lock():
            self.closed = True
            self._finalizer()
        if self._connections.held_by_others:
            others = ", ".join(holders(self.path)) or "somebody else"
            _log.info("%s: %s still has it open; the last to close leaves one file", self.path, others)
        return not self._connections.held_by_others

    def snapshot(
        self,
        target: str | os.PathLike[str],
        *,
        overwrite: bool = False,
        on_progress: Callable[[int, int], None] | None = None,
    ) -> Path:
        """A complete copy as one file, safe while others write: made under a temporary name, synced, renamed.
        `on_progress(done, total)`: bytes; what it raises ends the copying, and nothing is left of it."""
        goal = absolute_path(target)
        self._require_open()
        if goal.exists() and not overwrite:
            raise BadInput("path", f"{goal} exists; say overwrite=True to replace it")
        for beside in (wal_path(goal), shm_path(goal)):
            if beside.exists():
                raise BadInput("path", f"{beside} lies beside it: that file is open, or its last writes are in there")
        if goal == self.path or (goal.exists() and identity(goal) == self._connections.identity):
            raise BadInput("path", "a file cannot be its own copy")
        with replacing(goal) as draft:
            try:
                with self._copying() as connection, _watched_copy(connection, draft, on_progress):
                    # As bytes: a name that is no UTF-8 cannot be bound as text.
                    connection.execute("vacuum into cast(? as text)", (os.fsencode(draft),))
            except DAMAGE as error:
                raise translate(error, goal) from error
        return goal

    @contextlib.contextmanager
    def _copying(self) -> Iterator[sqlite3.Connection]:
        """This thread's reader, able to write elsewhere; in WAL mode, so that no writer waits for the copy."""
        with self.reading() as connection:
            connection.execute("rollback")  # `vacuum` runs in no transaction
            connection.execute("pragma query_only = off")
            try:
                yield connection
            finally:
                connection.execute("pragma query_only = on")


class Writing:
    """What `File.write` gives, to stand behind `with`. Every write pays for it: `contextlib`'s generators would cost
    4 µs more."""

    __slots__ = ("_file",)

    def __init__(self, file: File) -> None:
        self._file = file

    def __enter__(self) -> sqlite3.Connection:
        return self._file._begin()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._file._end(error)


def insert_rows(tx: sqlite3.Connection, table: str, columns: str, rows: Sequence[Sequence[Any]]) -> list[int]:
    """Writes many rows in few statements and gives their ids, which rise. At each statement whose triggers reach it,
    FTS5 writes what it has gathered so far to its tables; row by row (`executemany` too) that is most of what a row
    costs."""
    if not rows:
        return []
    if len(rows) == 1:
        return [int(tx.execute(_insert_statement(table, columns, 1), rows[0]).lastrowid or 0)]
    before = tx.execute(f"select coalesce(max(id), 0) from {table}").fetchone()[0]
    at, count = 0, ROWS_AT_ONCE
    while at < len(rows):
        while count > len(rows) - at:
            count //= 2
        values = list(chain.from_iterable(rows[at : at + count]))
        tx.execute(_insert_statement(table, columns, count), values)
        at += count
    return [row[0] for row in tx.execute(f"select id from {table} where id > ? order by id", (before,))]


@lru_cache(maxsize=128)
def _insert_statement(table: str, columns: str, count: int) -> str:
    row = f"({', '.join('?' * len(columns.split(',')))})"
    return f"insert into {table} ({columns}) values {', '.join([row] * count)}"


@contextlib.contextmanager
def _watched_copy(
    connection: sqlite3.Connection, draft: Path, on_progress: Callable[[int, int], None] | None
) -> Iterator[None]:
    """Tells how far a copy is by how large it has become. (Pages that are free are not copied.)"""
    if on_progress is None:
        yield
        return
    size, pages, free = (
        int(connection.execute(f"pragma {name}").fetchone()[0])
        for name in ("page_size", "page_count", "freelist_count")
    )
    total = size * (pages - free)
    with watched(connection, lambda _: on_progress(min(draft.stat().st_size, total), total), STEPS_BETWEEN_LOOKS):
        yield
    on_progress(total, total)


def holders(path: Path) -> list[str]:
    """Other processes that have the file open, such as "datasette (4711)", as far as this system and this user may
    know: Linux tells, others say nothing. What only this process has open is not in it."""
    found = []
    real = os.path.realpath(path)
    for process in Path("/proc").glob("[0-9]*"):
        if int(process.name) == os.getpid():
            continue
        try:
            open_here = any(os.readlink(link) == real for link in (process / "fd").iterdir())
            name = (process / "comm").read_text().strip() if open_here else ""
        except OSError:  # it ended meanwhile, or belongs to another user
            continue
        if open_here:
            found.append(f"{name} ({process.name})")
    return sorted(found)


@contextlib.contextmanager
def replacing(goal: Path) -> Iterator[Path]:
    """A private draft beside `goal`; at the end it is synced and takes its name in one step. On an exception it is
    removed, and whatever was at `goal` stays. The names by which SQLite keeps a memory's own log are refused."""
    for ending in ("-wal", "-shm", "-journal"):
        owner = Path(str(goal).removesuffix(ending))
        if owner != goal and owner.is_file():
            raise BadInput("path", f"{goal} is where SQLite keeps what was last written to {owner.name}")
    remove_dead_drafts(goal)
    draft = goal.with_name(f".{goal.name[:200]}.{os.getpid()}.{threading.get_ident()}.tmp")
    _create_private(draft)
    try:
        yield draft
        with open(draft, "rb+") as handle:
            os.fsync(handle.fileno())
        os.replace(draft, goal)
        _sync_folder(goal.parent)
    except OSError as error:
        raise IstarError(f"{goal}: cannot be written ({error.strerror or error})") from error
    finally:
        draft.unlink(missing_ok=True)


def remove_dead_drafts(goal: Path) -> None:
    """Removes drafts of `goal` whose process is gone. (Windows has no way to ask that without killing.)"""
    if os.name == "nt":
        return
    prefix = f".{goal.name[:200]}."
    for name in os.listdir(goal.parent):
        parts = name[len(prefix) :].split(".") if name.startswith(prefix) and name.endswith(".tmp") else []
        if len(parts) == 3 and parts[0].isdigit() and not _is_alive(int(parts[0])):
            (goal.parent / name).unlink(missing_ok=True)


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except (PermissionError, OverflowError):
        return True
    return True


def _sync_folder(folder: Path) -> None:
    if os.name == "nt":
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def absolute_path(path: object) -> Path:
    """`path` made absolute: SQLite takes a relative `file:a.db` for a URI even where URIs are off."""
    if not isinstance(path, (str, os.PathLike)):
        raise BadInput("path", f"a path is wanted, not {type(path).__name__}")
    text = os.fspath(path)
    if not isinstance(text, str) or not text or "\0" in text:
        raise BadInput("path", f"{text!r} is no path")
    if text == ":memory:":
        raise BadInput("path", "a memory lives in a file: name one")
    try:
        absolute = Path(text).expanduser().absolute()
        if absolute.is_symlink():  # SQLite follows it, and the log lies beside the real file
            absolute = absolute.resolve()
        if not absolute.parent.is_dir():
            raise BadInput("path", f"the folder {absolute.parent} does not exist")
        if absolute.is_dir():
            raise BadInput("path", f"{absolute} is a folder")
        if absolute.exists() and not absolute.is_file():
            raise BadInput("path", f"{absolute} is no ordinary file")
    except (RuntimeError, OSError, UnicodeEncodeError) as error:  # no home folder; a name too long; half an emoji
        raise BadInput("path", f"{text!r} is no path here ({error})") from error
    return absolute


def _create_private(path: Path) -> None:
    """An empty file that only its owner can read; memories are private. An existing one is left alone, and not even
    opened: closing it again would drop the locks that other connections of this process hold on it."""
    try:
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))
    except FileExistsError:
        return
    except OSError as error:
        raise ReadOnly(f"{path}: cannot be created ({error.strerror})") from error
