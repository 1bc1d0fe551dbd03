"""Scopes kept in memory, and kept up with the file: by what came, changed and went since, whoever wrote it.

New documents are known by their ids, all other changes by `document_change`, which triggers write; so a refresh with
nothing new is one query of three look-ups, and otherwise costs what changed, not what the scope or the file holds.
"""

from __future__ import annotations

import json
import threading
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from istar_lite.driver import as_text
from istar_lite.recall.request import STATUSES
from istar_lite.recall.scope import Ints, Scope, Vectors, joined

if TYPE_CHECKING:
    from istar_lite.database import sqlite3
    from istar_lite.embedding import Model
    from istar_lite.recall.wide import Sample

KEPT = 64  # scopes; the least recently asked goes first
KEPT_DOCUMENTS = 400_000  # in all of them together
KEPT_FLOATS = 8_000_000  # numbers that are kept as float32 too, in all of them together: 32 MB
FEW = 2_000  # changes that are taken in one by one; more of them, and reading the scope anew is cheaper
CHUNK = 4096  # rows read at a time

# Names come as bytes: there are few of them, and to decode each row's would take longer than to read it.
_COLUMNS = (
    "id, cast(kind as blob), coalesce(session, 0), coalesce(position, 0), cast(speaker as blob),"
    " julianday(occurred_at), length(text), cast(status as blob), stale, julianday(ended_at), julianday(expires_at)"
)
_STATUS = {status.encode(): number for number, status in enumerate(STATUSES)}
_NO_STATUS = len(STATUSES)  # of a damaged file: found only where any status is asked for


# The columns of a scope. Small types: a hundred thousand documents are gone through for each query.
_ARRAYS: dict[str, Any] = {
    "ids": np.int64,
    "kind": np.uint8,
    "session": np.int64,
    "position": np.int64,
    "speaker": np.int32,
    "day": np.float64,
    "length": np.float32,
    "status": np.uint8,
    "stale": np.bool_,
    "ended": np.float64,
    "expires": np.float64,
    "marks": np.uint8,
}


@dataclass(frozen=True, slots=True)
class Place:
    """Which documents: a namespace, or some sessions of it, or some kinds (never turns or messages) of it. `document`
    is searched by it, and so is full text."""

    namespace: int
    sessions: tuple[int, ...] | None = None
    kinds: tuple[str, ...] | None = None

    @property
    def condition(self) -> str:
        """SQL over `document`."""
        if self.kinds is not None:  # by the index of kinds: there may be a million messages beside these
            return f"+namespace = {self.namespace} and kind in ({', '.join(map(repr, self.kinds))})"
        if self.sessions is None:
            return f"namespace = {self.namespace}"
        return f"namespace = {self.namespace} and session in ({', '.join(map(str, self.sessions))})"

    @property
    def check(self) -> str:
        """The same of rows that are found by their ids: no index serves it."""
        return "+" + self.condition if self.kinds is None else self.condition.replace(" kind in", " +kind in")

    @property
    def ids(self) -> str:
        """A subquery `one (id)`: the ids in ascending order. The limit keeps SQLite from flattening it: it would then
        sort whole rows, in memory, where sorting ids is enough; and `+` from going through the file in order of ids."""
        return f"(select id from document where {self.condition} order by +id limit -1) as one"

    def blobs(self, model: Model) -> str:
        """What to select `document` and `vector` from, for all passages that have one."""
        return (
            f"from {self.ids} cross join embedding on embedding.document = one.id and model = {model.id}"
            " and length(vector) > 0"
        )

    @property
    def words(self) -> str:
        """The words of the `scope` column of full text."""
        if self.kinds is not None:
            return "scope: (" + " OR ".join(f"n{self.namespace}{kind}" for kind in self.kinds) + ")"
        if self.sessions is None:
            return f"scope: n{self.namespace}"
        return "scope: (" + " OR ".join(f"n{self.namespace}s{session}" for session in self.sessions) + ")"


@dataclass
class _Kept:
    """A scope with what it is as of: the newest document and change it knows, and the models it has vectors of.
    `asked`: how often it was searched before."""

    scope: Scope
    document: int = 0
    change: int = 0
    vectors: str = ""
    asked: int = 0
    lock: threading.Lock = field(default_factory=threading.Lock)


