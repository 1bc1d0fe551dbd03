"""Values that other programs keep under a key, in a hierarchy of labels: put, get, filter, list, expire.

Labels are compared exactly and whole: `("users",)` holds `("users", "1")` and never `("users2",)`. Keys of filters are
bound as JSON paths and never become SQL. Times to live are the host's affair until somebody sweeps; `search` leaves out
what is past its time at once, as it does with everything.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from istar_lite import places
from istar_lite.clock import from_text, later
from istar_lite.errors import BadInput
from istar_lite.models import KeptItem
from istar_lite.text import clean
from istar_lite.values import as_int, as_list, as_name, as_real, plain

if TYPE_CHECKING:
    from istar_lite.database import sqlite3
    from istar_lite.services import Services

Labels = tuple[str, ...]
_FILTER_KEY = re.compile(r"[A-Za-z0-9_.-]+")
_ORDERS = {"$gt": ">", "$gte": ">=", "$lt": "<", "$lte": "<="}


@dataclass(frozen=True, slots=True)
class Condition:
    """A part of a `where`, with what is bound to its question marks."""

    sql: str
    values: tuple[object, ...]


@dataclass(frozen=True, slots=True)
class Pattern:
    """What labels begin with, or (`suffix`) end with, label by label; "*" stands for any one label."""

    labels: Labels
    suffix: bool = False

    def fits(self, labels: Labels) -> bool:
        """Whether these labels fit."""
        size = len(self.labels)
        if size > len(labels):
            return False
        part = labels[len(labels) - size :] if self.suffix else labels[:size]
        return all(wanted in ("*", label) for wanted, label in zip(self.labels, part, strict=True))


class Items:
    """The items of one namespace, as `memory.items()` gives them."""

    def __init__(self, services: Services, namespace: str) -> None:
        self._services = services
        self.namespace = namespace

    @contextmanager
    def reading(self) -> Iterator[Shelf]:
        """The items as of one moment."""
        now = self._services.now()
        with self._services.file.reading() as connection:
            yield Shelf(self._services, connection, places.find_namespace(connection, self.namespace), now)

    @contextmanager
    def writing(self) -> Iterator[Shelf]:
        """The items in one write transaction: all that happens in it counts, or, on any exception, none."""
        now = self._services.now()
        with self._services.file.write() as tx:
            yield Shelf(self._services, tx, places.ensure_namespace(tx, self.namespace, now), now)

    def check(self, labels: Iterable[str]) -> None:
        """`BadInput` for labels that cannot be."""
        as_prefix(labels)

    def check_page(self, limit: object, offset: object) -> None:
        """`BadInput` for a page that cannot be: a negative limit would mean none to SQLite."""
        as_int(limit, "limit", low=0)
        as_int(offset, "offset", low=0)

    def pattern(self, labels: Iterable[str], *, suffix: bool = False) -> Pattern:
        """For `Shelf.labels`."""
        return Pattern(tuple(as_list(labels, "labels", "a tuple of labels")), suffix)

    def sweep(self) -> int:
        """Deletes what is past its time; how many."""
        with self.writing() as shelf:
            return shelf.sweep()


class Shelf:
    """The items of a namespace inside a transaction."""

    def __init__(self, services: Services, connection: sqlite3.Connection, owner: int | None, now: str) -> None:
        self._services = services
        self._connection = connection
        self._owner = owner
        self._now = now

    # --- looking ----------------------------------------------------------------------------------------------

    def get(self, labels: Labels, key: str, *, live: bool = False) -> KeptItem | None:
        """The item, or None. `live`: not if it is past its time."""
        row = self._connection.execute(
            "select * from item where namespace = ? and prefix = ? and key = ?"
            " and (not ? or expires_at is null or expires_at > ?)",
            (self._owner, as_prefix(labels), clean(key), live, self._now),
        ).fetchone()
        return None if row is None else _kept(row)

    def find(self, labels: Labels, filters: Mapping[str, Any] | None = None, *, live: bool = False) -> list[int]:
        """Ids of the items with or below these labels that pass the filters, the newest written first."""
        where, values = self._scope(labels, filters, live)
        rows = self._connection.execute(f"select id from item where {where} order by updated_at desc, id desc", values)
        return [row[0] for row in rows]

    def page(
        self, labels: Labels, filters: Mapping[str, Any] | None, limit: int, offset: int, *, live: bool = False
    ) -> list[KeptItem]:
        """`find`, but the items themselves, `limit` of them after `offset`."""
        where, values = self._scope(labels, filters, live)
        rows = self._connection.execute(
            f"select * from item where {where} order by updated_at desc, id desc limit ? offset ?",
            (*values, as_int(limit, "limit"), as_int(offset, "offset", low=0)),
        )
        return [_kept(row) for row in rows]

    def load(self, ids: Sequence[int]) -> list[KeptItem]:
        """The items of these ids, in their order."""
        rows = self._connection.execute(
            "select item.* from json_each(?) as wanted cross join item on item.id = wanted.value order by wanted.key",
            (json.dumps(list(ids)),),
        )
        return [_kept(row) for row in rows]

    def vectors(
        self, labels: Labels, filters: Mapping[str, Any] | None = None, *, live: bool = False
    ) -> list[tuple[int, bytes]]:
        """Item id and vector (float32) of all indexed fields of what `find` finds, the newest written first."""
        where, values = self._scope(labels, filters, live)
        rows = self._connection.execute(
            "select item.id, item_vector.vector from item join item_vector on item_vector.item = item.id"
            f" where {where} order by item.updated_at desc, item.id desc, item_vector.field",
            values,
        )
        return [(row[0], row[1]) for row in rows]

    def labels(self, patterns: Iterable[Pattern] = (), *, live: bool = False) -> list[Labels]:
        """All labels under which something is kept and that all patterns fit, in order."""
        rows = self._connection.execute(
            "select distinct prefix from item where namespace = ?"
            " and (not ? or expires_at is null or expires_at > ?) order by prefix",
            (self._owner, live, self._now),
        )
        wanted = list(patterns)
        found = (_labels(row[0]) for row in rows)
        return [labels for labels in found if all(one.fits(labels) for one in wanted)]

    # --- changing ---------------------------------------------------------------------------------------------

    def put(
        self,
        labels: Labels,
        key: str,
        value: Mapping[str, Any],
        *,
        text: str | None = None,
        indexed: bool = True,
        ttl_minutes: float | None = None,
        vectors: Mapping[str, bytes] | None = None,
    ) -> int:
        """Keeps the value under the key, in the place of what was there; gives its id.

        `text`: what search sees, default all texts in the value. `indexed=False`: not found by what it says.
        `vectors`: by field, float32.
        """
        minutes = None if ttl_minutes is None else as_real(ttl_minutes, "ttl", low=0)
        held = self._services.redact_texts(plain(value, "value"), "value")
        words = None if text is None else self._services.stored_text(text, "text", blank=True)
        row = self._connection.execute(
            "insert into item (namespace, prefix, key, value, text, indexed, ttl_minutes, expires_at, created_at,"
            " updated_at) values (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?9)"
            " on conflict (namespace, prefix, key) do update set value = excluded.value, text = excluded.text,"
            " indexed = excluded.indexed, ttl_minutes = excluded.ttl_minutes, expires_at = excluded.expires_at,"
            " updated_at = excluded.updated_at"
            " returning id",
            (
                self._owner,
                as_prefix(labels),
                as_key(key),
                json.dumps(held, ensure_ascii=False, separators=(",", ":")),
                words,
                int(indexed),
                minutes,
                None if minutes is None else later(self._now, minutes * 60),
                self._now,
            ),
        ).fetchone()
        # A trigger takes away the text of a value that changed while its text did not: this one is of the new value.
        if words is not None:
            self._connection.execute("update item set text = ?1 where id = ?2 and text is not ?1", (words, row[0]))
        self._connection.execute("delete from item_vector where item = ?", (row[0],))
        self._connection.executemany(
            "insert into item_vector (item, field, vector) values (?, ?, ?)",
            [(row[0], field, vector) for field, vector in (vectors or {}).items()],
        )
        return int(row[0])

    def delete(self, labels: Labels, key: str) -> None:
        """The item is gone, if there was one."""
        self._connection.execute(
            "delete from item where namespace = ? and prefix = ? and key = ?",
            (self._owner, as_prefix(labels), clean(key)),
        )

    def refresh(self, ids: Iterable[int]) -> None:
        """What has a time to live lives so long again, counted from now."""
        rows = self._connection.execute(
            "select id, ttl_minutes from item where ttl_minutes is not null and id in (select value from json_each(?))",
            (json.dumps(list(ids)),),
        ).fetchall()
        self._connection.executemany(
            "update item set expires_at = ? where id = ?", [(later(self._now, row[1] * 60), row[0]) for row in rows]
        )

    def sweep(self) -> int:
        """Deletes what is past its time; how many."""
        cursor = self._connection.execute(
            "delete from item where namespace = ? and expires_at is not null and expires_at <= ?",
            (self._owner, self._now),
        )
        return int(cursor.rowcount)

    def _scope(self, labels: Labels, filters: Mapping[str, Any] | None, live: bool) -> tuple[str, tuple[object, ...]]:
        parts = [Condition("item.namespace = ?", (self._owner,))]
        if labels:
            prefix = as_prefix(labels)
            # "/" is the character after ".": a range takes no character of a label for a pattern.
            parts.append(
                Condition(
                    "(item.prefix = ? or (item.prefix >= ? and item.prefix < ?))", (prefix, prefix + ".", prefix + "/")
                )
            )
        if live:
            parts.append(Condition("(item.expires_at is null or item.expires_at > ?)", (self._now,)))
        parts += conditions(filters or {})
        return " and ".join(part.sql for part in parts), tuple(value for part in parts for value in part.values)


# --- labels and keys ------------------------------------------------------------------------------------------


def as_prefix(labels: Iterable[str]) -> str:
    """Labels as they are stored; `BadInput` for one that is empty, no text, or holds a dot."""
    told = tuple(as_list(labels, "namespace", "a tuple of labels"))
    for at, label in enumerate(told):
        if as_name(label, f"namespace[{at}]") != label:
            raise BadInput(f"namespace[{at}]", "holds characters that cannot be stored")
        if "." in label:
            raise BadInput(f"namespace[{at}]", f"{label!r} holds a dot")
    return ".".join(told)


def as_key(key: object) -> str:
    """A key: any text but a blank one."""
    return as_name(key, "key")


def _labels(prefix: str) -> Labels:
    return tuple(prefix.split(".")) if prefix else ()


# --- filters --------------------------------------------------------------------------------------------------


def conditions(filters: Mapping[str, Any]) -> list[Condition]:
    """SQL of filters: `{"path.to.key": value}` or `{"path.to.key": {"$gt": 3, …}}` with $eq, $ne, $gt, $gte, $lt,
    $lte. A path that leads nowhere equals None and nothing else, and is not unequal to anything."""
    found = []
    for key, wanted in filters.items():
        path = _json_path(key)
        operators = wanted if isinstance(wanted, Mapping) else {"$eq": wanted}
        found += [_condition(path, name, value) for name, value in operators.items()]
    return found


def _json_path(key: object) -> str:
    if not isinstance(key, str) or not _FILTER_KEY.fullmatch(key):
        raise BadInput(
            "filter",
            f"Invalid filter key: {key!r}. Filter keys must contain only alphanumeric characters, underscores, dots,"
            " and hyphens.",
        )
    return "$" + "".join(f'."{part}"' for part in key.split("."))


def _condition(path: str, operator: object, value: object) -> Condition:
    if operator == "$eq":
        return _equal(path, value)
    if operator == "$ne":
        return _unequal(path, value)
    if operator in _ORDERS:
        return _ordered(path, _ORDERS[str(operator)], value)
    raise BadInput("filter", f"Unsupported operator: {operator}")


def _equal(path: str, value: object) -> Condition:
    if value is None:
        return Condition("json_extract(item.value, ?) is null", (path,))
    sign, bound = _bound(value)
    return Condition(f"json_extract(item.value, ?) = {sign}", (path, bound))


def _unequal(path: str, value: object) -> Condition:
    if value is None:
        return Condition("json_extract(item.value, ?) is not null", (path,))
    sign, bound = _bound(value)
    return Condition(f"json_extract(item.value, ?) <> {sign}", (path, bound))


def _ordered(path: str, sign: str, value: object) -> Condition:
    if isinstance(value, str):
        return Condition(
            f"json_type(item.value, ?) = 'text' and json_extract(item.value, ?) {sign} ?", (path, path, value)
        )
    if isinstance(value, (int, float)):
        return Condition(
            f"json_type(item.value, ?) in ('integer', 'real') and json_extract(item.value, ?) {sign} ?",
            (path, path, _number(value)),
        )
    raise BadInput("filter", f"{type(value).__name__} has no order: numbers and texts do")


def _bound(value: object) -> tuple[str, object]:
    if isinstance(value, (bool, int, float)):
        return "?", _number(value)
    if isinstance(value, str):
        return "?", value
    return "json(?)", json.dumps(plain(value, "filter"), ensure_ascii=False, separators=(",", ":"))


def _number(value: float) -> float:
    """A number as SQLite can compare it; an integer beyond 64 bits as the nearest real."""
    if isinstance(value, int) and not -(2**63) <= value < 2**63:
        try:
            return float(value)
        except OverflowError:
            return math.inf if value > 0 else -math.inf
    return value


def _kept(row: sqlite3.Row) -> KeptItem:
    return KeptItem(
        id=row["id"],
        labels=_labels(row["prefix"]),
        key=row["key"],
        value=json.loads(row["value"]),
        ttl_minutes=row["ttl_minutes"],
        created_at=from_text(row["created_at"]),
        updated_at=from_text(row["updated_at"]),
        expires_at=None if row["expires_at"] is None else from_text(row["expires_at"]),
    )
