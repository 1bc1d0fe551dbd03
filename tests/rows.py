"""A file with rows in every table, written by plain SQL: for tests that must not depend on any layer."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from istar_lite.database import File, sqlite3
from istar_lite.migrations import base_tables
from istar_lite.text import digest

AT = "2026-01-0{}T10:00:00.000Z"

# In order of making. Ids are spelt out so that rows can name one another.
ROWS: tuple[tuple[str, dict[str, Any]], ...] = (
    ("namespace", {"id": 2, "name": "other"}),
    ("session", {"id": 1, "name": "market", "kind": "run"}),
    ("session", {"id": 2, "name": "kitchen"}),
    ("session", {"id": 3, "namespace": 2, "name": "kitchen"}),
    ("setting", {"key": "max_atoms", "session": 1, "value": 3}),
    ("setting", {"key": "max_recalls", "namespace": 2, "value": 5}),
    *(
        ("turn", {"session": 1, "turn": n, "reward": n * 1.5, "reward_unit": "EUR", "events": '["spike"]',
                  "occurred_at": AT.format(n)})
        for n in range(1, 6)
    ),
    *(
        ("atom", {"session": 1, "key": f"a{n}", "turn": n, "type": "spike", "content": f"price spike number {n}",
                  "priority": 10 * n, "occurred_at": AT.format(n)})
        for n in range(1, 6)
    ),
    ("episode", {"id": 1, "session": 1, "name": "GROWTH", "turn_start": 1, "turn_end": 2, "narrative": "it grew",
                 "occurred_at": AT.format(2)}),
    ("episode", {"id": 2, "session": 1, "name": "DECLINE", "turn_start": 3, "turn_end": 5, "narrative": "it fell",
                 "occurred_at": AT.format(5)}),
    ("episode_history", {"episode": 1, "turn_end": 1, "narrative": "it began"}),
    ("profile", {"id": 1, "profile_id": "trader", "session": 1, "text": "sell after a spike", "turn_end": 5}),
    ("profile_rule", {"profile": 1, "condition": "a spike", "action": "sell", "cited_turns": "[1, 2]"}),
    *(
        ("message", {"id": n, "session": 2 if n < 5 else 3, "role": "user" if n % 2 else "assistant",
                     "content": f"message number {n} about green tea 東京都", "external_id": f"m{n}",
                     "occurred_at": AT.format(n)})
        for n in range(1, 7)
    ),
    ("exchange", {"id": 1, "session": 2, "prompt": 1, "response": 2, "key": "e1", "occurred_at": AT.format(2)}),
    ("exchange", {"id": 2, "session": 2, "prompt": 3, "response": 4, "occurred_at": AT.format(4)}),
    ("memory", {"id": 1, "key": "tea", "text": "likes green tea", "emotion": "joy", "occurred_at": AT.format(1)}),
    ("memory", {"id": 2, "text": "port is 22", "status": "superseded", "ended_at": AT.format(3),
                "ended_by": "memory 3", "occurred_at": AT.format(1)}),
    ("memory", {"id": 3, "text": "port is 49222", "occurred_at": AT.format(3)}),
    ("memory", {"id": 4, "namespace": 2, "text": "likes black tea", "occurred_at": AT.format(1)}),
    ("memory_key", {"namespace": 1, "key": "tea again", "memory": 1}),
    ("source", {"kind": "memory", "row": 1, "source_kind": "message", "source_row": 1}),
    ("source", {"kind": "memory", "row": 3, "source_kind": "exchange", "source_row": 2}),
    ("source", {"kind": "atom", "row": 5, "source_kind": "turn", "source_row": 5, "role": "mentioned_in"}),
    ("tag", {"kind": "memory", "row": 1, "tag": "drinks"}),
    ("tag", {"kind": "atom", "row": 5, "tag": "price"}),
    ("observation", {"id": 1, "session": 2, "first_message": 1, "last_message": 2, "text": "09:00 likes tea",
                     "stage": "active", "occurred_at": AT.format(2)}),
    ("observation", {"id": 2, "session": 2, "first_message": 3, "last_message": 4, "text": "10:00 asks for tea",
                     "current_task": "make tea", "occurred_at": AT.format(4)}),
    ("reflection", {"id": 1, "session": 2, "first_observation": 1, "last_observation": 1, "text": "likes tea"}),
    ("file", {"id": 1, "path": "/memories/tea.md", "text": "green tea", "status": "superseded",
              "ended_at": AT.format(2), "ended_by": "file 2", "occurred_at": AT.format(1)}),
    ("file", {"id": 2, "path": "/memories/tea.md", "text": "black tea", "change": "str_replace",
              "occurred_at": AT.format(2)}),
    ("folder", {"path": "/memories"}),
    ("item", {"id": 1, "prefix": "users.1", "key": "tea", "value": '{"likes":"tea","cups":2}'}),
    ("item_vector", {"item": 1, "field": "likes", "vector": b"\0\0\0\0"}),
    ("recall", {"id": 1, "session": 2, "via": "retrieve", "query": "tea"}),
    ("recall_hit", {"recall": 1, "rank": 1, "kind": "memory", "row": 1, "score": 0.5}),
    ("recall_hit", {"recall": 1, "rank": 2, "kind": "message", "row": 3, "score": 0.4}),
    ("recall", {"id": 2, "namespace": 2, "via": "context"}),
    ("task", {"id": 1, "purpose": "atoms", "session": 1, "first": 1, "last": 5, "state": "done"}),
    ("task", {"id": 2, "purpose": "extract", "session": 2, "first": 1, "last": 1, "state": "done"}),
    ("task", {"id": 3, "purpose": "observe", "session": 2, "first": 1, "last": 4, "state": "failed",
              "last_error": "TimeoutError"}),
    ("model_call", {"task": 2, "purpose": "extract", "namespace": 1, "session": 2, "outcome": "ok", "tokens_in": 7}),
    ("model_call", {"task": 3, "purpose": "observe", "namespace": 1, "session": 2, "outcome": "timeout"}),
    ("tombstone", {"kind": "memory", "namespace": 1, "salt": b"salt", "digest": digest("a secret", b"salt")}),
    ("embedding_model", {"id": 1, "name": "tiny", "dimension": 4, "scale": 0.01}),
)  # fmt: skip


def fill(path: Path) -> Path:
    """A whole file at `path` with rows in every table (test_checking.py makes sure of that)."""
    file = File(path)
    with file.write() as tx:
        for table, row in ROWS:
            tx.execute(
                f"insert into {table} ({', '.join(row)}) values ({', '.join('?' * len(row))})", tuple(row.values())
            )
        tx.execute("update memory set digest = null")
        tx.executemany(
            "update memory set digest = ? where id = ?",
            [(digest(row[1]), row[0]) for row in tx.execute("select id, text from memory").fetchall()],
        )
        tx.execute(
            "insert into embedding (document, model, length, vector)"
            " select id, 1, length(text), x'01020304' from document"
        )
        if "cell" in base_tables():
            _cells(tx)
        tx.execute("update turn set text = text || ' edited' where turn = 5")
    file.close()
    return path


def _cells(tx: sqlite3.Connection) -> None:
    tx.execute("insert into cell (id, namespace, model, centre) values (1, 1, 1, x'01020304')")
    tx.execute("insert into cell_member (cell, document, sketch) values (1, 1, x'0f'), (1, 2, x'0f')")
