"""Cosines between a query and the passages of a scope: by a matrix in memory, by numpy over blobs, by sqlite-vec.

The three give the same order (tested). Search uses the matrix, which is kept up with the file; the other two serve
one-off comparisons of few documents, and scopes too large to be held.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from istar_lite.recall.scope import Floats, Vectors

if TYPE_CHECKING:
    from istar_lite.database import sqlite3
    from istar_lite.embedding import Model

BLOCK = 512  # rows turned into float32 at a time: a block stays in the processor's cache


def by_matrix(vectors: Vectors, query: Floats, count: int) -> Floats:
    """The best cosine of each document's passages, shape (count,); NaN where a document has no vector."""
    cosines = products(vectors.rows, query) / vectors.norms
    owner = vectors.owner
    if len(owner) == count and bool((owner == np.arange(count)).all()):  # one passage each: the usual case
        return cosines.astype(np.float64)
    best = np.full(count, -np.inf)
    living = owner >= 0
    np.maximum.at(best, owner[living], cosines[living])
    best[best == -np.inf] = np.nan
    return best


def products(rows: npt.NDArray[np.int8], query: Floats) -> Floats:
    """Rows times query. `vecdot` and not `@`, whose threads cost ten times the CPU on matrices of this size."""
    sought = np.asarray(query, np.float32)
    result = np.empty(len(rows), np.float32)
    for at in range(0, len(rows), BLOCK):
        result[at : at + BLOCK] = np.vecdot(rows[at : at + BLOCK].astype(np.float32), sought)
    return result


def by_numpy(connection: sqlite3.Connection, model: Model, ids: list[int], query: Floats) -> dict[int, float]:
    """The best cosine of each of these documents, from the blobs."""
    best: dict[int, float] = {}
    for document, blob in connection.execute(
        "select document, vector from embedding where model = ? and length(vector) > 0"
        " and document in (select value from json_each(?))",
        (model.id, json.dumps(ids)),
    ):
        steps = np.frombuffer(blob, np.int8).astype(np.float32)
        cosine = float(steps @ query) / max(float(np.linalg.norm(steps)), 1e-9)
        best[document] = max(best.get(document, -1.0), cosine)
    return best


def by_extension(connection: sqlite3.Connection, model: Model, ids: list[int], query: Floats) -> dict[int, float]:
    """The best cosine of each of these documents, computed by sqlite-vec (which `connection` must have loaded).

    Both sides have to be int8 there: the query is rounded finely, at the scale of its largest component.
    """
    largest = float(np.abs(query).max())
    steps = np.rint(query / max(largest, 1e-9) * 127).astype(np.int8).tobytes()
    rows = connection.execute(
        "select document, 1 - min(vec_distance_cosine(vec_int8(vector), vec_int8(?))) from embedding"
        " where model = ? and length(vector) > 0 and document in (select value from json_each(?)) group by document",
        (steps, model.id, json.dumps(ids)),
    )
    return {int(document): float(cosine) for document, cosine in rows}
