"""Processes × threads × tasks on one file, with a reader that never waits.

    python tests/stress/crowd.py --processes 6 --threads 6 --writes 100

Each write arrives or fails with `Busy` and is tried again; counts are exact; the log stays bounded; the file is whole.
"""

from __future__ import annotations

import argparse
import asyncio
import multiprocessing
import sys
import tempfile
import threading
import time
import warnings
from pathlib import Path
from typing import Any

from istar_lite import Busy, Memory, TurnRecord


def stubborn(call: Any, *arguments: Any, **named: Any) -> int:
    """Calls until it is not `Busy`; how often it was."""
    busy = 0
    while True:
        try:
            call(*arguments, **named)
        except Busy:
            busy += 1
        else:
            return busy


def write(path: Path, process: int, threads: int, writes: int, results: Any) -> None:
    """One process: threads that write, and tasks of a loop beside them."""
    warnings.simplefilter("ignore")
    busy: list[int] = []
    with Memory(path, embedder=None) as memory:

        def thread(number: int) -> None:
            name = f"{process}.{number}"
            for step in range(writes):
                busy.append(stubborn(memory.remember, f"memory {name} {step}"))
                busy.append(stubborn(memory.remember, "told by all"))
                record = TurnRecord(turn=step + 1, reward=1.0)
                busy.append(stubborn(memory.agent(f"run {name}").record_turn, record))

        async def tasks() -> None:
            await asyncio.gather(*(memory.aremember(f"task {process} {step}") for step in range(writes)))

        running = [threading.Thread(target=thread, args=(number,)) for number in range(threads)]
        for one in running:
            one.start()
        asyncio.run(tasks())
        for one in running:
            one.join()
    results.put(sum(busy))


def run(processes: int, threads: int, writes: int) -> int:
    """All of it; prints a line of the table. The number of failures."""
    spawn = multiprocessing.get_context("spawn")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "a.db"
        Memory(path, embedder=None).close()
        results = spawn.Queue()
        crowd = [spawn.Process(target=write, args=(path, n, threads, writes, results)) for n in range(processes)]
        started = time.monotonic()
        for one in crowd:
            one.start()
        slowest, largest, reads = 0.0, 0, 0
        with Memory(path, read_only=True, embedder=None) as reader:
            while any(one.is_alive() for one in crowd):
                before = time.monotonic()
                reader.list("memory", limit=10)
                slowest, reads = max(slowest, time.monotonic() - before), reads + 1
                log = path.with_name("a.db-wal")
                largest = max(largest, log.stat().st_size if log.exists() else 0)
        busy = sum(results.get() for _ in crowd)
        took = time.monotonic() - started
        failures = [f"a process ended with {one.exitcode}" for one in crowd if one.exitcode]
        with Memory(path, embedder=None) as memory:
            wanted = {"memory": processes * (threads + 1) * writes + 1, "turn": processes * threads * writes}
            for table, count in wanted.items():
                found = next(memory.db.query(f"select count(*) as n from {table}"))["n"]
                failures += [f"{found} of {count} rows in {table}"] if found != count else []
            told = next(memory.db.query("select mention_count as n from memory where text = 'told by all'"))["n"]
            failures += [f"counted {told}"] if told != processes * threads * writes else []
            failures += memory.check()
    writes_in_all = processes * (3 * threads + 1) * writes
    print("| operation | fault | tries | failures | busy, tried again | slowest read | largest log |")
    print("|---|---|---|---|---|---|---|")
    print(
        f"| remember, record_turn | {processes} processes × ({threads} threads + {writes} tasks) | {writes_in_all} |"
        f" {len(failures)} | {busy} | {slowest * 1000:.0f} ms of {reads} | {largest / 2**20:.1f} MB |"
    )
    print(f"{writes_in_all / took:.0f} writes a second", *failures[:10], sep="\n   ")
    return len(failures)


if __name__ == "__main__":
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--processes", type=int, default=4)
    options.add_argument("--threads", type=int, default=4)
    options.add_argument("--writes", type=int, default=50)
    chosen = options.parse_args()
    sys.exit(1 if run(chosen.processes, chosen.threads, chosen.writes) else 0)
