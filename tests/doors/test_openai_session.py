"""`Session` of the OpenAI Agents SDK: what its own SQLite session does, on a memory file."""

from __future__ import annotations

import asyncio
import concurrent.futures
import logging
import threading
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("agents", reason="needs the extra `openai-agents`")
pytest.importorskip("agents.testing", reason="needs an openai-agents that ships its scripted model")

from agents import Agent, RunConfig, Runner, SQLiteSession, function_tool, set_tracing_disabled
from agents.memory import Session, SessionSettings
from agents.testing import ScriptedModel, assistant_message, function_call
from hypothesis import given
from hypothesis import strategies as st

from istar_lite import BadInput, Busy, Memory
from istar_lite.adapters.openai_session import IstarSession
from istar_lite.database import sqlite3

set_tracing_disabled(True)


def run(talk: Coroutine[Any, Any, Any]) -> Any:
    return asyncio.run(talk)


def user(text: str) -> dict[str, Any]:
    return {"role": "user", "content": text}


@pytest.fixture
def memory(tmp_path: Path) -> Any:
    with Memory(tmp_path / "agent.db", embedder=None) as memory:
        yield memory


# --- items ----------------------------------------------------------------------------------------------------

KEYS = st.sampled_from(["role", "type", "content", "id", "item", "arguments", "output", "n"])
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=())) | st.just("half \ud83d emoji \0 nul"),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=3),
    max_leaves=6,
)  # fmt: skip


@given(st.lists(st.dictionaries(KEYS, VALUES, max_size=4), max_size=5))
def test_items_come_back_exactly(memory: Memory, items: list[dict[str, Any]]) -> None:
    async def talk() -> Any:
        session = IstarSession("s", memory)
        await session.clear_session()
        await session.add_items(items)  # type: ignore[arg-type]
        return await session.get_items()

    assert run(talk()) == items


@pytest.mark.parametrize("item", [{"n": float("nan")}, {"n": object()}, "text", None, {"n": {1, 2}}])
def test_an_item_that_json_cannot_hold_is_refused_and_nothing_written(memory: Memory, item: Any) -> None:
    async def talk() -> Any:
        session = IstarSession("s", memory)
        with pytest.raises(BadInput, match=r"items\[1\]"):
            await session.add_items([user("fine"), item])
        return await session.get_items()

    assert run(talk()) == []


@pytest.mark.parametrize("limit", [None, 0, 1, 2, 4, 10, -1])
@pytest.mark.parametrize("setting", [None, 0, 3])
def test_limits_are_those_of_the_sdks_own_session(memory: Memory, limit: int | None, setting: int | None) -> None:
    async def talk() -> None:
        items = [user(f"message {n}") for n in range(5)]
        options = SessionSettings(limit=setting)
        ours, theirs = IstarSession("s", memory, session_settings=options), SQLiteSession("s", session_settings=options)
        for session in (ours, theirs):
            await session.add_items(items)  # type: ignore[arg-type]
        assert await ours.get_items(limit) == await theirs.get_items(limit)
        theirs.close()

    run(talk())


def test_the_settings_are_the_sdks(memory: Memory) -> None:
    assert IstarSession("s", memory).session_settings == SessionSettings()
    assert IstarSession("s", memory, session_settings={"limit": 5}).session_settings == SessionSettings(limit=5)
    assert isinstance(IstarSession("s", memory), Session)


def test_pop_takes_the_newest_until_there_is_none(memory: Memory) -> None:
    async def talk() -> None:
        session, other = IstarSession("s", memory), IstarSession("other", memory)
        assert await session.pop_item() is None
        await session.add_items([user("1"), user("2")])
        await other.add_items([user("theirs")])
        assert [await session.pop_item() for _ in range(3)] == [user("2"), user("1"), None]
        assert await other.get_items() == [user("theirs")]
        await session.add_items([user("3")])
        assert await session.get_items() == [user("3")]

    run(talk())


def test_clearing_is_of_one_session_and_lets_the_same_be_said_again(memory: Memory) -> None:
    async def talk() -> None:
        session, other = IstarSession("s", memory), IstarSession("S", memory)
        for one in (session, other):
            await one.add_items([user("hello"), user("hello")])
        await session.clear_session()
        assert await session.get_items() == []
        assert len(await other.get_items()) == 2
        await session.add_items([user("hello")])
        assert await session.get_items() == [user("hello")]

    run(talk())
    assert memory.check() == []


