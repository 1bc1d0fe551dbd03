"""Ranking as pure functions of arrays: no database."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from istar_lite.recall import signals, vectors, words
from istar_lite.recall.query import Date, Query, Term, read_query
from istar_lite.recall.scope import QUESTION, Scope, Vectors


def a_scope(count: int, *, sessions: list[int] | None = None, speakers: list[str] | None = None) -> Scope:
    """Messages one after the other, a day apart."""
    whole = np.arange(count)
    names = sorted(set(speakers or []))
    return Scope(
        ids=whole + 1,
        kind=np.zeros(count, np.int64),
        session=np.asarray(sessions or [1] * count, np.int64),
        position=whole + 1,
        speaker=np.asarray([names.index(name) for name in speakers] if speakers else [-1] * count, np.int64),
        day=2460000.5 + whole,
        length=np.full(count, 100.0),
        status=np.zeros(count, np.int64),
        stale=np.zeros(count, bool),
        ended=np.full(count, np.inf),
        expires=np.full(count, np.inf),
        kinds=["message"],
        speakers=names,
        marks=np.ones(count, np.uint8),
    )


def rank(scope: Scope, query: Query, **evidence: list[float]) -> signals.Ranking:
    """The raw values of a whole scope."""
    everything = np.ones(len(scope), bool)
    values = {kind: np.asarray(given, float) for kind, given in evidence.items()}
    first = signals.first_round(scope, query, values, everything, ~everything, len(scope))
    return signals.second_round(scope, query, first, np.ones(len(scope)))


NOTHING = read_query("thing")


def test_one_document_two_or_a_thousand_give_comparable_values() -> None:
    def out(count: int) -> float:
        values = np.zeros(count)
        values[0] = 4.0
        return float(signals.standing_out(values, signals.moments(values, np.ones(count, bool)), "words")[0])

    assert 3 < out(1) < out(2) < out(1000) < 60


def test_equal_values_do_not_divide_by_zero_and_nan_counts_as_nothing() -> None:
    values = np.asarray([0.1, 0.1, np.nan])
    out = signals.standing_out(values, signals.moments(values, np.ones(3, bool)), "static")
    assert np.isfinite(out).all() and out[2] == 0


@given(st.lists(st.floats(0, 50), min_size=1, max_size=40), st.lists(st.floats(-1, 1), min_size=1, max_size=40))
def test_scores_lie_from_0_to_below_1_and_follow_the_raw_values(found: list[float], cosines: list[float]) -> None:
    count = min(len(found), len(cosines))
    ranking = rank(a_scope(count), NOTHING, words=found[:count], static=cosines[:count])
    scores = np.asarray(signals.score_of(ranking.raw))
    assert ((scores >= 0) & (scores < 1)).all()
    assert (np.diff(scores[np.argsort(ranking.raw)]) >= 0).all()


def test_the_answer_to_a_question_rises_above_other_neighbours() -> None:
    scope = a_scope(5)
    scope.marks[1] |= QUESTION
    ranking = rank(scope, NOTHING, words=[0, 9, 0, 0, 0])
    after_question, before_question = ranking.raw[2], ranking.raw[0]
    assert after_question > before_question > ranking.raw[4]


def test_neighbours_and_the_sessions_best_stay_in_the_session() -> None:
    ranking = rank(a_scope(4, sessions=[1, 1, 2, 2]), NOTHING, words=[0, 9, 0, 0])
    assert ranking.raw[0] > 0 and ranking.raw[2] == 0 and ranking.raw[3] == 0


def test_a_document_of_no_session_is_a_session_of_its_own() -> None:
    ranking = rank(a_scope(2, sessions=[0, 0]), NOTHING, words=[9, 0])
    assert ranking.raw[1] == 0
    assert ranking.raw[0] == pytest.approx(ranking.base[0] * 1.4)


def test_the_only_participant_named_speaks_first() -> None:
    scope = a_scope(2, sessions=[1, 2], speakers=["Ann", "Bob"])
    query = read_query("What did Bob paint?", ["Ann", "Bob"])
    assert np.argmax(rank(scope, query, words=[5, 5]).raw) == 1
    both = read_query("What did Ann and Bob paint?", ["Ann", "Bob"])
    raw = rank(scope, both, words=[5, 5]).raw
    assert raw[0] == raw[1]


@pytest.mark.parametrize(
    ("named", "best"), [(Date(2023, 3, 1), 4), (Date(None, 3, 1), 4), (Date(2023, 2, 26), 1), (Date(2022, 3, 1), None)]
)
def test_dates_near_the_one_that_is_named_match(named: Date, best: int | None) -> None:
    day = 2460000.5 + np.arange(10)  # from 2023-02-25
    match = signals.date_match(named, day)
    assert ((match >= 0) & (match <= 1)).all()
    if best is None:
        assert match.max() < 0.01
    else:
        assert int(np.argmax(match)) == best and match[best] == 1.0


def test_months_and_years_match_less_than_days() -> None:
    day = np.asarray([2460000.5, 2460010.5])  # 2023-02-25, 2023-03-07
    assert signals.date_match(Date(2023, 2), day).tolist() == [0.5, 0.0]
    assert signals.date_match(Date(2023), day).tolist() == [0.25, 0.25]
    assert signals.date_match(Date(2024), day).tolist() == [0.0, 0.0]


def test_words_are_weighed_by_their_rarity_in_the_scope_alone() -> None:
    scope = a_scope(4)
    found = [words.Found(Term("rare", ""), np.asarray([0])), words.Found(Term("common", ""), np.asarray([1, 2, 3]))]
    weighed = words.weigh(scope, np.ones(4, bool), found)
    assert weighed.score[0] > weighed.score[1] > 0
    assert weighed.coverage[0] > 0.5 > weighed.coverage[1]
    assert weighed.coverage[0] + weighed.coverage[1] == pytest.approx(1)


def test_a_word_that_nobody_has_lowers_coverage() -> None:
    found = [words.Found(Term("known", ""), np.asarray([0])), words.Found(Term("unknown", ""), np.asarray([], int))]
    assert words.weigh(a_scope(2), np.ones(2, bool), found).coverage[0] < 0.5


def test_the_best_passage_speaks_for_a_document() -> None:
    rows = np.asarray([[100, 0], [0, 100], [60, 80], [0, 100]], np.int8)
    held = Vectors(rows, np.full(4, 100, np.float32), np.asarray([0, 0, 2, -1]))
    cosines = vectors.by_matrix(held, np.asarray([0.0, 1.0]), 3)
    assert cosines[0] == pytest.approx(1) and np.isnan(cosines[1]) and cosines[2] == pytest.approx(0.8)


def test_every_weight_is_used() -> None:
    """A weight that changes nothing would be a lie in the table."""
    scope = a_scope(6, sessions=[1] * 6, speakers=["Ann", "Bob"] * 3)
    scope.marks[:] = [1, 1 | QUESTION, 1 | 4 | 8, 1 | 8, 1 | QUESTION, 1 | 4]
    query = read_query("When did Ann paint on 2023-02-26?", ["Ann", "Bob"])
    everything = np.ones(6, bool)
    evidence = {kind: np.asarray([3.0, 0.5, 2, 0.1, 5, 1]) / 6 for kind in ("words", "static", "neural")}

    def raw(weights: signals.Weights, kinds: tuple[str, ...]) -> list[float]:
        chosen = {kind: evidence[kind] for kind in kinds}
        first = signals.first_round(scope, query, chosen, everything, ~everything, 6, weights)
        return list(signals.second_round(scope, query, first, np.ones(6), weights).raw)

    for name, value in vars(signals.WEIGHTS).items():
        other = signals.Weights(**{**vars(signals.WEIGHTS), name: value / 2})
        kinds = ("words", "static") if name == "static" else ("words", "static", "neural")
        assert raw(other, kinds) != raw(signals.WEIGHTS, kinds), name
