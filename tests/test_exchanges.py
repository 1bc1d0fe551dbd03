"""Exchanges: safe before the model is asked, read for statements later, given back with what matters now."""

from __future__ import annotations

import asyncio
import json
import warnings
from collections.abc import Sequence
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from istar_lite import BadInput, Budget, Memory, UnusableAnswer
from istar_lite.database import sqlite3
from istar_lite.testing import AsyncScriptedLLM, FixedClock, ScriptedLLM

DAY = 86400.0


def answer(*items: str | dict[str, Any]) -> str:
    """An extraction as a model gives it."""
    return json.dumps({"memories": [{"text": item} if isinstance(item, str) else item for item in items]})


def open_memory(path: Path, clock: FixedClock, answers: Sequence[Any] = (), **options: Any) -> Memory:
    """A memory without vectors, with a model that answers from a script."""
    return Memory(
        path, embedder=None, clock=clock, llm=ScriptedLLM(list(answers), options.pop("default", None)), **options
    )


def texts(memory: Memory, status: str = "active") -> list[str]:
    """Texts of memories, in order of their ids."""
    return [row.text for row in memory.list("memory") if row.status == status]


# --- store ----------------------------------------------------------------------------------------------------


def test_a_store_is_one_call_and_each_statement_leads_back_to_what_was_said(path: Path, clock: FixedClock) -> None:
    llm = ScriptedLLM([answer({"text": "Ann likes green tea.", "importance": 0.9, "emotion": "love"})])
    with Memory(path, embedder=None, clock=clock, llm=llm) as memory:
        stored = memory.chat().store("I'm Ann and I love green tea", "Noted!")
        assert (stored.extraction, stored.memory_ids, stored.consolidation_recommended) == ("done", (1,), False)
        assert [call.tag for call in llm.calls] == ["extract"]
        row = memory.get("memory", 1)
        assert row is not None and (row.importance, row.emotion) == (0.9, "love")
        (hit,) = memory.search("green tea", kinds=["memory"])
        assert [source.text for source in hit.sources] == ["I'm Ann and I love green tea"]
        assert memory.status().calls == 1 and memory.status().due == 0


def test_the_exchange_is_in_the_file_before_the_model_is_asked(path: Path, clock: FixedClock) -> None:
    seen: list[tuple[int, str]] = []

    def look(messages: object) -> str:
        with closing(sqlite3.connect(path)) as other:
            seen.extend(other.execute("select (select count(*) from exchange), state from task").fetchall())
        return answer()

    with open_memory(path, clock, [look]) as memory:
        assert memory.chat().store("I like tea", "Noted").extraction == "done"
    assert seen == [(1, "claimed")]


@pytest.mark.parametrize(
    "failure",
    [RuntimeError("429"), TimeoutError(), "I'm not sure what you mean.", '{"memories": [{"te', 17, "```json\n```"],
    ids=["error", "timeout", "prose", "cut off", "no text", "empty fence"],
)
def test_a_failed_extraction_stays_due_and_drains_later(path: Path, clock: FixedClock, failure: object) -> None:
    with open_memory(path, clock, [failure, answer("Ann likes tea.")]) as memory:
        stored = memory.chat().store("I'm Ann, I like tea", "Noted")
        assert (stored.extraction, stored.memory_ids) == ("due", ())
        assert memory.status().failed == 1 and memory.status().last_error
        assert memory.work() == 0  # too early: it is tried again after 30 s
        clock.advance(31)
        assert memory.work() == 1
        assert texts(memory) == ["Ann likes tea."]
        assert (memory.status().failed, memory.status().due) == (0, 0)


def test_with_on_error_raise_the_exchange_is_kept_all_the_same(path: Path, clock: FixedClock) -> None:
    with open_memory(path, clock, [RuntimeError("429")], on_error="raise") as memory:
        with pytest.raises(RuntimeError, match="429"):
            memory.chat().store("I like tea", "Noted")
        assert memory.stats()["kinds"]["exchange"] == 1
        assert memory.status().failed == 1


