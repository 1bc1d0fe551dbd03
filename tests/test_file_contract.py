"""The file belongs to its user: stock tools read and write it, no extension is needed, and the package finds its
schema however it was installed."""

from __future__ import annotations

import asyncio
import os
import shutil
import sqlite3 as stock
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest
import sqlite_utils
from rows import ROWS, fill

from istar_lite import Memory
from istar_lite.demo import run

ROOT = Path(__file__).parent.parent
SITE = Path(sqlite_utils.__file__).parent.parent  # where the dependencies are
VIEWS = (
    *("about", "memory_strength", "timeline", "provenance", "recall_trail", "due_work", "next_evictions"),
    *("message_stage", "observation_state", "model_calls_by_day"),
)
TABLES = tuple(dict.fromkeys(table for table, _ in ROWS))

needs_shell = pytest.mark.skipif(shutil.which("sqlite3") is None, reason="no sqlite3 shell on this machine")


def shell(path: Path, script: str) -> str:
    """What the stock sqlite3 shell prints; an error of any statement fails the test."""
    done = subprocess.run(["sqlite3", "-bail", path], input=script, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, ""), f"{script}\n{done.stderr}"
    return done.stdout


def literal(value: Any) -> str:
    if isinstance(value, bytes):
        return f"x'{value.hex()}'"
    if isinstance(value, str):
        return "'" + value.replace("'", "''") + "'"
    return str(value)


def assert_whole(path: Path) -> None:
    """The library finds nothing to complain about, and neither does SQLite."""
    with Memory(path, embedder=None) as memory:
        assert memory.check() == []
    with stock.connect(path) as connection:
        assert connection.execute("pragma integrity_check").fetchall() == [("ok",)]
        connection.execute("insert into document_fts (document_fts, rank) values ('integrity-check', 1)")
    connection.close()


def test_no_virtual_table_needs_an_extension(path: Path) -> None:
    Memory(path).close()
    with stock.connect(path) as connection:
        rows = connection.execute("select sql from sqlite_master where sql like 'create virtual table%'").fetchall()
    connection.close()
    assert [sql.split("using ")[1][:4] for (sql,) in rows] == ["fts5"]


@needs_shell
def test_the_stock_shell_reads_every_table_and_view(path: Path) -> None:
    fill(path)
    assert "memory_strength" in shell(path, ".tables")
    for name in (*TABLES, *VIEWS):
        assert shell(path, f"select * from {name};"), f"{name} shows nothing"


@needs_shell
def test_the_stock_shell_writes_every_table_and_the_file_stays_whole(path: Path) -> None:
    Memory(path, embedder=None).close()
    inserts = [
        f"insert into {table} ({', '.join(row)}) values ({', '.join(literal(value) for value in row.values())});"
        for table, row in ROWS
    ]
    shell(path, "\n".join(inserts))
    assert_whole(path)
    for table in TABLES:
        column = next(name for name in ROWS[[name for name, _ in ROWS].index(table)][1] if name != "id")
        shell(path, f"update {table} set {column} = {column};")
    assert_whole(path)
    for table in reversed(TABLES):
        if table != "setting":  # without its settings a file is no longer known for a memory
            shell(path, f"delete from {table};")
    assert_whole(path)
    assert shell(path, "select count(*) from document; select count(*) from document_fts;") == "0\n0\n"


@needs_shell
def test_what_a_shell_writes_is_found_and_gets_its_vector_on_the_next_open(path: Path) -> None:
    Memory(path).close()
    shell(path, "insert into memory (text) values ('The spare key is with Ada'), ('Trams stop at midnight');")
    with Memory(path) as memory:
        assert memory.search("who keeps the spare key?", k=1)[0].text == "The spare key is with Ada"
        assert memory.status().pending_vectors == 0
    shell(path, "update memory set text = 'The spare key is with Bo' where id = 1; delete from memory where id = 2;")
    with Memory(path) as memory:
        assert [hit.text for hit in memory.search("spare key")] == ["The spare key is with Bo"]
        assert not [hit for hit in memory.search("trams at midnight") if hit.id == 2]
    assert_whole(path)


