"""Memories of the other file: one live row per statement, corrections in the order of event time."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

from istar_lite.merging.runs import allowed
from istar_lite.merging.state import LIVE, earlier, later, said
from istar_lite.text import normalise

if TYPE_CHECKING:
    from istar_lite.merging.state import Key, State, Values


def bring_memories(state: State) -> None:
    """Memories with their keys, then one live row per statement, then lines of corrections."""
    keys: dict[Key, int] = {
        (row[1], row[2]): row[0]
        for row in state.tx.execute(
            "select id, namespace, key from memory where key is not null"
            " union all select memory, namespace, key from memory_key"
        )
    }
    ours = state.here("memory")
    known = {_key(row) for row in ours}
    theirs = []
    for row in state.rows("memory"):
        owner = state.ids["namespace"][row["namespace"]]
        row["namespace"] = owner
        if (owner, row["key"]) in keys and _key(row) not in known:
            row["key"] = None  # here it stands for another statement
        theirs += allowed(state, "memory", [row], owner, "text")
    replaced = {row["id"]: row["ended_by"] for row in theirs if row["status"] == "superseded" and row["ended_by"]}
    both = _replaced_here(state)
    state.bring("memory", theirs, ours, _key, _combined)
    _bring_keys(state)
    state.write_endings()
    _order_corrections(state, replaced, both)
    _one_live_each(state)


def _key(row: Values) -> Key:
    return (row["namespace"], *said(row, "text"))


def _combined(ours: Values, theirs: Values) -> Values:
    """Counts by maximum, first dates the earlier and last ones the later; the weightier one gives the emotion."""
    weightier = max(ours, theirs, key=lambda row: (row["importance"], row["emotion"]))
    lasting = ours["expires_at"] is None or theirs["expires_at"] is None
    return {
        "key": ours["key"] if ours["key"] is not None else theirs["key"],
        "importance": weightier["importance"],
        "emotion": weightier["emotion"],
        "stability": max(ours["stability"], theirs["stability"]),
        "access_count": max(ours["access_count"], theirs["access_count"]),
        "last_accessed_at": later(ours["last_accessed_at"], theirs["last_accessed_at"]),
        "mention_count": max(ours["mention_count"], theirs["mention_count"]),
        "last_mentioned_at": later(ours["last_mentioned_at"], theirs["last_mentioned_at"]),
        "expires_at": None if lasting else later(ours["expires_at"], theirs["expires_at"]),
        "recorded_at": earlier(ours["recorded_at"], theirs["recorded_at"]),
    }


def _bring_keys(state: State) -> None:
    """Further idempotency keys, those of rows that met under two names among them."""
    for memory, namespace, key in state.there.execute(
        "select memory, namespace, key from memory_key"
        " union all select id, namespace, key from memory where key is not null"
    ).fetchall():
        here = state.mapped("memory", memory)
        owner = state.ids["namespace"].get(namespace)
        if here is None or owner is None:
            continue
        state.tx.execute(
            "insert into memory_key (namespace, key, memory) select ?1, ?2, ?3"
            " where not exists (select 1 from memory where namespace = ?1 and key = ?2) on conflict do nothing",
            (owner, key, here),
        )


# --- corrections ----------------------------------------------------------------------------------------------


def _replaced_here(state: State) -> dict[int, str]:
    rows = state.tx.execute("select id, ended_by from memory where status = 'superseded' and ended_by is not null")
    return dict(rows.fetchall())


def _order_corrections(state: State, theirs: dict[int, str], ours: dict[int, str]) -> None:
    """A statement that each file corrected in its own way: the earlier correction ends it, and the later one ends the
    earlier, as if one file had heard both."""
    for there, text in theirs.items():
        here = state.mapped("memory", there)
        by = state.named(text)
        held = None if here is None else ours.get(here)
        if here is None or by is None or held is None or by == held:
            continue
        both = [row for row in (_memory(state, by), _memory(state, held)) if row is not None]
        if len(both) < 2:
            continue
        first, second = sorted(both, key=_key)
        wanted = {"status": "superseded", "ended_at": first["occurred_at"], "ended_by": f"memory {first['id']}"}
        state.update("memory", state.here("memory", "id = ?", (here,))[0], wanted)
        if first["status"] == LIVE:
            wanted = {"status": "superseded", "ended_at": second["occurred_at"], "ended_by": f"memory {second['id']}"}
            state.update("memory", first, wanted)


def _memory(state: State, text: str) -> Values | None:
    kind, _, number = text.partition(" ")
    rows = state.here("memory", "id = ?", (int(number),)) if kind == "memory" and number.isdigit() else []
    return rows[0] if rows else None


def _one_live_each(state: State) -> None:
    """Two live rows that say the same become one: the earlier, with the counts and dates of both. The other ends as
    merged into it."""
    touched = state.new["memory"] | state.met["memory"]
    groups: dict[Key, list[Values]] = defaultdict(list)
    for row in state.here("memory", f"status = '{LIVE}' and stale = 0"):
        groups[row["namespace"], normalise(row["text"])].append(row)
    for rows in groups.values():
        if len(rows) > 1 and any(row["id"] in touched for row in rows):
            rows.sort(key=lambda row: (row["occurred_at"], row["id"]))
            for other in rows[1:]:
                _merge_into(state, rows[0], other)


def _merge_into(state: State, kept: Values, other: Values) -> None:
    wanted = _combined(kept, other) | {"key": kept["key"]}
    wanted["last_mentioned_at"] = later(wanted["last_mentioned_at"], other["occurred_at"])
    state.update("memory", kept, wanted)
    kept |= wanted
    ended = {"status": "merged", "ended_at": other["occurred_at"], "ended_by": f"memory {kept['id']}"}
    state.update("memory", other, ended)
    state.tx.execute(
        "insert into tag select 'memory', ?, tag from tag where kind = 'memory' and row = ? on conflict do nothing",
        (kept["id"], other["id"]),
    )
    state.tx.execute(
        "insert into source values ('memory', ?, 'memory', ?, 'merged_from') on conflict do nothing",
        (kept["id"], other["id"]),
    )
