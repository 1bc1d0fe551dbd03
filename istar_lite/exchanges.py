"""Exchanges of a chat: stored at once, read for statements by the model later, given back with what matters now.

`store` writes the exchange, and the piece of work that takes the statements out of it, in one transaction before the
model is asked; then it asks once. Whatever the model does, the exchange is there, and so is the work.

Like `consolidation` and `packing` this layer stands on two others: statements become rows of `memories`, and related
ones are found by `recall`.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from istar_lite import answers, memories, own_text, places, prompts, recall, tasks, tombstones
from istar_lite.changes import newest_first
from istar_lite.clock import from_text, to_text
from istar_lite.database import insert_rows
from istar_lite.errors import BadInput, BudgetSpent, UnusableAnswer
from istar_lite.llm import Flow
from istar_lite.memories import Candidate, Statement
from istar_lite.models import Hit, Pair, Ranking, Recalled, Retrieved, Stored
from istar_lite.text import normalise
from istar_lite.trail import Handed, write_trail
from istar_lite.values import as_int, as_name, as_real

if TYPE_CHECKING:
    from istar_lite.database import sqlite3
    from istar_lite.services import Services

PURPOSE = "extract"
STORES_BETWEEN_CONSOLIDATIONS = 20
STORES = "stores"  # setting of a namespace: how many exchanges were ever stored in it
RELATED = 8  # memories shown to the model, so that it can correct them and need not repeat them
LONGEST_PROMPT = 24_000  # characters shown to the model, some 6,000 tokens; of a longer text its head and its end
CANDIDATES = 12  # the least number of memories that are ranked; more where more are wanted


@dataclass(frozen=True, slots=True)
class _Exchange:
    """An exchange whose statements are to be taken out. `owner` is the namespace's id."""

    id: int
    owner: int
    session: int
    prompt_id: int
    prompt: str
    response: str
    occurred_at: str
    status: str
    after_recall: int

    def said(self, connection: sqlite3.Connection) -> str:
        """What the user said in it, without what memory had handed out."""
        return own_text.without(self.prompt, own_text.handed_out(connection, self.session, self.after_recall))


# --- store ----------------------------------------------------------------------------------------------------


def store(
    services: Services,
    namespace: str,
    session: str,
    prompt: object,
    response: object,
    *,
    occurred_at: object = None,
    key: object = None,
) -> Flow[Stored]:
    """Writes the exchange, then asks the model for its statements. The same key again gives the same exchange."""
    asked = services.stored_text(prompt, "prompt")
    answered = services.stored_text(response, "response")
    name = None if key is None else as_name(key, "key")
    now = services.now()
    at = now if occurred_at is None else to_text(occurred_at)
    with services.file.write() as tx:
        place = places.ensure_session(tx, namespace, session, "conversation", now)
        known = _stored_before(tx, place, name, asked, answered)
        id, said = (known, None) if known is not None else _write(tx, place, asked, answered, at, name, now)
        recommended = known is None and _counted(tx, place)
    memory_ids: Sequence[int] = ()
    if services.llm is None:
        _warn_without_model(services, namespace)
    elif known is None:
        memory_ids = (yield from _extract_exchange(services, namespace, id, said)) or ()
    return Stored(
        exchange_id=id,
        memory_ids=tuple(memory_ids),
        extraction="due" if _open_task(services.file.reader(), id) else "done",
        consolidation_recommended=recommended,
    )


def _stored_before(tx: sqlite3.Connection, session: int, key: str | None, prompt: str, response: str) -> int | None:
    if key is None:
        return None
    row = tx.execute(
        "select exchange.id, prompt.content as prompt, response.content as response from exchange"
        " join message as prompt on prompt.id = exchange.prompt"
        " join message as response on response.id = exchange.response where exchange.session = ? and key = ?",
        (session, key),
    ).fetchone()
    if row is None:
        return None
    if (row["prompt"], row["response"]) != (prompt, response):
        raise BadInput("key", f"{key!r} already stands for exchange {row['id']}, which has other texts")
    return int(row["id"])


def _write(
    tx: sqlite3.Connection, session: int, prompt: str, response: str, at: str, key: str | None, now: str
) -> tuple[int, str]:
    """The exchange with its two messages, and the work of taking its statements out: due, or done at once when the
    prompt holds nothing but what memory itself handed out. Gives its id and what else the prompt says."""
    messages = _newest_messages(tx, session, prompt, response) or insert_rows(
        tx,
        "message",
        "session, role, content, occurred_at, recorded_at",
        [(session, "user", prompt, at, now), (session, "assistant", response, at, now)],
    )
    cursor = tx.execute(
        "insert into exchange (session, prompt, response, key, after_recall, occurred_at, recorded_at)"
        " values (?, ?, ?, ?, ?, ?, ?)",
        (session, *messages, key, own_text.newest_recall(tx), at, now),
    )
    id = int(cursor.lastrowid or 0)
    owner = _owner(tx, session)
    said = own_text.without(prompt, own_text.handed_out(tx, session))
    if said:
        tasks.add(tx, PURPOSE, namespace=owner, session=session, first=id, last=id, now=now)
    else:
        tasks.record_done(tx, PURPOSE, namespace=owner, session=session, first=id, last=id, now=now)
    return id, said


