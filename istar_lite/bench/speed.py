"""How fast, and how much room: cold start, adds, searches at size, the rest of the calls, bytes, memory, growth.

Numbers are medians on made-up text from a fixed seed. `Setup.clock` chooses what time is: the wall's, or (on a machine
that does other things too) the CPU's, `time.process_time`. Across machines only ratios within one run compare.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from istar_lite import Memory
from istar_lite.bench.adds import adds
from istar_lite.bench.ground import Answers, Setup, filled, python, questions, sentences, turn
from istar_lite.bench.measures import Measure
from istar_lite.bench.room import growth, room


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
    taken = [json.loads(python(_COLD, str(path), setup.clock.__name__)) for _ in range(setup.runs)]
    names = ("import pydantic alone", "import istar_lite beyond that", "open an existing file", "first query")
    for name, column in zip(names, zip(*taken, strict=True), strict=True):
        yield Measure("cold start", name, 1000 * sorted(column)[len(column) // 2], "ms", setup.runs)

    def new_file() -> None:
        with tempfile.TemporaryDirectory(dir=setup.folder) as fresh:
            Memory(Path(fresh) / "new.db").close()

    yield Measure("cold start", "make and close a new file", 1000 * setup.median(new_file), "ms", setup.runs)
    for name, milliseconds in import_times(8):
        yield Measure("cold start", f"import: {name} itself", milliseconds, "ms")


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


# --- searches -------------------------------------------------------------------------------------------------


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
            "by kind": {"kinds": ["message"]},
            "by time": {"since": "2023-11-15", "until": "2023-12-01"},
            "by session and time": {"session": "s0", "since": "2023-11-15"},
        }
        for name, settings in scopes.items():
            queries = questions()

            def ask(settings: dict[str, Any] = settings, queries: Iterator[str] = queries) -> None:
                memory.search(next(queries), **settings)

            yield Measure("search", f"{size:,}: {name}", 1000 * setup.median(ask, 4 * setup.runs), "ms", 4 * setup.runs)
    yield from whole_file(setup, path, f"{size:,}")


# A process of its own for each: a peak never falls again. Linux is asked for that of the program itself, since
# `getrusage` begins with the peak of the process that started it. (`resource` is missing on Windows.)
_PEAK = """
import sys
from istar_lite import Memory
with Memory(sys.argv[1]) as memory:
    if sys.argv[2] == "search":
        for query in ("storm in the harbour", "violin garden", "printer invoice"):
            memory.search(query)
    elif sys.argv[2] == "snapshot":
        memory.snapshot(sys.argv[1] + ".copy", overwrite=True)
    else:
        getattr(memory, sys.argv[2])()
try:
    lines = open("/proc/self/status").read().splitlines()
    print(next(int(line.split()[1]) for line in lines if line.startswith("VmHWM")) / 1000)
except OSError:
    import resource
    print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1_000_000)
"""


def whole_file(setup: Setup, path: Path, size: str) -> Iterator[Measure]:
    """What goes through all of the file, and the peak memory of each in a process of its own."""
    with Memory(path) as memory:
        works: dict[str, Callable[[], object]] = {
            "check": memory.check,
            "snapshot": lambda: memory.snapshot(setup.folder / "copy.db", overwrite=True),
            "stats": memory.stats,
        }
        for name, work in works.items():
            yield Measure("file", f"{size}: {name}", 1000 * setup.seconds(work), "ms")
    for name in ("search", "check", "snapshot", "stats"):
        yield Measure("file", f"{size}: peak memory, {name}", float(python(_PEAK, str(path), name)), "MB")


# --- the other calls ------------------------------------------------------------------------------------------


def calls(setup: Setup, size: int) -> Iterator[Measure]:
    """The calls of a host's turn and the maintenance, on a file with `size` memories and `size` turns."""
    path = setup.folder / "calls.db"
    with Memory(path, llm=Answers().model()) as memory:
        memory.remember_many(list(sentences(size)))
        run = memory.agent("run")
        run.record_turns([turn(at, text) for at, text in enumerate(sentences(size, seed=1), start=1)])
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
            "stats": memory.stats,
            "work, when nothing is due": memory.work,
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
