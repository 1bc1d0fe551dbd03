"""Datasette on a memory file: described, with questions to ask, bars and links; by the version that is installed."""

from __future__ import annotations

import asyncio
import re
import sys
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("datasette", reason="Datasette is not installed (the extra `view`)")

from conftest import Shell
from rows import fill

from istar_lite import NotAMemoryFile
from istar_lite.view import datasette
from istar_lite.view.dictionary import ASKED, INNER, questions, sections

QUESTIONS = questions()
LOOP = asyncio.new_event_loop()  # one for all, as in a server


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file with rows in every table."""
    return fill(tmp_path_factory.mktemp("view") / "agent.db")


@pytest.fixture
def served(file: Path) -> Any:
    return started(file)


def started(path: Path) -> Any:
    """As a server would start it; 1.0 takes in its questions then."""
    made = datasette(path)
    LOOP.run_until_complete(made.invoke_startup())
    return made


def get(served: Any, path: str) -> Any:
    response = LOOP.run_until_complete(served.client.get(path, follow_redirects=True))
    assert response.status_code == 200, response.text[:500]
    return response


def text(served: Any, path: str) -> str:
    return str(get(served, path).text)


def test_the_file_is_described_in_the_words_of_the_data_dictionary(served: Any) -> None:
    page = text(served, "/agent/memory")
    assert "A statement worth keeping." in page
    assert "of the normalised text; null after an edit by hand" in page


@pytest.mark.parametrize("name", sorted(set(ASKED)))
def test_every_view_has_a_question_and_its_own_page(served: Any, name: str) -> None:
    told = get(served, f"/agent/{name.replace('_', '-')}-now.json?_shape=array")
    assert isinstance(told.json(), list)
    assert ASKED[name] in text(served, f"/agent/{name.replace('_', '-')}-now")
    assert get(served, f"/agent/{name}.json?_shape=array").json(), f"{name} itself is not hidden by its question"


def test_every_documented_view_has_a_title_as_a_question() -> None:
    views = {name for name, section in sections().items() if "```sql" in section}
    assert views == set(ASKED)
    assert all(title["title"].endswith("?") for title in QUESTIONS.values())


def test_everything_that_is_found_can_be_searched(served: Any) -> None:
    found = get(served, "/agent/document.json?_search=green+tea&_shape=array").json()
    assert {row["kind"] for row in found} >= {"memory", "message", "file"}
    assert 'name="_search"' in text(served, "/agent/document")


def test_facets_count_kinds(served: Any) -> None:
    facets = get(served, "/agent/document.json?_facet=kind").json()["facet_results"]
    kinds = facets.get("results", facets)["kind"]["results"]
    assert {one["value"]: one["count"] for one in kinds}["atom"] == 5
    assert "facet-results" in text(served, "/agent/memory")


def test_inner_tables_are_out_of_the_way(served: Any) -> None:
    tables = get(served, "/agent.json?_extra=tables").json()["tables"]
    shown = {table["name"] for table in tables if not table["hidden"]}
    assert not {*INNER, "document_fts_data"} & shown
    assert {"memory", "turn", "document", "atom"} <= shown


def test_a_share_is_drawn_as_a_bar(served: Any) -> None:
    page = text(served, "/agent/memory_strength")
    assert len(re.findall(r'<meter min="0" max="1" value="0\.\d+">', page)) >= 3


def test_what_names_a_row_links_to_it_and_to_where_it_comes_from(served: Any) -> None:
    page = text(served, "/agent/provenance?kind=episode")
    assert 'href="/agent/turn/1"' in page
    assert 'href="/agent/sources?kind=episode&amp;id=1"' in page
    assert 'href="/agent/memory/3"' in text(served, "/agent/memory/2"), "what replaced it"


def test_the_way_down_ends_at_what_was_said_and_done(served: Any) -> None:
    way = get(served, "/agent/sources.json?kind=reflection&id=1&_shape=array").json()
    assert [(row["step"], row["kind"]) for row in way] == [
        (0, "reflection"), (1, "observation"), (2, "message"), (2, "message")
    ]  # fmt: skip
    kinds = {row["kind"] for row in get(served, "/agent/sources.json?kind=profile&id=1&_shape=array").json()}
    assert kinds == {"profile", "episode", "atom", "turn"}


def test_stored_text_stays_text(tmp_path: Path) -> None:
    path = fill(tmp_path / "nasty.db")
    from istar_lite.database import File

    file = File(path)
    with file.write() as tx:
        tx.execute("insert into document (kind, row, namespace, text, occurred_at, status) values"
                   " ('<script>x</script>', 1, 1, '<script>alert(1)</script>', '2026', 'active')")  # fmt: skip
        tx.execute("update memory set ended_by = '<script>1</script> 3', text = '<script>2</script>' where id = 2")
    file.close()
    nasty = started(path)
    for page in ("/nasty/document", "/nasty/memory", "/nasty/timeline"):
        assert not re.search(r"<script>(x|alert|1|2)", text(nasty, page))


def test_a_row_of_nothing_of_ours_breaks_nothing(served: Any) -> None:
    assert get(served, "/agent/sources.json?kind=&id=&_shape=array").json() is not None
    way = get(served, "/agent/sources.json?kind=nobody%27&id=x%27&_shape=array").json()
    assert [(row["kind"], row["text"]) for row in way] == [("nobody'", None)]


def test_the_file_is_only_read(file: Path, served: Any) -> None:
    before = file.read_bytes()
    text(served, "/agent/timeline")
    assert file.read_bytes() == before


def test_the_command_serves_to_this_machine_alone(file: Path, shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[dict[str, Any]] = []
    monkeypatch.setattr("uvicorn.run", lambda app, **settings: started.append(settings))
    said = shell("view", file, "--port", 8765).output
    assert [(one["host"], one["port"]) for one in started] == [("127.0.0.1", 8765)]
    assert "http://127.0.0.1:8765/" in said


def test_without_datasette_the_command_says_what_to_install(
    file: Path, shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in [name for name in sys.modules if name.startswith("istar_lite.view")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "datasette", None)
    assert "pip install 'istar-lite[view]'" in shell("view", file, code=2).stderr


def test_what_is_no_memory_file_is_not_served(tmp_path: Path) -> None:
    (tmp_path / "notes.db").write_text("no database")
    with pytest.raises(NotAMemoryFile):
        datasette(tmp_path / "notes.db")
