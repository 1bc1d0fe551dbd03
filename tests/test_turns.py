"""L0: recording turns."""

from __future__ import annotations

import dataclasses
import enum
import json
import subprocess
import sys
import uuid
from collections.abc import Iterator
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel

from istar_lite import AgentMemory, BadInput, Memory, ReadOnly, TurnRecord
from istar_lite.testing import FixedClock


@pytest.fixture
def agent(memory: Memory) -> AgentMemory:
    return memory.agent("r")


def turns(memory: Memory) -> list[dict[str, Any]]:
    return [row.to_values() for row in memory.list("turn")]


def test_a_turn_is_found_by_what_happened_in_it(memory: Memory, agent: AgentMemory) -> None:
    record = TurnRecord(12, 42.5, "EUR", ["price_spike", "storm"], ["buy qty=10"], {"price": 105})
    row = agent.record_turn(record)
    assert turns(memory)[0]["id"] == row
    assert turns(memory)[0]["text"] == "T12 · 42.5 EUR · price_spike, storm · buy qty=10 · price=105"
    found = memory.db.execute("select row from document_fts join document on document.id = document_fts.rowid"
                              " where document_fts match 'storm'").fetchall()  # fmt: skip
    assert [tuple(hit) for hit in found] == [(row,)]


@pytest.mark.parametrize(
    ("record", "line"),
    [
        (TurnRecord(1), "T1"),
        (TurnRecord(2, 42), "T2 · 42"),
        (TurnRecord(3, 1e20, "Wh"), "T3 · 1e+20 Wh"),
        (TurnRecord(4, None, "EUR"), "T4"),
        (TurnRecord(5, events=[{"event": "storm", "mw": 3}, "calm"]), "T5 · storm mw=3, calm"),
        (TurnRecord(6, actions_taken=[{"action": "buy", "qty": 10}]), "T6 · buy qty=10"),
        (TurnRecord(7, events={"wind": 0.4}, actions_taken={"bid": 12}), "T7 · wind=0.4 · bid=12"),
        (TurnRecord(8, extra={"price": 105, "none": None, "list": [1, 2]}), "T8 · price=105 list=[1,2]"),
        (TurnRecord(9, events="storm"), "T9 · storm"),
        (TurnRecord(10, 1, text="the host's own words"), "the host's own words"),
    ],
)
def test_the_line_tells_the_turn(memory: Memory, agent: AgentMemory, record: TurnRecord, line: str) -> None:
    agent.record_turn(record)
    assert turns(memory)[0]["text"] == line


def test_a_row_written_by_hand_gets_the_same_line_as_a_recorded_one(memory: Memory, agent: AgentMemory) -> None:
    agent.record_turn(TurnRecord(1, 2.5, "EUR", ["storm"], [{"action": "buy", "qty": 1}], {"price": 105}))
    memory.db.execute(
        "insert into turn (session, turn, reward, reward_unit, events, actions_taken, extra) values"
        """ (1, 2, 2.5, 'EUR', '["storm"]', '[{"action": "buy", "qty": 1}]', '{"price": 105}')"""
    )
    memory.db.conn.commit()
    first, second = (turn["text"] for turn in turns(memory))
    assert first.removeprefix("T1") == second.removeprefix("T2")


def test_an_edit_by_hand_tells_the_turn_anew_but_leaves_the_hosts_own_text(memory: Memory, agent: AgentMemory) -> None:
    agent.record_turns([TurnRecord(1, 1.0), TurnRecord(2, 1.0, text="own words")])
    memory.db.execute("update turn set reward = 7")
    memory.db.conn.commit()
    assert [turn["text"] for turn in turns(memory)] == ["T1 · 7", "own words"]


def test_the_newest_turn_again_changes_nothing_and_gives_its_id(memory: Memory, agent: AgentMemory) -> None:
    record = TurnRecord(5, 1.5, "EUR", ["storm"], ["buy"], {"price": 1})
    assert agent.record_turn(record) == agent.record_turn(record)
    assert agent.record_turn(TurnRecord(5, 1.5, "EUR", ("storm",), ["buy"], {"price": 1})) == 1
    assert len(turns(memory)) == 1


@pytest.mark.parametrize(
    "changed",
    [{"reward": 2.0}, {"reward": None}, {"events": ["calm"]}, {"extra": {"price": 2}}, {"occurred_at": "2020-01-01"}],
)
def test_the_newest_turn_with_other_content_is_refused_naming_both(agent: AgentMemory, changed: dict[str, Any]) -> None:
    record = TurnRecord(turn=5, reward=1.5, events=["storm"], extra={"price": 1})
    agent.record_turn(record)
    with pytest.raises(BadInput, match=rf"5 .*{next(iter(changed))}") as caught:
        agent.record_turn(record.model_copy(update=changed))
    assert caught.value.field == "turn"


