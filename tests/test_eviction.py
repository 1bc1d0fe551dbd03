"""The cap of atoms is a trigger of the file: it holds for every tool, every form of insert, and all pragmas."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from istar_lite import Atom, Memory, TurnRecord
from istar_lite.database import sqlite3

SHELL = shutil.which("sqlite3")
PRAGMAS = [(foreign, recursive) for foreign in ("on", "off") for recursive in ("on", "off")]
COLUMNS = "session, key, turn, type, content, priority"


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file with the run "r" (session 1) and no atoms."""
    path = tmp_path_factory.mktemp("template") / "agent.db"
    with Memory(path, embedder=None) as memory:
        memory.agent("r", max_atoms=20)
    return path


@pytest.fixture(params=PRAGMAS, ids=lambda pair: f"foreign_keys={pair[0]},recursive_triggers={pair[1]}")
def plain(template: Path, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[sqlite3.Connection]:
    """A bare connection to a copy of the template, as any tool would make it."""
    with closing(connect(template, tmp_path / "agent.db", request.param)) as connection:
        yield connection


def connect(template: Path, path: Path, pragmas: tuple[str, str] = ("off", "off")) -> sqlite3.Connection:
    shutil.copy(template, path)
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute(f"pragma foreign_keys = {pragmas[0]}")
    connection.execute(f"pragma recursive_triggers = {pragmas[1]}")
    connection.execute("pragma synchronous = off")
    return connection


def cap(connection: sqlite3.Connection, number: int) -> None:
    connection.execute("update setting set value = ? where key = 'max_atoms' and session = 1", (number,))


def insert(connection: sqlite3.Connection, *rows: tuple[str, int, float]) -> None:
    """Atoms (key, turn, priority) in one statement."""
    values = ", ".join(["(1, ?, ?, 'kind', 'text', ?)"] * len(rows))
    connection.execute(f"insert into atom ({COLUMNS}) values {values}", [part for row in rows for part in row])


def kept(connection: sqlite3.Connection, status: str = "active") -> list[str]:
    return [row[0] for row in connection.execute("select key from atom where status = ? order by key", (status,))]


def assert_whole(connection: sqlite3.Connection) -> None:
    """Search rows say what the atoms say, and the full text index is sound."""
    assert (
        connection.execute(
            "select row, text, status, ended_at from document where kind = 'atom' order by row"
        ).fetchall()
        == connection.execute("select id, content, status, ended_at from atom order by id").fetchall()
    )
    connection.execute("insert into document_fts (document_fts) values ('integrity-check')")
    assert connection.execute("pragma foreign_key_check").fetchall() == []


def test_the_lowest_priority_leaves(plain: sqlite3.Connection) -> None:
    cap(plain, 2)
    for row in [("a", 1, 50), ("b", 2, 10), ("c", 3, 90)]:
        insert(plain, row)
    assert kept(plain) == ["a", "c"]
    assert kept(plain, "evicted") == ["b"]
    assert_whole(plain)


def test_an_atom_below_all_others_is_evicted_at_once(plain: sqlite3.Connection) -> None:
    cap(plain, 2)
    insert(plain, ("a", 1, 50), ("b", 2, 60))
    insert(plain, ("c", 3, 10))
    assert kept(plain) == ["a", "b"]
    assert_whole(plain)


def test_on_a_tie_the_lower_turn_leaves_then_the_lower_id(plain: sqlite3.Connection) -> None:
    cap(plain, 2)
    insert(plain, ("late", 9, 50), ("early", 1, 50), ("middle", 5, 50))
    assert kept(plain, "evicted") == ["early"]
    insert(plain, ("twin", 5, 50))
    assert kept(plain) == ["late", "twin"]


def test_many_rows_in_one_statement_leave_exactly_the_cap(plain: sqlite3.Connection) -> None:
    cap(plain, 7)
    insert(plain, *[(f"{at:03}", at, (at * 37) % 100) for at in range(100)])
    best = sorted(range(100), key=lambda at: ((at * 37) % 100, at, at))[-7:]
    assert kept(plain) == sorted(f"{at:03}" for at in best)
    assert_whole(plain)


@pytest.mark.parametrize("number", [1, 2, 19, 20, 1_000])
def test_every_cap_is_kept_exactly(template: Path, tmp_path: Path, number: int) -> None:
    with closing(connect(template, tmp_path / "agent.db")) as connection:
        cap(connection, number)
        many(connection, number + 3)
        assert connection.execute("select status, count(*) from atom group by status").fetchall() == [
            ("active", number),
            ("evicted", 3),
        ]


def test_a_cap_of_twenty_thousand_is_kept_exactly(template: Path, tmp_path: Path) -> None:
    with closing(connect(template, tmp_path / "agent.db")) as connection:
        cap(connection, 20_000)
        # Filled without the trigger (10 s with it); the rows that count come through it.
        evict = connection.execute("select sql from sqlite_master where name = 'atom_evict'").fetchone()[0]
        connection.execute("drop trigger atom_evict")
        connection.execute("drop trigger atom_insert")
        many(connection, 20_000)
        connection.execute(evict)
        insert(connection, ("low", 1, 0), ("high", 1, 100), ("higher", 1, 100))
        assert len(kept(connection)) == 20_000
        assert {"high", "higher"} < set(kept(connection))
        assert "low" in kept(connection, "evicted")


def many(connection: sqlite3.Connection, number: int) -> None:
    connection.execute(
        f"with recursive n (i) as (select 1 union all select i + 1 from n where i < ?) insert into atom ({COLUMNS})"
        " select 1, i, i, 'kind', 'text', 1 + (i * 7919) % 99 from n",
        (number,),
    )


def test_an_upsert_that_lowers_a_priority_evicts_nothing_and_one_that_exceeds_does(plain: sqlite3.Connection) -> None:
    cap(plain, 2)
    upsert = (
        f"insert into atom ({COLUMNS}) values (1, ?, ?, 'kind', 'new text', ?)"
        " on conflict (session, key) do update set priority = excluded.priority, content = excluded.content"
    )
    insert(plain, ("a", 1, 50), ("b", 2, 60))
    plain.execute(upsert, ("a", 1, 5))
    assert kept(plain) == ["a", "b"]
    plain.execute(upsert, ("c", 3, 70))
    assert kept(plain) == ["b", "c"]
    assert_whole(plain)


def test_a_replace_leaves_no_ghost_behind(plain: sqlite3.Connection) -> None:
    cap(plain, 2)
    insert(plain, ("a", 1, 50), ("b", 2, 60))
    plain.execute(f"replace into atom ({COLUMNS}) values (1, 'a', 1, 'kind', 'other words', 55)")
    assert kept(plain) == ["a", "b"]
    assert_whole(plain)
    find = "select count(*) from document_fts where document_fts match ?"
    assert plain.execute(find, ("other",)).fetchone() == (1,)


def test_lowering_the_cap_evicts_at_once_and_raising_it_brings_nothing_back(plain: sqlite3.Connection) -> None:
    insert(plain, *[(f"{at}", at, at) for at in range(9)])
    cap(plain, 3)
    assert kept(plain) == ["6", "7", "8"]
    cap(plain, 9)
    assert kept(plain) == ["6", "7", "8"]
    assert_whole(plain)


def test_a_run_that_loses_its_own_cap_falls_under_the_cap_of_the_file(plain: sqlite3.Connection) -> None:
    cap(plain, 30)
    insert(plain, *[(f"{at:02}", at, at) for at in range(30)])
    plain.execute("delete from setting where key = 'max_atoms' and session = 1")
    assert len(kept(plain)) == 20


def test_lowering_the_cap_of_the_file_leaves_runs_with_a_cap_of_their_own(plain: sqlite3.Connection) -> None:
    plain.execute("insert into session (name, kind) values ('other', 'run')")
    insert(plain, *[(f"{at}", at, at) for at in range(5)])
    plain.execute(f"insert into atom ({COLUMNS}) select 2, key, turn, type, content, priority from atom")
    plain.execute("update setting set value = 2 where key = 'max_atoms' and session = 0 and namespace = 0")
    counts = plain.execute("select session, count(*) from atom where status = 'active' group by session").fetchall()
    assert counts == [(1, 5), (2, 2)]


def test_an_evicted_atom_says_when_and_by_what(plain: sqlite3.Connection) -> None:
    cap(plain, 1)
    insert(plain, ("a", 1, 50))
    plain.execute(
        f"insert into atom ({COLUMNS}, occurred_at) values (1, 'b', 2, 'kind', 'text', 60, '2026-03-04T05:06:07.890Z')"
    )
    row = plain.execute("select ended_at, ended_by from atom where key = 'a'").fetchone()
    assert row == ("2026-03-04T05:06:07.890Z", "atom 2")
    assert plain.execute("select ended_at, ended_by from atom where key = 'b'").fetchone() == (None, None)


def test_a_run_that_deletes_what_it_evicts_keeps_no_row_of_it(plain: sqlite3.Connection) -> None:
    plain.execute("insert into setting (key, session, value) values ('evicted_atoms', 1, 'delete')")
    cap(plain, 2)
    insert(plain, *[(f"{at}", at, at) for at in range(10)])
    assert plain.execute("select key from atom order by key").fetchall() == [("8",), ("9",)]
    assert_whole(plain)


def test_an_atom_brought_back_pushes_out_the_lowest(plain: sqlite3.Connection) -> None:
    cap(plain, 2)
    insert(plain, ("a", 1, 50), ("b", 2, 60), ("c", 3, 70))
    plain.execute("update atom set priority = 80 where key = 'a'")
    plain.execute("update atom set status = 'active', ended_at = null, ended_by = null where key = 'a'")
    assert kept(plain) == ["a", "c"]
    assert_whole(plain)


def test_runs_do_not_share_their_cap(plain: sqlite3.Connection) -> None:
    plain.execute("insert into session (name, kind) values ('other', 'run')")
    cap(plain, 2)
    insert(plain, ("a", 1, 1), ("b", 2, 2))
    plain.execute(f"insert into atom ({COLUMNS}) values (2, 'a', 1, 'kind', 'text', 99)")
    assert plain.execute("select count(*) from atom where status = 'active'").fetchone() == (3,)


@pytest.mark.skipif(SHELL is None, reason="the stock sqlite3 shell is not installed")
def test_the_stock_shell_evicts_like_the_library(template: Path, tmp_path: Path) -> None:
    path = tmp_path / "agent.db"
    shutil.copy(template, path)
    script = f"""
        update setting set value = 3 where key = 'max_atoms' and session = 1;
        insert into atom ({COLUMNS}) values (1,'a',1,'k','first',10),(1,'b',2,'k','second',20),(1,'c',3,'k','third',30);
        insert into atom ({COLUMNS}) values (1,'d',4,'k','fourth',40);
        replace into atom ({COLUMNS}) values (1,'b',2,'k','second again',50);
        insert into atom ({COLUMNS}) values (1,'e',5,'k','fifth',5)
            on conflict (session, key) do update set priority = excluded.priority;
        insert into document_fts (document_fts) values ('integrity-check');
        select group_concat(key, ',') from (select key from atom where status = 'active' order by key);
        select group_concat(key, ',') from (select key from atom where status = 'evicted' order by key);
        select count(*) from document_fts where document_fts match 'again';
    """
    shell = [str(SHELL), "-batch", str(path)]
    result = subprocess.run(shell, input=script, capture_output=True, text=True, check=False)
    assert result.stderr == ""
    assert result.stdout.split() == ["b,c,d", "a,e", "1"]
    with Memory(path, embedder=None) as memory:
        assert [atom.id for atom in memory.agent("r").atoms()] == ["b", "c", "d"]


def test_the_library_reports_what_was_evicted_at_once(memory: Memory) -> None:
    class Three:
        def extract(self, window: Any, existing: Any, /) -> list[Atom]:
            return [Atom(id=f"{n}", turn=1, type="kind", content=f"text {n}", priority=n) for n in (30, 10, 20)]

    agent = memory.agent("r", atom_extractor=Three(), extract_every=1, max_atoms=2)
    agent.record_turn(TurnRecord(1))
    assert [(atom.id, atom.status) for atom in agent.extract_atoms(1)] == [
        ("30", "active"),
        ("10", "evicted"),
        ("20", "active"),
    ]


# --- against a model ----------------------------------------------------------------------------------------------


class Oracle:
    """The rule in ten lines of Python."""

    def __init__(self) -> None:
        self.rows: dict[int, dict[str, Any]] = {}
        self.cap = 20
        self.last_id = 0

    def active(self) -> list[int]:
        return [row for row, atom in self.rows.items() if atom["status"] == "active"]

    def evict(self) -> None:
        order = sorted(self.active(), key=lambda row: (self.rows[row]["priority"], self.rows[row]["turn"], row))
        for row in order[: max(0, len(order) - self.cap)]:
            self.rows[row]["status"] = "evicted"

    def find(self, key: str) -> int | None:
        return next((row for row, atom in self.rows.items() if atom["key"] == key), None)

    def add(self, key: str, turn: int, priority: int) -> None:
        self.last_id += 1
        self.rows[self.last_id] = {"key": key, "turn": turn, "priority": priority, "status": "active"}
        self.evict()

    def state(self) -> list[tuple[str, str]]:
        return sorted((atom["key"], atom["status"]) for atom in self.rows.values())


KEYS = st.sampled_from("abcdefgh")
ROWS = st.tuples(KEYS, st.integers(1, 4), st.sampled_from([0, 10, 10, 50, 100]))
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("ignore"), st.lists(ROWS, min_size=1, max_size=5)),
        st.tuples(st.just("upsert"), ROWS),
        st.tuples(st.just("replace"), ROWS),
        st.tuples(st.just("delete"), KEYS),
        st.tuples(st.just("reopen"), KEYS),
        st.tuples(st.just("cap"), st.integers(1, 6)),
    ),
    max_size=12,
)


