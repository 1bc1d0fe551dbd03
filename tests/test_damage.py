"""Damaged files, files of others, and halves of files: refused or read as far as they go, never changed."""

from __future__ import annotations

import contextlib
import os
import random
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from rows import fill

from istar_lite import FileDamaged, IstarError, Memory, NotAMemoryFile, exporting
from istar_lite.database import File, sqlite3, wal_path
from istar_lite.migrations import PAGE_SIZE


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file of some 150 pages with 600 memories and 600 turns."""
    path = fill(tmp_path_factory.mktemp("whole") / "whole.db")
    file = File(path)
    with file.write() as tx:
        tx.executemany("insert into memory (text) values (?)", [(f"memory number {n} " * 8,) for n in range(600)])
        tx.executemany(
            "insert into turn (session, turn, text) values (1, ?, ?)", [(n, f"turn {n} " * 8) for n in range(10, 610)]
        )
    file.close()
    return path


@pytest.fixture
def copy(whole: Path, tmp_path: Path) -> Path:
    return Path(shutil.copy(whole, tmp_path / "copy.db"))


def refused(path: Path, error: type[IstarError], *, unchanged: bool = True) -> str:
    """Both ways of opening raise `error` and change no byte; its message."""
    before = path.read_bytes()
    for read_only in (False, True):
        with pytest.raises(error) as caught:
            Memory(path, read_only=read_only, embedder=None)
        assert str(path) in str(caught.value)
        assert path.read_bytes() == before or not unchanged
    return str(caught.value)


@contextlib.contextmanager
def wal_fails(path: Path, flags: int) -> Iterator[None]:
    """Each descriptor of the log is one that cannot be written (`os.O_RDONLY`) or read (`os.O_WRONLY`) for a while, as
    under a failing disk: the operating system itself answers with an error."""
    name = str(wal_path(path))
    held = [int(at.name) for at in Path("/proc/self/fd").iterdir() if os.path.realpath(at) == name]
    kept = {descriptor: os.dup(descriptor) for descriptor in held}
    bad = os.open(name, flags)
    try:
        for descriptor in held:
            os.dup2(bad, descriptor)
        yield
    finally:
        os.close(bad)
        for descriptor, good in kept.items():
            os.dup2(good, descriptor)
            os.close(good)


# --- a disk that fails ----------------------------------------------------------------------------------------

needs_descriptors = pytest.mark.skipif(
    not Path("/proc/self/fd").exists(), reason="open descriptors of this process cannot be listed here"
)


@needs_descriptors
@pytest.mark.parametrize("text", ["short", "as long as several pages " * 2_000])
def test_a_failed_write_is_told_leaves_nothing_and_later_use_works(path: Path, text: str) -> None:
    with Memory(path, embedder=None) as memory:
        memory.remember("before")
        with wal_fails(path, os.O_RDONLY), pytest.raises(IstarError, match="disk I/O error") as caught:
            memory.remember(text)
        assert str(path) in str(caught.value)
        assert [row["text"] for row in memory.list("memory")] == ["before"]
        memory.remember("after")
        assert memory.check() == []
    with Memory(path, embedder=None) as memory:
        assert {row["text"] for row in memory.list("memory")} == {"before", "after"}


@needs_descriptors
def test_a_failed_read_is_told_and_later_use_works(path: Path) -> None:
    with Memory(path, embedder=None) as writer, Memory(path, embedder=None) as memory:
        memory.search("nothing")  # opens its connections
        writer.remember("one")  # which makes what they hold in their page caches old
        with wal_fails(path, os.O_WRONLY):
            for read in (lambda: memory.search("one"), lambda: memory.list("memory"), lambda: memory.remember("two")):
                with pytest.raises(IstarError, match="disk I/O error") as caught:
                    read()
                assert str(path) in str(caught.value)
        assert [hit.text for hit in memory.search("one")] == ["one"]
        assert memory.check() == []


# --- not ours -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "content",
    [
        b"hello\n",
        b"\0" * 5000,
        b"SQLite format 3",
        b"SQLite format 3\0" + b"x" * 5000,
        "ünï\n".encode() * 900,
        b"PK\x03\x04",
    ],
)
def test_what_is_no_database_is_refused_untouched(path: Path, content: bytes) -> None:
    path.write_bytes(content)
    refused(path, NotAMemoryFile)
    assert [item.name for item in path.parent.iterdir()] == [path.name]


@pytest.mark.parametrize(
    "statements",
    [
        ["create table t (x)", "insert into t values (1)"],
        ["create table setting (key, value)", "insert into setting values ('format', 'something else')"],
        ["pragma application_id = 1234", "create table setting (key, value)"],
        ["create table memory (id integer primary key, text)"],
        ["pragma application_id = 7"],
    ],
)
def test_another_programs_database_is_refused_untouched(path: Path, statements: list[str]) -> None:
    with contextlib.closing(sqlite3.connect(str(path), isolation_level=None)) as connection:
        for statement in statements:
            connection.execute(statement)
    assert "another program" in refused(path, NotAMemoryFile)


def test_another_programs_open_database_is_refused_untouched(path: Path) -> None:
    connection = sqlite3.connect(str(path), isolation_level=None)
    connection.execute("pragma journal_mode = wal")
    connection.execute("create table t (x)")
    log = wal_path(path).read_bytes()
    refused(path, NotAMemoryFile)
    assert wal_path(path).read_bytes() == log
    connection.close()


def test_an_empty_file_and_an_empty_database_become_a_memory(tmp_path: Path) -> None:
    (tmp_path / "empty.db").touch()
    with contextlib.closing(sqlite3.connect(str(tmp_path / "bare.db"), isolation_level=None)) as connection:
        connection.execute("vacuum")
    for name in ("empty.db", "bare.db"):
        with Memory(tmp_path / name, embedder=None) as memory:
            memory.remember("likes tea")
            assert memory.check() == []


# --- halves and holes -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("kept", [1, 50, 99, 101, 512, PAGE_SIZE - 1, PAGE_SIZE + 1])
def test_the_head_of_a_file_is_refused(copy: Path, kept: int) -> None:
    copy.write_bytes(copy.read_bytes()[:kept])
    refused(copy, IstarError)


@pytest.mark.parametrize("share", [0.3, 0.5, 0.9, 0.99])
def test_a_file_cut_off_is_refused_and_what_is_left_is_exported(copy: Path, share: float, tmp_path: Path) -> None:
    size = copy.stat().st_size
    pages = int(size * share) // PAGE_SIZE
    copy.write_bytes(copy.read_bytes()[: pages * PAGE_SIZE])
    refused(copy, FileDamaged)
    with contextlib.suppress(FileDamaged):
        saved = exporting.export(copy, tmp_path / "saved.jsonl")
        assert saved.lost or share > 0.9


def test_an_overwritten_page_is_told_by_check_and_the_rest_is_exported(whole: Path, tmp_path: Path) -> None:
    """Page after page is overwritten in copies of the file: nothing crashes, nothing is silently wrong."""
    image = whole.read_bytes()
    told, saved, refusals = 0, 0, 0
    for page in range(0, len(image) // PAGE_SIZE, 13):
        copy = tmp_path / "copy.db"
        copy.write_bytes(image[: page * PAGE_SIZE] + b"\xa5" * PAGE_SIZE + image[(page + 1) * PAGE_SIZE :])
        try:
            memory = Memory(copy, embedder=None)
        except IstarError:
            refusals += 1
        else:
            told += bool(memory.check())
            memory.close()
        with contextlib.suppress(IstarError):
            out = exporting.export(copy, tmp_path / "saved.jsonl", overwrite=True)
            saved += out.rows.get("memory", 0) + out.rows.get("turn", 0) >= 600
        copy.unlink()
    pages = len(range(0, len(image) // PAGE_SIZE, 13))
    # A page that was never used may be overwritten without harm.
    assert told + refusals >= pages * 0.9
    assert saved >= pages * 0.7


def overwrite_the_page_of(copy: Path, text: bytes) -> None:
    """Overwrites the page of the table `memory` on which a text stands (it stands in the search rows too)."""
    image = copy.read_bytes()
    at = image.find(text)
    while at >= 0:
        start = at // PAGE_SIZE * PAGE_SIZE
        copy.write_bytes(image[:start] + b"\xff" * PAGE_SIZE + image[start + PAGE_SIZE :])
        with contextlib.closing(sqlite3.connect(str(copy))) as connection:
            try:
                connection.execute("select max(length(text)) from memory").fetchone()
            except sqlite3.DatabaseError:
                return
        at = image.find(text, start + PAGE_SIZE)
    raise AssertionError(f"{text!r} stands on no page of the table")


def test_reading_a_damaged_page_raises_our_error(copy: Path) -> None:
    overwrite_the_page_of(copy, b"memory number 300")
    with Memory(copy, embedder=None) as memory:
        with pytest.raises(FileDamaged):
            for _ in range(20):
                memory.list("memory", limit=1000)
        with pytest.raises(FileDamaged):
            memory._services.file.reader().execute("select max(length(text)) from memory").fetchone()


def test_the_rows_of_one_lost_page_are_all_that_an_export_loses(copy: Path, tmp_path: Path) -> None:
    overwrite_the_page_of(copy, b"memory number 300")
    saved = exporting.export(copy, tmp_path / "saved.jsonl")
    assert 560 <= saved.rows["memory"] < 604 and saved.rows["turn"] == 605
    assert any(line.startswith("memory: rows") for line in saved.lost)
    with Memory(tmp_path / "new.db", embedder=None) as memory:
        memory.load(tmp_path / "saved.jsonl")
        assert memory.check() == []
        assert len(memory.list("memory", limit=1000)) == saved.rows["memory"] - 1  # one is another namespace's


def test_text_that_is_no_utf8_is_read_with_a_mark_and_hides_no_other_row(copy: Path, tmp_path: Path) -> None:
    with contextlib.closing(sqlite3.connect(str(copy), isolation_level=None)) as connection:
        connection.execute("insert into memory (text) values (cast(x'6261ff64' as text))")
    with Memory(copy, embedder=None) as memory:
        assert memory.list("memory", limit=1000)[-1]["text"] == "ba\ufffdd"
        assert memory.search("memory number 300")
        assert memory.check() == []
        memory.export(tmp_path / "out.jsonl")
    with Memory(tmp_path / "new.db", embedder=None) as memory:
        memory.load(tmp_path / "out.jsonl")
        assert memory.check() == []


def test_random_bytes_anywhere_crash_nothing(whole: Path, tmp_path: Path) -> None:
    image = whole.read_bytes()
    dice = random.Random(6)
    for _ in range(40):
        broken = bytearray(image)
        for _ in range(dice.randint(1, 30)):
            at = dice.randrange(len(broken))
            broken[at] = dice.randrange(256)
        copy = tmp_path / "copy.db"
        copy.write_bytes(bytes(broken))
        with contextlib.suppress(IstarError), Memory(copy, embedder=None) as memory:
            memory.check()
            memory.list("memory", limit=1000)
            memory.search("memory number 3")
        with contextlib.suppress(IstarError):
            exporting.export(copy, tmp_path / "saved.jsonl", overwrite=True)
        for item in tmp_path.iterdir():
            item.unlink()


# --- the index, vectors, logs ---------------------------------------------------------------------------------


def test_an_index_that_cannot_be_read_is_built_anew(copy: Path) -> None:
    with contextlib.closing(sqlite3.connect(str(copy), isolation_level=None)) as connection:
        connection.execute("update document_fts_data set block = x'00112233445566778899' where id > 10")
    with Memory(copy, embedder=None) as memory:
        assert memory.check() != []
        assert memory.check(fix=True) == []
        assert memory.search("memory number 300")[0].text.startswith("memory number 300")


def test_an_index_of_a_table_out_of_step_is_built_anew(copy: Path) -> None:
    with contextlib.closing(sqlite3.connect(str(copy), isolation_level=None)) as connection:
        connection.execute("pragma writable_schema = on")
        connection.execute(
            "update sqlite_master set sql = 'create index memory_undigested on memory (namespace)"
            " where digest is not null' where name = 'memory_undigested'"
        )
    with Memory(copy, embedder=None) as memory:
        assert memory.check() != []
        assert memory.check(fix=True) == []


def test_a_vector_of_the_wrong_size_stops_no_search_and_is_dropped(copy: Path) -> None:
    with contextlib.closing(sqlite3.connect(str(copy), isolation_level=None)) as connection:
        connection.execute("update embedding set vector = x'00' where document < 5")
    with Memory(copy, embedder=None) as memory:
        assert memory.search("green tea")
        assert len(memory.check()) == 4
        assert memory.check(fix=True) == []


def test_a_log_of_another_file_beside_a_closed_one_is_refused_not_played_in(tmp_path: Path, whole: Path) -> None:
    other = File(tmp_path / "other.db")
    with other.write() as tx:
        tx.executemany("insert into memory (text) values (?)", [(f"foreign {n}",) for n in range(500)])
    path = Path(shutil.copy(whole, tmp_path / "a.db"))
    shutil.copy(wal_path(tmp_path / "other.db"), wal_path(path))
    other.close()
    assert "another file" in refused(path, FileDamaged)
    wal_path(path).unlink()
    with Memory(path, embedder=None) as memory:
        assert memory.check() == []


def test_a_backup_copied_over_a_crashed_file_is_not_mixed_with_its_log(tmp_path: Path, whole: Path) -> None:
    running = File(tmp_path / "running.db")
    with running.write() as tx:
        tx.executemany("insert into memory (text) values (?)", [(f"later {n}",) for n in range(500)])
    for suffix in ("", "-wal", "-shm"):  # what a kill leaves
        shutil.copy(tmp_path / f"running.db{suffix}", tmp_path / f"crashed.db{suffix}")
    running.close()
    shutil.copy(whole, tmp_path / "crashed.db")
    refused(tmp_path / "crashed.db", FileDamaged)


@pytest.mark.parametrize("suffix", ["-wal", "-shm", "-journal"])
@pytest.mark.parametrize("content", [b"", b"x", b"\0" * 4096, b"garbage " * 1000])
def test_junk_beside_a_file_neither_harms_nor_hides_it(copy: Path, suffix: str, content: bytes) -> None:
    copy.with_name(copy.name + suffix).write_bytes(content)
    try:
        memory = Memory(copy, embedder=None)
    except FileDamaged:
        assert suffix == "-wal" and content  # a log that is not its own: refused, not played in
        copy.with_name(copy.name + suffix).unlink()
        memory = Memory(copy, embedder=None)
    assert len(memory.list("memory", limit=1000)) == 603
    assert memory.check() == []
    memory.close()


@pytest.mark.parametrize(
    "damage",
    [
        lambda c: c.execute("drop table memory"),
        lambda c: c.execute("drop table setting"),
        lambda c: c.execute("alter table turn drop column reward_unit"),
        lambda c: c.execute("alter table memory rename column stability to firmness"),
    ],
)
def test_a_file_that_lacks_what_its_version_promises_is_refused_untouched(
    path: Path, damage: Callable[[sqlite3.Connection], object]
) -> None:
    File(path).close()
    with contextlib.closing(sqlite3.connect(str(path), isolation_level=None)) as connection:
        connection.execute("pragma synchronous = off")
        triggers = connection.execute("select name from sqlite_master where type in ('trigger', 'view')").fetchall()
        for (name,) in triggers:
            with contextlib.suppress(sqlite3.OperationalError):
                connection.execute(f"drop trigger {name}")
            with contextlib.suppress(sqlite3.OperationalError):
                connection.execute(f"drop view {name}")
        damage(connection)
    assert "lacks" in refused(path, FileDamaged)


def test_a_hundred_tables_of_the_users_own_do_no_harm(copy: Path) -> None:
    with contextlib.closing(sqlite3.connect(str(copy), isolation_level=None)) as connection:
        connection.execute("pragma synchronous = off")
        for number in range(100):
            connection.execute(f"create table mine_{number} (x)")
        connection.execute("create index mine on memory (importance)")
        connection.execute("alter table memory add column mood text")
    for _ in range(2):
        with Memory(copy, embedder=None) as memory:
            assert memory.remember("likes tea")
            assert memory.check() == []
