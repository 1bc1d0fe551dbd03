"""Export and import: every row of the file as JSON lines, exactly, also of a file that is partly damaged.

The first line is a header, each other line is one row: `{"table": "turn", "row": {"id": 1, …}}`; the last one says
that nothing is missing: `{"end": true}`. Blobs are `{"base64": …}`, infinite numbers `{"real": "inf"}`; text that is
no UTF-8 (other tools can write it) gets U+FFFD. The full-text index is not in it: it is built anew. Tables of the
user's own are not in it either.
"""

from __future__ import annotations

import base64
import contextlib
import itertools
import json
import math
import os
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from istar_lite import checking
from istar_lite.database import File, absolute_path, replacing
from istar_lite.driver import DAMAGE, as_text, sqlite3, translate
from istar_lite.errors import BadInput, FileDamaged, FileTooNew, IstarError
from istar_lite.migrations import base_tables, latest_version, reference, table_names
from istar_lite.models import Exported
from istar_lite.text import clean

if TYPE_CHECKING:
    from collections.abc import Sequence

FORMAT = "istar-lite export"
END = {"end": True}
SEQUENCE = "sqlite_sequence"  # the ids that were used up; without it one of a deleted row could be given again
PAGE = 500
Progress = Callable[[int, int], None]
RowReader = Callable[[str, tuple[Any, ...]], "Sequence[tuple[Any, ...]]"]


# --- out ------------------------------------------------------------------------------------------------------


def export(
    path: Path,
    target: str | os.PathLike[str],
    *,
    overwrite: bool = False,
    on_progress: Progress | None = None,
) -> Exported:
    """Writes all rows of the file at `path` to `target` as JSON lines, as of one moment. Works on a file that
    `Memory` refuses as damaged: what can be read is saved, `lost` tells what could not.

    Raises `BadInput` if the target exists and not `overwrite`, `FileDamaged` when nothing at all can be read.
    """
    goal = absolute_path(target)
    if goal.exists() and (not overwrite or goal == path):
        raise BadInput("path", f"{goal} exists; say overwrite=True to replace it")
    try:
        with contextlib.closing(_lenient_connection(path)) as connection, replacing(goal) as draft:
            reading = _Reading(connection, on_progress)
            with open(draft, "w", encoding="utf-8", newline="\n") as out:
                for line in reading.lines():
                    out.write(line + "\n")
    except DAMAGE as error:
        raise translate(error, path) from error
    return Exported(path=str(goal), rows=dict(reading.counts), lost=tuple(reading.lost))


def _lenient_connection(path: Path) -> sqlite3.Connection:
    """A connection that reads as much as it can: no schema error stops it, no text is undecodable."""
    connection = sqlite3.connect(path.as_uri() + "?mode=ro", uri=True, isolation_level=None)
    try:
        connection.text_factory = as_text
        connection.execute("pragma writable_schema = on")
        connection.execute("begin")
        connection.execute("select 1 from sqlite_master").fetchone()
    except sqlite3.OperationalError:
        connection.close()
        if path.with_name(path.name + "-wal").exists():
            raise
        connection = sqlite3.connect(path.as_uri() + "?mode=ro&immutable=1", uri=True, isolation_level=None)
        connection.text_factory = as_text
        connection.execute("pragma writable_schema = on")
    except BaseException:
        connection.close()
        raise
    return connection


