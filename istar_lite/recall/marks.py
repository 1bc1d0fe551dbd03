"""What a text shows at a glance: that it asks, names someone or something, says when. Read once per document."""

from __future__ import annotations

import re
from collections.abc import Collection

from istar_lite.recall.scope import KNOWN, NAMES, QUESTION, TIME, TIMED

GLANCE = 4000  # characters of the head, and as many of the tail

_QUESTION = re.compile(r"[?？]\s*(?:\Z|\n|\[)")
_CAPITAL = re.compile(r" [\"'“‘(]?([A-Z][\w'’-]+)")
_TITLE = re.compile(r"[\"“«][^\"”»\n]{2,60}[\"”»]")
_NOT_A_NAME = frozenset(("i'm", "i've", "i'll", "i'd", "i’m", "i’ve", "i’ll", "i’d", "ok", "tv", "wow"))

# Words first: looking them up in a set is ten times faster than one expression for everything.
_LOWER = re.compile(r"[^\W_]+")
_WHEN = """yesterday today tonight tomorrow ago recently since just weekend weekends last monday tuesday wednesday
    thursday friday saturday sunday january february march april june july august september october november december
    jan feb apr aug sept oct nov dec"""
_TIME_WORDS = frozenset(_WHEN.split())
_UNIT = "day days week weeks month months year years morning evening summer winter spring fall autumn past"
_UNITS = frozenset(_UNIT.split())
_FOUR_DIGITS = re.compile(r"\d{4}")
_TIME_PHRASE = re.compile(
    r"\b(?:(?:next|this) (?:week|month|year|morning|evening|summer|winter|spring|fall|autumn|past)"
    r"|the other day|\w+ (?:day|week|month|year)s? (?:back|later|now|old)|for \w+ (?:day|week|month|year)s?)\b"
)


def read_marks(text: str, names: Collection[str], *, time: bool = True) -> int:
    """The marks of a text as bits. `names`: words (lower case) of the participants' names, which tell nothing new.
    `time`: whether it says when is looked for too, which takes as long as all the rest."""
    if len(text) > 2 * GLANCE:
        text = f"{text[:GLANCE]}\n{text[-GLANCE:]}"
    return (
        KNOWN
        | (QUESTION if _asks(text) else 0)
        | (NAMES if _names(text, names) else 0)
        | (0 if not time else TIMED | TIME if _says_when(text.lower()) else TIMED)
    )


def _asks(text: str) -> bool:
    return ("?" in text or "？" in text) and _QUESTION.search(text) is not None


def _names(text: str, names: Collection[str]) -> bool:
    """A capital inside a sentence, or a title in quotes. (Scripts without capitals have none, and lose nothing.)"""
    for match in _CAPITAL.finditer(text):
        before = text[match.start() - 1] if match.start() else "."
        word = match.group(1).lower()
        inside = before in ",;:" or (before.isalpha() and before.islower())
        if inside and word not in _NOT_A_NAME and word.replace("’", "'").split("'")[0] not in names:
            return True
    return _TITLE.search(text) is not None


def _says_when(text: str) -> bool:
    words = set(_LOWER.findall(text))
    if not words.isdisjoint(_TIME_WORDS):
        return True
    if _FOUR_DIGITS.search(text) is not None and any(len(word) == 4 and word.isdigit() for word in words):
        return True
    return not words.isdisjoint(_UNITS) and _TIME_PHRASE.search(text) is not None
