"""Own text: what memory handed out is recognised when it comes back inside what is recorded, and is not learnt again.

A recall block that a host puts into its prompt returns with that prompt; taken for something that the user said, it
would be extracted again, counted as said again, and so keep itself alive. Two rules: what stands between our own
frame marks is cut whole; elsewhere each sentence that one of the last recalls of the session handed out is cut, by its
words alone, so that line breaks, bullets, quotation marks and dates that a host puts around it change nothing.

Short sentences are cut only where they stand as sentences: "likes tea" inside "my sister likes tea from Japan" is part
of something new.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

from istar_lite.frames import escape_frame, strip_frames

if TYPE_CHECKING:
    from istar_lite.database import sqlite3

RECALLS = 50  # newest recalls of a session whose texts are recognised
ANYWHERE = 5  # words from which on a sentence is recognised inside another one
HEAD = 3  # words by which candidates are looked up
_LARGEST = 2**63 - 1

# One CJK character counts as a word: such text has no spaces, and one token per run would be recognised only whole.
_CJK = "⺀-⻿々-〇぀-ヿㄅ-ㄯ㄰-㆏ㇰ-ㇿ㐀-䶿一-鿿가-힯豈-﫿ｦ-ﾟ"
_WORD = re.compile(rf"[{_CJK}]|[^\W_{_CJK}]+")
_SENTENCE_END = re.compile(r"(?<=[.!?…])\s+|(?<=[。！？])|\n+")
_ESCAPED = re.compile(r"[<\[［＜&:：#]")  # without one of these, a text is handed out as it is
_MARKS = re.compile(r"[.!?…。！？]*")
# What a host puts around a sentence: marks, dates, numbers, and a label such as "User:".
_WRAPPING = re.compile(r"[\W\d_]*(?:(?:[^\W\d_]+[ \t]*){1,3}:[\W\d_]*)?")
# What may stand before or behind a sentence: nothing, a line break, another sentence's end, marks of lists and quotes.
_BEFORE = re.compile(r"(?:^|[\n.!?…。！？:;|>)\]\"'“”‘’«»*•·–—-])[\s\"'“”‘’«»*•·_>|([{–—-]*$")
_AFTER = re.compile(r"[\s\"'“”‘’«»*_)\]}]*(?:$|[\n.!?…。！？;|<(\[]|[-–—]\s)")


@dataclass(frozen=True, slots=True)
class _Token:
    word: str
    start: int
    end: int


def _tokens(text: str) -> list[_Token]:
    """Words with their places in `text`; folded one by one, since folding the whole text would move the places."""
    return [
        _Token(unicodedata.normalize("NFKC", match.group()).casefold(), match.start(), match.end())
        for match in _WORD.finditer(text)
    ]


def words(text: str) -> tuple[str, ...]:
    """The words of a text as they are compared."""
    if text.isascii():
        return tuple(_WORD.findall(text.lower()))
    return tuple(token.word for token in _tokens(text))


@lru_cache(maxsize=4096)
def _sentences(text: str) -> tuple[tuple[str, ...], ...]:
    """The whole text and each of its sentences as words, in the form they are handed out too. Kept, because the same
    rows are handed out again and again, and each `store` compares with those of the last recalls."""
    forms = (text, escape_frame(text)) if _ESCAPED.search(text) else (text,)
    parts = (words(part) for form in forms for part in (form, *_SENTENCE_END.split(form)))
    return tuple(dict.fromkeys(part for part in parts if part))


@dataclass(frozen=True, slots=True)
class Span:
    """A known sentence in a text: where, and what it is known from."""

    start: int
    end: int
    label: str


class Sentences:
    """Sentences to be recognised in other texts. Finding them costs the length of the text, not their number."""

    def __init__(self, texts: Iterable[str] = ()) -> None:
        self._by_head: dict[tuple[str, ...], dict[tuple[str, ...], str]] = {}
        for text in texts:
            self.add(text)

    def add(self, text: str, label: str = "") -> None:
        """The whole text, and each of its sentences, in the form they are handed out too. The first label stays."""
        for sentence in _sentences(text):
            self._by_head.setdefault(sentence[:HEAD], {}).setdefault(sentence, label)

    def __bool__(self) -> bool:
        return bool(self._by_head)

    def spans(self, text: str, *, leave: str | None = None) -> list[Span]:
        """Known sentences in `text`, in order, the longest where several start; without those whose label begins
        with `leave`."""
        tokens = _tokens(text)
        plain = [token.word for token in tokens]
        found: list[Span] = []
        at = 0
        while at < len(tokens):
            length, label = self._longest(text, tokens, plain, at, leave)
            if length:
                end = tokens[at + length - 1].end
                end += len(_MARKS.match(text, end).group())  # type: ignore[union-attr]  # it matches nothing at least
                found.append(Span(tokens[at].start, end, label))
            at += max(length, 1)
        return found

    def __contains__(self, text: str) -> bool:
        return bool(self.spans(text))

    def _longest(
        self, text: str, tokens: Sequence[_Token], plain: Sequence[str], at: int, leave: str | None
    ) -> tuple[int, str]:
        best, known = 0, ""
        for head in range(1, HEAD + 1):
            for sentence, label in self._by_head.get(tuple(plain[at : at + head]), {}).items():
                length = len(sentence)
                if length <= best or tuple(plain[at : at + length]) != sentence:
                    continue
                if leave is not None and label.startswith(leave):
                    continue
                if length >= ANYWHERE or _stands_alone(text, tokens[at].start, tokens[at + length - 1].end):
                    best, known = length, label
        return best, known


def _stands_alone(text: str, start: int, end: int) -> bool:
    before = text[max(start - 40, 0) : start]
    return (not before.strip() or _BEFORE.search(before) is not None) and _AFTER.match(text, end) is not None


SAID = "said "  # label of what the user said: "said 17"


def handed_out(connection: sqlite3.Connection, session: int, until: int | None = None) -> Sentences:
    """What the last recalls of a session handed out, up to the recall `until`: what was handed out after a text was
    recorded cannot be in it. Recalls that name no session (`context` without one) and those of agents' runs count
    too: their blocks go into the same prompts. Memories that have ended since do not: to say one again is news."""
    rows = connection.execute(
        "select distinct document.kind, document.row, document.text, message.role from recall_hit join document"
        " on document.kind = recall_hit.kind and document.row = recall_hit.row left join message"
        " on document.kind = 'message' and message.id = document.row"
        " where (document.kind <> 'memory' or document.status = 'active') and recall_hit.recall in ("
        " select * from (select id from recall where session = ?1 and id <= ?3 order by id desc limit ?2) union"
        " select * from (select recall.id from recall left join session on session.id = recall.session"
        "  where recall.namespace = (select namespace from session where id = ?1) and recall.id <= ?3"
        "  and (recall.session is null or session.kind = 'run') order by recall.id desc limit ?2))"
        # What the store wrote itself gives its label to sentences that the user said too.
        " order by message.role is 'user', document.id",
        (session, RECALLS, _LARGEST if until is None else until),
    )
    known = Sentences()
    for row in rows:
        known.add(row["text"], f"{SAID}{row['row']}" if row["role"] == "user" else f"{row['kind']} {row['row']}")
    return known


def newest_recall(connection: sqlite3.Connection) -> int:
    """Id of the newest recall, 0 without any: `until` for texts that are recorded now."""
    return int(connection.execute("select coalesce(max(id), 0) from recall").fetchone()[0])


def without(text: str, known: Sentences) -> str:
    """`text` without what memory handed out. Lines of which only a label, marks, dates or numbers are left go too.

    What the user said before, and the store handed out as said, is cut only where something else that was handed out
    stands beside it: a block repeats several things, who says the same again repeats one, and may mean it anew.
    """
    left = strip_frames(text)
    spans = known.spans(left) if known else []
    if len({span.label for span in spans}) == 1:
        spans = known.spans(left, leave=SAID)
    if not spans:
        return left.strip()
    kept, at = [], 0
    for span in spans:
        kept.append(left[at : span.start])
        at = span.end
    # A mark where something was cut, so that a line's remains can be told from a line that was bare all along.
    rest = "\0".join([*kept, left[at:]])
    lines = (line.replace("\0", "") for line in rest.split("\n") if "\0" not in line or not _WRAPPING.fullmatch(line))
    return "\n".join(lines).strip()
