"""How well recall finds, on real conversations: a fall below these values is a defect. Skips without the data."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from istar_lite import Memory
from istar_lite.bench.recall import METRICS, Score, _search, load, measure, run_istar
from istar_lite.recall import cells


def recall_at_10(score: Score) -> float:
    """Turn Recall@10."""
    return dict(zip(METRICS, score.mean(), strict=True))["Turn Recall@10"]


def test_the_metrics_of_one_question() -> None:
    found = ["D1:1", "D2:5", "D1:2", "D3:1"]
    assert measure(found, ["D2:5", "D9:9"]) == pytest.approx((0.5, 0.5, 0.5, 1.0, 0.5, 0.6309 / 1.6309, 0.5), abs=1e-4)
    assert measure([], ["D1:1"]) == (0, 0, 0, 0, 0, 0, 0)


def test_static_and_words_alone_find_what_they_should(locomo: Path) -> None:
    conversations = load(locomo)
    assert sum(len(one.questions) for one in conversations) == 760
    assert recall_at_10(run_istar(conversations, "static", "static")) >= 0.80
    assert recall_at_10(run_istar(conversations, None, "words")) >= 0.77


def test_one_file_of_many_namespaces_finds_exactly_what_single_files_find(locomo: Path) -> None:
    conversations = load(locomo)[:2]
    single = run_istar(conversations, "static", "single")
    for way in ("namespaces", "sessions"):
        assert run_istar(conversations, "static", way, pooled=way).rows == single.rows


def test_one_namespace_of_many_conversations_stays_near_the_single_ones(locomo: Path) -> None:
    assert recall_at_10(run_istar(load(locomo), "static", "one", pooled="one")) >= 0.78


def test_candidates_from_words_and_cells_find_as_much_as_comparing_everything(locomo: Path, tmp_path: Path) -> None:
    conversations = [replace(one, questions=one.questions[::4]) for one in load(locomo)]
    with Memory(tmp_path / "pooled.db") as memory:
        for conversation in conversations:
            memory.import_conversation([conversation.source], format="locomo")
        memory.status()
        exact, wide = Score("exact"), Score("cells")
        for conversation in conversations:
            exact.ask(conversation, _search(memory, conversation, 10))
        assert cells.tend(memory._services, least=1000) == 1
        assert memory.search("a walk")[0].explain["signals"]["static"]["by"] == "cells"
        for conversation in conversations:
            wide.ask(conversation, _search(memory, conversation, 10))
    assert len(exact.rows) == len(wide.rows) > 180
    assert recall_at_10(wide) > recall_at_10(exact) - 0.01
