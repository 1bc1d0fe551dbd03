"""Embedders and the vectors of documents (words only for now: the embedders follow in this module)."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from istar_lite.database import sqlite3
    from istar_lite.services import Services

EmbedderLike = Any


class Embedding:
    """The embedder that the host chose. Layers know nothing of it: they write rows, `settle` makes the vectors of
    documents that have none, in batches, outside any transaction."""

    def __init__(self, chosen: EmbedderLike) -> None:
        self.chosen = chosen

    def settle(
        self, services: Services, *, namespace: int | None = None, on_progress: Callable[[int, int], None] | None = None
    ) -> int:
        """Makes the missing vectors (of one namespace, or of the file); how many were made."""
        return 0

    def pending(self, connection: sqlite3.Connection, namespace: int | None) -> int:
        """Documents of a namespace without a vector of the present model."""
        return 0

    def mode(self, connection: sqlite3.Connection) -> str:
        """How search ranks now: "words", "hybrid" …"""
        return "words"
