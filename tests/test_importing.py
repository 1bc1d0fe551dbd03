"""Import: every format, once each, with dates, speakers and sessions; bad lines told by number, the rest goes in."""

from __future__ import annotations

import json
import sqlite3
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from istar_lite import BadInput, Memory
from istar_lite.importing import FORMATS
from istar_lite.importing.locomo import parse_date
from istar_lite.testing import FixedClock


def write_lines(path: Path, *rows: Any) -> Path:
    path.write_text("".join((row if isinstance(row, str) else json.dumps(row)) + "\n" for row in rows))
    return path


def contents(memory: Memory) -> list[str]:
    return [row.content for row in memory.list("message", limit=1000)]


@pytest.fixture
def chat(tmp_path: Path) -> Path:
    return write_lines(
        tmp_path / "chat.jsonl",
        {"role": "user", "content": "I moved to Lisbon", "timestamp": "2026-01-02T00:30:00+02:00", "id": "a"},
        {"role": "assistant", "content": "Noted.", "timestamp": "2026-01-02T00:31:00+02:00", "id": "b"},
        {"speaker": "Ana", "text": "And I play chess", "timestamp": 1767312000, "session": "evening"},
    )


def test_messages_keep_their_time_speaker_role_session_and_id(memory: Memory, chat: Path) -> None:
    done = memory.import_conversation(chat)
    assert (done.messages, done.skipped, done.sessions, done.errors) == (3, 0, 2, ())
    first, _, third = memory.list("message")
    assert (first.role, first.content, first.external_id) == ("user", "I moved to Lisbon", "a")
    assert first.occurred_at.isoformat() == "2026-01-01T22:30:00+00:00"
    assert third.speaker == "Ana" and third.occurred_at.isoformat() == "2026-01-02T00:00:00+00:00"
    assert [(s["name"], s["messages"]) for s in memory.sessions()] == [("chat", 2), ("evening", 1)]


def test_importing_the_same_file_again_adds_nothing(memory: Memory, chat: Path) -> None:
    memory.import_conversation(chat)
    again = memory.import_conversation(chat)
    assert (again.messages, again.skipped, again.errors) == (0, 3, ())
    assert len(contents(memory)) == 3


def test_a_file_that_has_grown_adds_what_is_new(memory: Memory, chat: Path) -> None:
    memory.import_conversation(chat)
    with open(chat, "a") as handle:
        handle.write(json.dumps({"role": "user", "content": "Bye", "id": "c"}) + "\n")
    assert memory.import_conversation(chat).messages == 1
    assert contents(memory)[-1] == "Bye"


def test_who_says_ok_twice_has_said_it_twice_and_not_four_times(memory: Memory, tmp_path: Path) -> None:
    ok = {"role": "user", "content": "ok"}
    source = write_lines(tmp_path / "ok.jsonl", ok, {"role": "assistant", "content": "so?"}, ok)
    assert memory.import_conversation(source).messages == 3
    assert memory.import_conversation(source).messages == 0
    assert memory.import_conversation(write_lines(source, ok, ok, ok)).messages == 1
    assert contents(memory).count("ok") == 3


def test_equal_words_at_two_times_are_two_messages(memory: Memory) -> None:
    rows = [{"text": "ok", "timestamp": f"2026-01-0{day}T10:00:00Z"} for day in (1, 2)]
    assert memory.import_conversation(rows[:1]).messages == 1
    assert memory.import_conversation(rows).messages == 1
    assert memory.import_conversation(rows).messages == 0


def test_a_bad_line_is_told_by_its_number_and_the_rest_goes_in(memory: Memory, tmp_path: Path) -> None:
    source = tmp_path / "bad.jsonl"
    write_lines(
        source,
        "this is not json",
        {"role": "user", "content": "one"},
        "[1, 2]",
        "",
        {"role": "user"},
        {"role": "user", "content": "two", "timestamp": "2026-02-30"},
        {"role": 7, "content": "three"},
        {"role": "user", "content": "  "},
        {"role": "user", "content": "four"},
    )
    with open(source, "ab") as handle:
        handle.write(b'{"content": "\xff\xfe"}\n{"content": "cut of')
    done = memory.import_conversation(source)
    assert contents(memory) == ["one", "four"]
    assert [number for number, _ in done.errors] == [1, 3, 5, 6, 7, 8, 10, 11]
    reasons = dict(done.errors)
    assert "not JSON" in reasons[1] and "object" in reasons[3] and "content" in reasons[5]
    assert "timestamp" in reasons[6] and "role" in reasons[7] and "blank" in reasons[8] and "UTF-8" in reasons[10]


