"""Every shape of model behind one protocol. No vendor's package is imported.

A shape is known by the methods an object has. Each shape is one function that turns an `Ask` into the
arguments of the client's own call; `Model` makes the call and leaves out what the client or the server does
not know; replies.py reads what comes back. Time limits and threads are llm.py's business.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias, TypedDict, cast

from istar_lite.errors import BadInput
from istar_lite.replies import Reply, read_reply

ANTHROPIC_MAX_TOKENS = 4096  # their API demands a number, and its oldest models allow no larger one
_OPTIONS = ("max_tokens", "temperature", "tag", "schema", "model")
_REFUSABLE = (
    "max_tokens",
    "max_completion_tokens",
    "temperature",
    "response_format",
    "format",
    "schema",
    "tag",
)
_REFUSAL = re.compile(
    r"unsupported|not support|unexpected|unrecogni[sz]ed|unknown|not (permitted|allowed)|invalid schema", re.I
)
_LIST = re.compile(r"\b(list|List|Sequence|Iterable)\b")
_ACCEPTED = (
    "a function, sync or async, that takes the messages or one text; an OpenAI, Anthropic or ollama client or"
    " litellm.completion, together with model='…'; a LangChain model; a pydantic-ai agent; an `llm` model;"
    " an object with .chat(messages)"
)


class ChatMessage(TypedDict):
    """One message of a request. `role` is "system", "user" or "assistant"."""

    role: str
    content: str


@dataclass(frozen=True, slots=True)
class Ask:
    """What a flow wants of the model. `tag`: extract, episode, retro, consolidate, observe or reflect. `timeout`:
    seconds for this call, where the caller has less left than the driver would give."""

    messages: Sequence[ChatMessage]
    tag: str | None
    max_tokens: int | None = None
    temperature: float | None = None
    schema: dict[str, Any] | None = None
    timeout: float | None = None


class LLM(Protocol):
    """A model: messages in, text out, at once or to be awaited. `as_llm` makes one of nearly anything."""

    def __call__(
        self,
        messages: Sequence[ChatMessage],
        /,
        *,
        max_tokens: int | None = None,
        temperature: float | None = None,
        tag: str | None = None,
        schema: dict[str, Any] | None = None,
    ) -> str | Awaitable[str]: ...


def as_llm(obj: object, model: str | None = None) -> LLM:
    """Any model behind the `LLM` protocol, told by its shape; what was adapted already comes back as it is.

    Accepted: a plain or async function; an OpenAI, Anthropic or ollama client (`model` names the model);
    `litellm.completion`; a LangChain model; a pydantic-ai agent; a model of `llm`; an object with
    `.chat(messages)`. A function gets the list of messages if its first parameter is called `messages` or
    annotated as a list, else one text. `schema` reaches OpenAI-like clients as `response_format`, ollama as
    `format`, `llm` models that support one, and functions that accept it; for the others it is left out.

    Raises `BadInput("llm")` for anything else, `BadInput("model")` for a client without the name of a model.
    """
    return adapt(obj, model)


def adapt(obj: object, model: str | None = None) -> Model:
    """`as_llm`, for those who need the adapter itself."""
    if isinstance(obj, Model):
        if model not in (None, obj.name):
            raise BadInput("model", f"this llm already asks {obj.name!r}, not {model!r}")
        return obj
    if isinstance(obj, type):
        raise BadInput("llm", f"{obj.__name__} is a class: give an object of it. Accepted: {_ACCEPTED}")
    for shape in _SHAPES:
        adapted = shape(obj, model)
        if adapted is not None:
            return adapted
    raise BadInput("llm", f"{type(obj).__name__} cannot be asked. Accepted: {_ACCEPTED}")


_Arguments: TypeAlias = tuple[tuple[Any, ...], dict[str, Any]]
_Build: TypeAlias = Callable[[Ask], _Arguments]


class Model:
    """A model of any shape as an `LLM`.

    `build` turns an Ask into the arguments of `call`; `acall` is the async twin of `call`, where there is one.
    Options that are None (unless the signature demands them), that the signature does not accept, or that the
    server has refused are left out.
    """

    def __init__(
        self,
        call: Callable[..., Any],
        build: _Build,
        name: str | None,
        acall: Callable[..., Any] | None = None,
    ) -> None:
        self.name = name
        self._call = call
        self._acall = acall
        self._build = build
        self._accepted = _keywords(call)
        self._required = _required(call)
        self._refused: set[str] = set()

    def __call__(
        self,
        messages: Sequence[ChatMessage],
        /,
        *,
        max_tokens: int | None = None,
        temperature: float | None = None,
        tag: str | None = None,
        schema: dict[str, Any] | None = None,
    ) -> Reply | Awaitable[Reply]:
        """Ask. Raises what the model raises, and `UnusableAnswer` for a reply that holds no text."""
        return self.send(Ask(messages, tag, max_tokens, temperature, schema))

    @property
    def asynchronous(self) -> bool:
        """Whether the model has an async way beside the sync one. (Of one way alone only the call itself tells.)"""
        return self._acall is not None

    def send(self, ask: Ask) -> Reply | Awaitable[Reply]:
        """The reply, or an awaitable of it where the model has no other way."""
        while True:
            arguments, options = self._arguments(ask)
            try:
                reply = self._call(*arguments, **options)
            except Exception as error:
                if not self._leaves_out(error, options):
                    raise
            else:
                return self.asend(ask, reply) if inspect.isawaitable(reply) else self._read(reply)

    async def asend(self, ask: Ask, begun: Awaitable[Any] | None = None) -> Reply:
        """The reply, awaited, for a model that can be. `begun`: the call that has been made already."""
        call = self._acall or self._call
        may_be_stale = True
        while True:
            arguments, options = self._arguments(ask)
            try:
                return self._read(await (call(*arguments, **options) if begun is None else begun))
            except Exception as error:
                stale = may_be_stale and _is_stale(error)
                if not stale and not self._leaves_out(error, options):
                    raise
                may_be_stale = may_be_stale and not stale
                begun = None

    def _arguments(self, ask: Ask) -> _Arguments:
        arguments, options = self._build(ask)
        if "max_tokens" in self._refused:
            options["max_completion_tokens"] = options.get("max_tokens")  # what newer OpenAI models call it
        return arguments, {name: value for name, value in options.items() if self._takes(name, value)}

    def _takes(self, name: str, value: object) -> bool:
        if name in self._required:
            return True
        accepted = self._accepted is None or name in self._accepted
        return accepted and value is not None and name not in self._refused

    def _leaves_out(self, error: Exception, sent: dict[str, Any]) -> bool:
        """Whether `error` refuses options that were sent: they are left out from now on, and the model asked again.

        Newer OpenAI models refuse `max_tokens` and other temperatures than 1, small servers `response_format`. No
        signature tells it, only HTTP status 400 or 422, or a TypeError from deeper down.
        """
        refusal = str(error)
        refuses = getattr(error, "status_code", None) in (400, 422) or isinstance(error, TypeError)
        if not refuses or not _REFUSAL.search(refusal):
            return False
        named = [name for name in _REFUSABLE if name in sent and re.search(rf"\b{name}\b", refusal)]
        self._refused.update(named)
        return bool(named)

    def _read(self, reply: object) -> Reply:
        answer = read_reply(reply)
        answer.model = answer.model or self.name
        return answer


# --- shapes: each gives None for an object that is not its own ----------------------------------------------


def _openai(client: object, model: str | None) -> Model | None:
    create = _method(client, "chat", "completions", "create")
    return None if create is None else _openai_like(create, _named(model, client))


def _completion(function: object, model: str | None) -> Model | None:
    """`litellm.completion` and its kin: functions whose first parameter is the model."""
    parameters = _parameters(function) or []
    if not callable(function) or [parameter.name for parameter in parameters[:2]] != ["model", "messages"]:
        return None
    first = parameters[0]
    return _openai_like(function, _named(model, function) if first.default is first.empty else model)


def _openai_like(create: Callable[..., Any], model: str | None) -> Model:
    def build(ask: Ask) -> _Arguments:
        options: dict[str, Any] = {"model": model, "messages": _plain(ask)}
        options |= {"max_tokens": ask.max_tokens, "temperature": ask.temperature}
        if ask.schema is not None:
            # Without "strict": that refuses schemas with optional fields or maxItems.
            schema = {"name": ask.tag or "answer", "schema": ask.schema}
            options["response_format"] = {"type": "json_schema", "json_schema": schema}
        return (), options

    return Model(create, build, model)


def _anthropic(client: object, model: str | None) -> Model | None:
    create = _method(client, "messages", "create")
    if create is None:
        return None
    name = _named(model, client)

    def build(ask: Ask) -> _Arguments:
        system, rest = _system_apart(ask)
        limit = ask.max_tokens or ANTHROPIC_MAX_TOKENS
        options = {"model": name, "system": system, "messages": rest, "max_tokens": limit}
        return (), options | {"temperature": ask.temperature}

    return Model(create, build, name)


def _ollama(client: object, model: str | None) -> Model | None:
    chat = _method(client, "chat")
    if chat is None or not {"messages", "options", "format"} <= (_keywords(chat) or set()):
        return None
    name = _named(model, client)

    def build(ask: Ask) -> _Arguments:
        options = _given(num_predict=ask.max_tokens, temperature=ask.temperature)
        return (), {"model": name, "messages": _plain(ask), "format": ask.schema, "options": options}

    return Model(chat, build, name)


def _langchain(runnable: object, model: str | None) -> Model | None:
    invoke = _method(runnable, "invoke")
    if invoke is None:
        return None
    # `invoke` itself takes any keyword, the model behind it does not.
    declared = getattr(type(runnable), "model_fields", {})

    def build(ask: Ask) -> _Arguments:
        options = {"max_tokens": ask.max_tokens, "temperature": ask.temperature}
        return (_plain(ask),), {name: value for name, value in options.items() if name in declared}

    return Model(invoke, build, model, _method(runnable, "ainvoke"))


def _pydantic_ai(agent: object, model: str | None) -> Model | None:
    run_sync, run = _method(agent, "run_sync"), _method(agent, "run")
    if run_sync is None or run is None:
        return None
    takes_instructions = "instructions" in (_keywords(run) or ())

    def build(ask: Ask) -> _Arguments:
        system, rest = _system_apart(ask) if takes_instructions else (None, _plain(ask))
        settings = _given(max_tokens=ask.max_tokens, temperature=ask.temperature)
        return (_one_text(rest),), {"instructions": system, "model_settings": settings, "model": model}

    return Model(run_sync, build, model, run)


def _llm_package(model_object: object, model: str | None) -> Model | None:
    prompt, name = _method(model_object, "prompt"), getattr(model_object, "model_id", None)
    if prompt is None or not isinstance(name, str):
        return None
    declared = getattr(getattr(model_object, "Options", None), "model_fields", {})
    takes_schema = getattr(model_object, "supports_schema", False) is True

    def build(ask: Ask) -> _Arguments:
        system, rest = _system_apart(ask)
        options: dict[str, Any] = {"max_tokens": ask.max_tokens, "temperature": ask.temperature}
        options = {option: value for option, value in options.items() if option in declared}
        schema = ask.schema if takes_schema else None
        return (_one_text(rest),), options | {"system": system, "stream": False, "schema": schema}

    def call(*arguments: Any, **options: Any) -> Any:
        response = prompt(*arguments, **options)
        return _awaited_response(response) if inspect.isawaitable(response) else response

    return Model(call, build, name)


async def _awaited_response(response: Any) -> dict[str, Any]:
    """An asynchronous response of `llm`, whose text and usage are awaited one by one, as a plain reply."""
    return {"text": await response.text(), "usage": await response.usage()}


def _function(function: object, model: str | None) -> Model | None:
    if not callable(function):
        return None
    parameters = _parameters(function)
    if parameters is None:  # some built-in functions tell no signature
        return _called(function, model, as_list=False)
    if not parameters:
        raise BadInput("llm", f"{_title(function)} takes no argument; it has to take the messages or one text")
    first, *others = parameters
    wanted = _required(function) & {other.name for other in others}
    if wanted - set(_OPTIONS):
        names = ", ".join(sorted(wanted - set(_OPTIONS)))
        raise BadInput("llm", f"{_title(function)} wants {names}, which nobody gives; bind it beforehand")
    if "model" in wanted:
        _named(model, function)
    by_name = first.kind in (first.KEYWORD_ONLY, first.VAR_KEYWORD)
    as_list = by_name or first.name == "messages" or _LIST.search(_annotation(first)) is not None
    return _called(function, model, as_list=as_list, by_name=by_name)


def _chat(obj: object, model: str | None) -> Model | None:
    chat = _method(obj, "chat")
    return None if chat is None else _called(chat, model, as_list=True)


def _called(function: Callable[..., Any], model: str | None, *, as_list: bool, by_name: bool = False) -> Model:
    def build(ask: Ask) -> _Arguments:
        options: dict[str, Any] = {
            "max_tokens": ask.max_tokens,
            "temperature": ask.temperature,
            "tag": ask.tag,
        }
        options |= {"schema": ask.schema, "model": model}
        request = _plain(ask) if as_list else _one_text(_plain(ask))
        return ((), options | {"messages": request}) if by_name else ((request,), options)

    return Model(function, build, model)


# Clients first: some of them can be called as well. `.chat` last: what can be called says best how.
_SHAPES = (
    _openai,
    _anthropic,
    _ollama,
    _langchain,
    _pydantic_ai,
    _llm_package,
    _completion,
    _function,
    _chat,
)
_VARIADIC = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)


# --- looking at objects -------------------------------------------------------------------------------------


def _is_stale(error: Exception) -> bool:
    """Whether a client met a connection of an event loop that has ended.

    Clients that keep connections open raise this before anything is sent, and drop the connection; without another
    try each second `asyncio.run` would fail.
    """
    causes = (error, error.__cause__)
    return any(isinstance(cause, RuntimeError) and "loop is closed" in str(cause) for cause in causes)


def _method(obj: object, *path: str) -> Callable[..., Any] | None:
    """The method at the end of `path`, or None."""
    if callable(obj) and inspect.getattr_static(obj, path[0], None) is None:
        return None  # a mock answers to any name; it is meant as a function
    found: Any = obj
    for name in path:
        found = getattr(found, name, None)
    return found if callable(found) else None


def _named(model: str | None, client: object) -> str:
    if not isinstance(model, str) or not model:
        raise BadInput("model", f"{_title(client)} serves many models: say which by model='…'")
    return model


def _title(obj: object) -> str:
    return getattr(obj, "__name__", None) or type(obj).__name__


def _parameters(function: object) -> list[inspect.Parameter] | None:
    """The parameters of a function, or None where Python cannot tell."""
    try:
        return list(inspect.signature(cast(Callable[..., Any], function)).parameters.values())
    except (TypeError, ValueError):
        return None


def _keywords(function: object) -> set[str] | None:
    """The names that `function` accepts as keywords; None: any name."""
    parameters = _parameters(function)
    if parameters is None:
        return set()
    if any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters):
        return None
    by_keyword = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    return {parameter.name for parameter in parameters if parameter.kind in by_keyword}


def _required(function: object) -> set[str]:
    """The parameters without a default."""
    parameters = _parameters(function) or []
    return {each.name for each in parameters if each.default is each.empty and each.kind not in _VARIADIC}


def _annotation(parameter: inspect.Parameter) -> str:
    return "" if parameter.annotation is parameter.empty else str(parameter.annotation)


# --- requests -----------------------------------------------------------------------------------------------


def _plain(ask: Ask) -> list[ChatMessage]:
    """A copy, so that no client changes the flow's own messages."""
    return [{"role": message["role"], "content": message["content"]} for message in ask.messages]


def _given(**options: object) -> dict[str, object] | None:
    return {name: value for name, value in options.items() if value is not None} or None


def _system_apart(ask: Ask) -> tuple[str | None, list[ChatMessage]]:
    """The system messages as one text, and the others; a request of system messages alone is the user's."""
    system = "\n\n".join(message["content"] for message in ask.messages if message["role"] == "system")
    rest = [message for message in _plain(ask) if message["role"] != "system"]
    return (system or None, rest) if rest else (None, [{"role": "user", "content": system}])


def _one_text(messages: Sequence[ChatMessage]) -> str:
    """The messages with blank lines between; if there are examples among them, under their speakers' names."""
    if all(message["role"] != "assistant" for message in messages):
        return "\n\n".join(message["content"] for message in messages)
    titles = {"user": "User:\n", "assistant": "Assistant:\n"}
    parts = [titles.get(message["role"], "") + message["content"] for message in messages]
    return "\n\n".join([*parts, "Assistant:"])
