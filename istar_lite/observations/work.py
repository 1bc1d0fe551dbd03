"""Work in the background: what a turn's end puts into the queue, and draining the queue of one session or of all."""

from __future__ import annotations

from typing import TYPE_CHECKING

from istar_lite import places, tasks
from istar_lite.llm import Flow
from istar_lite.observations import claims, reflector, rows
from istar_lite.observations.observer import observe
from istar_lite.observations.units import units
from istar_lite.observations.watch import watch_of

if TYPE_CHECKING:
    from istar_lite.database import sqlite3
    from istar_lite.observations.watch import Watch
    from istar_lite.services import Services

PURPOSES = ("observe", "reflect")


def queue_due(watch: Watch, session: int, utilisation: float) -> None:
    """Puts into the queue what is due at a turn's end: an observation of exactly the messages there are, when they
    reach the interval, and a reflection to lie ready, when the log has half its size. Nothing while that is under
    way."""
    services = watch.services
    now = services.now()
    with services.file.write() as tx:
        interval = watch.budgets.interval(utilisation)
        if rows.waiting_tokens(tx, session)[0] >= interval and not claims.in_flight(tx, session, "observe", now):
            waiting = rows.raw(tx, session)
            open_end = bool(waiting) and rows.is_newest(tx, session, waiting[-1])
            settled = [unit for unit in units(waiting, open_end=open_end) if not unit.pending]
            if settled and sum(unit.tokens for unit in settled) >= interval:
                claims.queue(services, tx, "observe", session, settled[0].first, settled[-1].last)
        log = reflector.readable(tx, session)
        if log.tokens >= watch.budgets.background_reflection and reflector.is_new(tx, session, log):
            first = min(one.id for one in log.observations)
            if not claims.in_flight(tx, session, "reflect", now):
                claims.queue(services, tx, "reflect", session, first, log.newest)


def work_session(watch: Watch, session: int, *, limit: int | None = None, force: bool = False) -> Flow[int]:
    """Does what is due in one session; how many pieces were done."""
    done = 0
    for purpose in PURPOSES:
        tried: set[int] = set()
        while limit is None or done < limit:
            task = _next(watch, session, purpose, tried, force=force)
            if task is None:
                break
            tried.add(task["id"])
            done += yield from _do(watch, session, task)
    return done


def _next(watch: Watch, session: int, purpose: str, tried: set[int], *, force: bool) -> sqlite3.Row | None:
    """The oldest task that may be tried and was not yet tried in this round."""
    connection, now = watch.services.file.reader(), watch.services.now()
    open_work = claims.open_tasks(connection, session, purpose)
    if any(claims.is_held(row, now) for row in open_work):
        return None
    return next((row for row in open_work if row["id"] not in tried and tasks.may_try(row, now=now, force=force)), None)


def _do(watch: Watch, session: int, task: sqlite3.Row) -> Flow[int]:
    if task["purpose"] == "reflect":
        written = yield from _reflect(watch, session, task)
        return int(written)
    messages = rows.raw(watch.services.file.reader(), session, task["first"], task["last"])
    if not messages:
        with watch.services.file.write() as tx:
            claims.settle_observed(watch.services, tx, session)
        return 0
    done = yield from observe(watch, session, messages, sync=False)
    return len(done)


def _reflect(watch: Watch, session: int, task: sqlite3.Row) -> Flow[bool]:
    services = watch.services
    connection = services.file.reader()
    log = reflector.readable(connection, session)
    if not reflector.is_new(connection, session, log):
        with services.file.write() as tx:
            tx.execute(
                "update task set state = 'done', finished_at = ? where id = ? and state in ('due', 'failed')",
                (services.now(), task["id"]),
            )
        return False
    written = yield from reflector.reflect(watch, session, sync=False)
    return written is not None


def drain(services: Services, namespace: str, *, limit: int | None = None, force: bool = False) -> Flow[int]:
    """Does what is due in all sessions of a namespace, whoever watches them; how many pieces were done."""
    done = 0
    if services.llm is None:
        return done
    connection = services.file.reader()
    owner = places.find_namespace(connection, namespace)
    sessions = connection.execute(
        "select distinct session from task where namespace = ? and purpose in ('observe', 'reflect')"
        " and state <> 'done' and session is not null order by session",
        (owner,),
    ).fetchall()
    for row in sessions:
        watch = watch_of(services, int(row[0]))
        left = None if limit is None else limit - done
        if watch is not None and left != 0:
            done += yield from work_session(watch, int(row[0]), limit=left, force=force)
    return done
