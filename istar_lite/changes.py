"""Texts that say of themselves that something changed: "now", "no longer", "instead".

Where the host told two statements without saying that one corrects the other, and no model read them, the newer one is
told first: if it announces a change, and is about the same matter as the older. The older stays; that it was replaced
is more than words alone can tell.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import TypeVar

from istar_lite.own_text import words
from istar_lite.recall.query import STOP_WORDS

T = TypeVar("T")

_CHANGE = re.compile(
    r"\b(now|no longer|any ?more|instead|these days|from now on|as of|meanwhile|currently|changed|moved|switched"
    r"|renamed|replaced|updated|became|not [\w-]+ but)\b",
    re.IGNORECASE,
)
_NUMBER = re.compile(r"\d+(?:[.,:]\d+)*")


def announces_change(text: str) -> bool:
    """Whether the text says that something is otherwise than before."""
    return _CHANGE.search(text) is not None


def same_matter(old: str, new: str, query: str) -> bool:
    """Whether `new` may tell anew what `old` told, for who asks `query`: they share a word of the query, and both
    give a number but not the same ones, or they share a second word."""
    held = _content(old) & _content(new)
    if not held & _content(query):
        return False
    before, after = set(_NUMBER.findall(old)), set(_NUMBER.findall(new))
    return bool(before and after and before != after) or len(held) > 1


def _content(text: str) -> set[str]:
    return {word for word in words(text) if word not in STOP_WORDS and not word.isdigit()}


def newest_first(ranked: Sequence[T], query: str, text: Callable[[T], str], date: Callable[[T], str]) -> list[T]:
    """`ranked`, each announced change moved before what it is a change of."""
    result: list[T] = []
    for one in ranked:
        at = len(result)
        if announces_change(text(one)):
            older = (place for place, held in enumerate(result) if date(held) < date(one))
            at = next((place for place in older if same_matter(text(result[place]), text(one), query)), at)
        result.insert(at, one)
    return result
