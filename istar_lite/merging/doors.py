"""Files, folders and items that other programs keep in the memory."""

from __future__ import annotations

from typing import TYPE_CHECKING

from istar_lite.merging.runs import allowed
from istar_lite.merging.state import LIVE, earlier, first_recorded, said

if TYPE_CHECKING:
    from istar_lite.merging.state import Key, State, Values


def bring_files(state: State) -> None:
    """Versions of files, and folders. Of two live versions at one path the later one holds, and ends the other."""
    theirs = []
    for row in state.rows("file"):
        row["namespace"] = state.ids["namespace"][row["namespace"]]
        theirs += allowed(state, "file", [row], row["namespace"], "text")
    ours = state.here("file")
    known = {_file_key(row) for row in ours}
    live = {(row["namespace"], row["path"]): row for row in ours if row["status"] == LIVE}
    later: list[tuple[Values, Values]] = []
    for row in theirs:
        held = live.get((row["namespace"], row["path"]))
        if row["status"] != LIVE or held is None or _file_key(row) in known:
            continue
        if said(row, "text") > said(held, "text"):
            state.update("file", held, {"status": "superseded", "ended_at": row["occurred_at"]})
            later.append((held, row))
        else:
            row |= {"status": "superseded", "ended_at": held["occurred_at"], "ended_by": None}
            later.append((row, held))
    # Ended ones first: at each path one live version is all there may be.
    theirs.sort(key=lambda row: row["status"] == LIVE)
    state.bring("file", theirs, ours, _file_key, first_recorded)
    for old, new in later:
        _name_successor(state, old, new, ours)
    _bring_folders(state)


def _name_successor(state: State, old: Values, new: Values, ours: list[Values]) -> None:
    here = {id(row) for row in ours}
    ended = old["id"] if id(old) in here else state.ids["file"][old["id"]]
    by = new["id"] if id(new) in here else state.ids["file"][new["id"]]
    state.tx.execute("update file set ended_by = ? where id = ?", (f"file {by}", ended))


def _file_key(row: Values) -> Key:
    return (row["namespace"], row["path"], row["change"], *said(row, "text"))


def _bring_folders(state: State) -> None:
    theirs = [{**row, "namespace": state.ids["namespace"][row["namespace"]]} for row in state.rows("folder")]
    state.bring(
        "folder",
        theirs,
        state.here("folder"),
        lambda row: (row["namespace"], row["path"]),
        lambda ours, theirs: {"created_at": earlier(ours["created_at"], theirs["created_at"])},
    )


def bring_items(state: State) -> None:
    """Items by key; of two values the one written later holds."""
    theirs = []
    for row in state.rows("item"):
        row["namespace"] = state.ids["namespace"][row["namespace"]]
        found = state.there.execute(
            "select text from document where kind = 'item' and row = ?", (row["id"],)
        ).fetchone()
        text = found[0] if found else ""
        if state.is_forgotten(row["namespace"], "item", text):
            state.refused += 1
        else:
            theirs.append(row)
    ours = state.here("item")
    before = {_item_key(row): row for row in ours}
    state.bring("item", theirs, ours, _item_key, _later_value)
    for row in theirs:
        held = before.get(_item_key(row))
        if held is None or _later_value(held, row):
            _bring_vectors(state, row["id"])


def _item_key(row: Values) -> Key:
    return (row["namespace"], row["prefix"], row["key"])


def _later_value(ours: Values, theirs: Values) -> Values:
    if (theirs["updated_at"], theirs["value"]) <= (ours["updated_at"], ours["value"]):
        return {}
    names = ("value", "text", "indexed", "ttl_minutes", "expires_at", "updated_at")
    return {name: theirs[name] for name in names}


def _bring_vectors(state: State, there: int) -> None:
    here = state.ids["item"][there]
    for row in state.there.execute("select field, vector from item_vector where item = ?", (there,)).fetchall():
        state.tx.execute(
            "insert into item_vector (item, field, vector) values (?, ?, ?)"
            " on conflict (item, field) do update set vector = excluded.vector",
            (here, row["field"], row["vector"]),
        )
