"""Cosines between a query and the passages of a scope: by a matrix in memory, by sqlite-vec over the blobs in the file,
or by numpy over these where the extension cannot be loaded.

The three give the same order (tested), since all compare int8 steps, the query's as well: sqlite-vec takes two vectors
of one type, and their products are whole numbers that float32 holds exactly. The first search of a scope compares the
blobs where they lie; from the second on there is a matrix, kept up with the file.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from istar_lite.database import load_vectors, sqlite3
from istar_lite.embedders import STATIC
from istar_lite.recall.loading import chunks
from istar_lite.recall.scope import Floats, Ints, Scope, Vectors

if TYPE_CHECKING:
    from istar_lite.embedding import Model
    from istar_lite.recall.loading import Place

BLOCK = 512  # rows turned into float32 at a time: a block stays in the processor's cache


def signal_of(model: Model) -> str:
    """Which signal a model's cosines are."""
    return "static" if model.name == STATIC else "neural"


def by_matrix(vectors: Vectors, query: Floats, count: int) -> Floats:
    """The best cosine of each document's passages, shape (count,); NaN where a document has no vector."""
    sought = steps(query)
    cosines = products(vectors, sought) / (vectors.norms * np.linalg.norm(sought.astype(np.float32)))
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


def products(vectors: Vectors, query: npt.NDArray[np.int8]) -> Floats:
    """Rows times query. `vecdot` and not `@`, whose threads cost ten times the CPU on matrices of this size."""
    sought = query.astype(np.float32)
    floats, rows = vectors.floats(), vectors.rows
    if floats is not None:
        whole: Floats = np.vecdot(floats, sought)
        return whole
    result = np.empty(len(rows), np.float32)
    for at in range(0, len(rows), BLOCK):
        result[at : at + BLOCK] = np.vecdot(rows[at : at + BLOCK].astype(np.float32), sought)
    return result


def over_blobs(
    connection: sqlite3.Connection, place: Place, scope: Scope, model: Model, query: Floats
) -> tuple[Floats, str]:
    """As `by_matrix`, from the file; and who compared: "sqlite-vec" or "numpy"."""
    who, compare = ("sqlite-vec", by_extension) if has_extension(connection) else ("numpy", by_numpy)
    cosines = np.full(len(scope), np.nan, np.float32)
    for ids, best in compare(connection, place, model, query):
        at = np.minimum(np.searchsorted(scope.ids, ids), len(scope) - 1)
        inside = scope.ids[at] == ids  # the scope may be older than this state of the file, or newer
        np.fmax.at(cosines, at[inside], best[inside])  # of a number and NaN, fmax takes the number
    return cosines, who


def has_extension(connection: sqlite3.Connection) -> bool:
    """Whether sqlite-vec is loaded into the connection, which is tried."""
    try:
        connection.execute("select vec_version()")
    except sqlite3.OperationalError:
        return load_vectors(connection)
    return True


Compared = Iterator[tuple[Ints, Floats]]  # ids of documents and the cosine of a passage of each, some thousands a time


def by_numpy(connection: sqlite3.Connection, place: Place, model: Model, query: Floats) -> Compared:
    """The cosines of all passages of a place."""
    sought = steps(query).astype(np.float32)
    length = float(np.linalg.norm(sought))
    for rows in chunks(connection, f"select document, vector {place.blobs(model)}"):
        ids, blobs = zip(*rows, strict=True)
        matrix = np.frombuffer(b"".join(blobs), np.int8).reshape(len(blobs), -1).astype(np.float32)
        yield np.asarray(ids, np.int64), np.vecdot(matrix, sought) / (np.linalg.norm(matrix, axis=1) * length)


def by_extension(connection: sqlite3.Connection, place: Place, model: Model, query: Floats) -> Compared:
    """The same, computed by sqlite-vec (which `connection` must have loaded)."""
    sql = f"select document, 1 - vec_distance_cosine(vec_int8(vector), vec_int8(?)) {place.blobs(model)}"
    for rows in chunks(connection, sql, (steps(query).tobytes(),)):
        ids, cosines = zip(*rows, strict=True)
        yield np.asarray(ids, np.int64), np.asarray(cosines, np.float32)
