"""L1: windows, cadence, failing extractors, crashes."""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import subprocess
import sys
import textwrap
from collections.abc import Callable, Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from istar_lite import AgentMemory, Atom, BadInput, Memory, TurnRecord, atom_id, places, tombstones
from istar_lite.testing import FixedClock


class Recording:
    """Keeps what it was shown; gives an atom for each turn not seen before, or what `answer` makes of the window."""

    def __init__(self, answer: Callable[[Any], Any] | None = None) -> None:
        self.windows: list[tuple[list[int], int]] = []
        self.existing: list[list[str | None]] = []
        self.answer = answer or (
            lambda window: [Atom(turn=turn.turn, type="seen", content=f"turn {turn.turn}") for turn in new(window)]
        )

    def extract(self, window: Any, existing: Sequence[Atom], /) -> Any:
        self.windows.append(([turn.turn for turn in window], window.context))
        self.existing.append([atom.id for atom in existing])
        return self.answer(window)


class Failing(Recording):
    """Raises as often as told, then works."""

    def __init__(self, times: int, error: BaseException | None = None) -> None:
        super().__init__()
        self.times = times
        self.error = error or RuntimeError("broken rule")

    def extract(self, window: Any, existing: Sequence[Atom], /) -> Any:
        found = super().extract(window, existing)
        self.times -= 1
        if self.times >= 0:
            raise self.error
        return found


def new(window: Any) -> Any:
    return window[window.context :]


def run(agent: AgentMemory, first: int, last: int) -> dict[int, list[Atom]]:
    """Records turns and asks for atoms after each; what was new, by turn."""
    found = {}
    for number in range(first, last + 1):
        agent.record_turn(TurnRecord(number, float(number)))
        if atoms := agent.extract_atoms(number):
            found[number] = atoms
    return found


def seen_once(extractor: Recording) -> list[int]:
    """The turns that were shown as new, in the windows that succeeded last."""
    return [turn for turns, context in extractor.windows for turn in turns[context:]]


def test_a_window_is_due_every_ten_turns_and_shows_the_last_turn_again(memory: Memory) -> None:
    extractor = Recording()
    found = run(memory.agent("r", atom_extractor=extractor), 1, 25)
    assert list(found) == [10, 20]
    assert extractor.windows == [(list(range(1, 11)), 0), (list(range(10, 21)), 1)]
    assert extractor.existing[1] == [atom_id(turn, "seen") for turn in range(1, 11)]


def test_a_run_that_starts_late_counts_from_its_first_turn(memory: Memory) -> None:
    extractor = Recording()
    assert list(run(memory.agent("r", atom_extractor=extractor, extract_every=3), 100, 106)) == [102, 105]


def test_sparse_numbers_lose_no_turn(memory: Memory) -> None:
    extractor = Recording()
    agent = memory.agent("r", atom_extractor=extractor, extract_every=10)
    for number in (1, 5, 30, 31, 32, 90):
        agent.record_turn(TurnRecord(number))
        agent.extract_atoms(number)
    assert seen_once(extractor) == [1, 5, 30, 31, 32, 90]


def test_a_turn_ahead_of_what_is_recorded_moves_the_mark_to_the_newest_turn_only(memory: Memory) -> None:
    extractor = Recording()
    agent = memory.agent("r", atom_extractor=extractor, extract_every=2)
    agent.record_turn(TurnRecord(1))
    agent.extract_atoms(50)
    agent.record_turns([TurnRecord(2), TurnRecord(3)])
    agent.extract_atoms(51)
    assert seen_once(extractor) == [1, 2, 3]


def test_nothing_recorded_is_nothing_due(memory: Memory) -> None:
    assert memory.agent("r", atom_extractor=Recording()).extract_atoms(100) == []


