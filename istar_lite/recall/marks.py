"""What a text shows at a glance: that it asks, names someone or something, says when. Read once per document."""

from __future__ import annotations

import re
from collections.abc import Collection

from istar_lite.recall.scope import KNOWN, NAMES, QUESTION, TIME

GLANCE = 4000  # characters of the head, and as many of the tail

_QUESTION = re.compile(r"[?？]\s*(?:\Z|\n|\[)")
# A capital inside a sentence, or a title in quotes. (Languages without capitals have none, and lose nothing.)
_NAME = re.compile(r"(?<=[^\W\d_A-Z][ ])[\"'“‘(]?([A-Z][\w'’-]+)|(?<=[,;:] )[\"'“‘(]?([A-Z][\w'’-]+)")
_TITLE = re.compile(r"[\"“«][^\"”»\n]{2,60}[\"”»]")
_FIRST_PERSON = frozenset(("i'm", "i've", "i'll", "i'd", "i’m", "i’ve", "i’ll", "i’d", "ok", "tv", "wow"))
_DAY = "mon|tues|wednes|thurs|fri|satur|sun"
_MONTH = (
    "january|february|march|april|june|july|august|september|october|november|december|jan|feb|apr|aug|sept|oct|nov|dec"
)
_TIME = re.compile(
    rf"\b(?:yesterday|today|tonight|tomorrow|ago|recently|since|just|weekends?|the other day|last|(?:{_DAY})day"
    rf"|{_MONTH}"
    r"|(?:next|this) (?:week|weekend|month|year|morning|evening|summer|winter|spring|fall|autumn|past|mon|tues|wednes"
    r"|thurs|fri|satur|sun)\w*"
    r"|\w+ (?:days?|weeks?|weekends?|months?|years?) (?:ago|back|later|now|old)"
    r"|for \w+ (?:days?|weeks?|months?|years?)|\d{4})\b",
    re.IGNORECASE,
)


def read_marks(text: str, names: Collection[str]) -> int:
    """The marks of a text as bits. `names`: words (lower case) of the participants' names, which tell nothing new."""
    if len(text) > 2 * GLANCE:
        text = f"{text[:GLANCE]}\n{text[-GLANCE:]}"
    return (
        KNOWN
        | (QUESTION if _QUESTION.search(text) else 0)
        | (NAMES if _TITLE.search(text) or any(_is_name(match, names) for match in _NAME.finditer(text)) else 0)
        | (TIME if _TIME.search(text) else 0)
    )


def _is_name(match: re.Match[str], names: Collection[str]) -> bool:
    word = (match.group(1) or match.group(2)).lower()
    return word not in _FIRST_PERSON and re.split("['’]", word)[0] not in names