def _newest_messages(tx: sqlite3.Connection, session: int, prompt: str, response: str) -> list[int] | None:
    """The two newest messages of the session, when they are these texts and in no exchange yet: the host recorded
    them already, as one that observes the same session does."""
    rows = tx.execute(
        "select id, content, exists (select 1 from exchange where prompt = message.id or response = message.id) as used"
        " from message where session = ? order by position desc, id desc limit 2",
        (session,),
    ).fetchall()
    if [row["content"] for row in rows] != [response, prompt] or any(row["used"] for row in rows):
        return None
    return [rows[1]["id"], rows[0]["id"]]


def _owner(connection: sqlite3.Connection, session: int) -> int:
    return int(connection.execute("select namespace from session where id = ?", (session,)).fetchone()[0])


def _counted(tx: sqlite3.Connection, session: int) -> bool:
    """Counts the store; whether consolidation is recommended now. A row in the file: it survives restarts, and
    forgetting exchanges does not set it back."""
    row = tx.execute(
        "insert into setting (key, namespace, value) values (?, ?, 1) on conflict (key, namespace, session)"
        " do update set value = value + 1 returning value",
        (STORES, _owner(tx, session)),
    ).fetchone()
    return int(row[0]) % STORES_BETWEEN_CONSOLIDATIONS == 0


def _open_task(connection: sqlite3.Connection, exchange: int) -> sqlite3.Row | None:
    found: sqlite3.Row | None = connection.execute(
        "select * from task where purpose = ? and state <> 'done' and first = ?2 and last = ?2"
        " and session = (select session from exchange where id = ?2) order by id limit 1",
        (PURPOSE, exchange),
    ).fetchone()
    return found


def _warn_without_model(services: Services, namespace: str) -> None:
    if services.warned_without_model:
        return
    services.warned_without_model = True
    connection = services.file.reader()
    owner = places.find_namespace(connection, namespace)
    waiting = 0 if owner is None else len(tasks.open_rows(connection, PURPOSE, owner))
    if waiting:
        plural = "1 exchange waits" if waiting == 1 else f"{waiting} exchanges wait"
        warnings.warn(f"no model given: {plural} (memory.status())", stacklevel=2)


# --- taking statements out ------------------------------------------------------------------------------------


def drain(services: Services, namespace: str, *, limit: int | None = None, force: bool = False) -> Flow[int]:
    """Takes the statements out of exchanges that still wait, oldest first; how many were done. Nothing without a
    model."""
    owner = places.find_namespace(services.file.reader(), namespace)
    if owner is None or services.llm is None:
        return 0
    done = 0
    for row in tasks.open_rows(services.file.reader(), PURPOSE, owner):
        if limit is not None and done >= limit:
            break
        if not tasks.may_try(row, now=services.now(), force=force):
            continue
        if _budget_is_spent(services):
            break
        done += (yield from _extract_exchange(services, namespace, int(row["first"]))) is not None
    return done


def _budget_is_spent(services: Services) -> bool:
    """Asked before a claim: a whole queue must not fail, and wait longer, because today's budget is used up."""
    try:
        tasks.require_budget(services)
    except BudgetSpent:
        return True
    return False


def _extract_exchange(services: Services, namespace: str, id: int, said: str | None = None) -> Flow[list[int] | None]:
    """One call of the model for one exchange. Gives the ids of its memories; None when it is still due. `said`: what
    the prompt says beside what memory handed out, where that is known already."""
    with services.file.write() as tx:
        exchange, row = _find(tx, id), _open_task(tx, id)
        if exchange is None or row is None:
            return []
        task = tasks.claim(
            services,
            tx,
            PURPOSE,
            namespace=exchange.owner,
            session=exchange.session,
            first=id,
            last=id,
            task_id=row["id"],
        )
        if task is None:
            return None
        said = exchange.said(tx) if said is None else said
        if not said or _goes_unread(tx, exchange):
            tasks.finish(tx, task, services.now())
            return []
    return (yield from tasks.attempt(services, task, _ask(services, namespace, task, exchange, said)))


