"""The tool by which the main model finds the exact words of what was said, also of what the log no longer holds."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from istar_lite import recall
from istar_lite.clock import format_time, parse_time
from istar_lite.errors import BadInput
from istar_lite.frames import fence, indented, one_line, strip_frames
from istar_lite.observations import rows
from istar_lite.observations.parts import CALL_MARK, RESULT_MARK
from istar_lite.text import is_blank, shorten
from istar_lite.trail import write_trail

if TYPE_CHECKING:
    from istar_lite.observations.watch import Watch

RESULTS, CHARACTERS = 10, 2_000
_LOOKED_AT = 50  # so that "n more" can be said
NAME = "recall"
_DESCRIPTION = (
    "Search everything said in this conversation, word for word, also what is no longer shown: messages, tool calls "
    "and tool results. Use it when the log does not hold an exact value, quotation or detail."
)
_PARAMETERS = {
    "type": "object",
    "properties": {
        "query": {"type": "string", "description": "What to look for, in a few telling words."},
        "since": {"type": "string", "description": "Only from this date or time on (ISO 8601), if known."},
        "until": {"type": "string", "description": "Only before this date or time (ISO 8601), if known."},
    },
    "required": ["query"],
}


@dataclass(frozen=True, slots=True)
class Found:
    """One result: who said it, when (a time in stored form), what."""

    role: str
    text: str
    occurred_at: str | None = None
    kind: str = "message"
    id: int | None = None
    score: float | None = None


class RecallTool:
    """The tool: call it with the model's arguments and hand the text back. `schema` is the form that OpenAI-like APIs
    take, `anthropic` theirs. Unpacks to (schema, callable)."""

    def __init__(self, find: Callable[..., Iterable[Any]], note: Callable[[str, list[Found]], None]) -> None:
        self._find = find
        self._note = note
        self.name = NAME

    @property
    def schema(self) -> dict[str, Any]:
        """The tool as OpenAI-like APIs declare it."""
        return {
            "type": "function",
            "function": {"name": NAME, "description": _DESCRIPTION, "parameters": _PARAMETERS},
        }

    @property
    def anthropic(self) -> dict[str, Any]:
        """The tool as Anthropic's API declares it."""
        return {"name": NAME, "description": _DESCRIPTION, "input_schema": _PARAMETERS}

    def __iter__(self) -> Iterator[Any]:
        return iter((self.schema, self.__call__))

    def __call__(self, query: Any = None, since: Any = None, until: Any = None, **unknown: Any) -> str:
        """What was found, as text for the model; a plain sentence when there is nothing. Models send odd arguments,
        leave some out and invent others: those are answered with a sentence too, never raised."""
        if unknown:
            told = ", ".join(map(repr, unknown))
            return f"Nothing was searched: there is no argument {told}, only query, since and until."
        if not isinstance(query, str) or is_blank(query):
            return "Nothing was searched: the query is empty."
        try:
            range_ = {name: _instant(name, value) for name, value in (("since", since), ("until", until))}
        except BadInput as problem:
            return f"Nothing was searched: {problem}."
        found = [one for one in map(as_found, self._find(query, **range_)) if not is_blank(one.text)]
        if not found:
            return f"Nothing was found in this conversation for {shorten(query, 200)!r}."
        shown = found[:RESULTS]
        self._note(query, shown)
        lines = [_line(one) for one in shown]
        if len(found) > RESULTS:
            more = f"at least {len(found) - RESULTS}" if len(found) >= _LOOKED_AT else str(len(found) - RESULTS)
            lines.append(f"({more} more results are left out: narrow the query or the time.)")
        return fence("recall", "\n".join(lines), escaped=True)


def _instant(name: str, value: Any) -> str | None:
    return None if value is None or value == "" else format_time(parse_time(value, name))


def _line(one: Found) -> str:
    role = one.role
    if one.text.startswith(RESULT_MARK):
        role = "tool result"
    elif CALL_MARK in one.text:
        role = f"{role}, with a tool call" if not one.text.startswith(CALL_MARK) else f"{role}, tool call"
    when = "" if one.occurred_at is None else f" ({one.occurred_at[:16].replace('T', ' ')} UTC)"
    return f"[{one_line(role)}]{when}: {indented(shorten(one.text, CHARACTERS))}"


def as_found(item: Any) -> Found:
    """What a search gave (ours or the host's: text, a dict, or an object with `text`) as one result. Blocks that
    memory itself handed out are cut: a recall of a recall says nothing new."""
    if isinstance(item, Found):
        return item
    if isinstance(item, str):
        return Found("message", strip_frames(item).strip())

    def read(name: str) -> Any:
        return item.get(name) if isinstance(item, dict) else getattr(item, name, None)

    text = read("text") or read("content") or ""
    role = read("speaker") or read("role") or "message"
    when = read("occurred_at") or read("timestamp")
    time = None if when is None else format_time(parse_time(when, "occurred_at"))
    return Found(str(role), strip_frames(str(text)).strip(), time, read("kind") or "message", read("id"), read("score"))


def search_messages(watch: Watch, query: str, since: str | None, until: str | None) -> list[Any]:
    """The session's own messages that fit, best first; of each the role it was said in."""
    services = watch.services
    request = recall.make_request(
        watch.namespace,
        query,
        k=_LOOKED_AT,
        kinds=("message",),
        session=watch.session,
        since=since,
        until=until,
        # No floor: the model asked, and judges what it gets. With one, Recall@10 fell from .77 to .72.
        sources=False,
        explain=False,
    )
    return list(recall.search(services, request))


def note_trail(watch: Watch, query: str, found: list[Found]) -> None:
    """What went to the model through the tool, for the trail."""
    services = watch.services
    handed = [(one.kind, one.id, one.score, None, None) for one in found if one.id is not None]
    if services.file.read_only or not handed:
        return
    with services.file.write() as tx:
        write_trail(
            tx,
            watch.namespace,
            rows.find_session(tx, watch.namespace, watch.session),
            "recall_tool",
            query,
            handed,
            services.now(),
        )