def test_the_same_id_with_another_text_is_told_and_the_first_is_kept(memory: Memory) -> None:
    rows = [{"content": "first", "id": 1}, {"content": "other", "id": 1}, {"content": "first", "id": 1}]
    done = memory.import_conversation(rows)
    assert contents(memory) == ["first"]
    assert [number for number, _ in done.errors] == [2]
    assert [number for number, _ in memory.import_conversation(rows).errors] == [2]


def test_one_id_in_two_sessions_is_two_messages(memory: Memory) -> None:
    rows = [{"content": "x", "id": "1", "session": name} for name in ("a", "b")]
    assert memory.import_conversation(rows).messages == 2
    assert memory.import_conversation(rows).messages == 0


def test_a_session_given_names_the_nameless_and_stands_before_names(memory: Memory) -> None:
    memory.import_conversation([{"content": "x"}, {"content": "y", "session": "own"}], session="work")
    assert [session["name"] for session in memory.sessions()] == ["work", "work/own"]


def test_a_message_without_a_time_takes_that_of_the_one_before(memory: Memory, clock: FixedClock) -> None:
    clock.advance(3600)
    memory.import_conversation(
        [{"content": "first"}, {"content": "dated", "date": "2020-05-05T00:00:00Z"}, {"content": "after"}]
    )
    assert [row.occurred_at.isoformat() for row in memory.list("message")] == [
        "2026-01-01T01:00:00+00:00",
        "2020-05-05T00:00:00+00:00",
        "2020-05-05T00:00:00+00:00",
    ]


def test_times_in_milliseconds_and_as_text_are_read(memory: Memory) -> None:
    for at, value in enumerate((1_700_000_000, 1_700_000_000_000, "1700000000", "1700000000.0")):
        memory.import_conversation([{"content": f"x{at}", "timestamp": value}])
    assert len({row.occurred_at for row in memory.list("message")}) == 1


def test_a_dry_run_says_what_would_come_and_writes_nothing(memory: Memory, chat: Path, path: Path) -> None:
    memory.import_conversation(chat)
    memory.close()
    before = path.read_bytes()
    write_lines(chat, {"role": "user", "content": "new"}, "nonsense", {"role": "user", "content": "x", "id": "a"})
    with Memory(path, embedder=None, read_only=True) as looking:
        done = looking.import_conversation(chat, dry_run=True)
    assert (done.messages, [number for number, _ in done.errors]) == (1, [2, 3])
    assert path.read_bytes() == before


def test_parts_of_a_message_are_kept_and_their_text_is_found(memory: Memory) -> None:
    parts = [{"type": "text", "text": "look at this"}, {"type": "image", "url": "x.png"}]
    memory.import_conversation([{"role": "user", "content": parts}, {"content": "", "tool_calls": [{"name": "sum"}]}])
    first, second = memory.list("message")
    assert first.content == "look at this" and json.loads(first.parts) == parts
    assert second.content == "" and json.loads(second.parts) == [{"name": "sum"}]


def test_what_is_redacted_never_reaches_the_file(path: Path) -> None:
    def redact(text: str) -> str:
        return text.replace("hunter2", "[secret]")

    parts = [{"type": "text", "text": "pw hunter2"}, {"input": {"deep": ["hunter2"]}}]
    with Memory(path, embedder=None, redact=redact) as memory:
        memory.import_conversation([{"content": parts}, {"content": "hunter2"}])
        assert memory.import_conversation([{"content": parts}, {"content": "hunter2"}]).messages == 0
    assert b"hunter2" not in path.read_bytes()


def test_half_an_emoji_in_the_middle_of_ten_lines_is_stored_replaced(memory: Memory) -> None:
    rows = [{"content": f"line {at}" + ("\ud83d" if at == 5 else ""), "speaker": "a\ud83d"} for at in range(10)]
    assert memory.import_conversation(rows).messages == 10
    assert contents(memory)[5] == "line 5\ufffd"
    assert memory.import_conversation(rows).messages == 0


def test_another_namespace_does_not_know_the_messages(memory: Memory, chat: Path) -> None:
    memory.import_conversation(chat)
    assert memory.in_namespace("other").import_conversation(chat).messages == 3
    assert len(contents(memory)) == 3


