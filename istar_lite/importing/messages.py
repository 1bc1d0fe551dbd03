"""Messages as JSON lines (or a JSON list): `role`/`speaker`, `content`/`text`, `timestamp`, `session`, `id`."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from istar_lite.importing.items import Item, Numbered, Said, Unreadable

_CONTENT = ("content", "text", "message")
_TIME = ("timestamp", "occurred_at", "created_at", "time", "date")
_SPEAKER = ("speaker", "name")
_ID = ("id", "external_id", "message_id")
_SESSION = ("session", "session_id", "conversation", "conversation_id")
_NUMBER = re.compile(r"-?\d+(\.\d+)?")
MILLISECONDS_FROM = 1e11  # as seconds, a number above this lies beyond the year 5138


def matches(item: Mapping[str, Any]) -> bool:
    """Whether an item looks like a message."""
    named = "role" in item or "speaker" in item or "session" in item
    return any(key in item for key in _CONTENT[:2]) or ("message" in item and named)


def read(items: Iterable[Numbered]) -> Iterator[Item]:
    """The messages."""
    for number, item in items:
        yield read_message(number, item)


def read_message(number: int, item: Any) -> Item:
    """One message, or why it is none."""
    if not isinstance(item, Mapping):
        return Unreadable(number, "is not a JSON object")
    content = first_of(item, _CONTENT)
    parts = first_of(item, ("parts", "tool_calls"))
    if isinstance(content, list):
        content, parts = text_of_parts(content), content
    if content is None and parts is None:
        return Unreadable(number, "content: is missing")
    return Said(
        number,
        "" if content is None else content,
        role=item.get("role") or "user",
        speaker=first_of(item, _SPEAKER),
        parts=parts,
        external_id=first_of(item, _ID),
        occurred_at=as_instant(first_of(item, _TIME)),
        session=first_of(item, _SESSION),
    )


def first_of(item: Mapping[str, Any], names: Iterable[str]) -> Any:
    """The first of several spellings that is there and not null."""
    return next((item[name] for name in names if item.get(name) is not None), None)


def as_instant(value: Any) -> Any:
    """A time as `clock` reads it: numbers may come as text, and in milliseconds as JavaScript writes them."""
    if isinstance(value, str) and _NUMBER.fullmatch(value.strip()):
        value = float(value)
    if isinstance(value, (int, float)) and not isinstance(value, bool) and abs(value) >= MILLISECONDS_FROM:
        return value / 1000
    return value


def text_of_parts(parts: Iterable[Any]) -> str:
    """The text in a list of message parts, in the forms of the OpenAI and Anthropic clients."""
    texts = []
    for part in parts:
        if isinstance(part, str):
            texts.append(part)
        elif isinstance(part, Mapping) and isinstance(part.get("text"), str):
            texts.append(part["text"])
    return "\n".join(text for text in texts if text)