def test_facts_of_a_failed_window_are_not_lost_when_its_exchange_leaves_the_working_set(
    path: Path, clock: FixedClock
) -> None:
    with open_memory(path, clock, [RuntimeError("down"), *[answer()] * 8, answer("The code word is heron.")]) as memory:
        chat = memory.chat()
        chat.store("the code word is heron", "ok")
        for number in range(8):
            chat.store(f"small talk {number}", "ok")
        assert memory.get("exchange", 1).status == "evicted"  # type: ignore[union-attr]
        memory.work(force=True)
        assert texts(memory) == ["The code word is heron."]


def test_a_cut_off_answer_gives_its_whole_statements_and_stays_due(path: Path, clock: FixedClock) -> None:
    cut = '{"memories": [{"text": "Ann likes tea."}, {"text": "Ben lik'
    with open_memory(path, clock, [cut, answer("Ann likes tea.", "Ben likes rum.")]) as memory:
        assert memory.chat().store("Ann likes tea, Ben likes rum", "ok").extraction == "due"
        assert texts(memory) == ["Ann likes tea."]
        memory.work(force=True)
        assert texts(memory) == ["Ann likes tea.", "Ben likes rum."]
        assert memory.get("memory", 1).mention_count == 1  # type: ignore[union-attr]  # the same message, not told twice


@pytest.mark.parametrize(
    "reply", ["", "[]", "{}", '{"memories": []}', "Nothing to record.", "I'm sorry, I can't help with that."]
)
def test_an_honest_nothing_or_a_refusal_stores_nothing(path: Path, clock: FixedClock, reply: str) -> None:
    with open_memory(path, clock, [reply], default=reply) as memory:
        memory.chat().store("good morning", "Good morning!")
        assert texts(memory) == []


def test_without_a_model_the_exchange_waits_and_one_warning_says_so(path: Path, clock: FixedClock) -> None:
    with Memory(path, embedder=None, clock=clock) as memory:
        with pytest.warns(UserWarning, match=r"no model given: 1 exchange waits \(memory.status\(\)\)"):
            assert memory.chat().store("I like tea", "ok").extraction == "due"
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            memory.chat().store("I like rum", "ok")
        assert memory.status().due == 2
        assert memory.work() == 0
    with open_memory(path, clock, [answer("Likes tea."), answer("Likes rum.")]) as memory:
        assert memory.work() == 2
        assert texts(memory) == ["Likes tea.", "Likes rum."]


@pytest.mark.parametrize(
    ("prompt", "response", "field"), [(" ", "x", "prompt"), ("x", "", "response"), (None, "x", "prompt")]
)
def test_a_blank_side_is_refused_before_anything_is_written(
    path: Path, clock: FixedClock, prompt: Any, response: str, field: str
) -> None:
    with open_memory(path, clock) as memory:
        with pytest.raises(BadInput) as refused:
            memory.chat().store(prompt, response)
        assert refused.value.field == field
        assert memory.namespaces() == ["default"] and memory.sessions() == []


def test_the_same_key_gives_the_same_exchange_and_asks_nobody(path: Path, clock: FixedClock) -> None:
    with open_memory(path, clock, [answer("Likes tea.")]) as memory:
        first = memory.chat().store("I like tea", "ok", key="k")
        again = memory.chat().store("I like tea", "ok", key="k")
        assert again.exchange_id == first.exchange_id
        assert memory.status().calls == 1
        with pytest.raises(BadInput, match="key"):
            memory.chat().store("I like rum", "ok", key="k")


def test_messages_that_the_host_recorded_already_are_linked_not_doubled(path: Path, clock: FixedClock) -> None:
    with open_memory(path, clock, default=answer()) as memory:
        memory.import_conversation(
            [{"role": "user", "content": "I like tea"}, {"role": "assistant", "content": "ok"}],
            format="messages",
            session="default",
        )
        memory.chat().store("I like tea", "ok")
        assert memory.stats()["kinds"]["message"] == 2
        memory.chat().store("I like tea", "ok")  # said again: these are in an exchange by now
        assert memory.stats()["kinds"]["message"] == 4


