"""Two files become one: everything of the other file comes in, once, however often it is merged and in which order.

All of it happens in one transaction. The other file is only read, as of one moment. The content of live rows does not
depend on which file was merged into which; ids, and the names that colliding runs get, do.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from istar_lite import exporting
from istar_lite.clock import from_text
from istar_lite.database import File, absolute_path
from istar_lite.driver import sqlite3, translate
from istar_lite.errors import BadInput
from istar_lite.merging.conversations import bring_conversations
from istar_lite.merging.doors import bring_files, bring_items
from istar_lite.merging.places import bring_namespaces, bring_sessions, bring_settings
from istar_lite.merging.runs import bring_profiles, bring_runs
from istar_lite.merging.state import State, fetch
from istar_lite.merging.statements import bring_memories
from istar_lite.merging.work import bring_links, bring_tombstones, bring_trail, bring_vectors, bring_work
from istar_lite.migrations import inspect_file
from istar_lite.models import Difference, Merged
from istar_lite.text import normalise

if TYPE_CHECKING:
    from istar_lite.services import Services

Progress = Callable[[int, int], None]

_STEPS: tuple[Callable[[State], None], ...] = (
    bring_namespaces,
    bring_tombstones,
    bring_sessions,
    bring_settings,
    bring_runs,
    bring_conversations,
    bring_memories,
    bring_profiles,
    bring_files,
    bring_items,
    bring_links,
    bring_work,
    bring_trail,
    State.write_endings,
)


def merge(services: Services, other: str | os.PathLike[str], *, on_progress: Progress | None = None) -> Merged:
    """Brings everything of the file (or export) `other` in; see `Memory.merge`."""
    with opened(services.file, other) as there, there.reading() as source, services.file.write() as tx:
        state = State(services, tx, source, services.now())
        for at, step in enumerate(_STEPS):
            if on_progress is not None:
                on_progress(at, len(_STEPS) + 1)
            step(state)
        pending = bring_vectors(state)
        if on_progress is not None:
            on_progress(len(_STEPS) + 1, len(_STEPS) + 1)
    return Merged(
        added={kind: count for kind, count in state.added.items() if count},
        met={kind: count for kind, count in state.both.items() if count},
        refused=state.refused,
        removed=state.removed,
        renamed=tuple(state.renamed),
        pending_vectors=pending,
    )


@contextlib.contextmanager
def opened(file: File, other: str | os.PathLike[str]) -> Iterator[File]:
    """The other file, opened for reading: an export is loaded, an older file brought up to date, in a copy."""
    path = absolute_path(other)
    if not path.exists():
        raise BadInput("path", f"{path} does not exist")
    if path.exists() and file.path.exists() and os.path.samefile(path, file.path):
        raise BadInput("path", f"{path} is this very file")
    with contextlib.ExitStack() as stack:
        if exporting.is_export(path):
            path = stack.enter_context(exporting.as_file(path))
        elif inspect_file(path) == "old":
            path = stack.enter_context(_copy(path))
            File(path).close()
        there = File(path, read_only=True)
        stack.callback(there.close)
        yield there


@contextlib.contextmanager
def _copy(path: Path) -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="istar-lite-") as folder:
        copy = Path(folder) / "other.db"
        try:
            with contextlib.closing(sqlite3.connect(path.as_uri() + "?mode=ro", uri=True)) as connection:
                connection.execute("vacuum into cast(? as text)", (os.fsencode(copy),))
        except sqlite3.DatabaseError as error:
            raise translate(error, path) from error
        yield copy


# --- diff -----------------------------------------------------------------------------------------------------

# What is compared of a row that both files have, beside what makes it the same row.
_COMPARED = {
    "turn": "reward, reward_unit, events, actions_taken, extra",
    "atom": "priority, status",
    "episode": "heat, status, stale",
    "profile": "status, stale",
    "message": "parts, external_id",
    "memory": "importance, emotion, status, expires_at, mention_count, stale",
    "observation": "stage, status, stale",
    "reflection": "stage, status, stale",
    "file": "path, status",
    "item": "value, indexed, ttl_minutes",
}


def diff(file: File, other: str | os.PathLike[str]) -> tuple[Difference, ...]:
    """Rows that only one of the files has, and rows that both have but differ; see `Memory.diff`."""
    found: list[Difference] = []
    with opened(file, other) as there, there.reading() as theirs, file.reading() as ours:
        for kind, fields in _COMPARED.items():
            here, away = _by_key(ours, kind, fields), _by_key(theirs, kind, fields)
            for key in sorted(here.keys() | away.keys(), key=repr):
                found += _difference(kind, fields, here.get(key), away.get(key))
    return tuple(found)


@dataclass(frozen=True, slots=True)
class _Seen:
    namespace: str
    session: str | None
    text: str
    occurred_at: str
    fields: tuple[object, ...]


_Key = tuple[object, ...]


def _by_key(connection: sqlite3.Connection, kind: str, fields: str) -> dict[_Key, _Seen]:
    known: dict[_Key, _Seen] = {}
    names = dict(connection.execute("select id, name from namespace").fetchall())
    sessions = dict(connection.execute("select id, name from session").fetchall())
    rows = {row["id"]: row for row in fetch(connection, kind)}
    ordinals: Counter[_Key] = Counter()
    for document in connection.execute("select * from document where kind = ? order by row", (kind,)).fetchall():
        seen = _Seen(
            names[document["namespace"]],
            sessions.get(document["session"]),
            document["text"],
            document["occurred_at"],
            tuple(rows[document["row"]][name.strip()] for name in fields.split(",")),
        )
        key = (seen.namespace, seen.session, seen.occurred_at, normalise(seen.text))
        ordinals[key] += 1
        known[(*key, ordinals[key])] = seen
    return known


def _difference(kind: str, fields: str, ours: _Seen | None, theirs: _Seen | None) -> list[Difference]:
    where: Literal["here", "there", "both"] = "here" if theirs is None else "there" if ours is None else "both"
    changed: tuple[str, ...] = ()
    one = ours or theirs
    assert one is not None
    if ours is not None and theirs is not None:
        names = [name.strip() for name in fields.split(",")]
        pairs = zip(names, ours.fields, theirs.fields, strict=True)
        changed = tuple(name for name, a, b in pairs if a != b)
        if not changed:
            return []
    return [
        Difference(
            where=where,
            kind=kind,
            namespace=one.namespace,
            session=one.session,
            text=one.text,
            occurred_at=from_text(one.occurred_at),
            fields=changed,
        )
    ]
