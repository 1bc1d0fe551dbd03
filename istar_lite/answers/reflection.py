"""Reading a reflector's answer: the same log, shorter, with every critical line still in it."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from istar_lite.answers.log import CRITICAL, DONE, LOW, MEDIUM, LogLine, format_log, is_of_log, parse_log
from istar_lite.answers.observation import ended_by_itself, last_observations, without_lines_of
from istar_lite.answers.parts import answer_part, content_words, is_refusal, without_fences, word_set, words_of
from istar_lite.answers.repetition import find_repetition
from istar_lite.errors import UnusableAnswer

# A critical line is kept when one line of the answer has all of its numbers and names, its "not", and its other
# telling words but for one in ten (a short line has none to spare). Strict on purpose: a refused reflection costs a
# call, a lost line is lost.
_SPARE = 10
_COVERED = 0.6  # enough to say where an uncritical line went
_NEGATIONS = word_set("no not never none nor without instead neither cannot except nothing stop")
# Words about who said it and how, in which models differ without losing anything.
_SAYING = word_set(
    """user users assistant say says said tell tells told state states stated want wants wanted ask asks asked need
    needs needed like likes liked prefer prefers preferred wish wishes wished decide decides decided"""
)
_NAME = re.compile(r"(?<=[^.!?:\s]\s)[^\W\d_a-z]\w*")  # a capital that does not begin a sentence
_ENDING = re.compile(r"(?:ings?|ed|es|s|ly)\Z")
_WEIGHTS = (CRITICAL, MEDIUM, LOW, DONE)


def read_reflection(text: str, *, before: str, example_lines: Iterable[str] = (), max_tokens: int | None = None) -> str:
    """The condensed log in `text`, in our own form.

    Marks, times and dates that the model lost are put back from `before` where a line's words tell which it was.
    Accepted only if it is whole, shorter than `before` (characters), and holds every line that `before` marks
    critical, by its words. `max_tokens`: what the answer was allowed; without tags it tells whether it is whole.
    Raises UnusableAnswer with the reason; then the old log stays.
    """
    answer = without_fences(answer_part(text))
    lines = without_lines_of(_whole_log(answer, max_tokens), example_lines)
    if not lines:
        raise UnusableAnswer("the model declined" if is_refusal(answer) else "the reflection holds no line of its own")
    if sum(len(line.text) for line in lines) >= len(before):  # before anything is compared: junk may be long
        raise UnusableAnswer("the reflection is not shorter than what it condenses")
    if (loop := find_repetition("\n".join(line.text for line in lines))) is not None:
        raise UnusableAnswer(f"the reflection repeats itself: {loop}")
    known = _Known(parse_log(before))
    told = [_Told(line, known.told_by(line.text)) for line in lines]
    known.refuse_losses(told)
    for restored in (_restored(told), _restored(told, times_of=(CRITICAL,)), _restored(told, times_of=())):
        if len(restored) < len(before.strip()):
            return restored
    raise UnusableAnswer("the reflection is not shorter than what it condenses")


def _whole_log(answer: str, max_tokens: int | None) -> list[LogLine]:
    section = last_observations(answer)
    if section is None:
        # No tags: bullets and dates are the log, prose is not. Whether it is whole shows in its critical lines,
        # and in its length where we know what was allowed.
        if max_tokens is not None and not ended_by_itself(answer, max_tokens):
            raise UnusableAnswer("the reflection was cut off")
        return parse_log("\n".join(line for line in answer.splitlines() if is_of_log(line)))
    if not section.closed and not ended_by_itself(answer, max_tokens):
        raise UnusableAnswer("the reflection was cut off")
    return parse_log(section.text)


@dataclass(frozen=True, slots=True)
class _Words:
    """What of a text must come back for it to be kept."""

    telling: frozenset[str]
    numbers: frozenset[str]
    names: frozenset[str]
    negated: bool

    @classmethod
    def of(cls, text: str) -> _Words:
        words = words_of(text)
        numbers = frozenset(word.lstrip("0") or "0" for word in words if word[0].isdigit())
        told = content_words(text) - _NEGATIONS - _SAYING
        telling = frozenset(_stem(word) for word in told if not word[0].isdigit())
        names = telling.intersection(map(_stem, words_of(" ".join(_NAME.findall(text)))))
        return cls(telling, numbers, names, not _NEGATIONS.isdisjoint(words) or "n't" in text or "n’t" in text)

    def kept_in(self, other: _Words) -> bool:
        if not (self.numbers <= other.numbers and self.names <= other.telling) or (self.negated and not other.negated):
            return False
        return len(self.telling - other.telling) <= len(self.telling) // _SPARE

    def all(self) -> Iterator[tuple[str, bool]]:
        yield from ((word, False) for word in self.telling)
        yield from ((number, True) for number in self.numbers)


def _share(words: _Words, found: int) -> float:
    """How much of `words` `found` of them are, 0 to 1; a line without telling words is found by any that has none."""
    wanted = len(words.telling) + len(words.numbers)
    return found / wanted if wanted else 1.0


def _stem(word: str) -> str:
    """Enough to match "wants" with "wanted"."""
    return _ENDING.sub("", word) if len(word) > 4 else word


class _Known:
    """The lines of the log before, found by their words: comparing each line with each would take seconds on a
    long log."""

    def __init__(self, lines: Sequence[LogLine]) -> None:
        self._lines = lines
        self._words = [_Words.of(line.text) for line in lines]
        self._holding: dict[tuple[str, bool], list[int]] = {}
        for at, words in enumerate(self._words):
            for word in words.all():
                self._holding.setdefault(word, []).append(at)
        self._wordless = [at for at, words in enumerate(self._words) if not any(words.all())]

    def told_by(self, text: str) -> tuple[LogLine, ...]:
        """The lines before that `text` tells, best covered first, then in the order of the log. A critical line
        counts only where it is kept."""
        words = _Words.of(text)
        shared = Counter(at for word in words.all() for at in self._holding.get(word, ()))
        candidates = shared if shared or any(words.all()) else dict.fromkeys(self._wordless, 0)
        covered = [
            (-share, at)
            for at, found in candidates.items()
            if (share := _share(self._words[at], found)) >= _COVERED and self._counts(at, words)
        ]
        return tuple(self._lines[at] for _, at in sorted(covered))

    def _counts(self, at: int, words: _Words) -> bool:
        line = self._lines[at]
        return not line.detail and (line.mark != CRITICAL or self._words[at].kept_in(words))

    def refuse_losses(self, told: Iterable[_Told]) -> None:
        kept = {line for answered in told for line in answered.tells}
        for line in self._lines:
            if line.mark == CRITICAL and line not in kept:
                raise UnusableAnswer(f"the reflection lost a critical line: {line.text[:80]!r}")


@dataclass(frozen=True, slots=True)
class _Told:
    """A line of the answer, with the lines before that it tells."""

    line: LogLine
    tells: tuple[LogLine, ...]

    def restored(self, date: str, times_of: Sequence[str]) -> LogLine:
        """The line with what is known of it; `date` where nothing is."""
        if self.line.detail or not self.tells:
            return replace(self.line, date=self.line.date or date)
        # A critical line that this one tells makes it critical; else the best covered knows better than the model.
        critical = next((line for line in self.tells if line.mark == CRITICAL), None)
        source = critical or self.tells[0]
        time = self.line.time
        if time not in {line.time for line in self.tells}:
            time = source.time if time or source.mark in times_of else ""
        return replace(self.line, mark=source.mark, time=time, date=source.date or self.line.date or date)


def _restored(told: Sequence[_Told], times_of: Sequence[str] = _WEIGHTS) -> str:
    """The log with marks and dates put back, and the times of lines with a mark in `times_of`; grouped by date in
    the order in which dates come up."""
    by_date: dict[str, list[LogLine]] = {}
    date = ""
    for line in told:
        restored = line.restored(date, times_of)
        date = restored.date
        by_date.setdefault(date, []).append(restored)
    return format_log(line for lines in by_date.values() for line in lines)
