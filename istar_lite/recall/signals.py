"""How recall ranks: every signal, share and factor, each a small function, with its weight in one table.

    base   = Σ over the signals: weight × standing out          (words, static vectors, neural vectors)
    shares = what neighbours in the session and its best document add
    raw    = (base + shares) × the factors × the prior;    score = raw / (raw + HALF)

Everything is counted over the candidates of a scope, by pure functions of arrays: no database. The weights are few and
round; each earns its place in the ablation that `istar_lite.bench.recall.ablation` measures. Tried and left out since
they moved Recall@10 by less than .003 or not for all conversations: rarities learnt from the own texts, removing the
mean or the main directions of the vectors, vectors of sentences, second rounds (RM3, Rocchio, vectors of the first
hits), irregular verbs, coverage of the query as a factor, length, pronouns, numbers for "how many", spreading over
sessions.
"""

from __future__ import annotations

import calendar
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import date
from typing import Final

import numpy as np
import numpy.typing as npt

from istar_lite.recall.query import Date, Query
from istar_lite.recall.scope import NAMES, QUESTION, TIME, Flags, Floats, Ints, Scope

# --- the table ------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Weights:
    """All numbers that ranking has."""

    # signals, by which of them are there
    words: float = 0.4
    static: float = 0.6
    neural: float = 0.5
    static_beside_neural: float = 0.3
    # shares of others' base
    before: float = 0.15  # the document before it in the session
    after: float = 0.15  # the one after it
    second_after: float = 0.1
    answers: float = 0.3  # the one before, if that is a question
    session: float = 0.4  # the session's best
    # the static signal takes in its neighbours before it is compared: single turns are short for it
    smooth: float = 0.3
    # factors
    speaker: float = 2.25  # spoken by, or about, the only participant that the query names
    question: float = 0.9  # it asks, so it hardly tells
    names: float = 1.2  # it holds proper names or titles, so it tells something
    date: float = 3.0  # 1 + this × match: its date is the one in the query
    time: float = 1.4  # the query asks when, and it says when


WEIGHTS: Final = Weights()
BACKGROUND: Final = 50  # typical documents that do not match, thought of beside the scope
# Mean and spread of a signal over such documents: one document in the scope stands out from these.
TYPICAL: Final[Mapping[str, tuple[float, float]]] = {"words": (0.0, 0.5), "static": (0.1, 0.1), "neural": (0.15, 0.12)}
HALF: Final = 10.0  # the raw value that gives a score of one half


def signal_weights(kinds: Sequence[str], weights: Weights = WEIGHTS) -> dict[str, float]:
    """The weight of each signal that is there: "words", "static", "neural"."""
    table = {"words": weights.words, "static": weights.static, "neural": weights.neural}
    if "neural" in kinds:
        table["static"] = weights.static_beside_neural
    return {kind: table[kind] for kind in kinds} if len(kinds) > 1 else dict.fromkeys(kinds, 1.0)


# --- signals --------------------------------------------------------------------------------------------------


def standing_out(values: Floats, candidates: Flags, kind: str) -> Floats:
    """How many standard deviations each value lies above the mean of the candidates, 0 below it.

    Mean and spread are shrunk towards `BACKGROUND` typical documents, so that one document, two, or a million give
    comparable values and never 0/0. NaN (no such signal for the document) counts as 0.
    """
    typical, spread = TYPICAL[kind]
    inside = values[candidates]
    inside = inside[~np.isnan(inside)]
    total = len(inside) + BACKGROUND
    mean = (inside.sum() + BACKGROUND * typical) / total
    variance = (((inside - mean) ** 2).sum() + BACKGROUND * (spread**2 + (typical - mean) ** 2)) / total
    out: Floats = np.fmax((values - mean) / math.sqrt(variance), 0.0)  # of a number and NaN, fmax takes the number
    return out


def smoothed(values: Floats, scope: Scope, weight: float) -> Floats:
    """The mean of each value and, with this weight each, its neighbours' in the session."""
    known = ~np.isnan(values)
    sums = np.where(known, values, 0.0)
    parts = known.astype(np.float64)
    before, after = scope.links()
    total = sums + weight * (at(sums, before) + at(sums, after))
    counted = parts + weight * (at(parts, before) + at(parts, after))
    return np.where(known, total / np.maximum(counted, 1e-9), np.nan)


# --- shares ---------------------------------------------------------------------------------------------------


def at(values: Floats, link: Ints) -> Floats:
    """The value at each link, 0 where there is none: a link of -1 takes the 0 that is put last."""
    found: Floats = np.append(values, 0.0)[link]
    return found


def shares(base: Floats, scope: Scope, weights: Weights = WEIGHTS) -> dict[str, Floats]:
    """What others in the session add to each document, except for `answers`, which needs the text before it."""
    before, after = scope.links()
    groups = scope.groups()
    best = np.zeros(int(groups.max(initial=-1)) + 1)
    np.maximum.at(best, groups, base)
    following = at(base, after)
    return {
        "before": weights.before * at(base, before),
        "after": weights.after * following,
        "second_after": weights.second_after * at(following, after),
        "session": weights.session * best[groups],
    }


# --- factors --------------------------------------------------------------------------------------------------


def speaker_factor(query: Query, scope: Scope, mentions: Flags, weights: Weights = WEIGHTS) -> Floats | None:
    """For documents of the only participant that the query names: spoken by, or speakerless and naming them."""
    if len(query.named) != 1:
        return None
    (name,) = query.named
    if name not in scope.speakers:
        return None
    theirs = (scope.speaker == scope.speakers.index(name)) | ((scope.speaker < 0) & mentions)
    return np.where(theirs, weights.speaker, 1.0)


