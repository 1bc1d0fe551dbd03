"""Memories told directly: one live row per statement, corrections by event time, time to live, restore."""

from __future__ import annotations

import contextlib
import itertools
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from istar_lite import BadInput, Memory, memories, places
from istar_lite.testing import FixedClock

DAY = 86400.0
EXAMPLES = itertools.count()


def live(memory: Memory) -> list[str]:
    """Texts of the live memories, in order of their ids."""
    return [row.text for row in memory.list("memory") if row.status == "active"]


def held_at(memory: Memory, when: str) -> set[str]:
    """What held at a time, by plain SQL over the file's columns."""
    rows = memory.db.query(
        "select text from memory where namespace = (select id from namespace where name = ?)"
        " and occurred_at <= ? and (ended_at is null or ended_at > ?)",
        [memory.namespace, when, when],
    )
    return {row["text"] for row in rows}


# --- one live memory per statement ----------------------------------------------------------------------------


def test_the_same_statement_told_again_is_counted_and_keeps_its_first_text_and_date(
    memory: Memory, clock: FixedClock
) -> None:
    first = memory.remember("likes green tea")
    clock.advance(DAY)
    for again in ("likes green tea", "  Likes GREEN tea ", "likes  green tea.", "ｌｉｋｅｓ green tea"):
        told = memory.remember(again)
    assert told.id == first.id
    assert (told.text, told.mention_count, told.occurred_at) == ("likes green tea", 5, first.occurred_at)
    assert live(memory) == ["likes green tea"]


@pytest.mark.parametrize("mark", ["؟", "۔", "।", "։", "።", "။", "។", "。", "！"])
def test_a_final_mark_of_any_script_makes_no_other_statement(memory: Memory, mark: str) -> None:
    memory.remember("likes tea")
    assert memory.remember(f"likes tea{mark}").mention_count == 2
    assert live(memory) == ["likes tea"]


def test_the_same_text_of_another_namespace_stays_separate(memory: Memory) -> None:
    mine = memory.remember("likes green tea")
    theirs = memory.in_namespace("other").remember("likes green tea")
    assert mine.id != theirs.id
    assert (mine.mention_count, theirs.mention_count) == (1, 1)


def test_near_duplicates_do_not_push_the_rest_out_of_a_small_k(memory: Memory) -> None:
    for text in ("likes green tea", "LIKES GREEN TEA", "likes green tea."):
        memory.remember(text)
    for text in ("tea is sold in Leith", "green is the door", "the kettle is blue", "rain on Monday", "Ann sings"):
        memory.remember(text)
    hits = memory.search("green tea", k=3)
    assert [hit.text for hit in hits].count("likes green tea") == 1
    assert len(hits) == 3


def test_told_again_with_an_earlier_date_its_first_date_moves_back(memory: Memory) -> None:
    memory.remember("likes tea", occurred_at="2026-01-05T00:00:00Z")
    told = memory.remember("likes tea", occurred_at="2025-06-01T00:00:00Z")
    assert told.occurred_at == datetime(2025, 6, 1, tzinfo=UTC)
    assert told.mention_count == 2


def test_a_statement_written_by_plain_sql_is_recognised(memory: Memory) -> None:
    memory.remember("anything")
    memory.db.execute("insert into memory (text) values ('Written by HAND.')")
    memory.db.conn.commit()
    told = memory.remember("written by hand")
    assert told.mention_count == 2
    assert live(memory) == ["anything", "Written by HAND."]


def test_a_statement_edited_by_plain_sql_is_compared_by_its_new_text(memory: Memory) -> None:
    memory.remember("likes tea")
    memory.db.execute("update memory set text = 'likes coffee'")
    memory.db.conn.commit()
    memory.remember("likes coffee")
    memory.remember("likes tea")
    assert live(memory) == ["likes coffee", "likes tea"]


def test_tags_of_both_tellings_are_kept(memory: Memory) -> None:
    memory.remember("likes tea", tags=["drink"])
    assert set(memory.remember("likes tea", tags=["home"]).tags) == {"drink", "home"}