class Scopes:
    """The scopes of one open file.

    `patience`: how many searches of a scope compare its vectors where they lie, in the file. Those after that read
    them into a matrix, which costs as much as one such search and makes the next ones several times faster.
    """

    def __init__(self, patience: int = 1) -> None:
        self._kept: OrderedDict[Place, _Kept] = OrderedDict()
        self._lock = threading.Lock()
        self._patience = patience
        self.samples: dict[Place, Sample] = {}  # of large namespaces, see wide.py

    def get(
        self, connection: sqlite3.Connection, place: Place, models: Sequence[Model]
    ) -> tuple[Scope, threading.Lock]:
        """The scope as the file is now, with vectors of these models once it is searched again. To be used under its
        lock: another thread may bring it up to a newer state."""
        with self._lock:
            kept = self._kept.pop(place, None) or _Kept(_empty())
            self._kept[place] = kept
            self._forget_old()
        with kept.lock:
            _refresh(connection, place, kept, models if kept.asked >= self._patience else ())
            kept.asked += 1
        return kept.scope, kept.lock

    def _forget_old(self) -> None:
        """Scopes that nobody asked for long, and of more than a few what they hold twice."""
        room = KEPT_FLOATS
        for kept in reversed(self._kept.values()):
            for vectors in kept.scope.vectors.values():
                room -= vectors.rows.size
                if room < 0:
                    vectors.forget_floats()
        while len(self._kept) > 1 and (
            len(self._kept) > KEPT or sum(len(kept.scope) for kept in self._kept.values()) > KEPT_DOCUMENTS
        ):
            self._kept.popitem(last=False)


def _refresh(connection: sqlite3.Connection, place: Place, kept: _Kept, models: Sequence[Model]) -> None:
    document, change, oldest, vectors = connection.execute(
        "select coalesce((select max(id) from document), 0), coalesce((select max(id) from document_change), 0),"
        " coalesce((select min(id) from document_change), 0),"
        " (select group_concat(key || value, ' ') from setting where key glob 'embedded:*' and namespace = ?)",
        (place.namespace,),
    ).fetchone()
    state = json.dumps([[model.id for model in models], vectors])
    if (kept.document, kept.change, kept.vectors) == (document, change, state):
        return
    if (change, document) < (kept.change, kept.document):
        return  # another thread brought the scope further than this one reads: what it does not see is left out later
    changed = _changed(connection, kept, document, change, oldest)
    if changed is None:
        kept.scope = _load(connection, place, models)
    else:
        _take_in(connection, place, kept.scope, changed, kept.document, models)
        if kept.vectors != state:
            _complete_vectors(connection, place, kept.scope, models)
    kept.document, kept.change, kept.vectors = document, change, state
    kept.scope.state = (document, change)


def _changed(connection: sqlite3.Connection, kept: _Kept, document: int, change: int, oldest: int) -> list[int] | None:
    """Ids of known documents that changed or went; None where reading all anew is needed or cheaper."""
    known = kept.document
    if not known or document - known > FEW or change - kept.change > FEW or oldest > kept.change + 1:
        return None
    if kept.change == change:
        return []
    rows = connection.execute("select distinct document from document_change where id > ?", (kept.change,))
    return [int(row[0]) for row in rows if row[0] <= known]


def _empty() -> Scope:
    columns: dict[str, Any] = {name: np.zeros(0, dtype) for name, dtype in _ARRAYS.items()}
    return Scope(**columns)


