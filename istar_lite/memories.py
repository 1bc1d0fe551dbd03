"""Memories: one live row per statement, corrections by event time, the forgetting curve in SQL.

Equal statements. Two texts are one statement when they are equal after `text.normalise`. Told again, a live statement
is counted; its text, importance and first date stay. Dates rule, not the order of arrival: told again with an earlier
date, its first date moves back.

Corrections. Versions of one statement form a line: each closed row names what ended it (`ended_by`) and when
(`ended_at`, event time). A correction is put into that line by its own date: a late one closes the row before it and
is closed by the row after it, so exactly one version is live whatever arrives when.

Decay. `exp(-min(days since the last access / max(stability, 0.1), 700))`; a future date is age 0. Ages are counted in
whole milliseconds: a difference of Julian days alone is good to some 40 µs, which a small stability makes visible.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from istar_lite import browse, places, tombstones
from istar_lite.clock import from_text, later, to_text
from istar_lite.database import insert_rows
from istar_lite.errors import BadInput
from istar_lite.models import EMOTIONS, MemoryItem, Ranking, Row, Source
from istar_lite.text import digest, normalise
from istar_lite.values import as_int, as_list, as_name, as_real, as_text, dump

if TYPE_CHECKING:
    from istar_lite.database import sqlite3
    from istar_lite.services import Services

REINFORCEMENT = 0.75  # days of stability that a memory gains each time it is returned, times its emotional weight
STABILITY_CEILING = 365.0  # days; from there on a memory that is used daily fades by 0.3 % a day and needs no more
SOURCES = 10  # of one memory that is returned
NO_MEMORIES, NOTHING_RELEVANT = "the store is empty", "nothing relevant"
HOST = "host"  # source_kind of "the host told it itself", kept where a memory has other sources too
ENDED_KINDS = ("memory", "atom", "episode", "profile", "exchange", "observation", "reflection", "file")

# Conditions over `memory` at :now, and at an event time :at.
LIVE = "memory.status = 'active' and memory.stale = 0 and (memory.expires_at is null or memory.expires_at > :now)"
HELD_AT = (
    "memory.stale = 0 and memory.occurred_at <= :at and (memory.ended_at is null or memory.ended_at > :at)"
    " and (memory.expires_at is null or memory.expires_at > :at)"
)
_AGE_DAYS = (
    "max(0.0, round((julianday(:now) - julianday(coalesce(memory.last_accessed_at, memory.occurred_at)))"
    " * 86400000.0) / 86400000.0)"
)
DECAY = f"exp(-min({_AGE_DAYS} / max(memory.stability, 0.1), 700.0))"

_PRIORS = (
    "(0.9 + 0.1 * decay) * (0.9 + 0.1 * importance)"
    " * (0.9 + 0.1 * emotional_weight / (select max(weight) from emotion))"
)
_SCORES: Mapping[str, str] = {
    "ebbinghaus": "similarity * decay * importance * emotional_weight",
    "balanced": f"relevance * {_PRIORS}",
}
# Candidates come as a JSON list of [id, relevance, similarity]. Below the smallest exponent all decays are equal:
# then the last access decides, then the id.
_RANK = """
select *, {score} as score from (
  select memory.id, memory.text, memory.importance, memory.emotion, coalesce(emotion.weight, 1.0) as emotional_weight,
    memory.occurred_at, coalesce(memory.last_accessed_at, memory.occurred_at) as last_access,
    json_extract(candidate.value, '$[1]') as relevance, json_extract(candidate.value, '$[2]') as similarity,
    {decay} as decay
  from json_each(:candidates) as candidate cross join memory on memory.id = json_extract(candidate.value, '$[0]')
    left join emotion on emotion.name = memory.emotion)
