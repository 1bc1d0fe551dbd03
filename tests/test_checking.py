"""check: an untouched file is whole, edits by any tool leave it whole, damage is told and what can be is mended."""

from __future__ import annotations

import shutil
import subprocess
from itertools import pairwise
from pathlib import Path

import pytest
from rows import fill

from istar_lite import Memory, ReadOnly, checking
from istar_lite.database import File, sqlite3
from istar_lite.migrations import base_tables, columns, reference
from istar_lite.testing import WordEmbedder

SHELL = shutil.which("sqlite3")
needs_shell = pytest.mark.skipif(SHELL is None, reason="the sqlite3 shell is not installed")

# What says how the library works, or what it derives: a wrong value there is a problem that check tells.
TOLD = {"setting.value", "memory.digest"}


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return fill(tmp_path_factory.mktemp("whole") / "whole.db")


@pytest.fixture
def copy(whole: Path, tmp_path: Path) -> Path:
    return Path(shutil.copy(whole, tmp_path / "copy.db"))


def problems(path: Path, *, fix: bool = False) -> list[str]:
    file = File(path)
    try:
        return checking.check(file, fix=fix)
    finally:
        file.close()


def edit(path: Path, *statements: str) -> str:
    """Runs SQL in the stock shell (foreign_keys and recursive_triggers are off there); its error, if any."""
    assert SHELL is not None
    done = subprocess.run([SHELL, str(path), *statements], capture_output=True, text=True, check=False)
    return done.stderr


def break_open(path: Path, *statements: str) -> None:
    """Changes a file behind its triggers, as damage does."""
    connection = sqlite3.connect(str(path), isolation_level=None)
    connection.execute("pragma synchronous = off")
    triggers = connection.execute("select name, sql from sqlite_master where type = 'trigger'").fetchall()
    for name, _ in triggers:
        connection.execute(f"drop trigger {name}")
    for statement in statements:
        connection.execute(statement)
    for _, sql in triggers:
        connection.execute(sql)
    connection.close()


def test_the_rows_of_these_tests_reach_every_table(whole: Path) -> None:
    connection = sqlite3.connect(str(whole))
    empty = [name for name in base_tables() if connection.execute(f"select count(*) from {name}").fetchone()[0] == 0]
    connection.close()
    assert not empty, f"rows.py puts nothing into {empty}"


def test_a_new_file_and_a_filled_one_are_whole(tmp_path: Path, whole: Path) -> None:
    assert problems(tmp_path / "new.db") == []
    assert problems(whole) == []


def test_a_file_opened_read_only_can_be_checked_but_not_mended(copy: Path) -> None:
    with Memory(copy, read_only=True, embedder=None) as memory:
        assert memory.check() == []
        with pytest.raises(ReadOnly):
            memory.check(fix=True)


def test_progress_ends_at_its_total(copy: Path) -> None:
    told: list[tuple[int, int]] = []
    with Memory(copy, embedder=None) as memory:
        memory.check(on_progress=lambda done, total: told.append((done, total)))
    assert told[-1][0] == told[-1][1] and [done for done, _ in told] == sorted(done for done, _ in told)


# --- a plain shell on every table -----------------------------------------------------------------------------


def keys(table: str) -> list[str]:
    return [
        row[0]
        for row in reference().execute("select name from pragma_table_info(?) where pk > 0 order by pk", (table,))
    ]


@needs_shell
@pytest.mark.parametrize("table", base_tables())
def test_deleting_rows_in_a_plain_shell_leaves_the_file_whole(copy: Path, table: str) -> None:
    key = ", ".join(keys(table))
    order = ", ".join(f"{name} desc" for name in keys(table))
    edit(copy, f"delete from {table} where ({key}) = (select {key} from {table} limit 1)")
    assert problems(copy) == []
    edit(copy, f"delete from {table} where ({key}) = (select {key} from {table} order by {order} limit 1)")
    edit(copy, f"delete from {table}")
    assert problems(copy) == []


@needs_shell
@pytest.mark.parametrize("table", base_tables())
def test_writing_rows_again_in_a_plain_shell_leaves_the_file_whole(copy: Path, table: str) -> None:
    names = ", ".join(columns(table))
    edit(copy, f"replace into {table} ({names}) select {names} from {table}")
    assert problems(copy) == []
    if keys(table) == ["id"]:
        rest = ", ".join(name for name in columns(table) if name != "id")
        edit(copy, f"insert or ignore into {table} ({rest}) select {rest} from {table}")
        edit(copy, f"replace into {table} ({rest}) select {rest} from {table}")
        assert problems(copy) == []