@given(steps=STEPS, pragmas=st.sampled_from(PRAGMAS))
def test_any_history_ends_as_the_rule_says(
    template: Path, tmp_path: Path, steps: list[tuple[str, Any]], pragmas: tuple[str, str]
) -> None:
    oracle = Oracle()
    with closing(connect(template, tmp_path / "agent.db", pragmas)) as connection:
        for step in steps:
            apply(connection, oracle, *step)
            statuses = connection.execute("select key, status from atom order by key").fetchall()
            assert [tuple(row) for row in statuses] == oracle.state(), step
        assert_whole(connection)


def apply(connection: sqlite3.Connection, oracle: Oracle, what: str, value: Any) -> None:
    if what == "cap":
        cap(connection, value)
        oracle.cap = value
        oracle.evict()
    elif what == "ignore":
        new = {row[0]: row for row in reversed(value)}
        rows = [row for row in dict.fromkeys(new[row[0]] for row in value) if oracle.find(row[0]) is None]
        if rows:
            insert(connection, *rows)
        for row in rows:
            oracle.add(*row)
    elif what == "delete":
        connection.execute("delete from atom where key = ?", (value,))
        oracle.rows.pop(oracle.find(value) or 0, None)
    elif what == "reopen":
        connection.execute("update atom set status = 'active', ended_at = null where key = ?", (value,))
        if (row := oracle.find(value)) is not None:
            oracle.rows[row]["status"] = "active"
            oracle.evict()
    else:
        put(connection, oracle, what, *value)


