"""The forgetting curve in SQL against the same definition in Python; reinforcement; what the rankings are made of."""

from __future__ import annotations

import math
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from istar_lite import BadInput, Memory, memories
from istar_lite.clock import format_time, from_text
from istar_lite.memories import Candidate
from istar_lite.testing import FixedClock

DAY = 86400.0
WEIGHTS = {
    "joy": 1.15, "sadness": 1.2, "anger": 1.25, "fear": 1.35, "surprise": 1.1, "love": 1.25, "neutral": 1.0,
}  # fmt: skip

instants = st.datetimes(datetime(1, 1, 2), datetime(9999, 12, 30)).map(
    lambda moment: moment.replace(microsecond=moment.microsecond // 1000 * 1000, tzinfo=UTC)
)
rows = st.fixed_dictionaries(
    {
        "last": instants,
        "returned": st.booleans(),
        "stability": st.floats(0, 400),
        "importance": st.floats(0, 1),
        "emotion": st.sampled_from(sorted(WEIGHTS)),
        "similarity": st.floats(0, 1),
        "relevance": st.floats(0, 0.999),
    }
)


def decay(now: datetime, last: datetime, stability: float) -> float:
    """The definition: exp(-min(days / max(stability, 0.1), 700)), a future date as age 0."""
    days = max((now - last) / timedelta(days=1), 0.0)
    return math.exp(-min(days / max(stability, 0.1), 700.0))


@given(now=instants, row=rows)
@example(
    now=datetime(2026, 1, 1, tzinfo=UTC),
    row={"last": datetime(2025, 12, 31, 23, 59, 59, 999000, tzinfo=UTC), "returned": True, "stability": 0.0,
         "importance": 1.0, "emotion": "fear", "similarity": 1.0, "relevance": 0.5},
)  # fmt: skip
def test_both_rankings_equal_their_definition_on_random_rows(
    memory: Memory, now: datetime, row: dict[str, object]
) -> None:
    last, stability = row["last"], row["stability"]
    assert isinstance(last, datetime) and isinstance(stability, float)
    values = (
        "2000-01-01T00:00:00.000Z" if row["returned"] else format_time(last),
        format_time(last) if row["returned"] else None,
        *(stability, row["importance"], row["emotion"]),
    )
    with memory._services.file.write() as tx:
        tx.execute("delete from memory")
        id = tx.execute(
            "insert into memory (text, occurred_at, last_accessed_at, stability, importance, emotion)"
            " values ('x', ?, ?, ?, ?, ?) returning id",
            values,
        ).fetchone()[0]
    candidate = Candidate(id, float(row["relevance"]), float(row["similarity"]))  # type: ignore[arg-type]
    expected = decay(now, last, stability)
    importance, weight = float(row["importance"]), WEIGHTS[str(row["emotion"])]  # type: ignore[arg-type]
    products = {
        "ebbinghaus": candidate.similarity * expected * importance * weight,
        "balanced": candidate.relevance
        * (0.9 + 0.1 * expected)
        * (0.9 + 0.1 * importance)
        * (0.9 + 0.1 * weight / 1.35),
    }
    for ranking, product in products.items():
        (ranked,) = memories.rank(memory._services.file.reader(), [candidate], ranking=ranking, now=format_time(now))  # type: ignore[arg-type]
        assert ranked["decay"] == pytest.approx(expected, abs=1e-9, rel=1e-9)
        assert 0.0 < ranked["decay"] <= 1.0
        assert ranked["emotional_weight"] == weight
        assert ranked["score"] == pytest.approx(product, abs=1e-9, rel=1e-9)


def test_the_view_of_strength_computes_what_the_ranking_computes(memory: Memory) -> None:
    for text, days, emotion in (("a", 1, "fear"), ("b", 30, "joy"), ("c", 9000, "neutral"), ("d", -5, "love")):
        when = datetime.now(UTC) - timedelta(days=days)
        memory.remember(text, occurred_at=when, emotion=emotion, importance=0.5)
    connection = memory._services.file.reader()
    # One statement, so that both read the same clock of SQLite.
    found = connection.execute(
        "select strength.*, " + memories.DECAY.replace(":now", "strftime('%Y-%m-%dT%H:%M:%fZ', 'now')") + " as ours"
        " from memory_strength as strength join memory on memory.id = strength.id order by strength.id"
    ).fetchall()
    assert len(found) == 4
    for row in found:
        assert row["decay"] == pytest.approx(row["ours"], rel=1e-9)
        assert row["strength"] == pytest.approx(row["decay"] * 0.5 * WEIGHTS[row["emotion"]], rel=1e-9)
    assert [row["text"] for row in sorted(found, key=lambda row: -row["decay"])] == ["d", "a", "b", "c"]


def test_decades_of_idleness_stay_in_order_by_the_last_access(memory: Memory) -> None:
    for year in (1800, 1700, 1900):
        memory.remember(f"from {year}", occurred_at=f"{year}-01-01T00:00:00Z")
    candidates = [Candidate(id, 0.5, 0.5) for id in (1, 2, 3)]
    ranked = memories.rank(
        memory._services.file.reader(), candidates, ranking="ebbinghaus", now="2026-01-01T00:00:00.000Z"
    )
    assert [row["text"] for row in ranked] == ["from 1900", "from 1800", "from 1700"]
    assert all(row["score"] > 0 for row in ranked)


def test_equal_scores_go_by_last_access_then_by_the_higher_id(memory: Memory) -> None:
    memory.remember_many([{"text": text, "occurred_at": "2030-01-01T00:00:00Z"} for text in "abc"])
    ranked = memories.rank(
        memory._services.file.reader(),
        [Candidate(id, 0.5, 0.5) for id in (2, 1, 3)],
        ranking="balanced",
        now="2026-01-01T00:00:00.000Z",
    )
    assert [row["id"] for row in ranked] == [3, 2, 1]


def test_an_unknown_ranking_is_refused(memory: Memory) -> None:
    memory.remember("likes tea")
    with pytest.raises(BadInput) as refused:
        memory.chat().retrieve("tea", ranking="magic")  # type: ignore[arg-type]
    assert refused.value.field == "ranking"


# --- reinforcement --------------------------------------------------------------------------------------------


def strengths(memory: Memory) -> dict[str, tuple[float, int]]:
    """Text → stability and accesses."""
    return {row.text: (row.stability, row.access_count) for row in memory.list("memory")}


@pytest.fixture
def garden(path: Path, clock: FixedClock) -> Memory:
    """Three memories, of which one matters for a question about tulips."""
    memory = Memory(path, embedder=None, clock=clock)
    memory.remember("tulips bloom in the walled garden", emotion="joy")
    memory.remember("the kettle is in the kitchen")
    memory.remember("Ann sings in a choir")
    return memory


def test_only_what_is_returned_is_reinforced(garden: Memory, clock: FixedClock) -> None:
    clock.advance(DAY)
    (one,) = garden.chat().retrieve("where do the tulips bloom").memories
    assert one.decay_score == pytest.approx(math.exp(-0.5))
    assert strengths(garden) == {
        "tulips bloom in the walled garden": (pytest.approx(2.0 + 0.75 * 1.15), 1),
        "the kettle is in the kitchen": (2.0, 0),
        "Ann sings in a choir": (2.0, 0),
    }
    assert garden.get("memory", 1).last_accessed_at == from_text("2026-01-02T00:00:00.000Z")  # type: ignore[union-attr]


def test_reinforcement_ends_at_the_ceiling(garden: Memory) -> None:
    garden.db.execute("update memory set stability = 364.9 where id = 1")
    garden.db.execute("update memory set stability = 900 where id = 2")
    garden.db.conn.commit()
    for _ in range(3):
        garden.chat().retrieve("where do the tulips bloom")
        garden.chat().retrieve("where is the kettle")
    assert strengths(garden)["tulips bloom in the walled garden"][0] == memories.STABILITY_CEILING
    assert strengths(garden)["the kettle is in the kitchen"][0] == 900  # set by hand: not taken back


@pytest.mark.parametrize("options", [{"touch": False}, {"as_of": "2026-01-01T00:00:00Z"}])
def test_looking_without_touching_writes_nothing(garden: Memory, options: dict[str, object]) -> None:
    version = garden.db.execute("pragma data_version").fetchone()
    assert garden.chat().retrieve("where do the tulips bloom", **options).memories  # type: ignore[arg-type]
    assert garden.db.execute("pragma data_version").fetchone() == version


def test_a_read_only_file_is_read_and_not_changed(garden: Memory, path: Path, clock: FixedClock) -> None:
    garden.close()
    before = path.read_bytes()
    with Memory(path, embedder=None, clock=clock, read_only=True) as memory:
        assert memory.chat().retrieve("where do the tulips bloom").memories
        assert memory.context("where do the tulips bloom", budget_tokens=300)
    assert path.read_bytes() == before


def test_a_clock_that_was_set_back_takes_no_access_back(garden: Memory, clock: FixedClock) -> None:
    clock.advance(10 * DAY)
    garden.chat().retrieve("where do the tulips bloom")
    clock.advance(-8 * DAY)
    (one,) = garden.chat().retrieve("where do the tulips bloom").memories
    assert one.decay_score == 1.0
    assert garden.get("memory", 1).last_accessed_at == from_text("2026-01-11T00:00:00.000Z")  # type: ignore[union-attr]


def test_a_memory_dated_in_the_future_counts_as_fresh(garden: Memory) -> None:
    garden.remember("tulips will be sold at the fair", occurred_at="2027-01-01T00:00:00Z")
    found = {one.text: one.decay_score for one in garden.chat().retrieve("tulips", touch=False).memories}
    assert found["tulips will be sold at the fair"] == 1.0