def test_the_key_is_the_users_or_made_of_turn_and_type(memory: Memory) -> None:
    atoms = [Atom(id="mine", turn=1, type="a", content="x"), Atom(turn=1, type="a", content="y", tags=("t", "u"))]
    agent = memory.agent("r", atom_extractor=Recording(lambda window: atoms), extract_every=1)
    agent.record_turn(TurnRecord(1))
    keys = [atom.id for atom in agent.extract_atoms(1)]
    assert keys == ["mine", hashlib.md5(b"1_a").hexdigest()[:12]]
    assert agent.atoms()[1].tags == ("t", "u")


def test_repeating_a_key_changes_nothing_and_is_not_new(memory: Memory) -> None:
    extractor = Recording(lambda window: [Atom(id="k", turn=window[-1].turn, type="t", content=f"{len(window)}")])
    agent = memory.agent("r", atom_extractor=extractor, extract_every=1)
    assert list(run(agent, 1, 4)) == [1]
    assert [(atom.turn, atom.content) for atom in agent.atoms()] == [(1, "1")]


def test_the_same_key_in_another_run_is_another_atom(memory: Memory) -> None:
    for name in ("one", "two"):
        run(
            memory.agent(name, atom_extractor=Recording(lambda w: [Atom(id="k", turn=1, type="t", content="c")])), 1, 10
        )
    assert len(memory.list("atom")) == 2


def test_two_atoms_of_a_type_in_a_turn_are_both_kept(memory: Memory) -> None:
    atoms = [Atom(turn=1, type="spike", content=text) for text in ("price", "demand", "price")]
    agent = memory.agent("r", atom_extractor=Recording(lambda window: atoms), extract_every=1)
    run(agent, 1, 3)
    assert [atom.content for atom in agent.atoms()] == ["price", "demand"]


def test_an_atom_has_the_time_of_its_turn(memory: Memory) -> None:
    agent = memory.agent("r", atom_extractor=Recording(), extract_every=2)
    agent.record_turns([TurnRecord(1, occurred_at="2020-01-01T00:00Z"), TurnRecord(2, occurred_at="2020-01-02T00:00Z")])
    agent.extract_atoms(2)
    assert [row["occurred_at"].day for row in memory.list("atom")] == [1, 2]


def test_cadences_live_in_the_file(memory: Memory, path: Path) -> None:
    memory.agent("r", extract_every=3, max_atoms=2)
    extractor = Recording()
    with Memory(path, embedder=None) as other:
        found = run(other.agent("r", atom_extractor=extractor), 1, 6)
    assert list(found) == [3, 6]
    assert len(memory.agent("r").atoms()) == 2


@pytest.mark.parametrize("argument", ["extract_every", "episode_every", "max_atoms", "max_episodes"])
@pytest.mark.parametrize("value", [0, -1, 1.5, "3", True])
def test_a_cadence_or_cap_that_is_no_positive_number_is_refused(memory: Memory, argument: str, value: Any) -> None:
    with pytest.raises(BadInput) as caught:
        memory.agent("r", **{argument: value})
    assert caught.value.field == argument
    assert memory.sessions() == []


@pytest.mark.parametrize("argument", ["atom_extractor", "episode_classifier", "retro_classifier"])
def test_rules_without_the_method_are_refused(memory: Memory, argument: str) -> None:
    with pytest.raises(BadInput) as caught:
        memory.agent("r", **{argument: object()})  # type: ignore[arg-type]
    assert caught.value.field == argument


# --- failing rules ------------------------------------------------------------------------------------------------


def test_a_raising_extractor_leaves_its_window_due_and_the_turn_goes_on(memory: Memory) -> None:
    extractor = Failing(1)
    agent = memory.agent("r", atom_extractor=extractor)
    found = run(agent, 1, 11)
    assert [atom.turn for atom in found[11]] == list(range(1, 12))
    assert extractor.windows == [(list(range(1, 11)), 0), (list(range(1, 12)), 0)]


def test_a_failed_window_is_tried_again_after_1_2_4_8_16_and_16_turns(memory: Memory) -> None:
    extractor = Failing(99)
    run(memory.agent("r", atom_extractor=extractor), 1, 80)
    assert [turns[-1] for turns, _ in extractor.windows] == [10, 11, 13, 17, 25, 41, 57, 73]
    status = memory.status()
    assert (status.failed, status.due) == (1, 0)
    assert status.last_error == "RuntimeError: broken rule"


