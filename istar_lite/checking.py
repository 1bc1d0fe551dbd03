"""`check`: recomputes what triggers and copies claim, and repairs what can be derived from the rows.

Each check is a query over one state of the file and yields problems; a problem may name a repair. Repairs rebuild
copies (search rows, full text, indexes), drop what hangs in the air (vectors, tags, links of rows that are gone) and
give rows without an owner a new one. None of them changes or removes what somebody wrote.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from istar_lite import sealing
from istar_lite.driver import DAMAGE, sqlite3
from istar_lite.effort import Meter, Progress
from istar_lite.errors import FileDamaged, IstarError, ReadOnly
from istar_lite.migrations import base_tables, columns, latest_version, missing_columns, reference
from istar_lite.models import KINDS
from istar_lite.text import digest

if TYPE_CHECKING:
    from istar_lite.database import File

SHOWN = 20  # of one kind of problem; the rest is counted
COPIED = (
    "namespace, session, position, speaker, title, text, external_id, occurred_at, status, stale, ended_at, expires_at"
)
COUNTS = ("extract_every", "episode_every", "max_atoms", "max_episodes", "max_exchanges", "max_recalls")
CHOICES = {"evicted_atoms": ("keep", "delete"), "evicted_exchanges": ("keep", "forget")}
# Kinds that tags, sources and the trail may name. Other kinds are the host's own and are not looked into.
NAMED = (*KINDS, "exchange")
LINKS = (
    ("tag", "kind", "row"),
    ("source", "kind", "row"),
    ("source", "source_kind", "source_row"),
    ("recall_hit", "kind", "row"),
)


@dataclass(frozen=True, slots=True)
class Problem:
    """What is wrong, in one line; `repair` names what mends it ("" where nothing can)."""

    text: str
    repair: str = ""


Check = Callable[[sqlite3.Connection], Iterator[Problem]]


def check(
    file: File, *, fix: bool = False, key: str | bytes | None = None, on_progress: Progress | None = None
) -> list[str]:
    """Problems of the file, one line each; empty means whole. With `fix` what can be mended is mended first, and
    what is left is told. With `key` the seal is checked too. `on_progress(done, total)`: an estimate of the time that
    it takes, in microseconds; what it raises ends the check.

    Raises `ReadOnly` for `fix` on a file opened read-only. Writers wait while the full-text index is compared.
    """
    if fix and file.read_only:
        raise ReadOnly(f"{file.path}: was opened read-only and cannot be mended")
    problems = find(file, on_progress)
    if fix:
        mended: set[str] = set()
        # Again as long as it helps: a search row can be missed only once its table's triggers are back.
        while wanted := {problem.repair for problem in problems if problem.repair} - mended:
            repair(file, wanted)
            mended |= wanted
            problems = find(file, on_progress)
    told = [problem.text for problem in problems]
    if key is not None:
        with file.reading() as connection:
            told += sealing.differences(connection, key)
    return told


def find(file: File, on_progress: Progress | None = None) -> list[Problem]:
    """All problems of the file, in the order of the checks."""
    problems: list[Problem] = []
    with file.reading() as connection:
        meter = Meter(connection, on_progress)
        for name, one in CHECKS.items():
            with meter.watching(connection, name):
                problems += _guarded(name, one, connection)
    problems += _full_text(file, meter)
    return problems


def _guarded(name: str, one: Check, connection: sqlite3.Connection) -> list[Problem]:
    """The problems that one check finds; one that cannot even read is a problem itself."""
    found: list[Problem] = []
    try:
        for problem in one(connection):
            found.append(problem)
    except (*DAMAGE, FileDamaged) as error:
        found.append(Problem(f"{name}: cannot be read ({error})"))
    if len(found) > SHOWN:
        repair_ = found[0].repair
        found[SHOWN:] = [Problem(f"{name}: and {len(found) - SHOWN} more of this kind", repair_)]
    return found


# --- the checks -----------------------------------------------------------------------------------------------


def _pages(connection: sqlite3.Connection) -> Iterator[Problem]:
    """SQLite's own check: pages, order of indexes, constraints."""
    # A connection that has searched before keeps the index's structure; SQLite 3.53 checks that old one against the
    # new pages and calls it corruption. A query makes it look again.
    with contextlib.suppress(sqlite3.DatabaseError):
        connection.execute("select 1 from document_fts where document_fts match 'a' limit 1").fetchone()
    for row in connection.execute("pragma integrity_check(1000)"):
        if row[0] != "ok":
            text = str(row[0])
            of_index = "index" in text or "document_fts" in text
            yield Problem(f"file: {text}", "indexes" if of_index else "")


