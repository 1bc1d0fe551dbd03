"""Upkeep is done in small steps that let everybody in between, changes nothing that anybody wrote, and is only done
where there is something to do."""

from __future__ import annotations

import contextlib
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from istar_lite import Memory, upkeep
from istar_lite.database import File, sqlite3, wal_path
from istar_lite.errors import IstarError
from istar_lite.testing import FixedClock

WORDS = ["tea", "rose", "storm", "harbour", "violin", "garden", "winter", "invoice", "printer", "market"]


def text(number: int) -> str:
    return f"{number} " + " ".join(f"{WORDS[(number * step) % 10]}{number * step % 997}" for step in range(1, 25))


def write_one_by_one(memory: Memory, count: int, first: int = 0) -> None:
    """Each write makes a part of the full-text index; SQLite itself joins only parts of one size."""
    for number in range(first, first + count):
        memory.remember(text(number))


def parts(file: File) -> upkeep._Parts:
    found = upkeep._read_parts(file.reader().execute("select block from document_fts_data where id = 10").fetchone()[0])
    assert found is not None
    return found


@pytest.fixture(autouse=True)
def small_indexes_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(upkeep, "FEWEST_PAGES", 1)


@pytest.fixture
def filled(path: Path, clock: FixedClock, monkeypatch: pytest.MonkeyPatch) -> Path:
    """1,200 memories in many parts of the index, not analysed."""
    with monkeypatch.context() as patch:
        patch.setattr(upkeep, "AT_CLOSE", 0)
        patch.setattr(upkeep, "tend", lambda *_: None)
        with Memory(path, embedder=None, clock=clock) as memory:
            write_one_by_one(memory, 1_200)
    return path


def test_work_merges_the_full_text_index_into_one_part(filled: Path) -> None:
    with Memory(filled, embedder=None) as memory:
        file = memory._services.file
        assert len(parts(file).pages) > upkeep.PARTS
        found = [hit.id for hit in memory.search("storm8 garden16", k=50)]
        memory.work()
        assert len(parts(file).pages) == 1
        assert [hit.id for hit in memory.search("storm8 garden16", k=50)] == found
        assert memory.check() == []


