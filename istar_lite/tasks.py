"""Work of the model as rows: claims, watermarks, retries, the ledger of calls and the day's budget.

Every step that asks a model has one shape:

    task = claim(...)                                   # a short transaction; None: somebody else is at it
    def body():
        text = yield from ask(services, task, Ask(...)) # no lock is held while the model thinks
        with services.file.write() as tx:
            ...write the result...
            finish(tx, task, services.now())            # the same transaction: the row is the watermark
    result = yield from attempt(services, task, body())

`attempt` is where a failing model stops: its input stays due, the failure is told in `status()`, and the host's own
step goes on (unless it asked for on_error="raise").
"""

from __future__ import annotations

import json
import os
import platform
import uuid
from collections.abc import Callable, Generator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TypeVar

from istar_lite.clock import later
from istar_lite.errors import BudgetSpent, IstarError, UnusableAnswer
from istar_lite.llm import Answer, Ask

if TYPE_CHECKING:
    from istar_lite.database import sqlite3
    from istar_lite.prompts import Prompt
    from istar_lite.services import Services

T = TypeVar("T")
Flow = Generator[Ask, Answer, T]

RETRY_SECONDS = (30.0, 120.0, 600.0, 3600.0)
RETRY_STEPS_MOST = 16
CLAIM_SECONDS = 120.0  # beyond the time limit of the call itself


class CallFailed(IstarError):
    """The model's call failed; the cause is the exception it raised."""


class ClaimLost(IstarError):
    """Somebody else took the work over, or its input changed: the result is dropped."""


@dataclass(frozen=True, slots=True)
class Task:
    """A claimed piece of work. `first` … `last` name its input (ids, or numbers of turns)."""

    id: int
    purpose: str
    namespace: int
    session: int | None
    first: int | None
    last: int | None
    attempt: int
    claim: str


def add(
    tx: sqlite3.Connection,
    purpose: str,
    *,
    namespace: int,
    session: int | None,
    first: int | None,
    last: int | None,
    now: str,
    detail: object = None,
) -> int:
    """A task that is due, written in the transaction that brings its input. Returns its id."""
    cursor = tx.execute(
        "insert into task (purpose, namespace, session, first, last, created_at, detail) values (?, ?, ?, ?, ?, ?, ?)",
        (purpose, namespace, session, first, last, now, None if detail is None else json.dumps(detail)),
    )
    return int(cursor.lastrowid or 0)


def record_done(
    tx: sqlite3.Connection,
    purpose: str,
    *,
    namespace: int,
    session: int | None,
    first: int,
    last: int,
    now: str,
) -> None:
    """Work that was done in one go (no model): the watermark moves with its result."""
    tx.execute(
        "insert into task (purpose, namespace, session, first, last, state, attempts, created_at, finished_at)"
        " values (?, ?, ?, ?, ?, 'done', 1, ?, ?)",
        (purpose, namespace, session, first, last, now, now),
    )


def watermark(connection: sqlite3.Connection, purpose: str, session: int) -> int | None:
    """The last input that is done for a purpose in a session, or None."""
    row = connection.execute(
        "select max(last) from task where session = ? and purpose = ? and state = 'done'", (session, purpose)
    ).fetchone()
    return None if row[0] is None else int(row[0])


def open_task(connection: sqlite3.Connection, purpose: str, session: int) -> sqlite3.Row | None:
    """The oldest task of the purpose in the session that is not done: due, claimed or failed."""
    found: sqlite3.Row | None = connection.execute(
        "select * from task where purpose = ? and session = ? and state <> 'done' order by id limit 1",
        (purpose, session),
    ).fetchone()
    return found


