"""L1: what stood out, found by the host's own rules in a window of turns. No model; eviction is the file's business.

Cadence, watermark, retries and what the rules want to remember between two windows are in the file, written in the
transaction of the atoms: whatever process dies where, no turn is skipped and none is looked at twice.
"""

from __future__ import annotations

import copy
import hashlib
import json
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from istar_lite import places, runs, tasks, tombstones
from istar_lite.database import insert_rows
from istar_lite.errors import BadInput
from istar_lite.extractors import default_extractor
from istar_lite.llm import Flow
from istar_lite.models import Atom, AtomExtractor, TurnRecord
from istar_lite.runs import Run
from istar_lite.values import as_int, as_name, as_real, to_json

if TYPE_CHECKING:
    from istar_lite.database import sqlite3
    from istar_lite.services import Services

PURPOSE = "atoms"
CADENCE = "extract_every"
_STATE = "extractor_state"  # the setting of a run that holds `Window.state`


def atom_id(turn: int, tag: str) -> str:
    """The key of an atom that brings none: the first 12 hex digits of the MD5 of `"{turn}_{tag}"`."""
    return hashlib.md5(f"{turn}_{tag}".encode("utf-8", "replace"), usedforsecurity=False).hexdigest()[:12]


class Window(list[TurnRecord]):
    """Turns for an extractor. The first `context` of them (0 or 1) were seen before: the last one is shown again so
    that a change between two windows is not missed. `state`: what the rules want to remember from one window to the
    next, a dict of JSON's types; it is kept in the file together with the atoms, and not when the rules raise."""

    def __init__(self, turns: Iterable[TurnRecord], *, context: int = 0, state: dict[str, Any] | None = None) -> None:
        super().__init__(turns)
        self.context = context
        self.state: dict[str, Any] = {} if state is None else state


@dataclass(frozen=True, slots=True)
class _Due:
    """A window that is due, as it was read. `seen`: the turn shown again, if any."""

    progress: runs.Progress
    seen: list[sqlite3.Row]
    rows: list[sqlite3.Row]
    existing: list[Atom]
    state: str | None


@dataclass(frozen=True, slots=True)
class _Found:
    """What an extractor found, checked whole before anything is written."""

    atoms: list[Atom]
    state: str | None


def extract(services: Services, run: Run, extractor: AtomExtractor, turn: int, *, force: bool = False) -> list[Atom]:
    """Runs the extractor over all turns up to `turn` not yet seen, when that is due. Returns the atoms that were
    new, each with its status after eviction. `force` asks a failed window again at once."""
    step = as_int(turn, "turn")
    if not runs.is_due(services, run, PURPOSE, CADENCE, step) or services.file.read_only:
        return []
    with services.file.reading() as connection:
        due = _due(services, connection, run, step, force=force)
    if due is None:
        return []
    try:
        found = tasks.call_host(_find, services, extractor, due)
    except tasks.CallFailed as error:
        cause = error.__cause__ or error
        _keep(services, due, cause, step)
        if services.on_error == "raise":
            raise cause from None
        return []
    return _write(services, due, found)


def _due(services: Services, connection: sqlite3.Connection, run: Run, turn: int, *, force: bool) -> _Due | None:
    progress = runs.due_progress(services, connection, run, PURPOSE, CADENCE, turn, force=force)
    if progress is None:
        return None
    rows = runs.turn_rows(connection, progress.session, after=progress.mark, until=turn)
    if not rows:
        return None
    return _Due(
        progress,
        runs.turn_before(connection, progress.session, progress.mark),
        rows,
        runs.atoms(connection, progress.session),
        _state(connection, progress.session),
    )


def _state(connection: sqlite3.Connection, session: int) -> str | None:
    row = connection.execute("select value from setting where key = ? and session = ?", (_STATE, session)).fetchone()
    return None if row is None else str(row[0])