@needs_shell
def test_the_example_of_plain_sql_answers_every_question_and_changes_nothing(path: Path) -> None:
    run(path, turns=60)
    before = path.read_bytes()
    script = (ROOT / "examples" / "plain_sql.sql").read_text(encoding="utf-8")
    for number, question in enumerate(script.split("\n-- ")[1:]):
        query = question.partition("\n")[2]
        if question[0].isdigit():
            answer = shell(path, f"begin;\n{query.replace('rollback;', '')}\nrollback;")
            assert answer or question.startswith("7."), number  # nothing need have been evicted
    shell(path, script)
    assert path.read_bytes() == before


@needs_shell
def test_a_dump_restored_elsewhere_is_a_memory_again(path: Path, tmp_path: Path) -> None:
    fill(path)
    restored = tmp_path / "restored.db"
    shell(restored, shell(path, ".dump"))
    with Memory(restored, embedder=None) as memory:
        assert memory.stats()["kinds"]["memory"] == 3
    assert_whole(restored)


def test_datasette_serves_every_table_and_view_and_searches(path: Path) -> None:
    datasette_app = pytest.importorskip("datasette.app")
    fill(path)

    async def visit() -> None:
        served = datasette_app.Datasette([str(path)])
        await served.invoke_startup()
        for name in (*TABLES, *VIEWS):
            answer = await served.client.get(f"/{path.stem}/{name}.json?_shape=array")
            assert answer.status_code == 200, f"{name}: {answer.text}"
            assert answer.json(), f"{name} shows nothing"
        found = await served.client.get(f"/{path.stem}/document.json?_shape=array&_search=tea&kind=memory")
        assert {row["text"] for row in found.json()} == {"likes green tea", "likes black tea"}
        page = await served.client.get(f"/{path.stem}/turn")
        assert page.status_code == 200 and "market" in page.text  # a session shows by its name

    asyncio.run(visit())


def test_sqlite_utils_reads_searches_and_writes(path: Path) -> None:
    fill(path)
    database = sqlite_utils.Database(stock.connect(path))
    assert [row["text"] for row in database["document"].search("likes AND tea") if row["kind"] == "memory"]
    database["memory"].insert({"text": "Written by sqlite-utils", "importance": 0.4})
    database["memory"].upsert({"id": 1, "text": "likes oolong"}, pk="id")
    database["memory"].delete(3)
    database.conn.close()
    with Memory(path, embedder=None) as memory:
        texts = [row.text for row in memory.list("memory")]
        assert "Written by sqlite-utils" in texts and "likes oolong" in texts and "port is 49222" not in texts
        assert memory.search("oolong")[0].id == 1
    assert_whole(path)


# --- how it is installed, and what the Python at hand can do --------------------------------------------------

USE = """
import sys, warnings
{before}
with warnings.catch_warnings(record=True) as told:
    warnings.simplefilter("always")
    # Python 3.12.0 to 3.12.3 take ?1 for a name, by mistake (their issue 117995).
    warnings.filterwarnings("ignore", r"Binding \\d+ \\('\\?\\d", DeprecationWarning)
    from istar_lite import Memory
    with Memory(sys.argv[1]) as memory:
        memory.remember("The spare key is with Ada")
        memory.remember("Trams stop at midnight")
        assert memory.search("who has the key?", k=1)[0].text == "The spare key is with Ada"
        print(memory.status().mode, memory.status().pending_vectors)
    with Memory(sys.argv[1]) as memory:
        assert memory.forget(id=1).total == 1
import istar_lite
print(istar_lite.__file__)
for one in told:
    print("warning:", one.message)
"""


