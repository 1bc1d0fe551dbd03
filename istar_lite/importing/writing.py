"""The one path by which imported messages reach the file: checked, compared with what is known, written in batches.

A message is known when its session holds its id, or, where it has none, as many equal ones without id (role, speaker,
content and, where the source gives it, time) as came before it in the source. So the same file imported again adds
nothing, a file that has grown adds what is new, and a person who says "ok" twice has said it twice.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from istar_lite import places, tombstones
from istar_lite.clock import to_text
from istar_lite.database import insert_rows
from istar_lite.errors import BadInput
from istar_lite.importing.items import Fact, Item, Said
from istar_lite.importing.messages import as_instant
from istar_lite.text import normalise
from istar_lite.values import as_name, as_text, to_json

if TYPE_CHECKING:
    from istar_lite.database import sqlite3
    from istar_lite.services import Services

BATCH = 2_000  # rows of one transaction: long enough to be fast, short enough to let others write in between
_COLUMNS = "session, position, role, speaker, content, parts, tokens, external_id, occurred_at, recorded_at"
_KEYED = """
select memory.text from memory join namespace on namespace.id = memory.namespace
where namespace.name = :namespace and (memory.key = :key or memory.id in (
  select memory_key.memory from memory_key where memory_key.namespace = namespace.id and memory_key.key = :key))