def _declared(connection: sqlite3.Connection) -> Iterator[Problem]:
    """Tables with their columns, triggers, views and indexes are there as the schema files say."""
    for name in missing_columns(connection):
        yield Problem(f"schema: {name} is missing")
    there = {row[0]: row[1] for row in connection.execute("select name, sql from sqlite_master")}
    for name, sql in _derived():
        if there.get(name) != sql:
            yield Problem(f"schema: {name} is {'changed' if name in there else 'missing'}", "schema")


def _derived() -> list[tuple[str, str]]:
    """What holds no rows of its own and so can be made anew: (name, SQL), in the order of making."""
    rows = reference().execute(
        "select name, sql from sqlite_master where sql is not null and (type in ('trigger', 'view', 'index')"
        " or name = 'document_fts') order by rowid"
    )
    return [(row[0], row[1]) for row in rows]


def _parents(connection: sqlite3.Connection) -> Iterator[Problem]:
    """Every reference leads somewhere."""
    for table, rowid, parent, _ in connection.execute("pragma foreign_key_check"):
        row = "a row" if rowid is None else str(rowid)
        yield Problem(f"{table} {row}: refers to a {parent} that is not there", "parents")


def _search_rows(connection: sqlite3.Connection) -> Iterator[Problem]:
    """`document` is what the view `findable` says, row by row."""
    for kind in KINDS:
        wanted = ", ".join(f"wanted.{name.strip()}" for name in COPIED.split(","))
        held = ", ".join(f"document.{name.strip()}" for name in COPIED.split(","))
        for row, held_id in connection.execute(
            f"select wanted.row, document.id from {kind}_document as wanted"
            " left join document on document.kind = wanted.kind and document.row = wanted.row"
            f" where document.id is null or ({held}) is not ({wanted})"
        ):
            what = "has no search row" if held_id is None else "differs from its search row"
            yield Problem(f"{kind} {row}: {what}", "documents")
        for (row,) in connection.execute(
            f"select row from document where kind = ? and not exists (select 1 from {kind} where id = row)", (kind,)
        ):
            yield Problem(f"document: stands for {kind} {row}, which is not there", "documents")


def _spaced(connection: sqlite3.Connection) -> Iterator[Problem]:
    """The spaced copy of Chinese, Japanese and Korean text."""
    for (row,) in connection.execute(
        "select document.id from document left join document_spaced using (id)"
        # As in the triggers: text of one byte a character holds none, and needs no pattern to say so.
        " where (document.cjk is not null or length(cast(document.text as blob)) > length(document.text))"
        " and document.cjk is not document_spaced.cjk"
    ):
        yield Problem(f"document {row}: its spaced text is not that of its text", "documents")


def _vectors(connection: sqlite3.Connection) -> Iterator[Problem]:
    """Vectors have a document, a model, and the size the model says; an empty one says that the text has none."""
    for document, part, why in connection.execute(
        "select embedding.document, embedding.part, case when document.id is null then 'its document is not there'"
        " when embedding_model.id is null then 'its model is not there' else 'has ' || length(embedding.vector) ||"
        " ' bytes where the model says ' || embedding_model.dimension end"
        " from embedding left join document on document.id = embedding.document"
        " left join embedding_model on embedding_model.id = embedding.model"
        " where document.id is null or embedding_model.id is null or length(vector) not in (0, dimension)"
        " or typeof(vector) <> 'blob'"
    ):
        yield Problem(f"vector {part} of document {document}: {why}", "vectors")


