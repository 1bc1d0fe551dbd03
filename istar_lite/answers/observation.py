"""Reading an observer's answer: `<observations>` with dated bullets, and two hints."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from istar_lite.answers.log import LogLine, format_log, parse_log
from istar_lite.answers.parts import (
    answer_part,
    content_words,
    is_refusal,
    regions,
    says_nothing,
    without_fences,
    word_set,
)
from istar_lite.errors import UnusableAnswer
from istar_lite.text import estimate_tokens, normalise

_TAGS = r"(?:observations|current[-_ ]task|suggested[-_ ]response)"
# Tags count where a line begins or ends. One in the middle of a line is text that somebody wrote about the tag, and
# must neither end the log nor begin a hint.
_OPEN = re.compile(rf"^[ \t>*_`]*<\s*({_TAGS})\s*>|<\s*({_TAGS})\s*>(?=[ \t]*$)", re.IGNORECASE | re.MULTILINE)
_CLOSE = re.compile(rf"^[ \t>*_`]*</\s*({_TAGS})\s*>|</\s*({_TAGS})\s*>(?=[ \t*_`]*$)", re.IGNORECASE | re.MULTILINE)
_TEMPLATE_FIELD = re.compile(r"\A[\[<{][^\[\]<>{}]*[\]>}]\Z")
_LEAST_HINT = 8  # real characters; shorter ones are "None." and echoes of the template
# Words of any hint about any conversation: they show nothing.
_GENERIC = word_set(
    """user users assistant tool task tasks tell ask asking respond response reply replies say said help helping
    continue provide give message messages conversation current next suggested make sure need needs want wants
    should work working thank please let know question questions answer answers
    """
)
# An answer with this share of the tokens it was allowed may have been cut off; a shorter one ended by itself.
_MAYBE_CUT = 0.7


@dataclass(frozen=True, slots=True)
class ObservationBlock:
    """What an observer noted. `observations`: the log in our own form, "" when `empty` (an honest "nothing").

    `complete=False`: the log was cut off; the lines before the cut are here and the span is still due.
    """

    observations: str
    current_task: str | None = None
    suggested_response: str | None = None
    empty: bool = False
    complete: bool = True


def read_observations(
    text: str,
    *,
    supported_by: Iterable[str],
    example_lines: Iterable[str] = (),
    max_tokens: int | None = None,
) -> ObservationBlock:
    """The log and the hints in `text`.

    `supported_by`: the messages observed; a hint that shares no telling word with any of them is dropped (small
    talk brings invented tasks). `example_lines`: lines of the prompt's example, hints too, dropped when they come
    back. `max_tokens`: what the answer was allowed; with it a log that was never closed counts as whole when the
    answer is far shorter. Loops are left in (`find_repetition`, `cut_repetition`).
    Raises UnusableAnswer: no `<observations>`, no bullet in it, only the example, a refusal.
    """
    answer = without_fences(answer_part(text))
    sections = _sections(answer)
    example = list(example_lines)
    hints = _Hints(supported_by, example)
    task, response = hints.real(sections.get("current-task")), hints.real(sections.get("suggested-response"))
    log = sections.get("observations")
    if log is None:
        if says_nothing(answer):
            return ObservationBlock("", empty=True)
        raise UnusableAnswer("the model declined" if is_refusal(answer) else "the answer has no <observations>")
    lines = parse_log(log.text)
    if _is_nothing(log.text, lines):
        return ObservationBlock("", task, response, empty=True)
    if not lines:
        raise UnusableAnswer("the observations hold no bullet")
    own = without_lines_of(lines, example)
    if not own:
        raise UnusableAnswer("only the prompt's own example came back")
    return ObservationBlock(format_log(own), task, response, complete=log.closed or ended_by_itself(answer, max_tokens))


def ended_by_itself(answer: str, max_tokens: int | None) -> bool:
    """Whether `answer` is so much shorter than it was allowed that nothing can have cut it off."""
    return max_tokens is not None and estimate_tokens(answer) < _MAYBE_CUT * max_tokens


def without_lines_of(lines: Sequence[LogLine], example_lines: Iterable[str]) -> list[LogLine]:
    """`lines` without those that the example holds; a detail that comes first is a line of its own."""
    example = {normalise(line.text) for written in example_lines for line in parse_log(written)}
    own: list[LogLine] = []
    for line in lines:
        if normalise(line.text) not in example:
            own.append(line if own else replace(line, detail=False))
    return own


@dataclass(frozen=True, slots=True)
class Section:
    text: str
    closed: bool


def _sections(answer: str) -> dict[str, Section]:
    """Tag → its first section. One that is not closed ends where the next begins."""
    opened = list(_OPEN.finditer(answer))
    sections: dict[str, Section] = {}
    for tag, region in regions(answer, opened):
        name = _name(tag)
        closing = _closing(region, name)
        section = Section(region[:closing], closing is not None or tag is not opened[-1])
        sections.setdefault(name, section)
    return sections


def _name(tag: re.Match[str]) -> str:
    return re.sub(r"[_ ]", "-", (tag[1] or tag[2]).casefold())


def _closing(region: str, name: str) -> int | None:
    """Where the section ends: its first end tag that begins a line, else its last at the end of a line."""
    ends = [tag for tag in _CLOSE.finditer(region) if _name(tag) == name]
    leading = [tag for tag in ends if tag[1]]
    return leading[0].start() if leading else ends[-1].start() if ends else None


def last_observations(answer: str) -> Section | None:
    """The last section of observations, for answers that draft first; None when there is none."""
    opened = [tag for tag in _OPEN.finditer(answer) if _name(tag) == "observations"]
    if not opened:
        return None
    return _sections(answer[opened[-1].start() :])["observations"]


def _is_nothing(log: str, lines: Sequence[LogLine]) -> bool:
    if not log.strip():
        return True
    if lines:
        return all(says_nothing(line.text) for line in lines)
    dates_out = "\n".join(line for line in log.splitlines() if not re.match(r"\W*date\W*:", line, re.IGNORECASE))
    return not dates_out.strip() or says_nothing(dates_out)


class _Hints:
    def __init__(self, messages: Iterable[str], example: Iterable[str]) -> None:
        self._words = set().union(*map(content_words, messages)) - _GENERIC
        self._example = {normalise(line) for line in example}

    def real(self, section: Section | None) -> str | None:
        """The hint, when it is no template echo, none of the example's, and supported by a word of the messages."""
        hint = "" if section is None else " ".join(section.text.split()).strip("`* ")
        if sum(map(str.isalnum, hint)) < _LEAST_HINT or _TEMPLATE_FIELD.match(hint):
            return None
        if normalise(hint) in self._example or says_nothing(hint):
            return None
        telling = {word for word in content_words(hint) if len(word) > 2 or not word.isascii()}
        return None if self._words.isdisjoint(telling - _GENERIC) else hint
