"""Claims of the layer: at most one observer and one reflector at work per session, whatever process they run in."""

from __future__ import annotations

from typing import TYPE_CHECKING

from istar_lite import tasks
from istar_lite.observations import rows

if TYPE_CHECKING:
    from istar_lite.database import sqlite3
    from istar_lite.services import Services


def open_tasks(connection: sqlite3.Connection, session: int, purpose: str) -> list[sqlite3.Row]:
    """Work of a purpose in a session that is not done, oldest first."""
    return connection.execute(
        "select * from task where purpose = ? and session = ? and state <> 'done' order by id", (purpose, session)
    ).fetchall()


def in_flight(connection: sqlite3.Connection, session: int, purpose: str, now: str) -> bool:
    """Whether somebody works on it now."""
    return any(is_held(row, now) for row in open_tasks(connection, session, purpose))


def is_held(row: sqlite3.Row, now: str) -> bool:
    """Whether a live claim holds the task."""
    return row["state"] == "claimed" and not tasks.may_try(row, now=now)


def failed_at(row: sqlite3.Row) -> int | None:
    """The host's step at which the task failed last; None where time alone drove it."""
    if row["state"] != "failed" or row["next_step"] is None:
        return None
    waited = min(2 ** (int(row["attempts"]) - 1), tasks.RETRY_STEPS_MOST)
    return int(row["next_step"]) - int(waited)


def may_try_now(row: sqlite3.Row, *, now: str, step: int, urgent: bool) -> bool:
    """Whether the host's step may try the task: at once where a budget would be broken (but not twice at one step,
    or a host that only looks would be charged each time), else as `tasks` says."""
    if tasks.may_try(row, now=now) or tasks.may_try(row, now=now, step=step):
        return True
    before = failed_at(row)
    return urgent and row["state"] == "failed" and (before is None or step > before)


def claim(
    services: Services,
    tx: sqlite3.Connection,
    purpose: str,
    session: int,
    first: int,
    last: int,
) -> tuple[tasks.Task, sqlite3.Row] | None:
    """Takes the work on `first` … `last`: the open task that overlaps it, else a new one; and the task as it was.
    None while somebody else works for the purpose in the session, or when the session is gone."""
    now = services.now()
    namespace = rows.owner(tx, session)
    known = open_tasks(tx, session, purpose)
    if namespace is None or any(is_held(row, now) for row in known):
        return None
    row = next((row for row in known if row["first"] <= last and row["last"] >= first), None)
    if row is None:
        added = tasks.add(tx, purpose, namespace=namespace, session=session, first=first, last=last, now=now)
        row = tx.execute("select * from task where id = ?", (added,)).fetchone()
    # The task keeps its whole range while one chunk of it is tried: what is not done of it stays due with it.
    whole = (min(first, row["first"]), max(last, row["last"]))
    task = tasks.claim(
        services, tx, purpose, namespace=namespace, session=session, first=whole[0], last=whole[1], task_id=row["id"]
    )
    return None if task is None else (task, row)


def queue(services: Services, tx: sqlite3.Connection, purpose: str, session: int, first: int, last: int) -> None:
    """Work on `first` … `last` is due. An open task that overlaps it grows instead, so that ranges do not pile up."""
    namespace = rows.owner(tx, session)
    if namespace is None:
        return
    for row in open_tasks(tx, session, purpose):
        if row["state"] != "claimed" and row["first"] <= last and row["last"] >= first:
            tx.execute(
                "update task set first = ?, last = ? where id = ?",
                (min(first, row["first"]), max(last, row["last"]), row["id"]),
            )
            return
    tasks.add(tx, purpose, namespace=namespace, session=session, first=first, last=last, now=services.now())


def settle_observed(
    services: Services, tx: sqlite3.Connection, session: int, before: sqlite3.Row | None = None
) -> None:
    """After a result: what is left of the range the task was made for is due again, and tasks of which nothing is
    raw any more are done."""
    now = services.now()
    if before is not None:
        left = tx.execute(
            "select min(id), max(id) from message where session = ? and observation is null and id between ? and ?",
            (session, before["first"], before["last"]),
        ).fetchone()
        if left[0] is not None:
            queue(services, tx, "observe", session, int(left[0]), int(left[1]))
    tx.execute(
        "update task set state = 'done', finished_at = ?, detail = null where session = ? and purpose = 'observe'"
        " and state <> 'done' and state <> 'claimed' and not exists (select 1 from message"
        " where message.session = task.session and message.observation is null"
        " and message.id between task.first and task.last)",
        (now, session),
    )
