"""Finding and cutting the loops that small models fall into."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Iterator, Sequence
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
    lines = _lines(text)
    loop = next(_loops_of_lines(text, lines), None)
    for line in lines:
        if loop is not None and line[0] >= loop.start:
            break
        if (within := next(_loops_within(text, line), None)) is not None:
            return within
    return loop


def cut_repetition(text: str) -> str:
    """`text` with every loop cut down to its first unit: `find_repetition` finds nothing in it."""
    for _ in range(_PASSES):  # cutting one loop may bring the parts of another together
        shorter = _without(text, _loops_of_lines(text, _lines(text)))
        loops = (loop for line in _lines(shorter) for loop in _loops_within(shorter, line))
        shorter = _without(shorter, loops)
        if len(shorter) == len(text):
            break
        text = shorter
    return text


def _without(text: str, loops: Iterator[Repetition]) -> str:
    kept, at = [], 0
    for loop in loops:
        if loop.start >= at:
            kept.append(text[at : loop.first_end])
            at = loop.end
    return "".join([*kept, text[at:]])


_Place = tuple[int, int]


def _lines(text: str) -> list[_Place]:
    """Where the lines that are not blank start and end, without the spaces around them."""
    places, at = [], 0
    for line in text.splitlines(keepends=True):
        if bare := line.strip():
            start = at + line.index(bare)
            places.append((start, start + len(bare)))
        at += len(line)
    return places


def _loops_of_lines(text: str, lines: Sequence[_Place]) -> Iterator[Repetition]:
    keys = [" ".join(text[start:end].casefold().split()) for start, end in lines]
    return (_located(text, lines, run) for run in _find_runs(keys, _lines_loop))


def _loops_within(text: str, line: _Place) -> Iterator[Repetition]:
    start, end = line
    if end - start < _LONG_LINE:
        return
    words = [word.span() for word in re.compile(r"\S+").finditer(text, start, end)]
    for run in _find_runs([text[start:end].casefold() for start, end in words], _words_loop):
        yield _located(text, words, run)
    for stutter in _STUTTER.finditer(text, start, end):
        if _says_something(stutter[1]):
            times = len(stutter[0]) // len(stutter[1])
            yield Repetition(stutter[1], times, stutter.start(), stutter.end(1), stutter.end())


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


def _find_runs(items: Sequence[str], loops: _Loops) -> Iterator[_Run]:
    """The runs in which each item equals the one a period before it, long enough for `loops(period, count)`.

    A period is watched from the moment an item comes again after that many places, until the first that differs.
    """
    at = 0
    seen: dict[str, int] = {}
    watched: dict[int, int] = {}  # period -> the first item that equals the one a period before
    while at < len(items):
        item = items[at]
        watched = {period: since for period, since in watched.items() if items[at - period] == item}
        if item in seen and len(watched) < _PERIODS_WATCHED:
            watched.setdefault(at - seen[item], at)
        seen[item] = at
        at += 1
        if (run := _long_enough(items, watched, at, loops)) is not None:
            while at < len(items) and items[at] == items[at - run.period]:
                at += 1
            yield _Run(run.first, run.period, (at - run.first) // run.period * run.period)
            seen, watched = {}, {}


def _long_enough(items: Sequence[str], watched: dict[int, int], at: int, loops: _Loops) -> _Run | None:
    for period, since in watched.items():
        first, count = since - period, at - since + period
        if loops(period, count) and any(_says_something(item) for item in items[first : first + period]):
            return _Run(first, period, count)
    return None


def _says_something(unit: str) -> bool:
    """Rulers, closing braces and table borders repeat by nature."""
    return any(character.isalnum() or unicodedata.category(character) == "So" for character in unit)


def _located(text: str, places: Sequence[_Place], run: _Run) -> Repetition:
    start, first_end = places[run.first][0], places[run.first + run.period - 1][1]
    end = places[run.first + run.count - 1][1]
    return Repetition(text[start:first_end], run.count // run.period, start, first_end, end)
