"""Hosts that keep their own list of messages: which of them the file knows already, and which are new."""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from typing import Any

from istar_lite.errors import BadInput
from istar_lite.observations.cutting import CUT_NOTE


class ContextMessages(list[dict[str, Any]]):
    """The messages to send, in order: a list that knows more. `dropped`: those of the host's messages that are not in
    it (the log stands for them, or there was no room); `left_out`: how many messages are neither shown nor in the
    log yet; `tokens`: of all, by the store's counter."""

    def __init__(
        self,
        messages: Sequence[dict[str, Any]],
        *,
        dropped: Sequence[dict[str, Any]] = (),
        left_out: int = 0,
        tokens: int = 0,
    ) -> None:
        super().__init__(messages)
        self.dropped = list(dropped)
        self.left_out = left_out
        self.tokens = tokens

    @property
    def messages(self) -> list[dict[str, Any]]:
        """The same as a plain list."""
        return list(self)


def checked(messages: object) -> list[dict[str, Any]]:
    """The host's list; `BadInput` says which entry is no message."""
    if isinstance(messages, str | bytes) or not isinstance(messages, Sequence):
        raise BadInput("messages", f"a list of message dicts is wanted, not {type(messages).__name__}")
    for at, message in enumerate(messages):
        if not isinstance(message, Mapping) or not isinstance(message.get("role"), str):
            raise BadInput(f"messages[{at}]", "a dict with a role is wanted")
    return list(messages)


Key = tuple[str, str]
"""Role and readable text: by what a message of the host is known again."""


def match(messages: Sequence[Key], known: Sequence[tuple[int, Key]]) -> list[int | None]:
    """For each of the host's messages the id of the one in the file, None for a new one.

    A list that goes on where the file ends is the rule: its head equals the file's tail. Where the host has taken
    messages out or changed them, the longest common runs decide; messages that it changed count as new.
    """
    shown_in_part = [_named_by_note(text) for _, text in messages]
    found: list[int | None] = [None] * len(messages)

    def same(at: int, other: tuple[int, Key]) -> bool:
        return messages[at] == other[1] or shown_in_part[at] == other[0]

    for length in range(min(len(messages), len(known)), 0, -1):
        tail = known[len(known) - length :]
        if all(same(at, tail[at]) for at in range(length)):
            found[:length] = [identity for identity, _ in tail]
            return found
    texts = [key for _, key in known]
    for block in difflib.SequenceMatcher(None, list(messages), texts, autojunk=False).get_matching_blocks():
        for offset in range(block.size):
            found[block.a + offset] = known[block.b + offset][0]
    ids = {identity for identity, _ in known}
    return [one if one is not None or part not in ids else part for one, part in zip(found, shown_in_part, strict=True)]


def _named_by_note(text: str) -> int | None:
    """The message that a cut form stands for: its note names it."""
    found = CUT_NOTE.search(text)
    return int(found[1]) if found else None
