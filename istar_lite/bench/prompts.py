"""How many of a model's answers to our own prompts can be read: `istar-lite bench prompts DATA --llm module:name`.

DATA is a file of JSON lines, each an earlier request in `request` (chat messages) with its `purpose` (extract,
extract_replaces, episode, retro, observe, reflect) and `input` (which of them share it). What is asked about is taken
out of the request, put into our prompt, and the model's answer is read as the store would read it.
"""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from istar_lite import prompts
from istar_lite.answers import read_episode, read_extraction, read_observations, read_reflection, read_retro
from istar_lite.errors import BadInput, UnusableAnswer
from istar_lite.llm import LLM, Answer, Flow, drive
from istar_lite.prompts import Prompt, Said
from istar_lite.tasks import as_ask

Case = tuple[Prompt, Callable[[str], object]]
_CONVERSATION = re.compile(r"Conversation \((?P<when>[^)]*)\):\n(?P<text>.*?)(?:\n\n|\Z)", re.DOTALL)
_KNOWN = re.compile(r"^\d+\. (.*)$", re.MULTILINE)
_EPISODE = re.compile(r"\[(?P<name>\w+) \| T(?P<first>\d+)-T(?P<last>\d+)\]\s(?P<narrative>.*)")
_TURN = re.compile(r"^T(\d+) .*$", re.MULTILINE)
_PHASES = re.compile(r"Valid phases: (.*)")
_SAID = re.compile(r"^\[(\d\d:\d\d)\] (\w+): (.*)$", re.MULTILINE)
_DATE = re.compile(r"The date is ([^.]*)\.")
_LOG = re.compile(r"<observations>\n(.*?)\n</observations>", re.DOTALL)


@dataclass
class Readable:
    """How the answers to the prompts of one purpose fared. `problems`: why the others could not be read."""

    purpose: str
    asked: int = 0
    readable: int = 0
    seconds: float = 0.0
    problems: list[str] = field(default_factory=list)

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready."""
        return dict(vars(self))


def run(path: Path, llm: LLM, *, timeout: float | None = 120.0) -> list[Readable]:
    """Asks the model each distinct request of the file, once; by purpose. Raises `BadInput` for a file of others."""
    found: dict[str, Readable] = {}
    for purpose, prompt, read in cases(path):
        told = found.setdefault(purpose, Readable(purpose))
        told.asked += 1
        answer = drive(_asked(prompt), llm, timeout=timeout)
        told.seconds += answer.seconds
        try:
            if answer.error is not None:
                raise UnusableAnswer(f"{type(answer.error).__name__}: {answer.error}") from answer.error
            read(answer.text or "")
            told.readable += 1
        except UnusableAnswer as error:
            told.problems.append(str(error))
    return list(found.values())


def _asked(prompt: Prompt) -> Flow[Answer]:
    return (yield as_ask(prompt))


def cases(path: Path) -> Iterator[tuple[str, Prompt, Callable[[str], object]]]:
    """(purpose, our prompt, its reader) of each distinct request. Of one that was worded in several ways the first
    wording counts out of which its parts can be taken."""
    seen: set[tuple[str, Any]] = set()
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        try:
            told = json.loads(line)
            key = (str(told["purpose"]), told.get("input", number))
            text, make = str(told["request"][-1]["content"]), _CASES[key[0]]
        except (ValueError, KeyError, TypeError, IndexError) as error:
            raise BadInput("data", f"line {number} holds no request of a known purpose ({error!r})") from error
        if key in seen:
            continue
        with contextlib.suppress(_OtherWording):
            case = make(text)
            seen.add(key)
            yield key[0], *case
    if not seen:
        raise BadInput("data", f"{path} holds no request of a known wording")


class _OtherWording(Exception):
    """The parts of the request are not where they are looked for."""


def _found(pattern: re.Pattern[str], text: str) -> re.Match[str]:
    match = pattern.search(text)
    if match is None:
        raise _OtherWording(pattern.pattern)
    return match


def _extraction(text: str) -> Case:
    said = _found(_CONVERSATION, text)
    known = _KNOWN.findall(text[: said.start()])
    prompt = prompts.extract(said["text"], related=known, when=said["when"])
    return prompt, lambda answer: read_extraction(answer, offered=known, example_texts=prompt.example_texts)


def _episode(text: str) -> Case:
    current = _EPISODE.search(text)
    turns = list(_TURN.finditer(text))
    _found(_TURN, text)
    phases = _found(_PHASES, text)[1].split(", ")
    prompt = prompts.episode(
        turn_start=int(turns[0][1]),
        turn_end=int(turns[-1][1]),
        phases=phases,
        current=_told(current) if current else None,
        atoms=[turn[0] for turn in turns],
    )
    previous = current["narrative"] if current else None
    return prompt, lambda answer: read_episode(
        answer, phases=phases, previous_narrative=previous, prompt_text=prompt.text
    )


def _told(match: re.Match[str]) -> tuple[str, int, int, str]:
    return match["name"], int(match["first"]), int(match["last"]), match["narrative"]


def _retro(text: str) -> Case:
    episodes = [_told(match) for match in _EPISODE.finditer(text)]
    prompt = prompts.retro(
        outcome_summary=_found(re.compile(r"Result: (.*)"), text)[1],
        phase_sequence=[name for name, *_ in episodes],
        episodes=episodes,
    )
    return prompt, lambda answer: read_retro(answer, prompt_text=prompt.text)


def _observation(text: str) -> Case:
    date = _found(_DATE, text)[1]
    said = [Said(role, words, date, time) for time, role, words in _SAID.findall(text)]
    prompt = prompts.observe(said)
    supported = [one.text for one in said]
    return prompt, lambda answer: read_observations(
        answer, supported_by=supported, example_lines=prompt.example_texts, max_tokens=prompt.max_tokens
    )


def _reflection(text: str) -> Case:
    log = _found(_LOG, text)[1]
    prompt = prompts.reflect(log)
    return prompt, lambda answer: read_reflection(
        answer, before=log, example_lines=prompt.example_texts, max_tokens=prompt.max_tokens
    )


_CASES: dict[str, Callable[[str], Case]] = {
    "extract": _extraction,
    "extract_replaces": _extraction,
    "episode": _episode,
    "retro": _retro,
    "observe": _observation,
    "reflect": _reflection,
}
