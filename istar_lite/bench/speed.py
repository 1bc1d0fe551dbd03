"""How fast, and how much room: cold start, adds, searches at size, the rest of the calls, bytes, memory, growth.

Numbers are medians on made-up text from a fixed seed. `Setup.clock` chooses what time is: the wall's, or (on a machine
that does other things too) the CPU's, `time.process_time`. Across machines only ratios within one run compare.
"""

from __future__ import annotations

import json
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import cycle
from pathlib import Path
from typing import Any

from istar_lite import Memory, TurnRecord
from istar_lite.bench.measures import Measure, median_seconds
from istar_lite.database import sqlite3, wal_path
from istar_lite.testing import ScriptedLLM

SEED = 20_260_102
_VOCABULARY = """
market price storm harbour battery orchard violin garden winter invoice printer deploy server meeting cousin birthday
bicycle tunnel coffee recipe passport dentist ticket concert painting river mountain budget contract station signal
charge sensor kitchen window ladder blanket lantern compass anchor ferry castle forest
"""
WORDS = tuple(_VOCABULARY.split())
NOW = "2026-01-02T03:04:05.678Z"


def sentences(count: int, *, words: int = 20, seed: int = SEED) -> Iterator[str]:
    """Made-up sentences of about 125 characters, all different."""
    chance = random.Random(seed)
    for at in range(count):
        yield f"Note {at}: " + " ".join(chance.choices(WORDS, k=words))


@dataclass(frozen=True)
class Setup:
    """`items`: adds of each kind; `sizes`: documents in scope of a search; `runs`: of which the median is taken;
    `days`: of a simulated busy agent (500 turns a day), 0 leaves that out; `clock`: what time is."""

    folder: Path
    items: int = 2_000
    sizes: Sequence[int] = (1_000, 10_000)
    runs: int = 5
    days: int = 0
    clock: Callable[[], float] = time.perf_counter

    def seconds(self, work: Callable[[], object]) -> float:
        """Seconds of one call."""
        start = self.clock()
        work()
        return self.clock() - start

    def median(self, work: Callable[[], object], runs: int | None = None) -> float:
        """Median seconds of several calls."""
        return median_seconds(work, runs or self.runs, clock=self.clock)


def run(setup: Setup) -> Iterator[Measure]:
    """All measures, group by group."""
    yield from cold_start(setup)
    yield from adds(setup)
    for size in setup.sizes:
        yield from searches(setup, size)
    yield from calls(setup, min(setup.sizes))
    yield from room(setup)
    if setup.days:
        yield from growth(setup)


# --- cold start -----------------------------------------------------------------------------------------------

_COLD = """
import json, sys, time
now = getattr(time, sys.argv[2])
at = [now()]
import pydantic; at.append(now())
from istar_lite import Memory; at.append(now())
memory = Memory(sys.argv[1]); at.append(now())
memory.search("storm in the harbour"); at.append(now())
print(json.dumps([b - a for a, b in zip(at, at[1:])])); memory.close()
"""


