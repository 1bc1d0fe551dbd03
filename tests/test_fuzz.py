"""Anything may come in by any door: it is stored as it should be, or refused by name before anything is written."""

from __future__ import annotations

import contextlib
import inspect
import json
import math
import os
import warnings
from collections.abc import Callable, Iterator
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from istar_lite import Atom, BadInput, IstarError, Memory, TurnRecord
from istar_lite.clock import parse_time
from istar_lite.testing import FixedClock, ScriptedLLM

# Every plane of Unicode, lone surrogates and NUL among them, and what looks like syntax to somebody.
any_text = st.one_of(
    st.text(st.characters(codec=None), max_size=200),
    st.sampled_from(
        ["", " ", "\0", "\ud83d", "a\ud83d\ude00b", "'; drop table memory; --", "%_\\", '"', "</memory>", "NEAR(a b)",
         "a:b", "*", "^x", "{a b}", "\u200b", "\ufeff", "\u202e", "東京", "x" * 5000, "-- ", "AND OR NOT", "\r\n\t"]
    ),
)  # fmt: skip
any_number = st.one_of(
    st.integers(),
    st.sampled_from([2**63, -(2**63) - 1, 2**200, 0, -1, True]),
    st.floats(),
    st.decimals(),
    st.none(),
)
any_time = st.one_of(
    st.datetimes(),
    st.datetimes(timezones=st.just(UTC)),
    st.dates(),
    st.floats(),
    st.integers(),
    st.none(),
    any_text,
    st.sampled_from(
        ["2026-02-30", "9999-12-31T23:59:59Z", "0001-01-01", "2026-W01", "24:00", "2026-01-01T00:00:00+99:00"]
    ),
)
any_json: st.SearchStrategy[Any] = st.recursive(
    st.one_of(
        any_text, any_number, st.booleans(), st.binary(max_size=5), st.sampled_from([Decimal("1.5"), object(), {1, 2}])
    ),
    lambda inner: st.one_of(
        st.lists(inner, max_size=4),
        st.dictionaries(st.one_of(any_text, st.integers(), st.none()), inner, max_size=4),
        st.tuples(inner, inner),
    ),
    max_leaves=12,
)

# Each example goes through the whole store; ISTAR_EXAMPLES=1000 makes an afternoon of it.
FEW = settings(max_examples=int(os.environ.get("ISTAR_EXAMPLES", "15")))