def may_try(row: sqlite3.Row | None, *, now: str, step: int | None = None, force: bool = False) -> bool:
    """Whether a task may be tried now: `step` is the host's own count (a turn number), else the clock decides."""
    if row is None:
        return True
    if row["state"] == "claimed":
        return not _is_held(row, now)
    if force or row["state"] == "due":
        return True
    if step is not None and row["next_step"] is not None:
        return bool(step >= row["next_step"])
    return bool(row["next_try_at"] is None or row["next_try_at"] <= now)


def worker_name() -> str:
    """A name for who claims work: machine, process, and what sets two objects of one process apart."""
    return f"{platform.node()}:{os.getpid()}-{uuid.uuid4().hex[:12]}"


def _is_held(row: sqlite3.Row, now: str) -> bool:
    """Whether a claim still holds: its time is not over, and nothing shows that its process has died."""
    return (row["claimed_until"] or "") > now and not _has_died(row["claim"] or "")


def _has_died(claim: str) -> bool:
    """Whether the claim is of a process of this machine that is no more: its work need not wait for the time limit.
    (Should it live after all, unseen: `finish` drops the later result.) Windows has no harmless way to ask."""
    machine, _, process = claim.partition("/")[0].rpartition(":")
    number = process.partition("-")[0]
    if os.name != "posix" or machine != platform.node() or not number.isdecimal():
        return False
    try:
        os.kill(int(number), 0)
    except ProcessLookupError:
        return True
    except (PermissionError, OverflowError):
        return False
    return False


def claim(
    services: Services,
    tx: sqlite3.Connection,
    purpose: str,
    *,
    namespace: int,
    session: int | None,
    first: int | None,
    last: int | None,
    task_id: int | None = None,
) -> Task | None:
    """Takes a task for this worker: the row `task_id`, else the session's open one of the purpose, else a new row.
    Its input becomes `first` … `last`. None while another live claim holds it."""
    now = services.now()
    if task_id is not None:
        row = tx.execute("select * from task where id = ? and state <> 'done'", (task_id,)).fetchone()
        if row is None:
            return None
    else:
        row = None if session is None else open_task(tx, purpose, session)
    if row is not None and row["state"] == "claimed" and _is_held(row, now):
        return None
    if row is None:
        identity = add(tx, purpose, namespace=namespace, session=session, first=first, last=last, now=now)
        attempts = 0
    else:
        identity, attempts = int(row["id"]), int(row["attempts"])
    token = f"{services.worker}/{identity}/{attempts + 1}"
    until = later(now, CLAIM_SECONDS + (services.llm_timeout or 3600.0))
    tx.execute(
        "update task set state = 'claimed', claim = ?, claimed_until = ?, attempts = ?, first = ?, last = ?"
        " where id = ?",
        (token, until, attempts + 1, first, last, identity),
    )
    return Task(identity, purpose, namespace, session, first, last, attempts + 1, token)


def finish(tx: sqlite3.Connection, task: Task, now: str, *, first: int | None = None, last: int | None = None) -> None:
    """Marks the task done, in the transaction of its result. `first`/`last` narrow what was covered. Raises
    `ClaimLost` (and so rolls the result back) when the claim is no longer ours."""
    cursor = tx.execute(
        "update task set state = 'done', finished_at = ?, claim = null, claimed_until = null, next_step = null,"
        " next_try_at = null, last_error = null, first = coalesce(?, first), last = coalesce(?, last)"
        " where id = ? and claim = ? and state = 'claimed'",
        (now, first, last, task.id, task.claim),
    )
    if cursor.rowcount != 1:
        raise ClaimLost(f"task {task.id} ({task.purpose}) was taken over by somebody else")


def narrowed(task: Task, *, first: int | None = None, last: int | None = None) -> Task:
    """The same claim over other input."""
    return replace(task, first=first or task.first, last=last or task.last)


