"""Ready-made extractors: what they find, and that it does not matter where windows are cut."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from istar_lite import Atom, AtomExtractor, BadInput, EpisodeClassifier, Memory, RetroClassifier, TurnRecord
from istar_lite.atoms import Window
from istar_lite.extractors import (
    FirstAppearance,
    NewExtreme,
    RewardOutcome,
    RewardPhases,
    Several,
    SignChange,
    Streak,
    ThresholdCrossing,
    default_extractor,
    number_of,
)


def turns_of(rewards: Sequence[float | None], **more: Any) -> list[TurnRecord]:
    return [TurnRecord(turn=at, reward=reward, reward_unit="EUR", **more) for at, reward in enumerate(rewards, 1)]


def found(extractor: AtomExtractor, turns: Sequence[TurnRecord], cuts: Sequence[int] = ()) -> list[Atom]:
    """What an extractor finds when the turns come in windows that are cut there; state goes through JSON as in the
    file, and the last turn of a window is shown again."""
    state: dict[str, Any] = {}
    atoms: list[Atom] = []
    edges = [0, *sorted(cut for cut in set(cuts) if 0 < cut < len(turns)), len(turns)]
    for start, end in itertools.pairwise(edges):
        context = min(start, 1)
        window = Window(turns[start - context : end], context=context, state=json.loads(json.dumps(state)))
        atoms += extractor.extract(window, atoms)
        state = window.state
    return atoms


def told(extractor: AtomExtractor, rewards: Sequence[float | None]) -> list[tuple[int, str]]:
    return [(atom.turn, atom.type) for atom in found(extractor, turns_of(rewards))]


def test_a_threshold_is_crossed_up_and_down() -> None:
    rewards = [90, 100, 101, 120, 100, 99, 130]
    both = [(3, "reward_crossed_up_100"), (5, "reward_crossed_down_100"), (7, "reward_crossed_up_100")]
    assert told(ThresholdCrossing("reward", 100), rewards) == both
    assert told(ThresholdCrossing("reward", 100, direction="down"), rewards) == both[1:2]
    assert (
        found(ThresholdCrossing("reward", 100), turns_of(rewards))[0].content == "T3: reward rose above 100 (101 EUR)"
    )


def test_two_thresholds_of_a_field_do_not_disturb_each_other() -> None:
    both = Several(ThresholdCrossing("reward", 10), ThresholdCrossing("reward", 20))
    assert told(both, [5, 15, 25, 5]) == [
        (2, "reward_crossed_up_10"),
        (3, "reward_crossed_up_20"),
        (4, "reward_crossed_down_10"),
        (4, "reward_crossed_down_20"),
    ]


def test_a_sign_changes_once_and_zeros_keep_it() -> None:
    rewards = [0, 5, 0, -1, -2, 0, -3, 4]
    assert told(SignChange(), rewards) == [(4, "reward_turned_negative"), (8, "reward_turned_positive")]


def test_a_new_extreme_is_told_when_the_field_turns_back_from_it() -> None:
    rewards = [1, 2, 1, 3, 9, 12, 11, 10, -4, -6, 0, 20]
    atoms = found(NewExtreme(warmup=3), turns_of(rewards))
    assert [(atom.turn, atom.type) for atom in atoms] == [(6, "reward_new_high"), (10, "reward_new_low")]
    assert atoms[0].content == "T6: reward 12 EUR is the highest of the run (before: 2 EUR)"
    assert atoms[1].content == "T10: reward -6 EUR is the lowest of the run (before: 1 EUR)"


def test_a_streak_is_told_at_its_length_and_each_time_it_doubled() -> None:
    rising = told(Streak(length=3), list(range(20)))
    assert rising == [(4, "reward_rising"), (7, "reward_rising"), (13, "reward_rising")]
    assert told(Streak(length=2), [5, 4, 3, 3, 2, 1]) == [(3, "reward_falling"), (6, "reward_falling")]
    atoms = found(Streak(length=2), turns_of([5, 4, 3]))
    assert atoms[0].content == "T3: reward falling since T1 (2 times running), now 3 EUR"


def test_rules_of_one_kind_with_other_settings_do_not_disturb_each_other() -> None:
    rewards = [1, 2, 3, 4, 5, 4]
    both = Several(Streak(length=2), Streak(length=4), NewExtreme(warmup=1), NewExtreme(warmup=9))
    alone = [*told(Streak(length=2), rewards), *told(Streak(length=4), rewards), *told(NewExtreme(warmup=1), rewards)]
    assert sorted(told(both, rewards)) == sorted(alone)


def test_a_first_appearance_is_told_once_for_each_kind() -> None:
    turns = [
        TurnRecord(1, events=["storm"], actions_taken=["sold 3 at 45.5"]),
        TurnRecord(2, events=["Storm", {"event": "outage", "mw": 5}], actions_taken=["sold 8 at 50"]),
        TurnRecord(3, events=[{"event": "outage", "mw": 9}, {"mw": 1}], actions_taken={"bid": 7}),
    ]
    atoms = found(FirstAppearance(), turns)
    assert [atom.content for atom in atoms] == [
        "T1: first event of its kind: storm",
        "T1: first action of its kind: sold 3 at 45.5",
        "T2: first event of its kind: event=outage mw=5",
        "T3: first event of its kind: mw=1",
        "T3: first action of its kind: bid=7",
    ]
    assert len({atom.id for atom in atoms}) == 5
    assert [atom.type for atom in found(FirstAppearance("actions_taken"), turns)] == ["first_action"] * 2


def test_what_first_appearances_remember_holds_no_text() -> None:
    window = Window([TurnRecord(1, events=["a secret word"])])
    FirstAppearance().extract(window, [])
    assert "secret" not in json.dumps(window.state)


@pytest.mark.parametrize(
    ("field", "value"), [("reward", 2.0), ("price", 105.0), ("market.price", 7.0), ("a.b", 1.0), ("none", None)]
)
def test_a_field_is_the_reward_or_a_path_into_extra(field: str, value: float | None) -> None:
    extra = {"price": 105, "market": {"price": 7}, "a.b": 1, "none": "text", "flag": True}
    assert number_of(TurnRecord(1, 2, extra=extra), field) == value


@pytest.mark.parametrize(
    "wrong",
    [
        lambda: ThresholdCrossing("reward", float("nan")),
        lambda: ThresholdCrossing("", 1),
        lambda: ThresholdCrossing("reward", 1, direction="sideways"),  # type: ignore[arg-type]
        lambda: SignChange(priority=101),
        lambda: NewExtreme(warmup=0),
        lambda: Streak(length=1),
        lambda: FirstAppearance("rewards"),  # type: ignore[arg-type]
    ],
)
def test_wrong_settings_are_refused(wrong: Callable[[], object]) -> None:
    with pytest.raises(BadInput):
        wrong()


def everything() -> AtomExtractor:
    return Several(
        ThresholdCrossing("reward", 2), SignChange(), NewExtreme(warmup=2), Streak(length=2), FirstAppearance()
    )


@given(
    rewards=st.lists(st.one_of(st.none(), st.integers(-5, 5)), max_size=40),
    events=st.lists(st.lists(st.sampled_from(["storm", "calm", {"event": "outage"}]), max_size=2), max_size=40),
    cuts=st.lists(st.integers(1, 39), max_size=8),
)
def test_windows_may_be_cut_anywhere(rewards: list[int | None], events: list[list[Any]], cuts: list[int]) -> None:
    padded = [*events, *([[]] * len(rewards))]
    turns = [TurnRecord(at, reward, "EUR", padded[at]) for at, reward in enumerate(rewards)]
    whole, pieces = found(everything(), turns), found(everything(), turns, cuts)
    key = lambda atom: (atom.turn, atom.type, atom.content)  # noqa: E731
    assert sorted(map(key, pieces)) == sorted(map(key, whole))


def test_a_run_without_rules_gets_the_ready_made_ones(memory: Memory) -> None:
    agent = memory.agent("r")
    for number in range(1, 21):
        agent.tick(TurnRecord(number, 5.0 - number, "EUR", ["storm"] if number == 3 else []))
    types = {atom.type for atom in agent.atoms()}
    assert types == {"reward_turned_negative", "reward_falling", "first_event"}
    assert isinstance(default_extractor(), AtomExtractor)


def test_the_ready_made_classifiers_tell_the_rewards() -> None:
    turns = turns_of([1.0, 2.0, 3.0, 4.0])
    context = RewardPhases().build_context(turns, 0)
    assert tuple(context.phase_names) == ("OPENING", "GROWTH", "PLATEAU", "DECLINE", "RECOVERY")
    for part in ("4 turns (T1 to T4)", "total 10 EUR", "mean 2.5", "lowest 1", "highest 4"):
        assert part in context.context_summary
    outcome = RewardOutcome().build_context(turns, [])
    assert "total 10 EUR" in outcome.outcome_summary
    assert outcome.outcome_metric_name == "total reward (EUR)"
    assert "none with a reward" in RewardPhases().build_context(turns_of([None]), 0).context_summary
    assert isinstance(RewardPhases(), EpisodeClassifier)
    assert isinstance(RewardOutcome(), RetroClassifier)
