"""Upkeep that nobody should have to think of: the full-text index is merged, the planner's statistics are renewed, and
the log is brought into the file, by `work` and `close`.

All of it can wait, so that none of it makes anybody wait: it goes in steps, each a transaction of its own of some
hundred pages, taken only while nobody else writes and with a pause after it in which whoever waits comes in. What is
due is read off the file (parts of the index, rows counted when they were last analysed), never off a clock; a file in
which nothing is due is asked three short questions. It may stop anywhere: the next call goes on.

No vacuum, full or incremental: pages that deleted rows leave are taken by the next rows (a year of a busy agent leaves
some per cent of its file free, see `istar-lite bench speed --days`), while giving them back would move pages about in
every file, need an empty one to be switched on, and write each page of the file once more. `stats()` tells what is
free, `forget(secure=True)` rewrites the file.
"""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from istar_lite.errors import Busy
from istar_lite.migrations import base_tables

if TYPE_CHECKING:
    from istar_lite.database import File

_log = logging.getLogger("istar_lite")

MERGED_PAGES = 100  # of the full-text index, written by one step: some 10 ms
PAUSE = 0.005  # seconds between two steps
AT_WORK, AT_CLOSE = 5_000, 12  # steps of a merge at most; the others are few
PARTS = 4  # of the full-text index that are left alone: each is looked at by every search
# Pages of the index from which on it is merged (some 40,000 messages). A merge leaves as much room free as the index
# takes, for the rows that come next: of a small file that is a tenth, for searches that are fast in any case.
FEWEST_PAGES = 2_000
# The index is merged into one part when the small ones together are at least a quarter of the largest, so that a page
# is written some ten times while the index grows a thousandfold, however often this is called.
SHARE = 4
ANALYSED_ROWS = 400  # of each index: what one step reads at most
GROWN = 10  # times as many search rows as when they were last analysed
FEWEST = 1_000  # search rows that are worth analysing


def tend(file: File, most: int, *, pause: Callable[[float], object] = time.sleep) -> Counter[str]:
    """Does what is due, `most` steps of a merge at most, and counts the steps by name: "merge", "analyse". It ends
    early when anybody else is writing. Read-only files are left alone."""
    done: Counter[str] = Counter()
    if file.read_only:
        return done
    try:
        for name in _steps(file):
            done[name] += 1
            if done["merge"] >= most:
                break
            pause(PAUSE)
    except Busy:  # whoever writes goes first; the rest waits for the next call
        _log.debug("%s: upkeep gave way to a write", file.path)
    if done:
        _log.debug("%s: upkeep: %s", file.path, dict(done))
    return done


def empty_log(file: File) -> None:
    """Brings the log into the file as far as nobody's reading needs it. It holds up neither readers nor writers, and
    spares the next turn that would have to do it."""
    if not file.read_only:
        # On the reader, which may do this: the writer's own lock stays free for a turn meanwhile.
        file.reader().execute("pragma wal_checkpoint(passive)").fetchall()


def _steps(file: File) -> Iterator[str]:
    yield from _analysing(file)
    yield from _merging(file)


# --- the full-text index --------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Parts:
    """The parts ("segments") of the full-text index: pages of each, and whether a merge is under way."""

    pages: tuple[int, ...]
    merging: bool

    def are_due(self) -> bool:
        total = sum(self.pages)
        return (
            total >= FEWEST_PAGES and len(self.pages) > PARTS and SHARE * (total - max(self.pages)) >= max(self.pages)
        )


def _merging(file: File) -> Iterator[str]:
    row = file.glance("select block from document_fts_data where id = 10")
    parts = _read_parts(row[0]) if row is not None else None
    if parts is None or not (parts.merging or parts.are_due()):
        return
    # A negative number makes all parts one merge; a positive one goes on with it.
    pages = MERGED_PAGES if parts.merging else -MERGED_PAGES
    while True:
        with file.spare_write() as tx:
            before = tx.total_changes
            tx.execute("insert into document_fts (document_fts, rank) values ('merge', ?)", (pages,))
            changed = tx.total_changes - before
        yield "merge"
        if changed < 2 and pages > 0:  # FTS5's sign that nothing is left to merge
            return
        pages = MERGED_PAGES


def _read_parts(record: bytes) -> _Parts | None:
    """What the index's structure record says; None where it is of a form that we do not know. (A cookie of 4 bytes,
    then varints: levels, segments, writes; of each level the segments being merged and all, and of each of these its
    id, first and last page.)"""
    if not isinstance(record, bytes) or record[4:5] == b"\xff":  # the form of contentless tables, which ours is not
        return None
    numbers = _varints(record[4:])
    try:
        levels, _, _ = next(numbers), next(numbers), next(numbers)
        pages: list[int] = []
        merging = False
        for _ in range(levels):
            under_way, count = next(numbers), next(numbers)
            merging = merging or under_way > 0
            for _ in range(count):
                _, first, last = next(numbers), next(numbers), next(numbers)
                pages.append(last - first + 1)
    except StopIteration:
        return None
    return _Parts(tuple(pages), merging)


def _varints(raw: bytes) -> Iterator[int]:
    value = 0
    for byte in raw:
        value = value << 7 | byte & 127
        if byte < 128:
            yield value
            value = 0


# --- the planner's statistics ---------------------------------------------------------------------------------


def _analysing(file: File) -> Iterator[str]:
    """What `pragma optimize` is for, one table at a time. (Itself it does all in one transaction, before SQLite 3.46
    only for what this connection has asked, and it misses a table that grew tenfold by a little.) With the limit no
    values of rows are kept (`sqlite_stat4`), only counts: what is forgotten must not live on there."""
    if not _has_grown(file):
        return
    # Last the table by which we tell next time that all are done.
    for table in sorted(base_tables(), key=lambda name: name == "document"):
        if file.glance(f"select 1 from {table} limit 1") is None:
            continue
        with file.spare_write() as tx:
            tx.execute(f"pragma analysis_limit = {ANALYSED_ROWS}").fetchall()
            tx.execute(f"analyze main.{table}")
        yield "analyse"


def _has_grown(file: File) -> bool:
    row = file.glance("select max(id) from document")
    newest = 0 if row is None or row[0] is None else int(row[0])
    if newest < FEWEST:
        return False
    if file.glance("select 1 from sqlite_master where name = 'sqlite_stat1'") is None:
        return True
    noted = file.glance("select max(cast(stat as integer)) from sqlite_stat1 where tbl = 'document'")
    return noted is None or noted[0] is None or newest >= GROWN * int(noted[0])
