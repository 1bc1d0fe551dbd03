"""The benchmark measures what it says: its numbers are numbers of real runs, and two runs can be compared."""

from __future__ import annotations

import collections
import itertools
import json
import statistics
from pathlib import Path

import pytest

from istar_lite import Memory
from istar_lite.bench import adds, measures, peers, room, speed
from istar_lite.bench.ground import WORDS, Setup, questions, sentences
from istar_lite.bench.measures import Measure


@pytest.fixture
def setup(tmp_path: Path) -> Setup:
    return Setup(tmp_path, items=100, sizes=(30,), runs=1)


def test_every_kind_of_row_is_added_and_counted(setup: Setup) -> None:
    measured = {one.name: one for one in adds.adds(setup)}
    with Memory(setup.folder / "adds.db", embedder=None) as memory:
        kinds = memory.stats()["kinds"]
        active = memory._services.file.reader().execute("select count(*) from atom").fetchone()[0]
    assert set(kinds) == {kind for kind in kinds if kinds[kind]}  # no kind is left out
    assert kinds["turn"] == 100 + 100 + 2 * 100 + 100 + 20  # alone, and with atoms, episodes, a profile
    assert active >= 2 * 100
    assert kinds["episode"] == 4 and kinds["profile"] == 1
    assert kinds["memory"] == 2 * 100 + 50
    assert kinds["exchange"] == 2 * 50
    assert kinds["message"] >= 2 * 100 + 4 * 50 + 50 + 2 * 100
    assert kinds["item"] == 200 and kinds["file"] == 100
    assert all(one.value > 0 for one in measured.values())
    share = measured["turns, one by one, share of raw SQL"].value
    assert share == pytest.approx(
        measured["turns, one by one"].value / measured["turns, raw SQL on the same schema"].value
    )


def test_a_file_of_the_asked_size_is_searched_checked_and_copied(setup: Setup) -> None:
    measured = list(speed.searches(setup, 30))
    with Memory(setup.folder / "size-30.db") as memory:
        assert memory.stats()["kinds"]["message"] == 30
        assert memory.status().pending_vectors == 0
    assert {one.unit for one in measured} == {"rows/s", "ms", "MB"}
    assert (setup.folder / "size-30.db.copy").exists()
    assert all(one.value > 0 for one in measured)


def test_the_other_calls_are_made_on_rows_that_are_there(setup: Setup) -> None:
    names = {one.name.partition(" (")[0] for one in speed.calls(setup, 30)}
    assert {"chat.retrieve, with reinforcement", "consolidate", "snapshot", "merge", "forget by text"} <= names


def test_the_slowest_imports_are_named() -> None:
    slowest = speed.import_times(3)
    assert len(slowest) == 3
    assert slowest == sorted(slowest, key=lambda one: -one[1])


def test_room_is_counted_per_row_and_by_table(tmp_path: Path) -> None:
    measured = {one.name: one.value for one in room.room(Setup(tmp_path, items=200))}
    assert measured["1,000 messages, with vectors"] > measured["1,000 messages, words only"] >= 0
    assert measured["a message in embedding, with vectors"] > 200
    assert "a message in embedding, words only" not in measured
    assert measured["a message in document_fts, words only"] > 20
    by_table = sum(value for name, value in measured.items() if name.startswith("a message in") and "words" in name)
    assert by_table == pytest.approx(measured["1,000 messages, words only"], rel=0.1)
    assert measured["write-ahead log at most, somebody always reads"] > 0


def test_a_busy_agent_grows_as_it_foretold(tmp_path: Path) -> None:
    measured = {one.name: one for one in room.growth(Setup(tmp_path, days=4))}
    with Memory(tmp_path / "growth.db", embedder=None) as memory:
        assert memory.stats()["kinds"]["turn"] == 4 * 500
        assert memory.stats()["kinds"]["episode"] == 4 * 20
    whole, vacuumed = (measured[f"4 days of 500 turns{name}"].value for name in ("", ", vacuumed"))
    assert vacuumed <= whole < 1.5 * vacuumed
    assert measured["foretold after 3 days, share of what came"].value == pytest.approx(1, abs=0.15)


def test_ours_runs_beside_the_others(setup: Setup) -> None:
    measured = list(peers.measure(setup, "istar-lite", peers.STORES["istar-lite"][1]))
    assert [one.unit for one in measured] == ["rows/s", "ms", "bytes"]


def test_a_store_that_cannot_search_says_so_and_is_measured_by_its_adds(setup: Setup) -> None:
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
    assert list(sentences(3)) == list(sentences(3))
    assert len(set(sentences(50))) == 50
    assert 115 < statistics.mean(map(len, sentences(500))) < 135
    asked = list(itertools.islice(questions(), 200))
    assert asked == list(itertools.islice(questions(), 200)) and len(set(asked)) > 190


def test_the_words_of_the_sentences_are_spread_like_those_of_conversations() -> None:
    held = collections.Counter(word for text in sentences(1_000) for word in set(text.split()[2:]) & set(WORDS))
    ranked = [count / 1_000 for _, count in held.most_common()]
    # Measured over 2,760 turns of real conversations: .25, .10, .023, .002.
    assert 0.15 < ranked[0] < 0.35 and 0.06 < ranked[9] < 0.16 and 0.01 < ranked[99] < 0.04 and ranked[999] < 0.005
