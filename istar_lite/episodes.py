"""L2: what a stretch of turns amounted to, written by the model.

The range of an episode is ours: all turns up to the present that no episode covers. Ranges of a run have no gaps and no
overlaps, even when calls failed: the range is read again inside the transaction of the result, which is dropped when
somebody else was faster or a turn was changed meanwhile.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from istar_lite import prompts, runs, tasks
from istar_lite.answers import EpisodeBlock, read_episode
from istar_lite.errors import BadInput
from istar_lite.extractors import RewardPhases
from istar_lite.frames import escape_frame
from istar_lite.llm import Flow
from istar_lite.models import Atom, Episode, EpisodeClassifier, EpisodePromptContext
from istar_lite.runs import Run
from istar_lite.values import as_int

if TYPE_CHECKING:
    from istar_lite.database import sqlite3
    from istar_lite.services import Services

PURPOSE = "episode"
CADENCE = "episode_every"
ATOMS_SHOWN = 25
"""At most so many atoms go into one prompt; the newest are kept."""


@dataclass(frozen=True, slots=True)
class _Due:
    """A stretch of turns that is due, as it was read. `current`: the episode before it, which it may extend; `after`:
    the last turn that is covered; `redo`: the id of the stale episode that it replaces."""

    session: int
    after: int
    rows: list[sqlite3.Row]
    atoms: list[Atom]
    current: Episode | None
    redo: int | None = None

    @property
    def first(self) -> int:
        return int(self.rows[0]["turn"])

    @property
    def last(self) -> int:
        return int(self.rows[-1]["turn"])

    @property
    def detail(self) -> object:
        return None if self.redo is None else {"redo": self.redo}


def update(
    services: Services, run: Run, classifier: EpisodeClassifier, turn: int, *, force: bool = False
) -> Flow[Episode | None]:
    """Has the model write or extend the episode of the turns up to `turn`, when that is due. None: it is not, or it
    could not be done now and stays due. `force` asks again at once after a failure."""
    step = as_int(turn, "turn")
    if not runs.is_due(services, run, PURPOSE, CADENCE, step) or services.file.read_only:
        return None
    due = _due(services, services.file.reader(), run, step, force=force)
    if due is None:
        return None
    if services.llm is None:
        runs.note_due(services, PURPOSE, due.session, due.first, due.last)
        return None
    with services.file.write() as tx:
        # Read again under the lock: two processes at the same step must not both ask the model.
        due = _due(services, tx, run, step, force=force)
        task = None if due is None else runs.take(services, tx, PURPOSE, due.session, due.first, due.last)
    if due is None or task is None:
        return None
    return (yield from tasks.attempt(services, task, _write(services, task, due, classifier), step=step))


def _due(services: Services, connection: sqlite3.Connection, run: Run, turn: int, *, force: bool) -> _Due | None:
    progress = runs.due_progress(services, connection, run, PURPOSE, CADENCE, turn, force=force)
    if progress is None:
        return None
    most = runs.MOST_CADENCES_AT_ONCE * progress.every
    rows = runs.turn_rows(connection, progress.session, after=progress.mark, until=turn)[:most]
    if not rows:
        return None
    until = int(rows[-1]["turn"])
    return _Due(
        progress.session,
        progress.mark,
        rows,
        runs.atoms(connection, progress.session, after=progress.mark, until=until, newest=ATOMS_SHOWN),
        _newest(connection, progress.session),
    )


def _newest(connection: sqlite3.Connection, session: int) -> Episode | None:
    """The run's newest episode, or None when that one is stale: what rests on it would keep alive what it said."""
    row = connection.execute(
        "select * from episode where session = ? and status = 'active' order by turn_end desc, id desc limit 1",
        (session,),
    ).fetchone()
    return None if row is None or row["stale"] else runs.as_episode(row)


def _write(services: Services, task: tasks.Task, due: _Due, classifier: EpisodeClassifier) -> Flow[Episode | None]:
    context = tasks.call_host(_context, classifier, due)
    prompt = _prompt(due, context)
    text = yield from tasks.ask(services, task, tasks.as_ask(prompt))
    block = read_episode(
        text,
        phases=context.phase_names,
        previous_narrative=due.current.narrative if due.current else None,
        example_narrative=prompt.example_texts[0],
        prompt_text=_without_current(prompt, due.current),
    )
    block = EpisodeBlock(block.name, services.stored_text(block.narrative, "narrative"))
    with services.file.write() as tx:
        _require_unchanged(tx, due)
        episode = _replace(tx, due, block) if due.redo is not None else _add(tx, due, block, services.now())
        tasks.finish(tx, task, services.now())
    return episode


def _context(classifier: EpisodeClassifier, due: _Due) -> EpisodePromptContext:
    context = classifier.build_context(runs.as_turns(due.rows), due.after)
    if not isinstance(context, EpisodePromptContext):
        raise BadInput("episode_classifier", f"gave {type(context).__name__}, not an EpisodePromptContext")
    if isinstance(context.phase_names, str) or not context.phase_names:
        raise BadInput("phase_names", "a list of at least one phase is wanted")
    return context


def _prompt(due: _Due, context: EpisodePromptContext) -> prompts.Prompt:
    current = due.current
    return prompts.episode(
        turn_start=due.first,
        turn_end=due.last,
        phases=context.phase_names,
        domain_preamble=context.domain_preamble,
        guidance=context.phase_guidance,
        context_summary=context.context_summary,
        current=(current.name, current.turn_start, current.turn_end, current.narrative) if current else None,
        atoms=[atom.content for atom in due.atoms],
    )


