"""Reads what the page shows out of one state of the file, best first, as much as a page has room for."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from importlib.resources import files
from itertools import groupby
from math import isfinite
from typing import TYPE_CHECKING, Any

from istar_lite.report.plane import plane
from istar_lite.report.shelf import Key, Shelf, embed_json, ranges

if TYPE_CHECKING:
    from istar_lite.database import sqlite3

KNOWN = ("memory", "profile", "episode", "atom", "reflection", "observation", "file", "item")

# Bytes on the shelf at the end of each stage. With marks, links and the page itself this stays under 5 MB.
KNOWN_MARK, ENDED_MARK, SOURCES_MARK, TURNS_MARK = 1_500_000, 1_900_000, 2_700_000, 3_200_000
LINKS_MARK = 500_000
SESSIONS, MARKS, ALL_MARKS = 40, 1_500, 12_000  # sessions with a timeline; marks in a lane of one, and in all together
MOST = 4_000  # rows of one kind that are looked at
SOURCES = 40  # sources of one row whose text is in the page, unless there is room for all
POINTS = 1_500  # rows on the map
RECALLS, WAITING, ENDED = 40, 200, 2_000

_QUERIES: dict[str, str] = {}


def queries() -> dict[str, str]:
    """The queries of the page by name."""
    if not _QUERIES:
        text = files("istar_lite.report").joinpath("queries.sql").read_text(encoding="utf-8")
        parts = re.split(r"^-- name: (.+)\n", text, flags=re.MULTILINE)
        _QUERIES.update(zip(parts[1::2], parts[2::2], strict=True))
    return _QUERIES


class Reader:
    """The named queries on one connection, bound to one namespace and one moment."""

    def __init__(self, connection: sqlite3.Connection, namespace: str) -> None:
        self._connection = connection
        self._bound: dict[str, Any] = {"namespace": namespace}
        self.now: str = self("now")[0]["now"]
        self._bound["now"] = self.now

    def __call__(self, name: str, **values: Any) -> list[dict[str, Any]]:
        """Rows of the query `name`; lists are bound as JSON."""
        bound = {key: json.dumps(value) if isinstance(value, list) else value for key, value in values.items()}
        cursor = self._connection.execute(queries()[name], {**self._bound, **bound})
        return [{column: _finite(value) for column, value in dict(row).items()} for row in cursor]

    def rows(self, keys: list[Key]) -> list[dict[str, Any]]:
        """The rows themselves, of any kind."""
        return [*self("rows", keys=keys), *self("exchanges", keys=keys)] if keys else []


def _finite(value: Any) -> Any:
    """SQLite holds infinities (`9e999` by hand), JSON does not."""
    return None if isinstance(value, float) and not isfinite(value) else value


def gather(connection: sqlite3.Connection, namespace: str) -> dict[str, Any]:
    """All that the page shows, as one JSON-ready value."""
    read = Reader(connection, namespace)
    shelf = Shelf(read.rows)
    known, totals = _known(read, shelf)
    ended = _ended(read, shelf)
    links, missing = _links(read, shelf)
    sessions = read("sessions")
    timelines = _timelines(read, shelf, sessions)
    _details(read, shelf)
    return {
        "now": read.now,
        "namespace": namespace,
        "counts": read("counts"),
        "known": {kind: [id for _, id in keys] for kind, keys in known.items()},
        "totals": totals,
        "ended": [f"{kind}-{id}" for kind, id in ended],
        "sessions": timelines,
        "sessions_total": len(sessions),
        "layers": read("layers"),
        "observed": read("observed", limit=SESSIONS),
        "map": _map(read, [*(key for keys in known.values() for key in keys), *ended, *shelf.rows]),
        "forgotten": read("forgotten", limit=WAITING),
        "recalls": [{**row, "hits": json.loads(row["hits"])[:20]} for row in read("recalls", limit=RECALLS)],
        "due": read("due", limit=WAITING),
        "calls": read("calls", limit=1_000),
        "links": links,
        "links_missing": missing,
        "rows": {f"{kind}-{id}": row for (kind, id), row in shelf.rows.items()},
    }


def _known(read: Reader, shelf: Shelf) -> tuple[dict[str, list[Key]], dict[str, int]]:
    """What holds now, by kind, each in its own order: kinds have no common measure; and how many of each there are.
    Each may use an equal share of the room, and what one leaves free is the next one's; the smaller kinds come first
    so that none is crowded out."""
    facts = {kind: read(f"known {kind}", limit=MOST) for kind in KNOWN}
    totals = {kind: rows[0]["total"] if rows else 0 for kind, rows in facts.items()}
    placed: dict[str, list[Key]] = {}
    for at, kind in enumerate(sorted(KNOWN, key=lambda kind: len(facts[kind])), 1):
        placed[kind] = shelf.fill([(kind, row["id"]) for row in facts[kind]], KNOWN_MARK * at // len(KNOWN))
        for row in facts[kind][: len(placed[kind])]:
            shelf.tell((kind, row["id"]), {name: value for name, value in row.items() if name != "total"})
    for key in placed["profile"]:
        shelf.rows[key]["rules"] = json.loads(shelf.rows[key]["rules"])
    return {kind: placed[kind] for kind in KNOWN}, totals


def _ended(read: Reader, shelf: Shelf) -> list[Key]:
    """What gave way, the newest first, and what it gave way to."""
    rows = read("ended", limit=ENDED)
    placed = shelf.fill([(row["kind"], row["id"]) for row in rows], ENDED_MARK)
    for row in rows:
        shelf.tell((row["kind"], row["id"]), {"ended_by": row["ended_by"]})
    shelf.fill((key for row in rows[: len(placed)] if (key := _named(row["ended_by"]))), ENDED_MARK)
    return placed


def _named(ended_by: str | None) -> Key | None:
    """The row that `memory 3` names."""
    kind, _, id = (ended_by or "").partition(" ")
    return (kind, int(id)) if id.isdecimal() else None


def _links(read: Reader, shelf: Shelf) -> tuple[dict[str, list[list[Any]]], int]:
    """Row → what it was made from, as [role, kind, first id, last id], step by step down to turns and messages; and
    how many rows there was no room for. A few sources of every row come before all sources of any."""
    found: dict[str, list[list[Any]]] = {}
    room, missing, rest, open_keys = LINKS_MARK, 0, [], list(shelf.rows)
    while open_keys:
        wanted: list[Key] = []
        for key, sources in _sources(read, open_keys):
            links = [[*group, *span] for group, ids in sources for span in ranges(ids)]
            room -= len(embed_json(links))
            if room < 0:
                missing += 1
                continue
            found[f"{key[0]}-{key[1]}"] = links
            targets = [(kind, id) for (_, kind), ids in sources for id in ids]
            wanted += targets[:SOURCES]
            rest += targets[SOURCES:]
        before = set(shelf.rows)
        open_keys = [key for key in dict.fromkeys(shelf.fill(wanted, SOURCES_MARK)) if key not in before]
    shelf.fill(rest, SOURCES_MARK)
    return found, missing


def _sources(read: Reader, keys: list[Key]) -> Iterator[tuple[Key, list[tuple[tuple[str, str], list[int]]]]]:
    """Of each row its sources: ((role, kind), ids)."""
    by_kind: dict[str, list[int]] = {}
    for kind, id in keys:
        by_kind.setdefault(kind, []).append(id)
    for kind, ids in by_kind.items():
        for id, links in groupby(read("sources", kind=kind, ids=ids), key=lambda link: link["id"]):
            groups = groupby(links, key=lambda link: (link["role"], link["source_kind"]))
            yield (kind, id), [(group, [link["source_id"] for link in each]) for group, each in groups]


def _timelines(read: Reader, shelf: Shelf, sessions: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Timelines, the latest first: lanes of marks, as [id, …] without texts; texts as far as there is room."""
    found, room, texts = [], ALL_MARKS, []
    for session in sessions[:SESSIONS]:
        lanes: dict[str, list[dict[str, Any]]] = {}
        if room > 0:
            names = ("turns", "atoms", "episodes", "profiles") if session["kind"] == "run" else _CONVERSATION
            for name in names:
                lanes[name] = read(name, session=session["session"], limit=min(MARKS, room))[::-1]
                room -= len(lanes[name])
            base = "turn" if session["kind"] == "run" else "message"
            texts += [(base, mark["id"]) for mark in lanes[f"{base}s"][::-1]]
            texts += [(name[:-1], mark["id"]) for name in names[1:] for mark in lanes[name][::-1]]
        found.append({key: value for key, value in session.items() if key != "session"} | {"lanes": _compact(lanes)})
    shelf.fill(texts, TURNS_MARK)
    return found


