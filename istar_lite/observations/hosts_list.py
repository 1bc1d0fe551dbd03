"""Hosts that keep their own list of messages: which of them the file knows already, and which are new."""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from istar_lite.errors import BadInput
from istar_lite.frames import FRAME_OPEN_START
from istar_lite.observations.cutting import CUT_NOTE, text_of
from istar_lite.observations.units import SYSTEM_ROLES

if TYPE_CHECKING:
    from istar_lite.database import sqlite3

Known = tuple[int, str, str]
"""Id, role and text of a message in the file."""


class ContextMessages(list[dict[str, Any]]):
    """The messages to send, in order. `dropped`: the host's messages (for `context`: those of the file) that are not
    among them and not in the log either where `left_out` counts them; `tokens`: of all, by the store's counter."""

    dropped: list[dict[str, Any]]
    left_out: int
    tokens: int

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
        """The same, for those who like the name."""
        return list(self)


def checked(messages: object) -> list[dict[str, Any]]:
    """The host's list; `BadInput` says which entry is no message."""
    if isinstance(messages, str | bytes | Mapping) or not isinstance(messages, Sequence):
        raise BadInput("messages", f"a list of message dicts is wanted, not {type(messages).__name__}")
    for at, message in enumerate(messages):
        if not isinstance(message, Mapping) or not isinstance(message.get("role"), str):
            raise BadInput(f"messages[{at}]", "a dict with a role is wanted")
    return list(messages)


def is_ours(message: Mapping[str, Any]) -> bool:
    """Whether it is an observation message that we gave out, in a list that the host took over."""
    content = message.get("content")
    return isinstance(content, str) and content.lstrip().startswith(FRAME_OPEN_START)


def known_messages(connection: sqlite3.Connection, session: int) -> list[Known]:
    """All messages of the session, in order."""
    rows = connection.execute("select id, role, content from message where session = ? order by id", (session,))
    return [(row[0], row[1], row[2]) for row in rows]


def match(messages: Sequence[Mapping[str, Any]], known: Sequence[Known]) -> list[int | None]:
    """For each of the host's messages the id of the one in the file, None for a new one.

    A list that goes on where the file ends is the rule: its head equals the file's tail. Where the host has taken
    messages out or changed them, the longest common run decides; messages that it changed count as new.
    """
    texts = [_key(message) for message in messages]
    stored = [(role, text) for _, role, text in known]
    overlap = next(
        (n for n in range(min(len(texts), len(stored)), 0, -1) if _same(messages[:n], texts[:n], known[-n:], stored)),
        0,
    )
    found: list[int | None] = [None] * len(texts)
    if overlap:
        found[:overlap] = [one[0] for one in known[-overlap:]]
        return found
    for block in difflib.SequenceMatcher(None, texts, stored, autojunk=False).get_matching_blocks():
        for offset in range(block.size):
            found[block.a + offset] = known[block.b + offset][0]
    for at, message in enumerate(messages):
        if found[at] is None:
            found[at] = _shown_in_part(message, known)
    return found


def _same(
    messages: Sequence[Mapping[str, Any]],
    texts: Sequence[tuple[str, str]],
    known: Sequence[Known],
    stored: Sequence[tuple[str, str]],
) -> bool:
    tail = stored[len(stored) - len(texts) :]
    return all(
        text == other or _shown_in_part(message, [one]) == one[0]
        for message, text, other, one in zip(messages, texts, tail, known, strict=True)
    )


def _shown_in_part(message: Mapping[str, Any], known: Sequence[Known]) -> int | None:
    """The message that a cut form stands for: its note names it."""
    found = CUT_NOTE.search(text_of(dict(message)))
    identity = int(found[1]) if found else None
    return identity if any(one[0] == identity for one in known) else None


def _key(message: Mapping[str, Any]) -> tuple[str, str]:
    return str(message["role"]), text_of(dict(message))


def is_pinned(message: Mapping[str, Any]) -> bool:
    """Whether it is an instruction rather than something said."""
    return message.get("role") in SYSTEM_ROLES
