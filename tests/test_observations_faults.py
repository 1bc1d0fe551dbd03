"""Observational memory when things go wrong: models that fail, hang, lie and come late; processes that die."""

from __future__ import annotations

import asyncio
import platform
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from time import monotonic
from typing import Any

import pytest
from observing import condensed, observed, problems, text_tokens

from istar_lite import Budget, Memory, ObservationConfig
from istar_lite.llm import Answer
from istar_lite.observations.work import work_session
from istar_lite.testing import FixedClock, ScriptedLLM, SlowLLM

MODEL = {"observe": observed, "reflect": condensed}
CONFIG = ObservationConfig(buffer_min_tokens=100, buffer_target_cycles=100, reflection_threshold=1.0)
GARBAGE = "I looked at the messages and everything is fine."
LOOP = "<observations>\n" + "* - (09:00) the same thing about word again\n" * 60


@pytest.fixture
def opened(path: Path, clock: FixedClock) -> Iterator[Callable[..., Memory]]:
    """Opens the same file, as often as a test wants, with a model of its choice."""
    memories: list[Memory] = []

    def open_(llm: Any = None, **more: Any) -> Memory:
        memories.append(Memory(path, embedder=None, clock=clock, llm=llm, **more))
        return memories[-1]

    yield open_
    for memory in memories:
        memory.close()


def watch(memory: Memory, window: int = 2_000, **more: Any) -> Any:
    return memory.observe("long", context_window=window, **{"config": CONFIG, "background": None, **more})


def talk(observing: Any, exchanges: int, start: int = 1) -> list[Any]:
    said = []
    for number in range(start, start + exchanges):
        said.append(observing.add("user", f"question {number} " + "word " * 20))
        said.append(observing.add("assistant", f"reply {number} " + "word " * 20))
    return said


class Flaky:
    """A model that does what it is told until it is told otherwise."""

    def __init__(self, does: Any) -> None:
        self.does = does
        self.asked = 0

    def __call__(self, messages: list[Any], tag: str | None = None) -> str:
        self.asked += 1
        if isinstance(self.does, BaseException):
            raise self.does
        if isinstance(self.does, str):
            return self.does
        return observed(messages) if tag == "observe" else condensed(messages)


# --- a model that fails (R18) ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fault", "told"),
    [
        (ConnectionError("429: too many requests"), "ConnectionError: 429"),
        (TimeoutError("no answer"), "TimeoutError"),
        (GARBAGE, "UnusableAnswer"),
        ("", "UnusableAnswer"),
        ("I'm sorry, I can't help with that.", "UnusableAnswer"),
    ],
)
def test_a_failing_model_costs_no_message_and_the_newest_are_shown(
    opened: Callable[..., Memory], clock: FixedClock, fault: Any, told: str
) -> None:
    llm = Flaky(fault)
    memory = opened(llm)
    observing = watch(memory)
    said = talk(observing, 40)
    newest = observing.add("user", "and now?")
    messages = observing.context()
    assert sum(map(text_tokens, messages)) < 1_800
    assert messages[-1]["content"] == newest.content
    shown = [message["content"] for message in messages[1:]]
    assert shown == [message.content for message in [*said, newest]][-len(shown) :]
    assert len(shown) > 50, "what fits is shown"
    state = observing.state()
    assert (state.failed, state.left_out) == (1, 81 - len(shown))
    assert told in str(state.last_error)
    assert f"{state.left_out} messages after that are neither shown nor in the log yet" in messages[0]["content"]
    assert {row["stage"] for row in memory.db.query("select stage from message_stage")} == {"raw"}
    llm.does = None
    clock.advance(40)
    assert memory.work() >= 1
    state = observing.state()
    assert (state.failed, state.due, state.last_error) == (0, 0, None)
    assert observing.context().left_out == 0


def test_a_host_that_only_looks_is_not_charged_again(opened: Callable[..., Memory]) -> None:
    llm = Flaky(ConnectionError("429"))
    observing = watch(opened(llm))
    talk(observing, 40)
    for _ in range(10):
        observing.context()
        observing.turn_end()
    assert llm.asked == 1
    talk(observing, 1, start=90)
    observing.context()
    assert llm.asked == 2, "the budget is broken and there is something new: at once"


def test_a_failure_in_the_background_waits_for_its_time(opened: Callable[..., Memory], clock: FixedClock) -> None:
    llm = Flaky(ConnectionError("429"))
    memory = opened(llm)
    observing = watch(memory)
    talk(observing, 5)
    asked = []
    for seconds in (0, 29, 1, 119, 1, 599, 1, 3_599, 1):
        clock.advance(seconds)
        observing.turn_end()
        memory.work()
        asked.append(llm.asked)
    assert asked == [1, 1, 2, 2, 3, 3, 4, 4, 5]
    memory.work(force=True)
    assert llm.asked == 6
    assert observing.state().failed == 1


