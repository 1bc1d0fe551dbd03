"""Threads, tasks and processes on one file: every write arrives once, no count is lost, nobody waits to read."""

from __future__ import annotations

import asyncio
import os
import random
import subprocess
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from istar_lite import Busy, Memory, TurnRecord, database, driver
from istar_lite.testing import FixedClock, ScriptedLLM

STRESS = Path(__file__).parent / "stress"
sys.path.insert(0, str(STRESS))


def together(work: Callable[[int], Any], count: int = 8) -> list[Any]:
    """Runs `work(0 … count - 1)` in as many threads that start at once; raises what any of them raised."""
    start = threading.Barrier(count)

    def one(number: int) -> Any:
        start.wait(60)
        return work(number)

    with ThreadPoolExecutor(count) as pool:
        return list(pool.map(one, range(count)))


# --- nothing is lost ------------------------------------------------------------------------------------------


def test_writes_of_many_threads_through_one_object_all_arrive(memory: Memory) -> None:
    together(lambda number: [memory.remember(f"memory {number} {step}") for step in range(20)])
    assert len({row["text"] for row in memory.list("memory", limit=1000)}) == 160
    assert memory.check() == []


def test_writes_of_many_objects_on_one_file_all_arrive(path: Path) -> None:
    def work(number: int) -> None:
        with Memory(path, embedder=None) as memory:
            for step in range(10):
                memory.remember(f"memory {number} {step}")

    together(work)
    with Memory(path, embedder=None) as memory:
        assert len(memory.list("memory", limit=1000)) == 80 and memory.check() == []
    assert [item.name for item in path.parent.iterdir()] == [path.name]


def test_the_same_statement_told_by_all_at_once_is_one_and_counted_each_time(memory: Memory) -> None:
    together(lambda number: [memory.remember("likes tea") for _ in range(10)])
    rows = memory.list("memory")
    assert len(rows) == 1 and rows[0]["mention_count"] == 80


def test_the_same_key_told_by_all_at_once_is_stored_once(memory: Memory) -> None:
    ids = together(lambda number: memory.remember("likes tea", key="k").id)
    assert len(set(ids)) == 1 and len(memory.list("memory")) == 1


def test_every_injection_is_counted_in_heat(path: Path, clock: FixedClock) -> None:
    with Memory(path, embedder=None, clock=clock) as memory:
        agent = memory.agent("run")
        agent.record_turn(TurnRecord(turn=1, reward=1.0))
        with memory._services.file.write() as tx:
            tx.execute(
                "insert into episode (session, name, turn_start, turn_end, narrative)"
                " values (1, 'GROWTH', 1, 1, 'it grew')"
            )
        together(lambda number: [memory.agent("run").memory_block() for _ in range(5)])
        assert memory.list("episode")[0]["heat"] == 40


def test_every_access_is_counted(memory: Memory) -> None:
    memory.remember("likes green tea in the morning")
    together(lambda number: [memory.chat(f"c{number}").retrieve("green tea in the morning?") for _ in range(5)])
    assert memory.list("memory")[0]["access_count"] == 40


def test_every_store_is_counted_for_consolidation_once(path: Path, clock: FixedClock) -> None:
    model = ScriptedLLM([], default='{"memories":[]}')
    with Memory(path, embedder=None, clock=clock, llm=model) as memory:
        stored = together(lambda n: [memory.chat(f"c{n}").store(f"hello {n} {step}", "hi") for step in range(10)])
    recommended = [one.consolidation_recommended for many in stored for one in many]
    assert sum(recommended) == 80 // 20


def test_work_that_many_drain_at_once_is_done_once(path: Path, clock: FixedClock) -> None:
    with Memory(path, embedder=None, clock=clock) as memory:
        for number in range(6):
            memory.chat("c").store(f"I like tea of kind {number}", "noted")
    model = ScriptedLLM([], default='{"memories":[{"text":"likes tea"}]}')
    with Memory(path, embedder=None, clock=clock, llm=model) as memory:
        together(lambda number: memory.work(force=True))
        memory.work(force=True)
        assert len(model.calls) == 6 and memory.status().due == 0
        assert memory.check() == []


def test_a_run_played_by_several_at_once_has_each_turn_once(memory: Memory) -> None:
    def work(number: int) -> int:
        arrived = 0
        for turn in range(1, 21):
            try:
                memory.agent("run").record_turn(TurnRecord(turn=turn, reward=1.0))
            except ValueError:  # somebody was further already: refused, with both numbers named
                continue
            arrived += 1
        return arrived

    assert sum(together(work, 4)) >= 20
    turns = [row["turn"] for row in memory.list("turn")]
    assert turns == sorted(set(turns)) and turns[-1] == 20


