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
from dataclasses import dataclass
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


@dataclass(frozen=True, slots=True)
class Moments:
    """Mean and variance of a signal over so many documents."""

    count: int
    mean: float
    variance: float


def moments(values: Floats, candidates: Flags) -> Moments:
    """Of the candidates' values; NaN (no such signal for the document) does not count."""
    inside = values if candidates.all() else values[candidates]
    missing = np.isnan(inside)
    if missing.any():
        inside = inside[~missing]
    if not len(inside):
        return Moments(0, 0.0, 0.0)
    mean = float(inside.mean(dtype=np.float64))
    return Moments(len(inside), mean, float(np.square(inside - mean).mean(dtype=np.float64)))


def standing_out(values: Floats, among: Moments, kind: str) -> Floats:
    """How many standard deviations each value lies above the mean `among` all, 0 below it.

    Mean and spread are shrunk towards `BACKGROUND` typical documents, so that one document, two, or a million give
    comparable values and never 0/0. NaN counts as 0.
    """
    typical, spread = TYPICAL[kind]
    total = among.count + BACKGROUND
    mean = (among.count * among.mean + BACKGROUND * typical) / total
    squares = among.count * (among.variance + (among.mean - mean) ** 2)
    variance = (squares + BACKGROUND * (spread**2 + (typical - mean) ** 2)) / total
    out = np.subtract(values, mean, dtype=np.float32)
    out *= 1.0 / math.sqrt(variance)
    return np.fmax(out, np.float32(0.0), out=out)  # of a number and NaN, fmax takes the number


def smoothed(values: Floats, scope: Scope, weight: float) -> Floats:
    """The mean of each value and, with this weight each, its neighbours' in the session."""
    before, after = scope.links()
    missing = np.isnan(values)
    if not missing.any():
        total = at(values, before)
        total += at(values, after)
        total *= weight
        total += values
        total /= 1.0 + weight * ((before >= 0).astype(np.float32) + (after >= 0))
        return total
    sums = np.where(missing, np.float32(0), values)
    parts = (~missing).astype(np.float32)
    total = sums + weight * (at(sums, before) + at(sums, after))
    counted = parts + weight * (at(parts, before) + at(parts, after))
    return np.where(missing, np.nan, total / np.maximum(counted, np.float32(1e-9)))


# --- shares ---------------------------------------------------------------------------------------------------


def at(values: Floats, link: Ints) -> Floats:
    """The value at each link, 0 where there is none: a link of -1 takes the 0 that is put last."""
    padded = np.empty(len(values) + 1, values.dtype)
    padded[:-1] = values
    padded[-1] = 0
    found: Floats = padded[link]
    return found


def shares(base: Floats, scope: Scope, weights: Weights = WEIGHTS) -> dict[str, Floats]:
    """What others in the session add to each document, except for `answers`, which needs the text before it."""
    before, after = scope.links()
    groups = scope.groups()
    best = np.zeros(int(groups.max(initial=-1)) + 1, base.dtype)
    np.maximum.at(best, groups, base)
    return {
        "before": weights.before * at(base, before),
        "after": weights.after * at(base, after),
        "second_after": weights.second_after * at(base, scope.second_after()),
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
    match: Floats = np.zeros(len(scope))
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
    """One signal over the pool: as measured, as it stands out, and with what weight."""

    value: Floats
    out: Floats
    weight: float


@dataclass(frozen=True)
class Ranking:
    """What was computed of those that stand a chance. `pool`: their places in the scope, ascending; all other arrays
    are over the pool. `asked`: what `answers` adds where the document before it is a question."""

    pool: Ints
    signals: dict[str, Signal]
    base: Floats
    shares: dict[str, Floats]
    factors: dict[str, Floats]
    asked: Floats
    raw: Floats


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
    among: Mapping[str, Moments] | None = None,
) -> Ranking:
    """Everything that needs no text; then the `size` best, judged as if each answered a question, are the pool.
    `among`: mean and spread of each signal, where the scope stands for a larger one; else they are the candidates'.

    Over the whole scope it goes in float32; what is then known of the pool is added up anew in float64, so that an
    explanation adds up to the last digit.
    """
    table = signal_weights(list(evidence), weights)
    outs: dict[str, Floats] = {}
    base = np.zeros(len(scope), np.float32)
    everything = bool(candidates.all())
    for kind, values in evidence.items():
        measured = smoothed(values, scope, weights.smooth) if kind == "static" else values
        out = standing_out(measured, moments(measured, candidates) if among is None else among[kind], kind)
        outs[kind] = out if everything else np.where(candidates, out, np.float32(0))
        base += np.float32(table[kind]) * outs[kind]
    added = shares(base, scope, weights)
    factors = {
        name: factor
        for name, factor in (
            ("speaker", speaker_factor(query, scope, mentions, weights)),
            ("date", date_factor(query, scope, weights)),
        )
        if factor is not None
    }
    asked = weights.answers * at(base, scope.links()[0])
    hopeful = base + asked
    for share in added.values():
        hopeful += share
    for factor in factors.values():
        hopeful *= factor.astype(np.float32)
    pool = largest(hopeful, np.flatnonzero(candidates), size)
    return _summed(
        pool,
        {kind: Signal(_exact(evidence[kind], pool), _exact(out, pool), table[kind]) for kind, out in outs.items()},
        {name: _exact(share, pool) for name, share in added.items()},
        {name: _exact(factor, pool) for name, factor in factors.items()},
        _exact(asked, pool),
    )


def _exact(values: Floats, pool: Ints) -> Floats:
    return values[pool].astype(np.float64)


def largest(values: Floats, among: Ints, size: int) -> Ints:
    """The places of the `size` largest values among some places, ascending. A bound guessed from every 16th of many
    leaves little to sort."""
    if len(among) <= size:
        return among
    chosen = values if len(among) == len(values) else values[among]
    sample = chosen[::16]
    if len(sample) > 4 * size:
        rank = len(sample) - size // 8 - 8  # twice the share of those wanted, and some
        bound = np.partition(sample, rank)[rank]
        near = np.flatnonzero(chosen >= bound)
        if len(near) >= size:
            among, chosen = among[near], chosen[near]
    return np.sort(among[np.argpartition(-chosen, size - 1)[:size]])


def _summed(
    pool: Ints,
    signals: dict[str, Signal],
    added: dict[str, Floats],
    factors: dict[str, Floats],
    asked: Floats,
) -> Ranking:
    base = np.zeros(len(pool))
    for signal in signals.values():
        base = base + signal.weight * signal.out
    raw = base + sum(added.values())
    for factor in factors.values():
        raw = raw * factor
    return Ranking(pool, signals, base, added, factors, asked, raw)


def second_round(scope: Scope, query: Query, ranking: Ranking, prior: Floats, weights: Weights = WEIGHTS) -> Ranking:
    """The pool with what its texts say (`scope.marks` must be known for it and for those before it)."""
    pool = ranking.pool
    before = scope.links()[0][pool]
    asks = np.where(before >= 0, scope.marks[before] & QUESTION, 0) > 0
    added = {**ranking.shares, "answers": np.where(asks, ranking.asked, 0.0)}
    factors = {**ranking.factors, **text_factors(query, scope.marks[pool], weights), "prior": prior}
    return _summed(pool, ranking.signals, added, factors, ranking.asked)