def _without_current(prompt: prompts.Prompt, current: Episode | None) -> str:
    """What an echo would repeat. The current narrative is not part of it: the reader compares that exactly, while an
    echo is known by its words without their numbers, and a phase that goes on is told in much the same words."""
    return prompt.text if current is None else prompt.text.replace(escape_frame(current.narrative), "")


def _require_unchanged(tx: sqlite3.Connection, due: _Due) -> None:
    """Raises `ClaimLost` when the turns are covered by now, or are no longer those that the model was told of."""
    done = tasks.watermark(tx, PURPOSE, due.session)
    covered = due.redo is None and done is not None and done != due.after
    if covered or runs.turn_rows(tx, due.session, after=due.after, until=due.last) != due.rows:
        raise tasks.ClaimLost(f"the turns {due.first} to {due.last} were covered or changed meanwhile")


def _add(tx: sqlite3.Connection, due: _Due, block: EpisodeBlock, now: str) -> Episode:
    """The same phase as the current episode extends it (a trigger keeps the former narrative), another starts one."""
    current = _newest(tx, due.session)
    occurred_at = due.rows[-1]["occurred_at"]
    if current is not None and current.name == block.name:
        tx.execute(
            "update episode set turn_end = ?, narrative = ?, occurred_at = ? where id = ?",
            (due.last, block.narrative, occurred_at, current.id),
        )
        return current.model_copy(update={"turn_end": due.last, "narrative": block.narrative})
    cursor = tx.execute(
        "insert into episode (session, name, turn_start, turn_end, narrative, occurred_at, recorded_at)"
        " values (?, ?, ?, ?, ?, ?, ?)",
        (due.session, block.name, due.first, due.last, block.narrative, occurred_at, now),
    )
    return Episode(
        id=int(cursor.lastrowid or 0),
        name=block.name,
        turn_start=due.first,
        turn_end=due.last,
        narrative=block.narrative,
    )


# --- episodes that rest on something since deleted or changed -------------------------------------------------


def redo(
    services: Services, run: Run, classifier: EpisodeClassifier, episode: int, *, force: bool = False
) -> Flow[Episode | None]:
    """Has the model write a stale episode anew from what is left of its turns; its range stays. One without any turn
    left is deleted. None: there was nothing to do, or it could not be done now and stays due."""
    if services.file.read_only:
        return None
    with services.file.write() as tx:
        due = _due_again(tx, run, episode)
        if due is None or services.llm is None:
            return None
        waiting = runs.open_row(tx, PURPOSE, due.session, due.detail)
        if not tasks.may_try(waiting, now=services.now(), force=force):
            return None
        task = runs.take(services, tx, PURPOSE, due.session, due.first, due.last, detail=due.detail)
    if task is None:
        return None
    return (yield from tasks.attempt(services, task, _write(services, task, due, classifier)))


def _due_again(tx: sqlite3.Connection, run: Run, episode: int) -> _Due | None:
    session = runs.find(tx, run)
    row = tx.execute(
        "select * from episode where id = ? and session = ? and status = 'active' and stale = 1", (episode, session)
    ).fetchone()
    if row is None or session is None:
        return None
    after, until = int(row["turn_start"]) - 1, int(row["turn_end"])
    rows = runs.turn_rows(tx, session, after=after, until=until)
    if not rows:
        tx.execute("delete from episode where id = ?", (episode,))
        return None
    atoms = runs.atoms(tx, session, after=after, until=until, newest=ATOMS_SHOWN)
    return _Due(session, after, rows, atoms, None, redo=episode)


def _replace(tx: sqlite3.Connection, due: _Due, block: EpisodeBlock) -> Episode:
    cursor = tx.execute(
        "update episode set name = ?, narrative = ?, stale = 0 where id = ? and stale = 1",
        (block.name, block.narrative, due.redo),
    )
    if cursor.rowcount != 1:
        raise tasks.ClaimLost(f"episode {due.redo} is gone or was written anew meanwhile")
    return runs.as_episode(tx.execute("select * from episode where id = ?", (due.redo,)).fetchone())


# --- work that nobody's turn drives ---------------------------------------------------------------------------


def drain(services: Services, namespace: str, *, limit: int | None = None, force: bool = False) -> Flow[int]:
    """Writes what is due in all runs of a namespace, and stale episodes anew; how many were done. A run whose own
    classifier is not at hand waits for it."""
    done = 0
    for name in runs.names(services.file.reader(), namespace):
        run = Run(namespace, name)
        classifier = runs.choose(services, run, "classifier", RewardPhases())
        if classifier is not None:
            room = None if limit is None else limit - done
            done += yield from _drain_run(services, run, classifier, room, force)
    return done


def _drain_run(
    services: Services, run: Run, classifier: EpisodeClassifier, limit: int | None, force: bool
) -> Flow[int]:
    done = 0
    for episode in _stale(services.file.reader(), run):
        if limit is None or done < limit:
            done += (yield from redo(services, run, classifier, episode, force=force)) is not None
    while limit is None or done < limit:
        newest = _may_drain(services, run, force=force)
        if newest is None or (yield from update(services, run, classifier, newest, force=True)) is None:
            break
        done += 1
    return done


def _stale(connection: sqlite3.Connection, run: Run) -> list[int]:
    rows = connection.execute(
        "select id from episode where session = ? and status = 'active' and stale = 1 order by id",
        (runs.find(connection, run),),
    )
    return [int(row[0]) for row in rows]


def _may_drain(services: Services, run: Run, *, force: bool) -> int | None:
    """The newest turn, if the clock (not the host's steps) allows a try now."""
    progress = runs.progress(services.file.reader(), run, PURPOSE, CADENCE)
    if progress is None:
        return None
    waiting = runs.open_row(services.file.reader(), PURPOSE, progress.session)
    return progress.newest if tasks.may_try(waiting, now=services.now(), force=force) else None
