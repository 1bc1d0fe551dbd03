"""Stand-ins for tests and documentation: models that follow a script, a tiny embedder, a clock that stands.

Nothing here asks a network, sleeps, or depends on chance.
"""

from __future__ import annotations

import hashlib
import re
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import numpy as np
import numpy.typing as npt

from istar_lite.clock import Instant, parse_time
from istar_lite.llm import ChatMessage

_WORD = re.compile(r"\w+")


class ScriptError(BaseException):
    """The script has no answer for a request: the test is wrong, not the model.

    Not an Exception, like the outcomes of pytest itself: whoever guards a host's turn against a failing model
    would take it for one, and the test would pass.
    """


@dataclass(frozen=True, slots=True)
class Call:
    """One request that a scripted model received."""

    messages: list[ChatMessage]
    tag: str | None
    schema: dict[str, Any] | None
    max_tokens: int | None
    temperature: float | None

    @property
    def last_user(self) -> str:
        """The text of the last message of the user, "" without one."""
        texts = (message["content"] for message in reversed(self.messages) if message["role"] == "user")
        return next(texts, "")


class _Script:
    def __init__(self, answers: Sequence[Any] | Mapping[str, Any] = (), default: Any = None) -> None:
        if isinstance(answers, str):
            raise TypeError("answers is a list or a dict; an answer for every request is the default")
        self.calls: list[Call] = []
        self._by_key: dict[str, Any] = {}
        self._in_order: list[Any] = []
        self._default = default
        if isinstance(answers, Mapping):
            self._by_key = {key: list(value) if _is_list(value) else value for key, value in answers.items()}
        else:
            self._in_order = list(answers)

    def _answer(self, call: Call) -> Any:
        self.calls.append(call)
        answer = self._next(call)
        if isinstance(answer, BaseException) or (isinstance(answer, type) and issubclass(answer, BaseException)):
            raise answer
        if not callable(answer):
            return answer
        try:
            return answer(call.messages)
        except AssertionError as error:
            raise ScriptError(f"the answer to {call.tag!r} was asserted wrongly: {error}") from error

    def _next(self, call: Call) -> Any:
        planned = self._planned(call)
        if not isinstance(planned, list):
            return planned
        if planned:
            return planned.pop(0)
        if self._default is not None:
            return self._default
        raise ScriptError(f"no answer left for request {len(self.calls)}, tag {call.tag!r}: {call.last_user[:200]!r}")

    def _planned(self, call: Call) -> Any:
        """The one answer, or the list of those still to come: by tag, else by what the user's text holds."""
        if call.tag in self._by_key:
            return self._by_key[call.tag]
        matching = (key for key in self._by_key if key in call.last_user)
        key = next(matching, None)
        return self._in_order if key is None else self._by_key[key]


class ScriptedLLM(_Script):
    """A model that answers from a script; `.calls` lists what it was asked.

    `answers`: a list, used up in order, or a dict from a tag, or from a part of the last user text, to one
    answer or to a list of them. An exception (object or class) is raised, a function is called with the messages,
    anything else is the answer. When nothing is left and there is no `default`, a `ScriptError` reaches the
    test, past every guard.
    """

    def __call__(
        self,
        messages: Sequence[ChatMessage],
        /,
        *,
        max_tokens: int | None = None,
        temperature: float | None = None,
        tag: str | None = None,
        schema: dict[str, Any] | None = None,
    ) -> Any:
        """The next answer."""
        return self._answer(Call(list(messages), tag, schema, max_tokens, temperature))


class AsyncScriptedLLM(_Script):
    """`ScriptedLLM`, to be awaited."""

    async def __call__(
        self,
        messages: Sequence[ChatMessage],
        /,
        *,
        max_tokens: int | None = None,
        temperature: float | None = None,
        tag: str | None = None,
        schema: dict[str, Any] | None = None,
    ) -> Any:
        """The next answer."""
        return self._answer(Call(list(messages), tag, schema, max_tokens, temperature))


class SlowLLM:
    """A model that does not answer before `release` is set; `started` tells that it was asked."""

    def __init__(self, answer: str = "late") -> None:
        self.answer = answer
        self.started = threading.Event()
        self.release = threading.Event()

    def __call__(self, messages: Sequence[ChatMessage], /) -> str:
        """Wait, then answer."""
        self.started.set()
        self.release.wait()
        return self.answer


class WordEmbedder:
    """Texts that share words have close vectors: each word is hashed to one signed place. Needs no files."""

    def __init__(self, dimension: int = 64) -> None:
        self.dimension = dimension
        self.model_id = f"test/words-{dimension}"

    def embed(self, texts: Sequence[str]) -> npt.NDArray[np.float32]:
        """Unit vectors, shape (len(texts), dimension)."""
        vectors = np.zeros((len(texts), self.dimension), dtype=np.float32)
        for vector, text in zip(vectors, texts, strict=True):
            self._add_words(vector, text)
        vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
        return vectors

    def embed_query(self, text: str) -> npt.NDArray[np.float32]:
        """The unit vector of one text, shape (dimension,)."""
        return self.embed([text]).reshape(self.dimension)

    def _add_words(self, vector: npt.NDArray[np.float32], text: str) -> None:
        for word in _WORD.findall(text.casefold()):
            number = int.from_bytes(hashlib.blake2b(word.encode(), digest_size=8).digest(), "big")
            vector[number % self.dimension] += 1.0 if number >> 63 else -1.0
        if not vector.any():  # no word, or words that cancel out: a vector of length 0 has no direction
            vector[0] = 1.0


class FixedClock:
    """A clock that stands until it is told to advance; to be given as `Memory(clock=…)`."""

    def __init__(self, start: Instant = "2026-01-01T00:00:00Z") -> None:
        self._now = parse_time(start, "start").timestamp()

    def __call__(self) -> float:
        """Epoch seconds."""
        return self._now

    def advance(self, by: float | timedelta) -> float:
        """Move on by seconds or a timedelta (back, if negative); gives the new time."""
        self._now += by.total_seconds() if isinstance(by, timedelta) else by
        return self._now


def _is_list(value: object) -> bool:
    return isinstance(value, (list, tuple))