def _rows(connection: sqlite3.Connection, sql: str, values: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
    """Rows as plain tuples: named rows cost a third more, and here there may be 100,000."""
    cursor = connection.cursor()
    cursor.row_factory = None
    return cursor.execute(sql, values).fetchall()


def _load(connection: sqlite3.Connection, place: Place, models: Sequence[Model]) -> Scope:
    scope = _empty()
    for rows in chunks(connection, f"select {_COLUMNS} from {place.ids} cross join document using (id)"):
        _append(scope, rows)
    for model in models:
        _load_vectors(connection, place, scope, model)
    return scope


def _load_vectors(connection: sqlite3.Connection, place: Place, scope: Scope, model: Model) -> None:
    scope.vectors[model.id] = Vectors.empty(model.dimension, len(scope))
    for rows in chunks(connection, f"select document, vector {place.blobs(model)}"):
        add_vectors(scope, model, rows)


def scope_of(connection: sqlite3.Connection, place: Place, ids: Ints) -> Scope:
    """The documents with some ids (ascending) that belong to a place, without vectors."""
    scope = _empty()
    scope.partial = True
    some = f"(select value as id from json_each(?)) as one cross join document using (id) where {place.condition}"
    for rows in chunks(connection, f"select {_COLUMNS} from {some}", (json.dumps(ids.tolist()),)):
        _append(scope, rows)
    return scope


def chunks(connection: sqlite3.Connection, sql: str, values: Sequence[Any] = ()) -> Iterator[list[tuple[Any, ...]]]:
    """Rows as plain tuples, some thousands at a time: all at once they would take more memory than the scope."""
    cursor = connection.cursor()
    cursor.row_factory = None
    cursor.execute(sql, values)
    while rows := cursor.fetchmany(CHUNK):
        yield rows


def _append(scope: Scope, rows: Sequence[tuple[Any, ...]]) -> None:
    """Adds documents whose ids are above all that are there."""
    if not rows:
        return
    ids, kinds, sessions, positions, speakers, days, lengths, statuses, stale, ended, expires = zip(*rows, strict=True)
    columns = {
        "ids": ids,
        "kind": _numbers(scope.kinds, kinds),
        "session": sessions,
        "position": positions,
        "speaker": _numbers(scope.speakers, speakers),
        "day": days,
        "length": lengths,
        "status": [_STATUS.get(status, _NO_STATUS) for status in statuses],
        "stale": stale,
        "ended": [np.inf if day is None else day for day in ended],
        "expires": [np.inf if day is None else day for day in expires],
        "marks": np.zeros(len(rows)),
    }
    for name, values in columns.items():
        setattr(scope, name, joined(getattr(scope, name), values, _ARRAYS[name]))
    scope.reshaped()


def _numbers(known: list[str], names: Sequence[bytes | None]) -> list[int]:
    """Each name's number in `known`, which grows by new ones; -1 for None."""
    index: dict[bytes | None, int] = {name.encode(): number for number, name in enumerate(known)}
    index[None] = -1
    for name in dict.fromkeys(names):
        if name is not None and name not in index:
            index[name] = len(known)
            known.append(as_text(name))
    return [index[name] for name in names]


def _take_in(
    connection: sqlite3.Connection,
    place: Place,
    scope: Scope,
    changed: Sequence[int],
    known: int,
    models: Sequence[Model],
) -> None:
    if changed:
        marks = ", ".join("?" * len(changed))
        rows = _rows(connection, f"select {_COLUMNS} from document where id in ({marks}) and {place.check}", changed)
        _replace(scope, changed, rows)
    new = _rows(connection, f"select {_COLUMNS} from document where id > ? and {place.check} order by id", (known,))
    _append(scope, new)
    fresh = np.asarray([*changed, *(row[0] for row in new)], np.int64)
    for model in models:
        if model.id not in scope.vectors:
            continue  # all of them are read, in one go, by `_complete_vectors`
        add_vectors(scope, model, vectors_of(connection, model, fresh))


def _replace(scope: Scope, changed: Sequence[int], rows: Sequence[tuple[Any, ...]]) -> None:
    """Takes changed documents out, and puts those back in their place that are still there."""
    gone = scope.places(np.asarray(changed, np.int64))
    keep = np.ones(len(scope), bool)
    keep[gone] = False
    old = scope.ids
    for name in _ARRAYS:
        setattr(scope, name, getattr(scope, name)[keep])
    _append(scope, rows)
    scope.holders.clear()
    order = np.argsort(scope.ids, kind="stable")
    for name in _ARRAYS:
        setattr(scope, name, getattr(scope, name)[order])
    for vectors in scope.vectors.values():
        owners = np.append(old, -1)[vectors.owner]  # an owner of -1 takes the -1 that is put last
        owners[np.isin(owners, np.asarray(changed))] = -1
        at = np.minimum(np.searchsorted(scope.ids, owners), max(len(scope) - 1, 0))
        vectors.owner = np.where(owners >= 0, at, -1).astype(np.int64)
    scope.reshaped()


def vectors_of(connection: sqlite3.Connection, model: Model, ids: Ints) -> list[tuple[Any, ...]]:
    """(document, int8 blob) of these documents' passages; an empty blob says that there is none."""
    found: list[tuple[Any, ...]] = []
    for at in range(0, len(ids), 500):
        some = ids[at : at + 500].tolist()
        marks = ", ".join("?" * len(some))
        sql = f"select document, vector from embedding where model = ? and document in ({marks}) order by document"
        found.extend(_rows(connection, sql, (model.id, *some)))
    return found


def _complete_vectors(connection: sqlite3.Connection, place: Place, scope: Scope, models: Sequence[Model]) -> None:
    """Vectors that were made since, of documents that had none; and those of models that are new here."""
    for number in set(scope.vectors) - {model.id for model in models}:
        del scope.vectors[number]
    for model in models:
        if model.id not in scope.vectors:
            _load_vectors(connection, place, scope, model)
            continue
        there = np.zeros(len(scope), bool)
        owner = scope.vectors[model.id].owner
        there[owner[owner >= 0]] = True
        add_vectors(scope, model, vectors_of(connection, model, scope.ids[~there]))


def add_vectors(scope: Scope, model: Model, rows: Sequence[tuple[Any, ...]]) -> None:
    """Adds vectors (document id, int8 blob); an empty blob says that the document has none."""
    held = scope.vectors.get(model.id) or Vectors.empty(model.dimension, len(rows))
    scope.vectors[model.id] = held
    usable = [(id, blob) for id, blob in rows if len(blob) == model.dimension]
    owner = scope.places(np.asarray([id for id, _ in usable], np.int64))
    if len(owner) != len(usable):
        inside = set(scope.ids[owner].tolist())
        usable = [(id, blob) for id, blob in usable if id in inside]
        owner = scope.places(np.asarray([id for id, _ in usable], np.int64))
    if not usable:
        return
    steps = np.frombuffer(b"".join(blob for _, blob in usable), np.int8).reshape(len(usable), model.dimension)
    lengths = np.linalg.norm(steps.astype(np.float32), axis=1)
    held.rows = joined(held.rows, steps, np.int8)
    held.norms = joined(held.norms, np.maximum(lengths, 1), np.float32)
    held.owner = joined(held.owner, owner, np.int64)
