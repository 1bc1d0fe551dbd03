"""Messages, exchanges, observations and reflections of the other file."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from istar_lite.merging.runs import allowed, namespace_of
from istar_lite.merging.state import LIVE, first_recorded, said
from istar_lite.text import normalise

if TYPE_CHECKING:
    from istar_lite.merging.state import Key, State, Values

_WINDOW = (
    "select max(1, cast(coalesce("
    "(select value from setting where key = 'max_exchanges' and namespace = 0 and session = ?1),"
    "(select value from setting where key = 'max_exchanges' and session = 0"
    "  and namespace = (select namespace from session where id = ?1)),"
    "(select value from setting where key = 'max_exchanges' and namespace = 0 and session = 0), 7) as integer))"
)


def bring_conversations(state: State) -> None:
    """Everything of each conversation that came or met."""
    for there, here in state.ids["session"].items():
        owner = namespace_of(state, here)
        _bring_messages(state, there, here, owner)
        _bring_exchanges(state, there, here)
        _bring_observations(state, there, here, owner)
        _bring_reflections(state, there, here, owner)


# --- messages and exchanges -----------------------------------------------------------------------------------


def _bring_messages(state: State, there: int, here: int, owner: int) -> None:
    ours = state.here("message", "session = ?", (here,))
    names = {row["external_id"] for row in ours}
    theirs = allowed(state, "message", state.rows("message", "session = ?", (there,)), owner, "content")
    before = len(state.new["message"])
    known = {_message_key(row) for row in ours}
    for row in theirs:
        row |= {"session": here, "observation": None}
        if ours:
            row["position"] = None  # after those that are there; put in order by time below
        if _message_key(row) not in known and row["external_id"] in names:
            row["external_id"] = None  # here another message has it
    state.bring("message", theirs, ours, _message_key, _fuller)
    if ours and len(state.new["message"]) > before:
        _put_in_order(state, here)


def _message_key(row: Values) -> Key:
    return (row["role"], row["speaker"], *said(row, "content"))


def _fuller(ours: Values, theirs: Values) -> Values:
    filled = {name: ours[name] if ours[name] is not None else theirs[name] for name in ("parts", "tokens")}
    return {**filled, **first_recorded(ours, theirs)}


def _put_in_order(state: State, session: int) -> None:
    """Places in the conversation by event time, the same whichever file was merged into which."""
    rows = state.here("message", "session = ?", (session,))
    rows.sort(key=lambda row: (row["occurred_at"], row["position"], *_message_key(row)[2:]))
    for place, row in enumerate(rows, 1):
        state.update("message", row, {"position": place})


def _bring_exchanges(state: State, there: int, here: int) -> None:
    """The working set afterwards is the newest by event time of what is in the window of either file. (The trigger
    goes by ids, for which what comes in now is newest: so all come in as evicted.)"""
    ours = state.here("exchange", "session = ?", (here,))
    keys = {row["key"] for row in ours} - {None}
    theirs = []
    for row in state.rows("exchange", "session = ?", (there,)):
        prompt, response = state.mapped("message", row["prompt"]), state.mapped("message", row["response"])
        if prompt is None or response is None:
            state.refused += 1
            continue
        # Ids of recalls are those of their file; without one, times say what had been handed out before.
        theirs.append({**row, "session": here, "prompt": prompt, "response": response, "after_recall": None})
    known = {_exchange_key(row) for row in ours}
    live = {_exchange_key(row) for row in (*ours, *theirs) if row["status"] == LIVE}
    live -= {_exchange_key(row) for row in (*ours, *theirs) if row["status"] not in (LIVE, "evicted")}
    for row in theirs:
        if row["key"] in keys and _exchange_key(row) not in known:
            row["key"] = None
        if _exchange_key(row) not in known and row["status"] == LIVE:
            row |= {"status": "evicted", "ended_at": None}  # it is put into the window below
        elif _exchange_key(row) in known and row["status"] == "evicted":
            row |= {"status": LIVE, "ended_at": None}  # says nothing: what is in the window is settled below
    before = len(state.new["exchange"])
    state.bring("exchange", theirs, ours, _exchange_key, first_recorded)
    if len(state.new["exchange"]) > before or live != {_exchange_key(row) for row in ours if row["status"] == LIVE}:
        _set_window(state, here, live)


def _exchange_key(row: Values) -> Key:
    return (row["prompt"], row["response"])


def _set_window(state: State, session: int, live: set[Key]) -> None:
    cap = int(state.tx.execute(_WINDOW, (session,)).fetchone()[0])
    texts = dict(state.tx.execute("select id, content from message where session = ?", (session,)).fetchall())
    rows = [row for row in state.here("exchange", "session = ?", (session,)) if _exchange_key(row) in live]
    rows.sort(key=lambda row: (row["occurred_at"], normalise(texts[row["prompt"]]), normalise(texts[row["response"]])))
    for row in rows[-cap:]:
        state.update("exchange", row, {"status": LIVE, "ended_at": None, "ended_by": None})
    newest = rows[-1] if rows else None
    for row in rows[:-cap]:
        if newest is not None and row["status"] == LIVE:
            wanted = {"status": "evicted", "ended_at": newest["occurred_at"], "ended_by": f"exchange {newest['id']}"}
            state.update("exchange", row, wanted)
        elif newest is not None and row["ended_at"] is None:
            wanted = {"ended_at": newest["occurred_at"], "ended_by": f"exchange {newest['id']}"}
            state.update("exchange", row, wanted)


# --- the log --------------------------------------------------------------------------------------------------


def _bring_observations(state: State, there: int, here: int, owner: int) -> None:
    """An observation stands for a range of messages. Where the files went apart inside that range, or both observed
    the same messages with other words, none of the two can hold: both end, and the messages are raw again, to be
    observed anew. So the outcome does not depend on which file was merged into which."""
    theirs = []
    for row in allowed(state, "observation", state.rows("observation", "session = ?", (there,)), owner, "text"):
        found = _range(state, "message", row["first_message"], row["last_message"], there)
        if found is not None:
            theirs.append({**row, "session": here, "first_message": found[0], "last_message": found[1]})
    ours = state.here("observation", "session = ?", (here,))
    known = {_observation_key(row) for row in ours}
    for row in theirs:
        if row["status"] != LIVE or row["stale"] or _observation_key(row) in known:
            continue
        over = [other for other in ours if _live(other) and _overlap(row, other)]
        for other in over:
            _end(state, "observation", other, row["occurred_at"])
        if over or not _stands_alone(state, here, row):
            row |= {"status": "evicted", "ended_at": row["occurred_at"], "ended_by": None}
    _end_divided(state, here, ours, {_observation_key(row) for row in theirs})
    state.bring("observation", theirs, ours, _observation_key, first_recorded)


def _live(row: Values) -> bool:
    return bool(row["status"] == LIVE and not row["stale"])


def _end(state: State, kind: str, row: Values, at: str) -> None:
    wanted = {"status": "evicted", "ended_at": at, "ended_by": None}
    state.update(kind, row, wanted)
    row |= wanted


def _observation_key(row: Values) -> Key:
    """Not its range: where the files went apart, the same messages are not the same range of ids."""
    return said(row, "text")


def _overlap(a: Values, b: Values) -> bool:
    return bool(a["first_message"] <= b["last_message"] and b["first_message"] <= a["last_message"])


def _range(state: State, kind: str, first: int, last: int, session: int) -> tuple[int, int] | None:
    """The range here of the rows there that an entry covers; None when none of them came."""
    rows = state.there.execute(
        f"select id from {kind} where session = ? and id between ? and ?", (session, first, last)
    )
    here = [state.ids[kind][row[0]] for row in rows.fetchall() if row[0] in state.ids[kind]]
    return (min(here), max(here)) if here else None


def _stands_alone(state: State, session: int, row: Values) -> bool:
    """Whether its messages are all shared or all new, and none of other origin lies between them."""
    rows = state.tx.execute(
        "select id from message where session = ? and id between ? and ?",
        (session, row["first_message"], row["last_message"]),
    )
    ids = {number for (number,) in rows.fetchall()}
    return ids <= state.met["message"] or ids <= state.new["message"]


def _end_divided(state: State, session: int, ours: list[Values], met: set[Key]) -> None:
    """Observations here over messages of which the other file has only some, or in other company."""
    if not state.met["message"]:
        return
    for row in ours:
        if not _live(row) or _observation_key(row) in met:
            continue
        rows = state.tx.execute(
            "select id from message where session = ? and id between ? and ?",
            (session, row["first_message"], row["last_message"]),
        )
        ids = {number for (number,) in rows.fetchall()}
        shared = ids & state.met["message"]
        diverged = shared and shared != ids and state.new["message"]
        if diverged:
            _end(state, "observation", row, row["occurred_at"])


def _bring_reflections(state: State, there: int, here: int, owner: int) -> None:
    """A reflection holds while all observations that it read hold. One of them stands in a session: the one of the
    higher generation."""
    theirs = []
    for row in allowed(state, "reflection", state.rows("reflection", "session = ?", (there,)), owner, "text"):
        found = _range(state, "observation", row["first_observation"], row["last_observation"], there)
        if found is not None:
            theirs.append({**row, "session": here, "first_observation": found[0], "last_observation": found[1]})
    ours = state.here("reflection", "session = ?", (here,))
    known = {_reflection_key(row) for row in ours}
    standing: list[Any] = [row for row in ours if _live(row)]
    for row in theirs:
        if not _live(row) or _reflection_key(row) in known:
            continue
        rank = (row["generation"], *said(row, "text"))
        better = [other for other in standing if (other["generation"], *said(other, "text")) > rank]
        if better or not _all_hold(state, here, row):
            row |= {"status": "superseded", "ended_at": row["occurred_at"], "ended_by": None}
    state.bring("reflection", theirs, ours, _reflection_key, first_recorded)
    for row in state.here("reflection", "session = ? and status = 'active' and stale = 0", (here,)):
        if not _all_hold(state, here, row):
            _end(state, "reflection", row, row["occurred_at"])


def _reflection_key(row: Values) -> Key:
    return (row["generation"], *said(row, "text"))


def _all_hold(state: State, session: int, row: Values) -> bool:
    found = state.tx.execute(
        "select count(*) from observation where session = ? and id between ? and ? and status <> 'active'",
        (session, row["first_observation"], row["last_observation"]),
    ).fetchone()
    return int(found[0]) == 0