def test_two_imports_of_one_file_in_turn_add_each_message_once(path: Path) -> None:
    rows = [{"content": f"m{at % 7}"} for at in range(5_000)]
    with Memory(path, embedder=None) as one, Memory(path, embedder=None) as two:
        inside = iter([lambda: two.import_conversation(rows)])

        def on_progress(done: int, total: int) -> None:
            next(inside, lambda: None)()  # the other one imports all of it while the first is under way

        one.import_conversation(rows, on_progress=on_progress)
        assert one.stats()["kinds"]["message"] == 5_000


def test_progress_ends_at_the_total(memory: Memory) -> None:
    seen: list[tuple[int, int]] = []
    memory.import_conversation([{"content": str(at)} for at in range(2_500)], on_progress=lambda *a: seen.append(a))
    assert seen == [(2_000, 2_500), (2_500, 2_500)]


@pytest.mark.parametrize("source", ["nowhere.json", "a\0b", 7, b"{}", None])
def test_what_is_no_source_is_refused_before_anything_is_written(memory: Memory, source: Any) -> None:
    with pytest.raises(BadInput) as error:
        memory.import_conversation(source)
    assert error.value.field == "source"
    assert memory.sessions() == []


def test_a_file_without_a_known_shape_is_refused(memory: Memory, tmp_path: Path) -> None:
    for name, text in (("a.json", '{"x": 1}'), ("b.txt", "hello\nworld"), ("c.json", "7"), ("d.zip", "PK\x03\x04xx")):
        (tmp_path / name).write_text(text)
        with pytest.raises(BadInput):
            memory.import_conversation(tmp_path / name)
    with pytest.raises(BadInput, match="format"):
        memory.import_conversation([], format="carrier pigeon")


def test_an_empty_file_holds_no_messages(memory: Memory, tmp_path: Path) -> None:
    assert memory.import_conversation(write_lines(tmp_path / "empty.jsonl")).messages == 0
    assert memory.import_conversation([]).messages == 0


# --- formats --------------------------------------------------------------------------------------------------

SAMPLE = {
    "sample_id": "conv-1",
    "conversation": {
        "speaker_a": "Ana",
        "speaker_b": "Ben",
        "session_1_date_time": "1:56 pm on 8 May, 2023",
        "session_1": [
            {"speaker": "Ana", "dia_id": "D1:1", "text": "Hello Ben"},
            {"speaker": "Ben", "dia_id": "D1:2", "text": "Look!", "blip_caption": "a photo of a kite"},
        ],
        "session_2_date_time": "12:05 am on 9 June, 2023",
        "session_2": [{"speaker": "Ana", "dia_id": "D2:1", "text": "Again"}],
        "session_10": [{"speaker": "Ana", "dia_id": "D10:1", "text": "Undated"}, "odd"],
    },
}


def test_locomo_sessions_speakers_captions_and_ids_come_in(memory: Memory, tmp_path: Path) -> None:
    source = tmp_path / "locomo.json"
    source.write_text(json.dumps([SAMPLE]))
    done = memory.import_conversation(source)
    assert [session["name"] for session in memory.sessions()] == ["conv-1/1", "conv-1/2", "conv-1/10"]
    rows = list(memory.list("message"))
    assert [row.external_id for row in rows] == ["D1:1", "D1:2", "D2:1", "D10:1"]
    assert rows[1].content == "(a photo of a kite) Look!" and rows[1].speaker == "Ben"
    local = rows[2].occurred_at.astimezone()
    assert (local.year, local.month, local.day, local.hour, local.minute) == (2023, 6, 9, 0, 5)
    assert len(done.errors) == 1 and "conv-1/10" in done.errors[0][1]
    assert memory.import_conversation(source).messages == 0


@given(st.text(max_size=40))
def test_any_text_is_a_locomo_date_or_none(text: str) -> None:
    assert parse_date(text) is None or " on " in text.lower()


