"""Namespaces and sessions of the other file, by name. A run is the same run only if its turns are the same."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from istar_lite import places

if TYPE_CHECKING:
    from collections.abc import Iterator

    from istar_lite.database import sqlite3
    from istar_lite.merging.state import State, Values

_OF_A_TURN = "turn, occurred_at, reward, reward_unit, events, actions_taken, extra, text"
COUNTED = ("stores",)  # settings that count: the larger holds; all others are choices, and those made here hold
# Of the vectors and the rules of the other file: bookkeeping by its own ids, or its own secret.
_NOT_TAKEN = re.compile(r"embedded:|cells:|embedding_models$|salt$|seal$|schema_checked$")


def bring_namespaces(state: State) -> None:
    """Namespaces, made where this file has none of the name."""
    for row in state.rows("namespace"):
        found = places.find_namespace(state.tx, row["name"])
        if found is None:
            state.insert("namespace", row)
        else:
            state.ids["namespace"][row["id"]] = found


def bring_sessions(state: State) -> None:
    """Sessions by namespace, name and kind. A run of the same name with other turns comes in as `name~2`."""
    for row in state.rows("session"):
        owner = state.ids["namespace"][row["namespace"]]
        if row["kind"] == "run":
            _bring_run(state, row, owner)
            continue
        found = _session(state, owner, row["name"], row["kind"])
        _take(state, row, owner, row["name"], found)


def _bring_run(state: State, row: Values, owner: int) -> None:
    theirs = _turns(state.there, row["id"])
    for name in _names(row["name"]):
        found = _session(state, owner, name, "run")
        taken = found is not None and found in state.ids["session"].values()
        if found is None or (not taken and _same_run(_turns(state.tx, found), theirs)):
            if name != row["name"] and found is None:
                state.renamed.append((row["name"], name))
            _take(state, row, owner, name, found)
            return


def _names(name: str) -> Iterator[str]:
    """The name, then the bare one and its numbered forms: what came in as `run~2` may be called `run` there."""
    yield name
    bare = re.sub(r"~\d+$", "", name)
    if bare != name:
        yield bare
    number = 2
    while True:
        if f"{bare}~{number}" != name:
            yield f"{bare}~{number}"
        number += 1


def _take(state: State, row: Values, owner: int, name: str, found: int | None) -> None:
    if found is None:
        state.insert("session", {**row, "namespace": owner, "name": name})
    else:
        state.ids["session"][row["id"]] = found
        state.met["session"].add(found)
        state.both["session"] += 1


def _session(state: State, owner: int, name: str, kind: str) -> int | None:
    row = state.tx.execute(
        "select id from session where namespace = ? and name = ? and kind = ?", (owner, name, kind)
    ).fetchone()
    return None if row is None else int(row[0])


def _turns(connection: sqlite3.Connection, session: int) -> dict[int, tuple[Any, ...]]:
    rows = connection.execute(f"select {_OF_A_TURN} from turn where session = ?", (session,)).fetchall()
    return {row[0]: tuple(row) for row in rows}


def _same_run(ours: dict[int, tuple[Any, ...]], theirs: dict[int, tuple[Any, ...]]) -> bool:
    """Turns of both are the same turns, and at most one file went on after them. (One of them may have forgotten
    some in between.)"""
    if not ours or not theirs:
        return True
    common = ours.keys() & theirs.keys()
    if not common or any(ours[number] != theirs[number] for number in common):
        return False
    last = max(common)
    return not (max(ours) > last and max(theirs) > last)


def bring_settings(state: State) -> None:
    """Settings of namespaces and sessions that this file has not made itself."""
    for row in state.there.execute("select key, namespace, session, value from setting").fetchall():
        key, namespace, session, value = row
        if (namespace, session) == (0, 0) or _NOT_TAKEN.match(key):
            continue
        owner = state.ids["namespace"].get(namespace, 0)
        place = state.ids["session"].get(session, 0)
        if (owner, place) == (0, 0):
            continue
        held = state.tx.execute(
            "select value from setting where key = ? and namespace = ? and session = ?", (key, owner, place)
        ).fetchone()
        if held is None or (key in COUNTED and held[0] < value):
            places.set_setting(state.tx, key, value, namespace=owner, session=place)
            state.added["setting"] += held is None
