"""The one file: opening, writing, closing, copying, and every way in which the world gets in between."""

from __future__ import annotations

import contextlib
import gc
import os
import shutil
import stat
import subprocess
import sys
import textwrap
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from rows import fill

from istar_lite import BadInput, Busy, IstarError, Memory, NotAMemoryFile, ReadOnly, database, driver, exporting
from istar_lite.database import File, sqlite3, wal_path
from istar_lite.migrations import shm_path

posix = pytest.mark.skipif(os.name == "nt", reason="POSIX only")


def add(file: File, text: str) -> None:
    with file.write() as tx:
        tx.execute("insert into memory (text) values (?)", (text,))


def texts(file: File) -> list[str]:
    return [row[0] for row in file.reader().execute("select text from memory order by id").fetchall()]


def plainly(path: Path) -> list[str]:
    """The memories as any SQLite tool sees them, from the one file alone."""
    with contextlib.closing(sqlite3.connect(path.as_uri() + "?mode=ro&immutable=1", uri=True)) as connection:
        return [row[0] for row in connection.execute("select text from memory order by id")]


def in_process(code: str, *arguments: object) -> subprocess.CompletedProcess[str]:
    """Runs Python code in a process of its own."""
    return subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code), *map(str, arguments)], capture_output=True, text=True, timeout=60
    )


def beside(path: Path) -> set[str]:
    return {item.name for item in path.parent.iterdir()}


# --- opening --------------------------------------------------------------------------------------------------


def test_a_new_file_and_its_log_are_private_to_the_owner(path: Path) -> None:
    file = File(path)
    add(file, "secret")
    modes = {stat.S_IMODE(item.stat().st_mode) for item in path.parent.iterdir()}
    file.close()
    if os.name != "nt":
        assert modes == {0o600}