def test_after_the_rule_is_mended_every_turn_was_seen_once(memory: Memory) -> None:
    extractor = Failing(4)
    agent = memory.agent("r", atom_extractor=extractor, max_atoms=100)
    run(agent, 1, 60)
    assert [atom.turn for atom in agent.atoms()] == list(range(1, 56))
    assert memory.status().failed == 0


def test_on_error_raise_hands_the_rules_own_error_to_the_host(path: Path) -> None:
    with Memory(path, embedder=None, on_error="raise") as memory:
        agent = memory.agent("r", atom_extractor=Failing(1), extract_every=1)
        agent.record_turn(TurnRecord(1))
        with pytest.raises(RuntimeError, match="broken rule"):
            agent.extract_atoms(1)
        assert memory.status().failed == 1


@pytest.mark.parametrize("stop", [KeyboardInterrupt, SystemExit, asyncio.CancelledError])
def test_what_means_stop_passes_and_nothing_is_half_written(memory: Memory, stop: type[BaseException]) -> None:
    agent = memory.agent("r", atom_extractor=Failing(1, stop()), extract_every=1)
    agent.record_turn(TurnRecord(1))
    with pytest.raises(stop):
        agent.extract_atoms(1)
    assert memory.status().failed == 0
    assert [atom.turn for atom in agent.extract_atoms(1)] == [1]


def good() -> Atom:
    return Atom(turn=1, type="t", content="fine")


@pytest.mark.parametrize(
    "nonsense",
    [
        lambda w: "text",
        lambda w: 7,
        lambda w: [good(), "text"],
        lambda w: [good(), {"turn": 1, "type": "t", "content": "c"}],
        lambda w: [good(), Atom(turn=1, type="t", content="c", priority=101)],
        lambda w: [good(), good().model_copy(update={"priority": float("nan")})],
        lambda w: [good(), good().model_copy(update={"turn": "one"})],
        lambda w: [good(), good().model_copy(update={"content": None})],
        lambda w: [good(), Atom(turn=1, type="t", content="   ")],
        lambda w: [Atom(id="k", turn=1, type="t", content="a"), Atom(id="k", turn=1, type="t", content="b")],
        lambda w: w.state.update(bad=object()) or [good()],
        lambda w: object(),
    ],
)
def test_nonsense_is_like_raising_and_nothing_is_half_written(memory: Memory, nonsense: Callable[[Any], Any]) -> None:
    agent = memory.agent("r", atom_extractor=Recording(nonsense), extract_every=1)
    agent.record_turn(TurnRecord(1))
    assert agent.extract_atoms(1) == []
    assert agent.atoms(status=None) == []
    assert memory.status().failed == 1
    assert len(memory.agent("r", atom_extractor=Recording()).extract_atoms(2)) == 1


@pytest.mark.parametrize("nothing", [None, [], (), iter(())])
def test_finding_nothing_is_a_result_and_not_asked_again(memory: Memory, nothing: Any) -> None:
    extractor = Recording(lambda window: nothing)
    run(memory.agent("r", atom_extractor=extractor), 1, 15)
    assert len(extractor.windows) == 1
    assert memory.status().by_purpose == {}


@pytest.mark.parametrize("priority", [Decimal("7"), np.float32(7), np.int64(7), 7])
def test_numbers_of_any_library_are_a_priority(priority: Any) -> None:
    assert Atom(turn=np.int32(1), type="t", content="c", priority=priority).priority == 7.0  # type: ignore[arg-type]


@pytest.mark.parametrize("priority", [True, "7", -0.1, 100.1, float("nan"), None, np.array([1.0, 2.0])])
def test_what_is_no_priority_is_refused(priority: Any) -> None:
    with pytest.raises(BadInput) as caught:
        Atom(turn=1, type="t", content="c", priority=priority)
    assert caught.value.field == "priority"


