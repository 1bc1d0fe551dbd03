"""What the page has room for: rows taken in order of worth until the room is used, and safe JSON of them."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from typing import Any

Key = tuple[str, int]
"""A row: the table it is in, and its id there."""

TEXT = 1200  # characters shown of one row; the page says how many more there are

# In a script element the parser looks for "</script" and "<!--" alone, in a string literal U+2028 and U+2029 end the
# line: none of them can stand in the page when these characters are written as escapes, which JSON reads back.
_ESCAPES = {ord(character): f"\\u{ord(character):04x}" for character in "<>&\u2028\u2029"}


def embed_json(value: Any) -> str:
    """`value` as JSON that can stand inside a script element, whatever text it holds."""
    written = json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    # Half an emoji, cut off by another program, has no UTF-8: it is shown as the replacement character.
    return written.translate(_ESCAPES).encode("utf-8", "replace").decode("utf-8")


class Shelf:
    """Rows by key. Each stage may fill it up to its mark; what a stage leaves free is the next one's."""

    def __init__(self, read: Callable[[list[Key]], Iterable[dict[str, Any]]]) -> None:
        self.rows: dict[Key, dict[str, Any]] = {}
        self.bytes = 0
        self._read = read

    def fill(self, keys: Iterable[Key], mark: int) -> list[Key]:
        """Puts the rows of `keys` on the shelf, in order, until it holds `mark` bytes; the keys that are on it."""
        placed: list[Key] = []
        for chunk in _chunks(keys, 200):
            found = {
                (row["kind"], row["id"]): row for row in self._read([key for key in chunk if key not in self.rows])
            }
            for key in chunk:
                if key in found and not self._put(key, found[key], mark):
                    return placed
                if key in self.rows:
                    placed.append(key)
        return placed

    def _put(self, key: Key, row: dict[str, Any], mark: int) -> bool:
        shown = {name: value for name, value in row.items() if value is not None}
        if len(shown.get("text", "")) > TEXT:
            shown["text"] = shown["text"][:TEXT]
        else:
            shown.pop("characters", None)
        size = len(embed_json(shown).encode())
        if self.bytes + size > mark:
            return False
        self.rows[key] = shown
        self.bytes += size
        return True

    def tell(self, key: Key, facts: dict[str, Any]) -> None:
        """Adds what else is known of a row, if it is on the shelf."""
        if key in self.rows:
            told = {name: value for name, value in facts.items() if value is not None and name != "id"}
            self.rows[key].update(told)
            self.bytes += len(embed_json(told).encode())


def _chunks(keys: Iterable[Key], size: int) -> Iterator[list[Key]]:
    chunk: list[Key] = []
    for key in keys:
        chunk.append(key)
        if len(chunk) == size:
            yield chunk
            chunk = []
    if chunk:
        yield chunk


def ranges(ids: Iterable[int]) -> list[list[int]]:
    """Ascending ids as [first, last] of what is without a gap: 1 2 3 7 → [1, 3], [7, 7]."""
    found: list[list[int]] = []
    for id in ids:
        if found and found[-1][1] == id - 1:
            found[-1][1] = id
        else:
            found.append([id, id])
    return found
