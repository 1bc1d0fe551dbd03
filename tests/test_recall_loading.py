"""A scope that is kept up is the scope that would be read anew, whatever happened in between and whoever did it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from istar_lite import Memory
from istar_lite.database import sqlite3
from istar_lite.recall import loading, vectors, words
from istar_lite.recall import scope as scope_module
from istar_lite.recall.loading import Place, Scopes
from istar_lite.recall.query import read_query
from istar_lite.recall.scope import Floats, Scope
from istar_lite.testing import FixedClock, WordEmbedder

STEPS = st.lists(
    st.sampled_from(
        (
            "insert into message (session, content, speaker) values (1, 'one more', 'Ann')",
            "insert into message (session, content, speaker) values (2, 'elsewhere', 'Bob')",
            "insert into message (session, content, position) values (1, 'in between', 2)",
            "insert into memory (text) values ('a fact')",
            "insert into memory (namespace, text) values (2, 'a fact of another')",
            "update message set content = content || ', edited' where id % 3 = 0",
            "update message set session = 3 - session where id = 2",
            "update memory set status = 'superseded' where id % 2 = 0",
            "update memory set expires_at = '2030-01-01T00:00:00.000Z' where id = 1",
            "delete from message where id = (select max(id) from message)",
            "delete from memory where id % 5 = 1",
            "update message set id = id + 1000 where id = (select max(id) from message)",
            "settle",
            "look",
        )
    ),
    max_size=12,
)


def told(scope: Scope, model: int) -> dict[str, object]:
    """All that ranking reads of a scope, in a form that does not depend on how it came about."""
    before, after = scope.links()
    held = scope.vectors.get(model)
    vectors = {} if held is None else {
        int(scope.ids[at]): held.rows[number].tolist() for number, at in enumerate(held.owner.tolist()) if at >= 0
    }  # fmt: skip
    return {
        "ids": scope.ids.tolist(),
        "kinds": [scope.kinds[kind] for kind in scope.kind],
        "speakers": [None if speaker < 0 else scope.speakers[speaker] for speaker in scope.speaker],
        "columns": [
            np.asarray(column).tolist()
            for column in (scope.session, scope.position, scope.day, scope.length, scope.status, scope.expires)
        ],
        "before": [int(scope.ids[at]) if at >= 0 else None for at in before],
        "after": [int(scope.ids[at]) if at >= 0 else None for at in after],
        "vectors": vectors,
    }


TERMS = read_query("one more fact, edited elsewhere, there").terms


def held(connection: sqlite3.Connection, place: Place, scope: Scope) -> dict[str, list[int]]:
    """Which documents hold which term."""
    found = words.look_up(connection, place, scope, TERMS)
    return {one.term.label: scope.ids[one.places].tolist() for one in found}


def cosines(scope: Scope, model: int, query: Floats) -> dict[int, float]:
    """Of the documents that have a vector."""
    if model not in scope.vectors:
        return {}
    values = vectors.by_matrix(scope.vectors[model], query, len(scope))
    return {id: value for id, value in zip(scope.ids.tolist(), values.tolist(), strict=True) if value == value}


@settings(max_examples=40)
@given(STEPS)
def test_a_scope_kept_up_equals_one_read_anew(tmp_path_factory: pytest.TempPathFactory, steps: list[str]) -> None:
    path = tmp_path_factory.mktemp("scope") / "a.db"
    with Memory(path, embedder=WordEmbedder(8), clock=FixedClock()) as memory:
        memory.remember_many(["first", "second"])
        memory.in_namespace("other").remember("not mine")
        memory.db.execute("insert into session (name) values ('one'), ('two')")
        memory.db.execute("insert into message (session, content) values (1, 'hello'), (1, 'there'), (2, 'you')")
        memory.db.conn.commit()
        memory.status()
        services = memory._services
        ((_, model),) = services.embedding.usable(services.file.reader())
        looked_at = (Place(1), Place(1, (1,)), Place(1, (1, 2)), Place(1, kinds=("memory",)))
        kept = {place: Scopes(patience=0) for place in looked_at}
        shell = sqlite3.connect(path)

        def look() -> None:
            reader = services.file.reader()
            for place, scopes in kept.items():
                known, _ = scopes.get(reader, place, [model])
                fresh, _ = Scopes(patience=0).get(reader, place, [model])
                assert told(known, model.id) == told(fresh, model.id)
                assert held(reader, place, known) == held(reader, place, fresh)
                query = np.linspace(-1, 1, model.dimension, dtype=np.float32)
                assert cosines(known, model.id, query) == cosines(fresh, model.id, query)

        look()
        for step in steps:
            if step == "look":
                look()
            elif step == "settle":
                memory.status()
            else:
                shell.execute(step)
                shell.commit()
        shell.close()
        look()


def test_few_changes_are_taken_in_without_reading_the_scope(
    tmp_path: Path, clock: FixedClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Memory(tmp_path / "a.db", embedder=None, clock=clock) as memory:
        memory.remember_many([f"fact {at}" for at in range(50)])
        memory.search("fact")
        monkeypatch.setattr(loading, "_load", lambda *_: pytest.fail("the scope was read anew"))
        memory.remember("fact 51")
        memory.db.execute("update memory set text = 'fact 3 again' where id = 4")
        memory.db.execute("delete from memory where id = 9")
        memory.db.conn.commit()
        found = {hit.id for hit in memory.search("fact", k=100)}
        assert found == set(range(1, 52)) - {9}


def test_the_first_search_of_a_scope_reads_no_matrix_and_later_ones_find_the_same(
    tmp_path: Path, clock: FixedClock
) -> None:
    with Memory(tmp_path / "a.db", embedder=WordEmbedder(16), clock=clock) as memory:
        memory.remember_many([f"fact {at} about roses and soil {at % 7}" for at in range(50)])
        told: list[set[str]] = []
        scores: list[list[float]] = []
        for _ in range(3):
            found = memory.search("what do roses need", k=50)
            told.append({hit.explain["signals"]["neural"]["by"] for hit in found})
            assert len(found) == 50
            scores.append([hit.score for hit in found])
        assert scores[0] == pytest.approx(scores[1], abs=1e-6) and scores[1] == scores[2]
        assert told[0] <= {"sqlite-vec", "numpy"} and told[1] == told[2] == {"matrix"}


def test_one_who_reads_an_older_state_leaves_the_scope_as_the_others_have_it(tmp_path: Path, clock: FixedClock) -> None:
    with Memory(tmp_path / "a.db", embedder=None, clock=clock) as memory:
        memory.remember_many(["fact 1", "fact 2"])
        older = memory._services.file.reader()
        older.execute("begin")
        assert older.execute("select count(*) from document").fetchone()[0] == 2
        memory.remember("fact 3")
        newer = sqlite3.connect(memory.path)
        scopes = Scopes()
        for connection in (newer, older, newer):  # the scope is never brought back, nor are rows taken in twice
            scope, _ = scopes.get(connection, Place(1), [])
            assert scope.ids.tolist() == [1, 2, 3]
            found = held(connection, Place(1), scope)
            assert found["fact"] == [1, 2, 3] if connection is newer else [1, 2]
        newer.close()
        older.execute("rollback")


def test_a_term_that_was_looked_up_is_looked_up_among_what_came_since(tmp_path: Path, clock: FixedClock) -> None:
    with Memory(tmp_path / "a.db", embedder=None, clock=clock) as memory:
        memory.remember_many([f"fact {at}" for at in range(20)])
        told: list[str] = []
        memory.search("fact")
        reader = memory._services.file.reader()
        reader.set_trace_callback(told.append)
        memory.search("fact")
        assert not any("match" in sql for sql in told)
        memory.remember("fact 21")
        assert "fact 21" in {hit.text for hit in memory.search("fact", k=100)}
        reader.set_trace_callback(None)
        assert any("rowid > 20" in sql for sql in told if "match" in sql)


def test_matrices_are_doubled_for_speed_only_while_they_are_small(
    tmp_path: Path, clock: FixedClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loading, "KEPT_FLOATS", 50 * 16)
    monkeypatch.setattr(scope_module, "PATIENCE", 2)
    with Memory(tmp_path / "a.db", embedder=WordEmbedder(16), clock=clock) as memory:
        for name in ("one", "two"):
            memory.in_namespace(name).remember_many([f"fact {at}" for at in range(40)])
            found = [memory.in_namespace(name).search("fact", k=40).to_dict() for _ in range(6)]
            assert all(one == found[1] for one in found[2:])
        memory.in_namespace("two").search("fact")
        assert memory._services.scopes is not None
        first, second = (kept.scope for kept in memory._services.scopes._kept.values())
        assert [held._floats is None for held in first.vectors.values()] == [True]
        assert [held._floats is None for held in second.vectors.values()] == [False]


@pytest.mark.parametrize("place", (Place(1), Place(1, (1, 2)), Place(1, kinds=("memory", "atom"))))
def test_no_place_is_read_by_going_through_the_file(tmp_path: Path, place: Place) -> None:
    with Memory(tmp_path / "a.db", embedder=None) as memory:
        plan = memory.db.execute(f"explain query plan select * from {place.ids} cross join document using (id)")
        told = [row[3] for row in plan if "document" in row[3]]
        assert len(told) == 2 and all(step.startswith("SEARCH") for step in told)


def test_scopes_that_were_not_asked_for_long_are_let_go(tmp_path: Path, clock: FixedClock) -> None:
    with Memory(tmp_path / "a.db", embedder=None, clock=clock) as memory:
        for number in range(loading.KEPT + 5):
            memory.in_namespace(f"n{number}").remember("fact")
            memory.in_namespace(f"n{number}").search("fact")
        assert memory._services.scopes is not None
        assert len(memory._services.scopes._kept) == loading.KEPT