def _links(connection: sqlite3.Connection) -> Iterator[Problem]:
    """Tags, sources and the trail name rows that are there."""
    for table, kind_column, row_column in LINKS:
        for kind in NAMED:
            for (row,) in connection.execute(_hanging(table, kind_column, row_column, kind)):
                yield Problem(f"{table}: names {kind} {row}, which is not there", "links")


def _hanging(table: str, kind_column: str, row_column: str, kind: str) -> str:
    return (
        f"select {row_column} from {table} where {kind_column} = '{kind}'"
        f" and not exists (select 1 from {kind} where {kind}.id = {table}.{row_column})"
    )


def _settings(connection: sqlite3.Connection) -> Iterator[Problem]:
    """Settings can be read as what they are, and belong to somebody who is there."""
    version = connection.execute("pragma user_version").fetchone()[0]
    rows = connection.execute("select key, namespace, session, value from setting").fetchall()
    for key, _, _, value in rows:
        if key == "schema_version" and value != version:
            yield Problem(f"setting schema_version: says {value}, the file says {version}", "settings")
        if key in COUNTS and (not isinstance(value, int) or value < 0):
            yield Problem(f"setting {key}: {value!r} is no whole number from 0 on")
        if key in CHOICES and value not in CHOICES[key]:
            yield Problem(f"setting {key}: {value!r} is none of {', '.join(CHOICES[key])}")
    for owner in ("namespace", "session"):
        for key, row in connection.execute(
            f"select key, {owner} from setting where {owner} <> 0 and {owner} not in (select id from {owner})"
        ):
            yield Problem(f"setting {key}: belongs to {owner} {row}, which is not there", "settings")
    if not any(key == "format" for key, *_ in rows):
        yield Problem("setting format: is missing", "settings")


def _caps(connection: sqlite3.Connection) -> Iterator[Problem]:
    """No run has more active atoms than its cap."""
    for (row,) in connection.execute("select id from atom_over_cap"):
        yield Problem(f"atom {row}: is active although its run is above its cap", "caps")


def _digests(connection: sqlite3.Connection) -> Iterator[Problem]:
    """Digests of memories are those of their texts."""
    for row, text, held in connection.execute("select id, text, digest from memory where digest is not null"):
        if held != digest(text):
            yield Problem(f"memory {row}: its digest is not that of its text", "digests")


def _times(connection: sqlite3.Connection) -> Iterator[Problem]:
    """Times are in the one stored form, in which text order is time order."""
    for table, column in _time_columns():
        for row, value in connection.execute(f"select id, {column} from {table} where {_ODD.format(column)}"):
            yield Problem(f"{table} {row}: {column} {value!r} is not written as 2026-01-02T03:04:05.678Z", "times")


_ODD = "{0} is not null and {0} not glob '####-[01]#-[0-3]#T[0-2]#:[0-5]#:[0-5]#.###Z'".replace("#", "[0-9]")


def _time_columns() -> list[tuple[str, str]]:
    return [
        (table, column)
        for table in base_tables()
        for column in columns(table)
        if table != "document" and (column.endswith("_at") or column == "claimed_until")
    ]


CHECKS: dict[str, Check] = {
    "file": _pages,
    "schema": _declared,
    "references": _parents,
    "search rows": _search_rows,
    "spaced text": _spaced,
    "vectors": _vectors,
    "links": _links,
    "settings": _settings,
    "caps": _caps,
    "digests": _digests,
    "times": _times,
}