def test_a_lower_number_is_refused_naming_both(memory: Memory, agent: AgentMemory) -> None:
    agent.record_turn(TurnRecord(7))
    with pytest.raises(BadInput, match=r"3 .* 7"):
        agent.record_turn(TurnRecord(3))
    assert len(turns(memory)) == 1


def test_numbers_may_jump_and_start_anywhere(memory: Memory, agent: AgentMemory) -> None:
    agent.record_turns([TurnRecord(-5), TurnRecord(0), TurnRecord(1_000_000)])
    assert [turn["turn"] for turn in turns(memory)] == [-5, 0, 1_000_000]


def test_runs_and_namespaces_count_for_themselves(memory: Memory) -> None:
    for namespace in ("a", "A", "a%"):
        for run in ("r", "R", "it's"):
            memory.in_namespace(namespace).agent(run).record_turn(TurnRecord(1, 1.0))
    assert memory.db.execute("select count(*) from turn").fetchone()[0] == 9
    assert len(memory.in_namespace("a").list("turn")) == 3


def test_a_batch_is_written_whole_or_not_at_all(memory: Memory, agent: AgentMemory) -> None:
    with pytest.raises(BadInput, match=r"extra\.bad"):
        agent.record_turns([TurnRecord(1), TurnRecord(2, extra={"bad": object()})])
    with pytest.raises(BadInput, match=r"1 .* 2"):
        agent.record_turns([TurnRecord(2), TurnRecord(1)])
    assert memory.sessions() == []
    assert agent.record_turns([TurnRecord(1), TurnRecord(2), TurnRecord(2)]) == [1, 2, 2]


@pytest.mark.parametrize("count", [0, 1, 2, 63, 64, 65, 200])
def test_a_batch_of_any_size_gives_the_id_of_each_of_its_turns(memory: Memory, count: int) -> None:
    memory.agent("other").record_turn(TurnRecord(5))
    ids = memory.agent("run").record_turns(TurnRecord(3 * at, float(at)) for at in range(count))
    assert [row.turn for row in (memory.get("turn", id) for id in ids)] == [3 * at for at in range(count)]  # type: ignore[union-attr]
    assert memory.check() == []


def test_times_are_instants_whatever_their_form(memory: Memory, agent: AgentMemory, clock: FixedClock) -> None:
    forms: list[Any] = ["2026-01-02T00:30+02:00", datetime(2026, 1, 1, 22, 31, tzinfo=UTC), 1767306720.5, None]
    agent.record_turns([TurnRecord(number, occurred_at=form) for number, form in enumerate(forms)])
    rows = memory.db.execute("select occurred_at from turn order by turn").fetchall()
    assert [row[0] for row in rows] == [
        "2026-01-01T22:30:00.000Z",
        "2026-01-01T22:31:00.000Z",
        "2026-01-01T22:32:00.500Z",
        "2026-01-01T00:00:00.000Z",
    ]
    with pytest.raises(BadInput, match="2026-02-30"):
        agent.record_turn(TurnRecord(9, occurred_at="2026-02-30"))


class Colour(enum.Enum):
    RED = "red"


@dataclasses.dataclass
class Plant:
    mw: int


class Bid(BaseModel):
    price: float


@pytest.mark.parametrize(
    ("value", "kept"),
    [
        (datetime(2026, 1, 1, tzinfo=UTC), "2026-01-01T00:00:00.000Z"),
        (date(2026, 1, 1), "2026-01-01"),
        (Decimal("0.10"), "0.10"),
        (uuid.UUID(int=7), str(uuid.UUID(int=7))),
        (Path("a/b"), str(Path("a/b"))),
        (Colour.RED, "red"),
        ({"b", "a"}, ["a", "b"]),
        ((1, 2), [1, 2]),
        (Plant(5), {"mw": 5}),
        (Bid(price=1.5), {"price": 1.5}),
        (np.float32(0.5), 0.5),
        (np.array([1, 2]), [1, 2]),
        ({1: "one"}, {"1": "one"}),
        ("half an emoji \ud83d", "half an emoji \ufffd"),
    ],
)
def test_extras_of_known_kinds_come_back_in_their_documented_form(
    memory: Memory, agent: AgentMemory, value: Any, kept: Any
) -> None:
    agent.record_turn(TurnRecord(1, extra={"value": value}, events=[value]))
    row = turns(memory)[0]
    assert json.loads(row["extra"]) == {"value": kept}
    strict = memory.db.execute("select json_valid(extra), json_extract(extra, '$.value') is not null from turn")
    assert tuple(strict.fetchone()) == (1, 1)


def looped() -> list[Any]:
    items: list[Any] = []
    items.append(items)
    return items


class Silent:
    def __str__(self) -> str:
        raise RuntimeError("no text")