def chatgpt_export() -> list[dict[str, Any]]:
    def node(key: str, parent: str | None, children: list[str], message: Any) -> dict[str, Any]:
        return {"id": key, "parent": parent, "children": children, "message": message}

    def said(key: str, role: str, text: str, at: float, **more: Any) -> dict[str, Any]:
        content = {"content_type": "text", "parts": [text]}
        return {"id": key, "author": {"role": role}, "create_time": at, "content": content, **more}

    hidden = {"metadata": {"is_visually_hidden_from_conversation": True}}
    mapping = {
        "root": node("root", None, ["s"], None),
        "s": node("s", "root", ["u"], said("s", "system", "", 1.0)),
        "u": node("u", "s", ["a1", "a2"], said("u", "user", "What is a kite?", 1_700_000_000.5)),
        "a1": node("a1", "u", [], said("a1", "assistant", "A bird.", 1_700_000_001.0)),
        "a2": node("a2", "u", ["h"], said("a2", "assistant", "A toy that flies.", 1_700_000_002.0)),
        "h": node("h", "a2", [], said("h", "user", "hidden context", 1_700_000_003.0, **hidden)),
    }
    return [
        {
            "title": "Kites",
            "conversation_id": "0000-1a2b3c4d",
            "create_time": 1.0,
            "mapping": mapping,
            "current_node": "h",
        }
    ]


def test_a_chatgpt_export_brings_the_branch_that_was_kept(memory: Memory, tmp_path: Path) -> None:
    archive = tmp_path / "export.zip"
    with zipfile.ZipFile(archive, "w") as handle:
        handle.writestr("conversations.json", json.dumps(chatgpt_export()))
    memory.import_conversation(archive)
    assert [(row.role, row.content) for row in memory.list("message")] == [
        ("user", "What is a kite?"),
        ("assistant", "A toy that flies."),
    ]
    assert memory.list("message")[0].occurred_at.timestamp() == 1_700_000_000.5
    assert [session["name"] for session in memory.sessions()] == ["Kites [1a2b3c4d]"]


def test_a_conversation_that_was_renamed_keeps_its_session(memory: Memory) -> None:
    memory.import_conversation(chatgpt_export())
    renamed = chatgpt_export()
    renamed[0]["title"] = "All about kites"
    again = memory.import_conversation(renamed)
    assert (again.messages, again.skipped) == (0, 2)
    assert len(memory.sessions()) == 1


def test_a_chatgpt_conversation_that_runs_in_a_circle_ends(memory: Memory) -> None:
    export = chatgpt_export()
    export[0]["mapping"]["u"]["parent"] = "a2"
    assert memory.import_conversation(export).messages == 2


def test_a_claude_export_comes_in(memory: Memory, tmp_path: Path) -> None:
    export = [
        {
            "uuid": "11111111-aaaabbbb",
            "name": "Recipes",
            "created_at": "2025-03-01T10:00:00.000000Z",
            "chat_messages": [
                {
                    "uuid": "m1",
                    "sender": "human",
                    "text": "How do I bake bread?",
                    "content": [{"type": "text", "text": "How do I bake bread?"}],
                    "created_at": "2025-03-01T10:00:01.000000Z",
                    "attachments": [{"file_name": "notes.txt", "extracted_content": "500 g of flour"}],
                },
                {"uuid": "m2", "sender": "assistant", "text": "Knead it.", "created_at": "2025-03-01T10:00:02Z"},
                {"uuid": "m3", "sender": "assistant", "text": "", "content": []},
                "odd",
            ],
        }
    ]
    (tmp_path / "conversations.json").write_text(json.dumps(export))
    done = memory.import_conversation(tmp_path)
    rows = [(row.role, row.content) for row in memory.list("message")]
    assert rows == [("user", "How do I bake bread?\n\n500 g of flour"), ("assistant", "Knead it.")]
    assert [session["name"] for session in memory.sessions()] == ["Recipes [aaaabbbb]"]
    assert len(done.errors) == 1
    assert memory.import_conversation(tmp_path).messages == 0


def llm_log(path: Path) -> Path:
    with sqlite3.connect(path) as log:
        log.executescript(
            """
            create table conversations (id text primary key, name text, model text);
            create table responses (id text primary key, model text, prompt text, response text,
              conversation_id text, datetime_utc text);
            insert into conversations values ('01aaaaaaaaaaaaaa', 'Kites', 'small');
            insert into responses values
              ('r1', 'small', 'What is a kite?', 'A toy.', '01aaaaaaaaaaaaaa', '2026-01-02T03:04:05.123456');
            create table threads (id text, name text, tip_message_hash text, datetime_utc text);
            create table turns (id text, tip_message_hash text, model text, datetime_utc text);
            create table messages (hash text, parent_hash text, role text);
            create table parts (id integer primary key, message_hash text, position integer, type text,
              tool_name text, text text, payload text);
            create table fragments (id integer primary key, content text);
            create table part_fragments (part_id integer, fragment_id integer, "order" integer);
            insert into threads values ('01bbbbbbbbbbbbbb', null, 'h3', '2026-02-01T00:00:00');
            insert into turns values ('t1', 'h2', 'small', '2026-02-01T00:00:00'),
              ('t2', 'h3', 'small', '2026-02-01T00:00:09');
            insert into messages values ('h1', null, 'user'), ('h2', 'h1', 'assistant'), ('h3', 'h2', 'tool');
            insert into parts values (1, 'h1', 0, 'text', null, '', null), (2, 'h2', 0, 'text', null, 'Eleven.', null),
              (3, 'h3', 0, 'tool_result', 'sum', '11', '{"a": 1}');
            insert into fragments values (1, 'What is 5 + 6?');
            insert into part_fragments values (1, 1, 0);
            """
        )
    log.close()
    return path