order by score desc, last_access desc, id desc
"""


@dataclass(frozen=True, slots=True)
class Statement:
    """Something to be remembered, checked and cleaned. Times in their stored form. `source` is the row it was taken
    from; None: the host told it itself."""

    text: str
    occurred_at: str
    importance: float = 0.7
    emotion: str = "neutral"
    tags: tuple[str, ...] = ()
    expires_at: str | None = None
    key: str | None = None
    source: tuple[str, int] | None = None


@dataclass(frozen=True, slots=True)
class Candidate:
    """A memory that a search found: `relevance` in [0, 1), `similarity` in [0, 1]."""

    id: int
    relevance: float
    similarity: float


# --- told directly --------------------------------------------------------------------------------------------


def statement(
    services: Services,
    text: object,
    *,
    importance: object = 0.7,
    emotion: object = "neutral",
    tags: object = (),
    occurred_at: object = None,
    ttl: object = None,
    key: object = None,
    now: str,
) -> Statement:
    """The checked statement of `remember`'s arguments; `BadInput` names the one at fault."""
    when = now if occurred_at is None else to_text(occurred_at)
    if emotion not in EMOTIONS:
        raise BadInput("emotion", f"{emotion!r} is none of {', '.join(EMOTIONS)}")
    return Statement(
        text=services.stored_text(text, "text"),
        occurred_at=when,
        importance=as_real(importance, "importance", low=0.0, high=1.0),
        emotion=str(emotion),
        tags=services.stored_tags(tags),
        # It lives from its date on, or from its telling if that is later: told late, it is not gone at once.
        expires_at=None if ttl is None else later(max(when, now), _seconds(ttl)),
        key=None if key is None else as_name(key, "key"),
    )


def _seconds(ttl: object) -> float:
    seconds = ttl.total_seconds() if isinstance(ttl, timedelta) else as_real(ttl, "ttl")
    if seconds <= 0:
        raise BadInput("ttl", f"{seconds:g} seconds is no time to live")
    return seconds


def remember(services: Services, namespace: str, told: Sequence[Statement]) -> list[MemoryItem]:
    """Stores what the host told, all or nothing, and gives each statement's memory. A text that was forgotten may be
    told again by the host: its tombstone is lifted."""
    now = services.now()
    with services.file.write() as tx:
        owner = places.ensure_namespace(tx, namespace, now)
        if tombstones.any_in(tx, owner):
            for one in told:
                tombstones.lift(tx, owner, one.text)
        return items(tx, _write_all(tx, owner, told, now))


def _write_all(tx: sqlite3.Connection, owner: int, told: Sequence[Statement], now: str) -> list[int]:
    """Stores statements in their order. What the file does not hold goes in many at once, the rest one by one."""
    if len(told) == 1:  # nothing to compare with each other
        return [_told_before(tx, owner, told[0]) or write(tx, owner, told[0], now)]
    marks = [digest(one.text) for one in told]
    held = _held(tx, owner, told, marks, now)
    ids: list[int] = []
    new: list[tuple[Statement, str]] = []
    for one, mark in zip(told, marks, strict=True):
        names: set[str | tuple[str]] = {mark} if one.key is None else {mark, (one.key,)}
        if held.isdisjoint(names):
            new.append((one, mark))
        else:
            ids += _insert(tx, owner, new, now)  # it may be one of these that is told again
            new = []
            ids.append(_told_before(tx, owner, one) or write(tx, owner, one, now))
        held |= names
    return ids + _insert(tx, owner, new, now)


def _held(
    tx: sqlite3.Connection, owner: int, told: Sequence[Statement], marks: Sequence[str], now: str
) -> set[str | tuple[str]]:
    """Those of the digests that live memories have, and (as tuples of one) those of the keys that are taken."""
    _complete_digests(tx, owner)
    held: set[str | tuple[str]] = {
        row[0]
        for row in tx.execute(
            "select digest from memory where namespace = ? and digest in (select value from json_each(?))"
            " and status = 'active' and (expires_at is null or expires_at > ?)",
            (owner, dump(marks), now),
        )
    }
    keys = [one.key for one in told if one.key is not None]
    if keys:
        held |= {
            (row[0],)
            for row in tx.execute(
                "select key from memory where namespace = ?1 and key in (select value from json_each(?2)) union all"
                " select key from memory_key where namespace = ?1 and key in (select value from json_each(?2))",
                (owner, dump(keys)),
            )
        }
    return held


def statements(services: Services, told: Iterable[Any], now: str) -> list[Statement]:
    """Checked statements of `remember_many`'s items: texts, or dicts with the names of `remember`'s arguments."""
    checked = []
    for at, item in enumerate(as_list(told, "items")):
        fields = {"text": item} if isinstance(item, str) else item
        if not isinstance(fields, Mapping):
            raise BadInput(f"items[{at}]", f"a text or a dict is wanted, not {type(item).__name__}")
        unknown = set(fields) - {"text", "importance", "emotion", "tags", "occurred_at", "ttl", "key"}
        if unknown or "text" not in fields:
            wrong = f"has no argument {sorted(map(str, unknown))[0]!r}" if unknown else "has no text"
            raise BadInput(f"items[{at}]", wrong)
        try:
            checked.append(statement(services, now=now, **fields))
        except BadInput as error:
            raise BadInput(f"items[{at}].{error.field}", error.problem) from error
    return checked


