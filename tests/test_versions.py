"""Versions: a newer file is refused untouched, an older one is brought up to date whole or not at all."""

from __future__ import annotations

import contextlib
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from rows import fill

from istar_lite import FileDamaged, FileTooNew, IstarError, Memory, ReadOnly, migrations
from istar_lite.database import APPLICATION_ID, File, latest_version, sqlite3
from istar_lite.migrations import CHECKED, schema_files

FILES = Path(__file__).parent / "files"
OLD = 11  # the views of 012 name tables of 013: files up to there can be told from a fresh one, and stand alone


def plain(path: Path) -> sqlite3.Connection:
    return sqlite3.connect(str(path), isolation_level=None)


def stamp(path: Path) -> tuple[int, int]:
    with contextlib.closing(plain(path)) as connection:
        return (
            connection.execute("pragma application_id").fetchone()[0],
            connection.execute("pragma user_version").fetchone()[0],
        )


def declared(path: Path) -> list[tuple[str, str]]:
    with contextlib.closing(plain(path)) as connection:
        return connection.execute("select name, sql from sqlite_master where sql is not null order by name").fetchall()


def made_by(path: Path, version: int) -> Path:
    """A file as an istar-lite of the schema files up to `version` would leave it."""
    with contextlib.closing(plain(path)) as connection:
        for number, file in schema_files():
            if number <= version:
                for statement in migrations.statements(file.read_text(encoding="utf-8")):
                    connection.execute(statement)
        connection.execute(f"pragma application_id = {APPLICATION_ID}")
        connection.execute(f"pragma user_version = {version}")
        connection.execute("update setting set value = ? where key = 'schema_version'", (version,))
    return path


# --- files of releases ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("kept", sorted(FILES.glob("*.db")), ids=lambda path: path.name)
def test_a_file_of_every_release_opens_with_all_its_rows(kept: Path, tmp_path: Path) -> None:
    path = Path(shutil.copy(kept, tmp_path / "old.db"))
    path.chmod(0o600)
    with contextlib.closing(plain(path)) as connection:
        tables = [row[0] for row in connection.execute("select name from sqlite_master where type = 'table'")]
        names = [
            name for name in tables if name in migrations.base_tables() and name not in ("setting", "document_change")
        ]
        before = {name: connection.execute(f"select count(*) from {name}").fetchone()[0] for name in names}
    with Memory(path, embedder=None) as memory:
        assert memory.check() == []
        assert memory.search("tea")
        after = {name: next(memory.db.query(f"select count(*) as n from {name}"))["n"] for name in names}
        assert after == before
        memory.remember("new in an old file")
    File(tmp_path / "fresh.db").close()
    assert declared(path) == declared(tmp_path / "fresh.db")


# --- newer ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("ahead", [1, 1000])
def test_a_newer_file_is_refused_untouched_with_both_versions_named(tmp_path: Path, ahead: int) -> None:
    path = fill(tmp_path / "a.db")
    with contextlib.closing(plain(path)) as connection:
        connection.execute(f"pragma user_version = {latest_version() + ahead}")
    before = path.read_bytes()
    for read_only in (False, True):
        with pytest.raises(FileTooNew) as caught:
            Memory(path, read_only=read_only, embedder=None)
        assert str(latest_version() + ahead) in str(caught.value) and str(latest_version()) in str(caught.value)
    assert path.read_bytes() == before and len(list(tmp_path.iterdir())) == 1


def test_a_file_that_became_newer_while_it_was_opened_is_not_stamped_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = made_by(tmp_path / "a.db", OLD)
    ours = migrations.enter_wal

    def somebody_is_quicker(connection: sqlite3.Connection) -> None:
        with contextlib.closing(plain(path)) as other:
            other.execute(f"pragma user_version = {latest_version() + 1}")
        ours(connection)

    monkeypatch.setattr("istar_lite.database.enter_wal", somebody_is_quicker)
    with pytest.raises(FileTooNew):
        File(path)
    assert stamp(path)[1] == latest_version() + 1


# --- older ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", [1, 6, OLD])
def test_a_file_of_any_older_version_ends_like_a_fresh_one(tmp_path: Path, version: int) -> None:
    path = made_by(tmp_path / "old.db", version)
    File(path).close()
    File(tmp_path / "fresh.db").close()
    assert declared(path) == declared(tmp_path / "fresh.db")
    assert stamp(path) == (APPLICATION_ID, latest_version())
    with Memory(path, embedder=None) as memory:
        assert memory.check() == []
        assert memory.remember("likes tea")


def test_bringing_up_to_date_keeps_every_row_and_is_done_once(tmp_path: Path) -> None:
    path = made_by(tmp_path / "old.db", OLD)
    with contextlib.closing(plain(path)) as connection:
        connection.execute("insert into memory (text) values ('likes tea')")
    for _ in range(2):
        with Memory(path, embedder=None) as memory:
            assert [row["text"] for row in memory.list("memory")] == ["likes tea"]
            assert memory.check() == []


def test_an_older_file_opened_read_only_is_refused_untouched(tmp_path: Path) -> None:
    path = made_by(tmp_path / "old.db", OLD)
    before = path.read_bytes()
    with pytest.raises(ReadOnly, match="older"):
        File(path, read_only=True)
    assert path.read_bytes() == before