def test_a_hanging_model_holds_the_host_no_longer_than_its_limit(opened: Callable[..., Memory]) -> None:
    llm = SlowLLM()
    observing = watch(opened(llm, llm_timeout=0.2), utility_window=500)
    talk(observing, 40)
    start = monotonic()
    messages = observing.context()
    assert monotonic() - start < 5
    assert messages.tokens < 1_800
    assert "TimeoutError" in str(observing.state().last_error)
    llm.release.set()


def test_all_calls_of_one_context_share_the_limit(opened: Callable[..., Memory]) -> None:
    release = threading.Event()
    asked: list[int] = []

    def llm(messages: list[Any]) -> str:
        asked.append(1)
        if len(asked) > 1:
            release.wait(10)
        return observed(messages)

    observing = watch(opened(llm, llm_timeout=0.5), utility_window=1_000)
    talk(observing, 60)
    start = monotonic()
    observing.context()
    assert monotonic() - start < 5
    state = observing.state()
    assert (state.failed, state.tokens_observed > 0) == (1, True), "what was answered in time counts"
    release.set()


@pytest.mark.parametrize("stop", [KeyboardInterrupt(), asyncio.CancelledError(), SystemExit(3)])
def test_what_means_stop_is_not_swallowed_and_the_work_is_due(opened: Callable[..., Memory], stop: Any) -> None:
    llm = Flaky(stop)
    memory = opened(llm)
    observing = watch(memory)
    talk(observing, 40)
    with pytest.raises(type(stop)):
        observing.context()
    state = observing.state()
    assert (state.in_flight, state.due, state.failed) == (0, 1, 0)
    memory.remember("the file is not locked")
    llm.does = None
    assert observing.context().left_out == 0


def test_an_interrupt_in_the_background_reaches_the_hosts_next_call(opened: Callable[..., Memory]) -> None:
    llm = Flaky(KeyboardInterrupt())
    observing = watch(opened(llm), background="thread")
    talk(observing, 5)
    observing.turn_end()
    observing._background._idle.wait(10)
    with pytest.raises(KeyboardInterrupt):
        observing.wait(10)
    state = observing.state()
    assert (state.in_flight, state.due) == (0, 1)
    llm.does = None
    observing.turn_end()
    assert observing.wait(10)
    assert observing.state().buffered == 1


def test_on_error_raise_reaches_the_host_but_not_the_background(opened: Callable[..., Memory]) -> None:
    llm = Flaky(ConnectionError("429"))
    observing = watch(opened(llm, on_error="raise"), background="thread")
    talk(observing, 5)
    observing.turn_end()
    assert observing.wait(10)
    assert observing.state().failed == 1
    talk(observing, 40)
    with pytest.raises(ConnectionError):
        observing.context()


def test_without_a_model_the_context_fits_and_the_work_waits(opened: Callable[..., Memory]) -> None:
    observing = watch(opened(None))
    talk(observing, 40)
    observing.turn_end()
    messages = observing.context()
    assert messages.tokens < 1_800
    assert messages.left_out > 0
    assert observing.trigger() == ()
    state = observing.state()
    assert (state.due, state.failed) == (1, 0)
    again = watch(opened(ScriptedLLM(MODEL)))
    assert again.context().left_out == 0


def test_a_spent_budget_stops_the_asking_and_nothing_else(opened: Callable[..., Memory]) -> None:
    llm = Flaky(None)
    memory = opened(llm, budget=Budget(calls_per_day=1))
    observing = watch(memory, utility_window=1_000)
    talk(observing, 60)
    messages = observing.context()
    assert llm.asked == 1
    assert messages.tokens < 1_800
    assert "BudgetSpent" in str(observing.state().last_error)


def test_a_read_only_file_can_be_looked_at(opened: Callable[..., Memory], path: Path) -> None:
    memory = opened(ScriptedLLM(MODEL))
    observing = watch(memory)
    talk(observing, 40)
    before = observing.context()
    state = observing.state()
    memory.close()
    with Memory(path, embedder=None, read_only=True) as looking:
        other = watch(looking)
        assert other.context() == before
        assert other.state() == state
        other.turn_end()
        assert "question 3 " in other.recall_tool()("question 3")


# --- lies and loops (R17) -------------------------------------------------------------------------------------


