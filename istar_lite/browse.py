"""Looking around without searching: namespaces, sessions, rows by id, pages, counts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from istar_lite.clock import from_text
from istar_lite.database import driver, wal_path
from istar_lite.errors import BadInput
from istar_lite.models import KINDS, Page, Row
from istar_lite.values import as_int, as_text

if TYPE_CHECKING:
    from istar_lite.database import File, sqlite3

_IN_NAMESPACE = "select id from namespace where name = :namespace"
_IN_SESSIONS = f"select id from session where namespace = ({_IN_NAMESPACE})"
# Where a row belongs to: some kinds to a namespace, the others to one of its sessions.
_OWNED = {
    **dict.fromkeys((*KINDS, "exchange"), f"session in ({_IN_SESSIONS})"),
    **dict.fromkeys(
        ("memory", "profile", "file", "item", "session", "recall", "task", "tombstone", "document"),
        f"namespace = ({_IN_NAMESPACE})",
    ),
}
LISTED = tuple(_OWNED)


def owned(kind: object) -> str:
    """SQL condition that a row of the table `kind` belongs to `:namespace`; `BadInput` for an unknown kind.

    The kind is looked up, never pasted: what is no key of the table cannot reach SQL.
    """
    name = as_text(kind, "kind")
    if name not in _OWNED:
        raise BadInput("kind", f"{name!r} is none of {', '.join(LISTED)}")
    return _OWNED[name]


def as_row(row: sqlite3.Row) -> Row:
    """A row of a table as a model, its times (columns `…_at`) as aware datetimes."""
    values = dict(row)
    for name, value in values.items():
        if name.endswith("_at") and value is not None:
            values[name] = from_text(value)
    return Row(**values)


def namespaces(connection: sqlite3.Connection) -> list[str]:
    """Names of all namespaces, oldest first."""
    return [row[0] for row in connection.execute("select name from namespace order by id")]


def sessions(connection: sqlite3.Connection, namespace: str) -> list[dict[str, Any]]:
    """Sessions of a namespace with their sizes, oldest first."""
    rows = connection.execute(
        "select session.id, session.name, session.kind, session.created_at,"
        " (select count(*) from turn where turn.session = session.id) as turns,"
        " (select count(*) from message where message.session = session.id) as messages"
        f" from session where namespace = ({_IN_NAMESPACE}) order by session.id",
        {"namespace": namespace},
    )
    return [dict(row) for row in rows]


def get(connection: sqlite3.Connection, namespace: str, kind: str, id: int) -> Row | None:
    """A row by kind and id, or None."""
    row = connection.execute(
        f"select * from {kind} where id = :id and {owned(kind)}", {"id": as_int(id, "id"), "namespace": namespace}
    ).fetchone()
    return None if row is None else as_row(row)


def page(
    connection: sqlite3.Connection, namespace: str, kind: str, *, limit: int = 100, after: int | None = None
) -> Page:
    """Rows with ids above `after`, `limit` at most. Ids only rise, so that pages miss and repeat nothing while
    others write."""
    condition = owned(kind)
    size = as_int(limit, "limit", low=0, high=1_000_000)
    start = 0 if after is None else as_int(after, "after")
    rows = connection.execute(
        f"select * from {kind} where id > :after and {condition} order by id limit :limit",
        {"namespace": namespace, "after": start, "limit": size + 1},
    ).fetchall()
    items = tuple(as_row(row) for row in rows[:size])
    more = len(rows) > size
    return Page(items=items, has_more=more, after=items[-1].to_values()["id"] if more and items else None)


def stats(file: File, namespace: str) -> dict[str, Any]:
    """Counts by kind (with tags of status where rows can end), sessions, and bytes of the file and its WAL."""
    connection = file.reader()
    kinds = {
        kind: connection.execute(
            f"select count(*) from {kind} where {owned(kind)}", {"namespace": namespace}
        ).fetchone()[0]
        for kind in (*KINDS, "exchange")
    }
    wal = wal_path(file.path)
    return {
        "namespace": namespace,
        "kinds": kinds,
        "sessions": len(sessions(connection, namespace)),
        "bytes": file.path.stat().st_size + (wal.stat().st_size if wal.exists() else 0),
        "driver": driver(),
    }