def _find(connection: sqlite3.Connection, id: int) -> _Exchange | None:
    row = connection.execute(
        "select exchange.id, session.namespace as owner, exchange.session, exchange.prompt as prompt_id,"
        " prompt.content as prompt, response.content as response, exchange.occurred_at, exchange.status,"
        " coalesce(after_recall, (select max(id) from recall where recalled_at <= exchange.recorded_at), 0)"
        " as after_recall from exchange join session on session.id = exchange.session"
        " join message as prompt on prompt.id = exchange.prompt"
        " join message as response on response.id = exchange.response where exchange.id = ?",
        (id,),
    ).fetchone()
    return None if row is None else _Exchange(**dict(row))


def _goes_unread(connection: sqlite3.Connection, exchange: _Exchange) -> bool:
    """An exchange that left the window, where its memories would have left with it."""
    return (
        exchange.status == "evicted"
        and places.setting(connection, "evicted_exchanges", session=exchange.session) == "forget"
    )


def _ask(services: Services, namespace: str, task: tasks.Task, exchange: _Exchange, said: str) -> Flow[list[int]]:
    related = _related(services, namespace, said)
    request = prompts.extract(
        _head_and_end(said),
        own_text.without(exchange.response, own_text.Sentences()),
        related=[hit.text for hit in related],
        when=f"{from_text(exchange.occurred_at):%A, %d %B %Y, %H:%M UTC}",
    )
    text = yield from tasks.ask(services, task, tasks.as_ask(request))
    read = answers.read_extraction(text, offered=[hit.text for hit in related], example_texts=request.example_texts)
    with services.file.write() as tx:
        ids = _keep(services, tx, exchange, read.items, [hit.id for hit in related])
        if read.complete:
            _drop_unconfirmed(tx, exchange, ids)
            tasks.finish(tx, task, services.now())
    if not read.complete:
        raise UnusableAnswer(f"the answer was cut off after {len(read.items)} whole statements")
    return ids


def _head_and_end(text: str) -> str:
    """A text that no window of a model would hold would fail each time it is tried."""
    if len(text) <= LONGEST_PROMPT:
        return text
    return f"{text[: LONGEST_PROMPT * 2 // 3]}\n…\n{text[-LONGEST_PROMPT // 3 :]}"


def _related(services: Services, namespace: str, said: str) -> Sequence[Hit]:
    request = recall.make_request(namespace, said, k=RELATED, kinds=["memory"], sources=False, explain=False)
    return recall.search(services, request).hits


def _keep(
    services: Services,
    tx: sqlite3.Connection,
    exchange: _Exchange,
    extracted: Sequence[answers.ExtractedMemory],
    offered: Sequence[int],
) -> list[int]:
    """Writes what was taken out. Raises `ClaimLost`, so that the result is dropped, when the exchange is gone or says
    something else by now."""
    present = _find(tx, exchange.id)
    if present is None or present.prompt != exchange.prompt:
        raise tasks.ClaimLost(f"exchange {exchange.id} was changed or forgotten while the model read it")
    now = services.now()
    ids: list[int] = []
    for one in extracted:
        text = services.stored_text(one.text, "text", blank=True)
        if not normalise(text) or tombstones.is_forgotten(tx, exchange.owner, text):
            continue
        told = Statement(
            text=text,
            occurred_at=exchange.occurred_at,
            importance=one.importance,
            emotion=one.emotion,
            source=("message", exchange.prompt_id),
        )
        olds = _still_there(tx, [offered[number] for number in one.replaces])
        ids.append(memories.correct(tx, exchange.owner, told, olds, now, beside=ids))
    return list(dict.fromkeys(ids))


def _still_there(tx: sqlite3.Connection, ids: Sequence[int]) -> list[int]:
    """What was offered may have been forgotten while the model thought."""
    return [id for id in ids if tx.execute("select 1 from memory where id = ?", (id,)).fetchone()]


def _drop_unconfirmed(tx: sqlite3.Connection, exchange: _Exchange, confirmed: Sequence[int]) -> None:
    """Stale memories that rested on this exchange too, and that it was found not to support: they lose it as a
    source, and go when it was the last."""
    rows = tx.execute(
        "select id from memory join source on source.kind = 'memory' and source.row = memory.id"
        " where memory.stale = 1 and source_kind = 'message' and source_row = ?",
        (exchange.prompt_id,),
    ).fetchall()
    for (id,) in rows:
        if id in confirmed:
            continue
        tx.execute(
            "delete from source where kind = 'memory' and row = ? and source_kind = 'message' and source_row = ?",
            (id, exchange.prompt_id),
        )
        tx.execute(
            "delete from memory where id = ?1 and not exists (select 1 from source where kind = 'memory' and row = ?1)",
            (id,),
        )


# --- retrieve -------------------------------------------------------------------------------------------------