def test_rows_that_hold_no_item_are_skipped_and_reported(
    memory: Memory, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def talk() -> None:
        session = IstarSession("s", memory)
        await session.add_items([user("1"), user("2"), user("3"), user("4"), user("5")])
        with sqlite3.connect(tmp_path / "agent.db") as shell:
            shell.execute("pragma ignore_check_constraints = on")
            shell.execute("update message set parts = '{broken' where content in ('2', '5')")
            shell.execute("update message set parts = '17' where content = '4'")
        shell.close()
        with caplog.at_level(logging.WARNING):
            assert await session.get_items() == [user("1"), user("3")]
        assert session.corrupt_rows == (2, 4, 5)
        assert "message rows that hold no item: 2, 4, 5" in caplog.text
        assert await session.get_items(1) == [user("3")]
        assert await session.pop_item() == user("3")
        assert session.corrupt_rows == (5, 4)
        assert await session.get_items() == [user("1")]

    run(talk())


# --- files, threads, cancellation -----------------------------------------------------------------------------


def test_without_a_path_it_is_a_file_that_goes_with_the_session() -> None:
    async def talk() -> Path:
        session = IstarSession("s")
        await session.add_items([user("hi")])
        assert await session.get_items() == [user("hi")]
        path = session.memory.path
        assert path.exists()
        session.close()
        session.close()
        return path

    assert not run(talk()).parent.exists()


def test_a_tilde_is_the_users_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    session = IstarSession("s", "~/agent.db")
    session.close()
    assert (tmp_path / "agent.db").exists()


def test_a_closed_session_says_so(memory: Memory) -> None:
    async def talk() -> None:
        session = IstarSession("s", memory)
        session.close()
        for call in (session.get_items(), session.add_items([]), session.pop_item(), session.clear_session()):
            with pytest.raises(RuntimeError, match="closed"):
                await call

    run(talk())
    assert memory.namespaces() == ["default"]  # the host's memory stays open


@pytest.mark.parametrize("session_id", ["", "  "])
def test_a_session_has_a_name(tmp_path: Path, session_id: str) -> None:
    with pytest.raises(BadInput, match="session"):
        IstarSession(session_id, tmp_path / "agent.db")


def test_threads_and_sessions_on_one_file_lose_nothing(tmp_path: Path) -> None:
    sessions = [IstarSession("s", tmp_path / "agent.db") for _ in range(2)]

    def add(number: int) -> None:
        run(sessions[number % 2].add_items([user(f"{number}")]))

    with concurrent.futures.ThreadPoolExecutor(5) as pool:
        list(pool.map(add, range(20)))
    got = run(sessions[0].get_items())
    assert sorted(int(item["content"]) for item in got) == list(range(20))
    assert sessions[1].memory.check() == []
    for session in sessions:
        session.close()


def test_a_cancelled_write_is_waited_for_and_leaves_no_lock(memory: Memory) -> None:
    async def talk() -> None:
        session = IstarSession("s", memory)
        gate, entered = threading.Event(), threading.Event()

        def hold() -> None:
            with memory._services.file.write():
                entered.set()
                gate.wait(10)

        holder = asyncio.create_task(asyncio.to_thread(hold))
        await asyncio.to_thread(entered.wait, 10)
        adding = asyncio.create_task(session.add_items([user("late")]))
        await asyncio.sleep(0)
        adding.cancel()
        await asyncio.sleep(0)
        assert not adding.done()  # its write is on the way and is not left behind
        gate.set()
        await holder
        with pytest.raises(asyncio.CancelledError):
            await adding
        assert await session.get_items() == [user("late")]
        await session.add_items([user("next")])
        assert len(await session.get_items()) == 2

    run(talk())


def test_a_failed_write_leaves_no_lock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("istar_lite.database.BUSY_SECONDS", 0.05)

    async def talk() -> None:
        session = IstarSession("s", tmp_path / "agent.db")
        await session.add_items([user("1")])
        shell = sqlite3.connect(tmp_path / "agent.db", isolation_level=None)
        shell.execute("begin immediate")
        with pytest.raises(Busy):
            await session.add_items([user("2")])
        shell.execute("rollback")
        shell.close()
        await session.add_items([user("3")])
        assert await session.get_items() == [user("1"), user("3")]
        session.close()

    run(talk())


def test_owners_do_not_see_each_others_sessions(memory: Memory) -> None:
    async def talk() -> None:
        names = ["a", "ab", "a%", "a_", "A", "a/b", "'; drop table message; --"]
        for name in names:
            await IstarSession("s", memory, name).add_items([user(name)])
        for name in names:
            assert await IstarSession("s", memory, name).get_items() == [user(name)]
        await IstarSession("s", memory, "a").clear_session()
        assert await IstarSession("s", memory, "ab").get_items() == [user("ab")]

    run(talk())


def test_what_was_said_is_found_with_calls_and_results(tmp_path: Path) -> None:
    async def talk() -> None:
        session = IstarSession("trip", tmp_path / "agent.db")
        await session.add_items(
            [
                user("Find me a train to Oslo"),
                {"type": "function_call", "call_id": "c1", "name": "timetable", "arguments": '{"to": "Oslo"}'},
                {"type": "function_call_output", "call_id": "c1", "output": "07:12 from platform 4"},
                {"type": "reasoning", "id": "r1", "summary": [{"type": "summary_text", "text": "hidden thought"}]},
            ]
        )
        hits = session.memory.search("timetable platform", session="trip")
        assert [hit.text for hit in hits[:2]] == [
            "[tool result timetable] 07:12 from platform 4",
            "[tool call] timetable(to=Oslo)",
        ]
        assert "" not in [hit.text for hit in hits]
        assert not any("hidden" in hit.text for hit in session.memory.search("hidden thought"))
        session.close()

    run(talk())


# --- through the SDK's runner ---------------------------------------------------------------------------------


@function_tool
def timetable(to: str) -> str:
    """When the trains go."""
    return f"07:12 to {to}"


def turn(method: str, agent: Agent[Any], text: str, session: Any, **options: Any) -> Any:
    if method == "sync":
        return Runner.run_sync(agent, text, session=session, **options)

    async def talk() -> Any:
        if method == "run":
            return await Runner.run(agent, text, session=session, **options)
        result = Runner.run_streamed(agent, text, session=session, **options)
        async for _ in result.stream_events():
            pass
        return result

    return run(talk())


@pytest.mark.parametrize("method", ["run", "sync", "streamed"])
def test_the_runner_keeps_the_conversation(tmp_path: Path, method: str) -> None:
    steps = [
        [function_call("timetable", {"to": "Oslo"}, call_id="c1")],
        [assistant_message("At 07:12.")],
        [assistant_message("To Oslo.")],
    ]
    histories = []
    for session in (IstarSession("s", tmp_path / "agent.db"), SQLiteSession("s", tmp_path / "theirs.db")):
        model = ScriptedModel(steps)
        agent = Agent(name="clerk", model=model, tools=[timetable])
        assert turn(method, agent, "When is the train to Oslo?", session).final_output == "At 07:12."
        assert turn(method, agent, "Where to?", session).final_output == "To Oslo."
        histories.append((model.calls[-1].input, run(session.get_items())))
        session.close()
    assert histories[0] == histories[1]
    assert len(histories[0][1]) == 6


def test_the_runners_limit_holds(memory: Memory) -> None:
    session = IstarSession("s", memory)
    run(session.add_items([user(f"turn {n}") for n in range(10)]))
    model = ScriptedModel([[assistant_message("fine")]])
    turn(
        "run",
        Agent(name="a", model=model),
        "new",
        session,
        run_config=RunConfig(session_settings=SessionSettings(limit=2)),
    )
    assert [item["content"] for item in model.calls[-1].input] == ["turn 8", "turn 9", "new"]


def test_a_failure_of_the_session_reaches_the_caller(memory: Memory) -> None:
    session = IstarSession("s", memory)
    session.close()
    with pytest.raises(RuntimeError, match="closed"):
        turn("streamed", Agent(name="a", model=ScriptedModel([[assistant_message("no")]])), "hi", session)