def test_half_an_emoji_in_an_atom_is_mended(memory: Memory) -> None:
    extractor = Recording(lambda w: [Atom(id="k\ud83d", turn=1, type="t\ud83d", content="c\ud83d", tags=("x\ud83d",))])
    agent = memory.agent("r", atom_extractor=extractor, extract_every=1)
    agent.record_turn(TurnRecord(1))
    (atom,) = agent.extract_atoms(1)
    assert (atom.id, atom.type, atom.content, atom.tags) == ("k\ufffd", "t\ufffd", "c\ufffd", ("x\ufffd",))


def test_what_was_forgotten_does_not_come_back_as_an_atom(memory: Memory) -> None:
    with memory._services.file.write() as tx:
        owner = places.ensure_namespace(tx, "default", "2026-01-01T00:00:00.000Z")
        tombstones.add(tx, owner, [("atom", "Turn 2.")], b"salt", "2026-01-01T00:00:00.000Z")
    agent = memory.agent("r", atom_extractor=Recording(), extract_every=3)
    assert [atom.turn for atom in run(agent, 1, 3)[3]] == [1, 3]


# --- what rules remember ------------------------------------------------------------------------------------------


def test_what_rules_remember_is_in_the_file_and_only_kept_with_the_atoms(memory: Memory, path: Path) -> None:
    def counting(window: Any) -> list[Atom]:
        window.state["count"] = window.state.get("count", 0) + len(new(window))
        if window.state["count"] == 4:
            raise RuntimeError("once more")
        return []

    agent = memory.agent("r", atom_extractor=Recording(counting), extract_every=2)
    run(agent, 1, 4)
    with Memory(path, embedder=None) as other:
        run(other.agent("r", atom_extractor=Recording(counting)), 5, 5)
    state = memory.db.execute("select value from setting where key = 'extractor_state'").fetchone()[0]
    assert json.loads(state) == {"count": 5}


# --- several at once ----------------------------------------------------------------------------------------------


def test_a_result_is_dropped_when_somebody_else_was_faster(memory: Memory, path: Path) -> None:
    with Memory(path, embedder=None) as other:
        faster = other.agent("r", atom_extractor=Recording(), extract_every=1)

        def overtaken(window: Any) -> list[Atom]:
            faster.extract_atoms(1)
            return [Atom(turn=1, type="late", content="late")]

        slow = memory.agent("r", atom_extractor=Recording(overtaken))
        slow.record_turn(TurnRecord(1))
        assert slow.extract_atoms(1) == []
    assert [atom.type for atom in slow.atoms()] == ["seen"]


def test_a_result_is_dropped_when_its_turns_were_deleted_or_changed_meanwhile(memory: Memory) -> None:
    def edited(window: Any) -> list[Atom]:
        if window[0].reward == 1.0:
            memory.db.execute("update turn set reward = 99 where turn = 1")
            memory.db.conn.commit()
        return [Atom(turn=1, type="seen", content=f"reward {window[0].reward:g}")]

    agent = memory.agent("r", atom_extractor=Recording(edited), extract_every=2)
    found = run(agent, 1, 3)
    assert list(found) == [3]
    assert [atom.content for atom in agent.atoms()] == ["reward 99"]


def test_an_atom_goes_with_its_turn(memory: Memory) -> None:
    agent = memory.agent("r", atom_extractor=Recording(), extract_every=1)
    run(agent, 1, 3)
    memory.db.execute("delete from turn where turn = 2")
    memory.db.conn.commit()
    assert [atom.turn for atom in agent.atoms()] == [1, 3]
    run(agent, 4, 4)
    assert [atom.turn for atom in agent.atoms()] == [1, 3, 4]


# --- work that nobody's turn drives -------------------------------------------------------------------------------


def test_work_extracts_what_was_only_recorded_with_the_rules_of_the_open_agent(memory: Memory) -> None:
    agent = memory.agent("r", atom_extractor=Recording())
    agent.record_turns([TurnRecord(number) for number in range(1, 13)])
    assert memory.work() == 1
    assert [atom.type for atom in agent.atoms()] == ["seen"] * 12


