"""How far a check of the file is, told while it goes on: single statements of it take seconds in a large file."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from itertools import accumulate, pairwise

from istar_lite.driver import DAMAGE, sqlite3, watched
from istar_lite.errors import IstarError

Progress = Callable[[int, int], None]

STEPS = 1_000  # of SQLite between two looks
PAGES = "pages"  # the first stretch of SQLite's own check, in which it counts each page as a step
# Each stretch of a check: microseconds, and thousands of SQLite's steps, for a thousand search rows; as measured at a
# million, with the file in memory (else the pages take five times as long). They need not be right, only not far off:
# a stretch that is through is through, however far it seemed.
STRETCHES = {
    PAGES: (1_500, 0.3),
    "file": (6_200, 150),
    "references": (2_800, 25),
    "search rows": (1_300, 63),
    "spaced text": (300, 11),
    "vectors": (450, 28),
    "digests": (100, 1),
    "times": (500, 11),
    "full text": (3_200, 20),
}


class Meter:
    """Turns the steps of SQLite into `on_progress(done, total)`: an estimate of microseconds, never going back."""

    def __init__(self, connection: sqlite3.Connection, on_progress: Progress | None) -> None:
        self._on_progress = on_progress
        self._thousands = (_number(connection, "select max(id) from document") + 1) / 1_000
        self._pages = _number(connection, "pragma page_count")
        edges = [
            round(self._thousands * time) for time in accumulate((one for one, _ in STRETCHES.values()), initial=0)
        ]
        self._spans = dict(zip(STRETCHES, pairwise(edges), strict=True))
        self._total = edges[-1]
        self._told = -1

    @contextlib.contextmanager
    def watching(self, connection: sqlite3.Connection, name: str) -> Iterator[None]:
        """One check, whose statements run on `connection`. What `on_progress` raises ends it and is raised here."""
        stretches = [PAGES, name] if name == "file" else [name] if name in STRETCHES else []

        def told(count: int) -> None:
            for stretch in stretches:
                start, end = self._spans[stretch]
                steps = max(1.0, self._steps(stretch))
                self._tell(start + round((end - start) * min(1.0, count / steps)))
                count -= round(steps)
                if count <= 0:
                    return

        with watched(connection, told if stretches and self._on_progress is not None else None, STEPS):
            yield
        if stretches:
            self._tell(self._spans[stretches[-1]][1])

    def _steps(self, stretch: str) -> float:
        """Looks that a stretch is expected to take."""
        return self._pages / STEPS if stretch == PAGES else self._thousands * STRETCHES[stretch][1]

    def _tell(self, done: int) -> None:
        """A thousand times in all, or so."""
        far_enough = done > self._told and (done == self._total or 1_000 * (done - self._told) >= self._total)
        if self._on_progress is not None and far_enough:
            self._told = done
            self._on_progress(done, self._total)


def _number(connection: sqlite3.Connection, sql: str) -> int:
    """A number by which to estimate; 0 where the file is too damaged to tell, which the checks themselves report."""
    try:
        return int(connection.execute(sql).fetchone()[0] or 0)
    except (*DAMAGE, IstarError):
        return 0