def _find(services: Services, extractor: AtomExtractor, due: _Due) -> _Found:
    state = json.loads(due.state) if due.state else {}
    turns = runs.as_turns([*due.seen, *due.rows])
    window = Window(turns, context=len(due.seen), state=copy.deepcopy(state))
    atoms = _checked(services, extractor.extract(window, list(due.existing)))
    changed = window.state != state
    return _Found(atoms, to_json(window.state, "state") if changed else due.state)


def _checked(services: Services, answer: object) -> list[Atom]:
    """The atoms of an answer as they may be stored; `BadInput` for what is no list of sound atoms."""
    if answer is None:
        return []
    if isinstance(answer, (str, bytes, dict)) or not isinstance(answer, Iterable):
        raise BadInput("atoms", f"an extractor gives a list of atoms, not {type(answer).__name__}")
    by_key: dict[str, Atom] = {}
    for at, item in enumerate(answer):
        if not isinstance(item, Atom):
            raise BadInput(f"atoms[{at}]", f"an Atom is wanted, not {type(item).__name__}")
        atom = _stored(services, item, by_key)
        if by_key.setdefault(atom.id or "", atom).content != atom.content:
            raise BadInput(f"atoms[{at}]", f"the key {atom.id!r} is given to two different atoms")
    return list(by_key.values())


def _stored(services: Services, atom: Atom, taken: dict[str, Atom]) -> Atom:
    """The atom as it may be stored, with its key."""
    turn, kind = as_int(atom.turn, "turn"), services.stored_text(atom.type, "type")
    content = services.stored_text(atom.content, "content")
    return Atom.of_ours(
        {
            "id": _free_key(taken, turn, kind, content) if atom.id is None else as_name(atom.id, "id"),
            "turn": turn,
            "type": kind,
            "content": content,
            "priority": as_real(atom.priority, "priority", low=0, high=100),
            "tags": services.stored_tags(atom.tags) if atom.tags else (),
            "status": "active",
        }
    )


def _free_key(taken: dict[str, Atom], turn: int, kind: str, content: str) -> str:
    """The key made from turn and type; two atoms of one type in one turn would share it, so the later is numbered
    (unless it says the same)."""
    key, number = atom_id(turn, kind), 1
    while key in taken and taken[key].content != content:
        number += 1
        key = atom_id(turn, f"{kind}_{number}")
    return key


def _keep(services: Services, due: _Due, error: BaseException, turn: int) -> None:
    """The window stays due: tried again after 1, 2, 4 … 16 turns, told in `status()`."""
    with services.file.write() as tx:
        task = _take(services, tx, due) if _is_unchanged(tx, due) else None
        if task is not None:
            tasks.fail(services, task, error, step=turn)


def _is_unchanged(tx: sqlite3.Connection, due: _Due) -> bool:
    """False when somebody else has moved the watermark meanwhile, or a turn that was read has been changed or
    deleted: then what was found is dropped, and the next step looks again."""
    session, rows = due.progress.session, due.rows
    done = tasks.watermark(tx, PURPOSE, session)
    if done is not None and done != due.progress.mark:
        return False
    return runs.turn_rows(tx, session, after=due.progress.mark, until=int(rows[-1]["turn"])) == rows


def _take(services: Services, tx: sqlite3.Connection, due: _Due) -> tasks.Task | None:
    first, last = int(due.rows[0]["turn"]), int(due.rows[-1]["turn"])
    return runs.take(services, tx, PURPOSE, due.progress.session, first, last)


def _mark_done(services: Services, tx: sqlite3.Connection, due: _Due, now: str) -> bool:
    """Moves the watermark: a row that failed before is finished, else one is written. False: another has it."""
    session = due.progress.session
    if runs.open_row(tx, PURPOSE, session) is not None:
        task = _take(services, tx, due)
        if task is not None:
            tasks.finish(tx, task, now)
        return task is not None
    first, last = int(due.rows[0]["turn"]), int(due.rows[-1]["turn"])
    owner = runs.owner(tx, session)
    tasks.record_done(tx, PURPOSE, namespace=owner, session=session, first=first, last=last, now=now)
    return True