def test_another_connection_writes_between_any_two_steps(filled: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(upkeep, "MERGED_PAGES", 3)
    other = sqlite3.connect(filled, timeout=0, isolation_level=None)
    wrote = 0

    def pause(seconds: float) -> None:
        nonlocal wrote
        other.execute("insert into memory (text, occurred_at) values ('in between', '2026-01-01T00:00:00.000Z')")
        wrote += 1

    with Memory(filled, embedder=None) as memory:
        done = upkeep.tend(memory._services.file, 1_000, pause=pause)
        assert done["merge"] > 5 and done["analyse"] > 3
        assert wrote == done.total()
        assert memory.check() == []
        assert memory.stats()["kinds"]["memory"] == 1_200 + wrote
    other.close()


def test_a_step_writes_a_bounded_number_of_pages(filled: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(upkeep, "MERGED_PAGES", 4)
    with Memory(filled, embedder=None) as memory:
        file = memory._services.file
        changes: list[int] = []
        spare = File.spare_write

        @contextlib.contextmanager
        def counted(self: File) -> Iterator[Any]:
            with spare(self) as tx:
                start = tx.total_changes
                yield tx
                changes.append(tx.total_changes - start)

        monkeypatch.setattr(File, "spare_write", counted)
        done = upkeep.tend(file, 1_000, pause=lambda _: None)
        assert len(changes) == done.total() > 10
        # A page of the index is a row; entries that point to it, and the ends of parts, are some more.
        assert max(changes) < 200 < sum(changes)


def test_upkeep_gives_way_to_whoever_writes(filled: Path) -> None:
    other = sqlite3.connect(filled, timeout=0, isolation_level=None)
    with Memory(filled, embedder=None) as memory:
        file = memory._services.file
        memory.remember("so that the writer is there")
        other.execute("begin immediate")
        assert upkeep.tend(file, 100).total() == 0  # at once, not after the seconds that a turn would wait
        other.execute("rollback")
        with file.write():
            assert upkeep.tend(file, 100).total() == 0
        assert file._connections.writer is not None
        assert file._connections.writer.execute("pragma busy_timeout").fetchone()[0] == 10_000
        assert upkeep.tend(file, 100, pause=lambda _: None).total() > 0
    other.close()


def test_a_merge_that_was_cut_off_is_gone_on_with(filled: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(upkeep, "MERGED_PAGES", 3)
    monkeypatch.setattr(upkeep, "AT_CLOSE", 2)
    with Memory(filled, embedder=None) as memory:
        memory.remember("one more")  # who writes nothing tidies nothing
    with Memory(filled, embedder=None, read_only=True) as memory:
        assert parts(memory._services.file).merging
        assert memory.check() == []
    rounds = 0
    merging = True
    while merging and rounds < 1_000:
        rounds += 1
        with Memory(filled, embedder=None) as memory:
            upkeep.tend(memory._services.file, 2, pause=lambda _: None)
            merging = parts(memory._services.file).merging
    assert 2 < rounds < 1_000


def test_nothing_is_done_where_nothing_is_due(filled: Path) -> None:
    with Memory(filled, embedder=None) as memory:
        memory.work()
        write_one_by_one(memory, 3, 5_000)  # a few small parts beside the large one
        assert upkeep.tend(memory._services.file, 100).total() == 0


def test_an_index_is_not_written_anew_for_each_small_part(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with Memory(path, embedder=None) as memory:
        file = memory._services.file
        steps = [0]
        for round_ in range(30):
            write_one_by_one(memory, 40, round_ * 40)
            steps.append(upkeep.tend(file, 1_000, pause=lambda _: None)["merge"])
    assert sum(step > 0 for step in steps) < 20  # each time would be 30


def test_a_small_index_is_not_merged_since_that_would_leave_a_tenth_of_the_file_free(
    filled: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(upkeep, "FEWEST_PAGES", 1_000)
    with Memory(filled, embedder=None) as memory:
        memory.work()
        assert len(parts(memory._services.file).pages) > upkeep.PARTS
        assert memory.stats()["free"] < filled.stat().st_size / 100


def test_read_only_files_are_left_alone(filled: Path) -> None:
    before = filled.read_bytes()
    with Memory(filled, embedder=None, read_only=True) as memory:
        assert upkeep.tend(memory._services.file, 100).total() == 0
        upkeep.empty_log(memory._services.file)
    assert filled.read_bytes() == before
    assert not wal_path(filled).exists()


def test_who_only_reads_tidies_nothing_at_close(filled: Path) -> None:
    before = filled.read_bytes()
    with Memory(filled, embedder=None) as memory:
        memory.get("memory", 1)
    assert filled.read_bytes() == before


def test_trouble_in_upkeep_does_not_keep_a_file_from_closing(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(file: File, most: int) -> None:
        raise IstarError("the disk is full")

    monkeypatch.setattr(upkeep, "tend", full)
    memory = Memory(path, embedder=None)
    memory.remember("a fact")
    assert memory.close()
    assert not wal_path(path).exists()


def test_work_brings_the_log_into_the_file(path: Path) -> None:
    with Memory(path, embedder=None) as memory:
        write_one_by_one(memory, 20)
        memory.work()
        busy, pages, moved = memory._services.file.reader().execute("pragma wal_checkpoint(passive)").fetchone()
        assert (busy, pages) == (0, moved)
        copy = path.with_name("copy.db")
        copy.write_bytes(path.read_bytes())  # without its log
    with Memory(copy, embedder=None) as memory:
        assert memory.stats()["kinds"]["memory"] == 20


# --- statistics -----------------------------------------------------------------------------------------------


def analysed(path: Path, memory: Memory) -> None:
    assert upkeep.tend(memory._services.file, 100, pause=lambda _: None)["analyse"] > 3


def test_statistics_are_renewed_when_the_file_has_grown_tenfold(filled: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with Memory(filled, embedder=None) as memory:
        file = memory._services.file
        analysed(filled, memory)
        assert upkeep.tend(file, 100, pause=lambda _: None)["analyse"] == 0
        memory.remember_many([text(number) for number in range(10_000, 21_500)])
        assert upkeep.tend(file, 100, pause=lambda _: None)["analyse"] > 0
        rows = dict(file.reader().execute("select idx, stat from sqlite_stat1 where tbl = 'document'").fetchall())
        assert rows["sqlite_autoindex_document_1"].startswith("12700 ")


def test_statistics_that_were_cut_off_are_made_again(filled: Path) -> None:
    with Memory(filled, embedder=None) as memory:
        file = memory._services.file
        steps = upkeep._analysing(file)
        assert next(steps) == "analyse"
        steps.close()
        analysed(filled, memory)
        tables = {row[0] for row in file.reader().execute("select tbl from sqlite_stat1")}
        assert {"document", "memory", "namespace"} <= tables


def test_small_files_are_not_analysed(path: Path) -> None:
    with Memory(path, embedder=None) as memory:
        write_one_by_one(memory, 50)
        memory.work()
        tables = memory._services.file.reader().execute("select name from sqlite_master where name glob 'sqlite_stat*'")
        assert tables.fetchall() == []


def test_statistics_hold_counts_and_no_value_of_any_row(filled: Path) -> None:
    with Memory(filled, embedder=None) as memory:
        memory.remember("the word is xylophone", key="xylophone-key", tags=["xylophone-tag"])
        analysed(filled, memory)
        reader = memory._services.file.reader()
        names = [row[0] for row in reader.execute("select name from sqlite_master where name glob 'sqlite_stat*'")]
        for name in names:
            for row in reader.execute(f"select * from {name}"):
                assert all("xylophone" not in str(value) and not isinstance(value, bytes) for value in tuple(row))
        memory.forget(text="xylophone", secure=True)
    assert b"xylophone" not in filled.read_bytes()


def test_statistics_are_no_change_of_the_file(filled: Path, tmp_path: Path) -> None:
    twin = tmp_path / "twin.db"
    with Memory(filled, embedder=None) as memory:
        memory.seal("a long enough key")
        memory.snapshot(twin)
        analysed(filled, memory)
        assert memory.check(key="a long enough key") == []
        assert memory.diff(twin) == ()
        memory.export(tmp_path / "rows.jsonl")
    assert "sqlite_stat" not in (tmp_path / "rows.jsonl").read_text(encoding="utf-8")
    with Memory(tmp_path / "again.db", embedder=None) as memory:
        memory.load(tmp_path / "rows.jsonl")
        assert memory.diff(filled) == ()


def test_an_analysed_file_opens_without_being_looked_through_again(
    filled: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Memory(filled, embedder=None) as memory:
        analysed(filled, memory)

    def looked_through(*_: object) -> None:
        raise AssertionError("the columns were compared again")

    monkeypatch.setattr("istar_lite.database.require_columns", looked_through)
    Memory(filled, embedder=None).close()


def test_the_standard_module_reads_and_writes_an_analysed_and_merged_file(filled: Path) -> None:
    with Memory(filled, embedder=None) as memory:
        memory.work()
    script = (
        "import sqlite3, sys; c = sqlite3.connect(sys.argv[1])\n"
        "c.execute(\"insert into memory (text, occurred_at) values ('by the shell', '2026-01-01T00:00:00.000Z')\")\n"
        "c.commit()\n"
        "print(c.execute(\"select count(*) from document_fts where document_fts match 'shell'\").fetchone()[0],"
        " c.execute('pragma integrity_check').fetchone()[0])"
    )
    done = subprocess.run([sys.executable, "-c", script, filled], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["1", "ok"]


def test_the_record_of_parts_is_read_as_the_index_wrote_it(path: Path) -> None:
    with Memory(path, embedder=None) as memory:
        file = memory._services.file
        assert upkeep._read_parts(b"") is None
        assert upkeep._read_parts(b"\0\0\0\1\xff\0\0\1") is None
        write_one_by_one(memory, 50)
        segments = file.reader().execute("select count(distinct segid) from document_fts_idx").fetchone()[0]
        assert len(parts(file).pages) == segments
        with file.write() as tx:
            tx.execute("insert into document_fts (document_fts) values ('optimize')")
        assert len(parts(file).pages) == 1