def fail(services: Services, task: Task, error: BaseException, *, step: int | None = None) -> None:
    """Gives the task back as failed, to be tried again after 1, 2, 4 … 16 steps of the host or 30 s … 1 h."""
    now = services.now()
    wait = RETRY_SECONDS[min(task.attempt, len(RETRY_SECONDS)) - 1]
    again = None if step is None else step + min(2 ** (task.attempt - 1), RETRY_STEPS_MOST)
    reason = f"{type(error).__name__}: {error}"[:500]
    with services.file.write() as tx:
        tx.execute(
            "update task set state = 'failed', claim = null, claimed_until = null, last_error = ?, next_step = ?,"
            " next_try_at = ? where id = ? and claim = ?",
            (reason, again, later(now, wait), task.id, task.claim),
        )
        if isinstance(error, UnusableAnswer):
            tx.execute(
                "update model_call set outcome = 'unusable', error = ? where id ="
                " (select max(id) from model_call where task = ? and outcome in ('ok', 'empty'))",
                (reason, task.id),
            )


def release(services: Services, task: Task) -> None:
    """Gives the task back untried: its worker was cancelled or interrupted."""
    with services.file.write() as tx:
        tx.execute(
            "update task set state = 'due', claim = null, claimed_until = null, attempts = attempts - 1"
            " where id = ? and claim = ?",
            (task.id, task.claim),
        )


def attempt(services: Services, task: Task, body: Flow[T], *, step: int | None = None) -> Flow[T | None]:
    """Runs `body`; what the model did wrong ends here, with the task given back. None: it has to be tried again."""
    try:
        return (yield from body)
    except ClaimLost:
        release(services, task)  # when the input changed under us the claim is still ours
        return None
    except (UnusableAnswer, BudgetSpent, CallFailed) as error:
        cause = error.__cause__ if isinstance(error, CallFailed) and error.__cause__ else error
        fail(services, task, cause, step=step)
        if services.on_error == "raise":
            raise cause from None
        return None
    except BaseException:
        release(services, task)
        raise


def call_host(rules: Callable[..., T], *arguments: Any) -> T:
    """Calls rules that the host brought (an extractor, a classifier). Whatever they raise becomes `CallFailed`, so
    that the work is kept and the host's turn goes on; what means "stop" passes."""
    try:
        return rules(*arguments)
    except Exception as error:  # a host's rules may raise anything
        raise CallFailed(f"{type(error).__name__}: {error}") from error


def as_ask(prompt: Prompt) -> Ask:
    """A prompt as a request to the model."""
    return Ask(prompt.messages, prompt.tag, prompt.max_tokens, prompt.temperature, prompt.schema)


def ask(services: Services, task: Task, request: Ask) -> Flow[str]:
    """One call of the model: budget first, then the question, then its row in the ledger. Returns the text.

    Raises `BudgetSpent`, or `CallFailed` from whatever the model raised.
    """
    require_budget(services)
    called_at = services.now()
    try:
        answer = yield request
    except BaseException as error:
        _record_call(services, task, called_at, "cancelled", None, error)
        raise
    if answer.error is not None:
        unusable = isinstance(answer.error, UnusableAnswer)
        outcome = "unusable" if unusable else "timeout" if isinstance(answer.error, TimeoutError) else "failed"
        _record_call(services, task, called_at, outcome, answer, answer.error)
        if unusable:
            raise answer.error
        raise CallFailed(str(answer.error)) from answer.error
    text = answer.text or ""
    _record_call(services, task, called_at, "ok" if text.strip() else "empty", answer, None, request)
    return text


