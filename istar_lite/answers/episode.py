"""Reading an episode: one block `[PHASE | T<start>-T<end>]` with a narrative."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from istar_lite.answers.parts import answer_part, has_letters, masked, regions, without_fences
from istar_lite.answers.repetition import find_repetition
from istar_lite.errors import UnusableAnswer
from istar_lite.text import normalise

UNKNOWN = "UNKNOWN"

_GAP = r"\s{0,9}"  # bounded, as all repeats here that meet each other: junk must not take quadratic time
_HEADER = re.compile(
    r"\[[ \t*]{0,9}([^\[\]|\n]{1,80}?)[ \t*]{0,9}\|"
    rf"{_GAP}T{_GAP}\d{{1,12}}{_GAP}(?:-|–|—|→|to|\.{{2,3}}){_GAP}T?{_GAP}\d{{1,12}}{_GAP}\][*_]*",
    re.IGNORECASE,
)
_BEFORE_HEADER = re.compile(r"[ \t>*#_`-]*\Z")
_TEMPLATE_HEADER = re.compile(r"\|\s*T?\s*<")
_NARRATIVE_LABEL = re.compile(r"\A\W*narrative\W*?:\s*", re.IGNORECASE)
_TEMPLATE_FIELD = re.compile(r"\A<[^<>]*>\Z")
# The word of the format itself is no phase.
_PLACEHOLDERS = frozenset(("phase", "phase name", "name", "phase_name", "x"))
_DECIDED_AT_MOST = 2
_LOOP = 5


@dataclass(frozen=True, slots=True)
class EpisodeBlock:
    """`name`: a valid phase as the host spells it, or UNKNOWN; `narrative`: what happened, without the header."""

    name: str
    narrative: str


def read_episode(
    text: str,
    *,
    phases: Sequence[str],
    previous_narrative: str | None = None,
    example_narrative: str | None = None,
    prompt_text: str = "",
) -> EpisodeBlock:
    """The episode in `text`, wherever its header stands; the range is the caller's, so the model's is not read.

    A block whose narrative is the previous one, the example's or an echo of `prompt_text` is passed over.
    Raises UnusableAnswer: no header, no narrative, a phase left undecided, the format's placeholder, a loop.
    """
    answer = without_fences(answer_part(text))
    headers = _headers(answer)
    if not headers:
        placeholder = _TEMPLATE_HEADER.search(answer)
        raise UnusableAnswer("the format's placeholder came back" if placeholder else "the answer has no header")
    names = [_phase(header[1], phases) for header in headers]
    if len({name for name in names if name not in (None, UNKNOWN)}) > _DECIDED_AT_MOST:
        raise UnusableAnswer("all phases came back, none was chosen")
    narratives = _Narratives(previous_narrative, example_narrative, prompt_text)
    blocks = list(_blocks(answer, headers))
    _refuse_loops(names, blocks)
    problem = "the answer has no narrative"
    for name, block in zip(names, blocks, strict=True):
        narrative = narratives.real(block)
        if name is None:
            problem = "the format's placeholder came back"
        elif narrative:
            return EpisodeBlock(name, narrative)
    raise UnusableAnswer(narratives.problem or problem)


def _headers(answer: str) -> list[re.Match[str]]:
    """The headers at the start of a line; those within lines only when there is no other."""
    found = list(_HEADER.finditer(answer))
    leading = [header for header in found if _BEFORE_HEADER.match(_line_before(answer, header.start()))]
    return leading or found


def _line_before(text: str, at: int) -> str:
    return text[max(text.rfind("\n", 0, at) + 1, at - 200) : at]


def _blocks(answer: str, headers: Sequence[re.Match[str]]) -> Iterator[str]:
    for _, block in regions(answer, headers):
        yield block.lstrip(" \t\n*#_`>:-").rstrip(" \t\n*#_`")


def _phase(written: str, phases: Sequence[str]) -> str | None:
    """The valid phase that `written` names: without regard to case, else the longest one contained in it, else
    UNKNOWN; None for the placeholder of the format."""
    name = " ".join(written.split()).strip("*_`\"'<> ").casefold()
    valid = {" ".join(phase.split()).casefold(): phase for phase in phases}
    if name in valid:
        return valid[name]
    if name in _PLACEHOLDERS:
        return None
    contained = [phase for phase in valid if phase and phase in name]
    return valid[max(contained, key=len)] if contained else UNKNOWN


def _refuse_loops(names: Sequence[str | None], blocks: Sequence[str]) -> None:
    times = Counter(zip(names, map(normalise, blocks), strict=True)).most_common(1)[0][1]
    lines = Counter(masked(line) for block in blocks for line in block.splitlines() if has_letters(line))
    if times >= 3 or max(lines.values(), default=0) >= _LOOP or any(map(find_repetition, blocks)):
        raise UnusableAnswer("the answer repeats itself")


class _Narratives:
    """Tells a narrative from an echo."""

    def __init__(self, previous: str | None, example: str | None, prompt_text: str) -> None:
        self._not_new = {normalise(text) for text in (previous, example) if text}
        self._previous = {normalise(line) for line in (previous or "").splitlines() if line.strip()}
        self._prompt = {masked(line) for line in prompt_text.splitlines()}
        self.problem: str | None = None

    def real(self, block: str) -> str | None:
        """`block` up to its first echo of the prompt; None when that says nothing new."""
        kept: list[str] = []
        new = False
        for line in _NARRATIVE_LABEL.sub("", block).splitlines():
            told_before = normalise(line) in self._previous
            if not told_before and self._is_echo(line):
                self.problem = "the answer echoes the prompt"
                break
            new = new or (not told_before and has_letters(line) and not _TEMPLATE_FIELD.match(line.strip()))
            kept.append(line)
        narrative = "\n".join(kept).strip(" \t\n*`")
        if kept and (not new or normalise(narrative) in self._not_new):
            self.problem = self.problem or "the narrative is the previous one or the example's"
            return None
        return narrative or None

    def _is_echo(self, line: str) -> bool:
        """A line of the prompt, numbers aside; short ones only with a colon ("New turns:"): they may be chance."""
        echo = masked(line)
        return echo in self._prompt and (len(echo.split()) > 2 or echo.endswith(":"))
