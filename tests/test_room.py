"""What `stats` says of the file's bytes is what is in the file, and what it foretells rests on the rows' own times."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from istar_lite import Memory, TurnRecord, pages
from istar_lite.checking import without_triggers
from istar_lite.database import sqlite3
from istar_lite.migrations import PAGE_SIZE
from istar_lite.testing import FixedClock, WordEmbedder

DAY = 86_400
_TAKE_THE_LOCK = "import sqlite3, sys\nsqlite3.connect(sys.argv[1], timeout=0).execute('begin immediate')"
# In a process of its own: two SQLite libraries must never meet on one file in one process.
_DBSTAT = """
import json, sqlite3, sys
rows = sqlite3.connect(sys.argv[1]).execute("select name, count(*) from dbstat group by name")
print(json.dumps({{"sqlite_master": "sqlite_schema"}.get(name, name): count for name, count in rows}))
"""


def by_dbstat(path: Path) -> dict[str, int]:
    done = subprocess.run([sys.executable, "-c", _DBSTAT, path], capture_output=True, text=True, check=False)
    if "no such table: dbstat" in done.stderr:
        pytest.skip("this Python's sqlite3 has no dbstat")
    found: dict[str, int] = json.loads(done.stdout)
    return found


def by_us(memory: Memory) -> dict[str, int]:
    return {tree.name: tree.pages + tree.overflow for tree in pages.layout(memory._services.file).trees}


def fill(path: Path, count: int = 1_500) -> None:
    with Memory(path, embedder=WordEmbedder(64)) as memory:
        memory.remember_many([f"statement {number} about the harbour and its tea" for number in range(count)])
        memory.import_conversation(
            [{"role": "user", "content": f"{'storm ' * (number * 37 % 3000)}{number}"} for number in range(60)],
            format="messages",
        )
        memory.forget(text="statement 12")


def test_pages_are_counted_as_sqlite_counts_them(path: Path) -> None:
    fill(path)
    with Memory(path, read_only=True, embedder=None) as memory:
        counted = pages.layout(memory._services.file)
        ours = by_us(memory)
    assert counted.exact
    assert sum(tree.overflow for tree in counted.trees) > 50
    assert ours == by_dbstat(path)


def test_what_still_lies_in_the_log_is_counted(path: Path, tmp_path: Path) -> None:
    with Memory(path, embedder=None) as memory:
        fill_one = memory.remember_many
        fill_one([f"fact {number}" for number in range(300)])
        with memory._services.file.write() as tx:
            tx.execute("pragma wal_autocheckpoint = 0").fetchall()
        fill_one([f"later fact {number}" for number in range(3_000)])
        ours = by_us(memory)
        # Read through the log as well, by another library in another process, while we have it open.
        assert ours == by_dbstat(path)
        memory._services.file.reader().execute("pragma wal_checkpoint(truncate)").fetchall()
        assert by_us(memory) == ours


@pytest.mark.parametrize(("size", "vacuuming"), [(512, 0), (1024, 1), (65_536, 0)])
def test_files_of_other_page_sizes_are_counted(path: Path, size: int, vacuuming: int) -> None:
    fill(path, 400)
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute(f"pragma page_size = {size}")
    connection.execute(f"pragma auto_vacuum = {vacuuming}")
    connection.execute("vacuum")
    connection.close()
    with Memory(path, read_only=True, embedder=None) as memory:
        assert pages.layout(memory._services.file).page_size == size
        ours = by_us(memory)
        exact = pages.layout(memory._services.file).exact
    theirs = by_dbstat(path)
    assert sum(ours.values()) == sum(theirs.values())
    if exact:
        assert ours == theirs


def test_a_sample_of_the_leaves_gives_overflow_to_its_tables_and_the_sum_is_exact(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(path)
    theirs = by_dbstat(path)
    monkeypatch.setattr(pages, "LOOKED_AT", 8)
    with Memory(path, read_only=True, embedder=None) as memory:
        counted = pages.layout(memory._services.file)
        ours = by_us(memory)
    assert not counted.exact
    assert sum(ours.values()) == sum(theirs.values())
    wrong = {name for name in theirs if ours[name] != theirs[name]}
    assert wrong <= {"message", "document", "sqlite_schema"}  # the tables with long rows


def test_counting_reads_few_leaves_and_drops_no_lock(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with Memory(path, embedder=WordEmbedder(64)) as memory:
        memory.remember_many([f"statement {number} about the harbour and its tea" for number in range(6_000)])
        memory.status()
        with memory._services.file.write() as tx:
            tx.execute("select 1").fetchone()
            memory.stats()  # a descriptor of its own would end the write lock here
            other = subprocess.run(
                [sys.executable, "-c", _TAKE_THE_LOCK, path], capture_output=True, text=True, check=False
            )
            assert "locked" in other.stderr
        read = []
        kept = pages._pages

        @contextlib.contextmanager
        def counting(*values: Any) -> Iterator[Callable[[int], bytes]]:
            with kept(*values) as get:
                yield lambda number: read.append(number) or get(number)  # type: ignore[func-returns-value]

        monkeypatch.setattr(pages, "_pages", counting)
        total = pages.layout(memory._services.file).pages
    assert 0 < len(set(read)) < total / 2


def test_tables_tell_their_bytes_with_their_indices(path: Path) -> None:
    fill(path)
    with Memory(path, read_only=True, embedder=None) as memory:
        told = memory.stats()
    tables = told["tables"]
    assert list(tables) == sorted(tables, key=lambda name: -tables[name]["bytes"])
    assert sum(one["bytes"] for one in tables.values()) + told["free"] == path.stat().st_size
    assert tables["document_fts"]["bytes"] > 50_000
    assert not any(name.startswith("document_fts_") for name in tables)
    assert tables["memory"]["bytes"] > tables["memory"]["indices"] > 0
    assert tables["embedding"]["indices"] == 0


def test_bytes_of_a_thousand_turns_are_what_a_thousand_more_turns_take(path: Path) -> None:
    def record(memory: Memory, first: int) -> None:
        memory.agent("run").record_turns(
            [
                TurnRecord(turn=at, events=[f"price {at} in the harbour"], reward=1.0)
                for at in range(first, first + 1_000)
            ]
        )

    with Memory(path, embedder=WordEmbedder(64)) as memory:
        record(memory, 0)
        record(memory, 1_000)
        memory.status()
    before = path.stat().st_size
    with Memory(path, embedder=WordEmbedder(64)) as memory:
        told = memory.stats()["per_1000_turns"]
        record(memory, 2_000)
        memory.status()
    assert told == pytest.approx(path.stat().st_size - before, rel=0.15)


def test_memories_taken_out_of_messages_are_part_of_what_those_take(path: Path, clock: FixedClock) -> None:
    with Memory(path, embedder=None, clock=clock) as memory:
        memory.import_conversation(
            [{"role": "user", "content": f"line {number}"} for number in range(200)], format="messages"
        )
        before = memory.stats()["per_1000_turns"]
        with memory._services.file.write() as tx:
            tx.execute(
                "insert into memory (namespace, text, occurred_at) values (1, 'one', '2026-01-01T00:00:00.000Z')"
            )
            tx.execute("insert into source (kind, row, source_kind, source_row) values ('memory', 1, 'message', 1)")
        assert memory.stats()["per_1000_turns"] >= before  # as many rows as before


# --- growth ---------------------------------------------------------------------------------------------------


def test_an_empty_file_and_a_young_one_cannot_tell_how_they_grow(path: Path, clock: FixedClock) -> None:
    with Memory(path, embedder=None, clock=clock) as memory:
        assert memory.stats()["growth"]["bytes_per_day"] is None
        assert "nothing" in memory.stats()["growth"]["rests_on"]
        assert memory.stats()["per_1000_turns"] is None
        memory.remember_many([f"fact {number}" for number in range(100)])
        growth = memory.stats()["growth"]
        assert growth["in_365_days"] is growth["bytes_per_day"] is None
        assert "too early" in growth["rests_on"] and "100 rows" in growth["rests_on"]


def test_growth_goes_by_when_things_happened_in_the_last_thirty_days(path: Path, clock: FixedClock) -> None:
    now = clock()
    with Memory(path, embedder=None, clock=clock) as memory:
        for day in range(100):  # two a day, and ten a day in the last thirty
            for number in range(10 if day < 30 else 2):
                memory.remember(f"fact {number} of day {day}", occurred_at=now - day * DAY - number)
        memory.remember("in the far future", occurred_at=now + 4_000 * DAY)
        told = memory.stats()
    growth = told["growth"]
    assert growth["rows_per_day"] == pytest.approx(10, abs=0.5)
    assert growth["bytes_per_day"] == pytest.approx(growth["rows_per_day"] * told["per_1000_turns"] / 1000, rel=0.01)
    assert growth["in_365_days"] > growth["in_30_days"] > 30 * growth["bytes_per_day"]
    assert "rows from 2025-12-0" in growth["rests_on"]


def test_a_sparse_file_takes_a_longer_period(path: Path, clock: FixedClock) -> None:
    now = clock()
    with Memory(path, embedder=None, clock=clock) as memory:
        for day in range(0, 900, 3):
            memory.remember(f"fact of day {day}", occurred_at=now - day * DAY)
        growth = memory.stats()["growth"]
    assert growth["rows_per_day"] == pytest.approx(1 / 3, abs=0.1)
    assert growth["rests_on"].startswith("122 rows")


def test_a_sample_gives_the_pace_of_a_large_table(
    path: Path, clock: FixedClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    from istar_lite import room

    monkeypatch.setattr(room, "ALL_ROWS", 100)
    monkeypatch.setattr(room, "SAMPLE", 200)
    now = clock()
    with Memory(path, embedder=None, clock=clock) as memory:
        memory.import_conversation(
            [{"role": "user", "content": f"line {at}", "timestamp": now - at * 3600} for at in range(1_000, 0, -1)],
            format="messages",
        )
        growth = memory.stats()["growth"]
    assert growth["rows_per_day"] == pytest.approx(24, rel=0.1)
    assert growth["rests_on"].endswith("by a sample")


def test_a_time_that_is_none_does_not_spoil_the_rest(path: Path, clock: FixedClock) -> None:
    with Memory(path, embedder=None, clock=clock) as memory:
        for day in range(50):
            memory.remember(f"fact of day {day}", occurred_at=clock() - day * DAY)
        with memory._services.file.write() as tx, without_triggers(tx):
            tx.execute("update memory set occurred_at = 'yesterday' where id = 3")
        assert memory.stats()["growth"]["rows_per_day"] == pytest.approx(1, abs=0.1)


def test_free_pages_are_filled_before_the_file_grows(path: Path, clock: FixedClock) -> None:
    with Memory(path, embedder=None, clock=clock) as memory:
        for day in range(60):
            memory.remember(f"fact of day {day}", occurred_at=clock() - day * DAY)
        memory.remember_many(
            [f"{'long ' * 300}{number}" for number in range(500)],
        )
        memory.forget(text="long")
        told = memory.stats()
    assert told["free"] > 500_000
    assert told["growth"]["in_30_days"] == path.stat().st_size


def test_where_descriptors_cannot_be_looked_up_the_rest_is_told(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fill(path, 50)

    def refused(path: Path) -> int:
        raise pages.Unreadable(f"{path}: this system does not tell")

    monkeypatch.setattr(pages, "_own_descriptor", refused)
    with Memory(path, read_only=True, embedder=None) as memory:
        told = memory.stats()
    assert told["kinds"]["memory"] > 0
    assert told["tables"] is None and "does not tell" in told["why"]
    assert told["growth"]["bytes_per_day"] is None


def test_pages_that_lead_nowhere_are_told_and_not_followed(path: Path) -> None:
    fill(path)
    with Memory(path, read_only=True, embedder=None) as memory:
        root = (
            memory._services.file.reader()
            .execute("select rootpage from sqlite_master where name = 'memory'")
            .fetchone()[0]
        )
    with open(path, "r+b") as handle:
        handle.seek((root - 1) * PAGE_SIZE + 12)
        handle.write(bytes([0x0F, 0xF0]))  # the first child's place: into the middle of something
    with Memory(path, read_only=True, embedder=None) as memory, pytest.raises(pages.Unreadable):
        pages.layout(memory._services.file)


def test_pages_are_counted_while_others_write(path: Path) -> None:
    with Memory(path, embedder=None) as memory:
        memory.remember_many([f"fact {number} about the harbour" for number in range(500)])
        file = memory._services.file
        stop = threading.Event()

        def write() -> None:
            number = 0
            while not stop.is_set():
                number += 1
                memory.remember(f"another fact {number} {'tea ' * (number % 7 * 400)}")
                if number % 50 == 0:  # the log is started anew
                    file.reader().execute("pragma wal_checkpoint(truncate)").fetchall()

        writer = threading.Thread(target=write)
        writer.start()
        try:
            counts = []
            for _ in range(60):
                with contextlib.suppress(pages.Unreadable):  # the log was started anew meanwhile: asked again
                    counts.append(pages.layout(file))
        finally:
            stop.set()
            writer.join()
        assert len(counts) > 10
        for one in counts:
            assert sum(tree.pages + tree.overflow for tree in one.trees) + one.free == one.pages
            assert one.exact  # by what the leaves say of long rows too
        assert memory.check() == []