def cold_start(setup: Setup) -> Iterator[Measure]:
    """A new process each time: pydantic alone, then the rest of the import, opening, and the first query."""
    path = setup.folder / "cold.db"
    with Memory(path) as memory:
        memory.remember_many(list(sentences(200)))
    taken = [json.loads(_python(_COLD, str(path), setup.clock.__name__)) for _ in range(setup.runs)]
    names = ("import pydantic alone", "import istar_lite beyond that", "open an existing file", "first query")
    for name, column in zip(names, zip(*taken, strict=True), strict=True):
        yield Measure("cold start", name, 1000 * sorted(column)[len(column) // 2], "ms", setup.runs)

    def new_file() -> None:
        with tempfile.TemporaryDirectory(dir=setup.folder) as fresh:
            Memory(Path(fresh) / "new.db").close()

    yield Measure("cold start", "make and close a new file", 1000 * setup.median(new_file), "ms", setup.runs)


def import_times(most: int = 12) -> list[tuple[str, float]]:
    """The slowest modules of `import istar_lite`: name and own milliseconds."""
    told = subprocess.run(
        [sys.executable, "-X", "importtime", "-c", "from istar_lite import Memory"],
        capture_output=True,
        text=True,
        check=True,
    )
    rows = [line.removeprefix("import time:").split("|") for line in told.stderr.splitlines() if "|" in line][1:]
    slow = sorted(((name.strip(), int(own) / 1000) for own, _, name in rows), key=lambda row: -row[1])
    return slow[:most]


def _python(script: str, *arguments: str) -> str:
    done = subprocess.run([sys.executable, "-c", script, *arguments], capture_output=True, text=True, check=True)
    return done.stdout


# --- adds -----------------------------------------------------------------------------------------------------


def adds(setup: Setup) -> Iterator[Measure]:
    """Rows a second with everything on (triggers, full text, vectors at the end), one by one and in batches, and the
    share of raw SQL on the same schema."""
    items = setup.items
    texts = list(sentences(items))
    record = [_turn(at, text) for at, text in enumerate(texts, start=1)]
    with Memory(setup.folder / "adds.db", llm=ScriptedLLM([], default='{"memories": []}')) as memory:
        run, batch = memory.agent("one by one"), memory.agent("batch")
        chat, watch = memory.chat("chat"), memory.observe("watch", context_window=1_000_000, background=None)

        def one_by_one(write: Callable[[Any], object], values: Sequence[Any]) -> Callable[[], None]:
            def work() -> None:
                for value in values:
                    write(value)
                memory.status()  # makes the vectors that are missing

            return work

        def at_once(write: Callable[[], object]) -> Callable[[], None]:
            def work() -> None:
                write()
                memory.status()

            return work

        pairs = [(text, "noted") for text in texts[: items // 2]]
        works: dict[str, tuple[Callable[[], None], int]] = {
            "turns, one by one": (one_by_one(run.record_turn, record), items),
            "turns, in a batch": (at_once(lambda: batch.record_turns(record)), items),
            "memories, one by one": (one_by_one(memory.remember, texts), items),
            "memories, in a batch": (at_once(lambda: memory.remember_many([f"{text} again" for text in texts])), items),
            "messages, one by one": (one_by_one(lambda text: watch.add("user", text), texts), items),
            "exchanges with their extraction": (one_by_one(lambda pair: chat.store(*pair), pairs), len(pairs)),
        }
        rates = {}
        for name, (work, count) in works.items():
            rates[name] = count / setup.seconds(work)
            yield Measure("adds", name, rates[name], "rows/s")
        yield Measure(
            "adds", "messages, imported", items / setup.seconds(_import(setup.folder, memory, texts)), "rows/s"
        )
    raw = items / setup.seconds(lambda: _raw_turns(setup.folder / "raw.db", record))
    yield Measure("adds", "turns, raw SQL on the same schema", raw, "rows/s")
    yield Measure("adds", "turns, one by one, share of raw SQL", rates["turns, one by one"] / raw, "ratio")


def _turn(number: int, text: str) -> TurnRecord:
    return TurnRecord(turn=number, reward=number % 7, reward_unit="EUR", events=["storm"], extra={"note": text})


def _import(folder: Path, memory: Memory, texts: Sequence[str]) -> Callable[[], object]:
    source = folder / "messages.jsonl"
    lines = (json.dumps({"role": "user", "content": text, "id": str(at)}) for at, text in enumerate(texts))
    source.write_text("\n".join(lines), encoding="utf-8")
    return lambda: (memory.import_conversation(source, session="imported"), memory.status())


def _raw_turns(path: Path, record: Sequence[TurnRecord]) -> None:
    """The same rows by bare statements, one transaction each; full text by the same triggers, no vectors."""
    Memory(path, embedder=None).close()
    connection = sqlite3.connect(path, isolation_level=None)
    for pragma in ("journal_mode = wal", "synchronous = normal", "secure_delete = on"):
        connection.execute(f"pragma {pragma}")
    connection.execute("insert into session (name, kind) values ('raw', 'run')")
    for turn in record:
        connection.execute("begin immediate")
        connection.execute(
            "insert into turn (session, turn, reward, reward_unit, events, extra, occurred_at, recorded_at)"
            " values (1, ?, ?, ?, ?, ?, ?, ?)",
            (turn.turn, turn.reward, "EUR", '["storm"]', json.dumps(turn.extra), NOW, NOW),
        )
        connection.execute("commit")
    connection.close()


# --- searches -------------------------------------------------------------------------------------------------

QUERIES = tuple(f"{first} {second}" for first, second in zip(WORDS[::2], WORDS[1::2], strict=False))


def filled(path: Path, size: int) -> None:
    """A file of `size` messages in sessions of 500, with vectors."""
    with Memory(path) as memory:
        source = path.with_suffix(".jsonl")
        with open(source, "w", encoding="utf-8") as lines:
            for at, text in enumerate(sentences(size)):
                lines.write(
                    json.dumps({"role": "user", "content": text, "session": f"s{at // 500}", "id": str(at)}) + "\n"
                )
        memory.import_conversation(source)
        source.unlink()
        memory.work()


def searches(setup: Setup, size: int) -> Iterator[Measure]:
    """A search over a file of `size` documents: in the namespace, in a session of 500, with filters."""
    path = setup.folder / f"size-{size}.db"
    if not path.exists():
        rate = size / setup.seconds(lambda: filled(path, size))
        yield Measure("search", f"{size:,}: import with vectors", rate, "rows/s")
    with Memory(path) as memory:
        scopes: dict[str, dict[str, Any]] = {
            "in the namespace": {},
            "in a session of 500": {"session": "s0"},
            "by kind and time": {"kinds": ["message"], "since": "2000-01-01"},
        }
        for name, settings in scopes.items():
            queries = cycle(QUERIES)

            def ask(settings: dict[str, Any] = settings, queries: Iterator[str] = queries) -> None:
                memory.search(next(queries), **settings)

            yield Measure("search", f"{size:,}: {name}", 1000 * setup.median(ask, 4 * setup.runs), "ms", 4 * setup.runs)
    yield Measure("search", f"{size:,}: peak memory", _peak_memory(path), "MB")


# A process of its own: a peak never falls again. (`resource` is missing on Windows, so only the script imports it.)
_PEAK = """
import resource, sys
from istar_lite import Memory
with Memory(sys.argv[1], read_only=True) as memory:
    for query in ("storm in the harbour", "violin garden", "printer invoice"):
        memory.search(query)
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
"""


def _peak_memory(path: Path) -> float:
    """Megabytes of a process that opens the file and searches three times. (Linux counts KB, macOS bytes.)"""
    peak = float(_python(_PEAK, str(path)))
    return peak / (1_000_000 if sys.platform == "darwin" else 1_000)


# --- the other calls ------------------------------------------------------------------------------------------


def calls(setup: Setup, size: int) -> Iterator[Measure]:
    """The calls of a host's turn and the maintenance, on a file with `size` memories and `size` turns."""
    path = setup.folder / "calls.db"
    with Memory(path, llm=ScriptedLLM([], default='{"memories": []}')) as memory:
        memory.remember_many(list(sentences(size)))
        run = memory.agent("run")
        run.record_turns([_turn(at, text) for at, text in enumerate(sentences(size, seed=1), start=1)])
        run.extract_atoms(size)
        chat = memory.chat()
        watch = memory.observe("watch", context_window=100_000, background=None)
        for text in sentences(100, seed=2):
            watch.add("user", text)
        works: dict[str, Callable[[], object]] = {
            "chat.store, without the model's time": lambda: chat.store("the storm took the harbour", "noted"),
            "chat.retrieve, with reinforcement": lambda: chat.retrieve("storm in the harbour"),
            "memory.context, 1,000 tokens": lambda: memory.context("storm in the harbour", budget_tokens=1_000),
            "memory_block": run.memory_block,
            "observe: context()": watch.context,
            "status": memory.status,
            "snapshot": lambda: memory.snapshot(setup.folder / "copy.db", overwrite=True),
            "check": memory.check,
        }
        for name, work in works.items():
            yield Measure("calls", f"{name} ({size:,})", 1000 * setup.median(work), "ms", setup.runs)
        yield Measure("calls", f"consolidate ({size:,})", 1000 * setup.seconds(chat.consolidate), "ms")
        yield Measure("calls", f"reembed ({2 * size:,})", 1000 * setup.seconds(memory.reembed), "ms")
        yield Measure(
            "calls", f"forget by text ({size:,})", 1000 * setup.seconds(lambda: memory.forget(text="violin")), "ms"
        )
    with Memory(setup.folder / "merged.db") as other:
        yield Measure(
            "calls", f"merge ({size:,} memories and turns)", 1000 * setup.seconds(lambda: other.merge(path)), "ms"
        )


# --- room -----------------------------------------------------------------------------------------------------


def room(setup: Setup) -> Iterator[Measure]:
    """Bytes of 1,000 ordinary messages, with and without vectors, and the log's size under load."""
    for name, embedder in (("with vectors", "static"), ("words only", None)):
        path = setup.folder / f"room-{name.split()[0]}.db"
        with Memory(path, embedder=embedder) as memory:
            memory.observe("watch", context_window=1_000_000, background=None).add("user", "first")
        empty = path.stat().st_size
        most = 0
        with Memory(path, embedder=embedder) as memory:
            watch = memory.observe("watch", context_window=1_000_000, background=None)
            for text in sentences(setup.items):
                watch.add("user", text)
                most = max(most, wal_path(path).stat().st_size)
        size = path.stat().st_size
        yield Measure("room", f"1,000 messages, {name}", (size - empty) / setup.items, "KB")
        yield Measure("room", f"write-ahead log at most, {name}", most / 1000, "KB")
    yield Measure("room", "an empty file", empty / 1000, "KB")


def growth(setup: Setup) -> Iterator[Measure]:
    """The file of a busy agent: 500 turns a day with atoms, before and after a vacuum."""
    days, path = setup.days, setup.folder / "growth.db"
    with Memory(path) as memory:
        run = memory.agent("busy")
        texts = sentences(days * 500)
        for day in range(days):
            run.record_turns([_turn(day * 500 + at, next(texts)) for at in range(1, 501)])
            run.extract_atoms((day + 1) * 500)
    yield Measure("growth", f"{days} days of 500 turns", path.stat().st_size / 1_000_000, "MB")
    connection = sqlite3.connect(path)
    connection.execute("vacuum")
    connection.close()
    yield Measure("growth", f"{days} days of 500 turns, vacuumed", path.stat().st_size / 1_000_000, "MB")
