"""The seal: whatever was changed at rest is told, and in which table."""

from __future__ import annotations

import contextlib
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from rows import fill

from istar_lite import BadInput, Memory, ReadOnly, sealing
from istar_lite.database import sqlite3
from istar_lite.migrations import base_tables

KEY = "correct horse"


@pytest.fixture
def sealed(tmp_path: Path) -> Path:
    path = fill(tmp_path / "a.db")
    with Memory(path, embedder=None) as memory:
        memory.seal(KEY)
    return path


def told(path: Path, key: Any = KEY) -> list[str]:
    with Memory(path, read_only=True, embedder=None) as memory:
        return memory.check(key=key)


def change(path: Path, *statements: str) -> None:
    with contextlib.closing(sqlite3.connect(str(path), isolation_level=None)) as connection:
        for statement in statements:
            connection.execute(statement)


def test_a_sealed_file_that_nobody_touched_says_nothing(sealed: Path) -> None:
    assert told(sealed) == []
    assert told(sealed, KEY.encode()) == []


@pytest.mark.parametrize("table", [table for table in base_tables() if table not in sealing.DERIVED])
def test_a_row_removed_from_any_table_is_told_by_the_tables_name(sealed: Path, table: str) -> None:
    with contextlib.closing(sqlite3.connect(str(sealed), isolation_level=None)) as connection:
        connection.execute("pragma writable_schema = on")
        connection.execute("delete from sqlite_master where type = 'trigger'")
    change(sealed, f"delete from {table} where rowid = (select min(rowid) from {table})" if has_rowid(table)
           else f"delete from {table}")  # fmt: skip
    with contextlib.closing(sqlite3.connect(str(sealed), isolation_level=None)) as connection:
        assert f"seal: {table} was changed" in " ".join(sealing.differences(connection, KEY)) or table == "setting"


def has_rowid(table: str) -> bool:
    return table not in ("setting", "tag", "source", "recall_hit", "emotion", "memory_key", "item_vector")


@pytest.mark.parametrize(
    ("statement", "table"),
    [
        ("update memory set text = 'likes coffee' where id = 1", "memory"),
        ("update memory set importance = 0.71 where id = 1", "memory"),
        ("update memory set ended_at = null where id = 2", "memory"),
        ("insert into memory (text) values ('slipped in')", "memory"),
        ("delete from tombstone", "tombstone"),
        ("update setting set value = 9 where key = 'max_atoms' and session = 1", "setting"),
        ("insert into tag values ('memory', 3, 'slipped in')", "tag"),
        ("update turn set reward = reward + 1e-9 where id = 1", "turn"),
        ("update message set parts = '[]' where id = 1", "message"),
    ],
)
def test_any_edit_is_told_and_in_which_table(sealed: Path, statement: str, table: str) -> None:
    change(sealed, statement)
    assert [line.split()[1] for line in told(sealed)][:1] == [table] or table in " ".join(told(sealed))


def test_text_and_number_and_nothing_that_look_alike_are_told_apart() -> None:
    lines = {sealing._line("t", (value,)) for value in ("1", 1, 1.0, b"1", None, "None", "", b"")}
    assert len(lines) == 8
    assert sealing._line("t", ("a", "b")) != sealing._line("t", ("a\nstr:1:b",))


def test_a_row_put_back_as_it_was_is_no_change(sealed: Path) -> None:
    change(sealed, "update memory set importance = 0.1 where id = 3", "update memory set importance = 0.7 where id = 3")
    assert told(sealed) == []


def test_vacuum_snapshot_and_export_keep_the_seal(sealed: Path, tmp_path: Path) -> None:
    with Memory(sealed, embedder=None) as memory:
        memory.snapshot(tmp_path / "copy.db")
        memory.export(tmp_path / "out.jsonl")
    with Memory(tmp_path / "back.db", embedder=None) as memory:
        memory.load(tmp_path / "out.jsonl")
    change(sealed, "vacuum")
    for path in (sealed, tmp_path / "copy.db", tmp_path / "back.db"):
        assert told(path) == []


@pytest.mark.skipif(shutil.which("sqlite3") is None, reason="the sqlite3 shell is not installed")
def test_a_restored_dump_keeps_the_seal(sealed: Path, tmp_path: Path) -> None:
    script = subprocess.run(["sqlite3", str(sealed), ".dump"], capture_output=True, check=True).stdout
    subprocess.run(["sqlite3", str(tmp_path / "dumped.db")], input=script, check=True)
    with Memory(tmp_path / "dumped.db", embedder=None) as memory:
        assert memory.check(key=KEY) == []


def test_opening_and_closing_is_no_change(sealed: Path) -> None:
    for _ in range(2):
        with Memory(sealed) as memory:
            memory.list("memory")
    assert told(sealed) == []


def test_another_key_and_an_edited_seal_are_told_alike(sealed: Path) -> None:
    assert told(sealed, "another key") == ["seal: was made with another key, or was itself changed"]
    change(
        sealed,
        "update setting set value = replace(value, '\"sealed_at\": \"2', '\"sealed_at\": \"1') where key = 'seal'",
    )
    assert told(sealed) == ["seal: was made with another key, or was itself changed"]
    change(sealed, "update setting set value = 'nonsense' where key = 'seal'")
    assert told(sealed) == ["seal: cannot be read"]
    change(sealed, "delete from setting where key = 'seal'")
    assert told(sealed) == ["seal: the file has none"]


def test_sealing_again_covers_what_was_changed_since(sealed: Path) -> None:
    with Memory(sealed, embedder=None) as memory:
        memory.remember("new")
        assert memory.check(key=KEY) != []
        memory.seal(KEY)
        assert memory.check(key=KEY) == []


@pytest.mark.parametrize("key", ["", b"", None, 5, ["a"]])
def test_a_key_is_text_or_bytes(sealed: Path, key: Any) -> None:
    with Memory(sealed, embedder=None) as memory, pytest.raises(BadInput) as caught:
        memory.seal(key)
    assert caught.value.field == "key"


def test_half_an_emoji_may_stand_in_a_key(sealed: Path) -> None:
    with Memory(sealed, embedder=None) as memory:
        memory.seal("key \ud83d")
        assert memory.check(key="key \ud83d") == []
        assert memory.check(key="key ?") != []


def test_a_file_opened_read_only_cannot_be_sealed(sealed: Path) -> None:
    with Memory(sealed, read_only=True, embedder=None) as memory, pytest.raises(ReadOnly):
        memory.seal(KEY)
