"""The trail: what went into a prompt, when, for which query, with which scores (view `recall_trail`)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from istar_lite import places
from istar_lite.text import shorten

if TYPE_CHECKING:
    from istar_lite.database import sqlite3

Handed = tuple[str, int, float | None, float | None, float | None]
"""What was handed out: kind, id, score, similarity, decay."""


def write_trail(
    tx: sqlite3.Connection,
    namespace: str,
    session: int | None,
    via: str,
    query: str | None,
    handed: Sequence[Handed],
    now: str,
) -> None:
    """One recall and its hits in their order: ids and scores, the query cut to 200 characters."""
    cursor = tx.execute(
        "insert into recall (namespace, session, via, query, recalled_at) values (?, ?, ?, ?, ?)",
        (places.ensure_namespace(tx, namespace, now), session, via, query and shorten(query, 200), now),
    )
    tx.executemany(
        "insert into recall_hit (recall, rank, kind, row, score, similarity, decay) values (?, ?, ?, ?, ?, ?, ?)",
        ((cursor.lastrowid, rank, *one) for rank, one in enumerate(handed, 1)),
    )
