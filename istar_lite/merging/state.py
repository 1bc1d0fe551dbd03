"""What one merge knows: both files, which row there is which row here, and how rows come in.

Rows meet by what they are, not by their ids: namespace, session, kind, event time, normalised text, and the ordinal
among equals. A row that meets none is inserted; ids in every column are those of this file.
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from istar_lite import tombstones
from istar_lite.database import insert_rows
from istar_lite.text import normalise
from istar_lite.values import as_text

if TYPE_CHECKING:
    from istar_lite.database import sqlite3
    from istar_lite.services import Services

Values = dict[str, Any]
Key = tuple[Any, ...]
LIVE = "active"

# Text of each kind, as people wrote it: what is compared, and what a redaction sees.
TEXT = {
    "turn": ("text",),
    "atom": ("content",),
    "episode": ("narrative",),
    "episode_history": ("narrative",),
    "profile": ("text",),
    "profile_rule": ("condition", "action"),
    "message": ("content",),
    "memory": ("text",),
    "observation": ("text", "current_task", "suggested_response"),
    "reflection": ("text",),
    "recall": ("query",),
    "file": ("text",),
    "item": ("text",),
}
JSON = {"turn": ("events", "actions_taken", "extra"), "message": ("parts",), "item": ("value",)}


@dataclass
class State:
    """One merge inside its transaction. `ids[kind]` maps ids there to ids here; `met[kind]` holds the ids here that
    both files have, `new[kind]` those that were inserted."""

    services: Services
    tx: sqlite3.Connection
    there: sqlite3.Connection
    now: str
    ids: dict[str, dict[int, int]] = field(default_factory=lambda: defaultdict(dict))
    met: dict[str, set[int]] = field(default_factory=lambda: defaultdict(set))
    new: dict[str, set[int]] = field(default_factory=lambda: defaultdict(set))
    added: Counter[str] = field(default_factory=Counter)
    both: Counter[str] = field(default_factory=Counter)
    refused: int = 0
    removed: int = 0
    renamed: list[tuple[str, str]] = field(default_factory=list)
    endings: list[tuple[str, int, str, Values]] = field(default_factory=list)
    told_again: set[tuple[Any, ...]] = field(default_factory=set)  # tombstones of the other file
    _tombstoned: dict[int, bool] = field(default_factory=dict)

    def rows(self, table: str, condition: str = "1", values: Iterable[Any] = ()) -> list[Values]:
        """Rows of the other file, in the order of their ids, redacted as this file wants it."""
        return [self._redacted(table, row) for row in fetch(self.there, table, condition, values)]

    def here(self, table: str, condition: str = "1", values: Iterable[Any] = ()) -> list[Values]:
        """Rows of this file, in the order of their ids."""
        return fetch(self.tx, table, condition, values)

    def _redacted(self, table: str, row: Values) -> Values:
        redact = self.services.redact
        if redact is None:
            return row
        for column in TEXT.get(table, ()):
            if row[column] is not None:
                row[column] = as_text(redact(row[column]), "redact", blank=True)
        for column in JSON.get(table, ()):
            if row[column] is not None:
                row[column] = json.dumps(_walk(json.loads(row[column]), redact), ensure_ascii=False)
        return row

    def is_forgotten(self, namespace: int, kind: str, text: str) -> bool:
        """Whether this file forgot the text (told as a memory: whatever it was then). The other file's own tombstones
        say nothing: what it holds beside them was told there after it was forgotten."""
        known = self._tombstoned.get(namespace)
        if known is None:
            known = self._tombstoned[namespace] = tombstones.any_in(self.tx, namespace)
        if not known:
            return False
        found = tombstones.of(self.tx, namespace, text, None if kind == "memory" else kind)
        return any((namespace, *one) not in self.told_again for one in found)

    def bring(
        self,
        kind: str,
        theirs: Iterable[Values],
        ours: Iterable[Values],
        key: Callable[[Values], Key],
        change: Callable[[Values, Values], Values] | None = None,
    ) -> None:
        """Rows of one kind: `theirs` already with the ids of this file in all columns but `id`. Equals are told apart
        by their ordinal. `change(ours, theirs)` gives the columns of a row that both have, as they are to be."""
        known: dict[Key, list[Values]] = defaultdict(list)
        for row in ours:
            known[key(row)].append(row)
        ordinals: Counter[Key] = Counter()
        new: list[Values] = []
        for row in theirs:
            name = key(row)
            equals = known.get(name, [])
            at = ordinals[name]
            ordinals[name] += 1
            if at < len(equals):
                self._meet(kind, equals[at], row, change)
            else:
                new.append(row)
        self.insert_all(kind, new)

    def _meet(self, kind: str, ours: Values, theirs: Values, change: Callable[[Values, Values], Values] | None) -> None:
        self.ids[kind][theirs["id"]] = ours["id"]
        self.met[kind].add(ours["id"])
        self.both[kind] += 1
        wanted = {} if change is None else change(ours, theirs)
        if "status" in ours:
            wanted |= self._ended(kind, ours, theirs)
        self.update(kind, ours, wanted)

    def _ended(self, kind: str, ours: Values, theirs: Values) -> Values:
        """What ended in one file has ended; in both, at the earlier time. A memory that is live in one file does not
        end by one that is nowhere any more: of a statement and its correction one stays."""
        if theirs["status"] == LIVE and kind == "memory" and self._ended_by_nothing(ours):
            return {"status": LIVE, "ended_at": None, "ended_by": None}
        if theirs["status"] == LIVE or theirs["ended_at"] is None:
            return {}
        if ours["status"] != LIVE and (ours["ended_at"] or "") <= theirs["ended_at"]:
            return {}
        ended = {"status": theirs["status"], "ended_at": theirs["ended_at"]}
        self.endings.append((kind, ours["id"], theirs["ended_by"] or "", ended))
        return {} if kind == "memory" else ended

    def _ended_by_nothing(self, memory: Values) -> bool:
        kind, _, number = (memory["ended_by"] or "").partition(" ")
        return kind == "memory" and number.isdigit() and not self.here("memory", "id = ?", (int(number),))

    def update(self, kind: str, ours: Values, wanted: Values) -> None:
        """Writes the columns that differ."""
        changed = {name: value for name, value in wanted.items() if ours[name] != value}
        if changed:
            sets = ", ".join(f"{name} = ?" for name in changed)
            self.tx.execute(f"update {kind} set {sets} where id = ?", (*changed.values(), ours["id"]))

    def insert(self, kind: str, row: Values) -> int:
        """A row of the other file as a new one of this file; gives its id."""
        self.insert_all(kind, [row])
        return self.ids[kind][row["id"]]

    def insert_all(self, kind: str, rows: Sequence[Values]) -> None:
        """Rows of the other file, all with the same columns, as new ones of this file."""
        if not rows:
            return
        columns = [name for name in rows[0] if name != "id"]
        # What a row ended by is written when that one has its id too.
        values = [[None if name == "ended_by" and row[name] else row[name] for name in columns] for row in rows]
        for row, new in zip(rows, insert_rows(self.tx, kind, ", ".join(columns), values), strict=True):
            self.ids[kind][row["id"]] = new
            self.new[kind].add(new)
            if row.get("ended_by"):
                self.endings.append((kind, new, row["ended_by"], {}))
        self.added[kind] += len(rows)

    def write_endings(self) -> None:
        """`ended_by` names a row ("memory 3"): written when all rows have their ids here. `memory 0`, which is no row,
        where that one did not come: the next merge has to know that it was there."""
        for kind, row, text, ended in self.endings:
            named = self.named(text)
            if kind == "memory" and text and named is None:
                if ended:
                    continue
                named = "memory 0"
            sets = "".join(f", {name} = ?" for name in ended)
            self.tx.execute(f"update {kind} set ended_by = ?{sets} where id = ?", (named, *ended.values(), row))
        self.endings.clear()

    def named(self, text: str) -> str | None:
        """ "memory 3" of the other file as it is called here; None where that row did not come."""
        kind, _, number = text.partition(" ")
        if not number.isdigit():
            return text or None
        found = self.ids[kind].get(int(number))
        return None if found is None else f"{kind} {found}"

    def mapped(self, kind: str, identity: int | None) -> int | None:
        """The id here of a row there; None for none, and for one that did not come."""
        return None if identity is None else self.ids[kind].get(identity)


def fetch(connection: sqlite3.Connection, table: str, condition: str = "1", values: Iterable[Any] = ()) -> list[Values]:
    """Rows as dicts, in the order of their ids."""
    rows = connection.execute(f"select * from {table} where {condition} order by rowid", tuple(values))
    return [dict(zip(row.keys(), row, strict=True)) for row in rows.fetchall()]


def _walk(held: Any, redact: Callable[[str], str]) -> Any:
    if isinstance(held, str):
        return as_text(redact(held), "redact", blank=True)
    if isinstance(held, list):
        return [_walk(item, redact) for item in held]
    if isinstance(held, dict):
        return {_walk(name, redact): _walk(item, redact) for name, item in held.items()}
    return held


def said(row: Values, column: str) -> Key:
    """When, and what it says."""
    return (row["occurred_at"], normalise(row[column] or ""))


def earlier(a: str | None, b: str | None) -> str | None:
    """The earlier of two stored times."""
    return min((value for value in (a, b) if value is not None), default=None)


def later(a: str | None, b: str | None) -> str | None:
    """The later of two stored times."""
    return max((value for value in (a, b) if value is not None), default=None)


def first_recorded(ours: Values, theirs: Values) -> Values:
    """The earlier date of learning."""
    return {"recorded_at": earlier(ours["recorded_at"], theirs["recorded_at"])}