# --- keys -----------------------------------------------------------------------------------------------------


def test_a_key_told_again_with_its_text_changes_nothing(memory: Memory) -> None:
    first = memory.remember("likes tea", key="k1")
    assert memory.remember("likes tea", key="k1") == first


def test_a_key_with_another_text_is_refused_and_nothing_is_written(memory: Memory) -> None:
    memory.remember("likes tea", key="k1")
    with pytest.raises(BadInput, match="k1") as refused:
        memory.remember("likes coffee", key="k1")
    assert refused.value.field == "key"
    assert live(memory) == ["likes tea"]


def test_a_second_key_of_a_known_statement_counts_it_once(memory: Memory) -> None:
    memory.remember("likes tea", key="k1")
    assert memory.remember("likes tea", key="k2").mention_count == 2
    assert memory.remember("likes tea", key="k2").mention_count == 2
    with pytest.raises(BadInput):
        memory.remember("likes coffee", key="k2")


def test_keys_are_unique_in_a_namespace_only(memory: Memory) -> None:
    memory.remember("likes tea", key="k1")
    memory.in_namespace("other").remember("likes coffee", key="k1")
    assert live(memory.in_namespace("other")) == ["likes coffee"]


# --- bad input ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("field", "arguments"),
    [
        ("text", {"text": " "}),
        ("text", {"text": None}),
        ("importance", {"text": "a b", "importance": 1.5}),
        ("importance", {"text": "a b", "importance": float("nan")}),
        ("emotion", {"text": "a b", "emotion": "ennui"}),
        ("tags", {"text": "a b", "tags": "bare"}),
        ("occurred_at", {"text": "a b", "occurred_at": "2026-02-30"}),
        ("ttl", {"text": "a b", "ttl": 0}),
        ("ttl", {"text": "a b", "ttl": "soon"}),
        ("key", {"text": "a b", "key": ""}),
    ],
)
def test_bad_input_names_its_field_and_writes_nothing(memory: Memory, field: str, arguments: dict[str, object]) -> None:
    with pytest.raises(BadInput) as refused:
        memory.remember(**arguments)  # type: ignore[arg-type]
    assert refused.value.field == field
    assert not memory.list("memory").items


def test_of_many_with_one_at_fault_none_is_written(memory: Memory) -> None:
    with pytest.raises(BadInput) as refused:
        memory.remember_many(["fine", {"text": "also fine"}, {"text": "not", "importance": 7}])
    assert refused.value.field == "items[2].importance"
    assert not memory.list("memory").items


def test_many_are_written_at_once_and_repeats_among_them_are_counted(memory: Memory) -> None:
    told = memory.remember_many(["one", {"text": "two", "tags": ["t"], "importance": 0.2}, "One."])
    assert [item.text for item in told] == ["one", "two", "one"]
    assert told[0].mention_count == 2
    assert (told[1].tags, told[1].importance) == (("t",), 0.2)


def _told() -> st.SearchStrategy[dict[str, object]]:
    """A statement out of few texts, keys, tags and days, so that they meet."""
    return st.fixed_dictionaries(
        {"text": st.sampled_from(["likes tea", "Likes tea.", "likes coffee", "has a cat", "has a dog"])},
        optional={
            "key": st.sampled_from(["a", "b", "c"]),
            "tags": st.lists(st.sampled_from(["x", "y"]), max_size=2),
            "occurred_at": st.sampled_from(["2025-03-01T00:00:00Z", "2025-09-01T00:00:00Z"]),
            "ttl": st.sampled_from([60.0, 10**6]),
        },
    )


