"""What every layer of an agent's run reads: the run itself, its turns, atoms and episodes, its cadences and marks.

Nothing here is kept in an object: a second process on the same run, or the same one after a crash, sees the same.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from istar_lite import places, tasks
from istar_lite.clock import from_text
from istar_lite.models import Atom, AtomExtractor, Episode, EpisodeClassifier, RetroClassifier, TurnRecord

if TYPE_CHECKING:
    from istar_lite.database import sqlite3
    from istar_lite.services import Services

# How many turns one call of the model looks at, as a multiple of the cadence: what piled up while no model answered
# is worked off in pieces that fit into a prompt and still read as episodes.
MOST_CADENCES_AT_ONCE = 4

_TURN_COLUMNS = "id, turn, reward, reward_unit, events, actions_taken, extra, text, occurred_at"


@dataclass(frozen=True, slots=True)
class Run:
    """A run by name: what identifies it across processes."""

    namespace: str
    name: str


class Rules(Protocol):
    """What the host brought for one run; None where it left the choice to the package."""

    run: Run
    extractor: AtomExtractor | None
    classifier: EpisodeClassifier | None
    retro: RetroClassifier | None


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a purpose has come in a run. `mark`: the last turn that is done (before the first: first turn − 1)."""

    session: int
    mark: int
    newest: int
    every: int

    def due(self, turn: int) -> bool:
        """Whether the host's step `turn` is a cadence away from what is done."""
        return turn - self.mark >= self.every


def find(connection: sqlite3.Connection, run: Run) -> int | None:
    """Id of the run's session, or None while nothing was written to it."""
    return places.find_session(connection, run.namespace, run.name, "run")


def newest_turn(connection: sqlite3.Connection, run: Run) -> tuple[int | None, int | None]:
    """The run's session and the number of its newest turn; None for what is not there yet."""
    row = connection.execute(
        "select run.id, (select max(turn) from turn where turn.session = run.id) from session as run"
        " where run.namespace = (select id from namespace where name = ?) and run.name = ? and run.kind = 'run'",
        (run.namespace, run.name),
    ).fetchone()
    return (None, None) if row is None else (row[0], row[1])


def names(connection: sqlite3.Connection, namespace: str) -> list[str]:
    """The runs of a namespace that hold turns or episodes, oldest first."""
    rows = connection.execute(
        "select session.name from session join namespace on namespace.id = session.namespace where namespace.name = ?"
        " and session.kind = 'run' and (exists (select 1 from turn where turn.session = session.id)"
        " or exists (select 1 from episode where episode.session = session.id)) order by session.id",
        (namespace,),
    )
    return [str(row[0]) for row in rows]


def owner(connection: sqlite3.Connection, session: int) -> int:
    """Id of the namespace that a session belongs to."""
    return int(connection.execute("select namespace from session where id = ?", (session,)).fetchone()[0])


def progress(connection: sqlite3.Connection, run: Run, purpose: str, cadence: str) -> Progress | None:
    """Where the run stands; `cadence` is the setting that says how often. None: it has no turns."""
    return _as_progress(connection.execute(_PROGRESS, _asked(run, purpose, cadence)).fetchone())


def due_progress(
    services: Services, connection: sqlite3.Connection, run: Run, purpose: str, cadence: str, turn: int, *, force: bool
) -> Progress | None:
    """Where the run stands, if `turn` is a cadence away from what is done and the work may be tried now."""
    found = progress(connection, run, purpose, cadence)
    if found is None or not found.due(turn):
        return None
    waiting = open_row(connection, purpose, found.session)
    return found if tasks.may_try(waiting, now=services.now(), step=turn, force=force) else None


def is_due(services: Services, run: Run, purpose: str, cadence: str, turn: int) -> bool:
    """Whether `turn` is a cadence away from what is done: a glance, since hosts ask it at every turn."""
    found = _as_progress(services.file.glance(_PROGRESS, _asked(run, purpose, cadence)))
    return found is not None and found.due(turn)


def _asked(run: Run, purpose: str, cadence: str) -> dict[str, str]:
    return {"namespace": run.namespace, "run": run.name, "purpose": purpose, "cadence": cadence}


