"""Proof that a text stays forgotten, made on a copy of the user's file: `istar-lite verify-forget`.

Outside like the command line, because it drives the whole memory: it searches rows, index, vectors and bytes, feeds
the text again through extraction, import and merge, does all work that is due, rebuilds the indexes, opens the file
anew, and searches again. The user's own file is only read.
"""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

from istar_lite import forgetting
from istar_lite.database import File, sqlite3, wal_path
from istar_lite.embedders import EmbedderLike
from istar_lite.errors import IstarError
from istar_lite.memory import Memory
from istar_lite.models import Record
from istar_lite.own_text import words
from istar_lite.testing import ScriptedLLM
from istar_lite.values import as_name, as_text

SAME = 0.98  # cosine from which on a vector is as good as the text
FED = "verify-forget"  # session in the copy to which the text is fed


class Check(Record):
    """One thing that was looked at, and what was found where it is not well."""

    name: str
    ok: bool
    detail: str = ""


class Verified(Record):
    """What `verify_forget` found. `ok`: every check is well."""

    text: str
    namespace: str
    checks: tuple[Check, ...] = ()

    @property
    def ok(self) -> bool:
        """Whether no trace was found and the text did not come back."""
        return all(check.ok for check in self.checks)

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready, with the verdict."""
        return {"ok": self.ok, **super().to_dict()}


def verify_forget(
    path: str | os.PathLike[str], text: str, *, namespace: str = "default", embedder: EmbedderLike = "static"
) -> Verified:
    """Whether `text` is gone from a namespace of the file and stays away when it is fed again.

    Raises `NotAMemoryFile` and its like, `BadInput` for a blank text. The file is only read; all else is done in a
    copy in the temporary folder.
    """
    wanted, owner = as_text(text, "text"), as_name(namespace, "namespace")
    with tempfile.TemporaryDirectory(prefix="istar-lite-") as folder:
        copy = Path(folder) / "copy.db"
        with closing(File(path, read_only=True)) as file:
            checks = [*_bytes(file.path, file.reader(), wanted), *_rows(file.reader(), owner, wanted)]
            file.snapshot(copy)
        checks += _searches(copy, owner, wanted, embedder, "")
        checks += _fed_again(copy, owner, wanted, embedder, Path(folder))
        checks += _searches(copy, owner, wanted, embedder, " after it was fed again")
    return Verified(text=wanted, namespace=owner, checks=tuple(checks))


# --- the file as it is ----------------------------------------------------------------------------------------


def _bytes(path: Path, connection: sqlite3.Connection, text: str) -> Iterator[Check]:
    """The file's bytes and its log's. A text that a row of another namespace holds is there by right."""
    held = forgetting.held_by_a_row(connection, text)
    found = [] if held else forgetting.traces(path, [text])
    log = wal_path(path)
    in_log = bool(found) and log.exists() and text.encode() in log.read_bytes()
    readers = _who_has_open(path)
    detail = "old pages hold it: forget(…, secure=True) rewrites the file" if found else ""
    if in_log:
        who = f"process {', '.join(map(str, readers))} has" if readers else "another connection has"
        detail = f"the log {log.name} holds old pages, which {who} open: close it, then forget(…, secure=True)"
    yield Check(name="bytes of the file", ok=not found, detail=detail)
    blocks = b"".join(row[0] for row in connection.execute("select block from document_fts_data"))
    stems = [word for word in dict.fromkeys(words(text)) if len(word) > 4 and not _is_used(connection, word)]
    left = [word for word in stems if word.encode()[:-1] in blocks]
    detail = f"{len(left)} of its words are still in pages of the full-text index" if left else ""
    yield Check(name="pages of the index", ok=not left, detail=detail)


def _is_used(connection: sqlite3.Connection, word: str) -> bool:
    sql = "select 1 from document where instr(lower(text), ?) or instr(lower(coalesce(speaker, '')), ?) limit 1"
    return connection.execute(sql, (word, word)).fetchone() is not None


def _who_has_open(path: Path) -> list[int]:
    """Other processes that have the file open, where the system tells."""
    found = []
    for entry in Path("/proc").glob("[0-9]*/fd/*"):
        try:
            if entry.readlink() == path and int(entry.parts[2]) != os.getpid():
                found.append(int(entry.parts[2]))
        except OSError:  # it ended meanwhile, or is somebody else's
            continue
    return sorted(set(found))


_IN_SESSIONS = "session in (select id from session where namespace = :owner)"
# Tables that belong to a namespace neither by a column of that name nor by their session.
_THROUGH = {
    "episode_history": f"episode in (select id from episode where {_IN_SESSIONS})",
    "profile_rule": "profile in (select id from profile where namespace = :owner)",
    "tag": "(kind, row) in (select kind, row from document where namespace = :owner)",
}


def _rows(connection: sqlite3.Connection, namespace: str, text: str) -> Iterator[Check]:
    """All text of all tables, as far as it belongs to the namespace."""
    row = connection.execute("select id from namespace where name = ?", (namespace,)).fetchone()
    owner = 0 if row is None else int(row[0])
    connection.create_function("istar_holds", 1, forgetting.contains(text), deterministic=True)
    found = []
    for table, column in forgetting.text_columns(connection):
        columns = {one[0] for one in connection.execute("select name from pragma_table_info(?)", (table,))}
        mine = _THROUGH.get(table) or ("namespace = :owner" if "namespace" in columns else None)
        mine = mine or (_IN_SESSIONS if "session" in columns else "true")
        sql = f'select count(*) from "{table}" where istar_holds("{column}") and {mine}'
        count = connection.execute(sql, {"owner": owner}).fetchone()[0]
        if count:
            found.append(f"{count} in {table}.{column}")
    yield Check(name="rows", ok=not found, detail=", ".join(found))
    orphans = connection.execute(
        "select count(*) from embedding where document not in (select id from document)"
    ).fetchone()[0]
    yield Check(name="vectors without a row", ok=not orphans, detail=f"{orphans} are left" if orphans else "")


# --- the copy -------------------------------------------------------------------------------------------------


def _searches(copy: Path, namespace: str, text: str, embedder: EmbedderLike, when: str) -> Iterator[Check]:
    """By words and by vectors, ended and evicted rows too."""
    holds = forgetting.contains(text)
    with Memory(copy, namespace, embedder=embedder) as memory:
        hits = memory.search(text, k=50, status="any")
        found = [f"{hit.kind} {hit.id}" for hit in hits if holds(hit.text)]
        yield Check(name=f"search{when}", ok=not found, detail=", ".join(found))
        near = [f"{hit.kind} {hit.id}" for hit in hits if _cosine(hit.explain) >= SAME]
        yield Check(name=f"vectors{when}", ok=not near, detail=", ".join(near))


def _cosine(explained: Any) -> float:
    values = [explained["signals"][name]["value"] for name in ("static", "neural") if name in explained["signals"]]
    return max((value for value in values if value is not None), default=0.0)


def _fed_again(copy: Path, namespace: str, text: str, embedder: EmbedderLike, folder: Path) -> Iterator[Check]:
    """Extraction, import and merge are given the text; then all that is due is done and the indexes are rebuilt."""
    answer = json.dumps({"memories": [{"text": text}]})
    with Memory(copy, namespace, embedder=embedder, llm=ScriptedLLM(default=answer)) as memory:
        before = _count(memory)
        memory.chat(FED).store("Nothing of note was said here.", "Indeed.")
        yield _kept_away(memory, before, "extraction", "memory")
        memory.import_conversation([{"role": "user", "content": text}], format="messages", session=FED)
        yield _kept_away(memory, before, "import", "message", besides=2)
        yield from _merged(memory, namespace, text, folder, before)
        yield from _all_due_done(memory)
        problems = memory.check(fix=True)
        yield Check(name="indexes rebuilt", ok=not memory.check(), detail="; ".join(map(str, problems))[:200])


def _count(memory: Memory) -> dict[str, int]:
    kinds: dict[str, int] = memory.stats()["kinds"]
    return kinds


def _kept_away(memory: Memory, before: dict[str, int], way: str, kind: str, besides: int = 0) -> Check:
    came = _count(memory)[kind] - before[kind] - besides
    detail = "" if came <= 0 else f"a {kind} with the text came back"
    return Check(name=f"fed through {way}", ok=came <= 0, detail=detail)


def _merged(memory: Memory, namespace: str, text: str, folder: Path, before: dict[str, int]) -> Iterator[Check]:
    other = folder / "other.db"
    with Memory(other, namespace, embedder=None) as second:
        second.remember(text)
    memory.merge(other)
    yield _kept_away(memory, before, "merge", "memory")


def _all_due_done(memory: Memory) -> Iterator[Check]:
    try:
        memory.work(force=True)
    except IstarError as error:
        yield Check(name="work that was due", ok=False, detail=str(error)[:200])