def supersede(services: Services, namespace: str, id: object, told: Statement, *, dated: bool) -> MemoryItem:
    """Corrects the memory `id`. `dated`: the host gave the correction's date; else it holds from now on, also when
    what it corrects lies in the future."""
    old = as_int(id, "id")
    now = services.now()
    with services.file.write() as tx:
        owner = places.ensure_namespace(tx, namespace, now)
        row = _owned(tx, owner, old)
        before = _told_before(tx, owner, told)
        if before is not None:
            return items(tx, [before])[0]
        if not dated:
            told = replace(told, occurred_at=max(told.occurred_at, _head(tx, row)["occurred_at"]))
        tombstones.lift(tx, owner, told.text)
        return items(tx, [correct(tx, owner, told, [old], now, mentions_hold=False)])[0]


def _owned(tx: sqlite3.Connection, owner: int, id: int) -> sqlite3.Row:
    row: sqlite3.Row | None = tx.execute("select * from memory where id = ? and namespace = ?", (id, owner)).fetchone()
    if row is None:
        raise BadInput("id", f"there is no memory {id} in this namespace")
    return row


def _told_before(tx: sqlite3.Connection, owner: int, told: Statement) -> int | None:
    """The memory that this key already stands for; the same key with another text is refused."""
    if told.key is None:
        return None
    row = tx.execute(
        "select id, text from memory where namespace = ?1 and key = ?2 union all select memory.id, memory.text"
        " from memory_key join memory on memory.id = memory_key.memory where memory_key.namespace = ?1"
        " and memory_key.key = ?2",
        (owner, told.key),
    ).fetchone()
    if row is None:
        return None
    if normalise(row["text"]) != normalise(told.text):
        raise BadInput("key", f"{told.key!r} already stands for memory {row['id']}, which has another text")
    return int(row["id"])


# --- one live row per statement -------------------------------------------------------------------------------


def write(tx: sqlite3.Connection, owner: int, told: Statement, now: str) -> int:
    """Stores a statement, or counts it with the live memory that says the same. Gives the memory's id."""
    mark = digest(told.text)
    row = _live(tx, owner, mark, now)
    return _insert(tx, owner, [(told, mark)], now)[0] if row is None else _tell_again(tx, owner, row, told, now)


def equal_live(tx: sqlite3.Connection, owner: int, text: str, now: str) -> sqlite3.Row | None:
    """The live memory that says the same, if any; a stale one counts, since the statement now stands by itself."""
    return _live(tx, owner, digest(text), now)


def _live(tx: sqlite3.Connection, owner: int, mark: str, now: str) -> sqlite3.Row | None:
    _complete_digests(tx, owner)
    row: sqlite3.Row | None = tx.execute(
        "select * from memory where namespace = ? and digest = ? and status = 'active'"
        " and (expires_at is null or expires_at > ?) order by id limit 1",
        (owner, mark, now),
    ).fetchone()
    return row


def _tell_again(tx: sqlite3.Connection, owner: int, row: sqlite3.Row, told: Statement, now: str) -> int:
    """The statement of the live `row` is told again: counted. With a date before what the row replaced, it is an
    earlier version that held then."""
    if told.occurred_at < row["occurred_at"] and _versions_before(tx, row):
        return _place(tx, owner, told, [_spot(tx, row, told.occurred_at)], now)
    mention(tx, row, told)
    return int(row["id"])


def _complete_digests(tx: sqlite3.Connection, owner: int) -> None:
    """Rows written or edited by hand have no digest: no SQLite has a hash function, so no trigger makes one."""
    rows = tx.execute("select id, text from memory where namespace = ? and digest is null", (owner,)).fetchall()
    if rows:
        tx.executemany("update memory set digest = ? where id = ?", ((digest(row["text"]), row["id"]) for row in rows))


