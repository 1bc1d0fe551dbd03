"""What a measurement is: a named number with its unit; tables, JSON and comparison of two runs."""

from __future__ import annotations

import json
import os
import platform
import statistics
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from istar_lite import __version__
from istar_lite.database import driver


@dataclass(frozen=True)
class Measure:
    """The median of several runs. `group` and `name` identify it across runs of the benchmark."""

    group: str
    name: str
    value: float
    unit: str
    runs: int = 1


def median_seconds(work: Callable[[], object], runs: int, *, clock: Callable[[], float] = time.perf_counter) -> float:
    """Median seconds of `runs` calls, after one that is not counted (it fills caches). The clock is the wall's, or
    `time.process_time` where other processes would spoil it."""
    work()
    taken = []
    for _ in range(runs):
        start = clock()
        work()
        taken.append(clock() - start)
    return statistics.median(taken)


def machine() -> dict[str, Any]:
    """The machine and the versions: numbers without them say little."""
    load = os.getloadavg()[0] if hasattr(os, "getloadavg") else None
    return {
        "istar_lite": __version__,
        "driver": driver(),
        "system": platform.platform(terse=True),
        "processor": _processor(),
        "cores": os.cpu_count(),
        "load": load,
    }


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()


def to_json(measures: Sequence[Measure]) -> str:
    """The run as JSON: the machine, then the measures."""
    return json.dumps({"machine": machine(), "measures": [asdict(one) for one in measures]}, indent=2)


def from_json(text: str) -> dict[tuple[str, str], Measure]:
    """The measures of an earlier run, by group and name."""
    read = (Measure(**one) for one in json.loads(text)["measures"])
    return {(one.group, one.name): one for one in read}


def markdown(measures: Iterable[Measure], old: dict[tuple[str, str], Measure] | None = None) -> Iterator[str]:
    """Lines of a Markdown table; beside an older run, its values and the ratio new / old."""
    about = machine()
    yield ", ".join(f"{key}: {value}" for key, value in about.items())
    yield ""
    yield "| group | what | value | unit |" + (" before | ratio |" if old else "")
    yield "|---|---|---:|---|" + ("---:|---:|" if old else "")
    for one in measures:
        row = f"| {one.group} | {one.name} | {number(one.value)} | {one.unit} |"
        if old:
            before = old.get((one.group, one.name))
            row += (
                f" {number(before.value)} | {one.value / before.value:.2f} |" if before and before.value else " – | – |"
            )
        yield row


def number(value: float) -> str:
    """Three significant digits, thousands as they are."""
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"
