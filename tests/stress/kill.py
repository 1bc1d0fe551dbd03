"""kill -9 at random points in every operation, again and again, on one growing file each.

    python tests/stress/kill.py --tries 200            # of each operation, and of all mixed
    python tests/stress/kill.py --tries 20 --only store,merge

After each kill: the file is whole, whatever was acknowledged is in it, nothing overlaps, nothing due is lost, and the
same operation run again to its end leaves it so. Children are forked, so that a try costs no start of Python.
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import sys
import tempfile
import time
import traceback
import warnings
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from operations import OPERATIONS, main, missing, opened, troubles

EVERY = 25  # kills on one file; then a new one, lest checks take ever longer


def kill_once(path: Path, log: Path, names: list[str], first: int, seconds: float) -> None:
    """Forks a process that runs the operations, and kills it after it has been at it for `seconds`."""
    begun, begins = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.close(begun)
            os.write(begins, b"x")
            main(path, names, first, log)
        except BaseException:  # noqa: BLE001  # told by the parent: the child dies here in any case
            traceback.print_exc()
            os._exit(1)
    os.close(begins)
    os.read(begun, 1)
    os.close(begun)
    time.sleep(seconds)
    os.kill(child, signal.SIGKILL)
    _, status = os.waitpid(child, 0)
    assert os.WIFSIGNALED(status), f"the operations {names} failed by themselves"


def acknowledged(folder: Path) -> int:
    """Operations that the killed processes finished, over all logs."""
    return sum(len(log.read_text().splitlines()) for log in folder.glob("*.log"))


def kills(names: list[str], tries: int, dice: random.Random, folder: Path) -> tuple[int, list[str]]:
    """Kills on files of their own; how many, and what was wrong afterwards."""
    failures: list[str] = []
    path = log = folder
    for number in range(tries):
        if number % EVERY == 0:
            path, log = folder / f"{names[0]}-{number}" / "a.db", folder / f"{names[0]}-{number}.log"
            path.parent.mkdir()
            for name in ("tick", "store", "remember"):  # something to work on
                with opened(path) as memory:
                    for step in range(4):
                        OPERATIONS[name](memory, 900_000 + step)
        kill_once(path, log, names, number * 1000, dice.random() ** 2 * 0.6)
        wrong = troubles(path) + [f"acknowledged but missing: {line}" for line in missing(path, log)]
        if not wrong and number % 5 == 0:
            with opened(path) as memory:
                for name in names:
                    OPERATIONS[name](memory, number * 1000 + 999)
            wrong = troubles(path)
        failures += [f"{','.join(names)} try {number}: {line}" for line in wrong]
    return tries, failures


def run(tries: int, only: list[str], seed: int) -> int:
    """All kills; prints a line of the table for each operation. The number of failures."""
    dice, total = random.Random(seed), 0
    print("| operation | fault | tries | operations finished before | failures |\n|---|---|---|---|---|")
    groups = [[name] for name in only] if only else [*([name] for name in OPERATIONS), list(OPERATIONS)]
    with tempfile.TemporaryDirectory() as folder:
        for names in groups:
            place = Path(folder) / f"of-{names[0]}-{len(names)}"
            place.mkdir()
            done, failures = kills(names, tries, dice, place)
            label = names[0] if len(names) == 1 else "all in turn"
            print(f"| {label} | kill -9 | {done} | {acknowledged(place)} | {len(failures)} |", flush=True)
            for line in failures[:10]:
                print("   ", line, flush=True)
            total += len(failures)
    return total


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--tries", type=int, default=20)
    options.add_argument("--only", default="")
    options.add_argument("--seed", type=int, default=6)
    chosen = options.parse_args()
    sys.exit(1 if run(chosen.tries, [name for name in chosen.only.split(",") if name], chosen.seed) else 0)