def _full_text(file: File, meter: Meter) -> list[Problem]:
    """The full-text index holds the words of the search rows. The full comparison is a command of the index and so
    needs a write; on a file that cannot be written, only which rows are indexed is compared."""
    try:
        found = _guarded("full text", _indexed_rows, file.reader())
        if found or file.read_only:
            return [replace(problem, repair="full text") for problem in found]
        with file.write() as tx, meter.watching(tx, "full text"):
            tx.execute("insert into document_fts (document_fts, rank) values ('integrity-check', 1)")
    except (*DAMAGE, FileDamaged) as error:
        return [Problem(f"full text: the index is out of step with the search rows ({error})", "full text")]
    except IstarError as error:
        return [Problem(f"full text: cannot be checked ({error})", "full text")]
    return []


def _indexed_rows(connection: sqlite3.Connection) -> Iterator[Problem]:
    indexed = "select rowid from document_fts where document_fts match 'scope: n' || ?1"  # every row has that word
    there = "select id from document where namespace = ?1"
    for (namespace,) in connection.execute("select id from namespace").fetchall():
        for (row,) in connection.execute(f"{there} and id not in ({indexed})", (namespace,)):
            yield Problem(f"full text: document {row} is not indexed", "full text")
        for (row,) in connection.execute(f"{indexed} and rowid not in ({there})", (namespace,)):
            yield Problem(f"full text: document {row} is indexed but not there", "full text")


# --- the repairs ----------------------------------------------------------------------------------------------


def repair(file: File, wanted: set[str]) -> None:
    """Runs the wanted repairs, each in a transaction of its own, in the order in which they build on each other."""
    for name, mend in REPAIRS.items():
        if name not in wanted:
            continue
        # The triggers would tell the index to take away words that it does not hold, which is an error there.
        with file.write() as tx, contextlib.nullcontext() if name in BY_TRIGGERS else without_triggers(tx):
            mend(tx)


@contextlib.contextmanager
def without_triggers(tx: sqlite3.Connection) -> Iterator[None]:
    """Triggers away for the time being: in the transaction, so for nobody else."""
    triggers = tx.execute("select name, sql from sqlite_master where type = 'trigger' order by rowid").fetchall()
    for name, _ in triggers:
        tx.execute(f'drop trigger "{name}"')
    yield
    there = {row[0] for row in tx.execute("select name from sqlite_master where type = 'trigger'")}
    for name, sql in triggers:
        if name not in there:
            tx.execute(sql)


def _mend_indexes(tx: sqlite3.Connection) -> None:
    tx.execute("reindex")


def _mend_schema(tx: sqlite3.Connection) -> None:
    there = {row[0]: (row[1], row[2]) for row in tx.execute("select name, type, sql from sqlite_master")}
    wrong = [(name, sql) for name, sql in _derived() if there.get(name, ("", ""))[1] != sql]
    for name, _ in wrong:
        if name in there:
            tx.execute(f"drop {there[name][0]} {name}")
    for _, sql in wrong:
        tx.execute(sql)
    if any(name == "document_fts" for name, _ in wrong):
        _mend_full_text(tx)


def _mend_parents(tx: sqlite3.Connection) -> None:
    """Rows whose namespace or session is gone get one named "recovered-<id>"; what only hangs on a row that is
    gone goes too."""
    found = tx.execute(
        'select distinct wrong."table", wrong.parent, list."from", list.on_delete'
        " from pragma_foreign_key_check as wrong"
        ' join pragma_foreign_key_list(wrong."table") as list on list.id = wrong.fkid'
    ).fetchall()
    for child, parent, column, on_delete in sorted(map(tuple, found), key=lambda row: row[1] != "namespace"):
        nowhere = f"{column} is not null and {column} not in (select {_key_of(parent)} from {parent})"
        if parent in ("namespace", "session"):
            name = f"'recovered-' || {column}"
            if parent == "namespace":
                name = f"case {column} when 1 then 'default' else {name} end"
            tx.execute(f"insert into {parent} (id, name) select distinct {column}, {name} from {child} where {nowhere}")
        elif parent == "emotion":
            tx.execute(f"update {child} set {column} = 'neutral' where {nowhere}")
        elif on_delete == "SET NULL":
            tx.execute(f"update {child} set {column} = null where {nowhere}")
        else:
            tx.execute(f"delete from {child} where {nowhere}")


