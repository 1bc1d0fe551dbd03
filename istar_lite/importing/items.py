"""What a format gives: messages, facts, and what could not be read, each with the number of its line or item."""

from __future__ import annotations

from typing import Any, NamedTuple, TypeAlias


class Said(NamedTuple):
    """A message as its source has it, not yet checked. `number`: its line, or the place of its item, from 1.

    `session`: the source's own name for the conversation, None if it names none. `session_key`: what stays the
    same when the source renames the conversation; the stored name ends in it.
    """

    number: int
    content: Any
    role: Any = "user"
    speaker: Any = None
    parts: Any = None
    external_id: Any = None
    occurred_at: Any = None
    session: Any = None
    session_key: str | None = None


class Fact(NamedTuple):
    """A statement that another store kept: it becomes a memory. `key` tells it from the others of its store."""

    number: int
    text: Any
    key: str
    tags: tuple[str, ...] = ()
    occurred_at: Any = None


class Unreadable(NamedTuple):
    """A line or item that is left out, and why."""

    number: int
    reason: str


Item: TypeAlias = Said | Fact | Unreadable
Numbered: TypeAlias = tuple[int, Any]
