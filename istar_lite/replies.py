"""What the clients of models give back: text, token counts, the model's name, wherever each keeps them."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any

from istar_lite.errors import UnusableAnswer
from istar_lite.text import clean

_ABSENT = object()


class Reply(str):
    """The text of an answer, with what the client's own reply object told beside it."""

    model: str | None = None
    tokens_in: int | None = None
    tokens_out: int | None = None


def read_reply(reply: object) -> Reply:
    """The text of a client's reply, with token counts and the model's name where it tells them.

    Text itself, `None` (empty), or an object or dict with `content`, `text`, `output`, `message` or
    `choices`; contents in parts are joined from their texts. Raises `UnusableAnswer` for anything else.
    """
    if isinstance(reply, Reply):
        return reply
    text = _text_of(reply)
    if text is None:
        raise UnusableAnswer(f"the model's answer is of type {type(reply).__name__} and holds no text")
    answer = Reply(clean(text))
    answer.model = _model_of(reply)
    usage = _usage_of(reply)
    answer.tokens_in = _count(usage, "input_tokens", "prompt_tokens", "prompt_eval_count", "input")
    answer.tokens_out = _count(usage, "output_tokens", "completion_tokens", "eval_count", "output")
    return answer


def _text_of(reply: object) -> str | None:
    if reply is None or isinstance(reply, str):
        return reply or ""
    choices = _get(reply, "choices")
    if isinstance(choices, (list, tuple)) and choices:
        return _text_of(_get(choices[0], "message", choices[0]))
    for name in ("content", "text", "output"):
        value = _get(reply, name, _ABSENT)
        if name == "text" and callable(value) and not isinstance(value, str):
            value = value()  # `llm`: response.text()
        if value is None or isinstance(value, str):
            return value or ""
        if isinstance(value, (list, tuple)):
            return "".join(filter(None, map(_part, value)))
    message = _get(reply, "message")
    return None if message is None else _text_of(message)


def _part(part: object) -> str | None:
    """The text of one part of a content; thoughts, tool calls and pictures have none."""
    if isinstance(part, str):
        return part
    text = _get(part, "text")
    return text if isinstance(text, str) and _get(part, "type", "text") in ("text", "output_text") else None


def _usage_of(reply: object) -> object:
    """Where the counts are: `usage`, what `usage()` gives, `usage_metadata`, or the reply itself."""
    usage = _get(reply, "usage") or _get(reply, "usage_metadata")
    if usage is None:
        return reply
    return usage() if callable(usage) and _is_method(usage) else usage


def _is_method(usage: object) -> bool:
    return inspect.ismethod(usage) or inspect.isfunction(usage)


def _count(usage: object, *names: str) -> int | None:
    counts = (_get(usage, name) for name in names)
    return next((count for count in counts if isinstance(count, int) and not isinstance(count, bool)), None)


def _model_of(reply: object) -> str | None:
    places = (reply, _get(reply, "response_metadata"), _get(reply, "response"))
    names = (_get(place, name) for place in places for name in ("model", "model_name"))
    return next((name for name in names if isinstance(name, str)), None)


def _get(obj: object, name: str, default: object = None) -> Any:
    return obj.get(name, default) if isinstance(obj, Mapping) else getattr(obj, name, default)
