"""Imports go one way: leaves ← below ← layers ← facade ← outside, and layers meet in tables, not in imports."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parent.parent / "istar_lite"

# Each part of the package (a module or a folder) and where it stands.
RANKS = (
    ("leaves", "later errors text clock values notebook frames records models answers prompts replies"),
    ("below", "driver migrations database clients llm running embedders embedding places tasks services trail"),
    ("below", "tombstones browse plain_sql checking exporting sealing runs own_text clustering extractors"),
    ("below", "pages room upkeep effort"),
    ("layers", "turns atoms episodes profiles blocks memories exchanges consolidation observations recall changes"),
    ("layers", "forgetting merging importing packing files items transcripts"),
    ("facade", "agent chat memory"),
    ("outside", "cli mcp report view demo adapters bench verifying testing redaction __main__ "),
)
ORDER = ("leaves", "below", "layers", "facade", "outside")
RANK = {name: rank for rank, names in RANKS for name in names.split()}

# Layers that use another one, and why.
EXCEPTIONS = {
    ("exchanges", "memories"): "what is taken out of exchanges becomes memories by the one rule for statements",
    ("exchanges", "recall"): "retrieve ranks by recall",
    ("exchanges", "changes"): "a prompt that announces a change is matched with what it changes",
    ("changes", "recall"): "what a change is about is found by recall",
    ("consolidation", "memories"): "clusters are closed and joined by the one rule for statements",
    ("observations", "recall"): "the recall tool searches",
    ("packing", "recall"): "context ranks by recall",
    ("packing", "memories"): "context reinforces what it hands out",
    ("packing", "exchanges"): "context and retrieve share the floor under what is relevant",
    ("forgetting", "consolidation"): "a merged memory that loses a source is told anew",
    ("merging", "forgetting"): "what the other file forgot is forgotten here",
    ("transcripts", "observations"): "a transcript kept for another framework is observed like any other",
}


def modules() -> dict[str, Path]:
    """Dotted name → file."""
    found = {}
    for path in PACKAGE.rglob("*.py"):
        parts = path.relative_to(PACKAGE.parent).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


def imported(tree: ast.AST, known: dict[str, Path]) -> Iterator[str]:
    """Modules of ours that a module imports when it runs: what only type checkers see does not count."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING":
            continue
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "istar_lite":
            for alias in node.names:
                full = f"{node.module}.{alias.name}"
                yield full if full in known else str(node.module)
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "Later":
            yield from (str(name.value) for name in node.args if isinstance(name, ast.Constant) and name.value in known)
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name.split(".")[0] == "istar_lite")
        yield from imported(node, known)


def part(module: str) -> str:
    """The part of the package that a module belongs to; "" is the package's own face."""
    names = module.split(".")
    return names[1] if len(names) > 1 else ""


def edges() -> set[tuple[str, str]]:
    known = modules()
    return {
        (part(name), part(target))
        for name, path in known.items()
        for target in imported(ast.parse(path.read_text(encoding="utf-8")), known)
        if part(name) != part(target) and part(name)
    }


def test_every_part_has_its_place() -> None:
    assert {part(name) for name in modules()} - {""} <= set(RANK)


def test_nothing_imports_what_stands_above_it() -> None:
    wrong = [
        f"{name} ({RANK[name]}) imports {target or 'istar_lite'} ({RANK.get(target, 'facade')})"
        for name, target in edges()
        if ORDER.index(RANK[name]) < ORDER.index(RANK.get(target, "facade"))
    ]
    assert wrong == []


def test_layers_do_not_import_each_other_but_for_a_stated_reason() -> None:
    between = {
        (name, target) for name, target in edges() if RANK.get(name) == "layers" and RANK.get(target) == "layers"
    }
    assert between <= set(EXCEPTIONS)


def test_leaves_import_only_leaves() -> None:
    assert {target for name, target in edges() if RANK[name] == "leaves"} <= {
        name for name, rank in RANK.items() if rank == "leaves"
    }


def test_there_are_no_cycles() -> None:
    graph: dict[str, set[str]] = {}
    for name, target in edges():
        graph.setdefault(name, set()).add(target)
    done: set[str] = set()

    def walk(name: str, way: tuple[str, ...]) -> None:
        assert name not in way, " → ".join((*way, name))
        if name not in done:
            for target in graph.get(name, ()):
                walk(target, (*way, name))
            done.add(name)

    for name in graph:
        walk(name, ())


# The clock and the model are arguments: only these may ask the machine.
CLOCKS = {
    ("time", "time"): {"clock"},
    ("datetime", "now"): set(),
    ("datetime", "utcnow"): set(),
    ("date", "today"): set(),
}


def test_nothing_asks_the_machine_for_the_time_but_the_wall_clock() -> None:
    for name, path in modules().items():
        if RANK.get(part(name)) == "outside":
            continue
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
                allowed = CLOCKS.get((node.value.id, node.attr))
                assert allowed is None or part(name) in allowed, f"{name}:{node.lineno}"
            if isinstance(node, (ast.Import, ast.ImportFrom)):
                names = {alias.name for alias in node.names} | {getattr(node, "module", None)}
                assert "random" not in names, f"{name}:{node.lineno}"


def test_names_imported_later_are_those_that_type_checkers_see() -> None:
    import istar_lite

    tree = ast.parse((PACKAGE / "__init__.py").read_text(encoding="utf-8"))
    (block,) = (node for node in tree.body if isinstance(node, ast.If))
    seen = {
        alias.name: str(node.module).removeprefix("istar_lite.")
        for node in block.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    assert seen == istar_lite._HOME
    for name in istar_lite.__all__:
        assert getattr(istar_lite, name).__name__ == name
    assert set(istar_lite.__all__) <= set(dir(istar_lite))
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        istar_lite.nothing  # noqa: B018


# What costs 10 ms and more to import and is not needed to find something by words.
SLOW = ("asyncio", "concurrent.futures", "sqlite_utils", "fastembed", "sqlite_vec", "click", "mcp", "difflib")
LAYERS = ("prompts", "answers", "observations", "exchanges", "forgetting", "merging", "importing", "exporting")


def test_open_and_search_load_no_other_layer(tmp_path: Path) -> None:
    names = (*SLOW, *(f"istar_lite.{layer}" for layer in LAYERS))
    program = f"""
import sys, pydantic
before = set(sys.modules)
import istar_lite
with istar_lite.Memory('x.db', embedder=None) as memory:
    memory.search('anything')
print(*(name for name in {names} if name in sys.modules and name not in before))"""
    done = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env={"PYTHONPATH": str(PACKAGE.parent), "PATH": "/usr/bin:/bin"},
        check=False,
    )
    assert (done.stderr, done.stdout.strip()) == ("", "")


HEAVY = (
    *("sqlite_utils", "numpy", "pydantic", "pydantic_core", "fastembed", "onnxruntime", "tokenizers", "sqlite_vec"),
    *("click", "mcp", "datasette"),
)


@pytest.mark.parametrize("use", ["import istar_lite", "import istar_lite; istar_lite.Memory('x.db').close()"])
def test_import_and_open_load_nothing_heavy(tmp_path: Path, use: str) -> None:
    program = f"{use}\nimport sys\nprint(*(name for name in {HEAVY} if name in sys.modules))"
    environment = {"PYTHONPATH": str(PACKAGE.parent), "PATH": "/usr/bin:/bin"}
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, cwd=tmp_path, env=environment, check=False
    )
    assert (done.stderr, done.stdout.strip()) == ("", "")
