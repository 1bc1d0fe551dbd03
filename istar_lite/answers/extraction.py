"""Reading the statements that a model took out of an exchange, and the one statement that several were merged into."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from istar_lite.answers.json_reader import Cut, Found, Scan, scan
from istar_lite.answers.parts import (
    answer_part,
    content_words,
    has_letters,
    is_refusal,
    says_nothing,
    without_fences,
)
from istar_lite.answers.repetition import find_repetition
from istar_lite.errors import UnusableAnswer
from istar_lite.text import clean, normalise

EMOTIONS = ("joy", "sadness", "anger", "fear", "surprise", "love", "neutral")
DEFAULT_IMPORTANCE = 0.7
LEAST_IMPORTANCE, MOST_IMPORTANCE = 0.1, 1.0

_LIST_KEYS = frozenset(("memories", "memory", "statements", "facts"))
_TEXT_KEYS = ("text", "memory", "statement", "fact", "content")
# What stands for a text in the formats that prompts show.
_PLACEHOLDERS = frozenset(("text", "string", "statement", "memory", "fact"))
_TEMPLATE_FIELD = re.compile(r"[<\[{][^<>\[\]{}]*[>\]}]")


@dataclass(frozen=True, slots=True)
class ExtractedMemory:
    """One statement. `importance` lies in 0.1…1, `replaces` holds numbers that were offered, once each.

    `repeats`: the text says the same as one offered or known. Such a statement is to be counted, not stored, and
    replaces nothing: models send known memories back as new, with `replaces` pointing at themselves.
    """

    text: str
    importance: float = DEFAULT_IMPORTANCE
    emotion: str = "neutral"
    replaces: tuple[int, ...] = ()
    repeats: bool = False


@dataclass(frozen=True, slots=True)
class Extraction:
    """What an answer to an extraction held. `complete=False`: it was cut off, the whole statements before the cut
    are here and the input is still due.

    `refused`: the model declined. That is a verdict, not a parse failure: asked again it declines again, so the
    caller settles the input with nothing stored (and may note the refusal), while `UnusableAnswer` leaves it due.
    """

    items: tuple[ExtractedMemory, ...] = ()
    complete: bool = True
    refused: bool = False


def read_extraction(
    text: str,
    *,
    offered: Sequence[str] = (),
    example_texts: Iterable[str] = (),
    known: Iterable[str] = (),
) -> Extraction:
    """The statements in `text`, the answer to an extraction.

    `offered`: the related memories shown in the prompt, numbered from 0; `known`: further texts already held;
    `example_texts`: the texts of the prompt's own examples, which are dropped when they come back.
    Only objects with a text in JSON become statements, never lines of the raw answer. An honest "nothing" is an
    empty, complete Extraction. Raises UnusableAnswer when there is nothing to be read, the reason in its message.
    """
    answer = answer_part(text)
    read = scan(answer)
    reader = _Items(offered, example_texts, known)
    for items, complete in _readings(read, answer):
        statements = reader.statements(items)
        if statements:
            return Extraction(tuple(statements), complete)
    if reader.refused or (not read.found and is_refusal(answer)):
        return Extraction(refused=True)
    if reader.said_nothing or _is_nothing(read, answer):
        return Extraction()
    raise UnusableAnswer(reader.dropped or _why_unreadable(read))


def read_consolidation(text: str, *, originals: Sequence[str] = (), example_texts: Iterable[str] = ()) -> str:
    """The one statement in `text`, the answer to a request to merge `originals`.

    JSON with one text, read as leniently as an extraction. A bare sentence counts only where it can be checked: at
    least half of its words stand in `originals`, and it is not longer than all of them. Raises UnusableAnswer.
    """
    answer = answer_part(text)
    read = scan(answer)
    reader = _Items((), example_texts, ())
    for items, complete in _readings(read, answer):
        texts = [statement.text for statement in reader.statements(items)]
        if len(texts) > 1:
            raise UnusableAnswer(f"one merged statement was asked for, {len(texts)} came back")
        if texts and complete:
            return texts[0]
    quoted = [found.value for found in read.found if isinstance(found.value, str)]  # the answer is one JSON text
    bare = (quoted[0] if quoted else without_fences(answer)).strip().strip("\"'“”")
    if (quoted or not read.found) and not read.broken and _is_merged_from(bare, originals):
        return " ".join(bare.split())
    raise UnusableAnswer(reader.dropped or _why_unreadable(read))


# --- which value is the answer ------------------------------------------------------------------------------


def _readings(read: Scan, answer: str) -> Iterator[tuple[list[Any], bool]]:
    """The places where statements may stand, best first, each with whether it is whole."""
    for found in read.found:
        if whole := [item for item in _listed(found.value) if not isinstance(item, Cut)]:
            yield whole, not found.cut
    bare = [found for found in read.found if _text_of(found.value) is not None]
    yield [found.value for found in bare if not found.cut], _ended_by_itself(read, answer)
    # Nothing whole: the text of the first object that was cut off after its text is a statement all the same.
    for found in read.found:
        if found.cut:
            yield [item for item in [found.value, *_listed(found.value)] if isinstance(item, Cut)][-1:], False


def _listed(value: Any, depth: int = 0) -> list[Any]:
    """The items of a value that holds a list of them: itself, under "memories", or under another key."""
    if isinstance(value, list):
        return value if any(isinstance(item, dict) for item in value) else []
    if not isinstance(value, dict):
        return []
    for key, content in value.items():
        if key.casefold() in _LIST_KEYS and not isinstance(content, (str, int, float)):
            return _items_under(content)
    if _text_of(value) is not None or depth > 2:
        return []
    return next((items for content in value.values() if (items := _listed(content, depth + 1))), [])


def _items_under(content: Any) -> list[Any]:
    if isinstance(content, list):
        return [{"text": item} if isinstance(item, str) else item for item in content]
    if isinstance(content, dict):
        return [content] if _text_of(content) is not None else list(content.values())
    return []


def _text_of(value: Any) -> str | None:
    if not isinstance(value, dict):
        return None
    fields = {key.casefold(): content for key, content in value.items()}
    texts = (fields.get(key) for key in _TEXT_KEYS)
    return next((text for text in texts if isinstance(text, str) and text.strip()), None)


def _ended_by_itself(read: Scan, answer: str) -> bool:
    if any(found.cut for found in read.found):
        return False
    return not read.broken or without_fences(answer).rstrip(" \t\n`.").endswith(("}", "]"))


def _is_nothing(read: Scan, answer: str) -> bool:
    """An honest "nothing": an empty list or object that is the answer, or words that say so."""
    if not read.found:
        return not read.broken and says_nothing(answer)
    return any(_is_empty(found, answer) for found in read.found)


def _is_empty(found: Found, answer: str) -> bool:
    value = found.value
    if isinstance(value, str):
        return says_nothing(value)
    if found.cut:
        return False
    if isinstance(value, dict) and value:
        listed = [content for key, content in value.items() if key.casefold() in _LIST_KEYS]
        return any(not content or content == "none" or _is_nothing_text(content) for content in listed)
    # Bare brackets occur in prose and code ("items[]"): they are an answer on a line of their own or at the end.
    before, after = answer[: found.start].rpartition("\n")[2], answer[found.end :].partition("\n")[0]
    return value is None or (not value and not after.strip(" .`") and before.rstrip()[-1:] in ("", ":", "`"))


def _is_nothing_text(content: Any) -> bool:
    return isinstance(content, str) and says_nothing(content)


def _why_unreadable(read: Scan) -> str:
    if any(found.cut for found in read.found):
        return "the answer was cut off before its first whole statement"
    return "the answer holds broken JSON" if read.broken or read.found else "the answer holds no JSON"


# --- from values to statements ------------------------------------------------------------------------------


class _Items:
    """Makes statements of values; remembers why it dropped what it dropped."""

    def __init__(self, offered: Sequence[str], example_texts: Iterable[str], known: Iterable[str]) -> None:
        self._offered = len(offered)
        self._held = {normalise(text) for text in (*offered, *known)}
        self._examples = {normalise(text) for text in example_texts}
        self.dropped: str | None = None
        self.refused = False
        self.said_nothing = False

    def statements(self, items: Iterable[Any]) -> list[ExtractedMemory]:
        """One statement per distinct text, in the order of the answer."""
        taken: dict[str, ExtractedMemory] = {}
        for item in items:
            text = clean(_text_of(item) or "").strip()
            key = normalise(text)
            if key in taken or not self._is_statement(text, key):
                continue
            repeats = key in self._held
            fields = {name.casefold(): content for name, content in item.items()}
            taken[key] = ExtractedMemory(
                text,
                _importance(fields.get("importance")),
                _emotion(fields.get("emotion")),
                () if repeats else self._replaced(fields.get("replaces")),
                repeats,
            )
        return list(taken.values())

    def _is_statement(self, text: str, key: str) -> bool:
        if not text:
            return False
        if key in self._examples:
            self.dropped = "only the prompt's own example came back"
        elif not has_letters(text) or key in _PLACEHOLDERS or _TEMPLATE_FIELD.fullmatch(text):
            self.dropped = "only placeholders came back"
        elif key.startswith(("no", "n/a")) and says_nothing(text):
            self.said_nothing = True
        elif is_refusal(text):
            self.refused = True
        elif find_repetition(text) is not None:
            self.dropped = "the answer repeats itself"
        else:
            return True
        return False

    def _replaced(self, value: Any) -> tuple[int, ...]:
        """Whole numbers that were offered, once each; anything else changes nothing."""
        numbers = (_whole_number(number) for number in (value if isinstance(value, list) else [value]))
        return tuple(dict.fromkeys(n for n in numbers if n is not None and 0 <= n < self._offered))


def _whole_number(value: Any) -> int | None:
    if isinstance(value, bool):
        return None
    if isinstance(value, int):
        return value
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, str) and value.strip().isascii() and value.strip().isdigit() and len(value) < 12:
        return int(value)
    return None


def _importance(value: Any) -> float:
    """A number, clamped to 0.1…1; the default for anything that is none (a text, NaN, nothing)."""
    if isinstance(value, bool) or not isinstance(value, (int, float, str)):
        return DEFAULT_IMPORTANCE
    try:
        number = float(value)
    except OverflowError:
        number = math.inf if value > 0 else -math.inf  # type: ignore[operator]  # an int too long for a float
    except ValueError:
        return DEFAULT_IMPORTANCE
    return DEFAULT_IMPORTANCE if math.isnan(number) else min(max(number, LEAST_IMPORTANCE), MOST_IMPORTANCE)


def _emotion(value: Any) -> str:
    name = value.strip().casefold() if isinstance(value, str) else ""
    return name if name in EMOTIONS else "neutral"


def _is_merged_from(text: str, originals: Sequence[str]) -> bool:
    words = content_words(text)
    if not words or "\n\n" in text or is_refusal(text) or len(text) > sum(map(len, originals)) + 20:
        return False
    held = set().union(*map(content_words, originals))
    return 2 * len(words & held) >= len(words)
