"""The messages of a conversation as an agent framework hands them over and wants them back: item by item, exactly.

An item is a message row like any other, so that it is found, observed and forgotten as such: `content` is what one
reads of it, `parts` the item as it was given. What other doors wrote into the session is given out as an item too.
(How parts are read is the rule of `observations.parts`; this layer stands on that one module of the other.)
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from istar_lite import places
from istar_lite.database import insert_rows, sqlite3
from istar_lite.errors import BadInput
from istar_lite.models import TranscriptItems
from istar_lite.observations.parts import ToolCall, flatten, pieces, to_message
from istar_lite.text import clean
from istar_lite.values import as_int, as_list, as_name

if TYPE_CHECKING:
    from istar_lite.services import Services

Item = dict[str, Any]
_WRAP = "item"  # an item that shows neither role nor type is kept inside an object with this one key


class Transcript:
    """The items of one conversation, as `memory.transcript()` gives them."""

    def __init__(self, services: Services, namespace: str, session: str) -> None:
        self._services = services
        self.namespace = namespace
        self.session = as_name(session, "session")

    def add(self, items: Iterable[Mapping[str, Any]]) -> None:
        """Appends items, all or none. What JSON cannot hold is `BadInput`."""
        rows = _rows(self._services, items)
        if not rows:
            return
        now = self._services.now()
        try:
            with self._services.file.write() as tx:
                session = places.ensure_session(tx, self.namespace, self.session, "conversation", now)
                columns = "session, role, content, parts, occurred_at, recorded_at"
                insert_rows(tx, "message", columns, [(session, *row, now, now) for row in rows])
        except sqlite3.IntegrityError as error:
            raise BadInput("items", f"an item is nothing that SQLite takes for JSON ({error})") from error

    def items(self, limit: int | None = None) -> TranscriptItems:
        """The last `limit` items in their order; None or a negative limit: all of them. Rows that are no item are
        skipped, do not count, and are named in `corrupt`."""
        most = None if limit is None else as_int(limit, "limit")
        found: list[Item] = []
        corrupt: list[int] = []
        with self._services.file.reading() as connection:
            session = places.find_session(connection, self.namespace, self.session, "conversation")
            rows = connection.execute(
                "select id, role, content, parts from message where session = ? order by position desc, id desc",
                (session,),
            )
            for row in rows:
                if most is not None and 0 <= most <= len(found):
                    break
                item = _item(row)
                if item is None:
                    corrupt.append(row["id"])
                else:
                    found.append(item)
            rows.close()
        return TranscriptItems(items=tuple(reversed(found)), corrupt=tuple(reversed(corrupt)))

    def pop(self) -> TranscriptItems:
        """Takes the newest item off and gives it; none if there is none. Rows behind it that are no item go too."""
        corrupt: list[int] = []
        with self._services.file.write() as tx:
            session = places.find_session(tx, self.namespace, self.session, "conversation")
            while True:
                row = tx.execute(
                    "select id, role, content, parts from message where session = ?"
                    " order by position desc, id desc limit 1",
                    (session,),
                ).fetchone()
                if row is None:
                    return TranscriptItems(corrupt=tuple(corrupt))
                tx.execute("delete from message where id = ?", (row["id"],))
                item = _item(row)
                if item is not None:
                    return TranscriptItems(items=(item,), corrupt=tuple(corrupt))
                corrupt.append(row["id"])

    def clear(self) -> None:
        """Takes all items away. They may be said again: unlike `forget`, this keeps no note of what was there."""
        with self._services.file.write() as tx:
            session = places.find_session(tx, self.namespace, self.session, "conversation")
            tx.execute("delete from message where session = ?", (session,))


def _rows(services: Services, items: Iterable[Mapping[str, Any]]) -> list[tuple[str, str, str | None]]:
    """Role, content and parts of each item, as they are stored."""
    told = as_list(items, "items", "a list of items")
    held = [_exact(services, item, f"items[{at}]") for at, item in enumerate(told)]
    names = {
        piece.id: piece.name
        for item in held
        for piece in pieces(item, _role(item))
        if isinstance(piece, ToolCall) and piece.id is not None
    }
    return [_row(item, names) for item in held]


def _exact(services: Services, item: object, field: str) -> Item:
    """The item as it comes back from JSON, its texts redacted."""
    if not isinstance(item, Mapping):
        raise BadInput(field, f"an object is wanted, not {type(item).__name__}")
    try:
        held: Item = json.loads(json.dumps(dict(item), allow_nan=False))
    except (TypeError, ValueError, RecursionError) as error:
        raise BadInput(field, f"cannot be stored as JSON ({error})") from error
    redacted: Item = services.redact_texts(held, field)
    return redacted


def _row(item: Item, names: Mapping[str, str]) -> tuple[str, str, str | None]:
    role = _role(item)
    plain_text = item.keys() == {"role", "content"} and isinstance(item["content"], str)
    if plain_text and item["role"] == role and clean(item["content"]) == item["content"]:
        return role, item["content"], None
    kept = item if _shows_itself(item) else {_WRAP: item}
    text = flatten(item, role, names.get)
    return role, clean(text), _dump(kept)


def _dump(value: Item) -> str:
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    # Half an emoji cannot be bound, but can be spelt.
    return text if clean(text) == text else json.dumps(value, separators=(",", ":"))


def _shows_itself(item: Item) -> bool:
    return isinstance(item.get("role") or item.get("type"), str)


def _role(item: Item) -> str:
    """Who speaks. Calls come from the model, their results from a tool."""
    role = item.get("role")
    if isinstance(role, str) and clean(role) == role and role:
        return role
    return "tool" if str(item.get("type", "")).endswith("_output") else "assistant"


def _item(row: sqlite3.Row) -> Item | None:
    """The item of a row, as it was given or as another door's message reads; None for what is none."""
    if row["parts"] is None:
        return {"role": row["role"], "content": row["content"]}
    try:
        parts = json.loads(row["parts"])
    except (TypeError, ValueError, RecursionError):
        return None
    if isinstance(parts, dict):
        if parts.keys() == {_WRAP} and isinstance(parts[_WRAP], dict):
            inner: Item = parts[_WRAP]
            return inner
        return parts if _shows_itself(parts) else to_message(row["role"], row["content"], parts)
    return to_message(row["role"], row["content"], parts) if isinstance(parts, list) else None
