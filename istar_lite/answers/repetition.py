"""Finding and cutting the loops that small models fall into."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Sequence
from dataclasses import dataclass

# One line five times running is a loop, four may be four equal events. A block of lines loops when it comes three
# times and fills ten lines. Lines must be equal: thirty tool results that differ in a number are a faithful list,
# and a guard that fires on them throws good work away.
_LINE_TIMES = 5
_BLOCK_TIMES, _BLOCK_LINES = 3, 10
# The same for words within one long line: a phrase five times running that fills forty words.
_WORD_TIMES, _WORD_COUNT = 5, 40
_LONG_LINE = 200
# And for a few characters within one long word ("💪💪💪…"): both numbers bounded, so that the pattern stays linear.
_STUTTER = re.compile(r"(\S{1,12}?)\1{24,}")
_PERIODS_WATCHED = 32  # at once; a real loop needs one
_PASSES = 20

_Loops = Callable[[int, int], bool]


@dataclass(frozen=True, slots=True)
class Repetition:
    """A loop: `unit` comes `times` times running. Characters `start` to `end` of the text hold all of them, the
    first ends at `first_end`."""

    unit: str
    times: int
    start: int
    first_end: int
    end: int

    def __str__(self) -> str:
        return f"{' '.join(self.unit.split())[:60]!r} comes {self.times} times running"


def find_repetition(text: str) -> Repetition | None:
    """The first loop in `text`: a line five times running (blank lines between do not matter), a longer block
    three times (ten lines or more), a phrase within a long line; None when there is none. Linear time."""
    return _find(text, _pieces(text))


def cut_repetition(text: str) -> str:
    """`text` with every loop cut down to its first unit: `find_repetition` finds nothing in it."""
    for _ in range(_PASSES):  # cutting one loop may bring the parts of another together
        shorter = _cut_once(text)
        if shorter == text:
            break
        text = shorter
    return text


def _cut_once(text: str) -> str:
    pieces = _pieces(text)
    kept, at = [], 0
    while loop := _find(text, pieces):
        kept.append(text[at : loop.first_end])
        at = loop.end
        pieces = [piece.after(at) for piece in pieces if piece.end > at]
    return "".join([*kept, text[at:]])


@dataclass(frozen=True, slots=True)
class _Piece:
    text: str
    start: int
    end: int

    def after(self, at: int) -> _Piece:
        return self if self.start >= at else _Piece(self.text[at - self.start :], at, self.end)


def _pieces(text: str) -> list[_Piece]:
    """The lines that are not blank, with their places."""
    pieces, at = [], 0
    for line in text.splitlines(keepends=True):
        if bare := line.strip():
            start = at + line.index(bare)
            pieces.append(_Piece(bare, start, start + len(bare)))
        at += len(line)
    return pieces


def _find(text: str, pieces: Sequence[_Piece]) -> Repetition | None:
    """The loop that starts first, over lines and within lines."""
    run = _find_run([" ".join(piece.text.casefold().split()) for piece in pieces], _lines_loop)
    loop = None if run is None else _located(text, [(piece.start, piece.end) for piece in pieces], run)
    for piece in pieces:
        if loop is not None and piece.start >= loop.start:
            break
        if (within := _find_within(text, piece)) is not None:
            return within
    return loop


def _find_within(text: str, piece: _Piece) -> Repetition | None:
    if len(piece.text) < _LONG_LINE:
        return None
    places = [(piece.start + word.start(), piece.start + word.end()) for word in re.finditer(r"\S+", piece.text)]
    run = _find_run([text[start:end].casefold() for start, end in places], _words_loop)
    if run is not None:
        return _located(text, places, run)
    for stutter in _STUTTER.finditer(piece.text):
        if _says_something(stutter[1]):
            start, first_end, end = (piece.start + at for at in (stutter.start(), stutter.end(1), stutter.end()))
            return Repetition(stutter[1], len(stutter[0]) // len(stutter[1]), start, first_end, end)
    return None


def _lines_loop(period: int, count: int) -> bool:
    if period == 1:
        return count >= _LINE_TIMES
    return count >= max(_BLOCK_TIMES * period, _BLOCK_LINES)


def _words_loop(period: int, count: int) -> bool:
    return count >= max(_WORD_TIMES * period, _WORD_COUNT)


@dataclass(frozen=True, slots=True)
class _Run:
    first: int
    period: int
    count: int


def _find_run(items: Sequence[str], loops: _Loops) -> _Run | None:
    """The first run in which each item equals the one a period before it, long enough for `loops(period, count)`.

    A period is watched from the moment an item comes again after that many places, until the first that differs.
    """
    seen: dict[str, int] = {}
    watched: dict[int, int] = {}  # period -> the first item that equals the one a period before
    run: _Run | None = None
    for at, item in enumerate(items):
        watched = {period: since for period, since in watched.items() if items[at - period] == item}
        if run is not None:
            if run.period not in watched:
                break
            run = _Run(run.first, run.period, at + 1 - run.first)
            continue
        if item in seen and len(watched) < _PERIODS_WATCHED:
            watched.setdefault(at - seen[item], at)
        seen[item] = at
        run = _long_enough(items, watched, at, loops)
    return None if run is None else _Run(run.first, run.period, run.count - run.count % run.period)


def _long_enough(items: Sequence[str], watched: dict[int, int], at: int, loops: _Loops) -> _Run | None:
    for period, since in watched.items():
        first, count = since - period, at + 1 - since + period
        if loops(period, count) and any(_says_something(item) for item in items[first : first + period]):
            return _Run(first, period, count)
    return None


def _says_something(unit: str) -> bool:
    """Rulers, closing braces and table borders repeat by nature."""
    return any(character.isalnum() or unicodedata.category(character) == "So" for character in unit)


def _located(text: str, places: Sequence[tuple[int, int]], run: _Run) -> Repetition:
    start, first_end = places[run.first][0], places[run.first + run.period - 1][1]
    end = places[run.first + run.count - 1][1]
    return Repetition(text[start:first_end], run.count // run.period, start, first_end, end)
