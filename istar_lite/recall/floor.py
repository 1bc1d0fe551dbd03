"""When nothing is relevant: a floor under what goes into a prompt.

It rests on what does not depend on how many documents there are: the share of the query's words, weighted by rarity,
that a document holds, and the cosines. A document passes if one of them is high, or both together are.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import numpy as np

from istar_lite.recall.query import Query
from istar_lite.recall.scope import Flags, Floats, Ints

COVERAGE: Final = 0.55  # of the query's words by rarity
# Cosines of unrelated texts end about here; from `ENOUGH` documents on, the scope's own are taken.
COSINE: Final[Mapping[str, float]] = {"static": 0.55, "neural": 0.40}
ENOUGH: Final = 200
SPREADS: Final = 3.5  # the scope's own floor lies so many standard deviations above its mean cosine


def cosine_floor(kind: str, cosines: Floats, candidates: Flags) -> float:
    """From what cosine on a document counts as related."""
    inside = cosines[candidates]
    inside = inside[~np.isnan(inside)]
    if len(inside) < ENOUGH:
        return COSINE[kind]
    return float(inside.mean() + SPREADS * inside.std())


def relevance(query: Query, coverage: Floats, cosines: Mapping[str, Floats], candidates: Flags, places: Ints) -> Floats:
    """For documents at these places: 1 and more is relevant. 0 for a query that asks nothing."""
    if query.small_talk or not query.terms:
        return np.zeros(len(places))
    result = coverage[places] / COVERAGE
    for kind, values in cosines.items():
        own = np.nan_to_num(values[places], nan=0.0) / max(cosine_floor(kind, values, candidates), 1e-9)
        # Two halves make a whole: neither signal alone is sure.
        result = np.maximum(np.maximum(result, own), (coverage[places] / COVERAGE + own) / 1.5)
    return result