# --- waiting is bounded ---------------------------------------------------------------------------------------


def test_readers_do_not_wait_for_a_writer(memory: Memory) -> None:
    memory.remember("likes tea")
    inside, done = threading.Event(), threading.Event()

    def write() -> None:
        with memory._services.file.write() as tx:
            tx.execute("update memory set importance = 0.1")
            inside.set()
            done.wait(60)

    writer = threading.Thread(target=write)
    writer.start()
    inside.wait(60)
    found = together(lambda number: (memory.list("memory")[0]["importance"], len(memory.search("tea"))), 4)
    done.set()
    writer.join()
    assert found == [(0.7, 1)] * 4


def test_a_write_that_cannot_come_through_says_busy_and_works_later(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (database, driver):
        monkeypatch.setattr(module, "BUSY_SECONDS", 0.05)
    with Memory(path, embedder=None) as memory, Memory(path, embedder=None) as other:
        memory.remember("before")
        with other._services.file.write(), pytest.raises(Busy):
            memory.remember("refused")
        memory.remember("after")
        assert [row["text"] for row in memory.list("memory")] == ["before", "after"]


# --- async ----------------------------------------------------------------------------------------------------


def test_tasks_of_one_loop_and_threads_beside_it_all_arrive(memory: Memory) -> None:
    async def main() -> None:
        tasks = [memory.aremember(f"async {number}") for number in range(40)]
        threads = asyncio.to_thread(lambda: [memory.remember(f"thread {number}") for number in range(40)])
        await asyncio.gather(*tasks, threads)

    asyncio.run(main())
    assert len(memory.list("memory", limit=1000)) == 80 and memory.check() == []


def test_one_object_serves_several_loops_one_after_another(memory: Memory) -> None:
    for number in range(3):
        asyncio.run(memory.aremember(f"loop {number}"))
    assert len(memory.list("memory")) == 3


def test_a_cancelled_write_leaves_no_transaction_and_blocks_nobody(path: Path) -> None:
    class Slow:
        """A model that is awaited for ever."""

        async def __call__(self, messages: Any, /) -> str:
            await asyncio.Event().wait()
            return ""

    with Memory(path, embedder=None, llm=Slow()) as memory, Memory(path, embedder=None) as other:

        async def main() -> None:
            task = asyncio.create_task(memory.chat("c").astore("I like tea", "noted"))
            while not other.list("exchange"):
                await asyncio.sleep(0)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task

        asyncio.run(main())
        other.remember("at once")
        assert not memory._services.file._writer().in_transaction
        status = other.status()
        assert status.due + status.failed + status.claimed == 1
        assert len(other.list("exchange")) == 1 and other.check() == []


# --- processes ------------------------------------------------------------------------------------------------

WRITER = """
import sys, threading
from istar_lite import Memory, TurnRecord
path, me = sys.argv[1], sys.argv[2]
with Memory(path, embedder=None) as memory:
    def work(thread):
        for step in range(12):
            memory.remember(f"memory {me} {thread} {step}")
            memory.remember("told by all")
            memory.agent(f"run {me} {thread}").record_turn(TurnRecord(turn=step + 1, reward=1.0))
    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads: thread.start()
    for thread in threads: thread.join()
"""


def test_processes_and_threads_writing_at_once_lose_nothing_while_another_reads(path: Path) -> None:
    Memory(path, embedder=None).close()
    running = [subprocess.Popen([sys.executable, "-c", WRITER, str(path), str(number)]) for number in range(3)]
    with Memory(path, read_only=True, embedder=None) as reader:
        seen = 0
        while any(one.poll() is None for one in running):
            now = len(reader.list("memory", limit=1000))
            assert now >= seen
            seen = now
    assert [one.wait(60) for one in running] == [0, 0, 0]
    with Memory(path, embedder=None) as memory:
        assert len(memory.list("memory", limit=1000)) == 3 * 4 * 12 + 1
        told = next(row for row in memory.list("memory", limit=1000) if row["text"] == "told by all")
        assert told["mention_count"] == 3 * 4 * 12
        assert len(memory.list("turn", limit=1000)) == 3 * 4 * 12
        assert memory.check() == []


@pytest.mark.skipif(not hasattr(os, "fork"), reason="children are forked")
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    "names", ["record,tick,summarise", "store,remember,correct,forget", "observe,merge,snapshot,reembed"]
)
def test_a_process_killed_at_any_point_leaves_the_file_whole_and_all_it_acknowledged(
    tmp_path: Path, names: str
) -> None:
    from kill import kills

    done, failures = kills(names.split(","), 4, random.Random(names), tmp_path)
    assert (done, failures) == (4, [])
