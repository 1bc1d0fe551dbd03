"""Forgetting: what is forgotten is gone from text, search, vectors, trail and queue, and does not come back.

One transaction: the conditions are ANDed in SQL into a list of doomed rows (a temporary table, so that 50,000 rows need
no bound parameters); the list is closed over what rests only on doomed rows; what rests partly on them becomes stale
and its work due again; tombstones are written for every doomed text; then the rows go, derived ones first.

What a row rests on:
- an exchange: on its two messages, either of which takes it along;
- an atom: on its turn; an episode: on its turns and atoms; a profile: on the turns and episodes of its run;
- an observation: on its messages; a reflection: on its observations;
- a memory taken out of an exchange: on the message it was taken from, and on those that told it again. One that the
  host told itself rests on nothing. One that was consolidated is undone when a part of it is forgotten: the other parts
  are live again at once, their merge is due again, and nothing of the forgotten part waits in a stale text. Forgotten
  itself by its id, it takes its parts along: they are what it says.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from istar_lite import consolidation, own_text, places, tasks, tombstones
from istar_lite.clock import to_text
from istar_lite.database import wal_path
from istar_lite.errors import BadInput, Busy, IstarError, ScopeRequired
from istar_lite.models import KINDS, Forgotten
from istar_lite.text import clean, is_blank, normalise, shorten
from istar_lite.values import as_int, as_list, as_name, as_text

if TYPE_CHECKING:
    from pathlib import Path

    from istar_lite.database import sqlite3
    from istar_lite.services import Services

FORGETTABLE = (*KINDS, "exchange")
# Derived rows go before what they rest on, lest triggers make work of rows that are about to go.
_ORDER = (
    "reflection",
    "observation",
    "profile",
    "episode",
    "atom",
    "exchange",
    "memory",
    "message",
    "turn",
    "file",
    "item",
)
_PROBES = 64  # forgotten texts that are looked for in the bytes of the file
_PROBE_LENGTH = 200  # bytes of each

# What `text` is looked for in, beside the text that search sees. JSON is searched as it is stored.
_FURTHER_TEXTS = {
    "turn": "json_array(reward_unit) || events || actions_taken || extra",
    "atom": "type",
    "episode": "name || char(10) || coalesce((select group_concat(narrative, char(10)) from episode_history"
    " where episode = episode.id), '')",
    "message": "parts",
    "file": "path",
    "item": "key || char(10) || value",
    "observation": "coalesce(current_task, '') || char(10) || coalesce(suggested_response, '')",
}


@dataclass(frozen=True, slots=True)
class Conditions:
    """What is to be forgotten: checked, times in their stored form. `ids` are of `kind`."""

    kind: str
    ids: tuple[int, ...] | None = None
    tag: str | None = None
    session: str | None = None
    text: str | None = None
    before: str | None = None
    after: str | None = None
    everything: bool = False

    @property
    def whole_sessions(self) -> bool:
        """A session and nothing else: then the session itself goes too."""
        others = (self.ids, self.tag, self.text, self.before, self.after)
        return self.session is not None and all(other is None for other in others)


def conditions(
    *,
    kind: object,
    id: object,
    ids: object,
    tag: object,
    session: object,
    text: object,
    before: object,
    after: object,
    everything: object,
) -> Conditions:
    """The checked arguments of `forget`. `ScopeRequired` where none says what to forget, or one is blank."""
    name = as_text(kind, "kind")
    if name not in FORGETTABLE:
        raise BadInput("kind", f"{name!r} is none of {', '.join(FORGETTABLE)}")
    given = Conditions(
        kind=name,
        ids=_ids(id, ids),
        tag=_scope(tag, "tag"),
        session=_scope(session, "session"),
        text=_scope(text, "text"),
        before=None if before is None else to_text(before, "before"),
        after=None if after is None else to_text(after, "after"),
        everything=_flag(everything),
    )
    narrowed = given != Conditions(kind=name, everything=given.everything)
    if given.everything and narrowed:
        raise BadInput("everything", "is said alone, without another condition")
    if not given.everything and not narrowed:
        raise ScopeRequired("say what to forget: id, ids, tag, session, text, before, after, or everything=True")
    return given


def _ids(id: object, ids: object) -> tuple[int, ...] | None:
    if id is None and ids is None:
        return None
    told = [] if ids is None else as_list(ids, "ids", "a list of numbers")
    listed = [as_int(one, f"ids[{at}]") for at, one in enumerate(told)]
    return tuple(dict.fromkeys([*([] if id is None else [as_int(id, "id")]), *listed]))


def _scope(value: object, field: str) -> str | None:
    """A condition's text. A blank one is refused: contained in everything, it would forget everything."""
    if value is None:
        return None
    if isinstance(value, str) and is_blank(clean(value)):
        raise ScopeRequired(f"{field} is blank: say what to forget, or everything=True")
    return as_name(value, field)


