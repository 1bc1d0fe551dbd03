"""JSON as models write it: fenced, in prose, with bare keys, single quotes, trailing commas, or cut off.

`scan` finds every object or list in a text, from left to right, and reads it leniently. It never makes a value of
text that stands outside of brackets.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

_DEEPEST = 40  # real answers nest three deep
# Every bracket may start a value, and a broken one is left at its first bad character: brackets in brackets would
# be read again and again. After so many steps per character, brackets that were none, or quotes
# left open inside one text, what was found must do.
_PATIENCE = 10
_MOST_FAILURES = 4000
_MOST_BARE_QUOTES = 60


class Cut(dict[str, Any]):
    """An object that the end of the answer cut off: the fields read before it."""


@dataclass(frozen=True, slots=True)
class Found:
    """A value in a text. `cut`: the text ended inside it."""

    value: Any
    start: int
    end: int
    cut: bool = False


@dataclass(frozen=True, slots=True)
class Scan:
    """What `scan` found; `broken`: a bracket opened something that was no JSON at all."""

    found: tuple[Found, ...]
    broken: bool


class _Broken(Exception):
    """Not JSON, however leniently read."""


class _Tangled(Exception):
    """Patience is at its end."""


def scan(text: str) -> Scan:
    """The values of `text`: itself when it is JSON, else every object and list of objects in it, in order."""
    try:
        return Scan((Found(json.loads(text, strict=False), 0, len(text)),), False)
    except (ValueError, RecursionError):  # ValueError: not JSON, and numbers of thousands of digits
        reader = _Reader(text)
        found: list[Found] = []
        try:
            found.extend(reader.values())
        except _Tangled:
            reader.broken = True
        return Scan(tuple(found), reader.broken)


# A start that could hold something for us: an object with a key, an empty one, a list of objects.
_START = re.compile(r"""\{(?=\s*["'“}\w])|\[(?=\s*[{\]])""")
# What "replaces" holds, also when the object around it is broken: old statements, not new ones.
_AFTER_REPLACES = re.compile(r"""replaces["']?\s*:\s*\Z""", re.IGNORECASE)
_SPACE = re.compile(r"(?:\s|//[^\n]*)*+")
_COMMAS = re.compile(r"(?:\s|,|//[^\n]*)*+")
_KEY = re.compile(r"""(?:"([^"\\\n]{0,80})"|'([^'\\\n]{0,80})'|["'“]?([^\W\d][\w-]{0,60})["'”]?)\s*:""")
_KEY_CUT = re.compile(r"""["'“]?[^"'“”{}\[\]\\\n]{0,80}["'”]?\s*\Z""")
_NUMBER = re.compile(r"-?\d+(?:\.\d*)?(?:[eE][+-]?\d+)?(?![\w.])")
_WORD = re.compile(r"-?[^\W\d][\w-]{0,40}")
_CONSTANTS = {"true": True, "false": False, "null": None, "none": None, "nan": float("nan"), "undefined": None}
_QUOTES = {'"': '"', "'": "'", "“": "”"}
_BODY = {quote: re.compile(rf"(?:[^{end}\\]++|\\.)*+", re.DOTALL) for quote, end in _QUOTES.items()}
# Where a string really ends: models leave quotes inside unescaped (`"He said "hi" twice"`) and apostrophes in
# single-quoted text. A missing comma before the next key is forgiven.
_NEXT_KEY = r"""(?:"[^"\\\n]{1,80}"|'[^'\\\n]{1,80}'|["']?[^\W\d][\w-]{0,60}["']?)\s*:"""
_ENDS_IN_OBJECT = re.compile(rf"""\s*(?:[}}\]]|\Z|,\s*(?:{_NEXT_KEY}|[}}\],]|\Z)|["'][\w-]{{1,60}}["']\s*:)""")
_ENDS_IN_LIST = re.compile(r"""\s*(?:[,\]]|\Z)""")
_SWALLOWED_KEY = re.compile(r"""["']\s*:\s*["'{\[\d]|\{\s*["']?\w{1,60}["']?\s*:""")
_ESCAPE = re.compile(r"\\(u[0-9a-fA-F]{4}|.)", re.DOTALL)
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "b": "\b", "f": "\f", "/": "/", '"': '"', "'": "'", "\\": "\\"}


class _Reader:
    def __init__(self, text: str) -> None:
        self.text = text
        self.broken = False
        self._cut = False
        self._work = 0
        self._allowed = _PATIENCE * len(text) + 1000

    def values(self) -> Iterator[Found]:
        at = failures = 0
        while failures < _MOST_FAILURES and (start := _START.search(self.text, at)):
            at = start.start()
            self._cut = False
            try:
                value, end = self._value(at, 0)
            except _Broken:
                self.broken = True
                failures += 1
                at += 1
                continue
            if not _AFTER_REPLACES.search(self.text, max(0, at - 20), at):
                yield Found(value, at, end, self._cut)
                if self._cut:  # what is inside may still be whole
                    failures += 1
                    end = at + 1
            at = max(end, at + 1)

    def _value(self, at: int, depth: int, ends: re.Pattern[str] = _ENDS_IN_LIST) -> tuple[Any, int]:
        at = self._skip(_SPACE, at)
        character = self.text[at : at + 1]
        if not character:
            self._cut = True
            return None, at
        if depth > _DEEPEST:
            raise _Broken
        if character == "{":
            return self._object(at + 1, depth + 1)
        if character == "[":
            return self._list(at + 1, depth + 1)
        if character in _QUOTES:
            return self._string(at, ends)
        return self._scalar(at)

    def _object(self, at: int, depth: int) -> tuple[dict[str, Any], int]:
        fields: dict[str, Any] = {}
        while True:
            at = self._skip(_COMMAS, at)
            if self.text[at : at + 1] == "}":
                return fields, at + 1
            key = _KEY.match(self.text, at)
            if key is None:
                if _KEY_CUT.match(self.text, at) is None:
                    raise _Broken
                self._cut = True
                return Cut(fields), len(self.text)
            name = next(group for group in key.groups() if group is not None).strip()
            value, at = self._value(key.end(), depth, _ENDS_IN_OBJECT)
            if self._cut:
                # A nested value keeps what it had; a text that was cut off in the middle says nothing.
                return Cut(fields | ({name: value} if isinstance(value, (dict, list)) else {})), len(self.text)
            fields[name] = value

    def _list(self, at: int, depth: int) -> tuple[list[Any], int]:
        items: list[Any] = []
        while True:
            at = self._skip(_COMMAS, at)
            if self.text[at : at + 1] == "]":
                return items, at + 1
            value, at = self._value(at, depth)
            if self._cut:
                return items + ([value] if isinstance(value, (dict, list)) else []), len(self.text)
            items.append(value)
            at = self._skip(_SPACE, at)
            if self.text[at : at + 1] not in ("", ",", "]", "{"):  # "{": a missing comma between two objects
                raise _Broken

    def _string(self, at: int, ends: re.Pattern[str]) -> tuple[str, int]:
        quote, start, bare_quotes = self.text[at], at + 1, 0
        at = start
        while True:
            at = self._skip(_BODY[quote], at)
            if at >= len(self.text):
                self._cut = True
                return "", at
            if ends.match(self.text, at + 1):
                break
            bare_quotes += 1
            at += 1
            if bare_quotes > _MOST_BARE_QUOTES:
                raise _Broken
        raw = self.text[start:at]
        if bare_quotes and _SWALLOWED_KEY.search(raw):
            raise _Broken
        return _unescaped(raw), at + 1

    def _scalar(self, at: int) -> tuple[Any, int]:
        if number := _NUMBER.match(self.text, at):
            self._cut = number.end() == len(self.text)  # "0." was going to be another number
            return _number(number[0]), number.end()
        if word := _WORD.match(self.text, at):
            return _CONSTANTS.get(word[0].casefold(), word[0]), word.end()
        raise _Broken

    def _skip(self, pattern: re.Pattern[str], at: int) -> int:
        match = pattern.match(self.text, at)
        end = match.end() if match else at
        self._work += end - at + 1
        if self._work > self._allowed:
            raise _Tangled
        return end


def _number(digits: str) -> float:
    return float(digits) if len(digits) < 300 else float("nan")


def _unescaped(raw: str) -> str:
    if "\\" not in raw:
        return raw
    # One escape that JSON does not know, and the model wrote backslashes as they are: the "\n" of "C:\data\new" is
    # then no line break.
    as_they_are = any(escape[1] not in _ESCAPES and len(escape[1]) == 1 for escape in _ESCAPE.finditer(raw))

    def character(escape: re.Match[str]) -> str:
        code = escape[1]
        if len(code) == 5:
            return chr(int(code[1:], 16))  # halves of a pair are joined by `clean`
        return escape[0] if as_they_are and code.isalnum() else _ESCAPES.get(code, escape[0])

    return _ESCAPE.sub(character, raw)
