"""The real client libraries, each with a transport or model of its own kind that needs no network.

Each test is skipped where its library is not installed: `pip install istar-lite[clients]` brings them all.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import json
import threading
from collections.abc import Callable, Generator, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from istar_lite.errors import BadInput
from istar_lite.llm import Answer, Ask, adrive, as_llm, drive

MESSAGES = [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": "Name a fruit."},
    {"role": "assistant", "content": "Pear."},
    {"role": "user", "content": "Name a colour."},
]
SCHEMA = {"type": "object", "properties": {"memories": {"type": "array"}}}
TEXT = "Be brief.\n\nUser:\nName a fruit.\n\nAssistant:\nPear.\n\nUser:\nName a colour.\n\nAssistant:"
TEXT_WITHOUT_SYSTEM = TEXT.removeprefix("Be brief.\n\n")


def run_sync(llm: Any, **options: Any) -> Answer:
    return drive(one_question(**options), llm, timeout=30.0)


def run_async(llm: Any, **options: Any) -> Answer:
    return asyncio.run(adrive(one_question(**options), llm, timeout=30.0))


BOTH_RUNS = pytest.mark.parametrize("run", [run_sync, run_async])
KINDS = pytest.mark.parametrize("asynchronous", [False, True], ids=["sync-client", "async-client"])
Run = Callable[..., Answer]


def one_question(**options: Any) -> Generator[Ask, Answer, Answer]:
    return (yield Ask(MESSAGES, "extract", **options))


def needs(library: str) -> Any:
    return pytest.importorskip(library, reason=f"needs the client library {library}: pip install istar-lite[clients]")


class Server:
    """Answers HTTP requests from a function, without a network; `http` is the library that the client is built on."""

    def __init__(self, http: Any, reply: Callable[[dict[str, Any]], tuple[int, dict[str, Any]]]) -> None:
        self.http = http
        self.transport = http.MockTransport(self.handle)
        self.reply = reply
        self.seen: list[dict[str, Any]] = []

    def handle(self, request: Any) -> Any:
        self.seen.append(json.loads(request.content))
        status, body = self.reply(self.seen[-1])
        return self.http.Response(status, json=body)


def http_of(client_library: Any) -> Any:
    """httpx, or its successor in newer clients."""
    base = client_library._base_client
    return getattr(base, "httpx2", None) or base.httpx


def chat_completion(request: dict[str, Any]) -> tuple[int, dict[str, Any]]:
    return 200, {
        "id": "1",
        "object": "chat.completion",
        "created": 1,
        "model": "small-2026-01",
        "choices": [{"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": "red"}}],
        "usage": {"prompt_tokens": 12, "completion_tokens": 1, "total_tokens": 13},
    }


Reply = Callable[[dict[str, Any]], tuple[int, dict[str, Any]]]


def openai_client(asynchronous: bool, reply: Reply = chat_completion) -> tuple[Any, Server]:
    openai = needs("openai")
    server = Server(http_of(openai), reply)
    options = {"api_key": "none", "base_url": "http://model.test/v1", "max_retries": 0}
    if asynchronous:
        http_client = server.http.AsyncClient(transport=server.transport)
        return openai.AsyncOpenAI(http_client=http_client, **options), server
    return openai.OpenAI(http_client=server.http.Client(transport=server.transport), **options), server


@BOTH_RUNS
@KINDS
def test_openai(run: Run, asynchronous: bool) -> None:
    client, server = openai_client(asynchronous)
    answer = run(as_llm(client, "small"), max_tokens=5, temperature=0.3, schema=SCHEMA)
    assert answer.error is None
    assert (answer.text, answer.model, answer.tokens_in, answer.tokens_out) == ("red", "small-2026-01", 12, 1)
    assert server.seen == [
        {
            "model": "small",
            "messages": MESSAGES,
            "max_tokens": 5,
            "temperature": 0.3,
            "response_format": {"type": "json_schema", "json_schema": {"name": "extract", "schema": SCHEMA}},
        }
    ]


@BOTH_RUNS
@KINDS
def test_openai_models_that_refuse_options_are_asked_without_them(run: Run, asynchronous: bool) -> None:
    def picky(request: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        for name in ("max_tokens", "temperature"):
            if name in request:
                message = f"Unsupported parameter: '{name}' is not supported with this model."
                return 400, {"error": {"message": message, "param": name, "code": "unsupported_parameter"}}
        return chat_completion(request)

    client, server = openai_client(asynchronous, picky)
    assert run(as_llm(client, "new"), max_tokens=5, temperature=0.3).text == "red"
    assert server.seen[-1] == {"model": "new", "messages": MESSAGES, "max_completion_tokens": 5}


@BOTH_RUNS
def test_an_error_of_the_server_is_the_clients_own_exception(run: Run) -> None:
    client, server = openai_client(False, lambda request: (429, {"error": {"message": "slow down"}}))
    answer = run(as_llm(client, "small"))
    assert type(answer.error).__name__ == "RateLimitError"
    assert len(server.seen) == 1


def test_a_client_of_openai_without_a_model_is_refused() -> None:
    with pytest.raises(BadInput, match="OpenAI"):
        as_llm(openai_client(False)[0])


@pytest.fixture
def local_server() -> Iterator[str]:
    """A server on the loopback that keeps connections open."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["content-length"]))
            body = json.dumps(chat_completion({})[1]).encode()
            self.send_response(200)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *arguments: Any) -> None:
            pass

        def handle(self) -> None:
            with contextlib.suppress(ConnectionError):  # the client drops connections of loops that have ended
                super().handle()

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}/v1"
    server.shutdown()
    thread.join()
    server.server_close()


