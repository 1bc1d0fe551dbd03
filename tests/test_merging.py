"""Two files become one: once, in any order, with what both know and nothing that either forgot."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from rows import fill

from istar_lite import BadInput, FileTooNew, Memory, NotAMemoryFile, TurnRecord
from istar_lite.database import sqlite3
from istar_lite.migrations import base_tables, latest_version
from istar_lite.testing import FixedClock, ScriptedLLM, WordEmbedder

DAYS = [f"2026-01-{day:02}T10:00:00Z" for day in range(1, 29)]


@pytest.fixture
def two(tmp_path: Path, clock: FixedClock) -> Any:
    a = Memory(tmp_path / "a.db", embedder=None, clock=clock)
    b = Memory(tmp_path / "b.db", embedder=None, clock=clock)
    yield a, b
    for memory in (a, b):
        assert memory.check() == []
        memory.close()


def live(memory: Memory, kind: str = "memory", column: str = "text") -> list[str]:
    rows = memory.db.query(f"select {column} as text, status from {kind}")
    return sorted(row["text"] for row in rows if row["status"] == "active")


def counts(memory: Memory) -> dict[str, int]:
    return {
        table: next(memory.db.query(f"select count(*) as n from {table}"))["n"]
        for table in base_tables()
        if table != "document_change"
    }


def test_everything_of_a_filled_file_comes_into_an_empty_one(tmp_path: Path) -> None:
    path = fill(tmp_path / "a.db")
    with Memory(tmp_path / "b.db", embedder=None) as memory:
        merged = memory.merge(path)
        assert memory.check() == []
        assert memory.diff(path) == ()
        there = Memory(path, read_only=True, embedder=None)
        skipped = {"embedding", "embedding_model", "cell", "cell_member"}  # models that this file does not use
        ours, theirs = counts(memory), counts(there)
        there.close()
        assert {table for table in ours if ours[table] != theirs[table]} <= skipped
        assert merged.total > 50 and merged.met == {} and merged.refused == 0


def test_merging_again_changes_nothing(tmp_path: Path) -> None:
    path = fill(tmp_path / "a.db")
    with Memory(tmp_path / "b.db", embedder=None) as memory:
        memory.remember("likes tea already")
        memory.merge(path)
        memory.seal("before")
        again = memory.merge(path)
        assert again.total == 0 and again.added == {} and again.removed == 0
        assert memory.check(key="before") == []


def test_merging_a_copy_of_the_file_itself_changes_nothing(tmp_path: Path) -> None:
    path = fill(tmp_path / "a.db")
    with Memory(path, embedder=None) as memory:
        memory.seal("before")
        memory.snapshot(tmp_path / "copy.db")
        assert memory.merge(tmp_path / "copy.db").total == 0
        assert memory.check(key="before") == []


def test_the_other_file_is_only_read(tmp_path: Path) -> None:
    path = fill(tmp_path / "a.db")
    before = path.read_bytes()
    with Memory(tmp_path / "b.db", embedder=None) as memory:
        memory.merge(path)
        memory.diff(path)
    assert path.read_bytes() == before
    assert {item.name for item in tmp_path.iterdir()} == {"a.db", "b.db"}


def test_an_export_merges_like_the_file_it_was_made_of(tmp_path: Path) -> None:
    path = fill(tmp_path / "a.db")
    with Memory(path, embedder=None) as memory:
        memory.export(tmp_path / "a.jsonl")
    with Memory(tmp_path / "b.db", embedder=None) as memory:
        memory.merge(tmp_path / "a.jsonl")
        assert memory.merge(path).total == 0


def test_what_is_no_other_memory_is_refused(tmp_path: Path) -> None:
    path = fill(tmp_path / "a.db")
    (tmp_path / "text.db").write_text("hello " * 200)
    shutil.copy(path, tmp_path / "new.db")
    connection = sqlite3.connect(str(tmp_path / "new.db"), isolation_level=None)
    connection.execute(f"pragma user_version = {latest_version() + 1}")
    connection.close()
    with Memory(path, embedder=None) as memory:
        memory.seal("before")
        for other, error in (
            (tmp_path / "missing.db", BadInput),
            (path, BadInput),
            (tmp_path / "text.db", NotAMemoryFile),
            (tmp_path / "new.db", FileTooNew),
        ):
            with pytest.raises(error):
                memory.merge(other)
        assert memory.check(key="before") == []
    assert not (tmp_path / "missing.db").exists()


def test_a_merge_that_fails_in_the_middle_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from istar_lite import merging

    path = fill(tmp_path / "a.db")

    def fails(_: object) -> None:
        raise KeyboardInterrupt

    with Memory(tmp_path / "b.db", embedder=None) as memory:
        memory.seal("before")
        monkeypatch.setattr(merging, "_STEPS", (*merging._STEPS[:-2], fails))
        with pytest.raises(KeyboardInterrupt):
            memory.merge(path)
        assert memory.check(key="before") == []


# --- memories -------------------------------------------------------------------------------------------------


def test_the_same_statement_of_both_files_is_one_with_the_earlier_date(two: Any) -> None:
    a, b = two
    a.remember("Likes green tea.", occurred_at=DAYS[5], tags=["drink"])
    b.remember("likes  green tea", occurred_at=DAYS[2], tags=["tea"])
    a.merge(b.path)
    b.merge(a.path)
    for memory in two:
        rows = [row for row in memory.list("memory") if row["status"] == "active"]
        assert len(rows) == 1 and rows[0]["occurred_at"].day == 3
        tags = {row["tag"] for row in memory.db.query("select tag from tag where row = ?", [rows[0]["id"]])}
        assert tags == {"drink", "tea"}


def test_counts_are_the_larger_first_dates_the_earlier_last_ones_the_later(two: Any) -> None:
    a, b = two
    for memory, count, when in ((a, 3, DAYS[3]), (b, 7, DAYS[9])):
        memory.remember("likes tea", occurred_at=DAYS[0])
        memory.db.execute(
            "update memory set access_count = ?, mention_count = ?, last_accessed_at = ?, stability = ?",
            [count, 10 - count, when.replace("Z", ".000Z"), count / 2],
        )
        memory.db.conn.commit()
    a.merge(b.path)
    row = a.list("memory")[0]
    assert (row["access_count"], row["mention_count"], row["stability"]) == (7, 7, 3.5)
    assert row["last_accessed_at"].day == 10


def test_a_statement_closed_in_one_file_is_closed_in_both(two: Any, tmp_path: Path) -> None:
    a, b = two
    old = a.remember("the port is 22", occurred_at=DAYS[0])
    b.merge(a.path)
    a.supersede(old.id, "the port is 49222", occurred_at=DAYS[8])
    b.merge(a.path)
    assert live(b) == ["the port is 49222"]
    closed = next(row for row in b.list("memory") if row["text"] == "the port is 22")
    new = next(row for row in b.list("memory") if row["text"] == "the port is 49222")
    assert closed["ended_by"] == f"memory {new['id']}" and closed["ended_at"].day == 9


def test_a_statement_corrected_in_both_files_ends_in_one_live_value_by_event_time(two: Any) -> None:
    a, b = two
    old = a.remember("the port is 22", occurred_at=DAYS[0])
    b.merge(a.path)
    a.supersede(old.id, "the port is 3333", occurred_at=DAYS[9])
    b.supersede(b.list("memory")[0]["id"], "the port is 2222", occurred_at=DAYS[5])
    a.merge(b.path)
    b.merge(a.path)
    for memory in two:
        assert live(memory) == ["the port is 3333"]
        ends = {row["text"]: row["ended_at"] and row["ended_at"].day for row in memory.list("memory")}
        assert ends == {"the port is 22": 6, "the port is 2222": 10, "the port is 3333": None}


def test_a_correction_that_was_forgotten_does_not_take_what_it_corrected_with_it(two: Any) -> None:
    a, b = two
    old = a.remember("the port is 22", occurred_at=DAYS[0])
    b.merge(a.path)
    b.remember("the port is 2222")
    b.forget(text="2222")
    a.supersede(old.id, "the port is 2222", occurred_at=DAYS[9])
    b.merge(a.path)
    assert live(b) == ["the port is 22"]


def test_an_idempotency_key_of_the_other_file_is_known_here(two: Any) -> None:
    a, b = two
    a.remember("likes tea", key="k1", occurred_at=DAYS[0])
    b.remember("likes tea", key="k2", occurred_at=DAYS[0])
    b.remember("likes cake", key="k1")
    a.merge(b.path)
    assert a.remember("likes tea", key="k2").id == a.remember("likes tea", key="k1").id
    assert live(a) == ["likes cake", "likes tea"]


def test_sources_tags_and_merged_rows_are_named_by_the_ids_of_this_file(two: Any) -> None:
    a, b = two
    for number in range(5):
        a.remember(f"filler number {number}")
    b._services.llm = None
    chat = b.chat("kitchen")
    chat.store("I like oolong tea", "Noted.")
    b.remember("likes oolong tea", tags=["drink"])
    with b._services.file.write() as tx:
        tx.execute("insert into source values ('memory', 1, 'message', 1, 'from')")
    a.merge(b.path)
    found = next(a.db.query("select * from source where kind = 'memory' and source_kind = 'message'"))
    assert a.get("memory", found["row"])["text"] == "likes oolong tea"
    assert a.get("message", found["source_row"])["content"] == "I like oolong tea"


# --- runs -----------------------------------------------------------------------------------------------------


def play(memory: Memory, run: str, turns: range, reward: float = 1.0) -> None:
    agent = memory.agent(run)
    for turn in turns:
        record = TurnRecord(turn=turn, reward=turn * reward, reward_unit="EUR", occurred_at=DAYS[turn])
        agent.record_turn(record)


def runs(memory: Memory) -> dict[str, int]:
    return {session["name"]: session["turns"] for session in memory.sessions() if session["kind"] == "run"}


def test_a_run_that_went_on_elsewhere_goes_on_here(two: Any) -> None:
    a, b = two
    play(a, "market", range(1, 6))
    b.merge(a.path)
    play(b, "market", range(6, 9))
    a.merge(b.path)
    assert runs(a) == {"market": 8}
    assert b.merge(a.path).total == 0


def test_a_run_of_the_same_name_with_other_turns_comes_in_as_another(two: Any) -> None:
    a, b = two
    play(a, "market", range(1, 6))
    play(b, "market", range(1, 4), reward=2.0)
    merged = a.merge(b.path)
    assert merged.renamed == (("market", "market~2"),)
    assert runs(a) == {"market": 5, "market~2": 3}
    assert a.merge(b.path).total == 0
    b.merge(a.path)
    assert runs(b) == {"market": 3, "market~2": 5}
    assert a.merge(b.path).total == 0 and runs(a) == {"market": 5, "market~2": 3}


def test_copies_of_a_run_that_went_apart_are_two_runs(two: Any) -> None:
    a, b = two
    play(a, "market", range(1, 6))
    b.merge(a.path)
    play(a, "market", range(6, 9))
    play(b, "market", range(6, 10), reward=3.0)
    a.merge(b.path)
    assert runs(a) == {"market": 8, "market~2": 9}


def test_a_third_run_of_a_name_gets_the_next_number(two: Any, tmp_path: Path) -> None:
    a, b = two
    play(a, "market", range(1, 3))
    play(b, "market", range(1, 3), reward=2.0)
    a.merge(b.path)
    with Memory(tmp_path / "c.db", embedder=None) as c:
        play(c, "market", range(1, 3), reward=3.0)
        assert a.merge(c.path).renamed == (("market", "market~3"),)


def test_episodes_of_one_run_never_overlap_after_a_merge(two: Any) -> None:
    a, b = two
    play(a, "market", range(1, 6))
    b.merge(a.path)
    play(b, "market", range(6, 11))
    insert = (
        "insert into episode (session, name, turn_start, turn_end, narrative, occurred_at) values (1, ?, ?, ?, ?, ?)"
    )
    with a._services.file.write() as tx:
        tx.execute(insert, ("GROWTH", 1, 5, "as told here", "2026-01-06T10:00:00.000Z"))
    with b._services.file.write() as tx:
        tx.execute(insert, ("GROWTH", 1, 4, "as told there", "2026-01-05T10:00:00.000Z"))
        tx.execute(insert, ("DECLINE", 5, 10, "and then it fell", "2026-01-11T10:00:00.000Z"))
    a.merge(b.path)
    b.merge(a.path)
    for memory in two:
        assert live(memory, "episode", "narrative") == ["and then it fell", "as told there"]
        assert len(memory.list("episode")) == 3


def test_a_working_set_keeps_its_cap(two: Any) -> None:
    a, b = two
    play(a, "market", range(1, 6))
    b.merge(a.path)
    for memory, base in ((a, 10), (b, 15)):
        with memory._services.file.write() as tx:
            tx.execute("insert into setting (key, session, value) values ('max_atoms', 1, 4)")
            for number in range(6):
                tx.execute(
                    "insert into atom (session, key, turn, type, content, priority) values (1, ?, ?, 'x', ?, ?)",
                    (f"{base + number}", 1 + number % 5, f"atom {base + number}", base + number),
                )
    a.merge(b.path)
    b.merge(a.path)
    assert live(a, "atom", "content") == live(b, "atom", "content") == [f"atom {n}" for n in (17, 18, 19, 20)]


# --- conversations --------------------------------------------------------------------------------------------


def said(memory: Memory, session: str = "kitchen") -> list[str]:
    return [row["content"] for row in memory.db.query("select content from message order by session, position")]


def test_messages_of_both_stand_in_the_order_in_which_they_were_said(two: Any) -> None:
    a, b = two
    for memory, days in ((a, (0, 4, 8)), (b, (2, 4, 6))):
        for day in days:
            memory.chat("kitchen").store(f"question {day}", f"answer {day}", occurred_at=DAYS[day])
    a.merge(b.path)
    b.merge(a.path)
    wanted = [f"{what} {day}" for day in (0, 2, 4, 6, 8) for what in ("question", "answer")]
    assert said(a) == said(b) == wanted
    assert a.merge(b.path).total == 0


def test_the_window_of_exchanges_holds_the_newest_of_both(two: Any) -> None:
    a, b = two
    for memory, days in ((a, range(0, 10, 2)), (b, range(1, 11, 2))):
        for day in days:
            memory.chat("kitchen").store(f"question {day}", f"answer {day}", occurred_at=DAYS[day])
    a.merge(b.path)
    b.merge(a.path)
    for memory in two:
        rows = memory.db.query("select prompt from exchange_text where status = 'active' order by occurred_at")
        assert [row["prompt"] for row in rows] == [f"question {day}" for day in range(3, 10)]


def test_the_same_words_of_another_role_or_speaker_stay_apart(two: Any) -> None:
    a, b = two
    for memory, role, speaker in ((a, "user", "Ann"), (b, "user", "Ben")):
        with memory._services.file.write() as tx:
            tx.execute("insert into session (id, name) values (1, 'x')")
            tx.execute(
                "insert into message (session, role, speaker, content, occurred_at)"
                " values (1, ?, ?, 'yes', '2026-01-01T10:00:00.000Z')",
                (role, speaker),
            )
    a.merge(b.path)
    assert said(a) == ["yes", "yes"]


def test_an_observation_holds_only_where_both_files_agree_on_its_messages(two: Any) -> None:
    a, b = two
    a.chat("kitchen").store("question 0", "answer 0", occurred_at=DAYS[0])
    b.merge(a.path)
    a.chat("kitchen").store("question 1", "answer 1", occurred_at=DAYS[1])
    b.chat("kitchen").store("question 2", "answer 2", occurred_at=DAYS[2])
    for memory, text in ((a, "observed in a"), (b, "observed in b")):
        with memory._services.file.write() as tx:
            tx.execute(
                "insert into observation (session, first_message, last_message, text, stage)"
                " select 1, min(id), max(id), ?, 'active' from message",
                (text,),
            )
    a.merge(b.path)
    b.merge(a.path)
    for memory in two:
        # Nobody read all of these messages: they are raw again, and both texts are kept as ended.
        assert live(memory, "observation") == []
        assert len(memory.list("observation")) == 2
        raw = next(memory.db.query("select count(*) as n from message where observation is null"))["n"]
        assert raw == 6


def test_an_observation_comes_along_with_the_messages_that_only_its_file_has(two: Any) -> None:
    a, b = two
    a.remember("filler")
    a.chat("other").store("some", "thing")
    b.chat("kitchen").store("question", "answer")
    with b._services.file.write() as tx:
        tx.execute(
            "insert into observation (session, first_message, last_message, text, stage)"
            " values (1, 1, 2, 'log', 'active')"
        )
    a.merge(b.path)
    assert live(a, "observation") == ["log"]
    covered = next(a.db.query("select count(*) as n from message where observation is not null"))["n"]
    assert covered == 2


# --- forgetting, work, vectors --------------------------------------------------------------------------------


def test_what_either_side_forgot_is_forgotten(two: Any) -> None:
    a, b = two
    for memory in two:
        memory.remember("the code is 4711", occurred_at=DAYS[0])
        memory.remember("likes tea", occurred_at=DAYS[0])
    a.forget(text="4711")
    merged = a.merge(b.path)
    assert merged.refused == 1 and live(a) == ["likes tea"]
    back = b.merge(a.path)
    assert back.removed >= 1 and live(b) == ["likes tea"]
    for memory in two:
        assert not memory.search("code 4711")


def test_a_forgotten_message_does_not_come_back_and_takes_its_exchange_along(two: Any) -> None:
    a, b = two
    b.chat("kitchen").store("my code is 4711", "noted")
    a.merge(b.path)
    a.forget(text="4711")
    a.merge(b.path)
    assert said(a) == ["noted"] and len(a.list("exchange")) == 0
    b.merge(a.path)
    assert said(b) == ["noted"]


def test_work_done_in_one_file_is_done_and_work_that_waits_waits_here(two: Any) -> None:
    a, b = two
    b.chat("kitchen").store("I like tea", "Noted.")
    a.merge(b.path)
    assert a.status().due == 1
    a._services.llm = None
    with Memory(b.path, embedder=None, llm=ScriptedLLM([], default='{"memories":[{"text":"likes tea"}]}')) as other:
        other.work(force=True)
        assert live(other) == ["likes tea"]
    a.merge(b.path)
    assert a.status().due == 0 and live(a) == ["likes tea"]


def test_vectors_come_along_where_the_model_is_the_same_and_are_pending_else(tmp_path: Path) -> None:
    with (
        Memory(tmp_path / "a.db", embedder=WordEmbedder(64)) as a,
        Memory(tmp_path / "b.db", embedder=WordEmbedder(64)) as b,
    ):
        for memory, text in ((a, "likes green tea"), (b, "likes black coffee")):
            memory.remember(text)
            memory.search("likes")
        assert a.merge(b.path).pending_vectors == 0
        assert a.status().pending_vectors == 0
        assert a.search("coffee")[0].text == "likes black coffee"
        with Memory(tmp_path / "c.db", embedder=WordEmbedder(32)) as c:
            c.remember("likes cake")
            c.search("likes")
            assert c.merge(b.path).pending_vectors == 1
            assert c.search("coffee")[0].text == "likes black coffee"
            assert c.check() == []


def test_what_comes_in_is_redacted_as_this_file_wants_it(tmp_path: Path) -> None:
    with Memory(tmp_path / "b.db", embedder=None) as b:
        b.remember("the code is 4711")
        b.chat("x").store("code 4711", "ok")
    with Memory(tmp_path / "a.db", embedder=None, redact=lambda text: text.replace("4711", "[code]")) as a:
        a.merge(tmp_path / "b.db")
        assert live(a) == ["the code is [code]"]
        assert a.merge(tmp_path / "b.db").total == 0
    assert b"4711" not in (tmp_path / "a.db").read_bytes()


def test_namespaces_stay_apart(tmp_path: Path) -> None:
    names = ["a", "ab", "A", "a%", "a/b", "a'b"]
    for file in ("a.db", "b.db"):
        with Memory(tmp_path / file, embedder=None) as memory:
            for name in names:
                memory.in_namespace(name).remember(f"{file} in {name}")
    with Memory(tmp_path / "a.db", embedder=None) as memory:
        memory.merge(tmp_path / "b.db")
        for name in names:
            found = sorted(row["text"] for row in memory.in_namespace(name).list("memory"))
            assert found == [f"a.db in {name}", f"b.db in {name}"]


# --- any two histories ----------------------------------------------------------------------------------------

STATEMENTS = ["likes tea", "Likes tea.", "port is 22", "port is 2222", "port is 3333", "born in May"]
events = st.lists(
    st.one_of(
        st.tuples(st.just("remember"), st.sampled_from(STATEMENTS), st.integers(0, 20)),
        st.tuples(st.just("correct"), st.sampled_from(STATEMENTS), st.integers(0, 20)),
        st.tuples(st.just("forget"), st.sampled_from(["22", "May"]), st.just(0)),
        st.tuples(st.just("say"), st.sampled_from(["hello", "tea?", "22?"]), st.integers(0, 20)),
        st.tuples(st.just("play"), st.sampled_from(["r"]), st.integers(1, 3)),
    ),
    max_size=6,
)


def live_through(memory: Memory, history: list[tuple[str, str, int]]) -> None:
    for what, text, day in history:
        if what == "remember":
            memory.remember(text, occurred_at=DAYS[day])
        elif what == "correct":
            rows = [row for row in memory.list("memory") if row["status"] == "active"]
            if rows:
                memory.supersede(rows[0]["id"], text, occurred_at=DAYS[day])
        elif what == "forget":
            memory.forget(text=text)
        elif what == "say":
            memory.chat("c").store(text, f"to {text}", occurred_at=DAYS[day])
        else:
            last = next(memory.db.query("select coalesce(max(turn), 0) as n from turn"))["n"]
            memory.agent(text).record_turn(TurnRecord(turn=last + 1, reward=float(day), occurred_at=DAYS[last % 28]))


def content(memory: Memory) -> dict[str, list[Any]]:
    """Live rows by what they say and when, without ids and without the names of runs."""
    queries = {
        "memory": "select occurred_at, lower(rtrim(text, '.')) from memory where status = 'active'",
        "message": "select occurred_at, role, content from message",
        "exchange": "select occurred_at, prompt, response from exchange_text where status = 'active'",
        "turn": "select turn, reward, occurred_at from turn",
        "tombstone": "select distinct kind from tombstone",
    }
    return {name: sorted(memory.db.execute(query).fetchall()) for name, query in queries.items()}


@settings(max_examples=int(os.environ.get("ISTAR_EXAMPLES", "6")))
@given(common=events, left=events, right=events)
@example(  # a correction that one file forgot: the statement is live in the other
    common=[("remember", "likes tea", 0)], left=[], right=[("correct", "born in May", 0), ("forget", "May", 0)]
)
@example(
    common=[("remember", "likes tea", 0)],
    left=[("correct", "born in May", 0), ("remember", "likes tea", 0), ("forget", "May", 0)],
    right=[],
)
@example(  # said again by one after it was forgotten
    common=[("say", "22?", 3), ("forget", "22", 0)], left=[("remember", "port is 2222", 2)], right=[("say", "22?", 2)]
)
@example(  # more exchanges than the window holds, told in another order than they happened in
    common=[("say", "hello", 1), *[("say", "hello", 0)] * 3], left=[], right=[("say", "hello", 0)] * 4
)
def test_the_order_of_merging_does_not_matter_and_doing_it_again_does_nothing(
    tmp_path_factory: pytest.TempPathFactory, common: Any, left: Any, right: Any
) -> None:
    folder = tmp_path_factory.mktemp("merge")
    clock = FixedClock("2026-02-01T00:00:00Z")

    def opened(name: str) -> Memory:
        return Memory(folder / name, embedder=None, clock=clock)

    with opened("a.db") as a:
        live_through(a, common)
    shutil.copy(folder / "a.db", folder / "b.db")
    with opened("a.db") as a:
        live_through(a, left)
    with opened("b.db") as b:
        live_through(b, right)
    shutil.copy(folder / "a.db", folder / "a0.db")
    with opened("a.db") as a, opened("b.db") as b:
        a.merge(folder / "b.db")
        b.merge(folder / "a0.db")
        assert content(a) == content(b)
        for memory, other in ((a, "b.db"), (b, "a0.db"), (a, "a0.db")):
            before = content(memory)
            memory.seal("k")
            memory.merge(folder / other)
            assert content(memory) == before
            assert memory.check(key="k") == []


# --- diff -----------------------------------------------------------------------------------------------------


def test_diff_tells_rows_of_one_side_and_what_differs(two: Any) -> None:
    a, b = two
    a.remember("likes tea", occurred_at=DAYS[0], importance=0.5)
    b.remember("likes tea", occurred_at=DAYS[0], importance=0.9)
    a.remember("only here")
    b.remember("only there")
    found = {(item.where, item.text): item.fields for item in a.diff(b.path) if item.kind == "memory"}
    assert found == {("both", "likes tea"): ("importance",), ("here", "only here"): (), ("there", "only there"): ()}
    assert a.merge(b.path) and {item.where for item in a.diff(b.path)} == {"here"}


def test_every_table_is_brought_or_left_out_for_a_reason(tmp_path: Path) -> None:
    """A table that is added to the schema must be merged too: this fails until somebody thinks of it."""
    left_out = {
        "embedding": "copied by model",
        "embedding_model": "of whoever opens the file",
        "cell": "made of vectors",
        "cell_member": "made of vectors",
    }
    path = fill(tmp_path / "a.db")
    with Memory(tmp_path / "b.db", embedder=None) as memory:
        memory.merge(path)
        empty = {table for table, count in counts(memory).items() if count == 0}
    assert empty <= left_out.keys()
