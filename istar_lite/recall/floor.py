"""When nothing is relevant: a floor under what goes into a prompt.

It rests on what does not depend on how many documents there are: the share of the query's words, weighted by rarity,
that a document holds (words that no document holds count in full), and the cosines, measured against what unrelated
texts have. If no document reaches 1, the query gets nothing; if one does, those that reach half of it come along, since
turns beside an answer hold few of the question's words.

On five conversations asked by their own questions and by those of the others (which speak of the same everyday things):
5 % of the own stay without an answer, 30 % of the foreign are let through, and of prompts on other matters hardly any.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final

import numpy as np

from istar_lite.recall.loading import vectors_of
from istar_lite.recall.query import Query
from istar_lite.recall.scope import Floats, Ints, Scope

if TYPE_CHECKING:
    from istar_lite.database import sqlite3
    from istar_lite.embedding import Model

COVERAGE: Final = 0.5  # of the query's words by rarity, where there are cosines beside it
COVERAGE_ALONE: Final = 0.27
# Cosines that unrelated texts hardly reach; from `ENOUGH` vectors on, the scope's own are measured.
COSINE: Final[Mapping[str, float]] = {"static": 0.5, "neural": 0.55}
ENOUGH: Final = 200
SPREADS: Final = 2.75  # standard deviations above the mean cosine of two texts of the scope
SAMPLE: Final = 200
COMPANY: Final = 0.5


def cosine_floor(connection: sqlite3.Connection, kind: str, scope: Scope, model: Model) -> float:
    """From what cosine on two texts are related. Counted anew when the scope has grown by a quarter."""
    if len(scope) < ENOUGH:
        return COSINE[kind]
    step = 1.25 ** int(np.log(len(scope)) / np.log(1.25))
    known = scope.floors.get(model.id)
    if known is None or known[0] != step:
        chosen = scope.ids[np.linspace(0, len(scope) - 1, SAMPLE).astype(int)]
        known = (step, _measured(vectors_of(connection, model, chosen), COSINE[kind]))
        scope.floors[model.id] = known
    return known[1]


def _measured(vectors: Sequence[tuple[int, bytes]], otherwise: float) -> float:
    usable = [blob for _, blob in vectors if blob]
    if len(usable) < SAMPLE // 2:
        return otherwise
    rows = np.frombuffer(b"".join(usable), np.int8).reshape(len(usable), -1).astype(np.float32)
    unit = rows / np.linalg.norm(rows, axis=1, keepdims=True)
    cosines = (unit @ unit.T)[np.triu_indices(len(unit), 1)]
    return float(cosines.mean() + SPREADS * cosines.std())


def relevance(query: Query, coverage: Floats, cosines: Mapping[str, Floats], floors: Mapping[str, float]) -> Floats:
    """Per document: 1 and more is relevant by itself. 0 for a query that asks nothing."""
    if query.small_talk or not query.terms:
        return np.zeros(len(coverage))
    if not cosines:
        return coverage / COVERAGE_ALONE
    likeness = [np.nan_to_num(values) / max(floors[kind], 1e-9) for kind, values in cosines.items()]
    return np.asarray(coverage / COVERAGE + np.mean(likeness, axis=0))


def passes(relevance: Floats, shown: Ints) -> np.ndarray[tuple[int, ...], np.dtype[np.bool_]]:
    """Which of the shown documents pass: none, unless one of them is relevant by itself."""
    mine = relevance[shown]
    return (mine >= COMPANY) & bool((mine >= 1.0).any())
