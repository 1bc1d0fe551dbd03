"""Room: bytes of a row in each table, the log under load, and a file that grows for a year."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

from istar_lite import Memory
from istar_lite.bench.ground import EPISODE, Answers, Setup, sentences, turn
from istar_lite.bench.measures import Measure
from istar_lite.database import File, wal_path
from istar_lite.testing import FixedClock

A_DAY = 500  # turns of a busy agent
READERS = 2  # that take turns, so that somebody reads at any time
FEW = 3  # bytes a row: tables with less are left out


def room(setup: Setup) -> Iterator[Measure]:
    """Bytes of ordinary messages, with and without vectors and by table; the size of the log meanwhile."""
    for name, embedder in (("with vectors", "static"), ("words only", None)):
        path = setup.folder / f"room-{name.split()[0]}.db"
        before = _written(path, embedder, 1)
        empty = path.stat().st_size
        after = _written(path, embedder, setup.items)
        yield Measure("room", f"1,000 messages, {name}", (path.stat().st_size - empty) / setup.items, "KB")
        for table, size in after.items():
            each = (size - before.get(table, 0)) / setup.items
            if each >= FEW:
                yield Measure("room", f"a message in {table}, {name}", each, "bytes")
    yield Measure("room", "an empty file", empty / 1000, "KB")
    yield Measure("room", "write-ahead log at most", _largest_log(setup, watched=False) / 1000, "KB")
    yield Measure(
        "room", "write-ahead log at most, somebody always reads", _largest_log(setup, watched=True) / 1000, "KB"
    )


def _written(path: Path, embedder: str | None, count: int) -> dict[str, int]:
    """Bytes by table after so many more messages."""
    with Memory(path, embedder=embedder) as memory:
        watch = memory.observe("watch", context_window=1_000_000, background=None)
        for text in sentences(count, seed=count):
            watch.add("user", text)
    with Memory(path, embedder=embedder, read_only=True) as memory:
        told = memory.stats()
    tables: dict[str, dict[str, Any]] = told["tables"] or {}
    return {**{name: one["bytes"] for name, one in tables.items()}, "free pages": told.get("free", 0)}


def _largest_log(setup: Setup, *, watched: bool) -> int:
    path = setup.folder / f"log-{watched}.db"
    most = 0
    with Memory(path, embedder=None) as memory:
        watch = memory.observe("watch", context_window=1_000_000, background=None)
        watch.add("user", "first")
        with _somebody_reads(path) if watched else contextlib.nullcontext():
            for text in sentences(setup.items):
                watch.add("user", text)
                most = max(most, wal_path(path).stat().st_size)
    return most


@contextlib.contextmanager
def _somebody_reads(path: Path) -> Iterator[None]:
    """Readers whose transactions overlap, until the end."""
    stop = threading.Event()
    started = threading.Barrier(READERS + 1)

    def read(pause: float) -> None:
        file = File(path, read_only=True)
        started.wait()
        while not stop.is_set():
            with file.reading() as connection:
                connection.execute("select count(*) from message").fetchone()
                stop.wait(pause)
        file.close()

    threads = [threading.Thread(target=read, args=(0.002 + 0.001 * at,), daemon=True) for at in range(READERS)]
    for thread in threads:
        thread.start()
    started.wait()
    try:
        yield
    finally:
        stop.set()
        for thread in threads:
            thread.join()


def growth(setup: Setup) -> Iterator[Measure]:
    """The file of a busy agent: 500 turns a day with their atoms, an episode for each 25, a profile each month. What
    it takes, what deleted rows left free in it, what a vacuum would give back, and what it foretold of itself."""
    path, days = setup.folder / "growth.db", setup.days
    clock = FixedClock()
    texts = sentences(days * A_DAY)
    foretold = None
    early = max(3, days // 4)
    rates: list[float] = []
    for day in range(days):
        with Memory(path, clock=clock, llm=Answers().model()) as memory:  # a desktop program is opened anew each day
            run = memory.agent(f"month {day // 30}", episode_every=EPISODE)
            record = [turn(day * A_DAY + at, next(texts)) for at in range(1, A_DAY + 1)]

            def a_day(run: Any = run, record: list[Any] = record) -> None:
                for one in record:
                    run.tick(one)
                run.memory_block()

            rates.append(A_DAY / setup.seconds(a_day))
            if day % 30 == 29:
                run.summarise_run("trader")
        clock.advance(timedelta(days=1))
        if day + 1 == early:
            with Memory(path, clock=clock, read_only=True) as memory:
                told = memory.stats()
                foretold = told["bytes"], told["growth"]["bytes_per_day"]
    with Memory(path, clock=clock) as memory:
        told = memory.stats()
        vacuumed = memory.snapshot(setup.folder / "vacuumed.db").stat().st_size
    size = path.stat().st_size
    what = f"{days} days of {A_DAY} turns"
    yield Measure("growth", what, size / 1_000_000, "MB")
    yield Measure("growth", f"{what}, vacuumed", vacuumed / 1_000_000, "MB")
    yield Measure("growth", f"{what}, free pages in it", told["free"] / 1_000_000, "MB")
    yield Measure("growth", f"{what}, 1,000 turns and what was made of them", told["per_1000_turns"] / 1000, "KB")
    tenth = max(1, days // 10)
    yield Measure("growth", f"turns a second, the first {tenth} days", sum(rates[:tenth]) / tenth, "rows/s")
    yield Measure("growth", f"turns a second, the last {tenth} days", sum(rates[-tenth:]) / tenth, "rows/s")
    if foretold is not None and foretold[1] is not None:
        expected = foretold[0] + (days - early) * foretold[1]
        yield Measure("growth", f"foretold after {early} days, share of what came", expected / size, "ratio")