def test_the_budget_holds_and_the_work_stays_due(path: Path, clock: FixedClock) -> None:
    with open_memory(path, clock, [answer("a b c"), answer("d e f")], budget=Budget(calls_per_day=1)) as memory:
        memory.chat().store("one", "ok")
        assert memory.chat().store("two", "ok").extraction == "due"
        assert "BudgetSpent" in str(memory.status().last_error)
        memory.work(force=True)
        assert memory.status().calls == 1
        clock.advance(DAY)
        assert memory.work() == 1


# --- known memories and corrections ---------------------------------------------------------------------------


def test_related_memories_are_offered_by_number_and_the_same_call_corrects_them(path: Path, clock: FixedClock) -> None:
    llm = ScriptedLLM([answer("The ssh port is 22."), answer({"text": "ssh listens on port 49222.", "replaces": [0]})])
    with Memory(path, embedder=None, clock=clock, llm=llm) as memory:
        memory.chat().store("the ssh port is 22", "ok")
        clock.advance(29 * DAY)
        memory.chat().store("ssh now listens on 49222", "ok")
        assert "0. The ssh port is 22." in llm.calls[1].last_user
        assert texts(memory) == ["ssh listens on port 49222."]
        assert texts(memory, "superseded") == ["The ssh port is 22."]
        assert memory.get("memory", 1).ended_by == "memory 2"  # type: ignore[union-attr]


def test_a_correction_whose_older_date_arrives_late_becomes_history(path: Path, clock: FixedClock) -> None:
    late = answer({"text": "The ssh port is 22.", "replaces": [0]})
    with open_memory(path, clock, [answer("ssh listens on port 49222."), late]) as memory:
        memory.chat().store("ssh now listens on port 49222", "ok", occurred_at="2026-01-30T00:00:00Z")
        memory.chat().store("the ssh port is 22", "ok", occurred_at="2026-01-01T00:00:00Z")
        assert texts(memory) == ["ssh listens on port 49222."]
        then = memory.search("ssh port", kinds=["memory"], as_of="2026-01-10T00:00:00Z")
        assert [hit.text for hit in then] == ["The ssh port is 22."]


@pytest.mark.parametrize("replaces", [[7], [-1], ["x"], [0.5], [True], None, "0 1", [[0]]])
def test_numbers_that_were_not_offered_change_nothing(path: Path, clock: FixedClock, replaces: Any) -> None:
    with open_memory(
        path, clock, [answer("Ann likes tea."), answer({"text": "Ann likes rum.", "replaces": replaces})]
    ) as memory:
        memory.chat().store("Ann likes tea", "ok")
        memory.chat().store("Ann likes rum", "ok")
        assert texts(memory) == ["Ann likes tea.", "Ann likes rum."]


def test_a_known_memory_that_comes_back_as_new_is_counted_and_replaces_nothing(path: Path, clock: FixedClock) -> None:
    known = {"text": "ann likes TEA", "replaces": [0, 1], "importance": 0.1}
    with open_memory(path, clock, [answer("Ann likes tea.", "Ann likes rum."), answer(known)]) as memory:
        memory.chat().store("Ann likes tea and rum", "ok")
        clock.advance(DAY)
        memory.chat().store("what does Ann like again, tea?", "ok")
        assert texts(memory) == ["Ann likes tea.", "Ann likes rum."]
        row = memory.get("memory", 1)
        assert row is not None
        assert (row.mention_count, row.access_count, row.last_accessed_at) == (2, 0, None)
        assert row.occurred_at < row.last_mentioned_at


