"""Cosines between a query and the passages of a scope: by a matrix in memory, by numpy over blobs, by sqlite-vec.

The three give the same order (tested), since all compare int8 steps, the query's as well: sqlite-vec takes two vectors
of one type, and their products are whole numbers that float32 holds exactly. Search uses the matrix, which is kept up
with the file; the other two serve one-off comparisons of few documents, and scopes too large to be held.
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
    sought = steps(query)
    cosines = products(vectors.rows, sought) / (vectors.norms * np.linalg.norm(sought.astype(np.float32)))
    owner = vectors.owner
    if len(owner) == count and bool((owner == np.arange(count)).all()):  # one passage each: the usual case
        return cosines
    best = np.full(count, -np.inf, np.float32)
    living = owner >= 0
    np.maximum.at(best, owner[living], cosines[living])
    best[best == -np.inf] = np.nan
    return best


def steps(query: Floats) -> npt.NDArray[np.int8]:
    """The query as int8, scaled by its largest component."""
    largest = max(float(np.abs(query).max()), 1e-9)
    rounded: npt.NDArray[np.int8] = np.rint(query / largest * 127).astype(np.int8)
    return rounded


def products(rows: npt.NDArray[np.int8], query: npt.NDArray[np.int8]) -> Floats:
    """Rows times query. `vecdot` and not `@`, whose threads cost ten times the CPU on matrices of this size."""
    sought = query.astype(np.float32)
    result = np.empty(len(rows), np.float32)
    for at in range(0, len(rows), BLOCK):
        result[at : at + BLOCK] = np.vecdot(rows[at : at + BLOCK].astype(np.float32), sought)
    return result


def by_numpy(connection: sqlite3.Connection, model: Model, ids: list[int], query: Floats) -> dict[int, float]:
    """The best cosine of each of these documents, from the blobs."""
    best: dict[int, float] = {}
    sought = steps(query).astype(np.float32)
    for document, blob in connection.execute(
        "select document, vector from embedding where model = ? and length(vector) > 0"
        " and document in (select value from json_each(?))",
        (model.id, json.dumps(ids)),
    ).fetchall():
        row = np.frombuffer(blob, np.int8).astype(np.float32)
        cosine = float(row @ sought) / float(np.linalg.norm(row) * np.linalg.norm(sought))
        best[document] = max(best.get(document, -1.0), cosine)
    return best


def by_extension(connection: sqlite3.Connection, model: Model, ids: list[int], query: Floats) -> dict[int, float]:
    """The best cosine of each of these documents, computed by sqlite-vec (which `connection` must have loaded)."""
    rows = connection.execute(
        "select document, 1 - min(vec_distance_cosine(vec_int8(vector), vec_int8(?))) from embedding"
        " where model = ? and length(vector) > 0 and document in (select value from json_each(?)) group by document",
        (steps(query).tobytes(), model.id, json.dumps(ids)),
    ).fetchall()
    return {int(document): float(cosine) for document, cosine in rows}
