"""Reading a retrospective: `[RUN RETROSPECTIVE]` with phase sequence, outcome, root cause and rules."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from istar_lite.answers.parts import answer_part, has_letters, masked, regions, without_fences
from istar_lite.answers.repetition import find_repetition
from istar_lite.errors import UnusableAnswer
from istar_lite.text import normalise

RETRO_HEADER = "[RUN RETROSPECTIVE]"

_HEADER = re.compile(
    r"^[ \t>*#_`]*+\[?[ \t*]*+RUN[ _-]+RETROSPECTIVE[ \t*]*\]?[*_:]*[ \t]*", re.IGNORECASE | re.MULTILINE
)
_LABELS = {
    "phase sequence": "Phase sequence",
    "phases": "Phase sequence",
    "outcome": "Outcome",
    "root cause": "Root cause",
    "rule": "Rule for next run",
}
_LABEL = re.compile(
    r"^[ \t>*#_-]*+(?:\d{1,2}[.)][ \t]*+)?(phase sequence|phases|outcome|root cause|rule)s?"
    r"(?:[ \t]+(?:for|in)[ \t]+(?:the[ \t]+)?next[ \t]+runs?)?(?:[ \t]*\d{1,2})?[*_]*[ \t]*[:：][*_]*[ \t]*",
    re.IGNORECASE | re.MULTILINE,
)
_RULE_START = re.compile(r"[\W\d]*IF\b", re.IGNORECASE)
_IF_THEN = tuple((re.compile(r"\bIF\b", flags), re.compile(r"\bTHEN\b", flags)) for flags in (0, re.IGNORECASE))
_MOST_RULES = 12
_TURN = re.compile(r"\bT(\d{1,9})(?!\d)")
_CITATION = re.compile(
    r"[(\[](?=[^()\[\]]{0,200}\bT\d)(?:(?:see|cf|turns?|at|and|to|T?\d+|[\s,;&.–-])+)[)\]]\W*\Z", re.I
)
_TEMPLATE_FIELD = re.compile(r"<[^<>\n]{1,60}>")


@dataclass(frozen=True, slots=True)
class Rule:
    """IF `condition` THEN `action`; `cited_turns`: the turns named in either, in order, once each."""

    condition: str
    action: str
    cited_turns: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class RetroBlock:
    """A retrospective. `text` is the whole block with its header, without lines of the example; the three parts
    are empty where the answer left them out; rules that are not IF … THEN … stand in `text` alone."""

    text: str
    phase_sequence: str
    outcome: str
    root_cause: str
    rules: tuple[Rule, ...]


def read_retro(text: str, *, example_text: str = "", prompt_text: str = "") -> RetroBlock:
    """The retrospective in `text`, after the first header that parts follow.

    Parts that equal a line of `example_text` are dropped, an echo of `prompt_text` ends the block. Raises
    UnusableAnswer when no header is there, or neither a root cause nor a rule: the rest the caller knows itself.
    """
    answer = without_fences(answer_part(text))
    headers = list(_HEADER.finditer(answer))
    if not headers:
        raise UnusableAnswer("the answer has no header [RUN RETROSPECTIVE]")
    problem = "the retrospective has neither a root cause nor a rule"
    for _, block in regions(answer, headers):
        parts, dropped = _parts(_before_echo(block, prompt_text), example_text)
        if any(label in parts for label in ("Root cause", "Rule for next run")):
            return _block(parts)
        problem = dropped or problem
    raise UnusableAnswer(problem)


def _block(parts: dict[str, str]) -> RetroBlock:
    text = "\n".join([RETRO_HEADER, *(f"{label}: {content}" for label, content in parts.items())])
    if find_repetition(text) is not None:
        raise UnusableAnswer("the answer repeats itself")
    # Models leave the label of the rules out: then lines that begin with IF are rules, wherever they stand.
    unlabelled = (line for content in parts.values() for line in content.splitlines() if _RULE_START.match(line))
    rules = _rules(parts.get("Rule for next run", "") or "\n".join(unlabelled))
    return RetroBlock(
        text, parts.get("Phase sequence", ""), parts.get("Outcome", ""), parts.get("Root cause", ""), rules
    )


def _before_echo(block: str, prompt_text: str) -> str:
    prompt = {masked(line) for line in prompt_text.splitlines()}
    kept = []
    for line in block.splitlines():
        echo = masked(line)
        # Labelled lines may equal the prompt's: the phase sequence and the outcome were told there.
        if echo in prompt and (len(echo.split()) > 2 or echo.endswith(":")) and not _LABEL.match(line):
            break
        kept.append(line)
    return "\n".join(kept)


def _parts(block: str, example_text: str) -> tuple[dict[str, str], str | None]:
    """Label → content of the parts that say something of their own, and why others were dropped."""
    example = {normalise(content) for _, content in _labelled(example_text)}
    parts: dict[str, str] = {}
    dropped = None
    for label, content in _labelled(block):
        name = _LABELS[" ".join(label[1].casefold().split())]
        if not _says_something(content, name):
            continue
        if normalise(content) in example:
            dropped = "only the prompt's own example came back"
        elif _TEMPLATE_FIELD.search(content):
            dropped = "the format's placeholders came back"
        elif name == "Rule for next run" and name in parts:
            parts[name] += "\n" + content
        else:
            parts.setdefault(name, content)
    return parts, dropped


def _says_something(content: str, name: str) -> bool:
    """More than another format's label ("Output:"); an outcome may be a bare number, a cause or a rule may not."""
    lines = [line for line in content.splitlines() if not line.rstrip().endswith(":")]
    return any(map(has_letters, lines)) or (name == "Outcome" and any(map(str.isdigit, "".join(lines))))


def _labelled(block: str) -> Iterator[tuple[re.Match[str], str]]:
    for label, content in regions(block, list(_LABEL.finditer(block))):
        yield label, content.strip(" \t\n*_`")


def _rules(text: str) -> tuple[Rule, ...]:
    written: list[str] = []
    for line in text.splitlines():
        if written and not _RULE_START.match(line):
            written[-1] += " " + line  # an IF whose THEN stands on the next line
        else:
            written.append(line)
    return tuple(rule for line in written for rule in _rules_in(line))[:_MOST_RULES]


def _rules_in(line: str) -> Iterator[Rule]:
    """The rules of one line: in capitals as asked; "if … then" counts where there are no capitals."""
    for condition_mark, action_mark in _IF_THEN:
        found = False
        for _, rule in regions(line, list(condition_mark.finditer(line))):
            condition, *action = action_mark.split(rule, maxsplit=1)
            if action and has_letters(condition) and has_letters(action[0]):
                found = True
                yield _rule(condition, action[0])
        if found:
            return


def _rule(condition: str, action: str) -> Rule:
    cited = tuple(dict.fromkeys(int(turn) for turn in _TURN.findall(condition + action)))
    condition, action = (" ".join(part.split()).strip(" *_`,;:-") for part in (condition, action))
    return Rule(condition, _CITATION.sub("", action[:2000]).rstrip(), cited)
