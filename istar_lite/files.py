"""Files that a model keeps in a memory folder: a tree of paths, each file with the history of its changes.

A change writes a new version and ends the one before it (schema 013), so nothing that was written is lost by an edit,
a deletion or a renaming; only `forget` removes it. Paths are absolute, with "/" between names; what a host calls its
root and how it words its errors is the host's affair.
"""

from __future__ import annotations

import posixpath
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from istar_lite import places
from istar_lite.clock import from_text
from istar_lite.errors import BadInput
from istar_lite.models import FileVersion
from istar_lite.values import as_name

if TYPE_CHECKING:
    from istar_lite.database import sqlite3
    from istar_lite.services import Services

Change = Literal["create", "str_replace", "insert", "rename"]
_LIVE = "namespace = :owner and status = 'active'"
# All paths below a folder: "0" is the character after "/". A range serves from the index, and takes no character of a
# name for a pattern.
_BELOW = "path > :path || '/' and path < :path || '0'"


@dataclass(frozen=True, slots=True)
class Entry:
    """What lies in a folder. `size`: bytes of the file, of a folder those of all files below it."""

    name: str
    is_folder: bool
    size: int


class Files:
    """The files of one namespace, as `memory.files()` gives them."""

    def __init__(self, services: Services, namespace: str) -> None:
        self._services = services
        self.namespace = namespace

    @contextmanager
    def reading(self) -> Iterator[Tree]:
        """The tree as of one moment."""
        with self._services.file.reading() as connection:
            yield Tree(self._services, connection, places.find_namespace(connection, self.namespace), "")

    @contextmanager
    def writing(self) -> Iterator[Tree]:
        """The tree in one write transaction: all that happens in it counts, or, on any exception, none."""
        now = self._services.now()
        with self._services.file.write() as tx:
            yield Tree(self._services, tx, places.ensure_namespace(tx, self.namespace, now), now)

    def read(self, path: str) -> str | None:
        """The text of a file; None if there is none."""
        with self.reading() as tree:
            return tree.text(as_path(path))

    def paths(self) -> list[str]:
        """The paths of all files, in order."""
        with self.reading() as tree:
            return tree.paths()

    def history(self, path: str) -> list[FileVersion]:
        """All versions that a path ever had, oldest first."""
        with self.reading() as tree:
            return tree.history(as_path(path))