@given(before=st.lists(_told(), max_size=3), told=st.lists(_told(), max_size=8))
def test_many_told_at_once_leave_what_the_same_told_one_by_one_would(
    tmp_path: Path, clock: FixedClock, before: list[dict[str, object]], told: list[dict[str, object]]
) -> None:
    folder = tmp_path / str(next(EXAMPLES))
    folder.mkdir()
    with Memory(folder / "m.db", embedder=None, clock=clock) as memory:
        one, many = memory.in_namespace("one"), memory.in_namespace("many")
        refused: list[BadInput | None] = [None, None]
        for owner in (one, many):
            for item in before:
                with contextlib.suppress(BadInput):
                    owner.remember(**item)  # type: ignore[arg-type]
        try:
            with memory._services.file.write():
                ids = [one.remember(**item).id for item in told]  # type: ignore[arg-type]
        except BadInput as error:
            refused[0] = error
        try:
            given_back = many.remember_many(told)
        except BadInput as error:
            refused[1] = error
        assert [error is None for error in refused] in ([True, True], [False, False])
        rows = [_rows(owner) for owner in (one, many)]
        assert rows[0] == rows[1]
        if refused[0] is None:
            assert [item.text for item in given_back] == [one.get("memory", id).text for id in ids]  # type: ignore[union-attr]


def _rows(memory: Memory) -> list[dict[str, object]]:
    query = (
        "select key, text, digest, mention_count, last_mentioned_at, expires_at, status, ended_at, occurred_at,"
        " (select group_concat(tag) from tag where kind = 'memory' and row = memory.id) as tags,"
        " (select group_concat(key) from memory_key where memory = memory.id) as keys"
        " from memory where namespace = (select id from namespace where name = ?) order by id"
    )
    return [dict(row) for row in memory.db.query(query, [memory.namespace])]


# --- time to live ---------------------------------------------------------------------------------------------


def test_past_its_time_to_live_a_memory_is_no_longer_found_without_any_sweeper(
    memory: Memory, clock: FixedClock
) -> None:
    memory.remember("the parking spot is B4", ttl=timedelta(hours=1))
    assert len(memory.search("parking spot")) == 1
    clock.advance(3601)
    assert not memory.search("parking spot")
    assert memory.chat().retrieve("where is the parking spot").reason == "the store is empty"
    assert memory.get("memory", 1) is not None


def test_after_its_time_to_live_a_statement_told_again_is_a_new_memory(memory: Memory, clock: FixedClock) -> None:
    first = memory.remember("the shop is open", ttl=60)
    clock.advance(61)
    assert memory.remember("the shop is open").id != first.id


def test_told_late_a_time_to_live_counts_from_the_telling(memory: Memory) -> None:
    told = memory.remember("rain is coming", occurred_at="2020-01-01T00:00:00Z", ttl=60)
    assert told.expires_at == datetime(2026, 1, 1, 0, 1, tzinfo=UTC)
    assert len(memory.search("rain")) == 1


def test_told_again_without_a_time_to_live_it_stays(memory: Memory, clock: FixedClock) -> None:
    memory.remember("rain is coming", ttl=60)
    assert memory.remember("rain is coming").expires_at is None


# --- corrections ----------------------------------------------------------------------------------------------


def test_a_correction_closes_the_old_one_with_when_and_by_what(memory: Memory, clock: FixedClock) -> None:
    old = memory.remember("the ssh port is 22")
    clock.advance(29 * DAY)
    new = memory.supersede(old.id, "ssh listens on port 49222")
    closed = memory.get("memory", old.id)
    assert closed is not None
    assert (closed.status, closed.ended_by) == ("superseded", f"memory {new.id}")
    assert closed.ended_at == new.occurred_at
    assert [hit.text for hit in memory.search("ssh port")] == ["ssh listens on port 49222"]
    assert {hit.text for hit in memory.search("ssh port", status="any")} == {"the ssh port is 22", new.text}


def test_as_of_answers_what_was_believed_on_that_day(memory: Memory) -> None:
    old = memory.remember("the ssh port is 22", occurred_at="2026-01-01T00:00:00Z")
    memory.supersede(old.id, "ssh listens on port 49222", occurred_at="2026-01-30T00:00:00Z")
    found = memory.search("ssh port", as_of="2026-01-15T00:00:00Z")
    assert [hit.text for hit in found] == ["the ssh port is 22"]
    recalled = memory.chat().retrieve("what is the ssh port", as_of="2026-01-15T00:00:00Z")
    assert [one.text for one in recalled.memories] == ["the ssh port is 22"]