@pytest.fixture(scope="module")
def held(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """One memory for all examples: whatever they leave in it, it stays whole."""
    clock = FixedClock("2026-06-01T00:00:00Z")
    with Memory(tmp_path_factory.mktemp("fuzz") / "a.db", embedder=None, clock=clock) as memory:
        memory.remember("likes tea")
        yield memory
        assert memory.check() == []


@contextlib.contextmanager
def without_model() -> Iterator[None]:
    """A host is told, once, that its exchanges wait because no model is given: no matter here."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="no model given", category=UserWarning)
        yield


def rows(memory: Memory) -> dict[str, int]:
    names = (
        "namespace",
        "session",
        "turn",
        "atom",
        "message",
        "exchange",
        "memory",
        "task",
        "tag",
        "source",
        "document",
    )
    return {name: next(memory.db.query(f"select count(*) as n from {name}"))["n"] for name in names}


@contextlib.contextmanager
def refused_whole(memory: Memory) -> Any:
    """Either it works, or one of our errors says no and nothing was written."""
    before = rows(memory)
    try:
        yield
    except BadInput as error:
        assert error.field and rows(memory) == before
    except IstarError:
        assert rows(memory) == before


def test_the_errors_of_bad_input_are_value_errors_that_name_their_field() -> None:
    with pytest.raises(ValueError) as caught:
        parse_time("2026-02-30", "occurred_at")
    assert "occurred_at" in str(caught.value)


@FEW
@given(
    text=any_text,
    importance=any_number,
    emotion=any_text,
    tags=st.lists(any_text, max_size=3),
    when=any_time,
    key=any_text,
)
def test_remember(held: Memory, text: Any, importance: Any, emotion: Any, tags: Any, when: Any, key: Any) -> None:
    with refused_whole(held):
        item = held.remember(text, importance=importance, emotion=emotion, tags=tags, occurred_at=when, key=key or None)
        assert held.get("memory", item.id) is not None
        json.dumps(item.to_dict(), allow_nan=False)


@FEW
@given(text=any_text)
def test_what_is_remembered_comes_back_as_it_was_but_for_what_no_file_can_hold(held: Memory, text: str) -> None:
    with refused_whole(held):
        item = held.remember(text)
        stored = held.get("memory", item.id)
        assert stored is not None
        if item.mention_count == 1:
            assert (
                stored["text"].encode()
                == text.replace("\0", "\ufffd").encode("utf-16", "surrogatepass").decode("utf-16", "replace").encode()
            )


@FEW
@given(prompt=any_text, response=any_text, session=any_text, when=any_time, key=st.one_of(st.none(), any_text))
def test_store_and_retrieve(held: Memory, prompt: Any, response: Any, session: Any, when: Any, key: Any) -> None:
    with without_model(), refused_whole(held):
        held.chat(session).store(prompt, response, occurred_at=when, key=key)
    with refused_whole(held):
        json.dumps(held.chat(session).retrieve(prompt).to_dict(), allow_nan=False)


@FEW
@given(query=any_text, k=any_number, kinds=st.one_of(st.none(), any_text, st.lists(any_text, max_size=2)),
       since=any_time, tags=st.one_of(st.none(), st.lists(any_text, max_size=2)),
       session=st.one_of(st.none(), any_text), status=any_text, floor=any_number)  # fmt: skip
def test_search(
    held: Memory, query: Any, k: Any, kinds: Any, since: Any, tags: Any, session: Any, status: Any, floor: Any
) -> None:
    before = rows(held)
    for more in ({}, {"kinds": kinds}, {"since": since}, {"tags": tags}, {"session": session}, {"status": status},
                 {"min_score": floor}, {"as_of": since}, {"k": k}):  # fmt: skip
        with contextlib.suppress(IstarError):
            found = held.search(query, **more)
            assert all(0 <= hit.score < 1 and math.isfinite(hit.score) for hit in found)
            json.dumps(found.to_dict(), allow_nan=False)
    assert rows(held) == before


@FEW
@given(
    turn=any_number, reward=any_number, unit=any_text, events=any_json, actions=any_json, extra=any_json, when=any_time
)
def test_record_turn(
    held: Memory, turn: Any, reward: Any, unit: Any, events: Any, actions: Any, extra: Any, when: Any
) -> None:
    with refused_whole(held):
        record = TurnRecord(
            turn=turn,
            reward=reward,
            reward_unit=unit,
            events=events,
            actions_taken=actions,
            extra=extra,
            occurred_at=when,
        )
        id = held.agent("fuzzed").record_turn(record)
        row = held.get("turn", id)
        assert row is not None
        for name in ("events", "actions_taken", "extra"):
            json.loads(row[name], parse_constant=lambda constant: pytest.fail(constant))


@FEW
@given(id=st.one_of(st.none(), any_text), turn=any_number, kind=any_text, content=any_text, priority=any_number,
       tags=st.lists(any_text, max_size=2))  # fmt: skip
def test_atoms_of_any_extractor(
    held: Memory, id: Any, turn: Any, kind: Any, content: Any, priority: Any, tags: Any
) -> None:
    class Extractor:
        """Rules that give whatever was drawn."""

        def extract(self, window: Any, existing: Any) -> Any:
            return [Atom(id=id, turn=turn, type=kind, content=content, priority=priority, tags=tags)]

    agent = held.agent("extracted", atom_extractor=Extractor(), extract_every=1)
    last = held.db.execute("select coalesce(max(turn), 0) from turn").fetchone()[0]
    with contextlib.suppress(BadInput):
        agent.record_turn(TurnRecord(turn=last + 1, reward=1.0))
        agent.extract_atoms(last + 1)


@FEW
@given(text=any_text, tag=any_text, session=any_text, before=any_time, id=any_number, kind=any_text)
def test_forget(held: Memory, text: Any, tag: Any, session: Any, before: Any, id: Any, kind: Any) -> None:
    other = held.in_namespace("bystander")
    if not other.list("memory"):
        other.remember("stays")
    for condition in ({"text": text}, {"tag": tag}, {"session": session}, {"before": before}, {"id": id, "kind": kind}):
        if condition.get("before") is None and "before" in condition:
            continue
        with contextlib.suppress(IstarError):
            held.forget(**condition)
    assert [row["text"] for row in other.list("memory")] == ["stays"]


@FEW
@given(namespace=any_text, run=any_text, kind=any_text, id=any_number, limit=any_number, after=any_number)
def test_names_ids_and_pages(
    held: Memory, namespace: Any, run: Any, kind: Any, id: Any, limit: Any, after: Any
) -> None:
    before = rows(held)
    calls: list[Callable[[], Any]] = [
        lambda: held.in_namespace(namespace).list("memory"),
        lambda: held.in_namespace(namespace).stats(),
        lambda: held.agent(run).memory_block(),
        lambda: held.get(kind, id),
        lambda: held.list(kind, limit=limit, after=after),
        lambda: held.prior_run_notes(run),
        lambda: held.restore(kind, id),
    ]
    for call in calls:
        with contextlib.suppress(IstarError):
            call()
    assert rows(held)["document"] == before["document"]


def methods(memory: Memory) -> dict[str, Callable[..., Any]]:
    """The public methods of everything that a memory gives out, but for those whose arguments are paths, callables or
    other methods (they have tests of their own) and the async twins, which call the same code."""
    views = {
        "memory": memory,
        "agent": memory.agent("called"),
        "chat": memory.chat("called"),
        "observe": memory.observe("called", context_window=1_000, background=None),
        "items": memory.items(),
        "files": memory.files(),
        "transcript": memory.transcript("called"),
    }
    left = {"close", "snapshot", "export", "export_profiles", "load", "merge", "diff", "reembed", "seal", "check"}
    left |= {"wait", "import_conversation", "on_observation", "on_reflection", "handlers"}
    return {
        f"{name}.{method}": getattr(view, method)
        for name, view in views.items()
        for method, found in inspect.getmembers(type(view), inspect.isfunction)
        if not method.startswith("_") and method not in left and not inspect.iscoroutinefunction(found)
    }


METHODS = [
    "agent.atoms",
    "agent.episodes",
    "agent.extract_atoms",
    "agent.memory_block",
    "agent.record_turn",
    "agent.record_turns",
    "agent.summarise_run",
    "agent.tick",
    "agent.update_episode",
    "chat.consolidate",
    "chat.retrieve",
    "chat.store",
    "files.history",
    "files.paths",
    "files.read",
    "files.reading",
    "files.writing",
    "items.check_page",
    "items.pattern",
    "items.reading",
    "items.sweep",
    "items.writing",
    "memory.agent",
    "memory.chat",
    "memory.context",
    "memory.files",
    "memory.forget",
    "memory.get",
    "memory.in_namespace",
    "memory.items",
    "memory.list",
    "memory.namespaces",
    "memory.observe",
    "memory.prior_run_notes",
    "memory.remember",
    "memory.remember_many",
    "memory.restore",
    "memory.search",
    "memory.sessions",
    "memory.stats",
    "memory.status",
    "memory.supersede",
    "memory.transcript",
    "memory.work",
    "observe.add",
    "observe.context",
    "observe.recall_tool",
    "observe.state",
    "observe.transform",
    "observe.trigger",
    "observe.turn_end",
    "observe.watches",
    "transcript.add",
    "transcript.clear",
    "transcript.items",
    "transcript.pop",
]


def test_the_methods_called_with_anything_are_all_there_are(held: Memory) -> None:
    assert set(METHODS) == set(methods(held))


@pytest.mark.parametrize("name", METHODS)
@FEW
@given(data=st.data())
def test_any_method_takes_or_refuses_by_name_whatever_it_is_called_with(
    held: Memory, name: str, data: st.DataObject
) -> None:
    anything = st.one_of(any_text, any_number, any_time, any_json)
    method = methods(held)[name]
    given: list[Any] = []
    named: dict[str, Any] = {}
    for parameter in inspect.signature(method).parameters.values():
        if parameter.kind in (parameter.VAR_KEYWORD, parameter.VAR_POSITIONAL):
            continue
        if parameter.default is parameter.empty and parameter.kind is not parameter.KEYWORD_ONLY:
            given.append(data.draw(anything, label=parameter.name))
        elif parameter.default is parameter.empty or data.draw(st.booleans()):
            named[parameter.name] = data.draw(anything, label=parameter.name)
    with without_model(), contextlib.suppress(IstarError):
        method(*given, **named)


@FEW
@given(answer=st.one_of(any_text, any_json, st.just(ValueError("x"))))
def test_any_answer_of_a_model_ends_as_a_result_or_as_work_that_waits(
    tmp_path_factory: pytest.TempPathFactory, answer: Any
) -> None:
    path = tmp_path_factory.mktemp("answers") / "a.db"
    model = ScriptedLLM([], default=answer if answer is not None else "")
    with Memory(path, embedder=None, llm=model, clock=FixedClock()) as memory:
        stored = memory.chat("c").store("I like tea", "noted")
        assert stored.extraction in ("done", "due") and len(memory.list("exchange")) == 1
        agent = memory.agent("r", episode_every=1)
        agent.record_turn(TurnRecord(turn=1, reward=1.0))
        agent.update_episode(1)
        with contextlib.suppress(IstarError):
            agent.summarise_run("p")
        status = memory.status()
        assert status.claimed == 0
        assert memory.check() == []


@FEW
@given(value=any_time)
def test_a_time_is_read_as_one_instant_or_refused_by_name(value: Any) -> None:
    try:
        moment = parse_time(value, "when")
    except BadInput as error:
        assert error.field == "when"
        return
    assert moment.utcoffset() == timedelta(0)
    if isinstance(value, datetime) and value.tzinfo is not None:
        assert moment == value
    elif isinstance(value, date) and not isinstance(value, datetime):
        assert moment.astimezone().date() == value or moment.year in (1, 9999)


@pytest.mark.parametrize("size", [0, 1, 4095, 65_536, 1_000_000, 10_000_000])
def test_a_text_of_any_size_is_stored_whole_and_its_last_word_found(held: Memory, size: int) -> None:
    text = ("lorem ipsum dolor " * (size // 18 + 1))[:size] + f" finalword{size}"
    item = held.remember(text)
    stored = held.get("memory", item.id)
    assert stored is not None and stored["text"] == text
    assert held.search(f"finalword{size}", k=1)[0].id == item.id


@pytest.mark.parametrize(("size", "word"), [(1, "木琴"), (129, "灯塔"), (16_385, "港湾"), (1_000_000, "自行车")])
def test_a_chinese_text_of_any_size_is_stored_whole_and_its_last_word_found(held: Memory, size: int, word: str) -> None:
    text = ("我喜欢绿茶" * (size // 5 + 1))[:size] + word
    item = held.remember(text)
    stored = held.get("memory", item.id)
    assert stored is not None and stored["text"] == text
    assert held.search(word, k=1)[0].id == item.id


def test_a_text_of_ten_megabytes_enters_by_every_door(held: Memory) -> None:
    text = "a" * 10_000_000  # one word: a tokenizer that is quadratic in a word would not end
    held.observe("large", context_window=10**9, background=None).add("user", text)
    with without_model():
        held.chat("large").store(text, "noted")
    held.agent("large").record_turn(TurnRecord(turn=1, extra={"note": text}))
    for table, column in (("message", "content"), ("turn", "extra")):
        assert list(held.db.query(f"select id from {table} where length({column}) >= 10000000")), table
    held.search(text, k=1)
    assert held.check() == []


@pytest.mark.parametrize("depth", [50, 99, 100, 101, 5000])
def test_nesting_is_stored_up_to_a_limit_and_refused_beyond(held: Memory, depth: int) -> None:
    value: Any = 1
    for _ in range(depth):
        value = [value]
    last = held.db.execute("select coalesce(max(turn), 0) from turn").fetchone()[0]
    with refused_whole(held):
        held.agent(f"nested {depth}").record_turn(TurnRecord(turn=last + 1, extra={"deep": value}))