@pytest.fixture
def broken_last(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A further schema file that fails in its middle."""
    last = tmp_path / f"{latest_version() + 1:03}_broken.sql"
    last.write_text(
        "create table half (x);\nalter table memory add column mood text;\ninsert into nowhere values (1);\n"
    )
    known, number = schema_files(), latest_version() + 1
    monkeypatch.setattr(migrations, "schema_files", lambda: [*known, (number, last)])
    migrations.latest_version.cache_clear()
    monkeypatch.setattr("istar_lite.database.latest_version", migrations.latest_version)
    yield last
    migrations.latest_version.cache_clear()


def test_a_step_that_fails_leaves_the_old_version_whole(tmp_path: Path, broken_last: Path) -> None:
    path = made_by(tmp_path / "old.db", OLD)
    before = declared(path), stamp(path)
    with pytest.raises(IstarError):
        File(path)
    assert (declared(path), stamp(path)) == before


def test_a_full_disk_leaves_the_old_version_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = made_by(tmp_path / "old.db", OLD)
    before = declared(path), stamp(path)
    ours = migrations.enter_wal

    def little_room(connection: sqlite3.Connection) -> None:
        ours(connection)
        pages = connection.execute("pragma page_count").fetchone()[0]
        connection.execute(f"pragma max_page_count = {pages + 3}")

    monkeypatch.setattr("istar_lite.database.enter_wal", little_room)
    with pytest.raises(IstarError, match="disk is full"):
        File(path)
    assert (declared(path), stamp(path)) == before
    monkeypatch.undo()
    File(path).close()
    assert stamp(path)[1] == latest_version()


def test_a_version_that_promises_a_column_it_lacks_is_refused_when_brought_up_to_date_too(tmp_path: Path) -> None:
    path = made_by(tmp_path / "old.db", OLD)
    with contextlib.closing(plain(path)) as connection:
        connection.execute("alter table model_call drop column error")
    before = declared(path), stamp(path)
    with pytest.raises(FileDamaged, match=r"model_call\.error"):
        File(path)
    assert (declared(path), stamp(path)) == before


def test_columns_are_looked_at_again_when_anything_was_declared_since(tmp_path: Path) -> None:
    path = fill(tmp_path / "a.db")

    def noted() -> str:
        with contextlib.closing(plain(path)) as connection:
            return str(connection.execute("select value from setting where key = ?", (CHECKED,)).fetchone()[0])

    first = noted()
    with contextlib.closing(plain(path)) as connection:
        connection.execute("create table mine (x)")
    File(path).close()
    assert noted() != first
    with contextlib.closing(plain(path)) as connection:
        connection.execute("drop table mine")
        connection.execute("alter table model_call drop column error")
    with pytest.raises(FileDamaged):
        File(path)


# --- restored dumps -------------------------------------------------------------------------------------------


@pytest.mark.skipif(shutil.which("sqlite3") is None, reason="the sqlite3 shell is not installed")
def test_a_restored_dump_is_ours_and_gets_its_numbers_back(tmp_path: Path) -> None:
    path = fill(tmp_path / "a.db")
    script = subprocess.run(["sqlite3", str(path), ".dump"], capture_output=True, check=True).stdout
    subprocess.run(["sqlite3", str(tmp_path / "b.db")], input=script, check=True)
    assert stamp(tmp_path / "b.db") == (0, 0)
    with Memory(tmp_path / "b.db", embedder=None) as memory:
        assert memory.check() == []
        assert memory.diff(path) == ()
    assert stamp(tmp_path / "b.db") == (APPLICATION_ID, latest_version())


# --- many at once ---------------------------------------------------------------------------------------------

OPEN = """
import sys
from istar_lite.database import File
file = File(sys.argv[1])
with file.write() as tx:
    tx.execute("insert into memory (text) values (?)", (sys.argv[2],))
file.close()
"""


@pytest.mark.parametrize("version", [0, 6])
def test_processes_that_open_a_new_or_an_old_file_at_once_all_get_it(tmp_path: Path, version: int) -> None:
    path = tmp_path / "a.db"
    if version:
        made_by(path, version)
    running = [subprocess.Popen([sys.executable, "-c", OPEN, str(path), f"memory {n}"]) for n in range(6)]
    assert [one.wait(60) for one in running] == [0] * 6
    with Memory(path, embedder=None) as memory:
        assert len(memory.list("memory")) == 6 and memory.check() == []


def test_threads_that_open_a_new_file_at_once_all_get_it(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    start = threading.Barrier(8)
    errors: list[BaseException] = []

    def run(number: int) -> None:
        try:
            start.wait(30)
            file = File(path)
            with file.write() as tx:
                tx.execute("insert into memory (text) values (?)", (f"memory {number}",))
            file.close()
        except BaseException as error:  # noqa: BLE001  # told below, in the test's own thread
            errors.append(error)

    threads = [threading.Thread(target=run, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    with Memory(path, embedder=None) as memory:
        assert len(memory.list("memory")) == 8 and memory.check() == []
    assert {item.name for item in tmp_path.iterdir()} == {"a.db"}


def test_a_process_killed_while_it_brings_a_file_up_to_date_leaves_it_old_or_new(tmp_path: Path) -> None:
    code = """
import os, sys
from istar_lite import migrations
steps = int(sys.argv[2])
ours = migrations.statements
def counted(script):
    global steps
    for statement in ours(script):
        steps -= 1
        if steps < 0:
            os._exit(9)
        yield statement
migrations.statements = counted
from istar_lite.database import File
File(sys.argv[1]).close()
"""
    for steps in (0, 1, 7, 40, 90):
        path = made_by(tmp_path / f"{steps}.db", 6)
        before = declared(path)
        subprocess.run([sys.executable, "-c", code, str(path), str(steps)], timeout=60)
        assert declared(path) == before and stamp(path)[1] == 6
        with Memory(path, embedder=None) as memory:
            assert memory.check() == []