def test_a_log_of_llm_comes_in_from_both_layouts(memory: Memory, tmp_path: Path) -> None:
    log = llm_log(tmp_path / "logs.db")
    before = log.read_bytes()
    memory.import_conversation(log)
    rows = [(row.role, row.content, row.occurred_at.isoformat()[:19]) for row in memory.list("message")]
    assert rows == [
        ("user", "What is a kite?", "2026-01-02T03:04:05"),
        ("assistant", "A toy.", "2026-01-02T03:04:05"),
        ("user", "What is 5 + 6?", "2026-02-01T00:00:00"),
        ("assistant", "Eleven.", "2026-02-01T00:00:00"),
        ("tool", "", "2026-02-01T00:00:09"),
    ]
    assert memory.import_conversation(log).messages == 0
    assert log.read_bytes() == before


def test_memories_of_mem0_come_in_with_date_and_tags(memory: Memory, tmp_path: Path) -> None:
    rows = [
        {"id": "m1", "memory": "Likes green tea", "created_at": "2025-01-02T03:04:05-07:00", "categories": ["taste"]},
        {"id": "m2", "memory": " ", "created_at": "2025-01-02"},
    ]
    source = tmp_path / "mem0.json"
    source.write_text(json.dumps({"results": rows}))
    done = memory.import_conversation(source)
    assert (done.memories, done.messages, [number for number, _ in done.errors]) == (1, 0, [2])
    assert memory.import_conversation(source, dry_run=True).skipped == 1
    again = memory.import_conversation(source)
    (item,) = memory.list("memory")
    assert (again.memories, again.skipped, item.text, item.mention_count) == (0, 1, "Likes green tea", 1)
    assert item.occurred_at.isoformat() == "2025-01-02T10:04:05+00:00"
    rows[0]["memory"] = "Likes black tea"
    assert "another text" in memory.import_conversation(rows).errors[0][1]


def test_one_broken_statement_does_not_keep_the_others_of_its_batch_out(memory: Memory) -> None:
    texts = ["likes tea", " ", "has a cat", "likes TEA."]
    done = memory.import_conversation([{"id": str(at), "memory": text} for at, text in enumerate(texts)])
    assert (done.memories, [number for number, _ in done.errors]) == (3, [2])
    assert [(row.text, row.mention_count) for row in memory.list("memory")] == [("likes tea", 2), ("has a cat", 1)]


def test_a_graph_of_the_mcp_server_memory_becomes_statements(memory: Memory, tmp_path: Path) -> None:
    source = write_lines(
        tmp_path / "memory.jsonl",
        {"type": "entity", "name": "Ana", "entityType": "person", "observations": ["plays chess", "lives alone"]},
        {"type": "relation", "from": "Ana", "to": "Lisbon", "relationType": "lives_in"},
        {"type": "entity", "name": "Odd"},
    )
    done = memory.import_conversation(source)
    assert (done.memories, [number for number, _ in done.errors]) == (3, [3])
    assert [item.text for item in memory.list("memory")] == [
        "Ana: plays chess",
        "Ana: lives alone",
        "Ana lives in Lisbon",
    ]
    assert memory.import_conversation(source).memories == 0
    assert {item.mention_count for item in memory.list("memory")} == {1}


