"""What hosts put into a message: text, tool calls and tool results, in the OpenAI and the Anthropic form.

A message is kept twice: `content`, one readable text that search sees and that is counted, and `parts`, exactly what
the host gave, so that it can be handed back to the host's API. `parts` is null for plain text, a list for contents in
parts, and an object for messages with keys beside the content (`tool_calls`, `tool_call_id` …).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from istar_lite.errors import BadInput
from istar_lite.values import plain

CALL_MARK = "[tool call]"
RESULT_MARK = "[tool result"
_CALLS = ("tool_use", "tool_call", "function", "function_call", "server_tool_use", "tool-call")
_RESULTS = ("tool_result", "function_call_output", "tool-result", "web_search_tool_result", "tool_response")
_TEXTS = ("text", "input_text", "output_text", "refusal")
_HIDDEN = ("thinking", "redacted_thinking", "reasoning")  # thoughts of a model are nothing that was said


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A call of a tool: what the result will name (`id`, may be None), the tool, its arguments as text."""

    id: str | None
    name: str
    arguments: str


@dataclass(frozen=True, slots=True)
class ToolResult:
    """What a tool gave back; `call` is the id of the call."""

    call: str | None
    name: str | None
    text: str


@dataclass(frozen=True, slots=True)
class Other:
    """A part that is neither text nor tool: a picture, a document, audio."""

    what: str


Piece = str | ToolCall | ToolResult | Other


def as_parts(content: object, more: Mapping[str, Any], field: str = "content") -> Any:
    """`parts` of a message as the host gave it: None for plain text, else JSON's own types."""
    if isinstance(content, str) and not more:
        return None
    if isinstance(content, list | tuple) and not more:
        return plain(content, field)
    body = plain(content, field)
    whole = dict(body) if isinstance(body, dict) and "type" not in body else {"content": body}
    whole.update({key: plain(value, key) for key, value in more.items()})
    whole.pop("role", None)
    if not isinstance(whole.get("content"), str | list | dict | None):
        raise BadInput(field, "is neither text nor a list of parts")
    return whole


def pieces(parts: Any, role: str = "user") -> Iterator[Piece]:
    """The pieces of a message in order."""
    if isinstance(parts, str):
        yield parts
    elif isinstance(parts, list):
        for part in parts:
            yield from _piece(part)
    elif isinstance(parts, dict) and "type" in parts and "content" not in parts:
        yield from _piece(parts)
    elif isinstance(parts, dict):
        yield from _whole_message(parts, role)


def _whole_message(message: Mapping[str, Any], role: str) -> Iterator[Piece]:
    call = message.get("tool_call_id") or message.get("call_id")
    if call is not None or role in ("tool", "function"):
        yield ToolResult(_identity(call), _name(message.get("name")), _text_of(message.get("content")))
        return
    yield from pieces(message.get("content"))
    for entry in message.get("tool_calls") or ():
        yield from _piece(entry)
    if isinstance(message.get("function_call"), Mapping):
        yield _call(message["function_call"])


def _piece(part: object) -> Iterator[Piece]:
    if isinstance(part, str):
        yield part
        return
    if not isinstance(part, Mapping):
        return
    kind = str(part.get("type") or ("function" if "function" in part else "text"))
    if kind in _CALLS:
        yield _call(part)
    elif kind in _RESULTS:
        call = part.get("tool_use_id") or part.get("tool_call_id") or part.get("call_id") or part.get("id")
        body = part.get("content", part.get("output", part.get("result")))
        yield ToolResult(_identity(call), _name(part.get("name") or part.get("tool_name")), _text_of(body))
    elif kind in _TEXTS:
        yield str(part.get("text") or part.get("refusal") or "")
    elif kind not in _HIDDEN:
        yield Other(kind)


def _call(part: Mapping[str, Any]) -> ToolCall:
    inner = part.get("function")
    source = inner if isinstance(inner, Mapping) else part
    arguments = next(
        (source[key] for key in ("arguments", "input", "args") if source.get(key) is not None), part.get("input")
    )
    name = _name(source.get("name") or part.get("tool_name")) or "tool"
    return ToolCall(_identity(part.get("call_id") or part.get("id")), name, _arguments(arguments))


def _arguments(value: object) -> str:
    """`city=Paris, days=2`: arguments as people read them; what is no object stays as it is."""
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except ValueError:
            return str(value)
    if value is None:
        return ""
    if isinstance(value, Mapping):
        return ", ".join(f"{key}={_scalar(item)}" for key, item in value.items())
    return _scalar(value)