@pytest.mark.parametrize("day", ["2026-02-01", "2025-12-01"])
def test_one_memory_replaced_by_two_leaves_both(path: Path, clock: FixedClock, day: str) -> None:
    two = answer({"text": "Ann lives in Oslo.", "replaces": [0]}, {"text": "Ann works in Bergen.", "replaces": [0]})
    with open_memory(path, clock, [answer("Ann lives and works in Rome."), two]) as memory:
        memory.chat().store("Ann lives and works in Rome", "ok")
        memory.chat().store("Ann lives in Oslo and works in Bergen", "ok", occurred_at=f"{day}T00:00:00Z")
        both, one = ["Ann lives in Oslo.", "Ann works in Bergen."], ["Ann lives and works in Rome."]
        assert (texts(memory), texts(memory, "superseded")) == ((both, one) if day > "2026" else (one, both))
        held = memory.db.query(
            "select text from memory where ? between occurred_at and coalesce(ended_at, '9')", [f"{day}T00:00:00.000Z"]
        )
        assert set(both) <= {row["text"] for row in held}


def test_a_giant_prompt_is_stored_whole_and_shown_by_its_head_and_end(path: Path, clock: FixedClock) -> None:
    llm = ScriptedLLM([answer("The code word is heron.")])
    giant = "the beginning. " + "nothing of note here. " * 45_000 + "The code word is heron."
    with Memory(path, embedder=None, clock=clock, llm=llm) as memory:
        assert memory.chat().store(giant, "ok").extraction == "done"
        assert len(llm.calls[0].last_user) < 30_000
        assert "the beginning." in llm.calls[0].last_user and "The code word is heron." in llm.calls[0].last_user
        assert memory.get("message", 1).content == giant  # type: ignore[union-attr]
        assert memory.search("what is the code word")[0].text in (giant, "The code word is heron.")


def test_what_was_offered_and_forgotten_meanwhile_is_not_replaced(path: Path, clock: FixedClock) -> None:
    memory: Memory

    def forget_first(messages: object) -> str:
        memory.forget(id=1)
        return answer({"text": "ssh listens on port 49222.", "replaces": [0]})

    with open_memory(path, clock, [answer("The ssh port is 22."), forget_first]) as memory:
        memory.chat().store("the ssh port is 22", "ok")
        memory.chat().store("the ssh port is 49222 now", "ok")
        assert texts(memory) == ["ssh listens on port 49222."]


def test_the_result_of_an_exchange_that_was_forgotten_meanwhile_is_dropped(path: Path, clock: FixedClock) -> None:
    memory: Memory

    def forget_it(messages: object) -> str:
        memory.forget(kind="message", id=1)
        return answer("The pin is 4711.")

    with open_memory(path, clock, [forget_it]) as memory:
        assert memory.chat().store("the pin is 4711", "ok").memory_ids == ()
        assert texts(memory) == []
        assert memory.status().due == 0


# --- the rolling window ---------------------------------------------------------------------------------------


def test_seven_exchanges_of_a_session_are_the_working_set(path: Path, clock: FixedClock) -> None:
    with open_memory(path, clock, default=answer()) as memory:
        for number in range(9):
            memory.chat().store(f"prompt {number}", "ok")
        memory.chat("other").store("elsewhere", "ok")
        status = [row.status for row in memory.list("exchange")]
        assert status == ["evicted"] * 2 + ["active"] * 8
        pairs = memory.chat().retrieve("anything", pairs=99).recent_pairs
        assert [pair.prompt for pair in pairs] == [f"prompt {number}" for number in range(2, 9)]
        assert [pair.prompt for pair in memory.chat().retrieve("x").recent_pairs] == [
            f"prompt {n}" for n in range(4, 9)
        ]