@BOTH_RUNS
@pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning")
def test_an_async_client_with_open_connections_serves_one_loop_after_another(run: Run, local_server: str) -> None:
    openai = needs("openai")
    llm = as_llm(openai.AsyncOpenAI(api_key="none", base_url=local_server, max_retries=0), "small")
    assert [run(llm).text for _ in range(5)] == ["red"] * 5


@BOTH_RUNS
@KINDS
def test_anthropic(run: Run, asynchronous: bool) -> None:
    anthropic = needs("anthropic")

    def message(request: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        content = [{"type": "thinking", "thinking": "hm", "signature": "x"}, {"type": "text", "text": "red"}]
        usage = {"input_tokens": 12, "output_tokens": 1}
        return 200, {"id": "1", "type": "message", "role": "assistant", "model": "small-2026-01",
                     "content": content, "stop_reason": "end_turn", "stop_sequence": None, "usage": usage}  # fmt: skip

    server = Server(http_of(anthropic), message)
    if asynchronous:
        http_client = server.http.AsyncClient(transport=server.transport)
        client = anthropic.AsyncAnthropic(api_key="none", http_client=http_client)
    else:
        client = anthropic.Anthropic(api_key="none", http_client=server.http.Client(transport=server.transport))
    answer = run(as_llm(client, "small"), temperature=0.3, schema=SCHEMA)
    assert answer.error is None
    assert (answer.text, answer.model, answer.tokens_in, answer.tokens_out) == ("red", "small-2026-01", 12, 1)
    server.seen[0].pop("temperature", None)  # accepted by some versions of the client
    assert server.seen == [{"model": "small", "max_tokens": 4096, "system": "Be brief.", "messages": MESSAGES[1:]}]
    run(as_llm(client, "small"), max_tokens=5)
    assert server.seen[1]["max_tokens"] == 5


@BOTH_RUNS
@KINDS
def test_ollama(run: Run, asynchronous: bool) -> None:
    ollama = needs("ollama")
    counts = {"prompt_eval_count": 12, "eval_count": 1}
    reply = {"model": "small", "message": {"role": "assistant", "content": "red"}, "done": True, **counts}
    server = Server(needs("httpx"), lambda request: (200, reply))
    client = (ollama.AsyncClient if asynchronous else ollama.Client)(transport=server.transport)
    answer = run(as_llm(client, "small"), max_tokens=5, temperature=0.3, schema=SCHEMA)
    assert answer.error is None
    assert (answer.text, answer.model, answer.tokens_in, answer.tokens_out) == ("red", "small", 12, 1)
    request = server.seen[0]
    assert request["messages"] == MESSAGES
    assert request["format"] == SCHEMA
    assert request["options"] == {"num_predict": 5, "temperature": 0.3}
    run(as_llm(client, "small"))
    assert not {"format", "options"} & {name for name, value in server.seen[1].items() if value}


def test_the_ollama_module_is_a_client_too() -> None:
    assert as_llm(needs("ollama"), "small").name == "small"  # type: ignore[attr-defined]


@BOTH_RUNS
@KINDS
def test_litellm(run: Run, asynchronous: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LITELLM_LOCAL_MODEL_COST_MAP", "True")  # otherwise the import asks the network
    litellm = needs("litellm")
    function = litellm.acompletion if asynchronous else litellm.completion
    with pytest.raises(BadInput, match="model"):
        as_llm(function)
    bound = functools.partial(function, model="openai/small", mock_response="red")
    answer = run(as_llm(bound), max_tokens=5, temperature=0.3, schema=SCHEMA)
    assert answer.error is None
    assert (answer.text, answer.model) == ("red", "small")
    assert answer.tokens_out is not None


@BOTH_RUNS
def test_langchain(run: Run) -> None:
    fake = needs("langchain_core.language_models.fake_chat_models")
    messages = needs("langchain_core.messages")
    usage = {"input_tokens": 12, "output_tokens": 1, "total_tokens": 13}
    seen: list[Any] = []

    class Model(fake.GenericFakeChatModel):
        temperature: float | None = None

        def _generate(self, messages: Any, stop: Any = None, run_manager: Any = None, **options: Any) -> Any:
            seen.append(([(message.type, message.content) for message in messages], options))
            return super()._generate(messages, stop, run_manager)

    reply = messages.AIMessage("red", usage_metadata=usage, response_metadata={"model_name": "small"})
    answer = run(Model(messages=iter([reply])), max_tokens=5, temperature=0.3, schema=SCHEMA)
    assert answer.error is None
    assert (answer.text, answer.model, answer.tokens_in, answer.tokens_out) == ("red", "small", 12, 1)
    ((conversation, options),) = seen
    assert conversation == [
        ("system", "Be brief."), ("human", "Name a fruit."), ("ai", "Pear."), ("human", "Name a colour.")
    ]  # fmt: skip
    assert {name: options[name] for name in ("max_tokens", "temperature") if name in options} == {"temperature": 0.3}


@BOTH_RUNS
def test_langchain_contents_in_parts(run: Run) -> None:
    fake = needs("langchain_core.language_models.fake_chat_models")
    messages = needs("langchain_core.messages")
    reply = messages.AIMessage([{"type": "reasoning", "reasoning": "hm"}, {"type": "text", "text": "red"}])
    assert run(fake.GenericFakeChatModel(messages=iter([reply]))).text == "red"


@BOTH_RUNS
def test_pydantic_ai(run: Run) -> None:
    pydantic_ai = needs("pydantic_ai")
    from pydantic_ai.messages import ModelResponse, TextPart
    from pydantic_ai.models.function import FunctionModel

    seen: list[Any] = []

    def reply(messages: Any, info: Any) -> Any:
        seen.append((messages[-1].parts[-1].content, messages[-1].instructions, info.model_settings))
        return ModelResponse(parts=[TextPart("red")])

    answer = run(pydantic_ai.Agent(FunctionModel(reply, model_name="small")), max_tokens=5, temperature=0.3)
    assert answer.error is None
    assert (answer.text, answer.model) == ("red", "small")
    assert answer.tokens_in is not None
    assert answer.tokens_in > 0
    ((text, instructions, settings),) = seen
    assert (text, instructions) == (TEXT_WITHOUT_SYSTEM, "Be brief.")
    assert settings == {"max_tokens": 5, "temperature": 0.3}


@BOTH_RUNS
def test_a_pydantic_ai_agent_with_its_test_model(run: Run) -> None:
    pydantic_ai = needs("pydantic_ai")
    from pydantic_ai.models.test import TestModel

    assert run(pydantic_ai.Agent(TestModel(custom_output_text="red"))).text == "red"


@BOTH_RUNS
@KINDS
def test_llm_package(run: Run, asynchronous: bool) -> None:
    llm = needs("llm")
    seen: list[Any] = []

    class Options(llm.Options):  # type: ignore[name-defined,misc]
        max_tokens: int | None = None

    class Tiny(llm.Model):  # type: ignore[name-defined,misc]
        model_id = "tiny"
        supports_schema = True

        def execute(self, prompt: Any, stream: bool, response: Any, conversation: Any) -> Iterator[str]:
            seen.append((prompt.prompt, prompt.system, prompt.schema, prompt.options.max_tokens, stream))
            response.set_usage(input=12, output=1)
            yield "re"
            yield "d"

    class AsyncTiny(llm.AsyncModel):  # type: ignore[name-defined,misc]
        model_id = "tiny"
        supports_schema = True

        async def execute(self, prompt: Any, stream: bool, response: Any, conversation: Any) -> Any:
            for part in Tiny().execute(prompt, stream, response, conversation):
                yield part

    Tiny.Options = AsyncTiny.Options = Options
    model = AsyncTiny() if asynchronous else Tiny()
    answer = run(model, max_tokens=5, temperature=0.3, schema=SCHEMA)
    assert answer.error is None
    assert (answer.text, answer.model, answer.tokens_in, answer.tokens_out) == ("red", "tiny", 12, 1)
    assert seen == [(TEXT_WITHOUT_SYSTEM, "Be brief.", SCHEMA, 5, False)]
