"""Namespaces and sessions by name, and settings by place. Names are compared exactly; rows are made at first write."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from istar_lite.database import sqlite3

SessionKind = Literal["run", "conversation"]


def find_namespace(connection: sqlite3.Connection, name: str) -> int | None:
    """Id of the namespace, or None while nothing was written under that name."""
    row = connection.execute("select id from namespace where name = ?", (name,)).fetchone()
    return None if row is None else int(row[0])


def ensure_namespace(tx: sqlite3.Connection, name: str, now: str) -> int:
    """Id of the namespace, made if it is new."""
    found = find_namespace(tx, name)
    if found is None:
        cursor = tx.execute("insert into namespace (name, created_at) values (?, ?)", (name, now))
        found = int(cursor.lastrowid or 0)
    return found


def find_session(connection: sqlite3.Connection, namespace: str, name: str, kind: SessionKind) -> int | None:
    """Id of the session, or None."""
    row = connection.execute(
        "select session.id from session join namespace on namespace.id = session.namespace"
        " where namespace.name = ? and session.name = ? and session.kind = ?",
        (namespace, name, kind),
    ).fetchone()
    return None if row is None else int(row[0])


def ensure_session(tx: sqlite3.Connection, namespace: str, name: str, kind: SessionKind, now: str) -> int:
    """Id of the session, made (with its namespace) if it is new."""
    found = find_session(tx, namespace, name, kind)
    if found is None:
        owner = ensure_namespace(tx, namespace, now)
        cursor = tx.execute(
            "insert into session (namespace, name, kind, created_at) values (?, ?, ?, ?)", (owner, name, kind, now)
        )
        found = int(cursor.lastrowid or 0)
    return found


def setting(connection: sqlite3.Connection, key: str, *, session: int = 0) -> Any:
    """The value that holds for a session: its own, else its namespace's, else the file's, else None."""
    if not session:
        return file_setting(connection, key)
    row = connection.execute(
        "select value from setting where key = ?1 and ((session = ?2 and namespace = 0) or (session = 0 and"
        " namespace in (0, (select namespace from session where id = ?2)))) order by session desc, namespace desc"
        " limit 1",
        (key, session),
    ).fetchone()
    return None if row is None else row[0]


def file_setting(connection: sqlite3.Connection, key: str) -> Any:
    """The value that holds for the file, else None."""
    row = connection.execute(
        "select value from setting where key = ? and namespace = 0 and session = 0", (key,)
    ).fetchone()
    return None if row is None else row[0]


def own_settings(connection: sqlite3.Connection, session: int) -> dict[str, Any]:
    """The settings that a session has of its own."""
    return dict(connection.execute("select key, value from setting where session = ?", (session,)).fetchall())


def set_setting(tx: sqlite3.Connection, key: str, value: object, *, namespace: int = 0, session: int = 0) -> None:
    """Writes a setting, if it differs."""
    tx.execute(
        "insert into setting (key, namespace, session, value) values (?, ?, ?, ?)"
        " on conflict (key, namespace, session) do update set value = excluded.value where value is not excluded.value",
        (key, namespace, session, value),
    )