def test_opening_an_existing_file_reads_its_schema_once(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fill(path)
    opened: list[Any] = []
    connect = sqlite3.connect

    def counting(*arguments: Any, **named: Any) -> Any:
        connection = connect(*arguments, **named)
        opened.append(connection)
        return connection

    monkeypatch.setattr(sqlite3, "connect", counting)
    driver.missing_functions()
    opened.clear()
    file = File(path)
    texts(file)
    file.close()
    # One that asks whose file it is (two numbers of the header), one that reads.
    assert len(opened) == 2


def test_reading_alone_changes_no_byte_of_the_file(path: Path) -> None:
    fill(path)
    before = path.read_bytes()
    for _ in range(2):
        file = File(path)
        texts(file)
        file.close()
    assert path.read_bytes() == before


@pytest.mark.parametrize(
    "name",
    [
        "file:a.db",
        "a?mode=ro.db",
        "a#b%20c.db",
        "ö 😀 東京.db",
        " '\".db",
        "-x.db",
        "a\nb.db",
        ";drop table.db",
        "%s{0}.db",
    ],
)
def test_a_path_may_hold_any_character(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    file = File(path)
    add(file, "kept")
    copy = file.snapshot(tmp_path / f"copy of {name}")
    file.close()
    assert beside(path) == {name, f"copy of {name}"}
    for one in (path, copy):
        reopened = File(one, read_only=True)
        assert texts(reopened) == ["kept"]
        reopened.close()


@posix
def test_a_path_may_be_no_utf8(tmp_path: Path) -> None:
    path = tmp_path / os.fsdecode(b"caf\xe9.db")
    try:
        path.touch()
    except OSError:
        pytest.skip("the file system wants UTF-8")
    file = File(path)
    add(file, "kept")
    file.snapshot(tmp_path / os.fsdecode(b"copy\xff.db"))
    file.close()
    assert plainly(tmp_path / os.fsdecode(b"copy\xff.db")) == ["kept"]


def test_a_relative_path_that_looks_like_a_uri_is_a_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    File("file:a.db?mode=memory").close()
    assert beside(tmp_path / "x") == {"file:a.db?mode=memory"}


@pytest.mark.parametrize("value", [None, 1, "", b"a.db", "a\0b", ":memory:", [], "missing/folder/a.db", "\ud83d.db"])
def test_what_is_no_path_is_refused_by_name(value: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    if value == "\ud83d.db" and os.name != "nt":
        pytest.skip("half an emoji is a name of bytes here")
    with pytest.raises(BadInput) as caught:
        File(value)
    assert caught.value.field == "path"
    assert not list(tmp_path.iterdir())


def test_a_folder_and_a_name_too_long_are_no_file(tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / ("x" * 300)):
        with pytest.raises(BadInput):
            File(path)


@posix
def test_a_pipe_is_no_file(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(BadInput):
        File(tmp_path / "pipe")


def test_a_link_leads_to_the_file_and_stays_a_link(tmp_path: Path) -> None:
    link = tmp_path / "link.db"
    try:
        link.symlink_to(tmp_path / "real.db")
    except OSError:
        pytest.skip("no links here")
    file = File(link)
    add(file, "kept")
    file.close()
    assert link.is_symlink() and plainly(tmp_path / "real.db") == ["kept"]


def test_a_durability_that_is_none_of_two_is_refused(path: Path) -> None:
    with pytest.raises(BadInput):
        File(path, durability="fast")  # type: ignore[arg-type]


# --- writing --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt, GeneratorExit, SystemExit])
def test_any_exception_rolls_the_write_back(path: Path, error: type[BaseException]) -> None:
    file = File(path)
    add(file, "before")
    with pytest.raises(error), file.write() as tx:
        tx.execute("insert into memory (text) values ('lost')")
        raise error
    add(file, "after")
    assert texts(file) == ["before", "after"]
    file.close()


def test_a_write_inside_a_write_joins_it(path: Path) -> None:
    file = File(path)
    with pytest.raises(ValueError), file.write() as outer:
        outer.execute("insert into memory (text) values ('outer')")
        with file.write() as inner:
            assert inner is outer
            inner.execute("insert into memory (text) values ('inner')")
        raise ValueError
    assert texts(file) == []
    file.close()


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (database, driver):
        monkeypatch.setattr(module, "BUSY_SECONDS", 0.05)


def test_a_writer_that_does_not_end_is_waited_for_and_then_told(path: Path, impatient: None) -> None:
    file, other = File(path), File(path)
    with other.write() as tx:
        tx.execute("insert into memory (text) values ('theirs')")
        with pytest.raises(Busy), file.write():
            raise AssertionError
        assert texts(file) == []
    add(file, "ours")
    assert texts(file) == ["theirs", "ours"]
    file.close()
    other.close()


def test_a_writer_in_another_thread_is_waited_for_and_then_told(path: Path, impatient: None) -> None:
    file = File(path)
    inside, done = threading.Event(), threading.Event()

    def hold() -> None:
        with file.write():
            inside.set()
            done.wait(30)

    holder = threading.Thread(target=hold)
    holder.start()
    inside.wait(30)
    with pytest.raises(Busy):
        add(file, "x")
    done.set()
    holder.join()
    add(file, "y")
    assert texts(file) == ["y"]
    file.close()


@pytest.mark.parametrize("first", ["update memory set text = 'y'", "insert into memory (text) values ('y')"])
def test_what_another_connection_declares_does_not_disturb_the_next_write(path: Path, first: str) -> None:
    file = File(path)
    add(file, "x")
    with contextlib.closing(sqlite3.connect(str(path), isolation_level=None)) as other:
        other.execute("create table mine (x)")
    with file.write() as tx:
        tx.execute(first)
    assert texts(file)[-1] == "y"
    file.close()


def test_readers_see_the_last_commit_while_somebody_writes(path: Path) -> None:
    file, other = File(path), File(path)
    add(file, "one")
    with file.write() as tx:
        tx.execute("insert into memory (text) values ('two')")
        assert texts(other) == ["one"] == texts(file)
    assert texts(other) == ["one", "two"]
    file.close()
    other.close()


def test_reads_of_one_moment_do_not_see_what_comes_meanwhile(path: Path) -> None:
    file = File(path)
    add(file, "one")
    with file.reading() as connection:
        first = connection.execute("select count(*) from memory").fetchone()[0]
        add(file, "two")
        assert connection.execute("select count(*) from memory").fetchone()[0] == first == 1
    assert len(texts(file)) == 2
    file.close()


def test_a_reading_connection_cannot_write(path: Path) -> None:
    file = File(path)
    with pytest.raises(ReadOnly):
        file.reader().execute("insert into memory (text) values ('x')")
    file.close()


def test_a_long_read_does_not_hold_up_the_first_write_of_another(path: Path, impatient: None) -> None:
    fill(path)
    reader, writer = File(path), File(path)
    with reader.reading() as connection:
        connection.execute("select count(*) from memory").fetchone()
        add(writer, "in time")
    assert "in time" in texts(reader)
    reader.close()
    writer.close()


# --- the disk -------------------------------------------------------------------------------------------------


def test_a_file_at_its_limit_takes_nothing_half_and_works_again_later(path: Path) -> None:
    file = File(path)
    add(file, "before")
    with file.write() as tx:
        pages = tx.execute("pragma page_count").fetchone()[0]
    limit = file._writer()
    limit.execute(f"pragma max_page_count = {pages + 5}")
    with pytest.raises(IstarError, match="disk is full"), file.write() as tx:
        for number in range(10_000):
            tx.execute("insert into memory (text) values (?)", (f"{number} " * 50,))
    assert texts(file) == ["before"]
    limit.execute("pragma max_page_count = 1000000")
    add(file, "after")
    assert texts(file) == ["before", "after"]
    file.close()
    assert plainly(path) == ["before", "after"]


@posix
def test_a_size_limit_of_the_system_is_told_and_nothing_is_half_written(path: Path) -> None:
    file = File(path)
    add(file, "before")
    file.close()
    done = in_process(
        """
        import resource, signal, sys
        from istar_lite import IstarError
        from istar_lite.database import File
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        file = File(sys.argv[1])
        resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, resource.RLIM_INFINITY))
        try:
            with file.write() as tx:
                for number in range(5000):
                    tx.execute("insert into memory (text) values (?)", (f"{number} " * 50,))
        except IstarError as error:
            print("told", error)
        resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
        with file.write() as tx:
            tx.execute("insert into memory (text) values ('after')")
        print([row[0] for row in file.reader().execute("select text from memory")])
        file.close()
        """,
        path,
    )
    assert done.stdout.startswith("told"), done.stderr
    assert done.stdout.splitlines()[1] == "['before', 'after']"
    with Memory(path, embedder=None) as memory:
        assert memory.check() == []


@pytest.fixture
def frozen(tmp_path: Path) -> Iterator[Callable[[Path], None]]:
    """Makes files or folders unchangeable, also for a superuser (whom permission bits do not bind)."""
    done: list[Path] = []

    def freeze(target: Path) -> None:
        if os.name != "nt" and os.geteuid() != 0:
            target.chmod(target.stat().st_mode & ~0o222)
        elif shutil.which("chattr") is None or subprocess.run(["chattr", "+i", target], capture_output=True).returncode:
            pytest.skip("nothing here can be made unchangeable for this user")
        done.append(target)

    yield freeze
    for target in reversed(done):
        if os.name != "nt" and os.geteuid() != 0:
            target.chmod(target.stat().st_mode | 0o200)
        else:
            subprocess.run(["chattr", "-i", target], check=True)


def test_a_file_that_cannot_be_written_is_refused_at_open_and_read_when_asked_so(
    tmp_path: Path, frozen: Callable[[Path], None]
) -> None:
    path = fill(tmp_path / "a.db")
    frozen(path)
    with pytest.raises(ReadOnly, match="read_only"):
        File(path)
    with Memory(path, read_only=True, embedder=None) as memory:
        assert memory.check() == [] and len(memory.list("memory")) == 3


def test_a_folder_that_cannot_be_written_is_refused_at_open_and_read_when_asked_so(
    tmp_path: Path, frozen: Callable[[Path], None]
) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    path = fill(folder / "a.db")
    before = path.read_bytes()
    frozen(folder)
    with pytest.raises(ReadOnly):
        File(path)
    with pytest.raises(ReadOnly):
        File(folder / "new.db")
    with Memory(path, read_only=True, embedder=None) as memory:
        assert memory.check() == []
    assert path.read_bytes() == before and beside(path) == {"a.db"}


def test_a_log_in_a_folder_that_cannot_be_written_is_not_silently_left_out(
    tmp_path: Path, frozen: Callable[[Path], None]
) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    file = File(folder / "a.db")
    add(file, "in the log")
    for name in ("a.db", "a.db-wal"):
        shutil.copy(folder / name, tmp_path / name)
    file.close()
    copy = tmp_path / "still"
    copy.mkdir()
    for name in ("a.db", "a.db-wal"):
        shutil.move(tmp_path / name, copy / name)
    frozen(copy)
    with pytest.raises(IstarError):
        File(copy / "a.db", read_only=True)


def test_read_only_writes_nothing_at_all(tmp_path: Path) -> None:
    path = fill(tmp_path / "a.db")
    before = path.read_bytes()
    file = File(path, read_only=True)
    with pytest.raises(ReadOnly), file.write():
        raise AssertionError
    with file.reading() as connection:
        connection.execute("select * from document").fetchall()
    file.close()
    assert path.read_bytes() == before and beside(path) == {"a.db"}
    with pytest.raises(NotAMemoryFile):
        File(tmp_path / "missing.db", read_only=True)
    assert beside(path) == {"a.db"}


@posix
def test_a_file_deleted_under_us_is_told_before_anything_is_lost(path: Path) -> None:
    file = File(path)
    add(file, "one")
    path.unlink()
    with pytest.raises(IstarError, match="deleted or replaced"):
        add(file, "two")
    file.close()
    assert not path.exists()


@posix
def test_a_file_replaced_under_us_is_told_and_left_alone(tmp_path: Path) -> None:
    path, other = tmp_path / "a.db", tmp_path / "b.db"
    file = File(path)
    add(file, "ours")
    theirs = File(other)
    add(theirs, "theirs")
    theirs.close()
    before = other.read_bytes()
    os.replace(other, path)
    with pytest.raises(IstarError, match="deleted or replaced"):
        add(file, "lost")
    file.close()
    assert path.read_bytes() == before


# --- closing --------------------------------------------------------------------------------------------------


def test_close_leaves_one_complete_file(path: Path) -> None:
    file = File(path)
    add(file, "all")
    assert wal_path(path).exists()
    assert file.close() is True
    assert beside(path) == {"agent.db"} and plainly(path) == ["all"]


def test_close_twice_is_close_once_and_a_closed_file_says_so(path: Path) -> None:
    file = File(path)
    file.close()
    assert file.close() is True
    for use in (file.reader, lambda: file.write().__enter__(), lambda: file.snapshot(path.with_name("x.db"))):
        with pytest.raises(IstarError, match="is closed"):
            use()


def test_while_another_has_it_open_close_says_so_and_the_last_one_tidies_up(path: Path) -> None:
    first, second = File(path), File(path)
    add(first, "one")
    add(second, "two")
    assert first.close() is False
    assert texts(second) == ["one", "two"]
    assert second.close() is True
    assert beside(path) == {"agent.db"} and plainly(path) == ["one", "two"]


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="Linux tells who has a file open")
def test_close_says_which_process_still_has_it_open(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    file = File(path)
    add(file, "one")
    code = "import sys; from istar_lite.database import File; f = File(sys.argv[1]); print(1, flush=True); input()"
    other = subprocess.Popen([sys.executable, "-c", code, path], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert other.stdout is not None and other.stdout.readline()
    caplog.set_level("INFO", "istar_lite")
    assert file.close() is False
    assert f"({other.pid}) still has it open" in caplog.text
    other.communicate(b"\n")
    assert beside(path) == {"agent.db"}


def test_close_inside_a_write_is_refused(path: Path) -> None:
    file = File(path)
    with file.write() as tx:
        tx.execute("insert into memory (text) values ('kept')")
        with pytest.raises(IstarError, match="inside its own write"):
            file.close()
    file.close()
    assert plainly(path) == ["kept"]


def test_close_waits_for_a_write_of_another_thread(path: Path) -> None:
    file = File(path)
    inside, go = threading.Event(), threading.Event()

    def slowly() -> None:
        with file.write() as tx:
            inside.set()
            go.wait(30)
            tx.execute("insert into memory (text) values ('in time')")

    writer = threading.Thread(target=slowly)
    writer.start()
    inside.wait(30)
    closer = threading.Thread(target=file.close)
    closer.start()
    go.set()
    writer.join()
    closer.join()
    assert plainly(path) == ["in time"]


def test_close_while_another_thread_reads_pulls_nothing_away_under_it(path: Path) -> None:
    file = File(path)
    with file.write() as tx:
        tx.executemany("insert into memory (text) values (?)", [(f"memory {n}",) for n in range(2000)])
    reading, closed = threading.Event(), threading.Event()
    seen: list[int] = []

    def read() -> None:
        cursor = file.reader().execute("select id from memory")
        cursor.fetchone()
        reading.set()
        closed.wait(30)
        seen.append(1 + len(cursor.fetchall()))

    reader = threading.Thread(target=read)
    reader.start()
    reading.wait(30)
    file.close()
    closed.set()
    reader.join()
    assert seen == [2000]


def test_what_is_forgotten_to_be_closed_is_closed_by_the_collector(path: Path) -> None:
    file = File(path)
    add(file, "all")
    del file
    gc.collect()
    assert beside(path) == {"agent.db"} and plainly(path) == ["all"]


@pytest.mark.parametrize(
    "ending", ["", "raise SystemExit(3)", "1 / 0", "import os, signal; os.kill(os.getpid(), signal.SIGINT)"]
)
def test_at_the_end_of_the_process_one_complete_file_is_left(path: Path, ending: str) -> None:
    in_process(
        f"""
        import sys
        from istar_lite.database import File
        file = File(sys.argv[1])
        with file.write() as tx:
            tx.execute("insert into memory (text) values ('all')")
        {ending}
        """,
        path,
    )
    assert beside(path) == {"agent.db"} and plainly(path) == ["all"]


def test_what_a_killed_process_left_in_the_log_is_there_for_the_next_one(path: Path) -> None:
    in_process(
        """
        import os, sys
        from istar_lite.database import File
        file = File(sys.argv[1])
        for text in ("one", "two"):
            with file.write() as tx:
                tx.execute("insert into memory (text) values (?)", (text,))
        with file.write() as tx:
            tx.execute("insert into memory (text) values ('not committed')")
            os._exit(9)
        """,
        path,
    )
    assert wal_path(path).exists()
    file = File(path, read_only=True)
    assert texts(file) == ["one", "two"]
    file.close()
    file = File(path)  # only read: it tidies up all the same
    assert texts(file) == ["one", "two"]
    file.close()
    assert beside(path) == {"agent.db"} and plainly(path) == ["one", "two"]


@posix
def test_a_fork_neither_uses_nor_closes_what_its_parent_opened(path: Path) -> None:
    done = in_process(
        """
        import os, sys, warnings
        warnings.simplefilter("ignore")
        from istar_lite import IstarError
        from istar_lite.database import File
        file = File(sys.argv[1])
        with file.write() as tx:
            tx.execute("insert into memory (text) values ('parent')")
        child = os.fork()
        if child == 0:
            for use in (file.reader, lambda: file.write().__enter__()):
                try:
                    use()
                except IstarError as error:
                    print("refused", "fork" in str(error), flush=True)
            file.close()
            own = File(sys.argv[1])
            with own.write() as tx:
                tx.execute("insert into memory (text) values ('child')")
            own.close()
            sys.exit(0)
        os.waitpid(child, 0)
        with file.write() as tx:
            tx.execute("insert into memory (text) values ('parent again')")
        print(file.close())
        """,
        path,
    )
    assert done.stdout.split() == ["refused", "True", "refused", "True", "True"], done.stderr
    assert plainly(path) == ["parent", "child", "parent again"]


# --- growth ---------------------------------------------------------------------------------------------------


def open_files() -> int:
    return len(os.listdir("/proc/self/fd"))


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="counts by /proc")
def test_opening_and_closing_many_times_leaves_no_handle_and_no_thread(path: Path) -> None:
    fill(path)
    before, threads = open_files(), threading.active_count()
    for number in range(60):
        file = File(path)
        if number % 2:
            add(file, f"memory {number}")
        texts(file)
        file.close()
    assert open_files() == before and threading.active_count() == threads


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="counts by /proc")
def test_threads_that_are_gone_leave_no_connection(path: Path) -> None:
    file = File(path)
    add(file, "one")
    before = open_files()
    for _ in range(50):
        thread = threading.Thread(target=texts, args=(file,))
        thread.start()
        thread.join()
    texts(file)
    assert open_files() <= before + 6
    assert len(file._connections.readers) <= 2
    file.close()


def test_the_log_is_started_anew_although_somebody_always_reads(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(database, "WAL_WORTH_TRUNCATING", 100_000)
    monkeypatch.setattr(database, "WRITES_BETWEEN_LOOKS", 8)
    file = File(path)
    file._writer().execute("pragma wal_autocheckpoint = 0")  # as if a reader were always in its way
    sizes = []
    for number in range(200):
        add(file, f"{number} " * 100)
        sizes.append(wal_path(path).stat().st_size)
    assert max(sizes) < 1_500_000
    file.close()


# --- snapshot -------------------------------------------------------------------------------------------------


def test_a_plain_copy_of_an_open_file_may_lack_what_a_snapshot_has(tmp_path: Path) -> None:
    file = File(tmp_path / "a.db")
    for number in range(50):
        add(file, f"memory {number}")
    snapshot = file.snapshot(tmp_path / "snapshot.db")
    assert len(plainly(snapshot)) == 50
    assert stat.S_IMODE(snapshot.stat().st_mode) == 0o600 or os.name == "nt"
    shutil.copy(tmp_path / "a.db", tmp_path / "plain.db")
    with contextlib.suppress(sqlite3.OperationalError):
        assert len(plainly(tmp_path / "plain.db")) < 50
    file.close()


def test_a_snapshot_while_others_write_is_of_one_moment(tmp_path: Path) -> None:
    file = File(tmp_path / "a.db")
    stop = threading.Event()

    def pairs() -> None:
        number = 0
        while not stop.is_set():
            with file.write() as tx:
                tx.execute("insert into memory (text) values (?)", (f"left {number}",))
                tx.execute("insert into memory (text) values (?)", (f"right {number}",))
            number += 1

    writer = threading.Thread(target=pairs)
    writer.start()
    try:
        for number in range(8):
            found = plainly(file.snapshot(tmp_path / f"{number}.db"))
            assert len(found) % 2 == 0
            assert [text.split()[1] for text in found[::2]] == [text.split()[1] for text in found[1::2]]
    finally:
        stop.set()
        writer.join()
    file.close()


def test_a_snapshot_replaces_only_what_it_was_told_to(tmp_path: Path) -> None:
    file = File(tmp_path / "a.db")
    add(file, "one")
    target = tmp_path / "b.db"
    target.write_text("somebody's")
    with pytest.raises(BadInput, match="overwrite"):
        file.snapshot(target)
    assert target.read_text() == "somebody's"
    file.snapshot(target, overwrite=True)
    assert plainly(target) == ["one"]
    for itself in (tmp_path / "a.db", tmp_path / "x" / ".." / "a.db"):
        with pytest.raises(BadInput):
            file.snapshot(itself, overwrite=True)
    file.close()
    assert beside(target) == {"a.db", "b.db"}


@pytest.mark.parametrize("ending", ["-wal", "-shm", "-journal"])
def test_no_copy_takes_the_place_of_a_log(tmp_path: Path, ending: str) -> None:
    file = File(tmp_path / "a.db")
    add(file, "one")
    with pytest.raises(BadInput, match=r"last written to a\.db"):
        file.snapshot(tmp_path / f"a.db{ending}", overwrite=True)
    with pytest.raises(BadInput, match=r"last written to a\.db"):
        exporting.export(file.path, tmp_path / f"a.db{ending}", overwrite=True)
    file.close()
    assert plainly(tmp_path / "a.db") == ["one"]
    other = File(tmp_path / "b.db")
    other.snapshot(tmp_path / f"free{ending}")
    other.close()


def test_a_snapshot_tells_how_far_it_is_and_can_be_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(database, "STEPS_BETWEEN_LOOKS", 100)
    target = tmp_path / "b.db"
    with Memory(tmp_path / "a.db", embedder=None) as memory:
        memory.remember_many([f"statement {number} {'tea ' * 300}" for number in range(3_000)])
        memory.forget(text="statement 1")  # its pages are free, and are not copied
        told: list[tuple[int, int]] = []
        memory.snapshot(target, on_progress=lambda done, total: told.append((done, total)))
        assert [done for done, _ in told] == sorted(done for done, _ in told)
        assert len({done for done, _ in told}) > 20
        assert told[-1][0] == told[-1][1] == pytest.approx(target.stat().st_size, rel=0.05)
        kept = target.read_bytes()

        def stop(done: int, total: int) -> None:
            if done > total / 2:
                raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            memory.snapshot(target, overwrite=True, on_progress=stop)
        assert target.read_bytes() == kept
        memory.remember("it goes on")
    assert beside(target) == {"a.db", "b.db"}


@pytest.mark.parametrize("suffix", ["-wal", "-shm"])
def test_a_target_that_somebody_has_open_is_refused(tmp_path: Path, suffix: str) -> None:
    file = File(tmp_path / "a.db")
    other = File(tmp_path / "b.db")
    add(other, "theirs")
    assert wal_path(tmp_path / "b.db").exists() and shm_path(tmp_path / "b.db").exists()
    with pytest.raises(BadInput):
        file.snapshot(tmp_path / "b.db", overwrite=True)
    other.close()
    (tmp_path / f"c.db{suffix}").write_bytes(b"x")
    with pytest.raises(BadInput):
        file.snapshot(tmp_path / "c.db")
    file.close()


def test_a_snapshot_that_fails_leaves_the_target_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = File(tmp_path / "a.db")
    add(file, "one")
    target = tmp_path / "b.db"
    target.write_text("somebody's")

    def fails(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", fails)
    with pytest.raises(IstarError, match="No space left"):
        file.snapshot(target, overwrite=True)
    monkeypatch.undo()
    assert target.read_text() == "somebody's"
    file.close()
    assert beside(target) == {"a.db", "b.db"}


@posix
def test_drafts_of_killed_processes_are_cleared_away_and_those_of_others_are_not(tmp_path: Path) -> None:
    file = File(tmp_path / "a.db")
    dead = tmp_path / ".b.db.999999999.1.tmp"
    alive = tmp_path / f".b.db.{os.getppid()}.1.tmp"
    dead.write_text("x")
    alive.write_text("x")
    file.snapshot(tmp_path / "b.db")
    file.close()
    assert not dead.exists() and alive.exists()


def test_a_read_only_file_can_be_copied(tmp_path: Path) -> None:
    path = fill(tmp_path / "a.db")
    file = File(path, read_only=True)
    assert len(plainly(file.snapshot(tmp_path / "b.db"))) == 4
    file.close()
    assert beside(path) == {"a.db", "b.db"}


@pytest.mark.parametrize(
    "choice",
    [
        {"clock": 42},
        {"redact": 42},
        {"count_tokens": "four"},
        {"llm_timeout": -1},
        {"llm_timeout": "soon"},
        {"budget": 5},
        {"on_error": "shrug"},
    ],
    ids=str,
)
def test_a_choice_that_nothing_could_use_is_refused_by_name_before_a_file_is_made(
    tmp_path: Path, choice: dict[str, Any]
) -> None:
    with pytest.raises(BadInput) as caught:
        Memory(tmp_path / "agent.db", embedder=None, **choice)
    assert caught.value.field == next(iter(choice))
    assert not (tmp_path / "agent.db").exists()