class _Reading:
    """Reads tables row by row; counts what it read and notes what it could not."""

    def __init__(self, connection: sqlite3.Connection, on_progress: Progress | None) -> None:
        self.connection = connection
        self.on_progress = on_progress
        self.counts: Counter[str] = Counter()
        self.lost: list[str] = []

    def lines(self) -> Iterator[str]:
        """The header, then a line a row, table after table, then the end."""
        tables = [name for name in (*table_names(self.connection), SEQUENCE) if self._is_ours(name)]
        if "setting" not in tables and "memory" not in tables:
            raise FileDamaged("nothing of a memory can be read from the file")
        yield json.dumps({"format": FORMAT, "version": latest_version(), "tables": tables})
        for at, table in enumerate(tables):
            if self.on_progress is not None:
                self.on_progress(at, len(tables))
            names = self._columns(table)
            for row in self._rows(table, names):
                self.counts[table] += 1
                yield json.dumps(
                    {"table": table, "row": {name: _out(value) for name, value in zip(names, row, strict=True)}},
                    ensure_ascii=False,
                    allow_nan=False,
                )
        yield json.dumps(END)
        if self.on_progress is not None:
            self.on_progress(len(tables), len(tables))

    def _is_ours(self, name: str) -> bool:
        return name == SEQUENCE or name in base_tables()

    def _columns(self, table: str) -> list[str]:
        return [row[0] for row in self.connection.execute("select name from pragma_table_info(?)", (table,))]

    def _rows(self, table: str, names: list[str]) -> Iterator[tuple[Any, ...]]:
        what = f"select {', '.join(names)} from {table}"
        if _has_rowid(self.connection, table):
            yield from self._by_rowid(table, names)
            return
        try:
            yield from self.connection.execute(what)
        except DAMAGE as error:
            # No row number to jump by: the rest is read from the other end, as far as it goes.
            self.lost.append(f"{table}: rows in the middle cannot be read ({error})")
            yield from self._backwards(table, names)

    def _backwards(self, table: str, names: list[str]) -> Iterator[tuple[Any, ...]]:
        key = [
            row[0]
            for row in self.connection.execute(
                "select name from pragma_table_info(?) where pk > 0 order by pk", (table,)
            )
        ]
        order = ", ".join(f"{name} desc" for name in key)
        seen: list[tuple[Any, ...]] = []
        with contextlib.suppress(*DAMAGE):
            for row in self.connection.execute(f"select {', '.join(names)} from {table} order by {order}"):
                seen.append(tuple(row))
        yield from reversed(seen)

    def _by_rowid(self, table: str, names: list[str]) -> Iterator[tuple[Any, ...]]:
        what = f"select rowid, {', '.join(names)} from {table} where rowid > ? order by rowid limit ?"
        last = -(2**63)
        while True:
            rows, broken = self._page(what, last)
            for row in rows:
                yield tuple(row[1:])
            if rows:
                last = rows[-1][0]
            if broken is not None:
                after = self._next_readable(table, last)
                self.lost.append(
                    f"{table}: rows from {last + 1} on cannot be read ({broken})"
                    if after is None
                    else f"{table}: rows {max(last + 1, 0)} to {after} cannot be read ({broken})"
                )
                if after is None:
                    return
                last = after
            elif len(rows) < PAGE:
                return

    def _page(self, what: str, last: int) -> tuple[list[Any], str | None]:
        """The next rows, and what stopped the reading before its end, if anything did."""
        rows: list[Any] = []
        try:
            for row in self.connection.execute(what, (last, PAGE)):
                rows.append(row)
        except DAMAGE as error:
            return rows, str(error)
        return rows, None

    def _next_readable(self, table: str, last: int) -> int | None:
        """The highest row number that cannot be read in this gap: ever longer jumps, then halving back."""
        start = max(last, 0)
        bad, step = start, 1
        while step < 2**40:
            if self._reads_after(table, start + step):
                break
            bad, step = start + step, step * 2
        else:
            return None
        good = start + step
        while good - bad > 1:
            middle = (good + bad) // 2
            if self._reads_after(table, middle):
                good = middle
            else:
                bad = middle
        return good

    def _reads_after(self, table: str, number: int) -> bool:
        try:
            row = self.connection.execute(
                f"select * from {table} where rowid > ? order by rowid limit 1", (number,)
            ).fetchone()
        except DAMAGE:
            return False
        return row is not None


def _has_rowid(connection: sqlite3.Connection, table: str) -> bool:
    row = connection.execute("select sql from sqlite_master where name = ?", (table,)).fetchone()
    return row is not None and "without rowid" not in str(row[0]).lower().rsplit(")", 1)[-1]


def _out(value: object) -> object:
    if isinstance(value, bytes):
        return {"base64": base64.b64encode(value).decode()}
    if isinstance(value, float) and not math.isfinite(value):
        return {"real": repr(value)}
    return value


# --- in -------------------------------------------------------------------------------------------------------


def is_export(source: str | os.PathLike[str]) -> bool:
    """Whether a file is an export of ours (its first line says so)."""
    try:
        with open(source, encoding="utf-8-sig") as lines:
            header = json.loads(lines.readline(10_000))
    except (OSError, ValueError):
        return False
    return isinstance(header, dict) and header.get("format") == FORMAT


def is_empty(connection: sqlite3.Connection) -> bool:
    """Whether nobody has written anything into the file yet."""
    row = connection.execute(
        "select exists (select 1 from session) or exists (select 1 from memory) or exists (select 1 from tombstone)"
        " or exists (select 1 from file) or exists (select 1 from item)"
        " or exists (select 1 from profile) or (select count(*) from namespace) > 1"
    ).fetchone()
    return not row[0]


def load(file: File, source: str | os.PathLike[str], *, on_progress: Progress | None = None) -> dict[str, int]:
    """Fills an empty file with the rows of an export, ids and all, in one transaction. Gives the counts by table.

    What a damaged file could not save may be missing: rows whose owner is missing get a new one, links that lead
    nowhere are dropped. Raises `BadInput` naming the line for anything that is no export, `FileTooNew`.
    """
    counts: Counter[str] = Counter()
    with file.write() as tx, checking.without_triggers(tx):
        if not is_empty(tx):
            raise BadInput("path", f"{file.path} holds something already: load the export into a new file and merge")
        tx.execute("pragma defer_foreign_keys = on")  # a message may name an observation that comes later
        for table in reversed(base_tables()):
            tx.execute(f"delete from {table}")
        total = os.path.getsize(source)
        for table, names, rows in _batches(source):
            tx.executemany(
                f"insert into {table} ({', '.join(names)}) values ({', '.join('?' * len(names))})", rows
            ) if table != SEQUENCE else _restore_sequence(tx, rows)
            counts[table] += len(rows)
            if on_progress is not None:
                on_progress(min(sum(counts.values()) * 200, total), total)
        _make_whole(tx)
    return dict(counts)