def _scalar(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _text_of(body: object) -> str:
    if body is None:
        return ""
    if isinstance(body, str):
        return body
    if isinstance(body, list):
        texts = [piece if isinstance(piece, str) else described(piece) for part in body for piece in _piece(part)]
        return "\n".join(texts)
    if isinstance(body, Mapping) and isinstance(body.get("text"), str):
        return str(body["text"])
    return json.dumps(body, ensure_ascii=False)


def _identity(value: object) -> str | None:
    return None if value is None else str(value)


def _name(value: object) -> str | None:
    return str(value) if value else None


def described(piece: Piece) -> str:
    """A piece as one reads it."""
    if isinstance(piece, str):
        return piece
    if isinstance(piece, ToolCall):
        return f"{CALL_MARK} {piece.name}({piece.arguments})"
    if isinstance(piece, ToolResult):
        return f"{RESULT_MARK}{f' {piece.name}' if piece.name else ''}] {piece.text}"
    return f"[{piece.what}]"


def flatten(parts: Any, role: str, name_of: Callable[[str], str | None]) -> str:
    """The readable text of a message. `name_of`: id of a call → name of its tool, where the result does not say."""
    texts: list[str] = []
    for piece in pieces(parts, role):
        if isinstance(piece, ToolResult) and piece.name is None and piece.call is not None:
            piece = ToolResult(piece.call, name_of(piece.call), piece.text)
        texts.append(described(piece))
    return "\n".join(text for text in texts if text.strip())


def tool_ids(parts: Any, role: str) -> tuple[list[str | None], list[str | None]]:
    """Ids of the calls that a message makes, and of the calls whose results it holds."""
    if parts is None:
        return [], []
    found = list(pieces(parts, role))
    calls = [piece.id for piece in found if isinstance(piece, ToolCall)]
    results = [piece.call for piece in found if isinstance(piece, ToolResult)]
    return calls, results


def speaker_of(parts: Any, role: str) -> str | None:
    """Who speaks, where the host's message names them (a tool's `name` names the tool)."""
    name = parts.get("name") if isinstance(parts, dict) and role not in ("tool", "function") else None
    return name if isinstance(name, str) and name.strip() else None


def only_results(parts: Any, role: str) -> bool:
    """Whether a message holds tool results and nothing that somebody said (Anthropic sends them as `user`)."""
    if role in ("tool", "function"):
        return True
    said = [piece for piece in pieces(parts, role) if not isinstance(piece, str) or piece.strip()]
    return bool(said) and all(isinstance(piece, ToolResult) for piece in said)


def to_message(role: str, content: str, parts: Any) -> dict[str, Any]:
    """The message as a dict that the host's API takes: what `add` was given."""
    if parts is None:
        return {"role": role, "content": content}
    if isinstance(parts, list):
        return _from_list(role, parts)
    return {"role": role, **parts}


def _from_list(role: str, parts: list[Any]) -> dict[str, Any]:
    """Entries of OpenAI's `tool_calls` that were given among the parts go where that API wants them."""
    calls = [part for part in parts if isinstance(part, Mapping) and isinstance(part.get("function"), Mapping)]
    if not calls:
        return {"role": role, "content": list(parts)}
    rest = [part for part in parts if part not in calls]
    texts = [part.get("text") for part in rest if isinstance(part, Mapping)] if rest else []
    joined = "\n".join(text for text in texts if isinstance(text, str)) if len(texts) == len(rest) else rest
    return {"role": role, "content": joined or None, "tool_calls": calls}


_WHOLE_KEYS = (
    "id",
    "type",
    "name",
    "role",
    "data",
    "url",
    "image_url",
    "signature",
    "tool_call_id",
    "tool_use_id",
    "call_id",
)


def cut_strings(value: Any, cut: Callable[[str], str]) -> Any:
    """`value` with every text in it replaced by `cut(text)`; names, ids and encoded data stay as they are, and
    arguments that are JSON in a text stay JSON."""
    if isinstance(value, str):
        return cut(value)
    if isinstance(value, list):
        return [cut_strings(item, cut) for item in value]
    if not isinstance(value, dict):
        return value
    return {key: item if key in _WHOLE_KEYS else _cut_value(key, item, cut) for key, item in value.items()}


def _cut_value(key: str, value: Any, cut: Callable[[str], str]) -> Any:
    if key != "arguments" or not isinstance(value, str):
        return cut_strings(value, cut)
    try:
        decoded = json.loads(value)
    except ValueError:
        return cut(value)
    return json.dumps(cut_strings(decoded, cut), ensure_ascii=False)
