"""Average linkage by cosine distance, cut at a threshold, at any size: no n² matrix is kept.

Two facts make that possible. Clusters never join across connected components of the pairs below the threshold, so the
pairs are found blockwise and each component is clustered by itself. And with unit vectors the average distance of two
clusters is 1 − (sum of one / its size) · (sum of the other / its size), so sums stand for all pairs.

The result is that of scikit-learn's AgglomerativeClustering(metric="cosine", linkage="average", distance_threshold=t).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

Floats: TypeAlias = npt.NDArray[np.floating[Any]]
Ints: TypeAlias = npt.NDArray[np.int64]

BLOCK = 256  # rows compared with all later ones in one go: 100 MB of products at 100,000 rows
PART = 1 << 16  # pairs compared in full at once
HEAD = 64  # leading directions by which most pairs are ruled out


def clusters(vectors: Floats, threshold: float) -> list[list[int]]:
    """Groups of two and more rows of `vectors` (n, dimension) whose average cosine distance is below `threshold`,
    as sorted row numbers, in the order of their first."""
    lengths = np.linalg.norm(vectors, axis=1)
    usable = np.flatnonzero(lengths > 0)
    unit = (vectors[usable] / lengths[usable, None]).astype(np.float32)
    found = []
    for component in _components(len(unit), _near_pairs(unit, threshold)):
        for group in _average_linkage(unit[component].astype(np.float64), threshold):
            found.append(sorted(usable[component[group]].tolist()))
    return sorted(found)


def _near_pairs(unit: Floats, threshold: float) -> Iterator[tuple[Ints, Ints]]:
    """Pairs (i < j) of rows whose distance is below `threshold`, and maybe some a rounding error above it, a part at a
    time: of texts that are much alike there may be hundreds of millions.

    In the directions of most variance few numbers hold most of a vector; what the others can add to a product is at
    most the product of their lengths (Cauchy-Schwarz). That bound costs one column and rules out nearly all pairs
    at a quarter of the work; the few that pass it are compared in full.
    """
    least = 1.0 - threshold - 1e-5
    bound = _bounding(unit)
    for start in range(0, len(unit), BLOCK):
        block = bound[start : start + BLOCK] @ bound[start:].T
        flat = np.flatnonzero(block.ravel() > least)
        i, j = np.divmod(flat, block.shape[1])
        later = j > i
        i, j = i[later] + start, j[later] + start
        for at in range(0, len(i), PART):
            some, others = i[at : at + PART], j[at : at + PART]
            near = np.einsum("ij,ij->i", unit[some], unit[others]) > least
            yield some[near], others[near]


def _bounding(unit: Floats) -> Floats:
    """Vectors whose products are upper bounds of the rows' products, in fewer dimensions."""
    dimension = unit.shape[1] if unit.ndim == 2 else 0
    if dimension <= HEAD + 1 or len(unit) <= 4 * BLOCK:
        return unit
    directions = np.linalg.eigh(unit.T @ unit)[1][:, ::-1][:, :HEAD]
    head = unit @ directions
    rest = np.sqrt(np.maximum(1.0 - np.einsum("ij,ij->i", head, head), 0.0))
    return np.column_stack([head, rest]).astype(np.float32)


def _components(count: int, pairs: Iterable[tuple[Ints, Ints]]) -> list[Ints]:
    """Connected components of two and more rows, as sorted row numbers."""
    root = np.arange(count)
    for first, second in pairs:
        while True:
            one, other = root[first], root[second]
            apart = one != other
            if not apart.any():
                break
            # The higher root of each pair gets the lower one; then all follow to where their roots went.
            np.minimum.at(root, np.maximum(one, other)[apart], np.minimum(one, other)[apart])
            while not np.array_equal(root, root[root]):
                root = root[root]
    order = np.argsort(root, kind="stable")
    starts = np.flatnonzero(np.diff(root[order], prepend=-1))
    return [part for part in np.split(order, starts[1:]) if len(part) > 1]


def _average_linkage(unit: Floats, threshold: float) -> list[list[int]]:
    """Average linkage within one component, by chains of nearest neighbours: where two clusters are each other's
    nearest, they are joined; where a cluster's nearest lies at the threshold or beyond, it is finished, because
    with average linkage joining others never brings one nearer."""
    sums = unit.copy()
    sizes = np.ones(len(unit))
    members: list[list[int]] = [[at] for at in range(len(unit))]
    active = np.ones(len(unit), bool)
    finished: list[list[int]] = []
    chain: list[int] = []
    while active.any():
        if not chain:
            chain.append(int(np.argmax(active)))
        tip = chain[-1]
        distances = 1.0 - (sums @ sums[tip]) / (sizes * sizes[tip])
        distances[~active] = np.inf
        distances[tip] = np.inf
        nearest = int(np.argmin(distances))
        if not distances[nearest] < threshold:
            active[tip] = False
            finished.append(members[tip])
            chain.pop()
        # As near as makes no difference: sums in another order differ in the last bits, and a ring of equal
        # distances would be followed round and round.
        elif len(chain) > 1 and distances[chain[-2]] <= distances[nearest] + 1e-12:
            other = chain[-2]
            del chain[-2:]
            sums[other] += sums[tip]
            sizes[other] += sizes[tip]
            members[other] += members[tip]
            active[tip] = False
        else:
            chain.append(nearest)
    return [group for group in finished if len(group) > 1]