def _insert(tx: sqlite3.Connection, owner: int, told: Sequence[tuple[Statement, str]], now: str) -> list[int]:
    """Writes new statements, each with its digest."""
    rows = [
        (
            *(owner, one.key, one.text, mark, one.importance, one.emotion),
            *(one.occurred_at, one.expires_at, one.occurred_at, now),
        )
        for one, mark in told
    ]
    columns = (
        "namespace, key, text, digest, importance, emotion, last_mentioned_at, expires_at, occurred_at, recorded_at"
    )
    ids = insert_rows(tx, "memory", columns, rows)
    for id, (one, _) in zip(ids, told, strict=True):
        if one.tags:
            add_tags(tx, id, one.tags)
        if one.source is not None:
            add_source(tx, id, *one.source, "from")
    return ids


def add_tags(tx: sqlite3.Connection, id: int, tags: Iterable[str]) -> None:
    """Tags of a memory, beside those it has."""
    tx.executemany("insert into tag values ('memory', ?, ?) on conflict do nothing", ((id, tag) for tag in tags))


def add_source(tx: sqlite3.Connection, id: int, kind: str, row: int, role: str) -> None:
    """What a memory rests on: `from`, `merged_from`, or `mentioned_in`."""
    tx.execute("insert into source values ('memory', ?, ?, ?, ?) on conflict do nothing", (id, kind, row, role))


def mention(tx: sqlite3.Connection, row: sqlite3.Row, told: Statement) -> None:
    """The statement of `row` is told again: counted, unless by the same source. Importance and text stay."""
    id = int(row["id"])
    if told.key is not None:
        tx.execute("update memory set key = ? where id = ? and key is null", (told.key, id))
        tx.execute(
            "insert into memory_key select namespace, ?1, id from memory where id = ?2 and key is not ?1"
            " on conflict do nothing",
            (told.key, id),
        )
    add_tags(tx, id, told.tags)
    if row["stale"]:
        tx.execute("update memory set stale = 0 where id = ?", (id,))
    sources = tx.execute("select source_kind, source_row from source where kind = 'memory' and row = ?", (id,))
    known = {tuple(source) for source in sources}
    if told.source in known:
        return
    if told.source is not None:
        add_source(tx, id, *told.source, "mentioned_in")
    elif known:
        add_source(tx, id, HOST, 0, "mentioned_in")
    tx.execute(
        "update memory set mention_count = mention_count + 1, expires_at = ?2, occurred_at = iif(?4, occurred_at,"
        " min(occurred_at, ?3)), last_mentioned_at = max(coalesce(last_mentioned_at, occurred_at), ?3) where id = ?1",
        # What replaced something holds no earlier than that was replaced.
        (id, _lives_longer(row["expires_at"], told.expires_at), told.occurred_at, bool(_versions_before(tx, row))),
    )


def _lives_longer(held: str | None, told: str | None) -> str | None:
    return None if held is None or told is None else max(held, told)


# --- corrections, by event time -------------------------------------------------------------------------------


def correct(
    tx: sqlite3.Connection,
    owner: int,
    told: Statement,
    olds: Sequence[int],
    now: str,
    *,
    mentions_hold: bool = True,
    beside: Collection[int] = (),
) -> int:
    """Stores `told` as the correction of the memories `olds`, at its date in their lines. Gives the id of the memory
    that holds it: a new one, or the one that said so already.

    `mentions_hold`: what was told again after the correction's date has returned to its value. Not where the host
    names the memory that it corrects: it knows of the mentions. `beside`: memories told in the same breath; where one
    statement is replaced by two, the second does not replace the first.
    """
    at = told.occurred_at
    live = equal_live(tx, owner, told.text, now)
    if live is not None:
        for id in olds:
            old = _owned(tx, owner, id)
            if id != live["id"] and old["status"] == "active" and old["occurred_at"] <= at:
                _close(tx, id, max(at, live["occurred_at"]), int(live["id"]))
        return _tell_again(tx, owner, live, told, now)
    rows = [_owned(tx, owner, id) for id in olds]
    spots = [_spot(tx, row, at, mentions_hold=mentions_hold, beside=beside) for row in rows]
    return _place(tx, owner, told, spots, now)