def test_a_correction_that_arrives_late_becomes_history(memory: Memory) -> None:
    newer = memory.remember("ssh listens on port 49222", occurred_at="2026-01-30T00:00:00Z")
    late = memory.supersede(newer.id, "the ssh port is 22", occurred_at="2026-01-01T00:00:00Z")
    assert late.status == "superseded"
    assert late.ended_by == f"memory {newer.id}"
    assert live(memory) == ["ssh listens on port 49222"]


def test_a_return_to_the_first_value_is_a_new_live_version(memory: Memory, clock: FixedClock) -> None:
    first = memory.remember("the ssh port is 22")
    clock.advance(DAY)
    second = memory.supersede(first.id, "the ssh port is 49222")
    clock.advance(DAY)
    third = memory.supersede(second.id, "the ssh port is 22")
    assert live(memory) == ["the ssh port is 22"]
    assert third.id not in (first.id, second.id)


def test_superseding_an_old_version_again_leaves_one_live_value(memory: Memory, clock: FixedClock) -> None:
    first = memory.remember("the ssh port is 22")
    clock.advance(DAY)
    memory.supersede(first.id, "the ssh port is 49222")
    clock.advance(DAY)
    memory.supersede(first.id, "the ssh port is 2022")
    assert live(memory) == ["the ssh port is 2022"]


def test_a_correction_that_says_what_another_live_memory_says_counts_that_one(
    memory: Memory, clock: FixedClock
) -> None:
    old, other = memory.remember("lives in Rome"), memory.remember("lives in Oslo")
    clock.advance(DAY)
    told = memory.supersede(old.id, "Lives in Oslo.")
    assert (told.id, told.mention_count) == (other.id, 2)
    assert live(memory) == ["lives in Oslo"]


def test_a_correction_that_says_the_same_changes_nothing_but_the_count(memory: Memory) -> None:
    old = memory.remember("lives in Rome")
    told = memory.supersede(old.id, "lives in rome")
    assert (told.id, told.mention_count, told.status) == (old.id, 2, "active")


def test_an_undated_correction_of_something_in_the_future_holds(memory: Memory) -> None:
    old = memory.remember("the launch is in May", occurred_at="2026-05-01T00:00:00Z")
    memory.supersede(old.id, "the launch is in June")
    assert live(memory) == ["the launch is in June"]


def test_a_memory_of_another_namespace_cannot_be_corrected(memory: Memory) -> None:
    theirs = memory.in_namespace("other").remember("lives in Rome")
    with pytest.raises(BadInput) as refused:
        memory.supersede(theirs.id, "lives in Oslo")
    assert refused.value.field == "id"
    assert live(memory.in_namespace("other")) == ["lives in Rome"]


@given(order=st.permutations(range(5)), corrects=st.lists(st.integers(0, 4), min_size=5, max_size=5))
def test_corrections_in_any_order_of_arrival_leave_the_newest_live_and_each_day_its_value(
    memory: Memory, order: list[int], corrects: list[int]
) -> None:
    days = [f"2026-01-{10 + day}T00:00:00Z" for day in range(5)]
    memory = memory.in_namespace(f"example {next(EXAMPLES)}")
    ids: list[int] = []
    for at, day in enumerate(order):
        text = f"the value is number {day}"
        if not ids:
            ids.append(memory.remember(text, occurred_at=days[day]).id)
        else:
            ids.append(memory.supersede(ids[corrects[at] % len(ids)], text, occurred_at=days[day]).id)
    assert live(memory) == ["the value is number 4"]
    for day, when in enumerate(days):
        assert held_at(memory, when.replace("Z", ".000Z")) == {f"the value is number {day}"}