_CONVERSATION = ("messages", "observations", "reflections")


def _compact(lanes: dict[str, list[dict[str, Any]]]) -> dict[str, Any]:
    """Each lane as its column names once and a list of values a mark: a third of the bytes."""
    return {
        name: {"columns": list(marks[0]) if marks else [], "marks": [list(mark.values()) for mark in marks]}
        for name, marks in lanes.items()
    }


def _details(read: Reader, shelf: Shelf) -> None:
    """What is known of single kinds, beyond the text."""
    memories = [id for kind, id in shelf.rows if kind == "memory"]
    for id, tags in groupby(read("tags", ids=memories), key=lambda row: row["id"]):
        shelf.tell(("memory", id), {"tags": [row["tag"] for row in tags]})
    accessed = [id for id in memories if shelf.rows["memory", id].get("access_count")]
    for id, returns in groupby(read("returns", ids=accessed), key=lambda row: row["id"]):
        # The newest 200: a memory that is asked for daily has a long trail, and the curve is drawn from its end.
        trail = [[row["at"], row["via"], row["decay"]] for row in returns][-200:]
        shelf.tell(("memory", id), {"returns": trail})
    for row in read("atoms ended", ids=[id for kind, id in shelf.rows if kind == "atom"]):
        shelf.tell(("atom", row["id"]), row)


def _map(read: Reader, keys: Iterable[Key]) -> dict[str, Any]:
    """Places on a plane of rows with vectors, of the model that most of them have."""
    # What was said and done would drown what is known, and the axes would tell the two apart and nothing else.
    chosen = list(dict.fromkeys(keys))
    made = [key for key in chosen if key[0] not in ("turn", "message", "exchange")]
    rows = read("vectors", keys=(made if len(made) > 2 else chosen)[:POINTS])
    if not rows:
        return {"points": []}
    models = [row["model"] for row in rows]
    model = max(set(models), key=models.count)
    rows = [row for row in rows if row["model"] == model]
    places, share = plane([row["vector"] for row in rows])
    points = [[f"{row['kind']}-{row['id']}", *place] for row, place in zip(rows, places, strict=True)]
    return {"points": points, "model": rows[0]["name"], "share": share}
