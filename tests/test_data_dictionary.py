"""schema/README.md is complete and its queries run: in the stock shell where there is one, else in this Python."""

from __future__ import annotations

import re
import shutil
import sqlite3
import subprocess
from pathlib import Path

import pytest
from rows import fill
from test_readme import blocks

from istar_lite.migrations import base_tables

PAGE = (Path(__file__).parent.parent / "schema" / "README.md").read_text(encoding="utf-8")
SECTIONS = dict(re.findall(r"^### (\w+)\n(.*?)(?=^##|\Z)", PAGE, flags=re.MULTILINE | re.DOTALL))
QUERIES = [content for language, content in blocks(PAGE) if language == "sql"]
VIEWS = [name for name, text in SECTIONS.items() if "```sql" in text]
# Inner views: how the layers fill `document`, and helpers of triggers.
INNER = re.compile(r"\w+_document|document_spaced|findable|turn_line|exchange_text|atom_cap|atom_over_cap")


@pytest.fixture(scope="module")
def full(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return fill(tmp_path_factory.mktemp("full") / "full.db")


def columns(path: Path, table: str) -> set[str]:
    with sqlite3.connect(path) as connection:
        names = {row[0] for row in connection.execute("select name from pragma_table_info(?)", (table,))}
    connection.close()
    return names


def test_every_table_and_view_has_a_section(full: Path) -> None:
    with sqlite3.connect(full) as connection:
        views = {row[0] for row in connection.execute("select name from sqlite_master where type = 'view'")}
        told = {row[0] for row in connection.execute("select name from about")}
    connection.close()
    public = {name for name in views if not INNER.fullmatch(name)}
    assert public == set(VIEWS)
    assert {*base_tables(), "document_fts"} <= set(SECTIONS)
    assert set(VIEWS) - {"about"} <= told, "a view that `about` does not name is not found"


@pytest.mark.parametrize("name", SECTIONS)
def test_every_column_is_told(full: Path, name: str) -> None:
    told = set(re.findall(r"`(\w+)`", SECTIONS[name]))
    assert columns(full, name) <= told


@pytest.mark.parametrize("name", VIEWS)
def test_a_view_says_its_columns_in_their_order(full: Path, name: str) -> None:
    with sqlite3.connect(full) as connection:
        order = [row[0] for row in connection.execute("select name from pragma_table_info(?)", (name,))]
    connection.close()
    assert re.findall(r"`(\w+)`", SECTIONS[name])[: len(order)] == order


@pytest.mark.parametrize("query", QUERIES)
def test_every_query_runs_and_finds_something(full: Path, tmp_path: Path, query: str) -> None:
    copy = Path(shutil.copy(full, tmp_path / "copy.db"))
    if shutil.which("sqlite3"):
        done = subprocess.run(["sqlite3", "-bail", copy], input=query, capture_output=True, text=True, check=False)
        assert (done.returncode, done.stderr) == (0, "")
        printed = done.stdout
    else:
        with sqlite3.connect(copy) as connection:
            printed = "".join(str(connection.execute(each).fetchall()) for each in query.split(";") if each.strip())
        connection.close()
    if query.lstrip().startswith("select"):
        # Nothing in the file can match what the example of full text looks for.
        assert printed.strip() or "match" in query
