"""Flows, the two drivers, and the shapes of models, without any client library."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import functools
import gc
import inspect
import threading
from collections.abc import Callable, Generator, Sequence
from types import SimpleNamespace
from typing import Any
from unittest.mock import AsyncMock, Mock

import pytest
from hypothesis import given
from hypothesis import strategies as st

from istar_lite.errors import BadInput, UnusableAnswer
from istar_lite.llm import Answer, Ask, adrive, as_llm, drive
from istar_lite.replies import read_reply
from istar_lite.testing import AsyncScriptedLLM, ScriptedLLM, SlowLLM

BRIEF = 0.05
LONG = 30.0
MESSAGES = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Name a colour."}]
WITH_EXAMPLE = [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": "Name a fruit."},
    {"role": "assistant", "content": "Pear."},
    {"role": "user", "content": "Name a colour."},
]
SCHEMA = {"type": "object", "properties": {"memories": {"type": "array"}}}

Run = Callable[..., Any]


def run_sync(flow: Any, llm: Any, timeout: float | None = LONG) -> Any:
    return drive(flow, llm, timeout=timeout)


def run_async(flow: Any, llm: Any, timeout: float | None = LONG) -> Any:
    return asyncio.run(adrive(flow, llm, timeout=timeout))


def run_sync_inside_a_loop(flow: Any, llm: Any, timeout: float | None = LONG) -> Any:
    async def main() -> Any:
        return drive(flow, llm, timeout=timeout)

    return asyncio.run(main())


EVERY_RUN = pytest.mark.parametrize("run", [run_sync, run_async, run_sync_inside_a_loop])
BOTH_RUNS = pytest.mark.parametrize("run", [run_sync, run_async])


def one_question(**options: Any) -> Generator[Ask, Answer, Answer]:
    return (yield Ask(MESSAGES, "extract", **options))


class Trail:
    """A flow that asks twice, and what happened to it."""

    def __init__(self) -> None:
        self.received: list[Answer] = []
        self.released_by: BaseException | None = None

    def flow(self) -> Generator[Ask, Answer, str]:
        try:
            for tag in ("observe", "reflect"):
                self.received.append((yield Ask(MESSAGES, tag)))
        except BaseException as error:
            self.released_by = error
            raise
        return "done"


# --- drivers -------------------------------------------------------------------------------------------------


@EVERY_RUN
@pytest.mark.parametrize("timeout", [None, LONG])
@pytest.mark.parametrize("scripted", [ScriptedLLM, AsyncScriptedLLM])
def test_a_flow_gets_each_answer_and_gives_its_result(run: Run, scripted: Any, timeout: float | None) -> None:
    trail, llm = Trail(), scripted(["red", "blue"])
    assert run(trail.flow(), llm, timeout) == "done"
    assert [answer.text for answer in trail.received] == ["red", "blue"]
    assert [answer.error for answer in trail.received] == [None, None]
    assert all(answer.seconds >= 0 for answer in trail.received)
    assert [call.tag for call in llm.calls] == ["observe", "reflect"]


@EVERY_RUN
def test_a_flow_that_asks_nothing_gives_its_result(run: Run) -> None:
    def flow() -> Generator[Ask, Answer, int]:
        return 7
        yield

    assert run(flow(), ScriptedLLM([])) == 7


@EVERY_RUN
@pytest.mark.parametrize("timeout", [None, LONG])
@pytest.mark.parametrize("scripted", [ScriptedLLM, AsyncScriptedLLM])
def test_what_the_model_raises_comes_back_as_an_error(run: Run, scripted: Any, timeout: float | None) -> None:
    trail, failure = Trail(), ValueError("429 Too Many Requests")
    assert run(trail.flow(), scripted([failure, "blue"]), timeout) == "done"
    assert trail.received[0].error is failure
    assert trail.received[0].text is None
    assert trail.received[1].text == "blue"


@EVERY_RUN
def test_a_reply_that_is_no_text_is_an_unusable_answer_that_names_its_type(run: Run) -> None:
    answer = run(one_question(), ScriptedLLM([42]))
    assert isinstance(answer.error, UnusableAnswer)
    assert "int" in str(answer.error)


@BOTH_RUNS
def test_a_model_that_hangs_is_left_after_the_time_limit(run: Run) -> None:
    slow = SlowLLM()
    try:
        answer = run(one_question(), slow, BRIEF)
        assert isinstance(answer.error, TimeoutError)
        assert "0.05 s" in str(answer.error)
        assert slow.started.is_set()
    finally:
        slow.release.set()


@BOTH_RUNS
def test_the_late_answer_of_a_call_is_dropped(run: Run) -> None:
    entered, release, finished = threading.Event(), threading.Event(), threading.Event()

    def llm(messages: list[Any], tag: str) -> str:
        if tag == "observe":
            entered.set()
            release.wait()
            finished.set()
            return "late"
        release.set()
        finished.wait()
        return "in time"

    trail = Trail()
    assert run(trail.flow(), llm, 0.5) == "done"
    assert isinstance(trail.received[0].error, TimeoutError)
    assert trail.received[1].text == "in time"


class Hanging:
    """An async model that never answers, and tells when it was asked and when it was stopped."""

    def __init__(self) -> None:
        self.asked, self.stopped = threading.Event(), threading.Event()

    async def __call__(self, messages: list[Any]) -> str:
        self.asked.set()
        try:
            await asyncio.Event().wait()
        finally:
            self.stopped.set()
        return "never"


async def until(event: threading.Event) -> None:
    async with asyncio.timeout(LONG):
        while not event.is_set():
            await asyncio.sleep(0)


def test_an_async_model_that_hangs_is_cancelled_at_the_time_limit() -> None:
    async def main(llm: Hanging) -> Answer:
        answer = await adrive(one_question(), llm, timeout=BRIEF)
        await until(llm.stopped)  # here: the end of `asyncio.run` would cancel it anyway
        return answer

    assert isinstance(asyncio.run(main(Hanging())).error, TimeoutError)
    llm = Hanging()
    assert isinstance(drive(one_question(), llm, timeout=BRIEF).error, TimeoutError)
    assert llm.stopped.wait(LONG)


class Stubborn:
    """An async model that goes on until `release`, whatever cancels it."""

    def __init__(self) -> None:
        self.release = threading.Event()

    async def __call__(self, messages: list[Any]) -> str:
        while not self.release.is_set():
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.sleep(0.001)
        return "late"


def test_an_async_model_that_ignores_its_cancellation_is_left_too() -> None:
    llm = Stubborn()

    async def main() -> Answer:
        try:
            return await adrive(one_question(), llm, timeout=BRIEF)
        finally:
            llm.release.set()  # `asyncio.run` itself waits for whatever is left

    assert isinstance(asyncio.run(main()).error, TimeoutError)
    llm = Stubborn()
    assert isinstance(drive(one_question(), llm, timeout=BRIEF).error, TimeoutError)
    llm.release.set()


def test_an_async_model_that_blocks_its_loop_is_left_by_the_sync_driver() -> None:
    release = threading.Event()

    async def llm(messages: list[Any]) -> str:
        release.wait()
        return "late"

    assert isinstance(drive(one_question(), llm, timeout=BRIEF).error, TimeoutError)
    assert drive(one_question(), AsyncScriptedLLM(["red"]), timeout=LONG).text == "red"
    release.set()


@BOTH_RUNS
def test_a_time_out_of_the_models_own_is_told_in_its_own_words(run: Run) -> None:
    answer = run(one_question(), ScriptedLLM([TimeoutError("read timed out")]))
    assert str(answer.error) == "read timed out"


@EVERY_RUN
@pytest.mark.parametrize("timeout", [None, LONG])
@pytest.mark.parametrize("stop", [KeyboardInterrupt, SystemExit, asyncio.CancelledError])
@pytest.mark.parametrize("scripted", [ScriptedLLM, AsyncScriptedLLM])
def test_stops_raised_by_the_model_release_the_flow_and_reach_the_host(
    run: Run, stop: type[BaseException], scripted: Any, timeout: float | None
) -> None:
    trail = Trail()
    with pytest.raises(stop):
        run(trail.flow(), scripted(["red", stop]), timeout)
    assert len(trail.received) == 1
    assert isinstance(trail.released_by, stop)


def test_an_interrupt_while_waiting_for_the_model_releases_the_flow(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(futures: Any, timeout: float | None) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("concurrent.futures.wait", interrupted)
    trail, slow = Trail(), SlowLLM()
    with pytest.raises(KeyboardInterrupt):
        drive(trail.flow(), slow, timeout=LONG)
    slow.release.set()
    assert isinstance(trail.released_by, KeyboardInterrupt)


@EVERY_RUN
def test_a_flow_that_swallows_the_stop_does_not_swallow_it_for_the_host(run: Run) -> None:
    def flow() -> Generator[Ask, Answer, str]:
        try:
            yield Ask(MESSAGES, "extract")
        except KeyboardInterrupt:
            yield Ask(MESSAGES, "extract")
        return "went on"

    swallowing = flow()
    with pytest.raises(KeyboardInterrupt):
        run(swallowing, ScriptedLLM([KeyboardInterrupt, "red"]))
    assert inspect.getgeneratorstate(swallowing) == inspect.GEN_CLOSED


@EVERY_RUN
def test_an_error_of_the_flow_itself_reaches_the_host(run: Run) -> None:
    def flow() -> Generator[Ask, Answer, None]:
        yield Ask(MESSAGES, "extract")
        raise LookupError("the row is gone")

    with pytest.raises(LookupError, match="the row is gone"):
        run(flow(), ScriptedLLM(["red"]))


def test_a_sync_call_without_time_limit_starts_no_thread() -> None:
    def llm(messages: list[Any]) -> str:
        return threading.current_thread().name

    assert drive(one_question(), llm, timeout=None).text == threading.current_thread().name


def test_a_sync_model_and_the_steps_of_a_flow_leave_the_loop_free() -> None:
    ticked = threading.Event()

    def llm(messages: list[Any]) -> str:
        return "ticked" if ticked.wait(LONG) else "blocked"

    def flow() -> Generator[Ask, Answer, tuple[str | None, bool]]:
        stepped = second.wait(LONG)
        answer = yield Ask(MESSAGES, "extract")
        return answer.text, stepped

    second = threading.Event()

    async def main() -> Any:
        running = asyncio.ensure_future(adrive(flow(), llm, timeout=LONG))
        await asyncio.sleep(0)
        second.set()
        await asyncio.sleep(0)
        ticked.set()
        return await running

    assert asyncio.run(main()) == ("ticked", True)


def test_a_host_that_cancels_while_the_model_thinks_releases_the_flow() -> None:
    trail, slow = Trail(), SlowLLM()

    async def main() -> None:
        running = asyncio.ensure_future(adrive(trail.flow(), slow, timeout=LONG))
        await until(slow.started)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running

    asyncio.run(main())
    slow.release.set()
    assert isinstance(trail.released_by, asyncio.CancelledError)


def test_a_host_that_cancels_an_async_model_stops_it() -> None:
    trail, llm = Trail(), Hanging()

    async def main() -> None:
        running = asyncio.ensure_future(adrive(trail.flow(), llm, timeout=LONG))
        await until(llm.asked)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        await until(llm.stopped)

    asyncio.run(main())
    assert isinstance(trail.released_by, asyncio.CancelledError)


@pytest.mark.parametrize("cancels", [1, 2])
def test_a_host_that_cancels_during_a_step_waits_for_its_end_and_then_releases(cancels: int) -> None:
    entered, leave = threading.Event(), threading.Event()
    events: list[str] = []

    def flow() -> Generator[Ask, Answer, None]:
        try:
            entered.set()
            leave.wait(LONG)
            events.append("step ended")
            yield Ask(MESSAGES, "extract")
        finally:
            events.append("released")

    async def main() -> None:
        llm = ScriptedLLM(["red"])
        running = asyncio.ensure_future(adrive(flow(), llm, timeout=LONG))
        await until(entered)
        for _ in range(cancels):
            running.cancel()
            await asyncio.sleep(0)
            assert not running.done()
        leave.set()
        with pytest.raises(asyncio.CancelledError):
            await running
        assert llm.calls == []

    asyncio.run(main())
    assert events == ["step ended", "released"]


def test_an_error_of_a_step_that_was_cancelled_meanwhile_is_not_complained_about() -> None:
    entered, leave = threading.Event(), threading.Event()
    complaints: list[Any] = []

    def flow() -> Generator[Ask, Answer, None]:
        entered.set()
        leave.wait(LONG)
        yield from failing()

    def failing() -> Generator[Ask, Answer, None]:
        raise LookupError("the row is gone")
        yield

    async def main() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda loop, context: complaints.append(context))
        running = asyncio.ensure_future(adrive(flow(), ScriptedLLM([]), timeout=LONG))
        await until(entered)
        running.cancel()
        await asyncio.sleep(0)
        leave.set()
        with pytest.raises(asyncio.CancelledError):
            await running

    asyncio.run(main())
    gc.collect()
    assert complaints == []


def test_a_call_that_was_left_behind_ends_quietly_and_keeps_no_process_alive(monkeypatch: pytest.MonkeyPatch) -> None:
    release = threading.Event()
    threads: list[threading.Thread] = []
    complaints: list[Any] = []
    monkeypatch.setattr(threading, "excepthook", complaints.append)

    def llm(messages: list[Any]) -> str:
        threads.append(threading.current_thread())
        release.wait()
        return "late"

    for run in (run_sync, run_async):
        assert isinstance(run(one_question(), llm, BRIEF).error, TimeoutError)
    release.set()
    for thread in threads:
        assert thread.daemon
        thread.join(LONG)
    assert len(threads) == 2
    assert complaints == []


def test_a_time_limit_of_the_host_around_the_async_driver_is_kept() -> None:
    trail, slow = Trail(), SlowLLM()

    async def main() -> None:
        async with asyncio.timeout(BRIEF):
            await adrive(trail.flow(), slow, timeout=LONG)

    with pytest.raises(TimeoutError):
        asyncio.run(main())
    slow.release.set()
    assert isinstance(trail.released_by, asyncio.CancelledError)


def test_a_driver_that_is_thrown_away_with_its_loop_closes_the_flow() -> None:
    trail, slow = Trail(), SlowLLM()
    running = adrive(trail.flow(), slow, timeout=LONG)

    async def until_asked() -> None:
        task = asyncio.ensure_future(running)
        await until(slow.started)
        assert not task.done()

    loop = asyncio.new_event_loop()
    loop.run_until_complete(until_asked())
    loop.close()
    running.close()
    slow.release.set()
    assert isinstance(trail.released_by, GeneratorExit)


@pytest.mark.parametrize("scripted", [ScriptedLLM, AsyncScriptedLLM])
def test_one_model_serves_two_loops_and_none(scripted: Any) -> None:
    llm = as_llm(scripted(["a", "b", "c", "d"]))
    assert run_async(one_question(), llm).text == "a"
    assert run_async(one_question(), llm).text == "b"
    assert run_sync(one_question(), llm).text == "c"
    assert run_sync_inside_a_loop(one_question(), llm).text == "d"


class PoolingModel:
    """Keeps a connection of the loop it was first asked in, and drops it when it proves dead, as httpx does."""

    def __init__(self) -> None:
        self.loop: asyncio.AbstractEventLoop | None = None

    async def __call__(self, messages: list[Any]) -> str:
        if self.loop is not None and self.loop is not asyncio.get_running_loop():
            self.loop = None
            raise RuntimeError("Event loop is closed")
        self.loop = asyncio.get_running_loop()
        return "red"


@BOTH_RUNS
def test_connections_of_a_loop_that_has_ended_cost_no_answer(run: Run) -> None:
    llm = PoolingModel()
    assert [run(one_question(), llm).text for _ in range(3)] == ["red"] * 3


@BOTH_RUNS
def test_a_loop_that_stays_closed_is_an_error(run: Run) -> None:
    async def llm(messages: list[Any]) -> str:
        raise RuntimeError("Event loop is closed")

    assert isinstance(run(one_question(), llm).error, RuntimeError)


@EVERY_RUN
def test_context_variables_of_the_host_reach_the_model(run: Run) -> None:
    trace: contextvars.ContextVar[str] = contextvars.ContextVar("trace", default="none")
    trace.set("host")

    def llm(messages: list[Any]) -> str:
        return trace.get()

    assert run(one_question(), llm).text == "host"


@EVERY_RUN
def test_half_an_emoji_in_an_answer_becomes_a_replacement_mark(run: Run) -> None:
    assert run(one_question(), ScriptedLLM(["ok \ud83d."])).text == "ok \ufffd."


# --- shapes --------------------------------------------------------------------------------------------------


@EVERY_RUN
def test_a_function_with_messages_gets_the_list(run: Run) -> None:
    def llm(messages: Any) -> str:
        return repr(messages)

    assert run(one_question(), llm).text == repr(MESSAGES)


def listed(request: list[dict[str, str]]) -> str:
    return f"{type(request).__name__} {len(request)}"


def sequenced(request: "Sequence[dict[str, str]]") -> str:  # noqa: UP037 - annotations come as text too
    return f"{type(request).__name__} {len(request)}"


class Bound:
    def ask(self, messages: Any) -> str:
        return f"{type(messages).__name__} {len(messages)}"


@pytest.mark.parametrize(
    "llm",
    [
        listed,
        sequenced,
        Bound().ask,
        lambda messages: f"{type(messages).__name__} {len(messages)}",
        lambda *, messages: f"{type(messages).__name__} {len(messages)}",
        lambda **options: f"{type(options['messages']).__name__} {len(options['messages'])}",
        functools.partial(lambda extra, messages: f"{type(messages).__name__} {len(messages)}", "bound"),
    ],
)
def test_every_way_to_want_the_list_is_seen(llm: Any) -> None:
    assert as_llm(llm)(MESSAGES) == "list 2"


def test_any_other_function_gets_system_and_user_as_one_text() -> None:
    assert as_llm(lambda prompt: f"<{prompt}>")(MESSAGES) == "<Be brief.\n\nName a colour.>"
    assert as_llm(lambda *parts: repr(parts))(MESSAGES) == repr(("Be brief.\n\nName a colour.",))


def test_examples_in_one_text_stand_under_their_speakers_names() -> None:
    assert as_llm(lambda prompt: prompt)(WITH_EXAMPLE) == (
        "Be brief.\n\nUser:\nName a fruit.\n\nAssistant:\nPear.\n\nUser:\nName a colour.\n\nAssistant:"
    )


def test_a_built_in_without_a_signature_gets_the_text_alone() -> None:
    assert as_llm({"Be brief.\n\nName a colour.": "red"}.get)(MESSAGES, max_tokens=5) == "red"


def test_options_that_a_function_does_not_accept_are_left_out() -> None:
    seen: list[dict[str, Any]] = []

    def some(messages: Any, *, tag: str, max_tokens: int | None = 99) -> str:
        seen.append({"tag": tag, "max_tokens": max_tokens})
        return ""

    def all_of_them(messages: Any, **options: Any) -> str:
        seen.append(options)
        return ""

    for llm in (some, all_of_them):
        as_llm(llm)(MESSAGES, max_tokens=5, temperature=0.3, tag="extract", schema=SCHEMA)
    assert seen[0] == {"tag": "extract", "max_tokens": 5}
    assert seen[1] == {"tag": "extract", "max_tokens": 5, "temperature": 0.3, "schema": SCHEMA}


def test_options_that_were_not_given_leave_the_functions_own_defaults() -> None:
    def llm(messages: Any, temperature: float = 0.9) -> str:
        return str(temperature)

    assert as_llm(llm)(MESSAGES) == "0.9"
    assert as_llm(llm)(MESSAGES, temperature=0.0) == "0.0"


def test_options_that_a_function_demands_are_given_as_none() -> None:
    class Host:
        def chat(self, messages: Any, max_tokens: int | None, temperature: float | None, tag: str | None) -> str:
            return f"{max_tokens} {temperature} {tag}"

    assert as_llm(Host())(MESSAGES, tag="retro") == "None None retro"
    assert as_llm(Host().chat)(MESSAGES, max_tokens=5) == "5 None None"


def test_a_type_error_inside_the_function_is_the_functions_own() -> None:
    calls: list[int] = []

    def llm(messages: Any, tag: str | None = None) -> str:
        calls.append(1)
        return len(5)  # type: ignore[arg-type]

    assert isinstance(drive(one_question(), llm, timeout=None).error, TypeError)
    assert len(calls) == 1


def test_a_function_that_changes_its_messages_changes_none_of_the_flows() -> None:
    def llm(messages: list[dict[str, str]]) -> str:
        messages[0]["content"] = "changed"
        messages.clear()
        return "ok"

    original = [dict(message) for message in MESSAGES]
    as_llm(llm)(MESSAGES)
    assert original == MESSAGES


def test_a_sync_function_that_returns_an_awaitable_is_awaited() -> None:
    async def inner() -> str:
        return "red"

    for run in (run_sync, run_async, run_sync_inside_a_loop):
        assert run(one_question(), lambda messages: inner()).text == "red"


@EVERY_RUN
def test_an_object_with_an_async_call_is_awaited(run: Run) -> None:
    class Host:
        async def __call__(self, prompt: str) -> SimpleNamespace:
            return SimpleNamespace(text=prompt)

    assert run(one_question(), Host()).text == "Be brief.\n\nName a colour."


def test_a_model_with_a_sync_and_an_async_way_is_asked_by_the_one_that_fits() -> None:
    class Runnable:
        def invoke(self, messages: Any) -> str:
            return "sync"

        async def ainvoke(self, messages: Any) -> str:
            return "async"

    assert run_sync(one_question(), Runnable()).text == "sync"
    assert run_sync_inside_a_loop(one_question(), Runnable()).text == "sync"
    assert run_async(one_question(), Runnable()).text == "async"


@EVERY_RUN
def test_mocks_are_functions(run: Run) -> None:
    assert run(one_question(), Mock(return_value="red")).text == "red"
    assert run(one_question(), AsyncMock(return_value="red")).text == "red"


@EVERY_RUN
def test_an_object_with_chat_gets_messages_and_its_options(run: Run) -> None:
    class Host:
        def chat(self, messages: Any, max_tokens: int, temperature: float, tag: str) -> dict[str, str]:
            return {"content": f"{len(messages)} {max_tokens} {temperature} {tag}"}

    assert run(one_question(max_tokens=9, temperature=0.3), Host()).text == "2 9 0.3 extract"


@EVERY_RUN
def test_an_object_with_an_async_chat_is_awaited(run: Run) -> None:
    class Host:
        async def chat(self, messages: Any) -> str:
            return f"{len(messages)}"

    assert run(one_question(), Host()).text == "2"


def test_an_adapted_model_comes_back_as_it_is() -> None:
    llm = as_llm(lambda prompt: prompt, "small")
    assert as_llm(llm) is llm
    assert as_llm(llm, "small") is llm
    with pytest.raises(BadInput) as caught:
        as_llm(llm, "large")
    assert caught.value.field == "model"


@pytest.mark.parametrize(
    ("given", "named"),
    [
        (None, "NoneType"),
        ("gpt-4o", "str"),
        (42, "int"),
        (object(), "object"),
        (ScriptedLLM, "ScriptedLLM is a class"),
        (lambda: "red", "takes no argument"),
        (lambda prompt, key: "red", "wants key"),
    ],
)
def test_what_cannot_be_asked_is_named_with_what_can(given: object, named: str) -> None:
    with pytest.raises(BadInput, match=named) as caught:
        as_llm(given)
    assert caught.value.field == "llm"


def openai_like(create: Any) -> SimpleNamespace:
    return SimpleNamespace(chat=SimpleNamespace(completions=SimpleNamespace(create=create)))


def test_a_client_without_the_name_of_a_model_is_refused() -> None:
    with pytest.raises(BadInput, match="many models") as caught:
        as_llm(openai_like(lambda **options: "red"))
    assert caught.value.field == "model"
    with pytest.raises(BadInput, match="many models"):
        as_llm(lambda prompt, model: "red")
    assert as_llm(lambda prompt, model: model, "small")(MESSAGES) == "small"


def test_a_completion_function_gets_the_model_and_the_schema() -> None:
    seen: list[dict[str, Any]] = []

    def completion(model: str, messages: list[Any], temperature: float | None = None, **options: Any) -> Any:
        seen.append({"model": model, "temperature": temperature, **options})
        return {
            "choices": [{"message": {"content": "red"}}],
            "usage": {"prompt_tokens": 8, "completion_tokens": 1},
        }

    for run in (run_sync, run_async):
        answer = run(one_question(max_tokens=5, temperature=0.3, schema=SCHEMA), as_llm(completion, "small"))
        assert (answer.text, answer.tokens_in, answer.tokens_out, answer.model) == ("red", 8, 1, "small")
    response_format = {"type": "json_schema", "json_schema": {"name": "extract", "schema": SCHEMA}}
    assert seen[0] == {
        "model": "small", "temperature": 0.3, "max_tokens": 5, "response_format": response_format
    }  # fmt: skip
    with pytest.raises(BadInput, match="many models"):
        as_llm(completion)
    assert as_llm(functools.partial(completion, model="bound"))(MESSAGES) == "red"
    assert seen[-1]["model"] == "bound"


class Refused(Exception):
    def __init__(self, message: str, status_code: int = 400) -> None:
        super().__init__(message)
        self.status_code = status_code


def picky_create(seen: list[dict[str, Any]]) -> Callable[..., Any]:
    def create(**options: Any) -> str:
        seen.append(options)
        if "max_tokens" in options:
            raise Refused("Unsupported parameter: 'max_tokens'. Use 'max_completion_tokens' instead.")
        if "temperature" in options:
            raise Refused("Unsupported value: 'temperature' does not support 0.3 with this model.")
        if "response_format" in options:
            raise Refused("'response_format' of type 'json_schema' is not supported with this model.")
        return "red"

    return create


@BOTH_RUNS
@pytest.mark.parametrize("asynchronous", [False, True])
def test_options_that_the_server_refuses_are_renamed_or_left_out_from_then_on(run: Run, asynchronous: bool) -> None:
    seen: list[dict[str, Any]] = []
    create = picky_create(seen)

    async def acreate(**options: Any) -> str:
        return create(**options)

    llm = as_llm(openai_like(acreate if asynchronous else create), "o9")
    question = functools.partial(one_question, max_tokens=5, temperature=0.3, schema=SCHEMA)
    assert run(question(), llm).text == "red"
    assert len(seen) == 4
    assert run(question(), llm).text == "red"
    assert len(seen) == 5
    assert seen[-1] == {"model": "o9", "messages": MESSAGES, "max_completion_tokens": 5}


@pytest.mark.parametrize(
    "error",
    [
        Refused("max_tokens is too large: 5. This model supports at most 4"),
        Refused("max_tokens is not supported", status_code=500),
        Refused("the prompt is not supported"),
        ValueError("Unsupported parameter: max_tokens"),
    ],
)
def test_other_errors_of_a_server_are_errors(error: Exception) -> None:
    calls: list[int] = []

    def create(**options: Any) -> str:
        calls.append(1)
        raise error

    assert drive(one_question(max_tokens=5), as_llm(openai_like(create), "m"), timeout=None).error is error
    assert len(calls) == 1


# --- replies -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("reply", "text"),
    [
        ("red", "red"),
        ("", ""),
        (None, ""),
        ({"content": "red"}, "red"),
        ({"content": None}, ""),
        ({"text": "red"}, "red"),
        ({"message": {"content": "red"}}, "red"),
        ({"choices": [{"message": {"content": "red"}}]}, "red"),
        ({"choices": [{"message": {"content": None}}]}, ""),
        ({"choices": [{"text": "red"}]}, "red"),
        (SimpleNamespace(content="red"), "red"),
        (SimpleNamespace(text="red"), "red"),
        (SimpleNamespace(text=lambda: "red"), "red"),
        (SimpleNamespace(output="red"), "red"),
        (SimpleNamespace(message=SimpleNamespace(content="red")), "red"),
        (SimpleNamespace(choices=[SimpleNamespace(message=SimpleNamespace(content="red"))]), "red"),
        (
            {
                "content": [
                    {"type": "thinking", "thinking": "hm", "text": "hm"},
                    {"type": "text", "text": "red"},
                ]
            },
            "red",
        ),
        ({"content": ["re", {"type": "text", "text": "d"}, {"type": "image"}]}, "red"),
        (SimpleNamespace(content=[SimpleNamespace(type="text", text="red")]), "red"),
        ({"content": []}, ""),
    ],
)
def test_the_text_of_a_reply_is_found_in_every_shape(reply: object, text: str) -> None:
    assert read_reply(reply) == text


@pytest.mark.parametrize(
    "reply", [42, True, b"red", [], ["red"], {}, {"memories": []}, object(), {"choices": []}, {"content": 5}]
)
def test_a_reply_without_text_is_unusable(reply: object) -> None:
    with pytest.raises(UnusableAnswer, match=type(reply).__name__):
        read_reply(reply)


@pytest.mark.parametrize(
    ("usage", "counts"),
    [
        ({"usage": {"prompt_tokens": 8, "completion_tokens": 1}}, (8, 1)),
        ({"usage": SimpleNamespace(input_tokens=8, output_tokens=1)}, (8, 1)),
        ({"usage": lambda: SimpleNamespace(input=8, output=1)}, (8, 1)),
        ({"usage_metadata": {"input_tokens": 8, "output_tokens": 1}}, (8, 1)),
        ({"prompt_eval_count": 8, "eval_count": 1}, (8, 1)),
        ({"usage": {"prompt_tokens": 0, "completion_tokens": 0}}, (0, 0)),
        ({"usage": {"prompt_tokens": "8", "completion_tokens": True}}, (None, None)),
        ({"usage": None}, (None, None)),
        ({}, (None, None)),
    ],
)
def test_token_counts_are_read_where_the_reply_tells_them(usage: dict[str, Any], counts: tuple[Any, Any]) -> None:
    for reply in ({"content": "red", **usage}, SimpleNamespace(content="red", **usage)):
        read = read_reply(reply)
        assert (read.tokens_in, read.tokens_out) == counts


def test_the_replys_own_model_name_wins_over_the_one_asked_for() -> None:
    reply = {"content": "red", "model": "small-2026-01"}
    assert drive(one_question(), as_llm(lambda prompt: reply, "small"), timeout=None).model == "small-2026-01"
    assert drive(one_question(), as_llm(lambda prompt: "red", "small"), timeout=None).model == "small"
    assert drive(one_question(), lambda prompt: "red", timeout=None).model is None


KEYS = st.sampled_from(["content", "text", "choices", "message", "usage"])
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(st.characters(exclude_categories=())) | st.binary(),
    lambda inner: st.lists(inner) | st.dictionaries(KEYS, inner),
    max_leaves=12,
)


@given(JSON)
def test_any_reply_at_all_is_storable_text_or_unusable(reply: object) -> None:
    try:
        text = read_reply(reply)
    except UnusableAnswer:
        return
    text.encode()