@pytest.mark.parametrize("exported", [False, True])
def test_another_store_of_ours_comes_in_whole(memory: Memory, tmp_path: Path, exported: bool) -> None:
    source = tmp_path / "other.db"
    with Memory(source, "ana", embedder=None) as other:
        other.import_conversation([{"content": "hello", "timestamp": 0}], session="s")
        other.remember("plays chess")
        if exported:
            source = Path(other.export(tmp_path / "other.jsonl").path)
    dry = memory.import_conversation(source, dry_run=True)
    assert (dry.messages, dry.memories, memory.namespaces()) == (1, 1, ["default"])
    done = memory.import_conversation(source)
    assert (done.messages, done.memories, done.skipped) == (1, 1, 0)
    assert memory.in_namespace("ana").list("memory")[0].text == "plays chess"
    again = memory.import_conversation(source)
    assert (again.messages, again.memories, again.skipped) == (0, 0, 2)


def test_what_was_forgotten_does_not_come_back_by_import(memory: Memory, chat: Path) -> None:
    memory.import_conversation(chat)
    memory.forget(text="Lisbon")
    done = memory.import_conversation(chat)
    assert (done.messages, done.forgotten, done.skipped) == (0, 1, 2)
    assert "I moved to Lisbon" not in contents(memory)
    facts = [{"id": "1", "memory": "I moved to Lisbon."}]
    assert memory.import_conversation(facts).forgotten == 1


def test_another_programs_database_is_refused(memory: Memory, tmp_path: Path) -> None:
    with sqlite3.connect(tmp_path / "other.db") as other:
        other.execute("create table t (x)")
    other.close()
    with pytest.raises(BadInput, match=r"other\.db"):
        memory.import_conversation(tmp_path / "other.db")


JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=6,
)
KEYS = st.sampled_from(["role", "speaker", "content", "text", "timestamp", "session", "id", "parts", "mapping"])


@given(st.lists(st.dictionaries(KEYS, JSON_VALUES, max_size=5) | JSON_VALUES, max_size=6))
def test_any_list_goes_in_or_is_told_and_a_second_time_adds_nothing(
    tmp_path_factory: pytest.TempPathFactory, rows: list[Any]
) -> None:
    with Memory(tmp_path_factory.mktemp("any") / "a.db", embedder=None) as memory:
        try:
            done = memory.import_conversation(rows, format="messages")
        except BadInput:
            raise AssertionError("a bad item must not stop the others") from None
        assert done.messages + done.skipped + len(done.errors) >= len(rows)
        assert memory.import_conversation(rows, format="messages").messages == 0


def claude_export() -> list[dict[str, Any]]:
    message = {"uuid": "m1", "sender": "human", "text": "Hi", "content": [{"type": "text", "text": "Hi"}]}
    return [{"uuid": "1", "name": "A", "created_at": "2025-03-01", "chat_messages": [{**message, "attachments": [{}]}]}]


def places_in(value: Any, at: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [at, *(place for key, inner in items for place in places_in(inner, (*at, key)))]


EXPORTS = {
    "chatgpt": chatgpt_export,
    "claude": claude_export,
    "locomo": lambda: [json.loads(json.dumps(SAMPLE))],
    "mem0": lambda: [{"id": "1", "memory": "likes tea", "categories": ["taste"], "created_at": "2025-03-01"}],
    "mcp-memory": lambda: [
        {"type": "entity", "name": "Ana", "entityType": "person", "observations": ["plays chess"]},
        {"type": "relation", "from": "Ana", "to": "Lisbon", "relationType": "lives_in"},
    ],
}


@pytest.mark.parametrize("name", sorted(EXPORTS))
@given(data=st.data())
def test_an_export_with_something_odd_in_it_is_read_as_far_as_it_goes(name: str, data: st.DataObject) -> None:
    export: Any = EXPORTS[name]()
    *way, last = data.draw(st.sampled_from(places_in(export)[1:]))
    inside = export
    for key in way:
        inside = inside[key]
    inside[last] = data.draw(JSON_VALUES)
    assert all(isinstance(item.number, int) for item in FORMATS[name].read(enumerate(export, 1)))


def test_the_example_imports_once_and_finds_the_answer() -> None:
    example = Path(__file__).parent.parent / "examples" / "import_chat.py"
    done = subprocess.run([sys.executable, example], capture_output=True, text=True, check=True)
    assert "first time: 5 new, 0 known, 1 bad\nsecond time: 0 new, 5 known, 1 bad" in done.stdout
    assert "line 6" in done.stdout and "heater failed" in done.stdout


def test_the_five_conversations_come_in_whole(memory: Memory, locomo: Path) -> None:
    done = memory.import_conversation(locomo)
    assert (done.messages, done.sessions, done.errors) == (2_760, 128, ())
    assert memory.import_conversation(locomo).messages == 0