def _as_progress(row: sqlite3.Row | None) -> Progress | None:
    if row is None or row["newest"] is None:
        return None
    mark = row["first"] - 1 if row["done"] is None else row["done"]
    return Progress(row["session"], mark, row["newest"], _positive(row["every"]))


# One statement; the watermark as in `tasks`, the setting as in `places`.
_PROGRESS = """
select run.id as session,
  (select min(turn) from turn where turn.session = run.id) as first,
  (select max(turn) from turn where turn.session = run.id) as newest,
  (select max(last) from task where task.session = run.id and purpose = :purpose and state = 'done') as done,
  coalesce(
    (select value from setting where key = :cadence and namespace = 0 and session = run.id),
    (select value from setting where key = :cadence and namespace = run.namespace and session = 0),
    (select value from setting where key = :cadence and namespace = 0 and session = 0)) as every
from session as run
where run.namespace = (select id from namespace where name = :namespace) and run.name = :run and run.kind = 'run'
"""


def cadence_of(connection: sqlite3.Connection, session: int, key: str) -> int:
    """A whole number ≥ 1 from the settings; what a hand wrote there that is none counts as 1."""
    return _positive(places.setting(connection, key, session=session))


def _positive(value: object) -> int:
    return max(1, value) if isinstance(value, int) else 1


# --- rows as models -------------------------------------------------------------------------------------------


def turn_rows(
    connection: sqlite3.Connection, session: int, *, after: int | None = None, until: int | None = None
) -> list[sqlite3.Row]:
    """Turns in order, their numbers in (after, until]. Rows compare by value: read again inside the transaction of
    a result, they tell whether its input has changed meanwhile."""
    return connection.execute(
        f"select {_TURN_COLUMNS} from turn where session = ?1 and (?2 is null or turn > ?2)"
        " and (?3 is null or turn <= ?3) order by turn",
        (session, after, until),
    ).fetchall()


def turn_before(connection: sqlite3.Connection, session: int, turn: int) -> list[sqlite3.Row]:
    """The newest turn up to `turn`: one row or none."""
    return connection.execute(
        f"select {_TURN_COLUMNS} from turn where session = ? and turn <= ? order by turn desc limit 1", (session, turn)
    ).fetchall()


def as_turn(row: sqlite3.Row) -> TurnRecord:
    """A row of `turn` as it was recorded; `text` is the line that search sees."""
    return TurnRecord.of_ours(
        {
            "turn": row["turn"],
            "reward": row["reward"],
            "reward_unit": row["reward_unit"],
            "events": json.loads(row["events"]),
            "actions_taken": json.loads(row["actions_taken"]),
            "extra": json.loads(row["extra"]),
            "text": row["text"],
            "occurred_at": from_text(row["occurred_at"]),
        }
    )


def as_turns(rows: Sequence[sqlite3.Row]) -> list[TurnRecord]:
    """`as_turn` of each."""
    return [as_turn(row) for row in rows]


def atoms(
    connection: sqlite3.Connection,
    session: int,
    *,
    status: str | None = "active",
    after: int | None = None,
    until: int | None = None,
    weightiest: int | None = None,
    newest: int | None = None,
) -> list[Atom]:
    """Atoms that are not stale: in the order of their turns, or the `weightiest` n by priority, or the `newest` n (in
    the order of their turns). `status` None is any; `after`/`until` bound the turn."""
    # Only the literal status and the order of priorities find the index of the working set; by turns, SQLite would walk
    # through all atoms that the run ever had.
    working_set = "status = 'active'" if status == "active" else "(?2 is null or status = ?2)"
    rows = connection.execute(
        "select id, key, turn, type, content, priority, status,"
        " (select json_group_array(tag) from tag where kind = 'atom' and row = atom.id) as tags"
        f" from atom where session = ?1 and {working_set} and stale = 0"
        " and (?3 is null or turn > ?3) and (?4 is null or turn <= ?4)"
        " order by priority desc, turn desc, id desc limit ?5",
        (session, status, after, until, -1 if weightiest is None else weightiest),
    ).fetchall()
    if weightiest is None:
        rows.sort(key=lambda row: (row["turn"], row["id"]))
    return [as_atom(row) for row in (rows if newest is None else rows[-newest:])]


