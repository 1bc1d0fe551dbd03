"""The benchmark measures what it says: its numbers are numbers of real runs, and two runs can be compared."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from istar_lite import Memory
from istar_lite.bench import measures, peers, speed
from istar_lite.bench.measures import Measure


@pytest.fixture
def setup(tmp_path: Path) -> speed.Setup:
    return speed.Setup(tmp_path, items=12, sizes=(30,), runs=1)


def test_every_kind_of_row_is_added_and_counted(setup: speed.Setup) -> None:
    measured = {one.name: one for one in speed.adds(setup)}
    with Memory(setup.folder / "adds.db") as memory:
        kinds = memory.stats()["kinds"]
    assert kinds["turn"] == 24  # one by one, and in a batch
    assert kinds["memory"] == 24
    assert kinds["exchange"] == 6
    assert kinds["message"] == 12 + 12 + 12  # observed, imported, and two of each exchange
    assert all(one.value > 0 for one in measured.values())
    share = measured["turns, one by one, share of raw SQL"].value
    assert share == pytest.approx(
        measured["turns, one by one"].value / measured["turns, raw SQL on the same schema"].value
    )


def test_a_file_of_the_asked_size_is_searched(setup: speed.Setup) -> None:
    measured = list(speed.searches(setup, 30))
    with Memory(setup.folder / "size-30.db") as memory:
        assert memory.stats()["kinds"]["message"] == 30
        assert memory.status().pending_vectors == 0
    assert {one.unit for one in measured} == {"rows/s", "ms", "MB"}


def test_the_other_calls_are_made_on_rows_that_are_there(setup: speed.Setup) -> None:
    names = {one.name.partition(" (")[0] for one in speed.calls(setup, 30)}
    assert {"chat.retrieve, with reinforcement", "consolidate", "snapshot", "merge", "forget by text"} <= names


def test_room_is_counted_per_thousand_rows(tmp_path: Path) -> None:
    measured = {one.name: one.value for one in speed.room(speed.Setup(tmp_path, items=200))}
    assert measured["1,000 messages, with vectors"] > measured["1,000 messages, words only"] >= 0


def test_ours_runs_beside_the_others(setup: speed.Setup) -> None:
    measured = list(peers.measure(setup, "istar-lite", peers.STORES["istar-lite"][1]))
    assert [one.unit for one in measured] == ["rows/s", "ms", "bytes"]


def test_a_store_that_cannot_search_says_so_and_is_measured_by_its_adds(setup: speed.Setup) -> None:
    kept: list[str] = []
    keeper = peers.Store(kept.append, None, lambda: None, "it has no search")
    names = [one.name for one in peers.measure(setup, "keeper", lambda folder: keeper)]
    assert names == ["keeper: adds one by one (it has no search)", "keeper: bytes an item"]
    assert len(kept) == setup.items


def test_a_run_is_compared_with_an_older_one(tmp_path: Path) -> None:
    old = measures.from_json(measures.to_json([Measure("search", "1,000", 4.0, "ms", 3)]))
    lines = list(measures.markdown([Measure("search", "1,000", 2.0, "ms", 3), Measure("room", "new", 1.0, "KB")], old))
    assert "| search | 1,000 | 2 | ms | 4 | 0.50 |" in lines
    assert "| room | new | 1 | KB | – | – |" in lines


def test_json_tells_the_machine() -> None:
    told = json.loads(measures.to_json([]))
    assert told["measures"] == []
    assert {"istar_lite", "driver", "processor", "cores", "load"} <= set(told["machine"])


def test_the_sentences_are_the_same_every_time() -> None:
    assert list(speed.sentences(3)) == list(speed.sentences(3))
    assert len(set(speed.sentences(50))) == 50
