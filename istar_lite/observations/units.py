"""Messages in the groups that may not be torn: a tool call, its results, and what stands between."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from istar_lite.observations.parts import only_results, tool_ids

SYSTEM_ROLES = ("system", "developer")
PROMPT_ROLES = ("user", "human")


@dataclass(frozen=True, slots=True)
class Spoken:
    """A message as the layer works with it. `observation`: the live one that covers it, `stage` where that is."""

    id: int
    position: int
    role: str
    speaker: str | None
    content: str
    parts: Any
    tokens: int
    occurred_at: str
    observation: int | None = None
    stage: str = "raw"

    @property
    def is_prompt(self) -> bool:
        """Whether it opens an exchange: somebody asks, and does not just bring a tool's result."""
        return self.role in PROMPT_ROLES and not (self.parts is not None and only_results(self.parts, self.role))


@dataclass(frozen=True, slots=True)
class Unit:
    """Messages that stay together. `pending`: a tool call in it still waits for its result."""

    messages: tuple[Spoken, ...]
    pending: bool = False

    @property
    def tokens(self) -> int:
        """Tokens of all of them."""
        return sum(message.tokens for message in self.messages)

    @property
    def first(self) -> int:
        """Id of the first message."""
        return self.messages[0].id

    @property
    def last(self) -> int:
        """Id of the last message."""
        return self.messages[-1].id


def units(messages: Sequence[Spoken], *, open_end: bool = True) -> list[Unit]:
    """`messages` (in order) as units, in order. `open_end`: the conversation ends with them, so that a result may
    still come; where others follow, nobody waits."""
    reach = list(range(len(messages)))  # for each message: the last one it must stay with
    open_calls: dict[str | None, list[int]] = {}
    answered = False
    for at, message in enumerate(messages):
        calls, results = tool_ids(message.parts, message.role)
        if not calls and not results and not (message.parts is None and message.role in ("tool", "function")):
            open_calls.clear()  # whoever speaks ends the wait: what was not answered by then never will be
            continue
        if calls and answered:
            open_calls.clear()  # so does the next round of calls
        answered = bool(results) or not calls
        for result in results or ([None] if not calls else []):
            _answer(open_calls, result, at, reach)
        for call in calls:
            open_calls.setdefault(call, []).append(at)
    waiting = [at for places in open_calls.values() for at in places] if open_end else []
    return list(_joined(messages, reach, min(waiting, default=None)))


def _answer(open_calls: dict[str | None, list[int]], result: str | None, at: int, reach: list[int]) -> None:
    """The call that `result` names, else the oldest one that is open (some hosts send no ids)."""
    key = result if result in open_calls else (next(iter(open_calls), None) if result is None else None)
    places = open_calls.get(key)
    if not places:
        return
    start = places.pop(0)
    reach[start] = max(reach[start], at)
    if not places:
        del open_calls[key]


def _joined(messages: Sequence[Spoken], reach: Sequence[int], waiting: int | None) -> Iterable[Unit]:
    at = 0
    while at < len(messages):
        end = at
        look = at
        while look <= end:
            end = max(end, reach[look])
            look += 1
        pending = waiting is not None and waiting <= end
        if pending:
            end = len(messages) - 1
        yield Unit(tuple(messages[at : end + 1]), pending)
        at = end + 1


def newest_exchange(messages: Sequence[Spoken]) -> int:
    """Where the newest exchange begins: at the last prompt; without one, at the last unit."""
    for at in range(len(messages) - 1, -1, -1):
        if messages[at].is_prompt:
            return at
    groups = units(messages)
    return len(messages) - len(groups[-1].messages) if groups else 0