@needs_shell
@pytest.mark.parametrize("table", base_tables())
def test_changing_any_column_in_a_plain_shell_leaves_the_file_whole(copy: Path, table: str) -> None:
    changed = 0
    # A reference that leads nowhere is told too.
    references = {row[0] for row in reference().execute('select "from" from pragma_foreign_key_list(?)', (table,))}
    for name, kind in reference().execute("select name, type from pragma_table_info(?)", (table,)).fetchall():
        if (
            f"{table}.{name}" in TOLD
            or name.endswith("_at")
            or name == "claimed_until"
            or name in references
            or (name in keys(table) and name != "id")
        ):
            continue
        new = f"{name} || 'x'" if kind == "TEXT" else f"{name} + 1000"
        error = edit(copy, f"update {table} set {name} = {new}")
        # Refused is right too: by a check, or because a search row follows its row.
        changed += error == ""
    assert problems(copy) == []
    assert changed or table in (
        "setting",
        "document",
        "tag",
        "source",
        "memory_key",
        "emotion",
        "item_vector",
        "cell_member",
    )


# --- what is told, and mended ---------------------------------------------------------------------------------

MENDABLE = {
    "a search row is missing": ["delete from document where kind = 'memory' and row = 1"],
    "a search row differs": ["update document set status = 'evicted' where kind = 'turn' and row = 1"],
    "a search row stands for nothing": [
        "insert into document (kind, row, namespace, text, occurred_at, status) values ('memory', 99, 1, 'x', 'x', 'x')"
    ],
    "the index holds other words": ["update document set text = 'other' where kind = 'memory' and row = 1"],
    "the index lacks a row": [
        "insert into document_fts (document_fts, rowid, text, cjk, scope)"
        " select 'delete', id, text, cjk, scope from document where id = 3"
    ],
    "the index is empty": ["insert into document_fts (document_fts) values ('delete-all')"],
    "the index is gone": ["drop table document_fts"],
    "spaced text is stale": ["update document set cjk = 'x' where cjk is not null"],
    "a vector of nothing": ["insert into embedding (document, model, length, vector) values (999, 1, 1, x'01020304')"],
    "a vector of another size": ["update embedding set vector = x'010203' where document = 1"],
    "a vector of no model": ["update embedding set model = 77 where document = 1"],
    "a tag of nothing": ["insert into tag values ('memory', 999, 'x')"],
    "a source of nothing": ["insert into source values ('memory', 999, 'message', 1, 'from')"],
    "a source that is nothing": ["insert into source values ('memory', 1, 'exchange', 999, 'from')"],
    "a hit on nothing": ["insert into recall_hit (recall, rank, kind, row) values (1, 9, 'atom', 999)"],
    "a turn of no session": ["update turn set session = 88 where id = 1"],
    "a memory of no namespace": ["update memory set namespace = 88 where id = 1"],
    "an exchange of no message": ["update exchange set prompt = 999 where id = 1"],
    "an unknown emotion": ["update memory set emotion = 'awe' where id = 1"],
    "a run above its cap": ["update setting set value = 1 where key = 'max_atoms'"],
    "a digest of another text": ["update memory set digest = 'x' where id = 1"],
    "a setting of no session": ["insert into setting (key, session, value) values ('max_atoms', 77, 1)"],
    "the version in words": ["update setting set value = 1 where key = 'schema_version'"],
    "a time in another form": ["update memory set last_accessed_at = '2026-02-01 10:00', expires_at = '2026-02-01'"],
    "a trigger is missing": ["pragma user_version"],
    "an index is missing": ["drop index memory_digest"],
    "a view is changed": ["drop view exchange_text", "create view exchange_text as select 1 as id"],
}


@pytest.mark.parametrize("what", MENDABLE)
def test_damage_that_can_be_derived_is_told_and_mended(copy: Path, what: str) -> None:
    break_open(copy, *MENDABLE[what])
    if what == "a trigger is missing":
        connection = sqlite3.connect(str(copy))
        connection.execute("drop trigger memory_update")
        connection.close()
    assert problems(copy) != []
    assert problems(copy, fix=True) == []
    assert problems(copy) == []


