"""A message too large to be shown whole: its first and its last part, with a line that says what is left out."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

from istar_lite.observations.parts import cut_strings, flatten, to_message
from istar_lite.observations.units import Spoken

_NOTE = "[… {count} characters of message {id} are left out here; the recall tool finds them …]"
CUT_NOTE = re.compile(r"\[… \d+ characters of message (\d+) are left out here; the recall tool finds them …\]")


def shares(sizes: Sequence[int], total: int) -> list[int]:
    """How many tokens each may have when all share `total`: what is small stays whole, the large ones share the rest
    evenly."""
    left, open_places = total, sorted(range(len(sizes)), key=lambda at: sizes[at])
    given = [0] * len(sizes)
    while open_places:
        at = open_places[0]
        given[at] = min(sizes[at], max(0, left // len(open_places)))
        left -= given[at]
        open_places.pop(0)
    return given


def cut_message(message: Spoken, tokens: int, count_tokens: Callable[[str], int]) -> dict[str, Any]:
    """The message as its first and last part, in at most `tokens` (as near as the note itself allows)."""
    low, high = 0, len(message.content)
    best = _cut(message, 0)
    while low < high:
        middle = (low + high + 1) // 2
        candidate = _cut(message, middle)
        if _count(candidate, count_tokens) <= tokens:
            low, best = middle, candidate
        else:
            high = middle - 1
    return best


def _cut(message: Spoken, length: int) -> dict[str, Any]:
    def shortened(text: str) -> str:
        return first_and_last(text, length, message.id)

    if message.parts is None:
        return {"role": message.role, "content": shortened(message.content)}
    return to_message(message.role, "", cut_strings(message.parts, shortened))


def first_and_last(text: str, length: int, identity: int) -> str:
    """`text`, or its first and last `length`/2 characters around the note where that is shorter."""
    note = _NOTE.format(count=len(text) - length, id=identity)
    if len(text) <= length + len(note) + 2:
        return text
    head = length - length // 2
    tail = text[len(text) - length // 2 :] if length // 2 else ""
    return "\n".join(part for part in (text[:head], note, tail) if part)


def _count(message: dict[str, Any], count_tokens: Callable[[str], int]) -> int:
    return count_tokens(text_of(message))


def text_of(message: dict[str, Any]) -> str:
    """The readable text of a message dict, by which it is counted."""
    content = message.get("content")
    rest = {key: value for key, value in message.items() if key not in ("role", "content")}
    if isinstance(content, str) and not rest:
        return content
    parts = content if not rest else {"content": content, **rest}
    return flatten(parts, str(message.get("role", "")), lambda call: None)