def _place(tx: sqlite3.Connection, owner: int, told: Statement, spots: Sequence[_Spot], now: str) -> int:
    """Writes `told` into lines of versions, or counts it with a neighbour that says the same."""
    at = told.occurred_at
    same = _said_there(spots, told)
    if same is not None:
        _move_back(tx, same, at, spots)
        mention(tx, same, told)
        return int(same["id"])
    new = _insert(tx, owner, [(told, digest(told.text))], now)[0]
    for before, after in spots:
        for row in before:
            _close(tx, int(row["id"]), at, new)
        if after is not None:
            _end_at_the_earliest(tx, new, after)
    return new


_Spot = tuple[list["sqlite3.Row"], "sqlite3.Row | None"]


def _spot(
    tx: sqlite3.Connection,
    row: sqlite3.Row,
    at: str,
    *,
    mentions_hold: bool = True,
    beside: Collection[int] = (),
) -> _Spot:
    """Where a correction of that date belongs in the line of `row`: the versions that it closes, and the one that
    closes it."""
    after: sqlite3.Row | None
    if row["occurred_at"] > at:
        earlier = _versions_before(tx, row)
        between = [version for version in earlier if version["occurred_at"] > at]
        if between:
            return _spot(tx, min(between, key=_by_date), at, mentions_hold=mentions_hold, beside=beside)
        before, after = [version for version in earlier if version["id"] not in beside], row
    else:
        following = _version_after(tx, row)
        while following is not None and following["occurred_at"] <= at:
            row, following = following, _version_after(tx, following)
            if row["id"] in beside:
                return [], following
        # A version that was evicted, or whose successor is gone, stays as it ended.
        before, after = ([row] if row["status"] == "active" or following is not None else []), following
    again = [_split_at(tx, version, at) for version in before] if mentions_hold else []
    return before, min((version for version in again if version is not None), key=_by_date, default=after)


def _split_at(tx: sqlite3.Connection, row: sqlite3.Row, at: str) -> sqlite3.Row | None:
    """A version that was told again later than `at`: from then on it is a version of its own, which is given, so that
    a correction of that date ends the former one only. Messages tell when; of what the host told, the last date."""
    id = int(row["id"])
    last: str = row["last_mentioned_at"] or row["occurred_at"]
    told = tx.execute(
        "select min(message.occurred_at) from source join message on message.id = source.source_row"
        " where source.kind = 'memory' and source.row = ? and source.source_kind = 'message'"
        " and message.occurred_at > ?",
        (id, at),
    ).fetchone()[0]
    again = min((when for when in (told, last) if when is not None and when > at), default=None)
    if again is None or (row["ended_at"] is not None and again >= row["ended_at"]):
        return None
    copied = (
        "namespace, text, digest, importance, emotion, stability, access_count, last_accessed_at, expires_at, status,"
        " ended_at, ended_by, last_mentioned_at, recorded_at"
    )
    cursor = tx.execute(
        f"insert into memory ({copied}, occurred_at) select {copied}, ?2 from memory where id = ?1", (id, again)
    )
    version = int(cursor.lastrowid or 0)
    tx.execute("insert into tag select kind, ?, tag from tag where kind = 'memory' and row = ?", (version, id))
    # The messages that told it later are what the later version rests on.
    tx.execute(
        "update source set row = ?1, role = 'from' where kind = 'memory' and row = ?2 and source_kind = 'message'"
        " and source_row in (select id from message where occurred_at > ?3)",
        (version, id, at),
    )
    tx.execute("update memory set last_mentioned_at = min(last_mentioned_at, ?) where id = ?", (at, id))
    _close(tx, id, again, version)
    return _owned(tx, row["namespace"], version)


def _by_date(row: sqlite3.Row) -> tuple[str, int]:
    return row["occurred_at"], row["id"]


def _head(tx: sqlite3.Connection, row: sqlite3.Row) -> sqlite3.Row:
    """The last version of the line."""
    after = _version_after(tx, row)
    while after is not None:
        row, after = after, _version_after(tx, after)
    return row


def _version_after(tx: sqlite3.Connection, row: sqlite3.Row) -> sqlite3.Row | None:
    kind, _, number = (row["ended_by"] or "").partition(" ")
    if row["status"] not in ("superseded", "merged") or kind != "memory" or not number.isdigit():
        return None
    after: sqlite3.Row | None = tx.execute(
        # Ids only rise and lines only run forward in time: a row that names itself by hand must not loop.
        "select * from memory where id = ? and namespace = ? and (occurred_at, id) <> (?, ?) and occurred_at >= ?",
        (int(number), row["namespace"], row["occurred_at"], row["id"], row["occurred_at"]),
    ).fetchone()
    return after


