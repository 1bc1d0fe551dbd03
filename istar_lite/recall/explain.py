"""Why a hit is where it is, and why a row is not there."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from istar_lite.recall.query import Date, Query
from istar_lite.recall.signals import Ranking, score_of

if TYPE_CHECKING:
    from istar_lite.database import sqlite3


def explain(ranking: Ranking, query: Query, by: Mapping[str, str], place: int) -> dict[str, Any]:
    """The parts of a score: (Σ signals + Σ shares) × Π factors = raw, and raw / (raw + half) = score, exactly. `by`:
    who compared, by signal."""
    raw = float(ranking.raw[place])
    return {
        "signals": {
            name: {
                "value": _number(signal.value[place]),
                "z": float(signal.out[place]),
                "weight": signal.weight,
                "part": float(signal.weight * signal.out[place]),
                "by": by[name],
            }
            for name, signal in ranking.signals.items()
        },
        "shares": {name: float(values[place]) for name, values in ranking.shares.items()},
        "factors": {
            name: {"factor": float(values[place]), "why": _reason(name, query)}
            for name, values in ranking.factors.items()
            if values[place] != 1.0
        },
        "raw": raw,
        "score": float(score_of(raw)),
    }


def _number(value: float) -> float | None:
    return None if np.isnan(value) else float(value)


def _reason(name: str, query: Query) -> str:
    if name == "speaker":
        return f"spoken by, or about, {', '.join(sorted(query.named))}, whom alone the query names"
    if name == "date":
        return "dated near " + ", ".join(_date_text(date) for date in query.dates)
    return {
        "question": "it asks, so it hardly tells",
        "names": "it holds proper names or titles",
        "time": "the query asks when, and it says when",
        "prior": "what the caller knows of it beforehand, such as importance and age",
    }.get(name, name)


def _date_text(date: Date) -> str:
    month = f"-{date.month:02}" if date.month else ""
    day = f"-{date.day:02}" if date.day else ""
    return f"{date.year or '????'}{month}{day}"


Check = tuple[str, Callable[[Mapping[str, Any]], bool]]


def missing_from(
    connection: sqlite3.Connection, checks: list[Check], after: Callable[[int], str], kind: str, id: int
) -> str:
    """At which step a row was lost, in one sentence: `checks` in their order, then what came `after` them."""
    row = connection.execute("select * from document where kind = ? and row = ?", (kind, id)).fetchone()
    if row is None:
        return f"there is no {kind} {id} that search could see"
    document = dict(row)
    for sentence, passes in checks:
        if not passes(document):
            return f"{kind} {id} was left out: {sentence}"
    return after(int(document["id"]))
