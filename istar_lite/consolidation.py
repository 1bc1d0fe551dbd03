"""Consolidation: live memories of a namespace that say nearly the same become one.

Clusters come from the vectors in the file, the text from the model (the joined texts where there is none). Each cluster
is written in one transaction, in which its memories must still be what the model saw. The originals are closed as
merged and stay linked; a cluster whose call failed stays as it is, and its work due.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from istar_lite import answers, memories, places, prompts, tasks, tombstones
from istar_lite.errors import BudgetSpent, UnusableAnswer
from istar_lite.llm import Flow
from istar_lite.models import Consolidated
from istar_lite.text import digest

if TYPE_CHECKING:
    from istar_lite.database import sqlite3
    from istar_lite.services import Services

PURPOSE = "consolidate"
DISTANCE = 0.15  # average cosine distance below which memories say nearly the same


def consolidate(services: Services, namespace: str) -> Flow[Consolidated]:
    """Merges what says nearly the same; how many clusters were merged, and how many memories fewer are live."""
    owner = places.find_namespace(services.file.reader(), namespace)
    if owner is None:
        return Consolidated()
    services.embedding.settle(services, namespace=owner)
    groups = _clusters(services, owner)
    with services.file.write() as tx:
        # Work that is still due from last time: its clusters are found again here, or are none any more.
        tx.execute(
            "delete from task where purpose = ? and namespace = ? and state <> 'done' and state <> 'claimed'",
            (PURPOSE, owner),
        )
        due = [_add(tx, owner, ids, services.now()) for ids in groups]
    merged = removed = 0
    for task_id in due:
        if _budget_is_spent(services):
            break
        size = yield from _merge(services, owner, task_id)
        merged += size > 0
        removed += max(size - 1, 0)
    return Consolidated(clusters_merged=merged, memories_removed=removed)


def drain(services: Services, namespace: str, *, limit: int | None = None, force: bool = False) -> Flow[int]:
    """Merges the clusters that still wait for the model; how many were done."""
    owner = places.find_namespace(services.file.reader(), namespace)
    if owner is None:
        return 0
    done = 0
    for row in tasks.open_rows(services.file.reader(), PURPOSE, owner):
        if (limit is not None and done >= limit) or _budget_is_spent(services):
            break
        if tasks.may_try(row, now=services.now(), force=force):
            yield from _merge(services, owner, row["id"])
            left = services.file.reader().execute("select state from task where id = ?", (row["id"],)).fetchone()
            done += left is None or left["state"] == "done"
    return done


def add_due(tx: sqlite3.Connection, owner: int, ids: Sequence[int], now: str) -> None:
    """The merge of these memories is to be done again, as after one of their cluster was forgotten."""
    _add(tx, owner, ids, now)


def _add(tx: sqlite3.Connection, owner: int, ids: Sequence[int], now: str) -> int:
    return tasks.add(
        tx, PURPOSE, namespace=owner, session=None, first=min(ids), last=max(ids), now=now, detail=sorted(ids)
    )


def _budget_is_spent(services: Services) -> bool:
    try:
        tasks.require_budget(services)
    except BudgetSpent:
        return services.llm is not None
    return False


# --- clusters -------------------------------------------------------------------------------------------------


def _clusters(services: Services, owner: int) -> list[list[int]]:
    """Ids of live memories in groups that say nearly the same. Those with a time to live are left alone: merged,
    what they say would outlive them."""
    with services.file.reading() as connection:
        model = next(iter(services.embedding.in_use(connection).values()), None)
        if model is None:
            return []
        rows = connection.execute(
            "select memory.id, group_concat(hex(vector), '') as vectors from memory"
            " join document on document.kind = 'memory' and document.row = memory.id"
            " join embedding on embedding.document = document.id and embedding.model = :model and length(vector) > 0"
            f" where memory.namespace = :owner and memory.expires_at is null and {memories.LIVE} group by memory.id",
            {"model": model.id, "owner": owner, "now": services.now()},
        ).fetchall()
    if len(rows) < 2:
        return []
    from istar_lite.clustering import clusters  # numpy: only who clusters pays for its import

    ids = [int(row["id"]) for row in rows]
    return [[ids[at] for at in group] for group in clusters(_vectors(rows, model.dimension), DISTANCE)]


def _vectors(rows: Sequence[sqlite3.Row], dimension: int) -> Any:
    """One vector a memory: a long text has one for each passage, which are averaged."""
    import numpy as np

    result = np.empty((len(rows), dimension), np.float32)
    for at, row in enumerate(rows):
        steps = np.frombuffer(bytes.fromhex(row["vectors"]), np.int8).reshape(-1, dimension)
        result[at] = steps.mean(axis=0, dtype=np.float32)
    return result


# --- one cluster ----------------------------------------------------------------------------------------------


def _merge(services: Services, owner: int, task_id: int) -> Flow[int]:
    """Merges the cluster of a task; how many memories became one, 0 when it was not done or there is nothing left
    to merge."""
    with services.file.write() as tx:
        row = tx.execute("select * from task where id = ?", (task_id,)).fetchone()
        task = None if row is None else _claim(services, tx, owner, row)
        if task is None:
            return 0
        parts = _parts(tx, owner, json.loads(row["detail"] or "[]"), services.now())
        if len(parts) < 2:
            tasks.finish(tx, task, services.now())
            return 0
    return (yield from tasks.attempt(services, task, _write_merged(services, owner, task, parts))) or 0


def _claim(services: Services, tx: sqlite3.Connection, owner: int, row: sqlite3.Row) -> tasks.Task | None:
    return tasks.claim(
        services,
        tx,
        PURPOSE,
        namespace=owner,
        session=None,
        first=row["first"],
        last=row["last"],
        task_id=row["id"],
    )


def _parts(connection: sqlite3.Connection, owner: int, ids: Sequence[int], now: str) -> list[sqlite3.Row]:
    """The memories of a cluster that are still live, oldest first."""
    return connection.execute(
        # By id: the index of the namespace, which SQLite would take for `id in (…)`, leads to all of its memories.
        "select memory.* from json_each(:ids) as wanted cross join memory on memory.id = wanted.value"
        f" where memory.namespace = :owner and {memories.LIVE} order by memory.occurred_at, memory.id",
        {"ids": json.dumps(list(ids)), "owner": owner, "now": now},
    ).fetchall()


def _write_merged(services: Services, owner: int, task: tasks.Task, parts: Sequence[sqlite3.Row]) -> Flow[int]:
    texts = [row["text"] for row in parts]
    text = " ".join(_as_sentence(one) for one in texts)
    if services.llm is not None:
        text = services.stored_text((yield from _written_by_model(services, task, texts)), "text")
    with services.file.write() as tx:
        now = services.now()
        present = _parts(tx, owner, [row["id"] for row in parts], now)
        if [(row["id"], row["text"]) for row in present] != [(row["id"], row["text"]) for row in parts]:
            raise tasks.ClaimLost(f"a memory of task {task.id} was changed or forgotten while the model read it")
        if tombstones.is_forgotten(tx, owner, text):
            raise UnusableAnswer("the merged text is one that was forgotten")
        _replace(tx, owner, text, present, now)
        tasks.finish(tx, task, now)
    return len(parts)


def _as_sentence(text: str) -> str:
    stripped = text.strip()
    return stripped if stripped[-1:] in ".!?…。！？" else stripped + "."


def _written_by_model(services: Services, task: tasks.Task, texts: Sequence[str]) -> Flow[str]:
    request = prompts.consolidate(texts)
    text = yield from tasks.ask(services, task, tasks.as_ask(request))
    return answers.read_consolidation(text, originals=texts, example_texts=request.example_texts)


def _replace(tx: sqlite3.Connection, owner: int, text: str, parts: Sequence[sqlite3.Row], now: str) -> None:
    """One memory in place of `parts`: importance and stability the highest, accesses and mentions the sum, made the
    earliest, last accessed the latest, the emotion of the weightiest."""
    same = memories.equal_live(tx, owner, text, now)
    if same is not None and same["id"] not in {row["id"] for row in parts}:
        parts = (*parts, same)  # said already by a memory outside the cluster: one live row per statement
    weightiest = max(parts, key=lambda row: (row["importance"], row["id"]))
    accesses = [row["last_accessed_at"] for row in parts if row["last_accessed_at"] is not None]
    cursor = tx.execute(
        "insert into memory (namespace, text, digest, importance, emotion, stability, access_count, last_accessed_at,"
        " mention_count, last_mentioned_at, occurred_at, recorded_at) values (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        (
            *(owner, text, digest(text), weightiest["importance"], weightiest["emotion"]),
            max(row["stability"] for row in parts),
            sum(row["access_count"] for row in parts),
            max(accesses, default=None),
            sum(row["mention_count"] for row in parts),
            max(row["last_mentioned_at"] or row["occurred_at"] for row in parts),
            *(min(row["occurred_at"] for row in parts), now),
        ),
    )
    merged = int(cursor.lastrowid or 0)
    for row in parts:
        memories.add_source(tx, merged, "memory", row["id"], "merged_from")
        tags = tx.execute("select tag from tag where kind = 'memory' and row = ?", (row["id"],)).fetchall()
        memories.add_tags(tx, merged, [tag for (tag,) in tags])
        tx.execute(
            "update memory set status = 'merged', ended_at = ?, ended_by = ? where id = ?",
            (max(now, row["occurred_at"]), f"memory {merged}", row["id"]),
        )