def _versions_before(tx: sqlite3.Connection, row: sqlite3.Row) -> list[sqlite3.Row]:
    return tx.execute(
        "select * from memory where ended_by = ? and namespace = ? and status = 'superseded' and id <> ?"
        " and occurred_at <= ? order by occurred_at, id",
        (f"memory {row['id']}", row["namespace"], row["id"], row["occurred_at"]),
    ).fetchall()


def _said_there(spots: Sequence[_Spot], told: Statement) -> sqlite3.Row | None:
    """The version next to the spot that says the same: before it, it is told again; after it, it held earlier."""
    text = normalise(told.text)
    for before, after in spots:
        for row in (*before, *([] if after is None else [after])):
            if normalise(row["text"]) == text:
                return row
    return None


def _move_back(tx: sqlite3.Connection, same: sqlite3.Row, at: str, spots: Sequence[_Spot]) -> None:
    if same["occurred_at"] <= at:
        return
    tx.execute("update memory set occurred_at = ? where id = ?", (at, same["id"]))
    for before, after in spots:
        if after is not None and after["id"] == same["id"]:
            for row in before:
                _close(tx, int(row["id"]), at, int(same["id"]))


def _close(tx: sqlite3.Connection, id: int, at: str, by: int) -> None:
    tx.execute(
        "update memory set status = 'superseded', ended_at = ?, ended_by = ? where id = ?", (at, f"memory {by}", id)
    )


def _end_at_the_earliest(tx: sqlite3.Connection, id: int, by: sqlite3.Row) -> None:
    """A correction older than several of what it corrects ends with the earliest of them."""
    tx.execute(
        "update memory set status = 'superseded', ended_at = ?1, ended_by = ?2 where id = ?3"
        " and (ended_at is null or ended_at > ?1)",
        (by["occurred_at"], f"memory {by['id']}", id),
    )


def restore(services: Services, namespace: str, kind: object, id: object) -> Row:
    """Reopens a row that was superseded, merged or evicted; what ended it stays as it is. A row that is live already
    is left alone. In a run whose working set is full, the least important of the other atoms gives way to it."""
    name = as_text(kind, "kind")
    if name not in ENDED_KINDS:
        raise BadInput("kind", f"{name!r} is none of {', '.join(ENDED_KINDS)}: other rows never end")
    number = as_int(id, "id")
    condition = browse.owned(name)
    now = services.now()
    with services.file.write() as tx:
        values = {"id": number, "namespace": namespace}
        row = tx.execute(f"select * from {name} where id = :id and {condition}", values).fetchone()
        if row is None:
            raise BadInput("id", f"there is no {name} {number} in this namespace")
        if row["status"] != "active":
            if name == "memory":
                _refuse_second_live(tx, row, now)
            if name == "file":
                _refuse_second_version(tx, row)
            if name == "atom":
                _make_room(tx, row, now)
            tx.execute(f"update {name} set status = 'active', ended_at = null, ended_by = null where id = ?", (number,))
        return browse.as_row(tx.execute(f"select * from {name} where id = ?", (number,)).fetchone())


def _make_room(tx: sqlite3.Connection, row: sqlite3.Row, now: str) -> None:
    """Evicts the least important others of a full run. Left to the trigger, the atom that comes back, as a rule the
    least important of all, would be evicted by itself in the same moment."""
    tx.execute(
        "update atom set status = 'evicted', ended_at = ?1, ended_by = ?2 where id in ("
        " select id from atom where session = ?3 and status = 'active' order by priority desc, turn desc, id desc"
        " limit -1 offset (select cap - 1 from atom_cap where session = ?3))",
        (now, f"atom {row['id']}", row["session"]),
    )


def _refuse_second_version(tx: sqlite3.Connection, row: sqlite3.Row) -> None:
    live = tx.execute(
        "select id from file where namespace = ? and path = ? and status = 'active'", (row["namespace"], row["path"])
    ).fetchone()
    if live is not None:
        raise BadInput("id", f"file {live['id']} is what is at {row['path']} now: delete or rename it first")


def _refuse_second_live(tx: sqlite3.Connection, row: sqlite3.Row, now: str) -> None:
    live = equal_live(tx, row["namespace"], row["text"], now)
    if live is not None:
        raise BadInput("id", f"memory {live['id']} says the same and is live")