def _flag(value: object) -> bool:
    if not isinstance(value, bool):
        raise BadInput("everything", f"True or False is wanted, not {type(value).__name__}")
    return value


# --- forget ---------------------------------------------------------------------------------------------------


def forget(services: Services, namespace: str, wanted: Conditions, *, secure: bool = False) -> Forgotten:
    """Forgets what fulfils all conditions in the namespace, for good. See the module for what goes along.

    `secure`: also empties stale texts, rewrites the file and looks for the forgotten texts in its bytes. Raises `Busy`
    when another connection keeps old pages alive; the forgetting itself is done then.
    """
    if wanted.tag is not None:
        wanted = replace(wanted, tag=services.stored_text(wanted.tag, "tag"))  # as it was stored
    salt = tombstones.new_salt()
    with services.file.write() as tx:
        owner = places.find_namespace(tx, namespace)
        if owner is None:
            return Forgotten()
        forgetting = _Forgetting(tx, owner, wanted, services.now())
        result = forgetting.run(salt, secure)
    if secure:
        _erase(services, forgetting.probes())
    return result


class _Forgetting:
    """One run of `forget` inside its transaction."""

    def __init__(self, tx: sqlite3.Connection, owner: int, wanted: Conditions, now: str) -> None:
        self._tx = tx
        self._owner = owner
        self._wanted = wanted
        self._now = now
        self._texts: list[tuple[str, str]] = []

    def run(self, salt: bytes, secure: bool) -> Forgotten:
        tx = self._tx
        for table in ("doomed", "shaken"):
            tx.execute(f"create temp table if not exists {table} (kind text, row integer, primary key (kind, row))")
            tx.execute(f"delete from temp.{table}")
        self._match()
        self._close()
        counts = {
            kind: count for kind, count in tx.execute("select kind, count(*) from temp.doomed group by kind") if count
        }
        if not counts and not self._leaves_session():
            return Forgotten()
        self._texts = self._doomed_texts()
        stale_before = self._count_stale()
        self._mark_stale()
        self._clear_traces()
        named = [] if self._wanted.text is None else [("memory", self._wanted.text)]
        tombstones.add(tx, self._owner, [*self._texts, *named], tombstones.file_salt(tx, salt), self._now)
        self._reopen_parts()
        for kind in _ORDER:
            tx.execute(f"delete from {kind} where id in (select row from temp.doomed where kind = ?)", (kind,))
        if self._wanted.everything:
            tx.execute("delete from folder where namespace = ?", (self._owner,))
        # Search rows of a host's own kinds stand for no table.
        tx.execute("delete from document where (kind, row) in (select kind, row from temp.doomed)")
        self._drop_sessions()
        stale = self._count_stale() - stale_before
        self._put_back_in_queue()
        if secure:
            self._empty_stale()
        return Forgotten(counts=counts, stale=max(stale, 0))

    def probes(self) -> list[str]:
        """Texts to look for in the bytes: the one asked for, and a sample of those that went."""
        step = max(1, len(self._texts) // _PROBES)
        sample = [text for _, text in self._texts[::step][:_PROBES]]
        return [*([] if self._wanted.text is None else [self._wanted.text]), *sample]

    # --- which rows -------------------------------------------------------------------------------------------

    def _match(self) -> None:
        """Rows that fulfil all conditions."""
        wanted = self._wanted
        # By id where ids are given: SQLite would take the index of the namespace, which leads to all of its rows.
        clauses = ["document.namespace = :owner" if wanted.ids is None else "+document.namespace = :owner"]
        if wanted.ids is not None:
            clauses.append("document.kind = :kind and document.row in (select value from json_each(:ids))")
        if wanted.tag is not None:
            clauses.append(
                "exists (select 1 from tag where kind = document.kind and row = document.row and tag = :tag)"
            )
        if wanted.session is not None:
            clauses.append("document.session in (select id from session where namespace = :owner and name = :session)")
        if wanted.before is not None:
            clauses.append("document.occurred_at < :before")
        if wanted.after is not None:
            clauses.append("document.occurred_at >= :after")
        if wanted.text is not None:
            self._tx.create_function("istar_holds", 1, contains(wanted.text), deterministic=True)
            clauses.append(f"({self._text_clause()})")
        values = {
            "owner": self._owner,
            "kind": wanted.kind,
            "ids": json.dumps(wanted.ids or []),
            "tag": wanted.tag,
            "session": wanted.session,
            "before": wanted.before,
            "after": wanted.after,
        }
        self._tx.execute(
            f"insert into temp.doomed select kind, row from document where {' and '.join(clauses)}", values
        )
        if wanted.ids is not None and wanted.kind == "exchange":
            self._match_exchanges(values)

    def _text_clause(self) -> str:
        further = (
            f"document.kind = '{kind}' and istar_holds((select {texts} from {kind} where id = document.row))"
            for kind, texts in _FURTHER_TEXTS.items()
        )
        return " or ".join(["istar_holds(document.text)", *further])

    def _match_exchanges(self, values: dict[str, Any]) -> None:
        """An exchange has no search row of its own: what is said of it holds for its messages. Conditions beside the
        ids are those of its prompt."""
        clauses = ["session.namespace = :owner", "exchange.id in (select value from json_each(:ids))"]
        if self._wanted.session is not None:
            clauses.append("session.name = :session")
        if self._wanted.before is not None:
            clauses.append("exchange.occurred_at < :before")
        if self._wanted.after is not None:
            clauses.append("exchange.occurred_at >= :after")
        if self._wanted.tag is not None:
            clauses.append("exists (select 1 from tag where kind = 'exchange' and row = exchange.id and tag = :tag)")
        if self._wanted.text is not None:
            clauses.append(
                "(istar_holds((select content from message where id = exchange.prompt))"
                " or istar_holds((select content from message where id = exchange.response)))"
            )
        found = f"from exchange join session on session.id = exchange.session where {' and '.join(clauses)}"
        for column in ("prompt", "response"):
            self._tx.execute(f"insert or ignore into temp.doomed select 'message', {column} {found}", values)

    def _close(self) -> None:
        """What rests only on doomed rows is doomed; undone merges are listed as doomed without their parts."""
        self._add("select 'exchange', id from exchange where prompt in {message} or response in {message}")
        if self._wanted.ids is not None and self._wanted.kind == "memory":
            self._add_parts()
        self._add(
            "select 'atom', atom.id from atom join turn on turn.session = atom.session and turn.turn = atom.turn"
            " where turn.id in {turn}"
        )
        self._add_whole_ranges()
        while self._add(_ONLY_RESTS_ON_DOOMED) + self._add(_MERGED_FROM_DOOMED):
            pass

    def _add(self, select: str) -> int:
        """Adds rows of the namespace; `{kind}` in the query stands for the doomed rows of that kind."""
        doomed = {kind: f"(select row from temp.doomed where kind = '{kind}')" for kind in FORGETTABLE}
        return int(self._tx.execute(f"insert or ignore into temp.doomed {select.format(**doomed)}").rowcount)

    def _add_parts(self) -> None:
        while self._add(
            "select 'memory', source_row from source where kind = 'memory' and role = 'merged_from'"
            " and source_kind = 'memory' and row in {memory}"
        ):
            pass

    def _add_whole_ranges(self) -> None:
        """Derived rows whose whole input goes. Only sessions that lose something are looked at."""
        touched = "in (select session from {row} where id in {{{row}}})"
        self._add(
            "select 'observation', id from observation where session "
            + touched.format(row="message")
            + " and not exists (select 1 from message where session = observation.session"
            " and id between first_message and last_message and id not in {message})"
        )
        self._add(
            "select 'reflection', id from reflection where session "
            + touched.format(row="observation")
            + " and not exists (select 1 from observation where session = reflection.session"
            " and id between first_observation and last_observation and id not in {observation})"
        )
        self._add(
            "select 'episode', id from episode where session "
            + touched.format(row="turn")
            + " and not exists (select 1 from turn where session = episode.session"
            " and turn between turn_start and turn_end and id not in {turn})"
        )
        self._add(
            "select 'profile', id from profile where session "
            + touched.format(row="turn")
            + " and not exists (select 1 from turn where session = profile.session and id not in {turn})"
        )

    # --- what stays, shaken -----------------------------------------------------------------------------------

    def _mark_stale(self) -> None:
        """What rests partly on doomed rows. Of deleted turns, messages, observations and episodes the triggers of
        their layers say so; here is what they cannot see."""
        doomed = {kind: f"(select row from temp.doomed where kind = '{kind}')" for kind in FORGETTABLE}
        self._tx.execute(
            "insert into temp.shaken select distinct 'memory', source.row from temp.doomed cross join source"
            " on source.source_kind = doomed.kind and source.source_row = doomed.row"
            " where source.kind = 'memory' and source.role = 'from'"
            f" and source.row not in {doomed['memory']} and not exists (select 1 from source as host"
            " where host.kind = 'memory' and host.row = source.row and host.source_kind = 'host')"
        )
        # What told it again is now what it was taken from.
        self._tx.execute(
            "update or ignore source set role = 'from' where kind = 'memory' and role = 'mentioned_in'"
            " and source_kind <> 'host' and row in (select row from temp.shaken where kind = 'memory')"
        )
        self._tx.execute(
            "insert into temp.shaken select distinct 'episode', episode.id from episode join atom"
            " on atom.session = episode.session and atom.turn between episode.turn_start and episode.turn_end"
            f" where atom.id in {doomed['atom']} and episode.id not in {doomed['episode']}"
        )
        self._tx.execute(
            "insert into temp.shaken select 'profile', id from profile where"
            f" (session in (select session from turn where id in {doomed['turn']})"
            f"  or session in (select session from atom where id in {doomed['atom']})"
            f"  or session in (select session from episode where id in {doomed['episode']}))"
            f" and id not in {doomed['profile']}"
        )
        for kind in ("memory", "episode", "profile"):
            self._tx.execute(
                f"update {kind} set stale = 1 where stale = 0 and id in (select row from temp.shaken where kind = ?)",
                (kind,),
            )

    def _count_stale(self) -> int:
        """Stale rows of the namespace among those that stay."""
        row = self._tx.execute(
            "select count(*) from document where namespace = ? and stale = 1"
            " and (kind, row) not in (select kind, row from temp.doomed)",
            (self._owner,),
        ).fetchone()
        return int(row[0])

    def _reopen_parts(self) -> None:
        """The other parts of a merge that is undone are live again, and their merge is due again."""
        rows = self._tx.execute(
            "select source.row as merged, part.id from source join memory as part on part.id = source.source_row"
            " where source.kind = 'memory' and source.role = 'merged_from' and source.source_kind = 'memory'"
            " and source.row in (select row from temp.doomed where kind = 'memory') and part.status = 'merged'"
            " and part.ended_by = 'memory ' || source.row"
            " and part.id not in (select row from temp.doomed where kind = 'memory') order by merged, part.id"
        ).fetchall()
        parts: dict[int, list[int]] = {}
        for row in rows:
            parts.setdefault(row["merged"], []).append(row["id"])
        self._tx.executemany(
            "update memory set status = 'active', ended_at = null, ended_by = null where id = ?",
            [(row["id"],) for row in rows],
        )
        for ids in parts.values():
            if len(ids) > 1:
                consolidation.add_due(self._tx, self._owner, ids, self._now)

    def _put_back_in_queue(self) -> None:
        """Work of stale rows that is not due already. Observations are put back by their trigger; a reflection that
        fell is made again when its log has grown."""
        for row in self._tx.execute(
            "select distinct exchange.id, exchange.session from temp.shaken join source on source.kind = 'memory'"
            " and source.row = shaken.row and source.source_kind = 'message' join exchange"
            " on exchange.prompt = source.source_row where shaken.kind = 'memory' order by exchange.id"
        ).fetchall():
            self._due("extract", row["session"], row["id"], row["id"], None)
        for row in self._tx.execute(
            "select id, session, turn_start, turn_end from episode where stale = 1 and status = 'active'"
            " and session in (select id from session where namespace = ?) order by id",
            (self._owner,),
        ).fetchall():
            self._due("episode", row["session"], row["turn_start"], row["turn_end"], {"redo": row["id"]})
        for row in self._tx.execute(
            "select profile_id, session, coalesce(turn_end, 0) as turn_end, coalesce((select min(turn) from turn"
            " where session = profile.session), 0) as turn_start from profile where stale = 1 and status = 'active'"
            " and session is not null and namespace = ? order by id",
            (self._owner,),
        ).fetchall():
            detail = {"profile_id": row["profile_id"]}
            self._due("retro", row["session"], row["turn_start"], row["turn_end"], detail)

    def _due(self, purpose: str, session: int, first: int, last: int, detail: object) -> None:
        known = self._tx.execute(
            "select 1 from task where purpose = ? and session = ? and state <> 'done' and detail is ?"
            " and (detail is not null or (first = ? and last = ?))",
            (purpose, session, None if detail is None else json.dumps(detail), first, last),
        ).fetchone()
        if known is None:
            tasks.add(
                self._tx,
                purpose,
                namespace=self._owner,
                session=session,
                first=first,
                last=last,
                now=self._now,
                detail=detail,
            )

    # --- traces -----------------------------------------------------------------------------------------------

    def _doomed_texts(self) -> list[tuple[str, str]]:
        """Kind and text of all doomed rows that have one."""
        rows = self._tx.execute(
            "select document.kind, document.text from temp.doomed cross join document on document.kind = doomed.kind"
            " and document.row = doomed.row where document.text <> '' order by document.id"
        )
        return [(row["kind"], row["text"]) for row in rows]

    def _clear_traces(self) -> None:
        """Queries of the trail, and errors of tasks and calls, that hold a forgotten text, or that tell of work on a
        session that lost something: an error may quote any part of its input."""
        tx = self._tx
        holds = self._holds_forgotten()
        recalls = tx.execute("select id, query from recall where namespace = ? and query is not null", (self._owner,))
        held = [(row["id"],) for row in recalls.fetchall() if holds(row["query"])]
        tx.executemany("update recall set query = null where id = ?", held)
        tx.execute("create temp table if not exists lost (session integer primary key)")
        tx.execute("delete from temp.lost")
        for kind in ("turn", "atom", "episode", "message", "observation", "reflection"):
            tx.execute(
                f"insert or ignore into temp.lost select session from {kind}"
                " where id in (select row from temp.doomed where kind = ?)",
                (kind,),
            )
        # The observer keeps finished parts of a long answer in its task.
        tx.execute(
            "update task set detail = null where purpose in ('observe', 'reflect')"
            " and session in (select session from temp.lost)"
        )
        for table, column in (("task", "last_error"), ("model_call", "error")):
            tx.execute(
                f"update {table} set {column} = null where namespace = ? and {column} is not null and (session is null"
                " or session in (select session from temp.lost))",
                (self._owner,),
            )
            rows = tx.execute(
                f"select id, {column} from {table} where namespace = ? and {column} is not null", (self._owner,)
            ).fetchall()
            tx.executemany(
                f"update {table} set {column} = null where id = ?",
                [(row["id"],) for row in rows if holds(row[column])],
            )

    def _holds_forgotten(self) -> Callable[[str], bool]:
        sentences = own_text.Sentences(text for _, text in self._texts)
        # A query is kept as its first 200 characters, which end no sentence.
        heads = {normalise(shorten(text, 200)) for _, text in self._texts}
        named = None if self._wanted.text is None else contains(self._wanted.text)

        def holds(text: str) -> bool:
            return bool(named and named(text)) or normalise(text) in heads or text in sentences

        return holds

    def _leaves_session(self) -> bool:
        """Whether an empty session is to go, though no row of it was found."""
        if not self._wanted.whole_sessions:
            return False
        row = self._tx.execute(
            "select 1 from session where namespace = ? and name = ?", (self._owner, self._wanted.session)
        ).fetchone()
        return row is not None

    def _drop_sessions(self) -> None:
        """A session that is forgotten as a whole goes with its settings, work and trail; so does all of a namespace.
        What the calls of the model cost stays in the ledger."""
        tx, owner = self._tx, self._owner
        values: list[Any]
        if self._wanted.everything:
            where, values = "namespace = ?", [owner]
            tx.execute("delete from recall where namespace = ?", (owner,))
            tx.execute("delete from task where namespace = ?", (owner,))
        elif self._wanted.whole_sessions:
            where, values = "namespace = ? and name = ?", [owner, self._wanted.session]
        else:
            return
        tx.execute(
            f"update model_call set session = null where session in (select id from session where {where})", values
        )
        tx.execute(f"delete from session where {where}", values)

    def _empty_stale(self) -> None:
        """`secure`: what rests partly on something forgotten may quote it until it is redone."""
        tx, owner = self._tx, self._owner
        sessions = "session in (select id from session where namespace = ?)"
        tx.execute("update memory set text = '' where stale = 1 and namespace = ?", (owner,))
        tx.execute("update profile set text = '' where stale = 1 and namespace = ?", (owner,))
        tx.execute(
            "delete from profile_rule where profile in (select id from profile where stale = 1 and namespace = ?)",
            (owner,),
        )
        tx.execute(f"update episode set narrative = '' where stale = 1 and {sessions}", (owner,))
        tx.execute(f"update reflection set text = '' where stale = 1 and {sessions}", (owner,))
        tx.execute(
            "update observation set text = '', current_task = null, suggested_response = null"
            f" where stale = 1 and {sessions}",
            (owner,),
        )


# A memory taken out of something, of which nothing is left that it rests on.
_ONLY_RESTS_ON_DOOMED = (
    "select 'memory', source.row from temp.doomed cross join source"
    " on source.source_kind = doomed.kind and source.source_row = doomed.row"
    " where source.kind = 'memory' and source.role = 'from'"
    " and not exists (select 1 from source as other where other.kind = 'memory' and other.row = source.row"
    " and (other.source_kind, other.source_row) not in (select kind, row from temp.doomed))"
)
_MERGED_FROM_DOOMED = (
    "select 'memory', source.row from temp.doomed cross join source"
    " on source.source_kind = 'memory' and source.source_row = doomed.row"
    " where doomed.kind = 'memory' and source.kind = 'memory' and source.role = 'merged_from'"
)


def _fold(text: str) -> str:
    return clean(text).casefold()


def contains(text: str) -> Callable[[object], bool]:
    """Whether a text contains this one, without regard to case; in JSON also in its escaped form."""
    plain = _fold(text)
    escaped = json.dumps(plain, ensure_ascii=False)[1:-1]

    def holds(value: object) -> bool:
        if not isinstance(value, str):
            return False
        folded = _fold(value)
        return plain in folded or escaped in folded

    return holds


# --- the bytes of the file ------------------------------------------------------------------------------------


def _erase(services: Services, probes: Sequence[str]) -> None:
    """Rewrites the file and its full-text index without what was deleted, then reads its bytes to see."""
    file = services.file
    with file.write() as tx:
        # A plain vacuum copies the index with the stems of deleted texts.
        tx.execute("insert into document_fts (document_fts) values ('optimize')")
    if not file.compact():
        raise Busy(
            f"{file.path}: the rows are forgotten, but another connection still reads old pages of the file, which"
            " therefore stay in its log: close it, and call forget once more with secure=True"
        )
    # A text that a row still holds, of another namespace perhaps, is no trace of the one forgotten.
    left = [text for text in traces(file.path, probes) if not held_by_a_row(file.reader(), text)]
    if left:
        raise IstarError(f"{file.path}: the rows are forgotten, but {len(left)} of their texts are still in its bytes")


def traces(path: Path, texts: Iterable[str]) -> list[str]:
    """Those of the texts whose bytes (of long ones the first 200) are in the file or in its log."""
    contents = [part.read_bytes() for part in (path, wal_path(path)) if part.exists()]
    return [text for text in texts if any(_probe(text) in content for content in contents)]


def _probe(text: str) -> bytes:
    return clean(text).encode()[:_PROBE_LENGTH]


def held_by_a_row(connection: sqlite3.Connection, text: str) -> bool:
    """Whether any text of any table holds `text`."""
    needle = _probe(text).decode(errors="ignore")
    return any(
        connection.execute(f'select 1 from "{table}" where instr("{column}", ?) limit 1', (needle,)).fetchone()
        for table, column in text_columns(connection)
    )


def text_columns(connection: sqlite3.Connection) -> Iterator[tuple[str, str]]:
    """(table, column) of all text in the file, the full-text index's own tables left out."""
    tables = connection.execute(
        "select name from sqlite_master where type = 'table' and name not like 'sqlite_%'"
        " and name not like 'document_fts%' order by name"
    ).fetchall()
    for (table,) in tables:
        for column in connection.execute("select name, type from pragma_table_info(?)", (table,)).fetchall():
            if column["type"].lower() in ("text", "any", ""):
                yield table, column["name"]
