"""What `forget` removed stays away: the check that extraction, import and merge make before they write a text.

A tombstone is the SHA-256 of the normalised text with a salt. The salt is the file's own random one (digests of short
secrets can be guessed without); a merge brings the other file's tombstones with their salts, so a check asks once for
each salt that the namespace knows, which is one or two.

A tombstone means the whole statement. One for every text that contains a forgotten word would silently refuse what
people say later about other things.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable
from typing import TYPE_CHECKING, NamedTuple

from istar_lite.text import digest

if TYPE_CHECKING:
    from istar_lite.database import sqlite3

SALT = "salt"  # key of the file's setting, as hex

# The salts of a namespace, from one to the next in the index: `select distinct` would look through all tombstones.
_SALTS = """
with recursive known (salt) as (
  select min(salt) from tombstone where namespace = ?1
  union all
  select (select min(salt) from tombstone where namespace = ?1 and salt > known.salt) from known
    where known.salt is not null
)
select salt from known where salt is not null
"""


def new_salt() -> bytes:
    """A random salt, for a file that has none yet."""
    return secrets.token_bytes(16)


def file_salt(tx: sqlite3.Connection, fresh: bytes) -> bytes:
    """The file's salt; `fresh` becomes it where there is none."""
    tx.execute("insert into setting (key, value) values (?, ?) on conflict do nothing", (SALT, fresh.hex()))
    row = tx.execute("select value from setting where key = ? and namespace = 0 and session = 0", (SALT,)).fetchone()
    return bytes.fromhex(row[0])


def add(tx: sqlite3.Connection, namespace: int, texts: Iterable[tuple[str, str]], salt: bytes, now: str) -> None:
    """Tombstones for (kind, text), once each."""
    tx.executemany(
        "insert into tombstone (kind, namespace, salt, digest, forgotten_at) values (?, ?, ?, ?, ?)"
        " on conflict do nothing",
        ((kind, namespace, salt, digest(text, salt), now) for kind, text in texts),
    )


class Found(NamedTuple):
    """A tombstone of a text."""

    kind: str
    salt: bytes
    digest: str


def is_forgotten(connection: sqlite3.Connection, namespace: int, text: str, kind: str | None = None) -> bool:
    """Whether `text` was forgotten in the namespace: as a row of `kind`, or (None) as a row of any kind."""
    return bool(of(connection, namespace, text, kind))


def any_in(connection: sqlite3.Connection, namespace: int) -> bool:
    """Whether anything at all was forgotten in the namespace: a batch asks this once, not for each text."""
    row = connection.execute("select 1 from tombstone where namespace = ? limit 1", (namespace,)).fetchone()
    return row is not None


def lift(tx: sqlite3.Connection, namespace: int, text: str) -> None:
    """The host itself tells the text again, as `remember` does: from now on it may be learnt again too."""
    tx.executemany(
        "delete from tombstone where namespace = ? and kind = ? and salt = ? and digest = ?",
        [(namespace, *found) for found in of(tx, namespace, text)],
    )


def of(connection: sqlite3.Connection, namespace: int, text: str, kind: str | None = None) -> list[Found]:
    """The tombstones of a text, of one kind or of all."""
    salts = connection.execute(_SALTS, (namespace,)).fetchall()
    return [
        Found(row[0], bytes(salt), value)
        for salt, value in [(salt, digest(text, salt)) for (salt,) in salts]
        for row in connection.execute(
            "select kind from tombstone where namespace = ?1 and salt = ?2 and digest = ?3"
            " and kind = coalesce(?4, kind)",
            (namespace, salt, value, kind),
        ).fetchall()
    ]
