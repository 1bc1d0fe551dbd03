"""The documents among which a search ranks, as columns: what the signals need, in order of document ids.

Everything that ranks counts over a scope alone (a namespace, or sessions of it), so that what others store in the same
file changes nothing. `Scope` knows no database; `loading.py` fills it and keeps it up.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

Floats: TypeAlias = npt.NDArray[np.floating[Any]]  # whole scopes in float32: half the memory to go through
Ints: TypeAlias = npt.NDArray[np.int64]
Small: TypeAlias = npt.NDArray[np.uint8]
Flags: TypeAlias = npt.NDArray[np.bool_]

# What is read from a text once it stands a chance (bits of `Scope.marks`).
KNOWN, QUESTION, NAMES, TIME = 1, 2, 4, 8


@dataclass
class Vectors:
    """Vectors of passages: `rows` (m, dimension), int8 steps as stored (a quarter of float32, and as fast);
    `norms` (m,), their lengths; `owner`, the place in the scope that each belongs to (-1: no longer any)."""

    rows: npt.NDArray[np.int8]
    norms: npt.NDArray[np.float32]
    owner: Ints

    @classmethod
    def empty(cls, dimension: int, room: int = 0) -> Vectors:
        """No vectors yet, with room for some: growing by and by would take twice the memory at times."""
        return cls(np.empty((room, dimension), np.int8)[:0], np.zeros(room, np.float32)[:0], np.zeros(room, int)[:0])


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
    marks: Small = field(default_factory=lambda: np.zeros(0, np.uint8))
    vectors: dict[int, Vectors] = field(default_factory=dict)  # by id of embedding_model
    floors: dict[int, tuple[float, float]] = field(default_factory=dict)  # see floor.py
    _links: tuple[Ints, Ints] | None = None
    _second_after: Ints | None = None
    _groups: Ints | None = None
    _speaking: Flags | None = None

    def __len__(self) -> int:
        return len(self.ids)

    def places(self, ids: Ints) -> Ints:
        """Places of documents by their ids; those that are not in the scope are left out."""
        if not len(self.ids):
            return np.zeros(0, np.int64)
        at = np.minimum(np.searchsorted(self.ids, ids), len(self.ids) - 1)
        return np.asarray(at[self.ids[at] == ids], dtype=np.int64)

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