def put(connection: sqlite3.Connection, oracle: Oracle, what: str, key: str, turn: int, priority: int) -> None:
    values = f"({COLUMNS}) values (1, ?, ?, 'kind', 'text', ?)"
    conflict = " on conflict (session, key) do update set turn = excluded.turn, priority = excluded.priority"
    statement = f"replace into atom {values}" if what == "replace" else f"insert into atom {values}{conflict}"
    connection.execute(statement, (key, turn, priority))
    row = oracle.find(key)
    if row is not None and what == "upsert":
        oracle.rows[row].update(turn=turn, priority=priority)
        oracle.evict()
        return
    oracle.rows.pop(row or 0, None)
    oracle.add(key, turn, priority)


def test_an_atom_that_is_restored_into_a_full_run_stays_and_the_least_important_other_gives_way(tmp_path: Path) -> None:
    class EachTurn:
        def extract(self, window: Sequence[TurnRecord], existing: Sequence[Atom], /) -> list[Atom]:
            return [Atom(turn=t.turn, type="t", content=f"t{t.turn}", priority=t.turn) for t in window[-1:]]

    with Memory(tmp_path / "agent.db", embedder=None) as memory:
        agent = memory.agent("r", atom_extractor=EachTurn(), extract_every=1, max_atoms=2)
        for turn in range(1, 5):
            agent.tick(TurnRecord(turn=turn, reward=0.0))
        row = memory.restore("atom", 1)
        assert row.to_dict()["status"] == "active"
        assert sorted(atom.turn for atom in agent.atoms()) == [1, 4]
        gone = memory.get("atom", 3)
        assert gone is not None and gone.to_dict()["ended_by"] == "atom 1"
