"""What hangs on the rows: tombstones, tags, sources, work of the model and its ledger, the trail, vectors."""

from __future__ import annotations

import json
from collections import defaultdict
from typing import TYPE_CHECKING, Any

from istar_lite import (
    forgetting,
    tombstones,
)  # what the other file forgot goes here in the same way, with all that rests on it
from istar_lite.models import KINDS
from istar_lite.text import digest

if TYPE_CHECKING:
    from istar_lite.merging.state import Key, State, Values

# Of which rows the first and the last id of a task are; for other purposes they are numbers of turns.
_INPUT = {"extract": "exchange", "observe": "message", "reflect": "observation", "consolidate": "memory"}
_LINKED = (*KINDS, "exchange")


def bring_tombstones(state: State) -> None:
    """What the other file forgot is forgotten here too, and stays forgotten."""
    fresh = []
    for row in state.rows("tombstone"):
        row["namespace"] = state.ids["namespace"][row["namespace"]]
        state.told_again.add((row["namespace"], row["kind"], bytes(row["salt"]), row["digest"]))
        held = state.tx.execute(
            "select 1 from tombstone where namespace = ? and salt = ? and digest = ? and kind = ?",
            (row["namespace"], row["salt"], row["digest"], row["kind"]),
        ).fetchone()
        if held is None:
            fresh.append(row)
    _forget(state, fresh)
    for row in fresh:
        state.tx.execute(
            "insert into tombstone (kind, namespace, salt, digest, forgotten_at) values (?, ?, ?, ?, ?)"
            " on conflict do nothing",
            (row["kind"], row["namespace"], row["salt"], row["digest"], row["forgotten_at"]),
        )
        state.added["tombstone"] += 1


def _forget(state: State, fresh: list[Values]) -> None:
    wanted: dict[Key, set[str]] = defaultdict(set)
    for row in fresh:
        wanted[row["namespace"], row["kind"], bytes(row["salt"])].add(row["digest"])
    names = dict(state.tx.execute("select id, name from namespace").fetchall())
    for (namespace, kind, salt), digests in wanted.items():
        if kind not in KINDS:
            continue
        found = {row: text for row, text in _texts(state, namespace, kind) if digest(text, salt) in digests}
        if found:
            conditions = forgetting.Conditions(kind=kind, ids=tuple(found))
            last = _last_tombstone(state)
            state.removed += forgetting.forget(state.services, names[namespace], conditions).total
            # Those of the other file say it already. Two for one text would go back and forth between files for ever.
            own = tombstones.file_salt(state.tx, tombstones.new_salt())
            state.tx.executemany(
                "delete from tombstone where id > ? and kind = ? and digest = ?",
                [(last, kind, digest(text, own)) for text in found.values()],
            )


def _last_tombstone(state: State) -> int:
    return int(state.tx.execute("select coalesce(max(id), 0) from tombstone").fetchone()[0])


def _texts(state: State, namespace: int, kind: str) -> list[tuple[int, str]]:
    rows = state.tx.execute("select row, text from document where kind = ? and namespace = ?", (kind, namespace))
    return [(row[0], row[1]) for row in rows.fetchall()]


def bring_links(state: State) -> None:
    """Tags and sources of rows that came or met, where both ends are here."""
    for kind, row, tag in state.there.execute("select kind, row, tag from tag").fetchall():
        here = state.mapped(kind, row)
        if here is not None:
            state.added["tag"] += state.tx.execute(
                "insert into tag values (?, ?, ?) on conflict do nothing", (kind, here, tag)
            ).rowcount
    for link in state.there.execute("select kind, row, source_kind, source_row, role from source").fetchall():
        here = state.mapped(link["kind"], link["row"])
        # A host's own kinds ("host") name no row of ours.
        known = link["source_kind"] in _LINKED
        source = state.mapped(link["source_kind"], link["source_row"]) if known else link["source_row"]
        if here is not None and source is not None:
            state.added["source"] += state.tx.execute(
                "insert into source values (?, ?, ?, ?, ?) on conflict do nothing",
                (link["kind"], here, link["source_kind"], source, link["role"]),
            ).rowcount


# --- work and ledger ------------------------------------------------------------------------------------------


def bring_work(state: State) -> None:
    """Tasks: what one file has done is done. What waits there waits here, unless the same is under way."""
    known: dict[Key, Values] = {_task_key(row): row for row in state.here("task")}
    waiting = {(row["purpose"], row["session"]) for row in known.values() if row["state"] != "done"}
    for row in state.rows("task"):
        here = _here(state, row)
        if here is None:
            continue
        ours = known.get(_task_key(here))
        if ours is not None:
            state.ids["task"][row["id"]] = ours["id"]
            if here["state"] == "done" and ours["state"] != "done":
                done = {"state": "done", "finished_at": here["finished_at"], "claim": None, "claimed_until": None}
                state.update("task", ours, done)
            continue
        one_is_enough = here["purpose"] != "extract" and (here["purpose"], here["session"]) in waiting
        if here["state"] != "done" and one_is_enough:
            continue
        if here["state"] == "claimed":
            here |= {"state": "due", "claim": None, "claimed_until": None}
        state.insert("task", here)
    _bring_calls(state)