@pytest.mark.parametrize(
    ("choice", "left"), [("keep", ["fact 0", "told by the host", "fact 1"]), ("forget", ["told by the host", "fact 1"])]
)
def test_what_an_evicted_exchange_takes_along_is_the_hosts_choice(
    path: Path, clock: FixedClock, choice: str, left: list[str]
) -> None:
    with open_memory(path, clock, [answer("fact 0", "told by the host"), answer("fact 1")]) as memory:
        memory.db.execute("update setting set value = 1 where key = 'max_exchanges'")
        memory.db.execute("update setting set value = ? where key = 'evicted_exchanges'", [choice])
        memory.db.conn.commit()
        memory.chat().store("this is fact 0", "ok")
        memory.remember("told by the host")
        memory.chat().store("this is fact 1", "ok")
        assert texts(memory) == left
        assert memory.check() == []


def test_a_memory_that_another_exchange_told_too_stays_when_its_first_one_leaves(path: Path, clock: FixedClock) -> None:
    with open_memory(path, clock, [answer("the fact"), answer("The fact.")], default=answer()) as memory:
        memory.db.execute("update setting set value = 2 where key = 'max_exchanges'")
        memory.db.execute("update setting set value = 'forget' where key = 'evicted_exchanges'")
        memory.db.conn.commit()
        memory.chat().store("once: the fact", "ok")
        memory.chat().store("twice: the fact", "ok")
        memory.chat().store("small talk", "ok")
        assert memory.get("exchange", 1).status == "evicted"  # type: ignore[union-attr]
        assert texts(memory) == ["the fact"]
        memory.chat().store("more small talk", "ok")
        assert texts(memory) == []


# --- retrieve -------------------------------------------------------------------------------------------------


def test_the_dict_of_a_retrieval_is_what_chat_applications_expect(path: Path, clock: FixedClock) -> None:
    with open_memory(path, clock, [answer("Ann likes green tea.")]) as memory:
        memory.chat().store("I am Ann, I like green tea", "Noted")
        found = memory.chat().retrieve("which tea does Ann like")
        told = json.loads(json.dumps(found.to_dict()))
        assert told["recent_pairs"] == [
            {"prompt": "I am Ann, I like green tea", "response": "Noted", "created_at": clock()}
        ]
        (one,) = told["memories"]
        assert set(one) == {"text", "score", "created_at", "decay_score", "importance", "emotion"}
        assert (one["text"], one["created_at"], one["decay_score"]) == ("Ann likes green tea.", clock(), 1.0)
        day = datetime.fromtimestamp(clock(), UTC).date()
        assert f"- ({day} UTC) Ann likes green tea." in found.to_prompt(), "a bare date would be read as a local one"


def test_nothing_relevant_is_told_apart_from_an_empty_store(path: Path, clock: FixedClock) -> None:
    with Memory(path, clock=clock) as memory:
        assert memory.chat().retrieve("anything").reason == "the store is empty"
        memory.remember_many(["Tulips need cold to flower", "Roses are pruned in March", "Compost wants air"])
        for prompt in ("QQQQ zzxy", "how do I rotate TLS keys", "ok", "thanks!", "??? !!!"):
            found = memory.chat().retrieve(prompt)
            assert (found.memories, found.reason, found.to_prompt()) == ((), "nothing relevant", "")
        assert memory.chat().retrieve("when are roses pruned").memories[0].text == "Roses are pruned in March"


def test_an_announced_change_comes_before_what_it_changes(path: Path, clock: FixedClock) -> None:
    with Memory(path, clock=clock) as memory:
        memory.remember("ssh now listens on 49222", occurred_at="2026-01-30T00:00:00Z")
        memory.remember("the ssh port is 22", occurred_at="2026-01-01T00:00:00Z")
        memory.remember("ssh keys live in the vault", occurred_at="2026-01-01T00:00:00Z")
        found = memory.chat().retrieve("what is the ssh port").memories
        assert found[0].text == "ssh now listens on 49222"
        assert found[0].score >= found[1].score
        keys = memory.chat().retrieve("where are the ssh keys").memories
        assert keys[0].text == "ssh keys live in the vault"


