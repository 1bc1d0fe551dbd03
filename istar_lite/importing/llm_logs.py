"""The log of the `llm` command: its database of threads (0.36 and later) and of conversations (before, kept beside
them). Times there are UTC without saying so."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from istar_lite.database import sqlite3
from istar_lite.importing.exports import session_name
from istar_lite.importing.items import Item, Said

_RESPONSES = """
select responses.id, responses.prompt, responses.response, responses.datetime_utc, responses.model,
  responses.conversation_id, conversations.name
from responses left join conversations on conversations.id = responses.conversation_id
order by responses.conversation_id, responses.datetime_utc, responses.id
"""
_PARTS = """
select parts.type, parts.tool_name, parts.payload, coalesce(nullif(parts.text, ''), (
    select group_concat(content, char(10)) from (
      select fragments.content from part_fragments join fragments on fragments.id = part_fragments.fragment_id
      where part_fragments.part_id = parts.id order by part_fragments."order"))) as text
from parts where message_hash = ? order by position
"""


def matches(path: Path) -> bool:
    """Whether a database is a log of `llm`."""
    with _opened(path) as log:
        return _has(log, "responses") and _has(log, "conversations")


def read(path: Path) -> Iterator[Item]:
    """The messages of every conversation and thread; `number` counts them."""
    number = 0
    with _opened(path) as log:
        for said in (*_responses(log), *_threads(log)):
            number += 1
            yield said._replace(number=number)


@contextlib.contextmanager
def _opened(path: Path) -> Iterator[sqlite3.Connection]:
    connection = sqlite3.connect(path.absolute().as_uri() + "?mode=ro", uri=True)
    connection.row_factory = sqlite3.Row
    try:
        yield connection
    finally:
        connection.close()


def _has(log: sqlite3.Connection, table: str) -> bool:
    return log.execute("select 1 from sqlite_master where name = ?", (table,)).fetchone() is not None


def _utc(text: str | None) -> str | None:
    """`2026-01-02T03:04:05.123456`, as the log writes it, said to be UTC."""
    return None if not text else text if text.endswith("Z") or "+" in text else text + "Z"


def _responses(log: sqlite3.Connection) -> Iterator[Said]:
    if not _has(log, "responses"):
        return
    for row in log.execute(_RESPONSES):
        name, key = session_name(row["name"], row["conversation_id"])
        for role, column in (("user", "prompt"), ("assistant", "response")):
            if row[column] and str(row[column]).strip():
                yield Said(
                    0,
                    row[column],
                    role=role,
                    speaker=row["model"] if role == "assistant" else None,
                    external_id=f"{row['id']}/{column}",
                    occurred_at=_utc(row["datetime_utc"]),
                    session=name,
                    session_key=key,
                )


def _threads(log: sqlite3.Connection) -> Iterator[Said]:
    if not (_has(log, "threads") and _has(log, "parts")):
        return
    turns = {row["tip_message_hash"]: row for row in log.execute("select * from turns order by datetime_utc desc")}
    for thread in log.execute("select * from threads order by id").fetchall():
        name, key = session_name(thread["name"], thread["id"])
        for said in _chain(log, thread["tip_message_hash"], turns):
            yield said._replace(session=name, session_key=key)


def _chain(log: sqlite3.Connection, tip: str | None, turns: dict[str, sqlite3.Row]) -> list[Said]:
    """The messages up to `tip`, oldest first. A message has no time of its own: it takes that of the turn it ends,
    or of the next one."""
    chain: list[Said] = []
    turn: sqlite3.Row | None = None
    while tip is not None:
        turn = turns.get(tip, turn)
        row = log.execute("select * from messages where hash = ?", (tip,)).fetchone()
        if row is None:
            break
        parts = log.execute(_PARTS, (tip,)).fetchall()
        text = "\n".join(part["text"] for part in parts if part["type"] == "text" and part["text"])
        other = [_part(part) for part in parts if part["type"] != "text"]
        if text.strip() or other:
            chain.append(
                Said(
                    0,
                    text,
                    role=row["role"] or "user",
                    speaker=turn["model"] if turn is not None and row["role"] == "assistant" else None,
                    parts=other or None,
                    external_id=tip,
                    occurred_at=None if turn is None else _utc(turn["datetime_utc"]),
                )
            )
        tip = row["parent_hash"]
    return chain[::-1]


def _part(row: sqlite3.Row) -> dict[str, Any]:
    payload = json.loads(row["payload"]) if row["payload"] else None
    part = {"type": row["type"], "tool": row["tool_name"], "text": row["text"], "payload": payload}
    return {name: value for name, value in part.items() if value is not None}