def _here(state: State, row: Values) -> Values | None:
    """A task with the ids of this file; None where its input did not come."""
    session = state.mapped("session", row["session"])
    if row["session"] is not None and session is None:
        return None
    here = {**row, "namespace": state.ids["namespace"][row["namespace"]], "session": session}
    kind = _INPUT.get(row["purpose"])
    if kind is None:
        return here
    first, last = state.mapped(kind, row["first"]), state.mapped(kind, row["last"])
    if first is None or last is None or (kind != "memory" and first > last):
        return None
    here |= {"first": min(first, last), "last": max(first, last)}
    if kind == "memory":
        ids = [state.mapped(kind, one) for one in json.loads(row["detail"] or "[]")]
        if None in ids:
            return None
        here["detail"] = json.dumps(sorted(one for one in ids if one is not None))
    return here


def _task_key(row: Values) -> Key:
    return (row["purpose"], row["namespace"], row["session"], row["first"], row["last"], row["detail"])


def _bring_calls(state: State) -> None:
    theirs = []
    for row in state.rows("model_call"):
        session = state.mapped("session", row["session"])
        if row["session"] is not None and session is None:
            continue
        theirs.append(
            {
                **row,
                "namespace": state.mapped("namespace", row["namespace"]),
                "session": session,
                "task": state.mapped("task", row["task"]),
            }
        )
    state.bring("model_call", theirs, state.here("model_call"), _call_key)


def _call_key(row: Values) -> Key:
    return tuple(
        row[name] for name in ("purpose", "namespace", "session", "called_at", "seconds", "attempt", "outcome")
    )


# --- the trail ------------------------------------------------------------------------------------------------


def bring_trail(state: State) -> None:
    """What went into prompts there, the newest as far as there is room: the file keeps the newest by their ids, and
    what comes in must not push out what this file handed out itself."""
    room = {
        row[0]: row[1]
        for row in state.tx.execute(
            "select id, coalesce((select value from setting where key = 'max_recalls' and namespace = namespace.id"
            " and session = 0),"
            " (select value from setting where key = 'max_recalls' and namespace = 0 and session = 0),"
            " 1000) - (select count(*) from recall where recall.namespace = namespace.id) from namespace"
        )
    }
    ours = state.here("recall")
    known = {_recall_key(row) for row in ours}
    theirs = []
    for row in reversed(state.rows("recall")):
        owner = state.ids["namespace"][row["namespace"]]
        session = state.mapped("session", row["session"])
        if row["session"] is not None and session is None:
            continue
        here = {**row, "namespace": owner, "session": session}
        if _recall_key(here) not in known:
            if room[owner] <= 0:
                continue
            room[owner] -= 1
        theirs.append(here)
    state.bring("recall", reversed(theirs), ours, _recall_key)
    for hit in state.there.execute("select * from recall_hit").fetchall():
        recall, named = state.mapped("recall", hit["recall"]), state.mapped(hit["kind"], hit["row"])
        if recall in state.new["recall"] and named is not None:
            values: list[Any] = [recall, hit["rank"], hit["kind"], named, hit["score"], hit["similarity"], hit["decay"]]
            state.tx.execute("insert into recall_hit values (?, ?, ?, ?, ?, ?, ?)", values)


def _recall_key(row: Values) -> Key:
    return tuple(row[name] for name in ("namespace", "session", "via", "query", "recalled_at"))


# --- vectors --------------------------------------------------------------------------------------------------


def bring_vectors(state: State) -> int:
    """Vectors of new rows, of models that this file uses too. Gives how many new rows have none: they are pending."""
    # Compared as numbers: versions of SQLite write a real as text in different ways.
    models = {_model_of(row): row["id"] for row in state.here("embedding_model")}
    same = {row["id"]: models[_model_of(row)] for row in state.rows("embedding_model") if _model_of(row) in models}
    pending = 0
    for kind in KINDS:
        new = state.new[kind]
        documents = {
            row[0]: row[1:]
            for row in state.tx.execute("select row, id, text from document where kind = ?", (kind,))
            if row[0] in new
        }
        pending += len(documents)
        pending -= _copy_vectors(state, kind, documents, same)
    return pending


def _model_of(row: Values) -> Key:
    return (row["name"], row["dimension"], row["scale"])


def _copy_vectors(state: State, kind: str, documents: dict[int, Any], same: dict[int, int]) -> int:
    done = set()
    for row in state.there.execute(
        "select document.row, document.text, embedding.* from document join embedding"
        " on embedding.document = document.id where document.kind = ?",
        (kind,),
    ):
        here = state.ids[kind].get(row[0])
        model = same.get(row["model"])
        if here not in documents or model is None or documents[here][1] != row[1]:
            continue
        state.tx.execute(
            "insert into embedding (document, model, part, start, length, vector) values (?, ?, ?, ?, ?, ?)"
            " on conflict do nothing",
            (documents[here][0], model, row["part"], row["start"], row["length"], row["vector"]),
        )
        done.add(here)
    return len(done)