def date_factor(query: Query, scope: Scope, weights: Weights = WEIGHTS) -> Floats | None:
    """For documents of a date that the query names: a day (falling off within weeks), a month, a year."""
    if not query.dates:
        return None
    match = np.zeros(len(scope))
    for named in query.dates:
        match = np.maximum(match, date_match(named, scope.day))
    return 1.0 + weights.date * match


def date_match(named: Date, day: Floats) -> Floats:
    """How well Julian days fit a date, in [0, 1]. Without a year, the nearest of any year counts."""
    years = [named.year] if named.year else _years(day)
    match = np.zeros(len(day))
    for year in years:
        first, last = _span(year, named)
        if named.day is not None:
            near = np.exp(-np.abs(np.floor(day + 0.5) - first) / 7.0)
        else:
            near = ((day + 0.5 >= first) & (day + 0.5 < last)) * (0.5 if named.month else 0.25)
        match = np.maximum(match, near)
    return match


def _years(day: Floats) -> list[int]:
    if not len(day):
        return []
    ordinals = (int(day.min()) - 1721425, int(day.max()) - 1721424)
    first, last = (date.fromordinal(min(max(ordinal, 1), date.max.toordinal())).year for ordinal in ordinals)
    return list(range(first - 1, last + 2))[:200]


def _span(year: int, named: Date) -> tuple[float, float]:
    """First day and the day after the last, as Julian day numbers of noon; impossible days are held in the month."""
    year = min(max(year, 1), 9998)
    month = named.month or 1
    day = min(named.day or 1, calendar.monthrange(year, month)[1])
    first = date(year, month, day).toordinal()
    if named.day is not None:
        last = first + 1
    elif named.month is not None:
        last = first + calendar.monthrange(year, month)[1]
    else:
        last = date(year + 1, 1, 1).toordinal()
    return first + 1721425.0, last + 1721425.0


def text_factors(query: Query, marks: npt.NDArray[np.uint8], weights: Weights = WEIGHTS) -> dict[str, Floats]:
    """The factors that are read from the text."""
    factors = {
        "question": np.where(marks & QUESTION, weights.question, 1.0),
        "names": np.where(marks & NAMES, weights.names, 1.0),
    }
    if query.asks_time:
        factors["time"] = np.where(marks & TIME, weights.time, 1.0)
    return factors


# --- all of it ------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Signal:
    """One signal over the scope: as measured, as it stands out, and with what weight."""

    value: Floats
    out: Floats
    weight: float


@dataclass(frozen=True)
class Ranking:
    """What was computed for a scope. `pool`: places of those that stand a chance, with all factors; best first in
    `order` after `finish`."""

    signals: dict[str, Signal]
    base: Floats
    shares: dict[str, Floats]
    factors: dict[str, Floats]
    raw: Floats
    pool: Ints = field(default_factory=lambda: np.zeros(0, np.int64))


def score_of(raw: Floats | float) -> Floats | float:
    """Raw values as scores in [0, 1)."""
    return raw / (raw + HALF)


def first_round(
    scope: Scope,
    query: Query,
    evidence: Mapping[str, Floats],
    candidates: Flags,
    mentions: Flags,
    size: int,
    weights: Weights = WEIGHTS,
) -> Ranking:
    """Everything that needs no text; then the `size` best, judged as if each answered a question, are the pool."""
    signals: dict[str, Signal] = {}
    base = np.zeros(len(scope))
    table = signal_weights(list(evidence), weights)
    for kind, values in evidence.items():
        measured = smoothed(values, scope, weights.smooth) if kind == "static" else values
        out = np.where(candidates, standing_out(measured, candidates, kind), 0.0)
        signals[kind] = Signal(values, out, table[kind])
        base += table[kind] * out
    added = shares(base, scope, weights)
    factors = {
        name: factor
        for name, factor in (
            ("speaker", speaker_factor(query, scope, mentions, weights)),
            ("date", date_factor(query, scope, weights)),
        )
        if factor is not None
    }
    raw = base + sum(added.values())
    for factor in factors.values():
        raw = raw * factor
    before, _ = scope.links()
    hopeful = np.where(candidates, raw + weights.answers * at(base, before), -1.0)
    places = np.flatnonzero(candidates)
    if len(places) > size:
        places = np.sort(places[np.argpartition(-hopeful[places], size - 1)[:size]])
    return Ranking(signals, base, added, factors, raw, places)


def second_round(scope: Scope, query: Query, ranking: Ranking, prior: Floats, weights: Weights = WEIGHTS) -> Ranking:
    """The pool with what its texts say (`scope.marks` must be known for it and for those before it)."""
    pool = ranking.pool
    before, _ = scope.links()
    asked = np.where(before[pool] >= 0, scope.marks[before[pool]] & QUESTION, 0) > 0
    answers = np.zeros(len(scope))
    answers[pool] = np.where(asked, weights.answers * at(ranking.base, before)[pool], 0.0)
    added = {**ranking.shares, "answers": answers}
    factors = dict(ranking.factors)
    for name, factor in text_factors(query, scope.marks[pool], weights).items():
        factors[name] = np.ones(len(scope))
        factors[name][pool] = factor
    factors["prior"] = np.ones(len(scope))
    factors["prior"][pool] = prior
    raw = ranking.base + sum(added.values())
    for factor in factors.values():
        raw = raw * factor
    return replace(ranking, shares=added, factors=factors, raw=raw)