# --- reading --------------------------------------------------------------------------------------------------


def items(connection: sqlite3.Connection, ids: Sequence[int]) -> list[MemoryItem]:
    """The memories of these ids, in their order, repeated ones repeated."""
    known: dict[int, MemoryItem] = {}
    rows = connection.execute(
        "select memory.*, (select json_group_array(tag) from tag where kind = 'memory' and row = memory.id) as tags"
        " from json_each(?) as wanted cross join memory on memory.id = wanted.value",
        (dump(sorted(set(ids))),),
    )
    for row in rows:
        known[row["id"]] = item(row)
    return [known[id] for id in ids]


def item(row: sqlite3.Row) -> MemoryItem:
    """A row of `memory`, with its tags as JSON in `tags`, as a model."""
    values = {name: row[name] for name in MemoryItem.model_fields}
    for name in ("last_accessed_at", "occurred_at", "recorded_at", "expires_at", "ended_at"):
        values[name] = None if row[name] is None else from_text(row[name])
    values["tags"] = () if row["tags"] == "[]" else tuple(json.loads(row["tags"]))
    values["stale"] = bool(row["stale"])
    return MemoryItem.of_ours(values)


def why_nothing(connection: sqlite3.Connection, owner: int | None, now: str) -> str:
    """Why a recall gave nothing: the namespace holds no live memory, or none that was relevant."""
    row = connection.execute(
        f"select 1 from memory where namespace = :owner and {LIVE} limit 1", {"owner": owner, "now": now}
    ).fetchone()
    return NO_MEMORIES if row is None else NOTHING_RELEVANT


def sources(connection: sqlite3.Connection, id: int) -> tuple[Source, ...]:
    """The messages and turns at the bottom of a memory, also of one that was merged from others, oldest first."""
    rows = connection.execute(
        "with recursive below (kind, row) as (select 'memory', ?1 union"
        " select source_kind, source_row from below cross join source"
        "  on source.kind = below.kind and source.row = below.row)"
        " select document.kind, document.row, document.text, document.speaker, document.occurred_at,"
        " document.external_id, session.name as session from below cross join document"
        "  on document.kind = below.kind and document.row = below.row"
        " left join session on session.id = document.session where below.kind <> 'memory'"
        " order by document.occurred_at, document.id limit ?2",
        (id, SOURCES),
    )
    return tuple(
        Source(
            kind=row["kind"],
            id=row["row"],
            text=row["text"],
            session=row["session"],
            speaker=row["speaker"],
            occurred_at=from_text(row["occurred_at"]),
            external_id=row["external_id"],
        )
        for row in rows
    )


# --- ranking --------------------------------------------------------------------------------------------------


def rank(
    connection: sqlite3.Connection, candidates: Sequence[Candidate], *, ranking: Ranking, now: str
) -> list[sqlite3.Row]:
    """The candidates ranked at `now`, best first, with relevance, similarity, decay, importance, emotional_weight and
    score of each.

    "ebbinghaus" is the product similarity × decay × importance × emotional weight. On questions that ask evenly about
    the past it costs most of the recall (Recall@10 .80 → .05 at a stability of two days). "balanced" is relevance ×
    (0.9 + 0.1 · decay), importance and emotion as equally bounded priors; its decay costs .002.
    """
    if ranking not in _SCORES:
        raise BadInput("ranking", f"{ranking!r} is neither 'balanced' nor 'ebbinghaus'")
    values = json.dumps([[one.id, one.relevance, one.similarity] for one in candidates])
    return connection.execute(
        _RANK.format(score=_SCORES[ranking], decay=DECAY), {"candidates": values, "now": now}
    ).fetchall()


def reinforce(tx: sqlite3.Connection, ids: Sequence[int], now: str) -> None:
    """What is returned is made stronger, up to the ceiling. A clock that was set back takes no access back."""
    tx.execute(
        "update memory set access_count = access_count + 1,"
        " last_accessed_at = max(coalesce(last_accessed_at, ?1), ?1),"
        " stability = max(stability, min(?2, stability + ?3 * coalesce("
        "  (select weight from emotion where name = memory.emotion), 1.0)))"
        " where id in (select value from json_each(?4))",
        (now, STABILITY_CEILING, REINFORCEMENT, json.dumps(list(ids))),
    )
