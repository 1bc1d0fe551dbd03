"""Large namespaces: what cells and words bring is what comparing everything finds; cells are never needed."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from conftest import Shell

from istar_lite import Memory
from istar_lite.recall import cells, wide
from istar_lite.recall.loading import Place
from istar_lite.testing import FixedClock

WHO = ("the gardener", "my sister", "a neighbour", "the baker", "our teacher", "an old sailor")
WHAT = ("planted", "painted", "repaired", "sold", "found", "remembered", "drew", "lost")
THING = ("roses by the wall", "a wooden boat", "the kitchen clock", "bread with rye", "a map of the coast",
         "two violins", "the apple tree", "a letter from Lisbon", "snow on the roof", "a blue bicycle")  # fmt: skip
QUERIES = ("who repaired the clock", "boats made of wood", "Lisbon", "music instruments that were lost", "baker bread",
           "what did my sister paint", "trees and roses", "a bicycle was found")  # fmt: skip


def texts(count: int) -> list[str]:
    """Different sentences of everyday words."""
    return [
        f"{WHO[at % 6]} {WHAT[at // 6 % 8]} {THING[at // 48 % 10]} on day {at} of the {('spring', 'autumn')[at % 2]}"
        for at in range(count)
    ]


@pytest.fixture
def large(tmp_path: Path, clock: FixedClock) -> Iterator[Memory]:
    """1,200 memories, with cells."""
    with Memory(tmp_path / "large.db", clock=clock) as memory:
        memory.remember_many(texts(1200))
        memory.status()
        assert cells.tend(memory._services, least=1000) == 1
        yield memory


def by(memory: Memory, query: str = QUERIES[0], **more: object) -> str:
    """Who compared the vectors."""
    return str(memory.search(query, **more)[0].explain["signals"]["static"]["by"])  # type: ignore[arg-type]


def members(memory: Memory) -> int:
    return int(memory.db.execute("select count(*) from cell_member").fetchone()[0])


def test_candidates_hold_what_comparing_everything_finds(large: Memory, tmp_path: Path, clock: FixedClock) -> None:
    assert by(large) == "cells" and members(large) == 1200
    with Memory(tmp_path / "same.db", clock=clock) as exact:
        exact.remember_many(texts(1200))
        for query in QUERIES:
            wanted, found = ([hit.id for hit in each.search(query, k=5)] for each in (exact, large))
            assert wanted[0] in found, query
            assert len(set(wanted) & set(found)) >= 3, query


def test_what_is_written_edited_and_forgotten_later_is_right_at_once(large: Memory) -> None:
    new = large.remember("The lighthouse keeper grows tomatoes")
    assert large.search("tomatoes of the lighthouse", k=1)[0].id == new.id
    large.db.execute("update memory set text = 'Penguins walk through Oslo' where id = 7")
    large.db.conn.commit()
    assert large.search("penguins in Norway's capital", k=1)[0].id == 7
    large.work()
    assert members(large) == 1201
    assert large.search("penguins", k=1)[0].id == 7
    large.forget(id=7)
    assert 7 not in {hit.id for hit in large.search("penguins", k=50)}
    assert members(large) == 1200
    assert large.check() == []


def test_what_the_cells_do_not_cover_is_brought_in_before_it_becomes_much(
    large: Memory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cells, "TAIL", 20)
    large.remember_many([f"comet number {at} was seen from the tower" for at in range(30)])
    assert large.search("comets seen from a tower", k=1)[0].text.startswith("comet")
    assert members(large) == 1230


def test_cells_deleted_from_a_plain_shell_are_missed_by_nobody(large: Memory) -> None:
    before = [hit.id for hit in large.search("Lisbon", k=3)]
    with sqlite3.connect(large.path) as shell:  # foreign keys are off there
        shell.execute("delete from cell")
    shell.close()
    assert members(large) == 0
    assert by(large) in ("sqlite-vec", "numpy", "matrix")
    assert len({hit.id for hit in large.search("Lisbon", k=3)} & set(before)) >= 1
    assert cells.tend(large._services, least=1000) == 1
    assert by(large) == "cells" and large.check() == []


def test_a_making_that_is_cut_off_leaves_search_as_it_was_and_is_cleared_away(
    tmp_path: Path, clock: FixedClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Memory(tmp_path / "a.db", clock=clock) as memory:
        memory.remember_many(texts(1200))
        memory.status()
        monkeypatch.setattr(cells, "BATCH", 500)
        note = cells._note
        monkeypatch.setattr(cells, "_note", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            cells.tend(memory._services, least=1000)
        assert by(memory) != "cells" and members(memory) == 1200
        monkeypatch.setattr(cells, "_note", note)
        cells.tend(memory._services, least=1000)
        assert by(memory) == "cells" and members(memory) == 1200


def test_a_namespace_that_has_doubled_gets_new_cells(large: Memory) -> None:
    first = large.db.execute("select max(id), count(*) from cell").fetchone()
    large.remember_many([f"{text}, said again" for text in texts(1300)])
    large.status()
    cells.tend(large._services, least=1000)
    again = large.db.execute("select min(id), count(*) from cell").fetchone()
    assert again[0] > first[0] and again[1] > first[1] and members(large) == 2500
    assert large.check() == []


def test_filters_that_few_pass_and_sessions_are_compared_exactly(large: Memory) -> None:
    special = large.remember("A tagged sentence about clocks", tags=["special"])
    found = large.search("clock", tags=["special"], k=50)
    assert [hit.id for hit in found] == [special.id]
    assert found[0].explain["signals"]["static"]["by"] != "cells"
    assert by(large, kinds=["memory"]) == "cells"


def test_a_narrow_time_finds_what_comparing_everything_finds_and_reads_little(
    tmp_path: Path, clock: FixedClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    def made(name: str) -> Memory:
        memory = Memory(tmp_path / name, clock=clock)
        memory.import_conversation(
            [
                {"speaker": "Ann", "content": text, "session": f"s{at // 40}", "timestamp": 1.76e9 + 3600 * at}
                for at, text in enumerate(texts(1200))
            ],
            format="messages",
        )
        memory.status()
        return memory

    def found(memory: Memory, query: str, **more: object) -> list[tuple[int, float]]:
        return [(hit.id, pytest.approx(hit.score)) for hit in memory.search(query, k=20, **more)]  # type: ignore[arg-type,misc]

    day = 1.76e9 + 3600 * 510  # in the middle of a session
    times = (
        {"since": day, "until": day + 3600 * 100},
        {"until": 1.76e9 + 3600 * 30},
        {"since": 1.76e9 + 3600 * 1100},
        {"since": 1.8e9},
    )
    with made("exact.db") as exact, made("cells.db") as large:
        assert cells.tend(large._services, least=1000) == 1
        read: list[int] = []
        kept = wide.around
        monkeypatch.setattr(wide, "around", lambda *given: read.append(len(given[2])) or kept(*given))  # type: ignore[func-returns-value]
        for time in times:
            for query in QUERIES:
                assert found(large, query, **time) == found(exact, query, **time), (time, query)
        assert len(read) == len(times) * len(QUERIES) and max(read) == 100
        assert large.check() == []


def test_kinds_that_are_few_beside_the_messages_are_a_scope_of_their_own(tmp_path: Path, clock: FixedClock) -> None:
    def made(name: str) -> Memory:
        memory = Memory(tmp_path / name, clock=clock)
        watch = memory.observe("talk", context_window=1_000_000, background=None)
        for text in texts(300):
            watch.add("user", text, speaker="Ann")
        memory.remember_many([f"Ann says that {text}" for text in texts(40)])
        memory.in_namespace("other").remember_many(texts(20))
        memory.status()
        return memory

    with made("large.db") as large, made("exact.db") as exact:
        assert cells.tend(large._services, least=200)
        for query in (*QUERIES, "what did Ann say about Lisbon"):
            found, wanted = (
                [(hit.id, hit.score) for hit in each.search(query, kinds=["memory"])] for each in (large, exact)
            )
            assert [id for id, _ in found] == [id for id, _ in wanted], query
            assert [score for _, score in found] == pytest.approx([score for _, score in wanted], abs=1e-6)
        large.remember("Ann says that a bicycle from Lisbon was painted")
        assert large.search("bicycle from Lisbon painted", kinds="memory")[0].id == 61
        assert large._services.scopes is not None
        assert list(large._services.scopes._kept) == [Place(1, kinds=("memory",))]


def test_other_namespaces_change_nothing(large: Memory) -> None:
    before = [(hit.id, round(hit.score, 4)) for hit in large.search("wooden boats")]
    large.in_namespace("other").remember_many(["a wooden boat of somebody else"] * 1 + texts(300))
    after = large.search("wooden boats")
    assert [hit.id for hit in after] == [id for id, _ in before]
    assert [hit.score for hit in after] == pytest.approx([score for _, score in before], abs=0.02)


def test_a_small_namespace_gets_no_cells(tmp_path: Path, clock: FixedClock) -> None:
    with Memory(tmp_path / "a.db", clock=clock) as memory:
        memory.remember_many(texts(50))
        memory.work()
        assert memory.db.execute("select count(*) from cell").fetchone() == (0,)


def test_k_means_parts_what_lies_apart() -> None:
    chance = np.random.default_rng(1)
    around = np.eye(8, dtype=np.float32)[chance.integers(0, 4, 400)]
    units = around + 0.05 * chance.standard_normal((400, 8)).astype(np.float32)
    units /= np.linalg.norm(units, axis=1, keepdims=True)
    centres = cells.k_means(units, 4)
    assert np.allclose(np.linalg.norm(centres, axis=1), 1, atol=1e-5)
    assert len(cells.k_means(units[:0], 4)) == 0
    assert wide.LISTED > wide.BY_WORDS


def test_a_large_import_or_merge_at_the_command_line_ends_with_its_cells_made(
    tmp_path: Path, shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cells, "LEAST", 1000)
    source = tmp_path / "said.jsonl"
    source.write_text("\n".join(json.dumps({"role": "user", "content": text}) for text in texts(1100)))
    shell("import", tmp_path / "large.db", source)
    with Memory(tmp_path / "large.db") as memory, Memory(tmp_path / "other.db") as other:
        assert members(memory) == 1100
        assert members(other) == 0
    shell("merge", tmp_path / "other.db", tmp_path / "large.db")
    with Memory(tmp_path / "other.db") as other:
        assert members(other) == 1100