def test_mending_changes_no_row_that_somebody_wrote(copy: Path) -> None:
    texts = {"turn": "text", "memory": "text", "message": "content", "atom": "content", "episode": "narrative"}
    connection = sqlite3.connect(str(copy))
    before = {table: connection.execute(f"select id, {name} from {table}").fetchall() for table, name in texts.items()}
    connection.close()
    for statements in MENDABLE.values():
        break_open(copy, *statements)
    problems(copy, fix=True)
    connection = sqlite3.connect(str(copy))
    after = {table: connection.execute(f"select id, {name} from {table}").fetchall() for table, name in texts.items()}
    connection.close()
    assert after == before


def test_a_mended_row_without_owner_is_found_under_a_name_that_says_so(copy: Path) -> None:
    break_open(copy, "update memory set namespace = 88 where id = 1")
    problems(copy, fix=True)
    with Memory(copy, namespace="recovered-88", embedder=None) as memory:
        assert memory.list("memory")[0]["text"] == "likes green tea"


def test_many_problems_of_one_kind_are_counted_not_listed(copy: Path) -> None:
    file = File(copy)
    with file.write() as tx:
        tx.executemany("insert into memory (text) values (?)", [(f"memory number {n}",) for n in range(100)])
    file.close()
    break_open(copy, "delete from document where kind = 'memory'")
    told = problems(copy)
    assert len(told) <= 4 * (checking.SHOWN + 1) < 300
    assert any("more of this kind" in line for line in told)


def test_a_column_that_is_missing_is_named(copy: Path) -> None:
    connection = sqlite3.connect(str(copy))
    connection.execute("alter table model_call drop column error")
    # Opening refuses such a file: the check itself is asked.
    told = [problem.text for problem in checking.CHECKS["schema"](connection)]
    connection.close()
    assert "schema: model_call.error is missing" in told


def test_what_is_no_time_at_all_is_told_and_left_to_whoever_wrote_it(copy: Path) -> None:
    break_open(copy, "update memory set last_accessed_at = 'yesterday' where id = 1")
    assert problems(copy, fix=True) == [
        "memory 1: last_accessed_at 'yesterday' is not written as 2026-01-02T03:04:05.678Z"
    ]


def test_rows_of_a_hosts_own_kind_are_left_alone(copy: Path) -> None:
    file = File(copy)
    with file.write() as tx:
        tx.execute(
            "insert into document (kind, row, namespace, text, occurred_at, status)"
            " values ('note', 1, 1, 'a note of the host', '2026-01-01T00:00:00.000Z', 'active')"
        )
        tx.execute("insert into tag values ('note', 1, 'mine')")
    file.close()
    assert problems(copy) == []


# --- how far it is --------------------------------------------------------------------------------------------


def test_a_check_tells_how_far_it_is_within_one_statement_too(path: Path) -> None:
    with Memory(path, embedder=WordEmbedder(16)) as memory:
        memory.remember_many([f"statement {number} about tea and roses" for number in range(5_000)])
        memory.status()
        told: list[tuple[int, int]] = []
        assert memory.check(on_progress=lambda done, total: told.append((done, total))) == []
    done = [one for one, _ in told]
    assert done == sorted(set(done))
    assert {total for _, total in told} == {done[-1]}
    assert len(done) > 100  # there are a dozen checks
    assert max(after - before for before, after in pairwise(done)) < done[-1] / 3


def test_who_watches_a_check_can_end_it(path: Path) -> None:
    with Memory(path, embedder=None) as memory:
        memory.remember_many([f"statement {number} about tea and roses" for number in range(5_000)])
        for interruption in (KeyboardInterrupt, ZeroDivisionError):
            for after in (1, 20, 90):

                def stop(done: int, total: int, most: int = after, error: type[BaseException] = interruption) -> None:
                    if 100 * done >= most * total:
                        raise error

                with pytest.raises(interruption):
                    memory.check(on_progress=stop)
        memory.remember("it goes on")
        assert memory.check() == []


def test_a_damaged_search_table_is_reported_and_not_stumbled_over(path: Path) -> None:
    with Memory(path, embedder=None) as memory:
        memory.remember("a fact")
        with memory._services.file.write() as tx:
            tx.execute("drop table document")
        assert any("document" in problem for problem in memory.check(on_progress=lambda done, total: None))
