"""What the file takes and how it grows: bytes by table, by 1,000 turns, and a forecast from the rows' own times."""

from __future__ import annotations

import contextlib
import json
from collections import Counter
from typing import TYPE_CHECKING, Any, NamedTuple

from istar_lite.clock import epoch, epoch_to_text
from istar_lite.errors import FileDamaged
from istar_lite.pages import Layout, Unreadable, layout

if TYPE_CHECKING:
    from istar_lite.database import File
    from istar_lite.driver import sqlite3

# What comes in from outside; everything else in the file is made of it.
RECORDED = ("turn", "message", "memory")
FULL_TEXT = "document_fts"
ALL_ROWS = 20_000  # up to so many rows of a table every time is read, of more a sample
SAMPLE = 5_000
PERIODS = (30, 90, 365)  # days before the newest row: the shortest that holds enough rows is taken
ENOUGH = 50  # rows, or rows of the sample
LEAST_ROWS, LEAST_DAYS = 20, 2  # below them nothing is foretold
AHEAD = (30, 365)  # days
DAY = 86_400


def told(file: File, now: str) -> dict[str, Any]:
    """`tables`: bytes by table, the largest first: `bytes` (in all), of these `indices`, and `share` of the file; the
    full-text index is one of them. `free`: bytes that deleted rows left for new ones. `sampled`: True where the pages
    of very long rows were given to their tables by a sample (sums are exact). `per_1000_turns`: bytes in use by 1,000
    rows recorded (turns, messages, memories told directly), with all that was made of them. `growth`: see `_growth`.

    All of the file, whatever the namespace; as of one moment each. Where the file's pages cannot be read (some
    systems do not let a process look at its own open files) `tables` is None and `why` says so.
    """
    connection = file.reader()
    recorded = _recorded(connection)
    try:
        pages = _layout(file)
    except Unreadable as error:
        return {"tables": None, "why": str(error), "per_1000_turns": None, "growth": _none("its pages cannot be read")}
    # One page for each table and index is what an empty file takes.
    used = (pages.pages - pages.free - len(pages.trees)) * pages.page_size
    each = max(used, 0) / sum(recorded.values()) if any(recorded.values()) else None
    return {
        "tables": _tables(pages),
        "free": pages.free * pages.page_size,
        "sampled": not pages.exact,
        "per_1000_turns": None if each is None else round(1000 * each),
        "growth": _growth(connection, recorded, each, pages, now),
    }


def _layout(file: File) -> Layout:
    try:
        return layout(file)
    except Unreadable:  # somebody rewrote the log meanwhile
        return layout(file)


def _tables(pages: Layout) -> dict[str, dict[str, Any]]:
    totals: Counter[str] = Counter()
    indices: Counter[str] = Counter()
    for tree in pages.trees:
        size = (tree.pages + tree.overflow) * pages.page_size
        # The full-text index lies in four tables of its own.
        owner = FULL_TEXT if tree.owner.startswith(f"{FULL_TEXT}_") else tree.owner
        totals[owner] += size
        if tree.name != tree.owner:
            indices[owner] += size
    whole = pages.pages * pages.page_size
    return {
        name: {"bytes": size, "indices": indices[name], "share": round(size / whole, 4)}
        for name, size in totals.most_common()
    }


def _recorded(connection: sqlite3.Connection) -> dict[str, int]:
    """Rows of the file that came from outside, by table."""
    counts = {table: int(connection.execute(f"select count(*) from {table}").fetchone()[0]) for table in RECORDED}
    # A memory with sources was taken out of what is counted already.
    made = connection.execute("select count(distinct row) from source where kind = 'memory'").fetchone()[0]
    counts["memory"] = max(counts["memory"] - int(made), 0)
    return counts


# --- growth ---------------------------------------------------------------------------------------------------


class _Pace(NamedTuple):
    """Rows in the days before the newest one."""

    rows: float
    days: float
    until: float
    sampled: bool


def _growth(
    connection: sqlite3.Connection, recorded: dict[str, int], each: float | None, pages: Layout, now: str
) -> dict[str, Any]:
    """`bytes_per_day`, `rows_per_day`, the size of the file `in_30_days` and `in_365_days` if it goes on like that, and
    `rests_on`: which days, how many rows. All None for a file too young to tell, and `rests_on` says why.

    Rows count by when things happened: a conversation of a year that was imported today is a year's worth. What is
    dated in the future is left out, and free pages are filled before the file grows.
    """
    pace = _pace(connection, recorded, now)
    if each is None or pace is None:
        return _none("nothing is recorded yet")
    if pace.rows < LEAST_ROWS or pace.days < LEAST_DAYS:
        rows = "1 row" if round(pace.rows) == 1 else f"{pace.rows:,.0f} rows"
        return _none(f"too early to tell: {rows} in {pace.days:.1f} days")
    a_day = pace.rows / pace.days
    size = pages.pages * pages.page_size
    used = size - pages.free * pages.page_size
    since, until = (epoch_to_text(max(at, 0.0))[:10] for at in (pace.until - DAY * pace.days, pace.until))
    return {
        "bytes_per_day": round(a_day * each),
        "rows_per_day": round(a_day, 1),
        **{f"in_{days}_days": max(size, round(used + days * a_day * each)) for days in AHEAD},
        "rests_on": f"{pace.rows:,.0f} rows from {since} to {until}" + (", by a sample" if pace.sampled else ""),
    }


def _none(why: str) -> dict[str, Any]:
    return {"bytes_per_day": None, "rows_per_day": None, **{f"in_{days}_days": None for days in AHEAD}, "rests_on": why}


def _pace(connection: sqlite3.Connection, recorded: dict[str, int], now: str) -> _Pace | None:
    """How many rows came in the shortest period before the newest one that holds enough of them."""
    present = epoch(now)
    times: list[tuple[float, float]] = []  # and how many rows each stands for
    for table, count in recorded.items():
        found = _times(connection, table)
        times += [(time, count / len(found)) for time in found if count and time <= present]
    if not times:
        return None
    times.sort()
    newest, oldest = times[-1][0], times[0][0]
    within, days = times, (newest - oldest) / DAY
    for period in PERIODS:
        last = [pair for pair in times if pair[0] > newest - DAY * period]
        if ENOUGH <= len(last) < len(times):
            within, days = last, float(period)
            break
    return _Pace(sum(weight for _, weight in within), days, newest, any(n > ALL_ROWS for n in recorded.values()))


def _times(connection: sqlite3.Connection, table: str) -> list[float]:
    """When the rows of a table happened (epoch seconds): of all, or of many spread evenly over the ids."""
    first, last = connection.execute(f"select min(id), max(id) from {table}").fetchone()
    if first is None:
        return []
    if last - first < ALL_ROWS:
        rows = connection.execute(f"select occurred_at from {table}")
    else:
        chosen = json.dumps([first + (last - first) * at // (SAMPLE - 1) for at in range(SAMPLE)])
        rows = connection.execute(
            f"select occurred_at from json_each(?) cross join {table} on {table}.id = value", (chosen,)
        )
    found = []
    for (stored,) in rows:
        with contextlib.suppress(FileDamaged):  # somebody wrote what is no time; `check` tells
            found.append(epoch(stored))
    return found
