"""The README is true: its blocks run in order in an empty folder and print what stands under them."""

from __future__ import annotations

import contextlib
import io
import json
import os
import re
import shutil
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from istar_lite.cli import main

README = (Path(__file__).parent.parent / "README.md").read_text(encoding="utf-8")
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def blocks(text: str = README) -> list[tuple[str, str]]:
    """(language, content) of every fenced block."""
    return BLOCK.findall(text)


def commands(console: str) -> list[tuple[str, str]]:
    """(command, output) of a console block."""
    parts = re.split(r"^\$ (.*)\n", console, flags=re.MULTILINE)[1:]
    return list(zip(parts[::2], parts[1::2], strict=True))


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder to be in, with `istar-lite` on the path."""
    tools = tmp_path / "bin"
    tools.mkdir()
    script = tools / "istar-lite"
    script.write_text(f'#!/bin/sh\nexec {sys.executable} -m istar_lite "$@"\n')
    script.chmod(script.stat().st_mode | stat.S_IXUSR)
    work = tmp_path / "work"
    work.mkdir()
    monkeypatch.chdir(work)
    monkeypatch.setenv("PATH", f"{tools}{os.pathsep}{os.environ['PATH']}")
    # A checkout that is not installed is found too.
    monkeypatch.setenv(
        "PYTHONPATH", os.pathsep.join([str(Path(__file__).parent.parent), os.environ.get("PYTHONPATH", "")])
    )
    return work


def test_the_blocks_run_and_print_what_the_readme_shows(folder: Path) -> None:
    names: dict[str, object] = {}
    printed = None
    for language, content in blocks():
        if language == "python":
            out = io.StringIO()
            with contextlib.redirect_stdout(out):
                exec(compile(content, "README.md", "exec"), names)
            printed = out.getvalue()
        elif language == "text":
            assert printed == content
        elif language == "console":
            for command, expected in commands(content):
                if command.startswith("sqlite3 ") and shutil.which("sqlite3") is None:
                    pytest.skip("no sqlite3 shell on this machine: the blocks that use it were not run")
                done = subprocess.run(command, shell=True, capture_output=True, text=True, check=False)
                assert done.stdout == expected, f"$ {command}\n{done.stderr}"


@pytest.mark.parametrize(
    "line",
    [line for language, text in blocks() if language == "py" for line in text.splitlines() if line.startswith("from")],
)
def test_what_the_readme_imports_for_frameworks_is_there(line: str) -> None:
    needed = {"anthropic_memory": "anthropic", "openai_session": "agents", "langgraph_store": "langgraph"}
    pytest.importorskip(needed[line.split()[1].rsplit(".", 1)[1]])
    exec(line, {})


def test_the_settings_for_hosts_are_json() -> None:
    for language, content in blocks():
        if language == "json":
            (server,) = json.loads(content)["mcpServers"].values()
            assert server["args"][0] in main.commands


def test_the_readme_sets_up_with_exactly_two_commands() -> None:
    setup = [content.strip() for language, content in blocks() if language == "bash"]
    assert len(setup) == 2
    assert all("\n" not in command for command in setup)
    assert "pytest" in setup[1]


def test_the_reference_names_every_command() -> None:
    missing = [name for name in main.commands if f"`istar-lite {name}" not in README and f"`{name}`" not in README]
    assert missing == []


def test_the_readme_names_no_command_that_is_not_there() -> None:
    named = set(re.findall(r"istar-lite ([a-z][a-z-]*)", README)) - {"agent"}
    assert named <= set(main.commands)