"""
# The layer of memories has its own rules for what is told; the facade hands them over.
Remember = Callable[[Sequence[Mapping[str, Any]]], object]


def identity(role: str, speaker: str | None, content: str, occurred_at: str) -> bytes:
    """16 bytes that equal messages share. (Keeping the texts would hold a whole session in memory.)"""
    text = "\x1f".join((role, speaker or "", occurred_at, content))
    return hashlib.blake2b(text.encode(), digest_size=16).digest()


@dataclass
class _Session:
    """What the import knows of a session. The counters hold the equal messages not yet met in the source."""

    name: str
    key: str | None
    id: int | None = None
    counted_to: int = 0  # id of the last message counted
    by_time: Counter[bytes] = field(default_factory=Counter)
    by_text: Counter[bytes] = field(default_factory=Counter)
    last_time: str | None = None  # of the message before, for one that has none


class _Message(NamedTuple):
    """A message as it will be stored. `dated`: its source gave the time."""

    number: int
    session: _Session
    role: str
    speaker: str | None
    content: str
    parts: str | None
    external_id: str | None
    occurred_at: str
    dated: bool

    def identity(self, *, with_time: bool) -> bytes:
        return identity(self.role, self.speaker, self.content, self.occurred_at if with_time else "")


@dataclass
class Writer:
    """Writes items in batches. `dry`: compares and counts, and writes nothing."""

    services: Services
    namespace: str
    prefix: str | None
    default_session: str
    dry: bool
    remember: Remember
    now: str = ""
    messages: int = 0
    memories: int = 0
    skipped: int = 0
    forgotten: int = 0
    errors: list[tuple[int, str]] = field(default_factory=list)
    names: set[str] = field(default_factory=set)
    _sessions: dict[tuple[str, str | None], _Session] = field(default_factory=dict)
    _labels: dict[str, str] = field(default_factory=dict)
    _keys_met: set[str] = field(default_factory=set)
    _told: list[Fact] = field(default_factory=list)  # statements to be brought in with the batch
    _counted: set[int] = field(default_factory=set)  # sessions counted in this batch
    _ids_met: dict[tuple[str, str], bytes] = field(default_factory=dict)

    def write(self, items: Sequence[Item]) -> None:
        """One batch, in one transaction."""
        self.now = self.services.now()
        self._counted.clear()
        if not self.dry:
            self._ids_met.clear()  # those of earlier batches are in the file
        messages = [message for item in items if (message := self._checked(item)) is not None]
        with self._connection() as connection:
            fresh = self._fresh(connection, self._not_forgotten(connection, messages))
            if not self.dry:
                self._insert(connection, fresh)
            for item in items:
                if isinstance(item, Fact):
                    self._keep(connection, item)
            self._tell()
        self.messages += len(fresh)

    @contextlib.contextmanager
    def _connection(self) -> Iterator[sqlite3.Connection]:
        opened = self.services.file.reading() if self.dry else self.services.file.write()
        with opened as connection:
            yield connection

    def _checked(self, item: Item) -> _Message | None:
        if isinstance(item, Said):
            try:
                return self._checked_message(item)
            except BadInput as error:
                self.errors.append((item.number, str(error)))
        elif not isinstance(item, Fact):
            self.errors.append((item.number, item.reason))
        return None

    def _checked_message(self, said: Said) -> _Message:
        parts = None if said.parts is None else to_json(said.parts, "parts")
        content = self.services.stored_text(said.content, "content", blank=parts is not None)
        name = self._session_name(said.session)
        session = self._sessions.get((name, said.session_key))
        if session is None:
            session = self._sessions[name, said.session_key] = _Session(name, said.session_key)
        dated = said.occurred_at is not None
        when = to_text(as_instant(said.occurred_at), "timestamp") if dated else session.last_time or self.now
        session.last_time = when
        return _Message(
            said.number,
            session,
            self._label(said.role, "role"),
            None if said.speaker is None else self._label(said.speaker, "speaker"),
            content,
            self._redacted(parts),
            _external_id(said.external_id),
            when,
            dated,
        )

    def _label(self, value: Any, field_name: str) -> str:
        """A checked role, speaker or session: a few of them come again and again."""
        if isinstance(value, str) and value in self._labels:
            return self._labels[value]
        label = as_name(value, field_name)
        self._labels[value] = label
        return label

    def _session_name(self, own: Any) -> str:
        if own is None:
            return self.prefix or self.default_session
        name = self._label(str(own) if isinstance(own, int) and not isinstance(own, bool) else own, "session")
        return f"{self.prefix}/{name}" if self.prefix else name

    def _redacted(self, parts: str | None) -> str | None:
        if parts is None or self.services.redact is None:
            return parts
        return json.dumps(_redacted(json.loads(parts), self.services), ensure_ascii=False, separators=(",", ":"))

    def _not_forgotten(self, connection: sqlite3.Connection, messages: list[_Message]) -> list[_Message]:
        """Without those whose text was forgotten in this namespace: import does not bring it back."""
        owner = places.find_namespace(connection, self.namespace)
        if owner is None or not connection.execute("select 1 from tombstone where namespace = ?", (owner,)).fetchone():
            return messages  # the usual case costs one look
        kept = [message for message in messages if not tombstones.is_forgotten(connection, owner, message.content)]
        self.forgotten += len(messages) - len(kept)
        return kept

    def _fresh(self, connection: sqlite3.Connection, messages: list[_Message]) -> list[_Message]:
        """The messages that the file does not hold yet."""
        for session in {id(message.session): message.session for message in messages}.values():
            self._find(connection, session)
        known_ids = self._known_ids(connection, messages)
        fresh = [message for message in messages if not self._is_known(connection, known_ids, message)]
        self.skipped += len(messages) - len(fresh)
        return fresh

    def _find(self, connection: sqlite3.Connection, session: _Session) -> None:
        """Looks whether the session exists, under its present title or a former one."""
        if session.id is None and session.key is not None:
            row = connection.execute(
                "select session.name from session join namespace on namespace.id = session.namespace"
                " where namespace.name = ?1 and kind = 'conversation' and substr(session.name, -length(?2)) = ?2"
                " order by session.id limit 1",
                (self.namespace, " " + session.key),
            ).fetchone()
            session.name = session.name if row is None else str(row[0])
        if session.id is None:
            session.id = places.find_session(connection, self.namespace, session.name, "conversation")
        self.names.add(session.name)

    def _known_ids(self, connection: sqlite3.Connection, messages: list[_Message]) -> dict[tuple[int, str], str]:
        """(session, external id) → content, of those of this batch that the file holds. Asked anew for each batch:
        others may write in between."""
        wanted: dict[int, list[str]] = {}
        for message in messages:
            if message.external_id is not None and message.session.id is not None:
                wanted.setdefault(message.session.id, []).append(message.external_id)
        found = {}
        for session, ids in wanted.items():
            for row in connection.execute(
                "select external_id, content from message where session = ? and external_id in"
                " (select value from json_each(?))",
                (session, json.dumps(ids)),
            ):
                found[session, str(row[0])] = str(row[1])
        return found

    def _is_known(
        self, connection: sqlite3.Connection, known_ids: dict[tuple[int, str], str], message: _Message
    ) -> bool:
        if message.external_id is None:
            return self._was_said(connection, message)
        stored = known_ids.get((message.session.id or 0, message.external_id))
        own = identity("", None, message.content, "")
        before = self._ids_met.setdefault((message.session.name, message.external_id), own)
        met = before is not own
        if (stored is not None and stored != message.content) or before != own:
            problem = f"id: {message.external_id!r} is known with another content, which is kept"
            self.errors.append((message.number, problem))
        return stored is not None or met

    def _was_said(self, connection: sqlite3.Connection, message: _Message) -> bool:
        session = message.session
        self._count(connection, session)
        if not message.dated:
            return _take(session.by_text, message.identity(with_time=False))
        if not _take(session.by_time, message.identity(with_time=True)):
            return False
        _take(session.by_text, message.identity(with_time=False))
        return True

    def _count(self, connection: sqlite3.Connection, session: _Session) -> None:
        """Counts what the session holds and has not been counted, others' late messages included."""
        if session.id is None or session.id in self._counted:
            return
        self._counted.add(session.id)
        rows = connection.execute(
            "select id, role, speaker, content, occurred_at from message"
            " where session = ? and id > ? and external_id is null",
            (session.id, session.counted_to),
        )
        for row in rows:
            session.counted_to = max(session.counted_to, int(row[0]))
            session.by_text[identity(row[1], row[2], row[3], "")] += 1
            session.by_time[identity(row[1], row[2], row[3], row[4])] += 1

    def _insert(self, tx: sqlite3.Connection, messages: list[_Message]) -> None:
        positions: dict[int, int] = {}
        rows = []
        for message in messages:
            session = message.session
            if session.id is None:
                session.id = places.ensure_session(tx, self.namespace, session.name, "conversation", self.now)
            if session.id not in positions:
                positions[session.id] = _last_position(tx, session.id)
            positions[session.id] += 1
            rows.append(self._row(message, session.id, positions[session.id]))
            if message.external_id is None:
                # Our own rows will be counted with those of others: they are taken off in advance.
                session.by_text[message.identity(with_time=False)] -= 1
                session.by_time[message.identity(with_time=True)] -= 1
        insert_rows(tx, "message", _COLUMNS, rows)

    def _keep(self, connection: sqlite3.Connection, fact: Fact) -> None:
        """One statement of another store; known by its key, so that importing it again does not count it again."""
        if fact.key in self._keys_met:
            self._tell()  # so that it is compared with the one before it
        known = connection.execute(_KEYED, {"namespace": self.namespace, "key": fact.key}).fetchone()
        owner = places.find_namespace(connection, self.namespace)
        if known is not None or fact.key in self._keys_met:
            if known is not None and normalise(known[0]) != normalise(str(fact.text)):
                problem = f"{fact.key!r} is known with another text, which is kept"
                self.errors.append((fact.number, problem))
            self.skipped += 1
        elif owner is not None and tombstones.is_forgotten(connection, owner, str(fact.text)):
            self.forgotten += 1
        else:
            self._keys_met.add(fact.key)
            self._told.append(fact)

    def _tell(self) -> None:
        """Brings in the statements met so far, in the batch's transaction."""
        told, self._told = self._told, []
        try:
            self._remember(told)
        except BadInput:  # nothing was written: all are checked first; now each by itself
            for fact in told:
                try:
                    self._remember([fact])
                except BadInput as error:
                    self.errors.append((fact.number, error.problem))

    def _remember(self, told: Sequence[Fact]) -> None:
        if self.dry:
            for fact in told:
                self.services.stored_text(fact.text, "text")
        elif told:
            self.remember(
                [
                    {"text": one.text, "key": one.key, "tags": one.tags, "occurred_at": as_instant(one.occurred_at)}
                    for one in told
                ]
            )
        self.memories += len(told)

    def _row(self, message: _Message, session: int, position: int) -> tuple[Any, ...]:
        return (
            session,
            position,
            message.role,
            message.speaker,
            message.content,
            message.parts,
            self.services.count_tokens(message.content),
            message.external_id,
            message.occurred_at,
            self.now,
        )


def _take(counter: Counter[bytes], key: bytes) -> bool:
    if counter[key] <= 0:
        return False
    counter[key] -= 1
    return True


def _last_position(tx: sqlite3.Connection, session: int) -> int:
    row = tx.execute("select max(position) from message where session = ?", (session,)).fetchone()
    return int(row[0] or 0)


def _external_id(value: Any) -> str | None:
    if value is None:
        return None
    return as_text(str(value) if isinstance(value, int) and not isinstance(value, bool) else value, "id")


def _redacted(value: Any, services: Services) -> Any:
    if isinstance(value, str):
        return services.stored_text(value, "parts", blank=True)
    if isinstance(value, list):
        return [_redacted(item, services) for item in value]
    if isinstance(value, dict):
        return {key: _redacted(item, services) for key, item in value.items()}
    return value