def test_an_observer_that_always_repeats_itself_costs_two_calls_a_try(opened: Callable[..., Memory]) -> None:
    llm = Flaky(LOOP)
    memory = opened(llm)
    observing = watch(memory)
    talk(observing, 5)
    observing.trigger()
    for _ in range(20):
        observing.turn_end()
        memory.work()
        observing.context()
    assert llm.asked == 2
    assert observing.state().tokens < 50


def test_an_answer_that_was_cut_off_leaves_its_span_due_and_less_is_asked_next(
    opened: Callable[..., Memory], clock: FixedClock
) -> None:
    cut = "<observations>\nDate: Jan 1, 2026\n" + "\n".join(f"* - (09:00) word {n} of many" for n in range(900))
    llm = Flaky(cut)
    memory = opened(llm)
    observing = watch(memory, window=100_000, config=ObservationConfig(buffer_min_tokens=100, buffer_token_cap=1_000))
    talk(observing, 20)
    observing.turn_end()
    memory.work()
    assert llm.asked == 2
    assert "cut off" in str(observing.state().last_error)
    assert observing.state().tokens_raw > 0
    llm.does = None
    clock.advance(60)
    memory.work()
    assert llm.asked > 3, "smaller pieces"
    assert observing.state().tokens_raw == 0


def test_a_reflector_that_always_fails_is_asked_five_times_and_the_log_stays(opened: Callable[..., Memory]) -> None:
    asked: list[str] = []

    def llm(messages: list[Any], tag: str | None = None) -> str:
        asked.append(str(tag))
        return observed(messages) if tag == "observe" else GARBAGE

    observing = watch(opened(llm), config=ObservationConfig(buffer_min_tokens=100, reflection_threshold=0.02))
    talk(observing, 40)
    log = ""
    for _ in range(10):
        observing.context()
        log = log or observing.state().observations
    assert asked.count("reflect") == 5
    assert observing.state().observations == log


# --- a giant (R10) --------------------------------------------------------------------------------------------


def test_the_pieces_of_a_giant_that_were_answered_are_not_paid_for_twice(
    opened: Callable[..., Memory], clock: FixedClock
) -> None:
    asked: list[str] = []
    fails_at = {3}

    def llm(messages: list[Any]) -> str:
        asked.append(messages[-1]["content"].split("Messages:")[1])
        if len(asked) in fails_at:
            raise ConnectionError("429")
        return observed(messages)

    memory = opened(llm)
    observing = watch(memory, utility_window=1_000)
    giant = "\n".join(f"line {n} of a long file" for n in range(400))
    observing.add("user", giant)
    assert observing.context().tokens < 1_800
    assert observing.state().failed == 1
    clock.advance(60)
    memory.work()
    assert observing.state().failed == 0
    told = "".join(asked[:2] + asked[3:])
    assert all(told.count(f"line {n} of a") == 1 for n in range(400))
    assert [row["detail"] for row in memory.db.query("select detail from task where state <> 'done'")] == []


def test_one_megabyte_is_kept_whole_and_its_last_line_is_found(opened: Callable[..., Memory]) -> None:
    observing = watch(opened(None))
    text = "filler words here\n" * 58_000 + "the vault opens with marigold"
    message = observing.add("user", text)
    assert message.content == text
    assert observing.context().tokens < 1_800
    assert "marigold" in observing.context()[-1]["content"]
    assert "[user]" in observing.recall_tool()("vault marigold")


@pytest.mark.parametrize("extra", [0, 1_700, 1_799, 1_800, 5_000])
def test_whatever_the_host_needs_itself_the_newest_message_is_there(opened: Callable[..., Memory], extra: int) -> None:
    observing = watch(opened(ScriptedLLM(MODEL)))
    talk(observing, 40)
    observing.add("user", "and now?")
    messages = observing.context(extra_tokens=extra)
    assert "and now?" in messages[-1]["content"]
    assert messages.tokens + extra < 1_800 or messages.tokens <= 40


# --- more than one at work, and dying at it -------------------------------------------------------------------


def begin(observing: Any) -> tuple[Any, Any]:
    """Work that has asked the model and waits for its answer: what another process would be doing."""
    flow = work_session(observing._watch, observing._watch.find())
    return flow, next(flow)


def answer(flow: Any, ask: Any) -> int:
    try:
        while True:
            ask = flow.send(Answer(observed(ask.messages)))
    except StopIteration as stop:
        return int(stop.value)


def test_one_observer_is_at_work_however_many_processes_there_are(opened: Callable[..., Memory]) -> None:
    llm = Flaky(None)
    one, other = watch(opened(Flaky(None))), watch(opened(llm))
    talk(one, 40)
    one.turn_end()
    flow, ask = begin(one)
    other.turn_end()
    messages = other.context()
    assert other.trigger() == ()
    assert other._services is not one._services
    assert llm.asked == 0
    assert messages.left_out > 0
    assert other.state().in_flight == 1
    assert answer(flow, ask) == 1
    assert other.context().left_out == 0
    assert llm.asked == 0