def test_work_waits_for_the_rules_of_a_run_that_has_its_own(memory: Memory, path: Path) -> None:
    agent = memory.agent("own", atom_extractor=Recording())
    agent.record_turns([TurnRecord(number) for number in range(1, 13)])
    memory.agent("plain").record_turns([TurnRecord(number, events=["storm"]) for number in range(1, 13)])
    with Memory(path, embedder=None) as other:
        assert other.work() == 1
    assert agent.atoms() == []
    assert memory.agent("plain").atoms() != []


def test_work_tries_a_failed_window_by_the_clock_or_at_once_when_forced(memory: Memory, clock: FixedClock) -> None:
    extractor = Failing(3)
    agent = memory.agent("r", atom_extractor=extractor, extract_every=1)
    agent.record_turn(TurnRecord(1))
    agent.extract_atoms(1)
    assert (memory.work(), len(extractor.windows)) == (0, 1)
    clock.advance(31)
    assert (memory.work(), len(extractor.windows)) == (0, 2)
    assert (memory.work(force=True), len(extractor.windows)) == (0, 3)
    assert memory.work(limit=0, force=True) == 0
    assert memory.work(limit=1, force=True) == 1
    assert len(agent.atoms()) == 1


# --- killed anywhere ----------------------------------------------------------------------------------------------

KILLED = """
    import os, sys
    from istar_lite import Atom, Memory, TurnRecord, atoms, tasks

    class Rules:
        def extract(self, window, existing):
            if where == "extracting" and window[-1].turn >= 6: os._exit(9)
            return [Atom(turn=t.turn, type="seen", content=f"turn {t.turn}") for t in window[window.context:]]

    path, where = sys.argv[1:]
    memory = Memory(path, embedder=None)
    agent = memory.agent("r", atom_extractor=Rules(), extract_every=3, max_atoms=100)
    record_done = tasks.record_done
    def killed(tx, purpose, **range):
        if where == "before the mark" and range["last"] >= 6: os._exit(9)
        record_done(tx, purpose, **range)
        if where == "before the atoms" and range["last"] >= 6: os._exit(9)
    tasks.record_done = killed
    as_kept = atoms._as_kept
    def last(tx, session, new):
        if where == "before the commit" and max(a.turn for a in new) >= 6: os._exit(9)
        return as_kept(tx, session, new)
    atoms._as_kept = last
    newest = memory.db.execute("select coalesce(max(turn), 0) from turn").fetchone()[0]
    for number in range(newest + 1, 13):
        agent.record_turn(TurnRecord(number))
        if where == "after recording" and number == 6: os._exit(9)
        agent.extract_atoms(number)
        if where == "after extracting" and number == 6: os._exit(9)
    agent.extract_atoms(100)
    memory.close()
"""


@pytest.mark.parametrize(
    "where",
    ["extracting", "before the mark", "before the atoms", "before the commit", "after recording", "after extracting"],
)
def test_killed_anywhere_the_next_process_skips_and_repeats_nothing(path: Path, where: str) -> None:
    script = [sys.executable, "-c", textwrap.dedent(KILLED), str(path)]
    assert subprocess.run([*script, where], check=False).returncode == 9
    assert subprocess.run([*script, "nowhere"], check=False).returncode == 0
    with Memory(path, embedder=None) as memory:
        assert [atom.turn for atom in memory.agent("r").atoms()] == list(range(1, 13))
        done = memory.db.execute("select first, last from task where state = 'done' order by first").fetchall()
        covered = [turn for first, last in done for turn in range(first, last + 1)]
        assert covered == list(range(1, 13))
        assert memory.status().by_purpose == {}
    assert os.listdir(path.parent) == ["agent.db"]


def test_the_async_twin_extracts_too(memory: Memory) -> None:
    agent = memory.agent("r", atom_extractor=Recording(), extract_every=1)

    async def go() -> list[Atom]:
        await agent.arecord_turn(TurnRecord(1))
        return await agent.aextract_atoms(1)

    assert [atom.turn for atom in asyncio.run(go())] == [1]