def _make_whole(tx: sqlite3.Connection) -> None:
    for name in ("parents", "settings", "documents", "vectors", "links"):
        checking.REPAIRS[name](tx)
    tx.execute("insert into namespace (id, name) values (1, 'default') on conflict do nothing")
    tx.executemany(
        "insert into setting (key, value) values (?, ?) on conflict do nothing",
        reference().execute("select key, value from setting").fetchall(),
    )


def _restore_sequence(tx: sqlite3.Connection, rows: Iterable[tuple[Any, ...]]) -> None:
    # A table of SQLite's own, without any constraint to meet.
    for name, used in ((row[0], row[1]) for row in rows):
        tx.execute("delete from sqlite_sequence where name = ?", (name,))
        tx.execute("insert into sqlite_sequence (name, seq) values (?, ?)", (name, used))


def _batches(source: str | os.PathLike[str]) -> Iterator[tuple[str, tuple[str, ...], list[tuple[Any, ...]]]]:
    """(table, columns, rows) in the order of the export; consecutive rows of one shape together."""
    for (table, names), group in itertools.groupby(_read(source), key=lambda item: (item[0], item[1])):
        while rows := [values for _, _, values in itertools.islice(group, PAGE)]:
            yield table, names, rows


def _read(source: str | os.PathLike[str]) -> Iterator[tuple[str, tuple[str, ...], tuple[Any, ...]]]:
    known = {table: _all_columns(table) for table in (*base_tables(), SEQUENCE)}
    ended = False
    try:
        with open(source, encoding="utf-8-sig") as lines:
            _require_header(lines.readline())
            for number, line in enumerate(lines, 2):
                if not line.strip():
                    continue
                item = _parsed(line, number)
                ended = item == END
                if not ended:
                    yield _row(item, number, known)
    except UnicodeDecodeError as error:
        raise BadInput("path", f"{source} is no UTF-8 text") from error
    except OSError as error:
        raise BadInput("path", f"{source} cannot be read ({error.strerror})") from error
    if not ended:
        # Cut at the end of a line (a copy that was interrupted, a full disk) it would pass for a smaller memory.
        raise BadInput("path", f"the export is cut off: its last line is not {json.dumps(END)}")


def _all_columns(table: str) -> set[str]:
    return {row[0] for row in reference().execute("select name from pragma_table_info(?)", (table,))}


def _require_header(line: str) -> None:
    try:
        header = json.loads(line)
    except ValueError:
        header = None
    if not isinstance(header, dict) or header.get("format") != FORMAT:
        raise BadInput("path", "line 1: is no export of istar-lite")
    if not isinstance(header.get("version"), int) or header["version"] > latest_version():
        raise FileTooNew(
            f"the export has version {header.get('version')}, this istar-lite knows versions up to {latest_version()}"
        )


def _parsed(line: str, number: int) -> Any:
    try:
        return json.loads(line)
    except ValueError as error:
        raise BadInput("path", f"line {number}: is no row ({error})") from error


def _row(item: Any, number: int, known: Mapping[str, set[str]]) -> tuple[str, tuple[str, ...], tuple[Any, ...]]:
    try:
        table, row = item["table"], item["row"]
        # Names of tables and columns are looked up, never pasted.
        if table not in known or not set(row) <= known[table]:
            raise BadInput("path", f"line {number}: names a table or a column that this version does not have")
        return table, tuple(row), tuple(_in(value) for value in row.values())
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        if isinstance(error, IstarError):
            raise
        raise BadInput("path", f"line {number}: is no row ({error})") from error


def _in(value: Any) -> Any:
    if isinstance(value, str):
        return _bindable(value)
    if isinstance(value, dict):
        return base64.b64decode(value["base64"]) if "base64" in value else float(value["real"])
    if isinstance(value, list):
        raise ValueError("a list is no value of a column")
    return value


def _bindable(text: str) -> str:
    try:
        text.encode()
    except UnicodeEncodeError:  # half an emoji, written as \ud83d by whoever edited the export
        return clean(text)
    return text


@contextlib.contextmanager
def as_file(source: str | os.PathLike[str]) -> Iterator[Path]:
    """An export as a memory file, in a temporary folder: what `merge` takes."""
    with tempfile.TemporaryDirectory(prefix="istar-lite-") as folder:
        path = Path(folder) / "export.db"
        file = File(path)
        try:
            load(file, source)
        finally:
            file.close()
        yield path
