"""Cosines between a query and the passages of a scope: by a matrix in memory, by sqlite-vec over the blobs in the file,
or by numpy over these where the extension cannot be loaded.

The three give the same order (tested), since all compare int8 steps, the query's as well: sqlite-vec takes two vectors
of one type, and their products are whole numbers that float32 holds exactly. The first search of a scope compares the
blobs where they lie; from the second on there is a matrix, kept up with the file.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from istar_lite.database import load_vectors, sqlite3
from istar_lite.recall.scope import Floats, Scope, Vectors

if TYPE_CHECKING:
    from istar_lite.embedding import Model
    from istar_lite.recall.loading import Place

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


def over_blobs(
    connection: sqlite3.Connection, place: Place, scope: Scope, model: Model, query: Floats
) -> tuple[Floats, str]:
    """As `by_matrix`, from the file; and who compared: "sqlite-vec" or "numpy"."""
    who, compare = ("sqlite-vec", by_extension) if has_extension(connection) else ("numpy", by_numpy)
    best = compare(connection, place, model, query)
    cosines = np.full(len(scope), np.nan, np.float32)
    known = scope.places(np.fromiter(best, np.int64, len(best)))
    if len(known) < len(best):  # the scope may be older than this state of the file, or newer
        best = {id: best[id] for id in scope.ids[known].tolist()}
    cosines[known] = np.fromiter(best.values(), np.float32, len(best))
    return cosines, who


def has_extension(connection: sqlite3.Connection) -> bool:
    """Whether sqlite-vec is loaded into the connection, which is tried."""
    try:
        connection.execute("select vec_version()")
    except sqlite3.OperationalError:
        return load_vectors(connection)
    return True


_BLOBS = (
    "from document cross join embedding on embedding.document = document.id and model = {model}"
    " where {place} and length(vector) > 0"
)


def by_numpy(connection: sqlite3.Connection, place: Place, model: Model, query: Floats) -> dict[int, float]:
    """The best cosine of each document of a place by its id, in order of ids."""
    best: dict[int, float] = {}
    sought = steps(query).astype(np.float32)
    length = float(np.linalg.norm(sought))
    blobs = _BLOBS.format(model=model.id, place=place.condition)
    for document, blob in connection.execute(f"select document.id, vector {blobs} order by document.id"):
        row = np.frombuffer(blob, np.int8).astype(np.float32)
        cosine = float(row @ sought) / (float(np.linalg.norm(row)) * length)
        best[document] = max(best.get(document, -1.0), cosine)
    return best


def by_extension(connection: sqlite3.Connection, place: Place, model: Model, query: Floats) -> dict[int, float]:
    """The same, computed by sqlite-vec (which `connection` must have loaded)."""
    cursor = connection.cursor()
    cursor.row_factory = None
    blobs = _BLOBS.format(model=model.id, place=place.condition)
    return dict(
        cursor.execute(
            f"select document.id, 1 - min(vec_distance_cosine(vec_int8(vector), vec_int8(?))) {blobs}"
            " group by document.id order by document.id",
            (steps(query).tobytes(),),
        ).fetchall()
    )
