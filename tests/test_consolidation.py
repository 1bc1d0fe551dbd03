"""Consolidation: what says nearly the same becomes one; links stay, nothing is lost, nothing is half done."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from istar_lite import Budget, Memory
from istar_lite.clustering import clusters
from istar_lite.testing import FixedClock, ScriptedLLM, WordEmbedder

DAY = 86400.0
SAME = ["Ann drinks green tea every day", "Ann drinks green tea every single day", "Ann drinks green tea every day now"]
OTHER = ["The ferry leaves at nine", "Ben plays the cello in a quartet"]


def open_memory(path: Path, clock: FixedClock, answers: Any = None, **options: Any) -> Memory:
    """A memory with the tiny embedder; with a model if there are answers."""
    llm = None if answers is None else ScriptedLLM(answers)
    return Memory(path, embedder=WordEmbedder(256), clock=clock, llm=llm, **options)


def texts(memory: Memory, status: str = "active") -> list[str]:
    """Texts of memories, in order of their ids."""
    return [row.text for row in memory.list("memory") if row.status == status]


# --- clusters -------------------------------------------------------------------------------------------------


def scikit(vectors: np.ndarray, threshold: float) -> list[list[int]]:
    """The same by scikit-learn."""
    cluster = pytest.importorskip("sklearn.cluster", reason="scikit-learn is in the test extra only")
    model = cluster.AgglomerativeClustering(
        n_clusters=None, metric="cosine", linkage="average", distance_threshold=threshold
    )
    groups: dict[int, list[int]] = {}
    for row, label in enumerate(model.fit(vectors).labels_):
        groups.setdefault(label, []).append(row)
    return sorted(group for group in groups.values() if len(group) > 1)


@given(st.integers(0, 10**9), st.integers(2, 150), st.integers(2, 80), st.floats(0.05, 0.8))
def test_clusters_are_those_of_scikit_learn(seed: int, count: int, dimension: int, spread: float) -> None:
    random = np.random.default_rng(seed)
    centres = random.normal(size=(max(1, count // 6), dimension))
    chosen = centres[random.integers(0, len(centres), count)]
    vectors = (chosen + random.normal(size=(count, dimension)) * spread).astype(np.float32)
    assert clusters(vectors, 0.15) == scikit(vectors, 0.15)


def test_clusters_are_those_of_scikit_learn_where_pairs_are_found_by_a_bound() -> None:
    random = np.random.default_rng(5)
    centres = random.normal(size=(300, 256)) * np.linspace(2, 0.2, 256)
    chosen = centres[random.integers(0, len(centres), 2000)]
    vectors = (chosen + random.normal(size=(2000, 256)) * 0.35).astype(np.float32)
    found = clusters(vectors, 0.15)
    assert len(found) > 100
    assert found == scikit(vectors, 0.15)


def test_a_thousand_equal_vectors_are_one_cluster_and_zero_vectors_none() -> None:
    assert clusters(np.ones((1000, 8), np.float32), 0.15) == [list(range(1000))]
    assert clusters(np.zeros((10, 8), np.float32), 0.15) == []
    assert clusters(np.zeros((0, 8), np.float32), 0.15) == []


# --- consolidate ----------------------------------------------------------------------------------------------


def test_without_a_model_the_texts_are_joined_and_the_links_stay(path: Path, clock: FixedClock) -> None:
    with open_memory(path, clock) as memory:
        memory.remember_many([*SAME, *OTHER])
        done = memory.chat().consolidate()
        assert (done.clusters_merged, done.memories_removed) == (1, 2)
        assert texts(memory) == [*OTHER, " ".join(f"{text}." for text in SAME)]
        assert texts(memory, "merged") == SAME
        links = memory.db.query("select role, source_kind, source_id from provenance where kind = 'memory' and id = 6")
        assert [tuple(link.values()) for link in links] == [("merged_from", "memory", id) for id in (1, 2, 3)]
        assert {row.ended_by for row in memory.list("memory") if row.status == "merged"} == {"memory 6"}
        assert memory.check() == []


def test_what_the_merged_memory_takes_from_its_parts(path: Path, clock: FixedClock) -> None:
    merged = "Ann drinks green tea every single day."
    with open_memory(path, clock, [json.dumps({"text": merged})]) as memory:
        memory.remember(SAME[0], importance=0.4, emotion="joy", tags=["a"], occurred_at="2025-03-01T00:00:00Z")
        memory.remember(SAME[1], importance=0.9, emotion="fear", tags=["b"], occurred_at="2025-05-01T00:00:00Z")
        memory.remember(SAME[1])
        memory.db.execute(
            "update memory set stability = 7, access_count = 3, last_accessed_at = '2025-06-01' where id = 1"
        )
        memory.db.execute(
            "update memory set access_count = 2, last_accessed_at = '2025-07-01T00:00:00.000Z' where id = 2"
        )
        memory.db.conn.commit()
        memory.chat().consolidate()
        (hit,) = memory.search("green tea")
        row = memory.get("memory", hit.id)
        assert row is not None
        assert (row.text, row.importance, row.emotion, row.stability) == (merged, 0.9, "fear", 7.0)
        assert (row.access_count, row.mention_count) == (5, 3)
        assert row.occurred_at.isoformat() == "2025-03-01T00:00:00+00:00"
        assert row.last_accessed_at.isoformat() == "2025-07-01T00:00:00+00:00"
        assert [tag["tag"] for tag in memory.db.query("select tag from tag where row = 3 order by tag")] == ["a", "b"]


@pytest.mark.parametrize("failure", [RuntimeError("429"), "I merged them.", '{"text": "Ann dri', "I'm sorry, I can't."])
def test_a_failed_merge_changes_nothing_and_stays_due(path: Path, clock: FixedClock, failure: object) -> None:
    with open_memory(path, clock, [failure, json.dumps({"text": "Ann drinks green tea daily."})]) as memory:
        memory.remember_many([*SAME, *OTHER])
        assert memory.chat().consolidate().clusters_merged == 0
        assert texts(memory) == [*SAME, *OTHER]
        assert memory.status().failed == 1
        memory.work(force=True)
        assert texts(memory) == [*OTHER, "Ann drinks green tea daily."]
        assert memory.status().failed == 0


def test_a_memory_that_changed_while_the_model_thought_is_not_merged(path: Path, clock: FixedClock) -> None:
    memory: Memory

    def correct(messages: object) -> str:
        memory.supersede(1, "Ann gave up tea")
        return json.dumps({"text": "Ann drinks green tea daily."})

    with open_memory(path, clock, [correct]) as memory:
        memory.remember_many(SAME)
        assert memory.chat().consolidate().clusters_merged == 0
        assert "Ann gave up tea" in texts(memory) and "Ann drinks green tea daily." not in texts(memory)


def test_the_budget_ends_it_between_clusters(path: Path, clock: FixedClock) -> None:
    twice = [*SAME, *(text.replace("Ann", "Ben").replace("green tea", "dark rum") for text in SAME)]
    answers = [json.dumps({"text": "Ann drinks green tea daily."}), json.dumps({"text": "Ben drinks dark rum daily."})]
    with open_memory(path, clock, answers, budget=Budget(calls_per_day=1)) as memory:
        memory.remember_many(twice)
        assert memory.chat().consolidate().clusters_merged == 1
        assert (memory.status().due, memory.status().budget_spent) == (1, True)
        clock.advance(DAY)
        assert not memory.status().budget_spent
        assert memory.work() == 1
        assert len(texts(memory)) == 2


def test_what_has_a_time_to_live_is_left_alone(path: Path, clock: FixedClock) -> None:
    with open_memory(path, clock) as memory:
        memory.remember(SAME[0])
        memory.remember(SAME[1], ttl=60)
        assert memory.chat().consolidate().clusters_merged == 0


def test_another_namespace_is_not_touched(path: Path, clock: FixedClock) -> None:
    with open_memory(path, clock) as memory:
        memory.remember(SAME[0])
        memory.in_namespace("other").remember_many(SAME[1:])
        assert memory.chat().consolidate().clusters_merged == 0
        assert memory.in_namespace("other").chat().consolidate().clusters_merged == 1
        assert texts(memory) == [SAME[0]]


def test_without_vectors_nothing_is_merged(memory: Memory) -> None:
    memory.remember_many(SAME)
    assert memory.chat().consolidate().clusters_merged == 0


def test_consolidating_again_asks_nobody(path: Path, clock: FixedClock) -> None:
    with open_memory(path, clock, [json.dumps({"text": "Ann drinks green tea daily."})]) as memory:
        memory.remember_many([*SAME, *OTHER])
        assert memory.chat().consolidate().clusters_merged == 1
        assert memory.chat().consolidate().clusters_merged == 0
        assert memory.status().calls == 1


def test_a_merged_part_can_be_restored(path: Path, clock: FixedClock) -> None:
    with open_memory(path, clock) as memory:
        memory.remember_many(SAME)
        memory.chat().consolidate()
        assert memory.restore("memory", 1).status == "active"
        assert SAME[0] in texts(memory)


def test_what_the_model_writes_takes_in_a_live_memory_that_says_so_already(path: Path, clock: FixedClock) -> None:
    merged = "Ann drinks green tea"
    with open_memory(path, clock, {"consolidate": merged}) as memory:
        memory.remember(merged, importance=0.9)
        for text in SAME:
            memory.remember(text)
        memory.chat().consolidate()
        assert texts(memory) == [merged]
        assert max(row.importance for row in memory.list("memory") if row.status == "active") == 0.9
        assert memory.check() == []
