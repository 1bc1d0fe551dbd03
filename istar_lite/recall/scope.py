"""The documents among which a search ranks, as columns: what the signals need, in order of document ids.

Everything that ranks counts over a scope alone (a namespace, or sessions of it), so that what others store in the same
file changes nothing. `Scope` knows no database; `loading.py` fills it and keeps it up.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt

Floats: TypeAlias = npt.NDArray[np.floating[Any]]  # whole scopes in float32: half the memory to go through
Ints: TypeAlias = npt.NDArray[np.int64]
Small: TypeAlias = npt.NDArray[np.uint8]
Flags: TypeAlias = npt.NDArray[np.bool_]

# What is read from a text once it stands a chance (bits of `Scope.marks`).
# TIMED: whether it says when was looked for, which only questions of when are worth.
KNOWN, QUESTION, NAMES, TIME, TIMED = 1, 2, 4, 8, 16
FLOATS = 4_000_000  # numbers of one matrix that are kept as float32 too
PATIENCE = 30  # products before these are made
TERMS = 64  # whose documents are kept
MANY, SPAN = 200, 8  # so many ids are looked up in a table, where the scope's ids lie at most so far apart


@dataclass
class Vectors:
    """Vectors of passages: `rows` (m, dimension), int8 steps as stored; `norms` (m,), their lengths; `owner`, the
    place in the scope that each belongs to (-1: no longer any)."""

    rows: npt.NDArray[np.int8]
    norms: npt.NDArray[np.float32]
    owner: Ints
    _floats: npt.NDArray[np.float32] | None = None
    _asked: int = 0

    def floats(self) -> npt.NDArray[np.float32] | None:
        """The rows as float32, in which they are multiplied: that saves half of a product's time. None where there are
        too many to keep both, and at first, since to make them takes as long as some thirty products save. Rows only
        ever come at the end."""
        self._asked += 1
        if self.rows.size > FLOATS or self._asked <= PATIENCE:
            self._floats = None
        elif self._floats is None:
            self._floats = self.rows.astype(np.float32)
        elif len(self._floats) < len(self.rows):
            self._floats = joined(self._floats, self.rows[len(self._floats) :], np.float32)
        return self._floats

    def forget_floats(self) -> None:
        """Lets go of what only saves time."""
        self._floats, self._asked = None, 0

    @classmethod
    def empty(cls, dimension: int, room: int = 0) -> Vectors:
        """No vectors yet, with room for some: growing by and by would take twice the memory at times."""
        return cls(np.empty((room, dimension), np.int8)[:0], np.zeros(room, np.float32)[:0], np.zeros(room, int)[:0])


def joined(old: Any, new: Iterable[Any], dtype: Any) -> Any:
    """Old and new values in one array. It lies at the head of a longer one, so that most additions copy nothing."""
    added = np.asarray(new, dtype=dtype)
    count = len(old) + len(added)
    room = old.base if isinstance(old.base, np.ndarray) and old.base.dtype == dtype else old
    if room.ndim != old.ndim or len(room) < count:
        room = np.empty((max(count, len(old) + len(old) // 4 + 16), *added.shape[1:]), dtype)
        room[: len(old)] = old
    room[len(old) : count] = added
    return room[:count]


def any_of(values: Small, wanted: Sequence[int]) -> Flags:
    """Which values are among a few: `np.isin` sorts, these compare."""
    found = np.zeros(len(values), bool)
    for one in wanted:
        found |= values == one
    return found


class Holders:
    """Which documents hold a term, of the terms that were last looked up: a conversation returns to its words, and the
    most frequent ones are those that take longest. Places stay right while documents are only added; of those added
    since, `through` tells where to go on."""

    def __init__(self) -> None:
        self._known: OrderedDict[str, tuple[int, npt.NDArray[np.int32]]] = OrderedDict()
        self._held = 0  # places in all

    def get(self, expression: str) -> tuple[int, Ints]:
        """The newest id among which was looked, and the places found; 0 and none where that was never done."""
        through, places = self._known.pop(expression, (0, _NOWHERE))
        if through:
            self._known[expression] = (through, places)  # now the last
        return through, places.astype(np.int64)

    def put(self, expression: str, through: int, places: Ints, room: int) -> None:
        """Keeps what was found up to the id `through`, `room` places in all: what was asked longest ago goes first."""
        _, before = self._known.pop(expression, (0, _NOWHERE))
        self._known[expression] = (through, places.astype(np.int32))
        self._held += len(places) - len(before)
        while len(self._known) > 1 and (self._held > room or len(self._known) > TERMS):
            _, (_, gone) = self._known.popitem(last=False)
            self._held -= len(gone)

    def clear(self) -> None:
        """To be called when documents changed or went."""
        self._known.clear()
        self._held = 0


_NOWHERE: Final = np.zeros(0, np.int32)


@dataclass
class Scope:
    """`n` documents. Times are Julian days; a missing one is infinite. `session` 0: none."""

    ids: Ints
    kind: Small  # index into `kinds`
    session: Ints
    position: Ints
    speaker: npt.NDArray[np.int32]  # index into `speakers`, -1: none
    day: Floats
    length: npt.NDArray[np.float32]  # characters
    status: Small  # index into request.STATUSES
    stale: Flags
    ended: Floats
    expires: Floats
    kinds: list[str] = field(default_factory=list)
    speakers: list[str] = field(default_factory=list)
    partial: bool = False  # documents between these are left out: only equal or following positions are neighbours
    state: tuple[int, int] = (0, 0)  # the file's newest document and change that are known here
    holders: Holders = field(default_factory=Holders)
    marks: Small = field(default_factory=lambda: np.zeros(0, np.uint8))
    vectors: dict[int, Vectors] = field(default_factory=dict)  # by id of embedding_model
    floors: dict[int, tuple[float, float]] = field(default_factory=dict)  # see floor.py
    _links: tuple[Ints, Ints] | None = None
    _second_after: Ints | None = None
    _groups: Ints | None = None
    _speaking: Flags | None = None
    _table: npt.NDArray[np.int32] | None = None

    def __len__(self) -> int:
        return len(self.ids)

    def places(self, ids: Ints) -> Ints:
        """Places of documents by their ids; those that are not in the scope are left out."""
        if not len(self.ids):
            return np.zeros(0, np.int64)
        if len(ids) > MANY and self.ids[-1] - self.ids[0] < SPAN * len(self.ids):
            return self._places_of_many(ids)
        at = np.minimum(np.searchsorted(self.ids, ids), len(self.ids) - 1)
        return np.asarray(at[self.ids[at] == ids], dtype=np.int64)

    def _places_of_many(self, ids: Ints) -> Ints:
        """By a table of the ids that the scope spans: a sixth of the time of searching for each."""
        first = int(self.ids[0])
        if self._table is None:
            self._table = np.full(int(self.ids[-1]) - first + 2, -1, np.int32)  # the last stands for all others
            self._table[self.ids - first] = np.arange(len(self.ids), dtype=np.int32)
        others = len(self._table) - 1
        at = np.asarray(ids) - first
        at[(at < 0) | (at > others)] = others
        found = self._table[at]
        if found.min(initial=0) < 0:
            found = found[found >= 0]
        return found.astype(np.int64)

    def links(self) -> tuple[Ints, Ints]:
        """For each document the places of the one before and the one after it in its session (-1: none): turns
        follow turns, messages messages."""
        if self._links is None:
            self._links = self._find_links()
        return self._links

    def second_after(self) -> Ints:
        """The place of the document after the one after each (-1: none)."""
        if self._second_after is None:
            _, after = self.links()
            self._second_after = np.append(after, -1)[after]
        return self._second_after

    def speaking(self) -> Flags:
        """Which documents can be found at all: one without text (a hidden thought, an item that is not indexed) says
        nothing; a stale one says what may have been forgotten, whatever its status is."""
        if self._speaking is None:
            self._speaking = (self.length > 0) & ~self.stale
        return self._speaking

    def of_kinds(self, kinds: Sequence[str]) -> Flags:
        """Which documents are of some kinds."""
        return any_of(self.kind, [at for at, kind in enumerate(self.kinds) if kind in kinds])

    def groups(self) -> Ints:
        """A number per document: equal for those of one session; a document of no session is a session of its own."""
        if self._groups is None:
            keys = np.where(self.session > 0, self.session, -1 - np.arange(len(self)))
            order = np.argsort(keys, kind="stable")
            numbers = np.append(0, keys[order[1:]] != keys[order[:-1]])[: len(self)].cumsum()
            self._groups = np.empty(len(self), np.int64)  # `np.unique` would say the same, but imports numpy.ma: 15 ms
            self._groups[order] = numbers
        return self._groups

    def reshaped(self) -> None:
        """To be called when documents came, went or moved: links and groups are found again when needed."""
        self._links = None
        self._second_after = None
        self._groups = None
        self._speaking = None
        self._table = None

    def _find_links(self) -> tuple[Ints, Ints]:
        before = np.full(len(self), -1, np.int64)
        after = np.full(len(self), -1, np.int64)
        order = np.lexsort((self.ids, self.position, self.session, self.kind))
        first, second = order[:-1], order[1:]
        same = (self.session[first] == self.session[second]) & (self.kind[first] == self.kind[second])
        same &= self.session[first] > 0
        if self.partial:
            same &= self.position[second] - self.position[first] <= 1
        before[second[same]] = first[same]
        after[first[same]] = second[same]
        return before, after