def _write(services: Services, due: _Due, found: _Found) -> list[Atom]:
    now = services.now()
    session = due.progress.session
    with services.file.write() as tx:
        if not _is_unchanged(tx, due) or not _mark_done(services, tx, due, now):
            return []
        new = _not_held(tx, session, _not_forgotten(tx, session, found.atoms))
        _insert(tx, session, new, _Times(due), now)
        if found.state != due.state:
            places.set_setting(tx, _STATE, found.state, session=session)
        return _as_kept(tx, session, new)


def _not_forgotten(tx: sqlite3.Connection, session: int, found: Sequence[Atom]) -> Sequence[Atom]:
    owner = runs.owner(tx, session)
    if not found or not tombstones.any_in(tx, owner):
        return found
    return [atom for atom in found if not tombstones.is_forgotten(tx, owner, atom.content)]


class _Times:
    """When an atom came to be: at its turn, else at the last one before it, else at the end of the window."""

    def __init__(self, due: _Due) -> None:
        rows = [*due.seen, *due.rows]
        self._turns = [row["turn"] for row in rows]
        self._times = [str(row["occurred_at"]) for row in rows]

    def of(self, turn: int) -> str:
        return self._times[bisect_right(self._turns, turn) - 1]  # -1, the last one, when it lies before all


_BY_KEY = "from atom where session = ? and key in (select value from json_each(?))"


def _keys(atoms: Sequence[Atom]) -> str:
    return json.dumps([atom.id for atom in atoms])


def _not_held(tx: sqlite3.Connection, session: int, atoms: Sequence[Atom]) -> Sequence[Atom]:
    """Those whose keys the run does not hold: repeating one changes nothing."""
    held = {row[0] for row in tx.execute(f"select key {_BY_KEY}", (session, _keys(atoms)))} if atoms else ()
    return [atom for atom in atoms if atom.id not in held]


def _insert(tx: sqlite3.Connection, session: int, atoms: Sequence[Atom], times: _Times, now: str) -> None:
    columns = "session, key, turn, type, content, priority, occurred_at, recorded_at"
    rows = [
        (session, atom.id, atom.turn, atom.type, atom.content, atom.priority, times.of(atom.turn), now)
        for atom in atoms
    ]
    insert_rows(tx, "atom", columns, rows)
    # An atom may be gone again: evicted at once, in a run that deletes what it evicts.
    tx.executemany(
        "insert into tag (kind, row, tag) select 'atom', id, ? from atom where session = ? and key = ?",
        ((tag, session, atom.id) for atom in atoms for tag in atom.tags),
    )


def _as_kept(tx: sqlite3.Connection, session: int, new: Sequence[Atom]) -> list[Atom]:
    """The new atoms with the status that eviction has left them; those it deleted are evicted too."""
    kept = dict(tx.execute(f"select key, status {_BY_KEY}", (session, _keys(new))).fetchall()) if new else {}
    evicted = {"status": "evicted"}
    return [atom if kept.get(atom.id) == atom.status else atom.model_copy(update=evicted) for atom in new]


def drain(services: Services, namespace: str, *, limit: int | None = None, force: bool = False) -> Flow[int]:
    """Extracts what is due in all runs of a namespace; how many windows were done. A run whose own rules are not at
    hand waits for them: other rules would use up its turns. (A flow that asks no model, like its siblings.)"""
    yield from ()
    done = 0
    for name in runs.names(services.file.reader(), namespace):
        if limit is not None and done >= limit:
            break
        run = Run(namespace, name)
        extractor = runs.choose(services, run, "extractor", default_extractor())
        if extractor is not None:
            done += _drain_run(services, run, extractor, force=force)
    return done


def _drain_run(services: Services, run: Run, extractor: AtomExtractor, *, force: bool) -> bool:
    before = runs.progress(services.file.reader(), run, PURPOSE, CADENCE)
    if before is None:
        return False
    waiting = runs.open_row(services.file.reader(), PURPOSE, before.session)
    if not tasks.may_try(waiting, now=services.now(), force=force):
        return False
    extract(services, run, extractor, before.newest, force=True)
    after = runs.progress(services.file.reader(), run, PURPOSE, CADENCE)
    return after is not None and after.mark > before.mark
