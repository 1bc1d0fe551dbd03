"""Export and import: every row comes back as it was, and what is no export is refused by its line."""

from __future__ import annotations

import contextlib
import json
import stat
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rows import fill

from istar_lite import BadInput, FileTooNew, Memory, NotAMemoryFile, exporting
from istar_lite.database import File, sqlite3
from istar_lite.migrations import base_tables, columns, latest_version


def everything(path: Path) -> dict[str, list[tuple[Any, ...]]]:
    """All rows of all tables, and the ids that were used up."""
    with contextlib.closing(sqlite3.connect(str(path))) as connection:
        found = {
            table: sorted(connection.execute(f"select {', '.join(columns(table))} from {table}").fetchall(), key=repr)
            for table in base_tables()
        }
        found["sqlite_sequence"] = sorted(connection.execute("select name, seq from sqlite_sequence").fetchall())
    return found


def round_trip(path: Path, folder: Path) -> Path:
    target = folder / "back.db"
    with Memory(path, embedder=None) as memory:
        memory.export(folder / "out.jsonl", overwrite=True)
    with Memory(target, embedder=None) as memory:
        memory.load(folder / "out.jsonl")
        assert memory.check() == []
    return target


def test_every_row_of_every_table_comes_back_as_it_was(tmp_path: Path) -> None:
    path = fill(tmp_path / "a.db")
    assert everything(round_trip(path, tmp_path)) == everything(path)


def test_an_export_of_what_came_back_is_the_same_text(tmp_path: Path) -> None:
    path = fill(tmp_path / "a.db")
    target = round_trip(path, tmp_path)
    exporting.export(target, tmp_path / "again.jsonl")
    assert (tmp_path / "again.jsonl").read_bytes() == (tmp_path / "out.jsonl").read_bytes()


def test_ids_of_deleted_rows_are_not_given_again_after_the_trip(tmp_path: Path) -> None:
    with Memory(tmp_path / "a.db", embedder=None) as memory:
        ids = [memory.remember(f"memory number {n}").id for n in range(5)]
        with memory._services.file.write() as tx:
            tx.execute("delete from memory where id > 2")
    target = round_trip(tmp_path / "a.db", tmp_path)
    with Memory(target, embedder=None) as memory:
        assert memory.remember("one more").id > max(ids)


@settings(max_examples=10)
@given(
    text=st.text(min_size=1, max_size=300),
    number=st.floats(allow_nan=False),
    blob=st.binary(max_size=40),
    whole=st.integers(min_value=-(2**63), max_value=2**63 - 1),
)
def test_any_value_that_sqlite_holds_comes_back(
    tmp_path_factory: pytest.TempPathFactory, text: str, number: float, blob: bytes, whole: int
) -> None:
    folder = tmp_path_factory.mktemp("trip")
    file = File(folder / "a.db")
    with file.write() as tx:
        tx.execute("insert into memory (text, access_count) values (?, ?)", (text, whole))
        tx.execute("insert into session (id, name, kind) values (1, 'r', 'run')")
        tx.execute("insert into turn (session, turn, reward, text) values (1, 1, ?, ?)", (number, text))
        tx.execute("insert into tombstone (kind, namespace, salt, digest) values ('memory', 1, ?, 'x')", (blob,))
        tx.execute("insert into setting (key, value) values ('mine', ?)", (blob,))
    file.close()
    assert everything(round_trip(folder / "a.db", folder)) == everything(folder / "a.db")


def test_text_is_written_as_strict_json_in_utf8(tmp_path: Path) -> None:
    with Memory(tmp_path / "a.db", embedder=None) as memory:
        memory.remember("東京 \u2028 \x1f 😀 \ud83d")
        memory.export(tmp_path / "out.jsonl")
    raw = (tmp_path / "out.jsonl").read_bytes().decode("utf-8")

    def refuse(constant: str) -> None:
        raise AssertionError(constant)

    rows = [json.loads(line, parse_constant=refuse) for line in raw.split("\n") if line]
    assert rows[0]["format"] == exporting.FORMAT
    assert any(row.get("table") == "memory" and "東京" in row["row"]["text"] for row in rows)


def test_an_export_is_private_and_replaces_only_what_it_was_told_to(tmp_path: Path) -> None:
    target = tmp_path / "out.jsonl"
    target.write_text("somebody's")
    with Memory(tmp_path / "a.db", embedder=None) as memory:
        with pytest.raises(BadInput, match="overwrite"):
            memory.export(target)
        assert target.read_text() == "somebody's"
        done = memory.export(target, overwrite=True)
        with pytest.raises(BadInput):
            memory.export(tmp_path / "a.db", overwrite=True)
    assert done.path == str(target) and done.lost == ()
    assert stat.S_IMODE(target.stat().st_mode) in (0o600, 0o666)
    assert {item.name for item in tmp_path.iterdir()} == {"a.db", "out.jsonl"}


def test_a_read_only_file_is_exported_and_stays_as_it_was(tmp_path: Path) -> None:
    path = fill(tmp_path / "a.db")
    before = path.read_bytes()
    with Memory(path, read_only=True, embedder=None) as memory:
        memory.export(tmp_path / "out.jsonl")
    assert path.read_bytes() == before


