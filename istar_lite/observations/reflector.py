"""The reflector: condenses the log when it has grown. It names what it read; what arrived since stays after it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from istar_lite import prompts, tasks
from istar_lite.answers import read_reflection
from istar_lite.clock import format_time, from_text
from istar_lite.errors import UnusableAnswer
from istar_lite.llm import Flow
from istar_lite.models import Reflection, ReflectionEvent
from istar_lite.observations import claims, rows

if TYPE_CHECKING:
    from istar_lite.database import sqlite3
    from istar_lite.observations.watch import Watch


def readable(connection: sqlite3.Connection, session: int) -> rows.Log:
    """What a reflector may read: the log up to the first chunk that is still buffered. A reflection stands for all
    observations up to its last one, and a buffered chunk's messages are still raw."""
    log = rows.log(connection, session)
    waiting = min((one.id for one in rows.observations(connection, session, "buffered")), default=None)
    if waiting is None:
        return log
    read = tuple(one for one in log.observations if one.id < waiting)
    return rows.Log(log.reflection, read, log.current_task, log.suggested_response)


def is_new(connection: sqlite3.Connection, session: int, log: rows.Log) -> bool:
    """Whether there is anything to condense that no reflection read and no buffered one lies ready for."""
    ready = rows.reflection(connection, session, "buffered")
    return bool(log.observations) and (ready is None or ready.generation != log.generation + 1)


def reflect(watch: Watch, session: int, *, sync: bool, step: int | None = None) -> Flow[Reflection | None]:
    """Condenses the log. `sync`: the host waits, and the result stands at once; else it is buffered. None: nothing
    to do, somebody else is at it, or no answer was acceptable (the old log stays, the work is due)."""
    services = watch.services
    log = readable(services.file.reader(), session)
    if not log.text or not log.observations:
        return None
    first = _first_observation(log)
    if services.llm is None:
        with services.file.write() as tx:
            claims.queue(services, tx, "reflect", session, first, log.newest)
        return None
    with services.file.write() as tx:
        taken = claims.claim(services, tx, "reflect", session, first, log.newest)
    if taken is None:
        return None
    task, _ = taken
    written = yield from tasks.attempt(services, task, _ask_and_write(watch, session, log, task, sync=sync), step=step)
    if written is not None:
        watch.tell(
            ReflectionEvent(
                before=log.text,
                after=written.text,
                generation=written.generation,
                level=written.level,
                at=from_text(services.now()),
            )
        )
    return written


def _first_observation(log: rows.Log) -> int:
    known = [one.id for one in log.observations]
    return min([*known, *([log.reflection.first_observation] if log.reflection else [])])


def _ask_and_write(
    watch: Watch, session: int, log: rows.Log, task: tasks.Task, *, sync: bool
) -> Flow[Reflection | None]:
    services = watch.services
    text, level = yield from _ask(watch, log, task)
    with services.file.write() as tx:
        if not _still_read(tx, session, log):
            # The log that was read is no more (an observation went stale, another reflection came first): dropped.
            tasks.release(services, task)
            tx.execute("update task set state = 'done', finished_at = ? where id = ?", (services.now(), task.id))
            return None
        tasks.finish(tx, task, services.now(), first=_first_observation(log), last=log.newest)
        last = log.observations[-1].occurred_at
        return rows.insert_reflection(
            tx,
            session,
            log,
            first=_first_observation(log),
            text=text,
            level=level,
            stage="active" if sync else "buffered",
            tokens=services.count_tokens(text),
            occurred_at=format_time(max(last, log.reflection.occurred_at) if log.reflection else last),
            now=services.now(),
        )


def _ask(watch: Watch, log: rows.Log, task: tasks.Task) -> Flow[tuple[str, int]]:
    """The shortest acceptable answer and its level. Each level asks for less, until the log fits the threshold."""
    services = watch.services
    target = watch.budgets.reflection
    goal = None if target == float("inf") else int(target)
    best: tuple[str, int] | None = None
    refusal: UnusableAnswer | None = None
    for level in range(prompts.REFLECTION_LEVELS):
        prompt = prompts.reflect(
            log.text,
            level=level,
            target_tokens=goal,
            instruction=watch.budgets.config.reflector_instruction,
            count_tokens=services.count_tokens,
        )
        try:
            answer = yield from tasks.ask(services, task, tasks.as_ask(prompt))
            text = read_reflection(
                answer, before=log.text, example_lines=prompt.example_texts, max_tokens=prompt.max_tokens
            )
        except UnusableAnswer as error:
            refusal = error
            continue
        except tasks.CallFailed:
            if best is None:
                raise
            break  # what was acceptable before is worth keeping
        if best is None or len(text) < len(best[0]):
            best = text, level
        if services.count_tokens(best[0]) < target:
            break
    if best is None:
        raise refusal or UnusableAnswer("no answer was acceptable")
    return best


def _still_read(tx: sqlite3.Connection, session: int, log: rows.Log) -> bool:
    """Whether the log still begins with what was read: the same reflection, and all its observations unchanged."""
    now = rows.log(tx, session)
    known = {one.id: one.text for one in now.observations}
    same_head = (now.reflection and now.reflection.id) == (log.reflection and log.reflection.id)
    return same_head and all(known.get(one.id) == one.text for one in log.observations)


def activate_buffered(watch: Watch, session: int) -> bool:
    """A reflection that lies ready takes the place of what it read; one of another log is dropped."""
    services = watch.services
    with services.file.write() as tx:
        ready = rows.reflection(tx, session, "buffered")
        if ready is None:
            return False
        if ready.generation == rows.log(tx, session).generation + 1:
            rows.activate_reflection(tx, ready.id)
            return True
        rows.drop_buffered_reflections(tx, session, services.now())
        return False
