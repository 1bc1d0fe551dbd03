"""The rows of observational memory: what is raw, what is observed, what is under way. Reads and short writes only.

Where a message is (raw, buffered, active, reflected) is kept by triggers (schema 010); here are the questions.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from istar_lite import places
from istar_lite.clock import from_text
from istar_lite.models import Message, Observation, Reflection
from istar_lite.observations.parts import ToolCall, pieces, tool_ids
from istar_lite.observations.units import PROMPT_ROLES, SYSTEM_ROLES, Spoken
from istar_lite.trail import Handed
from istar_lite.values import to_json

if TYPE_CHECKING:
    from istar_lite.database import sqlite3

_LIVE = "status = 'active' and stale = 0"
_COLUMNS = (
    "select message.id, message.position, message.role, message.speaker, message.content, message.parts,"
    " coalesce(message.tokens, (length(message.content) + 3) / 4) as tokens, message.occurred_at, message.observation,"
    " coalesce(observation.stage, 'raw') as stage"
)
_SPOKEN = f"{_COLUMNS} from message left join observation on observation.id = message.observation"


def as_spoken(row: sqlite3.Row) -> Spoken:
    """A message as the layer works with it."""
    parts = None if row["parts"] is None else json.loads(row["parts"])
    return Spoken(
        row["id"],
        row["position"],
        row["role"],
        row["speaker"],
        row["content"],
        parts,
        row["tokens"],
        row["occurred_at"],
        row["observation"],
        row["stage"],
    )


def as_message(spoken: Spoken) -> Message:
    """A message as hosts see it."""
    return Message.of_ours(
        {
            "id": spoken.id,
            "role": spoken.role,
            "content": spoken.content,
            "speaker": spoken.speaker,
            "parts": spoken.parts,
            "position": spoken.position,
            "tokens": spoken.tokens,
            "external_id": None,  # of what was imported; the layer does not read it
            "occurred_at": from_text(spoken.occurred_at),
        }
    )


@dataclass(frozen=True, slots=True)
class Log:
    """The log as it is handed out: the newest reflection, and the observations that it has not read, by range."""

    reflection: Reflection | None
    observations: tuple[Observation, ...]
    current_task: str | None
    suggested_response: str | None

    @property
    def entries(self) -> tuple[str, ...]:
        """The texts in order; those of observations that had nothing to record are left out."""
        head = () if self.reflection is None else (self.reflection.text,)
        return (*head, *(one.text for one in self.observations if one.text))

    @property
    def text(self) -> str:
        """The whole log."""
        return "\n".join(self.entries)

    @property
    def tokens(self) -> int:
        """Tokens of the log, as counted when its parts were written."""
        head = 0 if self.reflection is None else self.reflection.tokens_after
        return head + sum(one.tokens for one in self.observations)

    @property
    def generation(self) -> int:
        """How often the log was condensed."""
        return 0 if self.reflection is None else self.reflection.generation

    @property
    def newest(self) -> int:
        """Id of the newest observation in it, 0 without any."""
        head = 0 if self.reflection is None else self.reflection.last_observation
        return max([head, *(one.id for one in self.observations)])


def find_session(connection: sqlite3.Connection, namespace: str, name: str) -> int | None:
    """Id of the conversation, or None while nothing was written to it."""
    return places.find_session(connection, namespace, name, "conversation")


def owner(connection: sqlite3.Connection, session: int) -> int | None:
    """Id of the namespace of a session; None: it was deleted."""
    row = connection.execute("select namespace from session where id = ?", (session,)).fetchone()
    return None if row is None else int(row[0])


def pinned(connection: sqlite3.Connection, session: int) -> list[Spoken]:
    """The instructions that the conversation opens with. They are never observed and never leave the context."""
    rows = connection.execute(f"{_SPOKEN} where message.session = ? order by message.position limit 20", (session,))
    opening: list[Spoken] = []
    for row in rows:
        if row["role"] not in SYSTEM_ROLES:
            break
        opening.append(as_spoken(row))
    return opening


def raw(
    connection: sqlite3.Connection, session: int, first: int | None = None, last: int | None = None
) -> list[Spoken]:
    """Messages that no observation stands for, in order, without the pinned ones."""
    rows = connection.execute(
        f"{_SPOKEN} where message.session = ? and message.observation is null and message.id between ? and ?"
        " order by message.id",
        (session, first or 0, last or 2**62),
    )
    fixed = {message.id for message in pinned(connection, session)}
    return [as_spoken(row) for row in rows if row["id"] not in fixed]


def waiting_tokens(connection: sqlite3.Connection, session: int) -> tuple[int, int]:
    """Tokens of raw messages (pinned ones too), and of those that buffered chunks stand for."""
    tokens = "coalesce(sum(coalesce(message.tokens, (length(message.content) + 3) / 4)), 0)"
    uncovered = connection.execute(
        f"select {tokens} from message where session = ? and observation is null", (session,)
    ).fetchone()[0]
    buffered = connection.execute(
        "select coalesce(sum(tokens_observed), 0) from observation where session = ? and stage = 'buffered'"
        f" and {_LIVE}",
        (session,),
    ).fetchone()[0]
    return int(uncovered), int(buffered)


def in_context(connection: sqlite3.Connection, session: int) -> list[Spoken]:
    """What may stand in the context: raw and buffered messages, and all of the newest exchange; pinned ones not."""
    newest = _newest_exchange(connection, session)
    rows = connection.execute(
        f"{_SPOKEN} where message.session = ?1 and message.observation is null union all"
        # From the few chunks to their messages: the other way round it would look at all messages of the session.
        f" {_COLUMNS} from observation cross join message on message.observation = observation.id"
        f" where observation.session = ?1 and observation.stage = 'buffered' and {_LIVE} union all"
        f" {_SPOKEN} where message.session = ?1 and message.position >= ?2 and observation.stage <> 'buffered'"
        " order by 1",
        (session, newest),
    ).fetchall()
    fixed = {message.id for message in pinned(connection, session)}
    return [as_spoken(row) for row in rows if row["id"] not in fixed]


def newest_spoken(connection: sqlite3.Connection, session: int, count: int) -> list[Spoken]:
    """The newest `count` messages of the session, in order."""
    rows = connection.execute(
        f"{_SPOKEN} where message.session = ? order by message.position desc, message.id desc limit ?", (session, count)
    ).fetchall()
    return sorted(map(as_spoken, rows), key=lambda one: one.id)


def _newest_exchange(connection: sqlite3.Connection, session: int) -> int:
    """Position where the newest exchange begins: at the last prompt; where nobody asks, at the last message, with the
    call that it answers."""
    for row in connection.execute(
        f"{_SPOKEN} where message.session = ? and message.role in (?, ?) order by message.position desc",
        (session, *PROMPT_ROLES),
    ):
        if as_spoken(row).is_prompt:
            return int(row["position"])
    newest, unanswered = 2**62, set[str | None]()
    for row in connection.execute(
        f"{_SPOKEN} where message.session = ? order by message.position desc limit 200", (session,)
    ):
        message = as_spoken(row)
        calls, results = tool_ids(message.parts, message.role)
        unanswered = (unanswered | set(results)) - set(calls)
        newest = min(newest, message.position)
        if not unanswered:
            break
    return newest


def observations(connection: sqlite3.Connection, session: int, stage: str) -> list[Observation]:
    """The live observations of a stage, in the order of their messages."""
    rows = connection.execute(
        f"select * from observation where session = ? and stage = ? and {_LIVE} order by first_message, id",
        (session, stage),
    )
    return [as_observation(row) for row in rows]


def as_observation(row: sqlite3.Row) -> Observation:
    """An observation as a model."""
    return Observation(
        id=row["id"],
        text=row["text"],
        first_message=row["first_message"],
        last_message=row["last_message"],
        stage=row["stage"],
        tokens=row["tokens"],
        tokens_observed=row["tokens_observed"],
        current_task=row["current_task"],
        suggested_response=row["suggested_response"],
        occurred_at=from_text(row["occurred_at"]),
    )


def as_reflection(row: sqlite3.Row) -> Reflection:
    """A reflection as a model."""
    names = (
        "id",
        "text",
        "first_observation",
        "last_observation",
        "generation",
        "level",
        "tokens_before",
        "tokens_after",
    )
    return Reflection(**{name: row[name] for name in names}, occurred_at=from_text(row["occurred_at"]))


def reflection(connection: sqlite3.Connection, session: int, stage: str) -> Reflection | None:
    """The newest live reflection of a stage, or None."""
    row = connection.execute(
        f"select * from reflection where session = ? and stage = ? and {_LIVE}"
        " order by generation desc, id desc limit 1",
        (session, stage),
    ).fetchone()
    return None if row is None else as_reflection(row)


def log(connection: sqlite3.Connection, session: int) -> Log:
    """The log as it stands. The newest chunk that has any hint gives both: fields are not mixed between chunks."""
    hints = connection.execute(
        f"select current_task, suggested_response from observation where session = ? and {_LIVE}"
        " and stage in ('active', 'reflected') and coalesce(current_task, suggested_response) is not null"
        " order by last_message desc, id desc limit 1",
        (session,),
    ).fetchone()
    task, response = (hints[0], hints[1]) if hints is not None else (None, None)
    return Log(
        reflection(connection, session, "active"), tuple(observations(connection, session, "active")), task, response
    )


def is_newest(connection: sqlite3.Connection, session: int, message: Spoken) -> bool:
    """Whether nothing was said after it."""
    row = connection.execute("select max(position) from message where session = ?", (session,)).fetchone()
    return row[0] is not None and message.position >= int(row[0])


def tool_names(connection: sqlite3.Connection, session: int) -> dict[str, str]:
    """Id of a tool call → name of its tool, from the newest messages with parts."""
    names: dict[str, str] = {}
    for row in connection.execute(
        "select role, parts from message where session = ? and parts is not null order by id desc limit 200", (session,)
    ):
        for piece in pieces(json.loads(row["parts"]), row["role"]):
            if isinstance(piece, ToolCall) and piece.id is not None:
                names.setdefault(piece.id, piece.name)
    return names


# --- short writes ---------------------------------------------------------------------------------------------


def unchanged(tx: sqlite3.Connection, messages: Sequence[Spoken]) -> bool:
    """Whether all these messages are there as they were read, and nothing stands for them yet."""
    for message in messages:
        row = tx.execute("select content, parts, observation from message where id = ?", (message.id,)).fetchone()
        if row is None or row["observation"] is not None or row["content"] != message.content:
            return False
        if (None if row["parts"] is None else json.loads(row["parts"])) != message.parts:
            return False
    return True


def insert_message(
    tx: sqlite3.Connection,
    session: int,
    role: str,
    content: str,
    parts: Any,
    *,
    speaker: str | None,
    tokens: int,
    occurred_at: str,
    now: str,
) -> Spoken:
    """A message at the end of the session."""
    kept = None if parts is None else to_json(parts, "content")
    cursor = tx.execute(
        "insert into message (session, role, speaker, content, parts, tokens, occurred_at, recorded_at)"
        " values (?, ?, ?, ?, ?, ?, ?, ?)",
        (session, role, speaker, content, kept, tokens, occurred_at, now),
    )
    return as_spoken(tx.execute(f"{_SPOKEN} where message.id = ?", (cursor.lastrowid,)).fetchone())


def activate(tx: sqlite3.Connection, ids: Iterable[int]) -> None:
    """Buffered observations take the place of their messages."""
    tx.executemany(
        f"update observation set stage = 'active' where id = ? and stage = 'buffered' and {_LIVE}",
        [(one,) for one in ids],
    )


def insert_observation(
    tx: sqlite3.Connection,
    session: int,
    messages: Sequence[Spoken],
    *,
    text: str,
    stage: str,
    current_task: str | None,
    suggested_response: str | None,
    tokens: int,
    now: str,
) -> Observation:
    """A new observation of exactly these messages. Stale ones of the same range give way to it."""
    cursor = tx.execute(
        "insert into observation (session, first_message, last_message, text, stage, current_task, suggested_response,"
        " tokens_observed, tokens, occurred_at, recorded_at) values (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        (
            session,
            messages[0].id,
            messages[-1].id,
            text,
            stage,
            current_task,
            suggested_response,
            sum(message.tokens for message in messages),
            tokens,
            max(message.occurred_at for message in messages),
            now,
        ),
    )
    identity = int(cursor.lastrowid or 0)
    ended = (now, f"observation {identity}", session)
    tx.execute(
        "update observation set status = 'superseded', ended_at = ?, ended_by = ? where session = ? and stale = 1"
        " and status = 'active' and not exists (select 1 from message where message.session = observation.session"
        " and message.id between first_message and last_message and message.observation is null)",
        ended,
    )
    tx.execute(
        "update reflection set status = 'superseded', ended_at = ?, ended_by = ? where session = ? and stale = 1"
        " and status = 'active'",
        ended,
    )
    return as_observation(tx.execute("select * from observation where id = ?", (identity,)).fetchone())


def insert_reflection(
    tx: sqlite3.Connection,
    session: int,
    read: Log,
    *,
    first: int,
    text: str,
    level: int,
    stage: str,
    tokens: int,
    occurred_at: str,
    now: str,
) -> Reflection:
    """A new generation of the log, in place of what was `read`."""
    cursor = tx.execute(
        "insert into reflection (session, first_observation, last_observation, generation, level, text, stage,"
        " tokens_before, tokens_after, occurred_at, recorded_at) values (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        (session, first, read.newest, read.generation + 1, level, text, stage, read.tokens, tokens, occurred_at, now),
    )
    return as_reflection(tx.execute("select * from reflection where id = ?", (cursor.lastrowid,)).fetchone())


def activate_reflection(tx: sqlite3.Connection, identity: int) -> None:
    """A buffered reflection takes the place of what it read."""
    tx.execute(f"update reflection set stage = 'active' where id = ? and stage = 'buffered' and {_LIVE}", (identity,))


def drop_buffered_reflections(tx: sqlite3.Connection, session: int, now: str) -> None:
    """Buffered reflections of a log that is no more."""
    tx.execute(
        "update reflection set status = 'superseded', ended_at = ? where session = ? and stage = 'buffered'"
        " and status = 'active'",
        (now, session),
    )


def handed(read: Log) -> list[Handed]:
    """The rows whose texts an observation message holds, for the trail."""
    kept: list[tuple[str, int]] = [] if read.reflection is None else [("reflection", read.reflection.id)]
    kept += [("observation", one.id) for one in read.observations if one.text]
    return [(kind, row, None, None, None) for kind, row in kept]


def ids_between(connection: sqlite3.Connection, session: int, first: int, last: int) -> list[int]:
    """Ids of all messages of the session from `first` to `last`."""
    rows: Any = connection.execute(
        # +session: by the ids, which are few, and not through all of the session.
        "select id from message where +session = ? and id between ? and ? order by id",
        (session, first, last),
    )
    return [int(row[0]) for row in rows]