def _key_of(table: str) -> str:
    return "name" if table == "emotion" else "id"


def _mend_documents(tx: sqlite3.Connection) -> None:
    for kind in KINDS:
        tx.execute(f"delete from document where kind = ? and not exists (select 1 from {kind} where id = row)", (kind,))
        tx.execute(
            f"update document set ({COPIED}) = (select {COPIED} from {kind}_document as wanted"
            " where wanted.row = document.row) where kind = ? and"
            f" ({COPIED}) is not (select {COPIED} from {kind}_document as wanted where wanted.row = document.row)",
            (kind,),
        )
        tx.execute(
            f"insert into document (kind, row, {COPIED}) select kind, row, {COPIED} from {kind}_document as wanted"
            " where not exists (select 1 from document where document.kind = wanted.kind and document.row = wanted.row)"
        )
    tx.execute(
        "update document set cjk = (select cjk from document_spaced where document_spaced.id = document.id)"
        " where id in (select document.id from document left join document_spaced using (id)"
        " where document.cjk is not document_spaced.cjk)"
    )
    _mend_full_text(tx)


def _mend_full_text(tx: sqlite3.Connection) -> None:
    try:
        tx.execute("insert into document_fts (document_fts) values ('rebuild')")
    except DAMAGE:
        # The index itself is beyond reading: it is made anew. Its triggers belong to `document` and stay.
        sql = next(sql for name, sql in _derived() if name == "document_fts")
        tx.execute("drop table document_fts")
        tx.execute(sql)
        tx.execute("insert into document_fts (document_fts) values ('rebuild')")


def _mend_vectors(tx: sqlite3.Connection) -> None:
    tx.execute(
        "delete from embedding where document not in (select id from document)"
        " or model not in (select id from embedding_model) or typeof(vector) <> 'blob'"
        " or length(vector) not in (0, (select dimension from embedding_model where id = model))"
    )


def _mend_links(tx: sqlite3.Connection) -> None:
    for table, kind_column, row_column in LINKS:
        for kind in NAMED:
            tx.execute(
                f"delete from {table} where {kind_column} = ?"
                f" and not exists (select 1 from {kind} where {kind}.id = {table}.{row_column})",
                (kind,),
            )


def _mend_settings(tx: sqlite3.Connection) -> None:
    tx.execute("insert into setting (key, value) values ('format', 'istar-lite') on conflict do nothing")
    tx.execute("update setting set value = ? where key = 'schema_version'", (latest_version(),))
    for owner in ("namespace", "session"):
        tx.execute(f"delete from setting where {owner} <> 0 and {owner} not in (select id from {owner})")


def _mend_caps(tx: sqlite3.Connection) -> None:
    tx.execute("update setting set value = value where key = 'max_atoms'")  # its trigger evicts


def _mend_digests(tx: sqlite3.Connection) -> None:
    wrong = [
        (row[0],)
        for row in tx.execute("select id, text, digest from memory where digest is not null")
        if row[2] != digest(row[1])
    ]
    tx.executemany("update memory set digest = null where id = ?", wrong)


def _mend_times(tx: sqlite3.Connection) -> None:
    """What SQLite reads as a time gets the stored form; what it does not is left to whoever wrote it."""
    for table, column in _time_columns():
        stored = f"strftime('%Y-%m-%dT%H:%M:%fZ', {column})"
        tx.execute(f"update {table} set {column} = {stored} where {_ODD.format(column)} and {stored} is not null")


BY_TRIGGERS = ("caps", "schema", "times")  # repairs that let triggers do it, or make them

REPAIRS: dict[str, Callable[[sqlite3.Connection], None]] = {
    "schema": _mend_schema,
    "indexes": _mend_indexes,
    "parents": _mend_parents,
    "settings": _mend_settings,
    "documents": _mend_documents,
    "full text": _mend_full_text,
    "vectors": _mend_vectors,
    "links": _mend_links,
    "caps": _mend_caps,
    "digests": _mend_digests,
    "times": _mend_times,
}