def use(python: str | Path, path: Path, *, before: str = "", cwd: Path | None = None, **environment: str) -> list[str]:
    """Lines that a small program prints: search mode and pending vectors, where the package is, warnings."""
    done = subprocess.run(
        [str(python), "-c", USE.format(before=before), str(path)],
        capture_output=True,
        text=True,
        check=False,
        cwd=cwd or path.parent,
        env={name: value for name, value in os.environ.items() if name != "PYTHONPATH"} | environment,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


NO_EXTENSIONS = """
import sqlite3
class Connection(sqlite3.Connection):
    def __getattribute__(self, name):
        if name in ("enable_load_extension", "load_extension"):
            raise AttributeError(name)
        return super().__getattribute__(name)
connect = sqlite3.connect
sqlite3.connect = lambda *args, **more: connect(*args, **{"factory": Connection, **more})
sys.modules["pysqlite3"] = None
"""
NO_SQLITE_VEC = 'sys.modules["sqlite_vec"] = None'


@pytest.mark.parametrize("before", [NO_EXTENSIONS, NO_SQLITE_VEC], ids=["no extensions", "no sqlite-vec"])
def test_all_works_without_vector_extension_and_says_so_at_most_once(path: Path, before: str) -> None:
    mode, _, *warnings = use(sys.executable, path, before=before, PYTHONPATH=str(ROOT))
    assert mode == "hybrid 0"
    assert len(warnings) <= 1 and all("numpy" in line for line in warnings)


@pytest.fixture(scope="module")
def bare_python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A fresh environment that holds nothing of ours; the dependencies are lent by the one at hand."""
    folder = tmp_path_factory.mktemp("fresh") / "venv"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True)
    python = folder / ("Scripts/python.exe" if os.name == "nt" else "bin/python")
    where = subprocess.run(
        [python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"],
        capture_output=True,
        text=True,
        check=True,
    ).stdout.strip()
    # Behind the environment's own packages on the path, so that a package of ours installed there wins.
    Path(where, "zz_lent.pth").write_text(f"{SITE}\n")
    return python


def install(python: Path, *what: str) -> None:
    """pip of this environment installs into the other, asking no network."""
    command = [sys.executable, "-m", "pip", "--python", str(python), "install", "-q", "--no-deps", "--no-index"]
    subprocess.run([*command, "--no-build-isolation", "--force-reinstall", *what], check=True, cwd=ROOT)


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("hatchling")
    folder = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "--no-index", "--no-build-isolation"]
    subprocess.run([*command, "-w", str(folder), str(ROOT)], check=True)
    (built,) = folder.glob("*.whl")
    return built


def test_the_wheel_holds_the_schema_and_types_and_no_tests(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
    assert "istar_lite/schema/001_file.sql" in names and "istar_lite/py.typed" in names
    assert not [name for name in names if name.startswith(("tests/", "examples/"))]


def test_the_wheel_works_in_a_fresh_environment(wheel: Path, bare_python: Path, path: Path) -> None:
    install(bare_python, str(wheel))
    mode, place, *_ = use(bare_python, path)
    assert mode == "hybrid 0"
    assert Path(place).is_relative_to(bare_python.parent.parent)
    command = bare_python.with_name("istar-lite")
    done = subprocess.run(
        [command, "stats", path, "--json"], capture_output=True, text=True, check=True, cwd=path.parent
    )
    assert '"memory"' in done.stdout


def test_an_editable_install_finds_its_schema(bare_python: Path, path: Path) -> None:
    pytest.importorskip("hatchling")
    install(bare_python, "-e", str(ROOT))
    _, place, *_ = use(bare_python, path)
    assert Path(place).is_relative_to(ROOT)


def test_a_bare_checkout_finds_its_schema(path: Path, tmp_path: Path) -> None:
    checkout = tmp_path / "checkout"
    for name in ("istar_lite", "schema"):
        shutil.copytree(ROOT / name, checkout / name, ignore=shutil.ignore_patterns("__pycache__"))
    _, place, *_ = use(sys.executable, path, PYTHONPATH=str(checkout))
    assert Path(place).is_relative_to(checkout)


@needs_shell
@pytest.mark.parametrize("recursive", ["on", "off"])
def test_a_time_edited_by_hand_takes_the_stored_form(tmp_path: Path, recursive: str) -> None:
    path = tmp_path / "agent.db"
    fill(path)
    tables = [
        row for row in shell(path, "select name from sqlite_master where type = 'table';").split() if row in TABLES
    ]
    dated = [t for t in tables if shell(path, f"select 1 from pragma_table_info('{t}') where name = 'occurred_at';")]
    assert {"turn", "atom", "episode", "message", "exchange", "memory", "observation"} <= set(dated)
    for table in (name for name in dated if name != "document"):
        shell(path, f"pragma recursive_triggers = {recursive}; update {table} set occurred_at = '2026-02-03 04:05';")
        assert set(shell(path, f"select occurred_at from {table};").split()) <= {"2026-02-03T04:05:00.000Z"}, table
