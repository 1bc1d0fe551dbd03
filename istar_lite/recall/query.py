"""What a query says: words, phrases, characters of scripts without spaces, who is named, whether and when it dates.

All of it is read from the text and the names of those who speak in the scope; no index, no model.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cache
from itertools import pairwise

# Words that hardly tell texts apart; taken out of queries (never out of texts). Without them FTS is 4–5 times faster.
_STOP = """a about above after again against all am an and any are aren as at be because been before being below between
    both but by can cannot could couldn d did didn do does doesn doing don down during each few for from further had
    hadn has hasn have haven having he her here hers herself him himself his how i if in into is isn it its itself just
    ll m me mightn more most mustn my myself needn no nor not now o of off on once only or other our ours ourselves out
    over own re s same shan she should shouldn so some such t than that the their theirs them themselves then there
    these they this those through to too under until up ve very was wasn we were weren what when where which while who
    whom whose why will with won would wouldn y you your yours yourself yourselves"""
STOP_WORDS = frozenset(_STOP.split())
# Words of prompts that ask for nothing: a prompt of these alone gets no memory.
_GREETINGS = """hello hi hey yo greetings thanks thank thx cheers ok okay k yes yeah yep no nope sure please great good
    nice cool fine lot lots much bye goodbye morning evening night lol haha hm hmm oh ah wow"""
GREETINGS = frozenset(_GREETINGS.split())
ROLES = frozenset(("user", "assistant", "system", "tool", "developer", "function", "human", "ai", "model", "bot"))
MOST_WORDS = 64  # of a query; prompts of 10 kB are asked with their first words and phrases

# Letters and digits, with the marks that Python's \w leaves out and full text keeps inside a word.
_MARKS = (
    r"\u0300-\u036f\u0483-\u0487\u0591-\u05c7\u0610-\u061a\u064b-\u065f\u0670\u0900-\u109f\u1780-\u17ff"
    r"\u1ab0-\u1aff\u20d0-\u20ff"
)
_WORD = re.compile(rf"[^\W_](?:[^\W_]|[{_MARKS}])*")
# The characters that the schema's view `document_spaced` sets apart.
_CJK = re.compile("[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff⺀-⻿⼀-⿟々-〇぀-ヿㄅ-ㄯ㄰-㆏ㇰ-ㇿ㐀-䶿一-鿿가-힯豈-﫿ｦ-ﾟ𠀀-𳿿]+")

_WIDE = {code: code + 0xFEE0 for code in range(0x21, 0x7F)}

_MONTHS = ("january", "february", "march", "april", "may", "june", "july", "august", "september", "october",
           "november", "december")  # fmt: skip
_MONTH_OF = (
    {name: number for number, name in enumerate(_MONTHS, 1)}
    | {name[:3]: number for number, name in enumerate(_MONTHS, 1)}
    | {"sept": 9}
)
_MONTH = "|".join(sorted(_MONTH_OF, key=len, reverse=True))
_LONG_MONTH = "|".join(name for name in _MONTHS if name not in ("may", "march"))  # verbs, unless a preposition leads
_DATES = (
    r"\b(?P<year>\d{4})-(?P<month>\d{1,2})(?:-(?P<day>\d{1,2}))?\b",
    rf"\b(?P<day>\d{{1,2}})(?:st|nd|rd|th)?\s+(?:of\s+)?(?P<month>{_MONTH})\b\.?(?:,?\s*(?P<year>\d{{4}}))?",
    rf"\b(?P<month>{_MONTH})\b\.?\s+(?P<day>\d{{1,2}})(?:st|nd|rd|th)?\b(?!\d)(?:,?\s*(?P<year>\d{{4}}))?",
    rf"\b(?P<month>{_MONTH})\b\.?,?\s*(?:of\s+)?(?P<year>\d{{4}})\b",
    rf"\b(?:in|of|during|by|since|until|early|late|mid|last|this)\s+(?P<month>{_MONTH})\b",
    rf"\b(?P<month>{_LONG_MONTH})\b",
    r"\b(?P<year>(?:19|20)\d\d)\b",
)
_MAY_DATE = re.compile(r"\d|jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec", re.IGNORECASE)  # what all of them hold
_ASKS_TIME = re.compile(
    r"\b(?:when|(?:what|which) (?:day|date|month|year|time|weekend|week)|how long|how often"
    r"|how many (?:days|weeks|months|years)|since when)\b",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True)
class Date:
    """A day, a month or a year that the query names; what it does not say is None."""

    year: int | None = None
    month: int | None = None
    day: int | None = None


@dataclass(frozen=True, slots=True)
class Term:
    """One thing to look up in full text: an FTS5 expression, and whether it counts when coverage is told."""

    label: str
    expression: str
    is_word: bool = True


@dataclass(frozen=True, slots=True)
class Query:
    """What is known of a query before any text is looked at."""

    text: str
    plain: str  # for the embedders: without the participants' names, which drown everything else
    terms: tuple[Term, ...] = ()
    named: frozenset[str] = frozenset()  # participants that the query names, as they are stored
    dates: tuple[Date, ...] = ()
    asks_time: bool = False
    small_talk: bool = False
    names: tuple[str, ...] = field(default=(), compare=False)  # the words that named them


def read_query(text: str, participants: Iterable[str] = ()) -> Query:
    """Reads a query. `participants`: those who speak in the scope."""
    composed = unicodedata.normalize("NFC", text)
    words = [match.group() for match in _WORD.finditer(composed)]
    named, name_words = _named(words, participants)
    content = [word.lower() for word in words]
    kept = [word for word in content if word not in STOP_WORDS and word not in name_words]
    if not kept:  # "Caroline?" asks for the name, "to be or not to be" for these words
        kept = [word for word in content if word not in STOP_WORDS] or content
    plain = " ".join(word for word in words if word.lower() not in name_words)
    return Query(
        text=text,
        plain=plain or composed,
        terms=_terms(content, kept),
        named=named,
        dates=_dates(composed),
        asks_time=bool(_ASKS_TIME.search(composed)),
        small_talk=all(word in GREETINGS or word in STOP_WORDS for word in content),
        names=tuple(sorted(name_words)),
    )


# --- terms ----------------------------------------------------------------------------------------------------


def _terms(content: list[str], kept: list[str]) -> tuple[Term, ...]:
    """Words, then pairs of words that stand side by side (a phrase is a rare word), then characters."""
    words = dict.fromkeys(word for word in kept if not _CJK.search(word))
    pairs = dict.fromkeys(pair for pair in pairwise(content) if pair[0] in words and pair[1] in words)
    glued = [match.group() for word in kept for match in _CJK.finditer(word)]
    latin = dict.fromkeys(part for word in kept if _CJK.search(word) for part in _CJK.split(word) if part)
    return (
        *(_word(word) for word in list(dict.fromkeys((*words, *latin)))[:MOST_WORDS]),
        *(Term(" ".join(pair), _phrase(*pair), is_word=False) for pair in list(pairs)[:MOST_WORDS]),
        *(_characters(gram) for gram in list(dict.fromkeys(g for run in glued for g in _grams(run)))[:MOST_WORDS]),
    )


def _word(word: str) -> Term:
    """A word in any form that Unicode counts as the same: full text folds case and accents, not these."""
    if word.isascii():
        forms = [word, word.translate(_WIDE)]  # Ａ-Ｚ, as some keyboards write
    else:
        forms = [word, *(unicodedata.normalize(form, word) for form in ("NFKC", "NFD", "NFKD"))]
    return Term(word, "{text cjk}: (" + " OR ".join(f'"{form}"' for form in dict.fromkeys(forms)) + ")")


def _phrase(*words: str) -> str:
    return '{text cjk}: "' + " ".join(words) + '"'


def _grams(run: str) -> list[str]:
    """Neighbouring pairs of a run of characters; the one character where there is but one. Vowel signs and tone marks
    do not count (full text has no words of them): a pair of a letter and its mark would be found in any text that
    holds the letter."""
    run = "".join(letter for letter in run if not unicodedata.category(letter).startswith("M")) or run
    return [run[at : at + 2] for at in range(len(run) - 1)] or [run]


def _characters(gram: str) -> Term:
    """A few characters in any form that Unicode counts as the same."""
    other = _compatible_forms()
    forms = [unicodedata.normalize(form, gram) for form in ("NFC", "NFKC", "NFD", "NFKD")]
    forms.append("".join(other.get(character, character) for character in forms[0]))
    spaced = " OR ".join('"' + " ".join(form) + '"' for form in dict.fromkeys(forms))
    expression = f"cjk: ({spaced})"
    if "가" <= gram[0] <= "힣":  # decomposed Hangul stands in full text as words of letters
        expression = f'({expression}) OR (text: "{forms[2]}"*)'
    return Term(gram, expression)


@cache
def _compatible_forms() -> dict[str, str]:
    """Characters → what old encodings have for them: half-width katakana, compatibility ideographs."""
    marks = ("", "\uff9e", "\uff9f")
    narrow = (chr(code) + mark for code in range(0xFF66, 0xFF9E) for mark in marks)
    kana = {unicodedata.normalize("NFKC", form): form for form in narrow}
    ideographs = {unicodedata.normalize("NFC", chr(code)): chr(code) for code in range(0xF900, 0xFAE0)}
    return {**kana, **ideographs}


# --- participants ---------------------------------------------------------------------------------------------


def _named(words: list[str], participants: Iterable[str]) -> tuple[frozenset[str], frozenset[str]]:
    """Participants whose name has a word in the query, and these words. A name that is also a common word (Will,
    May) counts only with its capital."""
    asked = {word.lower() for word in words}
    capitalised = {word.lower() for word in words if word[:1].isupper()}
    named: set[str] = set()
    used: set[str] = set()
    for participant in participants:
        if participant.lower() in ROLES:
            continue
        parts = {part.lower() for part in _WORD.findall(unicodedata.normalize("NFC", participant))}
        common = {part for part in parts if part in STOP_WORDS or part in _MONTH_OF or len(part) < 2}
        hit = ((parts - common) & asked) | (common & capitalised)
        if hit:
            named.add(participant)
            used |= hit
    return frozenset(named), frozenset(used)


# --- dates ----------------------------------------------------------------------------------------------------


def _dates(text: str) -> tuple[Date, ...]:
    """Dates in the text, the more precise forms first; a stretch is read once."""
    if not _MAY_DATE.search(text):
        return ()
    found: list[Date] = []
    taken: list[tuple[int, int]] = []
    for pattern in _date_patterns():
        for match in pattern.finditer(text):
            if any(match.start() < end and start < match.end() for start, end in taken):
                continue
            date = _date(match.groupdict())
            if date is not None:
                found.append(date)
                taken.append(match.span())
    return tuple(found)


@cache
def _date_patterns() -> tuple[re.Pattern[str], ...]:
    """Made when a text first holds what may be a date: that takes as long as three searches."""
    return tuple(re.compile(pattern, re.IGNORECASE) for pattern in _DATES)


def _date(parts: dict[str, str | None]) -> Date | None:
    year, month, day = parts.get("year"), parts.get("month"), parts.get("day")
    number = None if month is None else int(month) if month.isdigit() else _MONTH_OF[month.lower()]
    date = Date(int(year) if year else None, number, int(day) if day else None)
    if date.month is not None and not 1 <= date.month <= 12:
        return None
    return None if date.day is not None and not 1 <= date.day <= 31 else date