class Tree:
    """The files of a namespace inside a transaction. Paths come checked (`as_path`)."""

    def __init__(self, services: Services, connection: sqlite3.Connection, owner: int | None, now: str) -> None:
        self._services = services
        self._connection = connection
        self._owner = owner
        self._now = now

    # --- looking ----------------------------------------------------------------------------------------------

    def kind(self, path: str) -> Literal["file", "folder"] | None:
        """What is at the path."""
        if self._live(path) is not None:
            return "file"
        found = self._connection.execute(
            f"select exists (select 1 from folder where namespace = :owner and path = :path)"
            f" or exists (select 1 from file where {_LIVE} and {_BELOW})",
            self._values(path),
        ).fetchone()
        return "folder" if found[0] else None

    def text(self, path: str) -> str | None:
        """The text of the file at the path."""
        row = self._live(path)
        return None if row is None else str(row["text"])

    def paths(self) -> list[str]:
        """The paths of all files, in order."""
        rows = self._connection.execute(f"select path from file where {_LIVE} order by path", self._values(""))
        return [row[0] for row in rows]

    def entries(self, path: str) -> list[Entry]:
        """What lies directly in the folder, ordered by name."""
        sizes: dict[str, int] = {}
        folders: set[str] = set()
        start = len(path) + 1
        rows = self._connection.execute(
            f"select path, length(cast(text as blob)) as size from file where {_LIVE} and {_BELOW}"
            f" union all select path, null from folder where namespace = :owner and {_BELOW}",
            self._values(path),
        )
        for below, size in rows:
            name, slash, _ = below[start:].partition("/")
            sizes[name] = sizes.get(name, 0) + (size or 0)
            if slash or size is None:
                folders.add(name)
        return [Entry(name, name in folders, sizes[name]) for name in sorted(sizes)]

    def history(self, path: str) -> list[FileVersion]:
        """All versions at the path, oldest first."""
        rows = self._connection.execute(
            "select * from file where namespace = :owner and path = :path order by id", self._values(path)
        )
        return [_version(row) for row in rows]

    # --- changing ---------------------------------------------------------------------------------------------

    def write(self, path: str, text: str, change: Change) -> None:
        """The file at the path has this text from now on; folders on the way are made."""
        stored = self._services.stored_text(text, "text", blank=True)
        held = self._live(path)
        if held is not None and held["text"] == stored:
            return
        self.make_folder(posixpath.dirname(path))
        self._replace(held, path, stored, change)

    def make_folder(self, path: str) -> None:
        """The folder and those on the way to it; `BadInput` where a file is in the way."""
        missing = []
        while path != "/" and self._folder_row(path) is None:
            if self._live(path) is not None:
                raise BadInput("path", f"{path} is a file, not a folder")
            missing.append(path)
            path = posixpath.dirname(path)
        self._connection.executemany(
            "insert into folder (namespace, path, created_at) values (?, ?, ?)",
            [(self._owner, one, self._now) for one in reversed(missing)],
        )

    def remove(self, path: str) -> None:
        """Ends the file, or the folder with all in it; their histories stay."""
        values = {**self._values(path), "now": self._now}
        self._connection.execute(
            "update file set status = 'superseded', ended_at = max(:now, occurred_at), ended_by = 'delete'"
            f" where {_LIVE} and (path = :path or {_BELOW})",
            values,
        )
        self._connection.execute(
            f"delete from folder where namespace = :owner and (path = :path or {_BELOW})", self._values(path)
        )

    def move(self, old: str, new: str) -> None:
        """The file, or the folder with all in it, is at `new` from now on; folders on the way are made."""
        if f"{new}/".startswith(f"{old}/"):
            raise BadInput("path", f"{old} cannot be moved into itself")
        self.make_folder(posixpath.dirname(new))
        rows = self._connection.execute(
            f"select * from file where {_LIVE} and (path = :path or {_BELOW}) order by path", self._values(old)
        ).fetchall()
        for row in rows:
            self._replace(row, new + row["path"][len(old) :], row["text"], "rename")
        self._connection.execute(
            "update folder set path = :new || substr(path, length(:path) + 1)"
            f" where namespace = :owner and (path = :path or {_BELOW})",
            {**self._values(old), "new": new},
        )

    # --- rows -------------------------------------------------------------------------------------------------

    def _values(self, path: str) -> dict[str, object]:
        return {"owner": self._owner, "path": path}

    def _live(self, path: str) -> sqlite3.Row | None:
        row: sqlite3.Row | None = self._connection.execute(
            f"select * from file where {_LIVE} and path = :path", self._values(path)
        ).fetchone()
        return row

    def _folder_row(self, path: str) -> sqlite3.Row | None:
        row: sqlite3.Row | None = self._connection.execute(
            "select id from folder where namespace = :owner and path = :path", self._values(path)
        ).fetchone()
        return row

    def _replace(self, held: sqlite3.Row | None, path: str, text: str, change: Change) -> None:
        # A clock that was set back makes no version older than the one that it replaces.
        now = self._now if held is None else max(self._now, held["occurred_at"])
        if held is not None:
            self._connection.execute(
                "update file set status = 'superseded', ended_at = ? where id = ?", (now, held["id"])
            )
        cursor = self._connection.execute(
            "insert into file (namespace, path, text, change, occurred_at, recorded_at) values (?, ?, ?, ?, ?, ?)",
            (self._owner, path, text, change, now, self._now),
        )
        if held is not None:
            self._connection.execute(
                "update file set ended_by = ? where id = ?", (f"file {cursor.lastrowid}", held["id"])
            )


def as_path(value: object) -> str:
    """An absolute path in its shortest form: no ".", "..", double or final "/". `BadInput` for anything else."""
    text = as_name(value, "path")
    if not text.startswith("/"):
        raise BadInput("path", f"{text!r} does not begin with /")
    normal = posixpath.normpath("/" + text.lstrip("/"))
    if normal == "/":
        raise BadInput("path", "names no file or folder")
    return normal


def _version(row: sqlite3.Row) -> FileVersion:
    return FileVersion(
        id=row["id"],
        path=row["path"],
        text=row["text"],
        change=row["change"],
        status=row["status"],
        occurred_at=from_text(row["occurred_at"]),
        ended_at=None if row["ended_at"] is None else from_text(row["ended_at"]),
        ended_by=row["ended_by"],
    )
