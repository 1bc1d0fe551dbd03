"""R14, R15: an instant is an instant under every time zone; ties are stable, pages miss and repeat nothing, and a cut
is visible."""

from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest

from istar_lite import BadInput, Memory, TurnRecord
from istar_lite.testing import FixedClock

ZONES = ("UTC", "Europe/Berlin", "Asia/Shanghai", "America/St_Johns")


@pytest.fixture(params=ZONES)
def zone(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The machine's time zone, each in turn."""
    monkeypatch.setenv("TZ", request.param)
    time.tzset()
    yield request.param
    monkeypatch.undo()
    time.tzset()


# The same six instants in many spellings, oldest first.
INSTANTS: tuple[tuple[Any, str], ...] = (
    ("2026-01-02T00:30:00+02:00", "22:30 on the first"),
    (datetime(2026, 1, 1, 23, 0, tzinfo=UTC), "23:00 on the first"),
    ("2026-01-02T00:00:00Z", "midnight"),
    (1767312000.5, "just after midnight"),
    ("2026-01-02 01:00:00+00:00", "one o'clock"),
    (datetime(2026, 1, 2, 9, 0, tzinfo=timezone(timedelta(hours=5, minutes=30))), "half past three"),
)


@pytest.fixture
def dated(memory: Memory, zone: str) -> Memory:
    for when, text in reversed(INSTANTS):
        memory.remember(f"event: {text}", occurred_at=when)
    return memory


def test_order_is_by_instant_however_it_was_written(dated: Memory) -> None:
    rows = sorted(dated.list("memory"), key=lambda row: row.occurred_at)
    assert [row.text for row in rows] == [f"event: {text}" for _, text in INSTANTS]
    texts = [row[0] for row in dated.db.execute("select text from memory order by occurred_at")]
    assert texts == [f"event: {text}" for _, text in INSTANTS], "order as text is order in time"


@pytest.mark.parametrize(
    ("start", "end"),
    [
        ("2026-01-02T00:00:00Z", "2026-01-03T00:00:00Z"),
        ("2026-01-02T00:00:00+00:00", "2026-01-03 00:00:00+00:00"),
        ("2026-01-02 00:00:00Z", datetime(2026, 1, 3, tzinfo=UTC)),
        (1767312000, 1767398400.0),
        ("2026-01-02T08:00:00+08:00", "2026-01-02T20:00-04:00"),
    ],
)
def test_a_day_is_the_same_day_in_every_spelling(dated: Memory, start: Any, end: Any) -> None:
    found = {hit.text for hit in dated.search("event", k=10, since=start, until=end)}
    assert found == {f"event: {text}" for _, text in INSTANTS[2:]}


def test_a_naive_time_is_local_time(memory: Memory, zone: str) -> None:
    for naive in (datetime(2026, 7, 1, 12, 0), "2026-07-01T12:00:00", "2026-07-01 12:00"):
        kept = memory.remember(f"naive {naive!r}", occurred_at=naive)
        assert kept.occurred_at == datetime(2026, 7, 1, 12, 0).astimezone()
    assert memory.remember("a day", occurred_at=date(2026, 1, 5)).occurred_at == datetime(2026, 1, 5).astimezone()
    assert memory.remember("as text", occurred_at="2026-01-05").occurred_at == datetime(2026, 1, 5).astimezone()


def test_a_winter_date_has_the_winter_offset(memory: Memory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "Europe/Berlin")
    time.tzset()
    try:
        winter = memory.remember("winter", occurred_at="2026-01-15T12:00:00").occurred_at
        summer = memory.remember("summer", occurred_at="2026-07-15T12:00:00").occurred_at
        assert (winter.astimezone(UTC).hour, summer.astimezone(UTC).hour) == (11, 10)
    finally:
        monkeypatch.undo()
        time.tzset()


@pytest.mark.parametrize(
    "wrong",
    [
        *("2026-02-30", "2026-13-01", "2026-01-01T25:00", "yesterday", "", "2026-W01", "20260101", "1.1.2026"),
        *(float("nan"), float("inf"), 1e20, True, b"2026-01-01", ["2026-01-01"], object()),
    ],
)
def test_what_is_no_time_is_refused_by_name_before_anything_is_written(memory: Memory, wrong: Any) -> None:
    with pytest.raises(BadInput) as error:
        memory.remember("x", occurred_at=wrong)
    assert error.value.field == "occurred_at"
    with pytest.raises(BadInput) as error:
        memory.search("x", since=wrong)
    assert error.value.field == "since"
    assert memory.stats()["kinds"]["memory"] == 0


def test_times_in_results_carry_their_zone(dated: Memory) -> None:
    assert all(row.occurred_at.tzinfo is not None for row in dated.list("memory"))
    assert dated.search("midnight")[0].to_dict()["occurred_at"].endswith("Z")


# --- R15 ------------------------------------------------------------------------------------------------------


def test_a_hundred_turns_of_one_instant_keep_their_order_on_every_reading(memory: Memory) -> None:
    run = memory.agent("run")
    for turn in range(1, 101):
        run.record_turn(TurnRecord(turn=turn, reward=1.0, text="the same thing happened", occurred_at=0))
    first = [hit.id for hit in memory.search("the same thing happened", k=100)]
    assert len(first) == 100
    for _ in range(20):
        assert [hit.id for hit in memory.search("the same thing happened", k=100)] == first
    told = [row[0] for row in memory.db.execute("select id from timeline where session = 'run'")]
    assert told == sorted(told)


def test_pages_cover_all_rows_once_while_others_write(path: Path) -> None:
    with Memory(path, embedder=None, clock=FixedClock()) as memory:
        memory.remember_many([f"fact {n}" for n in range(100)])
        seen: list[int] = []
        after, more = None, True
        while more:
            page = memory.list("memory", limit=7, after=after)
            seen += [row.id for row in page]
            after, more = page.after, page.has_more
            if len(seen) < 50:
                memory.remember(f"meanwhile {len(seen)}")
                memory.forget(id=seen[0])
        assert len(seen) == len(set(seen)) and set(range(1, 101)) <= set(seen)


def test_a_cut_is_visible_and_a_list_goes_on_to_its_end(memory: Memory) -> None:
    memory.remember_many([f"fact {n}" for n in range(1_500)])
    first = memory.list("memory")
    assert (len(first), first.has_more) == (100, True)
    whole = memory.list("memory", limit=2_000)
    assert (len(whole), whole.has_more, whole.after) == (1_500, False, None)
    for wrong in (-1, 1.5, "7", None, True):
        with pytest.raises(BadInput):
            memory.list("memory", limit=wrong)  # type: ignore[arg-type]


def test_a_large_deletion_meets_no_limit_of_parameters(memory: Memory) -> None:
    memory.import_conversation([{"content": f"line {n}"} for n in range(34_000)], session="long")
    # SQLite takes at most 32,766 parameters.
    assert memory.forget(ids=range(1, 33_001), kind="message").counts["message"] == 33_000
    assert memory.forget(session="long").counts["message"] == 1_000
    assert memory.check() == []