def as_atom(row: sqlite3.Row) -> Atom:
    """A row of `atom` with its tags; `id` is the user's key."""
    return Atom.of_ours(
        {
            "id": row["key"],
            "turn": row["turn"],
            "type": row["type"],
            "content": row["content"],
            "priority": row["priority"],
            "tags": tuple(json.loads(row["tags"])) if row["tags"] != "[]" else (),
            "status": row["status"],
        }
    )


def episodes(connection: sqlite3.Connection, session: int, *, newest: int | None = None) -> list[Episode]:
    """Episodes of a run in order, those that are stale or ended left out; the `newest` n only, if given."""
    rows = connection.execute(
        "select * from episode where session = ? and status = 'active' and stale = 0"
        " order by turn_end desc, id desc limit ?",
        (session, -1 if newest is None else newest),
    ).fetchall()
    return [as_episode(row) for row in reversed(rows)]


def as_episode(row: sqlite3.Row) -> Episode:
    """A row of `episode`."""
    return Episode(**{name: row[name] for name in ("name", "turn_start", "turn_end", "narrative", "heat", "id")})


# --- work -----------------------------------------------------------------------------------------------------


def open_row(connection: sqlite3.Connection, purpose: str, session: int, detail: object = None) -> sqlite3.Row | None:
    """The task of a purpose in a run that is not done. `detail` tells apart tasks that may be open side by side
    (retrospectives for different profiles, episodes to be redone)."""
    found: sqlite3.Row | None = connection.execute(
        "select * from task where purpose = ? and session = ? and state <> 'done' and detail is ? order by id limit 1",
        (purpose, session, None if detail is None else json.dumps(detail)),
    ).fetchone()
    return found


def take(
    services: Services,
    tx: sqlite3.Connection,
    purpose: str,
    session: int,
    first: int,
    last: int,
    *,
    detail: object = None,
) -> tasks.Task | None:
    """Claims the task of a purpose (and detail) in a run, made if there is none; None while somebody works on it."""
    namespace = owner(tx, session)
    row = open_row(tx, purpose, session, detail)
    task_id = int(row["id"]) if row is not None else None
    if task_id is None:
        task_id = tasks.add(
            tx,
            purpose,
            namespace=namespace,
            session=session,
            first=first,
            last=last,
            now=services.now(),
            detail=detail,
        )
    return tasks.claim(
        services, tx, purpose, namespace=namespace, session=session, first=first, last=last, task_id=task_id
    )


def note_due(services: Services, purpose: str, session: int, first: int, last: int, *, detail: object = None) -> None:
    """A row that says work waits (nobody is there to do it), so that `status()` shows it; one is enough."""
    if services.file.read_only or open_row(services.file.reader(), purpose, session, detail) is not None:
        return
    with services.file.write() as tx:
        if open_row(tx, purpose, session, detail) is None:
            tasks.add(
                tx,
                purpose,
                namespace=owner(tx, session),
                session=session,
                first=first,
                last=last,
                now=services.now(),
                detail=detail,
            )


def rules_of(services: Services, run: Run) -> Rules | None:
    """What an open `AgentMemory` of this process brought for the run, the one with most rules of its own first."""
    with services.lock:
        known = [agent for agent in services.agents if agent.run == run]
    return max(known, key=lambda agent: _own_rules(agent), default=None)


def _own_rules(agent: Any) -> int:
    return sum(rule is not None for rule in (agent.extractor, agent.classifier, agent.retro))


def choose(services: Services, run: Run, which: str, default: Any) -> Any:
    """The rules for work that nobody's turn drives: those of an agent open in this process; the package's own for a
    run that never had others; None where the run's own are not at hand, and the work waits for them."""
    agent = rules_of(services, run)
    own = None if agent is None else getattr(agent, which)
    if own is not None:
        return own
    connection = services.file.reader()
    session = find(connection, run)
    had_own = session is not None and places.setting(connection, f"own_{which}", session=session)
    return None if had_own else default
