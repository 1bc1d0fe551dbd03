"""The disk is full, again and again, in every operation: on a file system of its own of a few megabytes.

    sudo python tests/stress/disk.py --tries 10        # mounts a tmpfs; elsewhere the size limit of the process is used

Each try leaves an operation a random number of free pages. It must end with one of our errors (or well), the file must
be whole with all that was acknowledged, and work again once there is room.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import random
import resource
import signal
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from operations import OPERATIONS, opened, troubles

from istar_lite import IstarError

SIZE = 24 * 2**20


@contextlib.contextmanager
def small_disk() -> Iterator[Path | None]:
    """A folder on a file system of 24 MB; None where none can be mounted."""
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run(
            ["mount", "-t", "tmpfs", "-o", f"size={SIZE}", "istar-stress", folder], capture_output=True, check=False
        )
        if done.returncode:
            yield None
            return
        try:
            yield Path(folder)
        finally:
            subprocess.run(["umount", folder], check=True)


@contextlib.contextmanager
def room(folder: Path | None, path: Path, pages: int) -> Iterator[None]:
    """Leaves so many pages free: by a file that fills the disk, else by the limit of file sizes."""
    if folder is None:
        largest = max(item.stat().st_size for item in path.parent.iterdir())
        resource.setrlimit(resource.RLIMIT_FSIZE, (largest + pages * 4096, resource.RLIM_INFINITY))
        try:
            yield
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
        return
    ballast = folder / "ballast"
    status = os.statvfs(folder)
    with open(ballast, "wb") as out:
        out.write(b"\0" * max(0, status.f_bavail * status.f_frsize - pages * 4096))
    try:
        yield
    finally:
        ballast.unlink()


def one_try(name: str, path: Path, folder: Path | None, number: int, dice: random.Random) -> list[str]:
    """One operation with little room; what was wrong afterwards."""
    wrong: list[str] = []
    with opened(path) as memory:
        try:
            with room(folder, path, dice.randint(0, 60)):
                OPERATIONS[name](memory, number)
        except IstarError:
            pass
        except Exception as error:  # noqa: BLE001  # whatever is not one of ours is the finding
            wrong.append(f"raised {type(error).__name__}: {error}")
        drafts = [item.name for item in path.parent.iterdir() if item.name.endswith(".tmp")]
        wrong += [f"left {draft}" for draft in drafts]
        OPERATIONS[name](memory, number + 1)  # there is room again
    return wrong + troubles(path)


def run(tries: int, only: list[str], seed: int) -> int:
    """All tries; prints a line of the table for each operation. The number of failures."""
    dice, total = random.Random(seed), 0
    with small_disk() as folder, tempfile.TemporaryDirectory() as elsewhere:
        fault = "disk full (tmpfs)" if folder is not None else "size limit"
        print("| operation | fault | tries | failures |\n|---|---|---|---|")
        for name in only or list(OPERATIONS):
            failures: list[str] = []
            for number in range(tries):
                home = (folder or Path(elsewhere)) / f"{name}-{number // 10}"
                home.mkdir(exist_ok=True)
                path = home / "a.db"
                if not path.exists():
                    with opened(path) as memory:
                        for step in range(4):
                            for first in ("tick", "store", "remember"):
                                OPERATIONS[first](memory, 900_000 + step)
                failures += [f"try {number}: {line}" for line in one_try(name, path, folder, number * 10, dice)]
            for item in (folder or Path(elsewhere)).rglob("*"):
                if item.is_file():
                    item.unlink()
            print(f"| {name} | {fault} | {tries} | {len(failures)} |", flush=True)
            for line in failures[:10]:
                print("   ", line, flush=True)
            total += len(failures)
    return total


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--tries", type=int, default=10)
    options.add_argument("--only", default="")
    options.add_argument("--seed", type=int, default=6)
    chosen = options.parse_args()
    sys.exit(1 if run(chosen.tries, [name for name in chosen.only.split(",") if name], chosen.seed) else 0)
