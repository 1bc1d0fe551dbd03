"""Vectors on a plane: the two directions in which they differ most (principal components)."""

from __future__ import annotations

from collections.abc import Sequence


def plane(vectors: Sequence[bytes]) -> tuple[list[list[float]], float]:
    """(n, 2) places of n int8 vectors of one dimension, within [-1, 1], and the share of their spread that the two
    axes hold (0 to 1). Vectors count by direction alone, as search compares them."""
    import numpy as np  # 0.1 s to import: only who draws the map pays

    matrix = np.frombuffer(b"".join(vectors), dtype=np.int8).reshape(len(vectors), -1).astype(np.float64)
    matrix /= np.maximum(np.linalg.norm(matrix, axis=1, keepdims=True), 1e-9)
    matrix -= matrix.mean(axis=0)
    spread, axes = np.linalg.eigh(matrix.T @ matrix)
    axes = axes[:, ::-1][:, :2]
    # An axis may point either way; the largest component decides, so that the same file gives the same map.
    axes *= np.sign(axes[np.abs(axes).argmax(axis=0), range(axes.shape[1])] + 1e-12)
    places = matrix @ axes
    if places.shape[1] < 2:
        places = np.hstack([places, np.zeros((len(places), 2 - places.shape[1]))])
    places /= max(float(np.abs(places).max()), 1e-9)
    share = float(spread[-2:].sum() / spread.sum()) if spread.sum() > 1e-9 else 0.0
    return [[round(float(x), 4), round(float(y), 4)] for x, y in places], round(share, 4)