def test_the_host_corrects_a_memory_whatever_was_mentioned_meanwhile(memory: Memory) -> None:
    old = memory.remember("port 22", occurred_at="2026-01-01T00:00:00Z")
    memory.remember("port 22", occurred_at="2026-03-01T00:00:00Z")
    memory.supersede(old.id, "port 49222", occurred_at="2026-01-30T00:00:00Z")
    assert live(memory) == ["port 49222"]


def tell(memory: Memory, text: str, day: str) -> None:
    """As an extraction tells it whose model saw all live memories and says that they no longer hold."""
    services = memory._services
    with services.file.write() as tx:
        owner = places.ensure_namespace(tx, memory.namespace, services.now())
        rows = tx.execute("select id from memory where namespace = ? and status = 'active'", (owner,)).fetchall()
        session = places.ensure_session(tx, memory.namespace, "default", "conversation", services.now())
        said = tx.execute(
            "insert into message (session, content, occurred_at) values (?, ?, ?) returning id", (session, text, day)
        ).fetchone()
        told = memories.Statement(text=text, occurred_at=day, source=("message", said["id"]))
        memories.correct(tx, owner, told, [row["id"] for row in rows], services.now())


@given(values=st.lists(st.sampled_from("ABC"), min_size=1, max_size=6), data=st.data())
def test_values_that_return_are_told_in_any_order_and_each_day_has_the_one_of_its_last_telling(
    memory: Memory, values: list[str], data: st.DataObject
) -> None:
    story = [(f"the value is {value}", f"2026-01-{10 + day}T00:00:00.000Z") for day, value in enumerate(values)]
    order = data.draw(st.permutations(story))
    memory = memory.in_namespace(f"example {next(EXAMPLES)}")
    for text, day in order:
        tell(memory, text, day)
    assert live(memory) == [story[-1][0]], order
    for text, day in story:
        assert held_at(memory, day) == {text}, (order, day)


# --- restore --------------------------------------------------------------------------------------------------


def test_restore_reopens_what_was_superseded_by_mistake(memory: Memory) -> None:
    old = memory.remember("Ann likes tea")
    new = memory.supersede(old.id, "Ben likes coffee")
    row = memory.restore("memory", old.id)
    assert (row.status, row.ended_at, row.ended_by) == ("active", None, None)
    assert live(memory) == ["Ann likes tea", "Ben likes coffee"]
    assert {hit.id for hit in memory.search("Ann tea")} >= {old.id}
    assert new.status == "active"


def test_restore_makes_no_second_live_memory_of_one_statement(memory: Memory, clock: FixedClock) -> None:
    first = memory.remember("port 22")
    clock.advance(1)
    second = memory.supersede(first.id, "port 49222")
    clock.advance(1)
    memory.supersede(second.id, "port 22")
    with pytest.raises(BadInput):
        memory.restore("memory", first.id)
    assert live(memory) == ["port 22"]


@pytest.mark.parametrize(("kind", "id"), [("turn", 1), ("nothing", 1), ("memory", 99), ("memory", True)])
def test_restore_refuses_what_it_cannot_reopen(memory: Memory, kind: str, id: int) -> None:
    with pytest.raises(BadInput):
        memory.restore(kind, id)


def test_restoring_a_live_memory_changes_nothing(memory: Memory) -> None:
    told = memory.remember("port 22")
    assert memory.restore("memory", told.id).status == "active"


# --- redaction and odd text -----------------------------------------------------------------------------------


def test_text_is_redacted_before_it_is_stored(path: Path) -> None:
    with Memory(path, embedder=None, redact=lambda text: text.replace("4711", "****")) as memory:
        assert memory.remember("the pin is 4711").text == "the pin is ****"
        assert memory.search("4711").hits == ()


def test_half_an_emoji_is_mended_and_the_others_of_the_batch_are_stored(memory: Memory) -> None:
    told = memory.remember_many([*(f"fact {n}" for n in range(9)), "broken \ud83d", {"text": "t", "tags": ["\ud83d"]}])
    assert told[9].text == "broken �"
    assert told[10].tags == ("�",)
    assert len(live(memory)) == 11
