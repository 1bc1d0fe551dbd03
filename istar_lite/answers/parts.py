"""What all readers share: the answer without its thinking, honest nothings, refusals, words that carry meaning."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator, Sequence

from istar_lite.errors import UnusableAnswer
from istar_lite.text import clean, is_blank

_THINK_NAMES = "think|thinking|thoughts?|analysis|reasoning|scratchpad"
# Tags count at the start of a line only: a memory or an observation may quote one in the middle of its text.
_THINK_START = re.compile(rf"^[ \t>]*(?:<\s*({_THINK_NAMES})\s*>|\[(THINK)\])", re.IGNORECASE | re.MULTILINE)
# A template may have opened the thinking in the prompt, so that the answer holds the end alone. Such an end is
# followed by the answer itself; one inside a quoted text is followed by more of that text.
_THINK_END = re.compile(rf"(?:</\s*(?:{_THINK_NAMES})\s*>|\[/THINK\])[ \t]*(?=[\n{{\[<`#]|$)", re.IGNORECASE)
_FINAL_CHANNEL = re.compile(r"<\|channel\|>\s*final[^<\n]{0,80}<\|message\|>")
_FENCE_LINE = re.compile(r"^[ \t]*(?:```|~~~)[\w+-]*[ \t]*$\n?", re.MULTILINE)


def answer_part(answer: object) -> str:
    """The answer proper: clean text without its thinking. Raises UnusableAnswer when nothing of it is left."""
    if not isinstance(answer, str):
        raise UnusableAnswer(f"the answer is no text but {type(answer).__name__}")
    text = clean(answer)
    if is_blank(text):
        raise UnusableAnswer("the answer is empty")
    text = drop_thinking(text)
    if is_blank(text):
        raise UnusableAnswer("the answer ended while it was still thinking")
    return text


def drop_thinking(text: str) -> str:
    """`text` without think and analysis parts. One that never closes runs to the end: a draft is no answer."""
    channels = list(_FINAL_CHANNEL.finditer(text))
    if channels:
        text = text[channels[-1].end() :]
    kept, at, opened = [], 0, False
    while start := _THINK_START.search(text, at):
        opened = True
        kept.append(text[at : start.start()])
        name = start[1] or start[2]
        end = re.compile(rf"[<\[]\s*/\s*{name}\s*[>\]]", re.IGNORECASE).search(text, start.end())
        if end is None:
            return "\n".join(kept)
        at = end.end()
    kept.append(text[at:])
    rest = "\n".join(kept) if opened else text
    ends = list(_THINK_END.finditer(rest))
    if ends and not is_blank(rest[ends[-1].end() :]):
        rest = rest[ends[-1].end() :]
    return rest


def without_fences(text: str) -> str:
    """`text` without the lines that only open or close a code fence."""
    return _FENCE_LINE.sub("", text)


def regions(text: str, marks: Sequence[re.Match[str]]) -> Iterator[tuple[re.Match[str], str]]:
    """Each mark with the text after it, up to the next mark."""
    for at, mark in enumerate(marks, start=1):
        yield mark, text[mark.end() : marks[at].start() if at < len(marks) else len(text)]


def word_set(words: str) -> frozenset[str]:
    """A set of words written as one text."""
    return frozenset(words.split())


# An honest "nothing" is told by a closed vocabulary: every word of it must be one of these. "No cats." has a word
# too many and is prose. (Looking for "nothing" or "no" anywhere would take half of all prose for a verdict.)
_NONE_WORDS = word_set("no none nothing nil n/a empty without isn't aren't wasn't not neither")
_NOTHING_WORDS = _NONE_WORDS | word_set(
    """a an any anything there there's is are was were be been i we have has had found find see seen in of this that
    these the it from for to as at all or and so far here new relevant important notable significant useful further
    additional more other memory memories fact facts statement statements observation observations information info
    item items update updates detail details note notes thing things worth remember remembering remembered record
    recording recorded store storing stored save saved saving keep keeping kept note noting noted extract extracted
    extracting memorize memorizing observe observed report add added conversation exchange message messages log
    prompt text user dialogue chat turn available applicable required needed current currently long-term
    sorry but however i'm i've
    """
)
_WORDS_AND_SLASHES = re.compile(r"[^\W_]+(?:['’/-][^\W_]+)*")
_LONGEST_NOTHING = 300


def says_nothing(text: str) -> bool:
    """Whether `text` (its first sentence) is an honest "nothing": "No observations to record.", "none", "N/A"."""
    if len(text) > _LONGEST_NOTHING:
        return False
    sentence = re.split(r"(?<=[.!?])\s|\n", text.strip().lstrip("*->•# \t\"'([{<"), maxsplit=1)[0]
    words = [word.casefold().replace("’", "'") for word in _WORDS_AND_SLASHES.findall(sentence)]
    return bool(words) and _NOTHING_WORDS.issuperset(words) and not _NONE_WORDS.isdisjoint(words)


_REFUSAL = re.compile(
    r"^\W*(?:(?:i(?:'|’)?m|i am|we(?:'|’)?re|we are)?\s*(?:so |very |really |truly )?(?:sorry|afraid)\b"
    r"|(?:my |i )?apolog|unfortunately\b|as an? (?:ai|artificial|language|assistant)\b|i(?:'|’)?m an ai\b"
    r"|(?:i|we)\s+(?:can(?:'|’)?t|cannot|can not|won(?:'|’)?t|am unable|(?:'|’)m unable|must decline|am not able)\b"
    r"|i(?:'|’)m (?:unable|not able)\b)",
    re.IGNORECASE,
)
_INABILITY = re.compile(
    r"\b(?:can(?:'|’)?t|cannot|can not|won(?:'|’)?t|unable|not able|not allowed|not permitted|must decline"
    r"|not comfortable)\b",
    re.IGNORECASE,
)


def is_refusal(text: str) -> bool:
    """Whether `text` declines: it opens with an apology or an "as an AI" and says at once that it cannot.

    An apology alone is none: "I'm sorry for any confusion. What's the task?" is a model that lost its way.
    """
    head = text.lstrip()[:240]
    return bool(_REFUSAL.match(head) and _INABILITY.search(head))


_STOP_WORDS = word_set(
    """a about above after again all also am an and any are as at be because been before being below between both but
    by can could did do does doing done down during each few for from further get had has have having he her here hers
    him his how i if in into is it its itself just let like make me more most my myself now of off on once only or
    other our ours out over own same she should so some such than that the their theirs them then there these they
    this those through to too under until up upon us very was we well were what when where which while who whom why
    will with would you your yours yes ok okay im ive id ll re ve s t d m
    """
)
_WORD = re.compile(r"[^\W_]+")
# Scripts that write no spaces: each character is a word of its own.
_UNSPACED = re.compile("[\u0e00-\u0eff\u1780-\u17ff\u2e80-\u9fff\uf900-\ufaff\U00020000-\U0003ffff]")


def words_of(text: str) -> list[str]:
    """The words of `text` in order: NFKC, case folded; characters of unspaced scripts one by one."""
    found = _WORD.findall(unicodedata.normalize("NFKC", text).casefold())
    return [part for word in found for part in (word if _UNSPACED.search(word) else (word,))]


def content_words(text: str) -> set[str]:
    """The words of `text` that carry meaning (stop words out)."""
    return {word for word in words_of(text) if word not in _STOP_WORDS}


def has_letters(text: str) -> bool:
    return any(character.isalpha() for character in text)


_NUMBER = re.compile(r"\d+(?:[.,:]\d+)*")


def masked(line: str) -> str:
    """A line with its numbers masked, case folded, markup and spaces trimmed: how an echo of the prompt is known,
    since models change the numbers of what they echo."""
    folded = _NUMBER.sub("#", line.casefold())
    return " ".join(folded.replace("*", " ").replace("`", " ").split()).strip(" ->•")
