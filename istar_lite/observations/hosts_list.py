"""Hosts that keep their own list of messages: which of them the file knows already, which are new, what to send."""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from istar_lite.errors import BadInput
from istar_lite.observations import rows
from istar_lite.observations.cutting import CUT_NOTE, text_of
from istar_lite.observations.parts import to_message
from istar_lite.observations.saying import say
from istar_lite.observations.units import SYSTEM_ROLES
from istar_lite.observations.window import is_head
from istar_lite.text import clean, is_blank

if TYPE_CHECKING:
    from istar_lite.database import sqlite3
    from istar_lite.observations.watch import Watch

_KNOWN_BEYOND = 500  # messages of the file looked at beyond as many as the host's list has


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


@dataclass(frozen=True, slots=True)
class Listed:
    """A message of the host's list. `id` of the one in the file; None for what is not kept: instructions, messages
    with nothing to read, and our own observation message (`ours`)."""

    message: dict[str, Any]
    id: int | None
    tokens: int
    ours: bool = False

    @property
    def stays(self) -> bool:
        """Whether it is sent whatever the log holds."""
        return self.id is None and not self.ours

    @property
    def instructs(self) -> bool:
        """Whether it is an instruction rather than something said."""
        return self.message["role"] in SYSTEM_ROLES


def take_over(watch: Watch, messages: Sequence[dict[str, Any]]) -> list[Listed]:
    """The host's list, what is new of it kept in the file."""
    services = watch.services
    texts = [services.stored_text(text_of(message), "content", blank=True) for message in messages]
    said = [at for at, message in enumerate(messages) if not _is_apart(message, texts[at])]
    ids: dict[int, int] = {}
    if said:
        with services.file.write() as tx:
            session = watch.ensure(tx)
            found = match([(clean(messages[at]["role"]), texts[at]) for at in said], _known(tx, session, len(said)))
            for at, identity in zip(said, found, strict=True):
                ids[at] = _keep(watch, tx, session, messages[at]) if identity is None else identity
    return [
        Listed(message, ids.get(at), services.count_tokens(texts[at]), is_head(message))
        for at, message in enumerate(messages)
    ]


def _is_apart(message: Mapping[str, Any], text: str) -> bool:
    return message["role"] in SYSTEM_ROLES or is_blank(text) or is_head(message)


def _keep(watch: Watch, tx: sqlite3.Connection, session: int, message: Mapping[str, Any]) -> int:
    more = {key: value for key, value in message.items() if key not in ("role", "content")}
    return say(watch.services, tx, session, clean(message["role"]), message.get("content"), more).id


def _known(tx: sqlite3.Connection, session: int, length: int) -> list[tuple[int, Key]]:
    return [
        (one.id, (one.role, one.content if one.parts is None else text_of(to_message(one.role, "", one.parts))))
        for one in rows.newest_spoken(tx, session, length + _KNOWN_BEYOND)
    ]


def laid_out(
    listed: Sequence[Listed],
    head: dict[str, Any] | None,
    shown: Mapping[int, dict[str, Any] | None],
    *,
    left_out: int,
    tokens: int,
) -> ContextMessages:
    """What to send: the host's messages in their order, those of `shown` (id → cut form, if any) and those that stay;
    the observation message after the instructions at the head."""
    opening = next((at for at, one in enumerate(listed) if not one.instructs), len(listed))
    sent = [one.message for one in listed[:opening]]
    sent += [] if head is None else [head]
    dropped: list[dict[str, Any]] = []
    for one in listed[opening:]:
        if one.id is not None and one.id in shown:
            sent.append(shown[one.id] or one.message)
        elif one.stays:
            sent.append(one.message)
        elif not one.ours:
            dropped.append(one.message)
    staying = sum(one.tokens for one in listed if one.stays)
    return ContextMessages(sent, dropped=dropped, left_out=left_out, tokens=tokens + staying)


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