def retrieve(
    services: Services,
    namespace: str,
    session: str,
    prompt: object,
    *,
    limit: object = 5,
    pairs: object = 5,
    ranking: Ranking = "balanced",
    touch: bool = True,
    as_of: object = None,
    min_score: object = None,
) -> Retrieved:
    """The last exchanges of the session and the memories of the namespace that matter for `prompt`."""
    most, last = as_int(limit, "limit", low=0), as_int(pairs, "pairs", low=0)
    least = None if min_score is None else as_real(min_score, "min_score")
    at = None if as_of is None else to_text(as_of, "as_of")
    now = at or services.now()
    found = find(services, namespace, prompt, limit=most, ranking=ranking, as_of=at)
    connection = services.file.reader()
    chosen = [
        one.model_copy(update={"sources": memories.sources(connection, one.id)})
        for one in found.memories
        if least is None or one.score >= least
    ]
    place = places.find_session(connection, namespace, session, "conversation")
    owner = places.find_namespace(connection, namespace)
    recent = [] if place is None else recent_pairs(connection, place, last, at)
    if touch and at is None and not services.file.read_only and (chosen or recent):
        query = services.stored_text(prompt, "prompt", blank=True)
        with services.file.write() as tx:
            memories.reinforce(tx, [one.id for one in chosen], now)
            handed = [*map(trail_of, chosen), *(("message", id, None, None, None) for id in _messages_of(tx, recent))]
            write_trail(tx, namespace, place, "retrieve", query, handed, now)
    return Retrieved(
        recent_pairs=tuple(recent),
        memories=tuple(chosen),
        reason=None if chosen else memories.why_nothing(connection, owner, now),
        filtered=found.filtered + len(found.memories) - len(chosen),
    )


@dataclass(frozen=True, slots=True)
class Found:
    """Memories that are relevant, best first, and how many were not relevant enough."""

    memories: Sequence[Recalled]
    filtered: int


def find(
    services: Services,
    namespace: str,
    prompt: object,
    *,
    limit: int,
    ranking: Ranking,
    as_of: str | None = None,
) -> Found:
    """The relevant memories, ranked, without what they rest on. Nothing is written."""
    request = recall.make_request(
        namespace,
        prompt,
        k=max(CANDIDATES, 2 * limit) if limit else 0,
        kinds=["memory"],
        as_of=as_of,
        sources=False,
        floor=True,
    )
    results = recall.search(services, request)
    candidates = [Candidate(hit.id, hit.score, similarity(hit)) for hit in results]
    now = as_of or services.now()
    rows = memories.rank(services.file.reader(), candidates, ranking=ranking, now=now)
    if ranking == "balanced":
        rows = newest_first(rows, str(prompt), lambda row: str(row["text"]), lambda row: str(row["occurred_at"]))
    ranked: list[Recalled] = []
    for row in reversed(rows[:limit]):
        # What was moved before another one ranks at least as high.
        least = ranked[-1].score if ranked else 0.0
        ranked.append(_recalled(row, max(row["score"], least)))
    return Found(ranked[::-1], results.filtered)


def similarity(hit: Hit) -> float:
    """The cosine with the query, clipped to [0, 1]; the words' score where there is no vector."""
    signals: dict[str, Any] = hit.explain["signals"]
    for name in ("neural", "static"):
        if name in signals and signals[name]["value"] is not None:
            return float(min(max(signals[name]["value"], 0.0), 1.0))
    return hit.score


def _recalled(row: sqlite3.Row, score: float) -> Recalled:
    return Recalled(
        id=row["id"],
        text=row["text"],
        score=score,
        similarity=row["similarity"],
        relevance=row["relevance"],
        decay_score=row["decay"],
        importance=row["importance"],
        emotion=row["emotion"],
        emotional_weight=row["emotional_weight"],
        created_at=from_text(row["occurred_at"]),
    )


def recent_pairs(connection: sqlite3.Connection, session: int, count: int, as_of: str | None = None) -> list[Pair]:
    """The newest exchanges of the working set, oldest first; with `as_of` those that were in it then."""
    condition = "status = 'active'" if as_of is None else "occurred_at <= :at and (ended_at is null or ended_at > :at)"
    rows = connection.execute(
        "select exchange_text.* from exchange_text join exchange using (id) where id in ("
        f"select id from exchange where session = :session and {condition} order by id desc limit :count) order by id",
        {"session": session, "at": as_of, "count": count},
    )
    return [
        Pair(
            prompt=row["prompt"],
            response=row["response"],
            created_at=from_text(row["occurred_at"]),
            id=row["id"],
        )
        for row in rows
    ]


def _messages_of(connection: sqlite3.Connection, pairs: Sequence[Pair]) -> list[int]:
    found: list[int] = []
    for pair in pairs:
        found.extend(connection.execute("select prompt, response from exchange where id = ?", (pair.id,)).fetchone())
    return found


def trail_of(memory: Recalled) -> Handed:
    """A memory as it goes into the trail."""
    return ("memory", memory.id, memory.score, memory.similarity, memory.decay_score)
