"""Turns, atoms, episodes and profiles of the other file."""

from __future__ import annotations

from typing import TYPE_CHECKING

from istar_lite.merging.state import LIVE, first_recorded, said
from istar_lite.text import normalise

if TYPE_CHECKING:
    from istar_lite.merging.state import Key, State, Values


def bring_runs(state: State) -> None:
    """Everything of each run that came or met."""
    for there, here in state.ids["session"].items():
        owner = namespace_of(state, here)
        _bring_turns(state, there, here, owner)
        _bring_atoms(state, there, here, owner)
        _bring_episodes(state, there, here, owner)


def namespace_of(state: State, session: int) -> int:
    """The namespace of a session of this file."""
    return int(state.tx.execute("select namespace from session where id = ?", (session,)).fetchone()[0])


def allowed(state: State, kind: str, rows: list[Values], owner: int, column: str) -> list[Values]:
    """The rows that this file did not forget."""
    kept = [row for row in rows if not state.is_forgotten(owner, kind, row[column] or "")]
    state.refused += len(rows) - len(kept)
    return kept


def _bring_turns(state: State, there: int, here: int, owner: int) -> None:
    theirs = [{**row, "session": here} for row in state.rows("turn", "session = ?", (there,))]
    state.bring(
        "turn",
        allowed(state, "turn", theirs, owner, "text"),
        state.here("turn", "session = ?", (here,)),
        lambda row: (row["turn"],),
        first_recorded,
    )


def _bring_atoms(state: State, there: int, here: int, owner: int) -> None:
    theirs = [{**row, "session": here} for row in state.rows("atom", "session = ?", (there,))]
    # What has ended first: an active one may then push out only what is active too.
    theirs.sort(key=lambda row: row["status"] == LIVE)
    state.bring(
        "atom",
        allowed(state, "atom", theirs, owner, "content"),
        state.here("atom", "session = ?", (here,)),
        _atom_key,
        first_recorded,
    )


def _atom_key(row: Values) -> Key:
    return (row["key"],) if row["key"] is not None else (row["turn"], row["type"], *said(row, "content"))


def _episode_key(row: Values) -> Key:
    return (row["name"], row["turn_start"], row["turn_end"], normalise(row["narrative"]))


def _live(rows: list[Values]) -> list[Values]:
    return [row for row in rows if row["status"] == LIVE and not row["stale"]]


def _bring_episodes(state: State, there: int, here: int, owner: int) -> None:
    """Ranges of one run must not overlap: where both files told the same turns differently, the file that came
    further holds, and what the other told is superseded."""
    theirs = [{**row, "session": here} for row in state.rows("episode", "session = ?", (there,))]
    theirs = allowed(state, "episode", theirs, owner, "narrative")
    ours = state.here("episode", "session = ?", (here,))
    winners, losers = sorted((_live(ours), _live(theirs)), key=_reach, reverse=True)
    kept = {_episode_key(row) for row in winners}
    ended: dict[int, Values] = {}  # by object: ids of both files may be equal
    for row in losers:
        over = [
            other
            for other in winners
            if other["turn_start"] <= row["turn_end"] and row["turn_start"] <= other["turn_end"]
        ]
        if over and _episode_key(row) not in kept:
            ended[id(row)] = over[-1]
    for row in theirs:
        if id(row) in ended:
            row |= {"status": "superseded", "ended_at": ended[id(row)]["occurred_at"], "ended_by": None}
    for row in ours:
        if id(row) in ended:
            state.update("episode", row, {"status": "superseded", "ended_at": ended[id(row)]["occurred_at"]})
            row |= {"status": "superseded", "ended_at": ended[id(row)]["occurred_at"]}
    state.bring("episode", theirs, ours, _episode_key, _hotter)
    _bring_parts(state, "episode_history", "episode", lambda row: (row["turn_end"], normalise(row["narrative"])))


def _reach(rows: list[Values]) -> tuple[int, list[Key]]:
    return max((row["turn_end"] for row in rows), default=-(2**63)), sorted(_episode_key(row) for row in rows)


def _hotter(ours: Values, theirs: Values) -> Values:
    return {"heat": max(ours["heat"], theirs["heat"]), **first_recorded(ours, theirs)}


def _bring_parts(state: State, table: str, parent: str, key: object) -> None:
    """Rows that only hang on another one."""
    name = key if callable(key) else tuple
    known: dict[int, set[Key]] = {}
    for row in state.rows(table):
        owner = state.ids[parent].get(row[parent])
        if owner is None:
            continue
        if owner not in known:
            known[owner] = {name(part) for part in state.here(table, f"{parent} = ?", (owner,))}
        if name(row) not in known[owner]:
            known[owner].add(name(row))
            state.insert(table, {**row, parent: owner})


def bring_profiles(state: State) -> None:
    """Profiles with their rules. Of two that look back on the same run, the one that saw more of it holds."""
    theirs = []
    for row in state.rows("profile"):
        owner = state.ids["namespace"][row["namespace"]]
        session = state.mapped("session", row["session"])
        if row["session"] is None or session is not None:
            theirs += allowed(state, "profile", [{**row, "namespace": owner, "session": session}], owner, "text")
    state.bring("profile", theirs, state.here("profile"), _profile_key, first_recorded)
    _bring_parts(state, "profile_rule", "profile", lambda row: (normalise(row["condition"]), normalise(row["action"])))
    if state.new["profile"]:
        _one_profile_a_run(state)


def _profile_key(row: Values) -> Key:
    return (row["namespace"], row["profile_id"], row["session"], *said(row, "text"))


def _one_profile_a_run(state: State) -> None:
    rows = state.here("profile", f"status = '{LIVE}' and session is not null")
    rows.sort(key=lambda row: (row["turn_end"] or 0, *said(row, "text")), reverse=True)
    holds: dict[Key, Values] = {}
    for row in rows:
        newest = holds.setdefault((row["namespace"], row["profile_id"], row["session"]), row)
        if newest is not row:
            wanted = {"status": "superseded", "ended_at": newest["occurred_at"], "ended_by": f"profile {newest['id']}"}
            state.update("profile", row, wanted)
