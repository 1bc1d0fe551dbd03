"""`show --watch` follows what another process writes, and leaves the file as it is."""

from __future__ import annotations

import io
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from conftest import Shell

pytest.importorskip("rich", reason="rich is not installed (the extra `watch`)")

from rich.console import Console

from istar_lite import Memory, TurnRecord
from istar_lite.cli import watching


def watched(path: Path, steps: list[Callable[[], object]], namespace: str = "default", kind: str = "document") -> str:
    """What the terminal showed while `steps` happened, one between two looks."""
    written = io.StringIO()
    console = Console(file=written, width=120, force_terminal=True, color_system="standard")
    left = iter(steps)

    def wait(seconds: float) -> None:
        step = next(left, None)
        if step is None:
            raise KeyboardInterrupt
        step()

    columns = watching.STREAM_COLUMNS if kind == "document" else ("id", "text")
    watching.watch(path, namespace, kind, columns, limit=10, every=1, console=console, wait=wait)
    return written.getvalue()


def test_what_another_process_writes_is_seen_at_the_next_look(path: Path) -> None:
    with Memory(path, embedder=None) as memory:
        memory.remember("known before")
        shown = watched(path, [lambda: memory.remember("came in meanwhile")])
    first, _, second = shown.partition("came in meanwhile")
    assert first.count("known before") == 2 and "came in meanwhile" not in first and second
    assert "2 memory" in shown


def test_what_is_new_stands_out(path: Path) -> None:
    with Memory(path, embedder=None) as memory:
        memory.remember("known before")
        shown = watched(path, [lambda: memory.remember("came in meanwhile")])
    assert "\x1b[1;35mcame in meanwhile" in shown
    assert "\x1b[1;35mknown before" not in shown


def test_rows_of_one_kind_can_be_followed(path: Path) -> None:
    with Memory(path, embedder=None) as memory:
        memory.remember("a statement")
        memory.agent("run").record_turn(TurnRecord(turn=1, reward=1.0))
        shown = watched(path, [], kind="memory")
    assert "a statement" in shown and "T1" not in shown


def test_other_owners_are_not_seen(path: Path) -> None:
    with Memory(path, embedder=None) as memory:
        memory.in_namespace("ab").remember("of ab")
        memory.in_namespace("a").remember("of a alone")
        shown = watched(path, [], namespace="a")
    assert "of a alone" in shown and "of ab" not in shown and "1 memory" in shown


def test_stored_text_steers_neither_terminal_nor_rich(path: Path) -> None:
    with Memory(path, embedder=None) as memory:
        memory.remember("\x1b]0;title\x07 [bold red]shout[/bold red] [/nothing]")
        shown = watched(path, [])
    assert "\x1b]0" not in shown and "\x07" not in shown
    assert "[bold red]shout[/bold red] [/nothing]" in shown


def test_watching_changes_nothing_and_ends_well(path: Path) -> None:
    with Memory(path, embedder=None) as memory:
        memory.remember("a statement")
    before = path.read_bytes()
    watched(path, [lambda: None])
    assert path.read_bytes() == before


def test_an_empty_memory_can_be_watched(path: Path) -> None:
    Memory(path, embedder=None).close()
    assert "nothing yet" in watched(path, [])


def test_the_command_ends_with_the_interrupt(path: Path, shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    with Memory(path, embedder=None) as memory:
        memory.remember("a statement")

    def interrupted(seconds: float) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(watching.watch, "__kwdefaults__", {**watching.watch.__kwdefaults__, "wait": interrupted})
    assert "a statement" in shell("show", path, "--watch").output


def test_without_rich_the_command_says_what_to_install(
    path: Path, shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    Memory(path, embedder=None).close()
    monkeypatch.delitem(sys.modules, "istar_lite.cli.watching")
    monkeypatch.delattr("istar_lite.cli.watching")
    for name in [name for name in sys.modules if name.split(".")[0] == "rich"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "rich", None)
    assert "pip install 'istar-lite[watch]'" in shell("show", path, "--watch", code=2).stderr