def test_memories_are_of_the_namespace_and_pairs_of_the_session(path: Path, clock: FixedClock) -> None:
    with open_memory(path, clock, [answer("Ann likes tea.")]) as memory:
        memory.chat("monday").store("Ann likes tea", "ok")
        elsewhere = memory.chat("tuesday").retrieve("what does Ann like, tea?")
        assert ([one.text for one in elsewhere.memories], elsewhere.recent_pairs) == (["Ann likes tea."], ())
        stranger = memory.in_namespace("other").chat("monday").retrieve("what does Ann like, tea?")
        assert (stranger.memories, stranger.recent_pairs, stranger.reason) == ((), (), "the store is empty")


def test_limits_are_checked_and_zero_gives_nothing(path: Path, clock: FixedClock) -> None:
    with open_memory(path, clock) as memory:
        memory.remember("likes tea")
        assert memory.chat().retrieve("tea", limit=0).memories == ()
        for options in ({"limit": -1}, {"pairs": -1}, {"limit": None}):
            with pytest.raises(BadInput):
                memory.chat().retrieve("tea", **options)  # type: ignore[arg-type]


def test_what_was_handed_out_is_in_the_trail_with_its_scores(path: Path, clock: FixedClock) -> None:
    with open_memory(path, clock, [answer("Ann likes tea.")]) as memory:
        memory.chat().store("Ann likes tea", "ok")
        (one,) = memory.chat().retrieve("does Ann like tea? " + "x" * 300).memories
        rows = list(memory.db.query("select * from recall_trail order by rank"))
        assert [(row["kind"], row["text"]) for row in rows] == [
            ("memory", "Ann likes tea."), ("message", "Ann likes tea"), ("message", "ok"),
        ]  # fmt: skip
        assert (rows[0]["via"], rows[0]["score"], len(rows[0]["query"])) == ("retrieve", one.score, 200)


def test_queries_are_redacted_before_they_go_into_the_trail(path: Path, clock: FixedClock) -> None:
    with Memory(path, embedder=None, clock=clock, redact=lambda text: text.replace("hunter2", "***")) as memory:
        memory.remember("Ann likes tea.")
        assert memory.chat().retrieve("does Ann like tea hunter2").memories
        assert memory.context("does Ann like tea hunter2", budget_tokens=300)
        assert {row["query"] for row in memory.db.query("select query from recall")} == {"does Ann like tea ***"}


# --- consolidation signal -------------------------------------------------------------------------------------


def test_consolidation_is_recommended_every_twenty_stores_of_a_namespace_also_across_restarts(
    path: Path, clock: FixedClock
) -> None:
    told = []
    for start in range(0, 45, 9):
        with open_memory(path, clock, default=answer()) as memory:
            for number in range(start, start + 9):
                told.append(memory.chat(f"s{number % 2}").store(f"prompt {number}", "ok").consolidation_recommended)
                memory.in_namespace("other").chat().store("x", "ok")
    assert [at for at, recommended in enumerate(told, 1) if recommended] == [20, 40]


# --- async ----------------------------------------------------------------------------------------------------


def test_the_async_twins_give_what_the_sync_ones_give(path: Path, clock: FixedClock) -> None:
    llm = AsyncScriptedLLM([answer("Ann likes tea.")])

    async def run() -> None:
        with Memory(path, embedder=None, clock=clock, llm=llm) as memory:
            stored = await memory.chat().astore("Ann likes tea", "ok")
            assert (stored.extraction, stored.memory_ids) == ("done", (1,))
            assert [one.text for one in (await memory.chat().aretrieve("does Ann like tea")).memories] == [
                "Ann likes tea."
            ]
            assert (await memory.chat().aconsolidate()).clusters_merged == 0
            assert (await memory.aremember("Ben likes rum")).id == 2

    asyncio.run(run())
    asyncio.run(run_again(path, clock))


async def run_again(path: Path, clock: FixedClock) -> None:
    """The same file in another loop."""
    with Memory(path, embedder=None, clock=clock, llm=AsyncScriptedLLM([RuntimeError("down")])) as memory:
        assert (await memory.chat().astore("more", "ok")).extraction == "due"