def _record_call(
    services: Services,
    task: Task,
    called_at: str,
    outcome: str,
    answer: Answer | None,
    error: BaseException | None,
    request: Ask | None = None,
) -> None:
    tokens_in, tokens_out = (answer.tokens_in, answer.tokens_out) if answer is not None else (None, None)
    if request is not None and answer is not None:
        # The host's model told no counts: ours, so that a budget of tokens still holds.
        if tokens_in is None:
            tokens_in = sum(services.count_tokens(str(message["content"])) for message in request.messages)
        if tokens_out is None:
            tokens_out = services.count_tokens(answer.text or "")
    with services.file.write() as tx:
        tx.execute(
            "insert into model_call (task, purpose, namespace, session, attempt, model, called_at, seconds, tokens_in,"
            " tokens_out, outcome, error) values ((select id from task where id = ?), ?,"
            # Whoever asked may be gone by the time the answer comes.
            " (select id from namespace where id = ?), (select id from session where id = ?), ?, ?, ?, ?, ?, ?, ?, ?)",
            (
                task.id,
                task.purpose,
                task.namespace,
                task.session,
                task.attempt,
                (answer.model if answer is not None else None) or services.model,
                called_at,
                answer.seconds if answer is not None else 0.0,
                tokens_in,
                tokens_out,
                outcome,
                None if error is None else f"{type(error).__name__}: {error}"[:500],
            ),
        )


def spent_today(services: Services) -> tuple[int, int]:
    """Model calls and tokens of the present UTC day, over the whole file."""
    today = services.now()[:10]
    row = (
        services.file.reader()
        .execute(
            "select count(*), coalesce(sum(coalesce(tokens_in, 0) + coalesce(tokens_out, 0)), 0) from model_call"
            " where called_at >= ? and called_at < ?",
            (today, today + "~"),
        )
        .fetchone()
    )
    return int(row[0]), int(row[1])


def budget_spent(services: Services) -> bool:
    """Whether the day's budget is used up: no model is asked before tomorrow or more budget."""
    try:
        require_budget(services)
    except BudgetSpent:
        return True
    return False


def require_budget(services: Services) -> None:
    """Raises `BudgetSpent` when the day's budget is used up."""
    budget = services.budget
    if budget is None:
        return
    calls, tokens = spent_today(services)
    if budget.calls_per_day is not None and calls >= budget.calls_per_day:
        raise BudgetSpent(f"{calls} of {budget.calls_per_day} model calls of the day are used up")
    if budget.tokens_per_day is not None and tokens >= budget.tokens_per_day:
        raise BudgetSpent(f"{tokens} of {budget.tokens_per_day} tokens of the day are used up")


def open_rows(connection: sqlite3.Connection, purpose: str, namespace: int) -> list[sqlite3.Row]:
    """Tasks of a purpose in a namespace that are not done, oldest first."""
    return connection.execute(
        "select * from task where purpose = ? and namespace = ? and state <> 'done' order by id", (purpose, namespace)
    ).fetchall()


def summary(connection: sqlite3.Connection, namespace: str | None) -> dict[str, Any]:
    """Counts of open tasks by state and by purpose, the newest error, and the ledger's sums, of one namespace."""
    rows = connection.execute(
        "select task.purpose, task.state, count(*) from task join namespace on namespace.id = task.namespace"
        " where task.state <> 'done' and (?1 is null or namespace.name = ?1) group by 1, 2",
        (namespace,),
    ).fetchall()
    by_purpose: dict[str, dict[str, int]] = {}
    totals = {"due": 0, "failed": 0, "claimed": 0}
    for purpose, state, count in rows:
        by_purpose.setdefault(purpose, {})[state] = count
        totals[state] += count
    error = connection.execute(
        "select last_error from task join namespace on namespace.id = task.namespace where state = 'failed'"
        " and (?1 is null or namespace.name = ?1) order by next_try_at desc, task.id desc limit 1",
        (namespace,),
    ).fetchone()
    calls, tokens = connection.execute(
        "select count(*), coalesce(sum(coalesce(tokens_in, 0) + coalesce(tokens_out, 0)), 0) from model_call"
        " left join namespace on namespace.id = model_call.namespace where ?1 is null or namespace.name = ?1",
        (namespace,),
    ).fetchone()
    return {
        **totals,
        "by_purpose": by_purpose,
        "last_error": None if error is None else error[0],
        "calls": int(calls),
        "tokens": int(tokens),
    }
