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
from typing import TYPE_CHECKING

from istar_lite.frames import escape_frame, strip_frames

if TYPE_CHECKING:
    from istar_lite.database import sqlite3

RECALLS = 50  # newest recalls of a session whose texts are recognised
ANYWHERE = 5  # words from which on a sentence is recognised inside another one
HEAD = 3  # words by which candidates are looked up

# One CJK character counts as a word: such text has no spaces, and one token per run would be recognised only whole.
_CJK = "⺀-⻿々-〇぀-ヿㄅ-ㄯ㄰-㆏ㇰ-ㇿ㐀-䶿一-鿿가-힯豈-﫿ｦ-ﾟ"
_WORD = re.compile(rf"[{_CJK}]|[^\W_{_CJK}]+")
_SENTENCE_END = re.compile(r"(?<=[.!?…])\s+|(?<=[。！？])|\n+")
_MARKS = re.compile(r"[.!?…。！？]*")
_LETTER = re.compile(r"[^\W\d_]")
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
    return tuple(token.word for token in _tokens(text))


class Sentences:
    """Sentences to be recognised in other texts. Finding them costs the length of the text, not their number."""

    def __init__(self, texts: Iterable[str] = ()) -> None:
        self._by_head: dict[tuple[str, ...], set[tuple[str, ...]]] = {}
        for text in texts:
            self.add(text)

    def add(self, text: str) -> None:
        """The whole text, and each of its sentences, in the form they are handed out too."""
        for form in dict.fromkeys((text, escape_frame(text))):
            for sentence in (form, *_SENTENCE_END.split(form)):
                self.add_words(words(sentence))

    def add_words(self, sentence: tuple[str, ...]) -> None:
        """One sentence, as words."""
        if sentence:
            self._by_head.setdefault(sentence[:HEAD], set()).add(sentence)

    def __bool__(self) -> bool:
        return bool(self._by_head)

    def spans(self, text: str) -> list[tuple[int, int]]:
        """Places of known sentences in `text`, in order, the longest where several start."""
        tokens = _tokens(text)
        plain = [token.word for token in tokens]
        found: list[tuple[int, int]] = []
        at = 0
        while at < len(tokens):
            length = self._longest(text, tokens, plain, at)
            if length:
                end = tokens[at + length - 1].end
                found.append((tokens[at].start, end + len(_MARKS.match(text, end).group())))  # type: ignore[union-attr]
            at += max(length, 1)
        return found

    def __contains__(self, text: str) -> bool:
        return bool(self.spans(text))

    def _longest(self, text: str, tokens: Sequence[_Token], plain: Sequence[str], at: int) -> int:
        best = 0
        for head in range(1, HEAD + 1):
            for sentence in self._by_head.get(tuple(plain[at : at + head]), ()):
                length = len(sentence)
                if length <= best or tuple(plain[at : at + length]) != sentence:
                    continue
                if length >= ANYWHERE or _stands_alone(text, tokens[at].start, tokens[at + length - 1].end):
                    best = length
        return best


def _stands_alone(text: str, start: int, end: int) -> bool:
    before = text[max(start - 40, 0) : start]
    return (not before.strip() or _BEFORE.search(before) is not None) and _AFTER.match(text, end) is not None


def handed_out(connection: sqlite3.Connection, session: int) -> Sentences:
    """What the last recalls of a session handed out. Recalls that name no session (`context` without one) and those
    of agents' runs count too: their blocks go into the same prompts."""
    rows = connection.execute(
        "select distinct document.text from recall_hit join document"
        " on document.kind = recall_hit.kind and document.row = recall_hit.row where recall_hit.recall in ("
        " select * from (select id from recall where session = ?1 order by id desc limit ?2) union"
        " select * from (select recall.id from recall left join session on session.id = recall.session"
        "  where recall.namespace = (select namespace from session where id = ?1)"
        "  and (recall.session is null or session.kind = 'run') order by recall.id desc limit ?2))",
        (session, RECALLS),
    )
    return Sentences(row[0] for row in rows)


def without(text: str, known: Sentences) -> str:
    """`text` without what memory handed out. Lines of which only marks, dates or numbers are left go too."""
    left = strip_frames(text)
    spans = known.spans(left) if known else []
    if not spans:
        return left.strip()
    kept, at = [], 0
    for start, end in spans:
        kept.append(left[at:start])
        at = end
    # A mark where something was cut, so that a line's remains can be told from a line that was bare all along.
    rest = "\0".join([*kept, left[at:]])
    lines = (line.replace("\0", "") for line in rest.split("\n") if "\0" not in line or _LETTER.search(line))
    return "\n".join(lines).strip()