def test_a_cancelled_store_keeps_the_exchange_due_and_leaves_no_lock(path: Path, clock: FixedClock) -> None:
    async def run() -> None:
        asked = asyncio.Event()

        async def never(messages: object) -> str:
            asked.set()
            await asyncio.sleep(3600)
            return ""

        with Memory(path, embedder=None, clock=clock, llm=never) as memory:
            storing = asyncio.create_task(memory.chat().astore("I like tea", "ok"))
            await asked.wait()
            storing.cancel()
            with pytest.raises(asyncio.CancelledError):
                await storing
            with closing(sqlite3.connect(path, timeout=0)) as other:
                other.execute("begin immediate")
                other.rollback()
            assert memory.status().due == 1
            assert memory.stats()["kinds"]["exchange"] == 1

    asyncio.run(run())


def test_a_keyboard_interrupt_reaches_the_host_and_the_work_stays_due(path: Path, clock: FixedClock) -> None:
    with open_memory(path, clock, [KeyboardInterrupt(), answer("Likes tea.")]) as memory:
        with pytest.raises(KeyboardInterrupt):
            memory.chat().store("I like tea", "ok")
        assert memory.status().due == 1
        assert memory.work() == 1


# --- answers of every shape -----------------------------------------------------------------------------------

GOOD = '{"text": "Ann likes tea.", "importance": 0.5, "replaces": [0]}'
pieces = st.sampled_from(
    [
        *("{", "}", "[", "]", ",", ":", '"', "'", "```json\n", "```", "\n", " ", "<think>", "</think>", "null", "NaN"),
        *('"memories"', "memories:", '{"memories": [', "]}", GOOD, '{"text": "', '"importance": "high"', '"emotion"'),
        *("Here are the facts:", "hope this {helps}", "I'm sorry, I can't help with that.", "No memories.", "\ud83d"),
        *(
            '{"text": 17}',
            '{"text": "..."}',
            '{"texts": ["Ben"]}',
            "1e999",
            "\\u0000",
            "[[[[",
            '{"text": {"text": "x"}}',
        ),
    ]
)


@given(st.lists(pieces, max_size=12).map("".join))
def test_no_answer_of_the_model_reaches_the_hosts_turn_or_becomes_a_memory_by_fallback(
    memory: Memory, reply: str
) -> None:
    """Whatever comes: no exception, the exchange is kept, its work is done or due, and only what stands in JSON as a
    text becomes a memory."""
    services = memory._services
    with services.file.write() as tx:
        tx.execute("delete from memory")
    services.llm = ScriptedLLM([answer("Ann likes coffee."), reply])
    chat = memory.chat()
    chat.store("Ann likes coffee", "ok")
    before = services.file.reader().execute("select count(*) from exchange").fetchone()[0]
    stored = chat.store("what Ann likes", "ok")
    assert services.file.reader().execute("select count(*) from exchange").fetchone()[0] == before + 1
    state = services.file.reader().execute("select state from task order by id desc limit 1").fetchone()[0]
    assert state == {"done": "done", "due": "failed"}[stored.extraction]
    held = [row["text"] for row in services.file.reader().execute("select text from memory order by id")]
    assert held[0] == "Ann likes coffee."
    for text in held[1:]:
        assert '"' + text.split()[0] in reply or f"'{text.split()[0]}" in reply
        assert not text.startswith(("I'm sorry", "...", "{", "["))


def test_an_unusable_answer_is_in_the_ledger_with_its_reason(path: Path, clock: FixedClock) -> None:
    with open_memory(path, clock, ["prose"]) as memory:
        memory.chat().store("I like tea", "ok")
        (call,) = memory.db.query("select outcome, error from model_call")
        assert call["outcome"] == "unusable"
        assert UnusableAnswer.__name__ in call["error"]