def test_a_dead_process_frees_its_claim(opened: Callable[..., Memory], clock: FixedClock) -> None:
    memory = opened(Flaky(None))
    observing = watch(memory)
    talk(observing, 5)
    observing.turn_end()
    flow, _ = begin(observing)
    assert observing.state().in_flight == 1
    memory.db.execute("update task set claim = ?", (f"{platform.node()}:999999999-dead/1/1",))
    memory.db.conn.commit()
    state = observing.state()
    assert (state.in_flight, state.due) == (0, 1)
    assert memory.work() == 1
    flow.close()
    assert observing.state().buffered == 1


def test_a_claim_of_another_machine_ends_with_its_time_and_the_late_result_is_dropped(
    opened: Callable[..., Memory], clock: FixedClock
) -> None:
    memory = opened(Flaky(None))
    observing = watch(memory)
    talk(observing, 5)
    observing.turn_end()
    flow, ask = begin(observing)
    assert memory.work(force=True) == 0
    clock.advance(200)
    assert memory.work() == 1
    assert answer(flow, ask) == 0
    assert memory.stats()["kinds"]["observation"] == 1
    assert list(problems(memory.db.conn)) == []


@pytest.mark.parametrize(
    ("change", "left"),
    [
        ("update message set content = 'something else' where id = 2", 10),
        ("delete from message where id = 2", 9),
        ("delete from session", 0),
    ],
)
def test_a_late_result_of_what_has_changed_is_dropped_and_nothing_else(
    opened: Callable[..., Memory], change: str, left: int
) -> None:
    memory = opened(Flaky(None))
    observing = watch(memory)
    talk(observing, 5)
    observing.turn_end()
    flow, ask = begin(observing)
    memory.db.execute("pragma foreign_keys = on")
    memory.db.execute(change)
    memory.db.conn.commit()
    answer(flow, ask)
    assert [row["text"] for row in memory.db.query("select text from observation") if "question 1" in row["text"]] == []
    assert memory.stats()["kinds"]["message"] == left
    memory.work()
    state = observing.state()
    assert (state.due, state.in_flight, state.tokens_raw) == (0, 0, 0)
    assert list(problems(memory.db.conn)) == []
    assert memory.check() == []


def test_an_event_loop_that_ends_under_the_work_leaves_it_due_and_the_next_takes_it_up(
    opened: Callable[..., Memory],
) -> None:
    hang = True

    async def llm(messages: list[Any]) -> str:
        if hang:
            await asyncio.Event().wait()
        return observed(messages)

    observing = watch(opened(llm), background="async")

    async def begins() -> None:
        talk(observing, 5)
        await observing.aturn_end()
        for _ in range(100):
            await asyncio.sleep(0.01)
            if observing.state().in_flight:
                break
        assert observing.state().in_flight == 1

    async def goes_on() -> bool:
        await observing.aturn_end()
        return bool(await observing.await_(10))

    asyncio.run(begins())
    state = observing.state()
    assert (state.in_flight, state.due) == (0, 1)
    hang = False
    assert asyncio.run(goes_on())
    assert observing.state().buffered == 1


def test_a_cancelled_context_leaves_no_lock_and_its_work_due(opened: Callable[..., Memory]) -> None:
    async def llm(messages: list[Any]) -> str:
        await asyncio.Event().wait()
        return ""

    observing = watch(opened(llm))
    other = opened(None)
    talk(observing, 40)

    async def run() -> None:
        task = asyncio.create_task(observing.acontext())
        for _ in range(100):
            await asyncio.sleep(0.01)
            if observing.state().in_flight:
                break
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(run())
    other.remember("the next write succeeds at once")
    state = observing.state()
    assert (state.in_flight, state.due) == (0, 1)


def test_the_loop_ticks_while_a_long_conversation_is_read(opened: Callable[..., Memory]) -> None:
    observing = watch(opened(ScriptedLLM(MODEL)), window=200_000)
    talk(observing, 300)

    async def run() -> list[float]:
        gaps: list[float] = []
        done = asyncio.Event()

        async def ticks() -> None:
            before = monotonic()
            while not done.is_set():
                await asyncio.sleep(0.001)
                now = monotonic()
                gaps.append(now - before)
                before = now

        ticking = asyncio.create_task(ticks())
        for _ in range(5):
            await observing.acontext()
        done.set()
        await ticking
        return gaps

    assert len(asyncio.run(run())) > 5