def test_an_export_is_of_one_moment_and_has_what_lies_in_the_log(tmp_path: Path) -> None:
    with Memory(tmp_path / "a.db", embedder=None) as memory:
        memory.remember("in the log")
        assert memory.export(tmp_path / "out.jsonl").rows["memory"] == 1


def test_progress_reaches_its_end(tmp_path: Path) -> None:
    path = fill(tmp_path / "a.db")
    told: list[tuple[int, int]] = []
    exporting.export(path, tmp_path / "out.jsonl", on_progress=lambda done, total: told.append((done, total)))
    assert told[-1][0] == told[-1][1] > 0


def test_a_file_with_something_in_it_takes_no_export(tmp_path: Path) -> None:
    path = fill(tmp_path / "a.db")
    exporting.export(path, tmp_path / "out.jsonl")
    with Memory(tmp_path / "b.db", embedder=None) as memory:
        memory.remember("here already")
        with pytest.raises(BadInput, match="merge"):
            memory.load(tmp_path / "out.jsonl")
        assert [row["text"] for row in memory.list("memory")] == ["here already"]
        assert memory.check() == []


LINES = {
    "no header": ('{"table": "memory", "row": {"id": 1}}', "line 1"),
    "other program": ('{"format": "something else"}', "line 1"),
    "no json": ("hello", "line 1"),
    "a list": ("[]", "line 1"),
    "nothing": ("", "line 1"),
}


@pytest.mark.parametrize("what", LINES)
def test_what_is_no_export_is_refused(tmp_path: Path, what: str) -> None:
    text, where = LINES[what]
    (tmp_path / "in.jsonl").write_text(text + "\n")
    assert not exporting.is_export(tmp_path / "in.jsonl")
    with Memory(tmp_path / "a.db", embedder=None) as memory:
        with pytest.raises(BadInput, match=where):
            memory.load(tmp_path / "in.jsonl")
        assert memory.check() == []


@pytest.mark.parametrize(
    "line",
    [
        "broken",
        "[]",
        "{}",
        '{"table": "memory"}',
        '{"table": "memory; drop table memory", "row": {"id": 1}}',
        '{"table": "sqlite_master", "row": {"name": "x"}}',
        '{"table": "memory", "row": {"id) values (1); --": 1}}',
        '{"table": "memory", "row": {"text": ["a"]}}',
        '{"table": "memory", "row": {"text": {"base64": 5}}}',
    ],
)
def test_a_line_that_is_no_row_is_refused_by_its_number_and_nothing_goes_in(tmp_path: Path, line: str) -> None:
    header = json.dumps({"format": exporting.FORMAT, "version": latest_version()})
    good = '{"table": "memory", "row": {"id": 1, "text": "good"}}'
    (tmp_path / "in.jsonl").write_text(f"{header}\n{good}\n\n{line}\n")
    with Memory(tmp_path / "a.db", embedder=None) as memory:
        with pytest.raises(BadInput, match="line 4"):
            memory.load(tmp_path / "in.jsonl")
        assert len(memory.list("memory")) == 0
        assert memory.check() == []


@pytest.mark.parametrize("lines", [0, 1, 2, -1])
def test_an_export_that_was_cut_off_at_the_end_of_a_line_is_refused(tmp_path: Path, lines: int) -> None:
    exporting.export(fill(tmp_path / "a.db"), tmp_path / "out.jsonl")
    kept = (tmp_path / "out.jsonl").read_text(encoding="utf-8").splitlines()[:lines]
    (tmp_path / "cut.jsonl").write_text("".join(line + "\n" for line in kept), encoding="utf-8")
    with Memory(tmp_path / "b.db", embedder=None) as memory:
        with pytest.raises(BadInput, match=r"cut off|no export"):
            memory.load(tmp_path / "cut.jsonl")
        assert (len(memory.list("memory")), memory.sessions(), memory.check()) == (0, [], [])


def test_an_export_of_a_newer_version_is_refused(tmp_path: Path) -> None:
    header = json.dumps({"format": exporting.FORMAT, "version": latest_version() + 1})
    (tmp_path / "in.jsonl").write_text(header + "\n")
    with Memory(tmp_path / "a.db", embedder=None) as memory, pytest.raises(FileTooNew):
        memory.load(tmp_path / "in.jsonl")


def test_rows_whose_owner_was_lost_come_back_under_a_name_that_says_so(tmp_path: Path) -> None:
    path = fill(tmp_path / "a.db")
    exporting.export(path, tmp_path / "out.jsonl")
    lines = (tmp_path / "out.jsonl").read_text(encoding="utf-8").splitlines()
    kept = [line for line in lines if '"table": "session"' not in line and '"table": "namespace"' not in line]
    (tmp_path / "out.jsonl").write_text("\n".join(kept), encoding="utf-8")
    with Memory(tmp_path / "b.db", embedder=None) as memory:
        memory.load(tmp_path / "out.jsonl")
        assert memory.check() == []
        assert "recovered-1" in {session["name"] for session in memory.sessions()}
        assert memory.search("green tea")


def test_an_export_needs_a_file_of_ours(tmp_path: Path) -> None:
    (tmp_path / "text.db").write_text("hello " * 200)
    with pytest.raises(NotAMemoryFile):
        exporting.export(tmp_path / "text.db", tmp_path / "out.jsonl")
    assert not (tmp_path / "out.jsonl").exists()