@pytest.mark.parametrize("value", [float("nan"), float("inf"), b"bytes", Silent(), looped(), 2**63, {("a",): 1}])
def test_extras_that_json_cannot_hold_are_refused_before_anything_is_written(
    memory: Memory, agent: AgentMemory, value: Any
) -> None:
    for field in ("extra", "events", "actions_taken"):
        with pytest.raises(BadInput) as caught:
            agent.record_turn(TurnRecord(turn=1, **{field: {"key": value}}))
        assert caught.value.field.startswith(f"{field}.key") or caught.value.field == f"{field}.key"
    assert memory.sessions() == []


@pytest.mark.parametrize("reward", [float("nan"), "12", True, b"1", [1.0], np.array([1.0, 2.0]), {}])
def test_a_reward_that_is_no_number_is_refused(memory: Memory, agent: AgentMemory, reward: Any) -> None:
    with pytest.raises(BadInput) as caught:
        agent.record_turn(TurnRecord(1, reward))
    assert caught.value.field == "reward"
    assert memory.sessions() == []


@pytest.mark.parametrize("reward", [np.float32(0.5), np.int64(3), Decimal("0.5"), 7])
def test_a_reward_of_any_kind_of_number_is_stored_as_a_number(memory: Memory, agent: AgentMemory, reward: Any) -> None:
    agent.record_turn(TurnRecord(1, reward))
    assert memory.db.execute("select typeof(reward), reward from turn").fetchone()[1] == float(reward)
    assert turns(memory)[0]["reward"] == float(reward)


@pytest.mark.parametrize("number", [True, 1.0, "1", None, 2**63, float("nan")])
def test_a_turn_number_that_is_no_whole_number_is_refused(number: Any) -> None:
    with pytest.raises(BadInput) as caught:
        TurnRecord(number)
    assert caught.value.field == "turn"


def test_what_is_no_turn_record_is_refused(agent: AgentMemory) -> None:
    with pytest.raises(BadInput, match="TurnRecord"):
        agent.record_turn({"turn": 1})  # type: ignore[arg-type]


def test_redaction_reaches_every_text_and_key(path: Path, clock: FixedClock) -> None:
    def redact(text: str) -> str:
        return text.replace("hunter2", "***")

    with Memory(path, embedder=None, clock=clock, redact=redact) as memory:
        memory.agent("r").record_turn(
            TurnRecord(1, 1.0, "hunter2", ["saw hunter2"], [{"pw": "hunter2"}], {"hunter2": ["hunter2"]}, "is hunter2")
        )
    assert b"hunter2" not in path.read_bytes()


@given(text=st.text(), number=st.integers(-(2**63), 2**63 - 1), real=st.floats(allow_nan=False, allow_infinity=False))
def test_whatever_is_said_comes_back(memory: Memory, text: str, number: int, real: float) -> None:
    extra = {"text": text, "number": number, "real": real}
    row = memory.agent(str(uuid.uuid4())).record_turn(TurnRecord(1, extra=extra))
    kept = memory.get("turn", row)
    assert kept is not None
    assert json.loads(kept["extra"]) == {**extra, "text": text.replace("\0", "\ufffd")}


def test_a_read_only_file_takes_no_turn(path: Path) -> None:
    with Memory(path, embedder=None) as memory:
        memory.agent("r").record_turn(TurnRecord(1))
    with Memory(path, embedder=None, read_only=True) as memory:
        agent = memory.agent("r", extract_every=10)
        with pytest.raises(ReadOnly):
            agent.record_turn(TurnRecord(2))
        with pytest.raises(ReadOnly):
            memory.agent("r", extract_every=11)


@pytest.fixture
def writer_script() -> Iterator[str]:
    yield (
        "import sys; from istar_lite import Memory, TurnRecord, BadInput\n"
        "memory = Memory(sys.argv[1], embedder=None)\n"
        "agent = memory.agent(sys.argv[2])\n"
        "for number in range(1, 51): agent.record_turn(TurnRecord(number, number))\n"
        "memory.close()\n"
    )


def test_several_processes_write_their_runs_into_one_file(path: Path, writer_script: str) -> None:
    processes = [subprocess.Popen([sys.executable, "-c", writer_script, str(path), f"run-{n}"]) for n in range(3)]
    assert [process.wait(timeout=60) for process in processes] == [0, 0, 0]
    with Memory(path, embedder=None) as memory:
        assert [session["turns"] for session in memory.sessions()] == [50, 50, 50]


async def aturn(agent: AgentMemory) -> int:
    return await agent.arecord_turn(TurnRecord(1, 1.0))


def test_the_async_twin_records_too(agent: AgentMemory) -> None:
    import asyncio

    assert asyncio.run(aturn(agent)) == 1


def test_a_number_that_is_a_list_holding_itself_is_refused() -> None:
    loop: list[Any] = []
    loop.append(loop)
    for values in ({"turn": loop, "reward": 1}, {"turn": 1, "reward": 1, "text": loop}):
        with pytest.raises(BadInput):
            TurnRecord(**values)
