"""Forgetting that stays: every path, what goes along, what is stale, what does not come back, what the bytes hold."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from istar_lite import BadInput, Busy, Memory, ScopeRequired, TurnRecord
from istar_lite.database import sqlite3
from istar_lite.testing import FixedClock, ScriptedLLM, WordEmbedder
from istar_lite.verifying import verify_forget

SECRET = "zanzibar"
SAID = f"the vault code is {SECRET}-4711"
LEARNT = f"The vault code is {SECRET}-4711."
DAY = 86400.0


def answer(*texts: str) -> str:
    """An extraction as a model gives it."""
    return json.dumps({"memories": [{"text": text} for text in texts]})


def extracting(default: str = "") -> ScriptedLLM:
    """A model that takes the secret out of what mentions it, and nothing out of the rest."""

    def read(messages: Any) -> str:
        return answer(LEARNT) if SECRET in messages[-1]["content"] else default or answer()

    return ScriptedLLM(default=read)


@pytest.fixture
def memory(path: Path, clock: FixedClock) -> Iterator[Memory]:
    """A memory with the tiny embedder and a model that extracts."""
    with Memory(path, embedder=WordEmbedder(), clock=clock, llm=extracting()) as opened:
        yield opened


def everything(memory: Memory) -> dict[str, list[tuple[Any, ...]]]:
    """All rows of all tables, by plain SQL."""
    with closing(sqlite3.connect(memory.path)) as shell:
        tables = [row[0] for row in shell.execute("select name from sqlite_master where type = 'table'")]
        return {table: shell.execute(f'select * from "{table}"').fetchall() for table in tables if "fts" not in table}


def rows_of(memory: Memory, namespace: str) -> dict[str, list[tuple[Any, ...]]]:
    """What belongs to a namespace: documents with their tags, vectors and sources."""
    with closing(sqlite3.connect(memory.path)) as shell:
        owner = f"(select id from namespace where name = '{namespace}')"
        documents = f"select id from document where namespace = {owner}"
        return {
            "document": shell.execute(f"select * from document where namespace = {owner} order by id").fetchall(),
            "embedding": shell.execute(f"select * from embedding where document in ({documents})").fetchall(),
            "memory": shell.execute(f"select * from memory where namespace = {owner} order by id").fetchall(),
            "session": shell.execute(f"select * from session where namespace = {owner} order by id").fetchall(),
        }


def holds(memory: Memory, text: str = SECRET) -> list[str]:
    """Tables and columns in which the text stands."""
    return sorted(
        {table for table, rows in everything(memory).items() if any(text in str(row).lower() for row in rows)}
    )


def fill(memory: Memory) -> None:
    """The secret in all kinds of rows: messages, memories, turns, atoms, an episode, a log, a trail."""
    memory.chat("talk").store(SAID, "noted")
    memory.remember(f"{SECRET} is an island", tags=["geo"])
    memory.chat("talk").retrieve(f"what is the {SECRET} code")
    memory.context(f"{SECRET} code?", budget_tokens=500)
    agent = memory.agent("run")
    agent.record_turn(TurnRecord(turn=1, reward=1.0, events=["calm"]))
    agent.record_turn(TurnRecord(turn=2, reward=2.0, events=[f"landed in {SECRET}"], extra={"port": SECRET}))
    db = memory.db
    run = next(db.query("select id from session where kind = 'run'"))["id"]
    talk = next(db.query("select id from session where kind = 'conversation'"))["id"]
    db.execute(
        "insert into atom (session, turn, type, content) values (?, 2, 'landing', ?)", [run, f"landed: {SECRET}"]
    )
    db.execute(
        "insert into episode (session, name, turn_start, turn_end, narrative) values (?, 'SEA', 1, 2, ?)",
        [run, f"it sailed to {SECRET}"],
    )
    db.execute("insert into profile (profile_id, session, text) values ('p', ?, ?)", [run, f"avoid {SECRET}"])
    db.execute(
        "insert into observation (session, first_message, last_message, text, stage, current_task)"
        " select ?, min(id), max(id), ?, 'active', ? from message where session = ?",
        [talk, f"* told the {SECRET} code", f"guard {SECRET}", talk],
    )
    db.execute(
        "insert into reflection (session, first_observation, last_observation, text) values (?, 1, 1, ?)",
        [talk, SECRET],
    )
    db.conn.commit()
    memory.status()


# --- scope ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "scope",
    [
        {},
        {"text": ""},
        {"text": "  "},
        {"tag": ""},
        {"session": " "},
        {"everything": False},
        {"kind": "turn"},
        {"text": None},
    ],
    ids=str,
)
def test_an_empty_scope_is_refused_and_nothing_goes(memory: Memory, scope: dict[str, Any]) -> None:
    memory.remember_many(["a fact", "another fact"])
    with pytest.raises(ScopeRequired):
        memory.forget(**scope)
    assert memory.stats()["kinds"]["memory"] == 2


@pytest.mark.parametrize(
    ("field", "scope"),
    [
        ("kind", {"kind": "nothing", "id": 1}),
        ("id", {"id": "1 or 1"}),
        ("ids", {"ids": "12"}),
        ("ids[1]", {"ids": [1, None]}),
        ("everything", {"everything": True, "tag": "x"}),
        ("everything", {"everything": 1}),
        ("before", {"before": "2026-02-30"}),
    ],
)
def test_a_bad_scope_names_its_field_and_nothing_goes(memory: Memory, field: str, scope: dict[str, Any]) -> None:
    memory.remember("a fact")
    with pytest.raises(BadInput) as refused:
        memory.forget(**scope)
    assert refused.value.field == field
    assert memory.stats()["kinds"]["memory"] == 1


@pytest.mark.parametrize(
    "scope",
    [
        {"id": 99},
        {"ids": []},
        {"tag": "none"},
        {"session": "none"},
        {"text": "none"},
        {"before": "1999-01-01"},
        {"tag": "'; --"},
    ],
    ids=str,
)
def test_what_matches_nothing_forgets_nothing_and_gives_zeros(memory: Memory, scope: dict[str, Any]) -> None:
    memory.remember("a fact", tags=["x"])
    memory.status()
    before = everything(memory)
    done = memory.forget(**scope)
    assert (done.total, done.stale, dict(done.counts), done["memory"]) == (0, 0, {}, 0)
    assert everything(memory) == before


def test_a_forget_of_one_owner_leaves_the_others_rows_as_they_are(memory: Memory) -> None:
    other = memory.in_namespace("other")
    for owner in (memory, other):
        owner.remember_many([f"{SECRET} fact {n}" for n in range(3)])
        owner.chat("talk").store(SAID, "noted")
    memory.status()
    other.status()
    before = rows_of(memory, "other")
    assert memory.forget(everything=True).counts == {"memory": 4, "message": 2, "exchange": 1}
    assert rows_of(memory, "other") == before
    assert rows_of(memory, "default") == {"document": [], "embedding": [], "memory": [], "session": []}
    assert memory.check() == []
    assert len([hit for hit in other.search(SECRET) if SECRET in hit.text]) == 5


def test_conditions_are_anded_and_dates_are_half_open(memory: Memory) -> None:
    for day in range(1, 6):
        memory.remember(
            f"fact of day {day}", tags=["odd"] if day % 2 else ["even"], occurred_at=f"2025-01-0{day}T00:00:00Z"
        )
    done = memory.forget(tag="odd", after="2025-01-01T00:00:00Z", before="2025-01-05T00:00:00Z")
    assert done.counts == {"memory": 2}
    assert [row.text[-1] for row in memory.list("memory")] == ["2", "4", "5"]
    assert memory.forget(ids=[2, 4, 5], tag="even").counts == {"memory": 2}


def test_ids_are_of_their_kind_and_used_never_again(memory: Memory) -> None:
    memory.chat().store("small talk", "indeed")
    memory.remember("a fact")
    assert memory.forget(id=1).counts == {"memory": 1}
    assert memory.stats()["kinds"]["message"] == 2
    assert memory.remember("another").id == 2
    assert memory.forget(kind="exchange", id=1).counts == {"exchange": 1, "message": 2}


# --- every path clears everything -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "scopes",
    [
        [{"text": SECRET.upper()}],
        [{"session": "talk"}, {"session": "run"}, {"tag": "geo"}],
        [{"everything": True}],
        [{"after": "2025-01-01", "before": "2027-01-01"}],
        [
            {"kind": "message", "ids": [1, 2]}, {"kind": "turn", "id": 2}, {"kind": "profile", "id": 1},
            {"kind": "episode", "id": 1}, {"ids": [1, 2]},
        ],
    ],
    ids=["text", "session and tag", "everything", "date", "ids"],
)  # fmt: skip
def test_every_path_clears_text_search_vectors_links_and_trail(memory: Memory, scopes: list[dict[str, Any]]) -> None:
    fill(memory)
    assert {"memory", "message", "turn", "atom", "episode", "profile", "observation", "reflection", "recall"} <= set(
        holds(memory)
    )
    for scope in scopes:
        memory.forget(**scope)
    assert [table for table in holds(memory) if table != "recall"] == []
    if "text" in scopes[0]:
        assert holds(memory) == []
    for mark in (SECRET, f"{SECRET} 4711", "code"):
        assert [hit.text for hit in memory.search(mark, status="any") if SECRET in hit.text.lower()] == []
    orphans = memory.db.execute(
        "select (select count(*) from embedding where document not in (select id from document))"
        " + (select count(*) from tag where (kind, row) not in (select kind, row from document))"
        " + (select count(*) from recall_hit where (kind, row) not in (select kind, row from document))"
    ).fetchone()[0]
    assert orphans == 0
    assert memory.check() == []


def test_a_forgotten_session_is_gone_with_its_name(memory: Memory) -> None:
    memory.chat("about zanzibar").store("small talk", "indeed")
    memory.forget(session="about zanzibar")
    assert memory.sessions() == [] and holds(memory) == []
    assert memory.status().calls == 1  # what it cost stays in the ledger


def test_errors_that_quote_a_forgotten_text_go_too(path: Path, clock: FixedClock) -> None:
    llm = ScriptedLLM(default=RuntimeError(f"cannot read: {SAID}"))
    with Memory(path, embedder=None, clock=clock, llm=llm) as memory:
        memory.chat().store(SAID, "noted")
        assert {"task", "model_call"} <= set(holds(memory))
        memory.forget(kind="message", id=1)
        assert holds(memory) == []


def test_fifty_thousand_rows_go_in_one_call(path: Path, clock: FixedClock) -> None:
    with Memory(path, embedder=None, clock=clock) as memory:
        with memory._services.file.write() as tx:
            tx.execute(
                "with recursive n (i) as (select 1 union all select i + 1 from n where i < 50000)"
                " insert into memory (text) select 'fact number ' || i from n"
            )
        memory.remember("the one that stays")
        assert memory.forget(ids=range(1, 50_001)).counts == {"memory": 50_000}
        assert [row.text for row in memory.list("memory")] == ["the one that stays"]


# --- what rests on it -----------------------------------------------------------------------------------------


def test_what_rests_only_on_it_goes_and_what_the_host_told_itself_stays(memory: Memory) -> None:
    memory.chat().store(SAID, "noted")
    memory.remember("the harbour is closed")
    assert memory.forget(kind="message", id=1).counts == {"message": 1, "exchange": 1, "memory": 1}
    assert [row.text for row in memory.list("memory")] == ["the harbour is closed"]


def test_what_the_host_told_too_does_not_go_with_the_message(memory: Memory) -> None:
    memory.chat().store(SAID, "noted")
    memory.remember(LEARNT)
    done = memory.forget(kind="message", id=1)
    assert (done.counts, done.stale) == ({"message": 1, "exchange": 1}, 0)
    assert len(memory.search(SECRET, kinds=["memory"])) == 1


def test_what_rests_partly_on_it_is_stale_until_it_is_redone(memory: Memory) -> None:
    memory.chat().store(SAID, "noted")
    memory.chat().store(f"again: the code is {SECRET}-4711", "noted")
    done = memory.forget(kind="message", id=1)
    assert (done.counts, done.stale) == ({"message": 1, "exchange": 1}, 1)
    assert memory.search(SECRET, kinds=["memory"]).hits == ()
    assert memory.chat().retrieve("the vault code").memories == ()
    assert memory.search(SECRET, kinds=["message"])[0].id == 3  # the raw rows take its place
    assert memory.status().due == 1
    memory.db.execute("delete from tombstone")  # the statement itself was not forgotten here, its first telling was
    memory.db.conn.commit()
    assert memory.work() == 1
    assert [hit.text for hit in memory.search(SECRET, kinds=["memory"])] == [LEARNT]
    assert memory.forget(kind="message", id=3).counts == {"message": 1, "exchange": 1, "memory": 1}


def test_what_is_found_not_to_support_a_stale_memory_takes_it_away(path: Path, clock: FixedClock) -> None:
    llm = ScriptedLLM([answer("a b c d"), answer("A b c d."), answer("something else")])
    with Memory(path, embedder=None, clock=clock, llm=llm) as memory:
        memory.chat().store("one", "ok")
        memory.chat().store("two", "ok")
        memory.forget(kind="message", id=1)
        memory.work()
        assert [row.text for row in memory.list("memory")] == ["something else"]


def test_a_merge_is_undone_when_a_part_of_it_is_forgotten(memory: Memory) -> None:
    parts = [f"Ann keeps the {SECRET} vault code", f"Ann keeps the {SECRET} vault code now", "Ann keeps the vault code"]
    memory._services.llm = None
    memory.remember_many(parts)
    with memory._services.file.write() as tx:
        tx.execute("insert into memory (text) values ('merged: ' || ?)", (" ".join(parts),))
        tx.executemany("insert into source values ('memory', 4, 'memory', ?, 'merged_from')", [(1,), (2,), (3,)])
        tx.execute("update memory set status = 'merged', ended_by = 'memory 4', ended_at = '2026-01-01' where id < 4")
    done = memory.forget(id=1)
    assert done.counts == {"memory": 2}
    assert [(row.id, row.status) for row in memory.list("memory")] == [(2, "active"), (3, "active")]
    assert memory.status().by_purpose["consolidate"] == {"due": 1}


def test_a_merged_memory_takes_its_parts_along(memory: Memory) -> None:
    memory._services.llm = None
    memory.remember_many(["Ann drinks green tea every day", "Ann drinks green tea every single day"])
    assert memory.chat().consolidate().clusters_merged == 1
    assert memory.forget(id=3).counts == {"memory": 3}
    assert holds(memory, "green tea") == []


def test_of_a_merged_memory_only_the_parts_with_the_text_go(memory: Memory) -> None:
    memory._services.llm = None
    memory.remember_many([f"Ann drinks green tea in {SECRET} every day", "Ann drinks green tea in town every day"])
    assert memory.chat().consolidate().clusters_merged == 1
    assert memory.forget(text=SECRET).counts == {"memory": 2}
    assert [row.text for row in memory.list("memory")] == ["Ann drinks green tea in town every day"]
    assert [hit.id for hit in memory.search("green tea")] == [2]


def test_an_episode_over_a_forgotten_turn_is_stale_and_due(memory: Memory) -> None:
    fill(memory)
    done = memory.forget(kind="turn", id=2)
    assert done.counts == {"turn": 1, "atom": 1}
    assert done.stale == 2  # the episode, and the profile of the run
    assert memory.search("sailed", status="any", kinds=["episode"]).hits == ()
    assert {row["purpose"] for row in memory.db.query("select purpose from task where state = 'due'")} == {
        "episode",
        "retro",
    }


def test_a_log_over_a_forgotten_message_is_stale_and_its_range_is_due(memory: Memory) -> None:
    fill(memory)
    memory.forget(kind="message", id=2)  # the assistant's "noted"
    stale = list(memory.db.query("select kind from document where stale = 1 order by kind"))
    assert [row["kind"] for row in stale] == ["observation", "reflection"]
    assert "observe" in memory.status().by_purpose


# --- what does not come back ----------------------------------------------------------------------------------


def test_a_forgotten_text_does_not_come_back_through_extraction_or_import(memory: Memory) -> None:
    memory.chat().store(SAID, "noted")
    memory.forget(text=SECRET)
    memory.chat("again").store(f"as I said, {SECRET} is the vault code", "noted")
    assert memory.stats()["kinds"]["memory"] == 0
    memory.import_conversation([{"role": "user", "content": SAID}], format="messages", session="imported")
    said = [row.content for row in memory.list("message")]
    assert said == ["noted", f"as I said, {SECRET} is the vault code", "noted"]


def test_digests_are_salted_with_the_files_own_salt(memory: Memory, tmp_path: Path) -> None:
    memory.remember("1234")
    memory.forget(text="1234")
    with Memory(tmp_path / "other.db", embedder=None) as other:
        other.remember("1234")
        other.forget(text="1234")
        digests = [next(one.db.query("select digest from tombstone"))["digest"] for one in (memory, other)]
    assert digests[0] != digests[1]


def test_a_tombstone_is_of_one_namespace(memory: Memory) -> None:
    memory.remember(LEARNT)
    memory.forget(id=1)
    memory.in_namespace("other").chat().store(SAID, "noted")
    assert memory.in_namespace("other").stats()["kinds"]["memory"] == 1


def test_the_host_may_tell_a_forgotten_text_again_and_then_it_may_be_learnt_again(memory: Memory) -> None:
    memory.remember(LEARNT)
    memory.forget(id=1)
    told = memory.remember(LEARNT)
    assert told.id == 2
    memory.chat().store(SAID, "noted")
    assert memory.get("memory", 2).mention_count == 2  # type: ignore[union-attr]


def test_neither_eviction_nor_consolidation_nor_plain_sql_leaves_a_tombstone(memory: Memory) -> None:
    memory._services.llm = None
    memory.remember_many(["Ann drinks green tea every day", "Ann drinks green tea every single day"])
    memory.chat().consolidate()
    memory.db.execute("delete from memory where id = 3")
    memory.db.conn.commit()
    assert list(memory.db.query("select * from tombstone")) == []


def test_a_new_memory_does_not_get_a_forgotten_ones_vector(memory: Memory) -> None:
    memory.remember(SAID)
    memory.status()
    memory.forget(id=1)
    memory.remember("the kettle is blue")
    memory.status()
    (row,) = memory.db.query("select document.row from embedding join document on document.id = embedding.document")
    assert row["row"] == 2


# --- the bytes ------------------------------------------------------------------------------------------------


def bytes_of(path: Path) -> bytes:
    """The file and its log."""
    log = path.with_name(path.name + "-wal")
    return path.read_bytes() + (log.read_bytes() if log.exists() else b"")


def test_secure_leaves_no_trace_in_the_bytes_of_the_file_and_its_log(memory: Memory, path: Path) -> None:
    fill(memory)
    assert SECRET.encode() in bytes_of(path)
    memory.forget(text=SECRET, secure=True)
    assert SECRET.encode() not in bytes_of(path).lower()
    # Digests of tombstones are salted at random: four digits stand in one of them by chance in one run of 150.
    assert b"4711" not in re.sub(rb"[0-9a-f]{64}", b"", bytes_of(path))
    assert memory.check() == []


def test_secure_empties_what_is_stale(memory: Memory, path: Path) -> None:
    fill(memory)
    memory.db.execute("update message set content = 'neutral' where id = 2")
    memory.db.conn.commit()
    memory.forget(kind="message", id=1, secure=True)
    stale = list(memory.db.query("select text from document where stale = 1"))
    assert stale and {row["text"] for row in stale} == {""}
    assert b"told the" not in bytes_of(path) and b"guard" not in bytes_of(path)


def test_a_reader_that_keeps_old_pages_is_told_and_the_forgetting_is_done(memory: Memory, path: Path) -> None:
    memory.remember(SAID)
    reader = sqlite3.connect(path, isolation_level=None)
    reader.execute("begin")
    reader.execute("select count(*) from memory").fetchone()
    with memory._services.file._writer_lock():
        memory._services.file._writer().execute("pragma busy_timeout = 50")
    with pytest.raises(Busy, match="another connection"):
        memory.forget(text=SECRET, secure=True)
    assert memory.stats()["kinds"]["memory"] == 0
    reader.close()
    assert memory.forget(text=SECRET, secure=True).total == 0
    assert SECRET.encode() not in bytes_of(path)


def test_secure_does_not_mind_that_another_namespace_says_the_same(memory: Memory, path: Path) -> None:
    memory.in_namespace("other").remember(SAID)
    memory.remember(SAID)
    assert memory.forget(text=SECRET, secure=True).counts == {"memory": 1}
    assert SECRET.encode() in bytes_of(path)


# --- verify-forget --------------------------------------------------------------------------------------------


def failed(path: Path, text: str = LEARNT, **options: Any) -> list[str]:
    """Names of the checks that found something."""
    return [check.name for check in verify_forget(path, text, embedder=None, **options).checks if not check.ok]


def test_what_was_not_forgotten_is_found(memory: Memory, path: Path) -> None:
    memory.chat().store(SAID, "noted")
    found = failed(path)
    assert {"rows", "search", "search after it was fed again"} <= set(found)
    verdict = verify_forget(path, LEARNT, embedder=None)
    assert not verdict.ok and json.loads(json.dumps(verdict.to_dict()))["ok"] is False


def test_after_a_secure_forget_everything_is_well_and_the_file_is_only_read(memory: Memory, path: Path) -> None:
    fill(memory)
    memory.forget(text=SECRET, secure=True)
    memory.close()
    before = path.read_bytes()
    assert failed(path, SECRET) == []
    assert failed(path, LEARNT) == []
    assert path.read_bytes() == before


def test_after_a_plain_forget_only_the_bytes_hold_it(memory: Memory, path: Path) -> None:
    fill(memory)
    memory.forget(text=SECRET)
    assert set(failed(path, LEARNT)) <= {"bytes of the file", "pages of the index"}


def test_a_row_deleted_by_plain_sql_may_be_learnt_again_and_verify_says_so(memory: Memory, path: Path) -> None:
    memory.remember(LEARNT)
    memory.db.execute("delete from memory")
    memory.db.conn.commit()
    memory.close()
    assert "fed through extraction" in failed(path)
    assert "rows" not in failed(path)


def test_verify_wants_a_text(path: Path, memory: Memory) -> None:
    with pytest.raises(BadInput):
        verify_forget(path, " ")
