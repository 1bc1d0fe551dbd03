"""The seal: one keyed digest over all rows, made before a file is shipped, that shows later in which table anything
was edited, removed or put back.

What it covers: whoever has no key cannot change, add or remove a row and have `check(key=…)` say nothing. What it
does not cover: reading (nothing is encrypted), a whole older sealed copy put in place of the file, and whoever has
the key. Vectors, search rows and the full-text index are derived and not sealed: `check()` recomputes what can be.

Each row is one canonical line, each table the HMAC-SHA-256 over the sorted SHA-256 digests of its rows, the seal the
HMAC over the digests of all tables. Sorted, so that a vacuum or a restored dump, which may change the order of rows,
breaks nothing. The digests of tables are kept too: they tell which table changed.
"""

from __future__ import annotations

import hashlib
import hmac
import json
from typing import TYPE_CHECKING

from istar_lite.errors import BadInput
from istar_lite.migrations import CHECKED, base_tables, columns

if TYPE_CHECKING:
    from istar_lite.driver import sqlite3

SEAL = "seal"
# Derived from the other rows, by triggers or by the embedder of whoever opens the file next.
DERIVED = ("document", "document_change", "embedding", "embedding_model", "cell", "cell_member")
# What the library itself notes about the file is no part of what was sealed.
NOTES = (SEAL, CHECKED, "embedding_models", "embedded:*", "cells:*")


def seal(tx: sqlite3.Connection, key: str | bytes, now: str) -> str:
    """Writes the seal into the file (setting `seal`) and gives its digest (hex)."""
    secret = as_key(key)
    digests = table_digests(tx, secret)
    whole = _whole(secret, digests, now)
    value = json.dumps({"seal": whole, "sealed_at": now, "tables": digests}, sort_keys=True)
    tx.execute(
        "insert into setting (key, value) values (?, ?) on conflict (key, namespace, session)"
        " do update set value = excluded.value",
        (SEAL, value),
    )
    return whole


def differences(connection: sqlite3.Connection, key: str | bytes) -> list[str]:
    """What does not agree with the seal, one line a table; empty: nothing changed since it was sealed."""
    secret = as_key(key)
    row = connection.execute(
        "select value from setting where key = ? and namespace = 0 and session = 0", (SEAL,)
    ).fetchone()
    if row is None:
        return ["seal: the file has none"]
    try:
        held = json.loads(row[0])
        whole, at, digests = str(held["seal"]), str(held["sealed_at"]), dict(held["tables"])
    except (TypeError, ValueError, KeyError):
        return ["seal: cannot be read"]
    if not hmac.compare_digest(whole, _whole(secret, digests, at)):
        return ["seal: was made with another key, or was itself changed"]
    present = table_digests(connection, secret)
    return [
        f"seal: {table} was changed since {at}"
        for table in sorted(present.keys() | digests.keys())
        if present.get(table) != digests.get(table)
    ]


def table_digests(connection: sqlite3.Connection, secret: bytes) -> dict[str, str]:
    """Keyed digest of each table's rows (hex), whatever their order."""
    return {
        table: hmac.new(secret, b"".join(_row_digests(connection, table)), hashlib.sha256).hexdigest()
        for table in base_tables()
        if table not in DERIVED
    }


def _row_digests(connection: sqlite3.Connection, table: str) -> list[bytes]:
    notes = " and ".join(f"key not glob '{name}'" for name in NOTES)
    condition = f" where {notes}" if table == "setting" else ""
    rows = connection.execute(f"select {', '.join(columns(table))} from {table}{condition}")
    return sorted(hashlib.sha256(_line(table, tuple(row))).digest() for row in rows)


def _line(table: str, values: tuple[object, ...]) -> bytes:
    """One row as bytes that no other row has: each value with its type and length before it."""
    parts = [table.encode()]
    for value in values:
        raw = value if isinstance(value, bytes) else str(value).encode()
        parts.append(f"{type(value).__name__}:{len(raw)}:".encode() + raw)
    return b"\n".join(parts)


def _whole(secret: bytes, digests: dict[str, str], at: str) -> str:
    text = json.dumps([at, sorted(digests.items())])
    return hmac.new(secret, text.encode(), hashlib.sha256).hexdigest()


def as_key(key: object) -> bytes:
    """The key as bytes. A short one can be found by trying; how long it is, is the user's choice."""
    raw = key.encode("utf-8", "surrogatepass") if isinstance(key, str) else key
    if not isinstance(raw, bytes):
        raise BadInput("key", f"text or bytes are wanted, not {type(key).__name__}")
    if not raw:
        raise BadInput("key", "is empty")
    return raw
