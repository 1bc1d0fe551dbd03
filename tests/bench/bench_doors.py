"""One write and one read through each door, beside the implementation that the SDK itself ships: medians, in one run.

Run it as a script: `python tests/bench/bench_doors.py [N]`. It needs the extras `mcp`, `anthropic`, `openai-agents` and
`langgraph`, and langgraph-checkpoint-sqlite.
"""

from __future__ import annotations

import asyncio
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import mcp
from agents import SQLiteSession
from anthropic.tools.memory import BetaLocalFilesystemMemoryTool
from langgraph.store.sqlite import SqliteStore

from istar_lite import Memory
from istar_lite.adapters.anthropic_memory import MemoryTool
from istar_lite.adapters.langgraph_store import IstarStore
from istar_lite.adapters.openai_session import IstarSession
from istar_lite.mcp import create_server

Result = tuple[float, float]


def median(call: Callable[[int], Any], times: int) -> float:
    """Milliseconds."""
    taken = []
    for at in range(times):
        start = time.perf_counter()
        call(at)
        taken.append((time.perf_counter() - start) * 1000)
    return statistics.median(taken)


async def amedian(call: Callable[[int], Coroutine[Any, Any, Any]], times: int) -> float:
    """Milliseconds."""
    taken = []
    for at in range(times):
        start = time.perf_counter()
        await call(at)
        taken.append((time.perf_counter() - start) * 1000)
    return statistics.median(taken)


def text(at: int) -> str:
    """A note of ordinary length."""
    return f"Note {at}: the harbour master moved the meeting about berth {at % 17} to Thursday at nine."


def files(tool: Any, times: int) -> Result:
    """Creating a file, viewing one."""

    def create(at: int) -> None:
        tool.call({"command": "create", "path": f"/memories/n{at}.md", "file_text": text(at)})

    def view(at: int) -> None:
        tool.call({"command": "view", "path": f"/memories/n{at}.md"})

    return median(create, times), median(view, times)


async def sessions(session: Any, times: int) -> Result:
    """Adding an item, getting the last ten."""
    write = await amedian(lambda at: session.add_items([{"role": "user", "content": text(at)}]), times)
    return write, await amedian(lambda at: session.get_items(10), times)


def stores(store: Any, times: int) -> Result:
    """Putting an item, getting one."""
    write = median(lambda at: store.put(("users", str(at % 7)), f"k{at}", {"text": text(at)}), times)
    return write, median(lambda at: store.get(("users", str(at % 7)), f"k{at}"), times)


async def server(memory: Memory, times: int) -> Result:
    """`remember` and `recall` through a client in the same process."""
    async with mcp.Client(create_server(memory)) as client:
        write = await amedian(lambda at: client.call_tool("remember", {"text": text(at)}), times)
        return write, await amedian(lambda at: client.call_tool("recall", {"query": f"berth {at}"}), times)


def facade(memory: Memory, times: int) -> Result:
    """`remember` and `search` without a door."""
    write = median(lambda at: memory.remember(text(at)), times)
    memory.search("warm up")
    return write, median(lambda at: memory.search(f"berth {at}"), times)


def main(times: int = 300) -> None:
    """Prints a table."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        rows: list[tuple[str, Result]] = []
        with MemoryTool(folder / "a.db") as tool:
            rows.append(("anthropic: create, view (istar-lite)", files(tool, times)))
        rows.append(("anthropic: create, view (its folder)", files(BetaLocalFilesystemMemoryTool(name), times)))
        for label, session in (
            ("istar-lite", IstarSession("s", folder / "o.db")),
            ("its SQLiteSession", SQLiteSession("s", folder / "o2.db")),
        ):
            rows.append((f"openai: add, get 10 ({label})", asyncio.run(sessions(session, times))))
            session.close()
        with IstarStore.from_conn_string(str(folder / "l.db")) as store:
            rows.append(("langgraph: put, get (istar-lite)", stores(store, times)))
        with SqliteStore.from_conn_string(str(folder / "l2.db")) as theirs:
            theirs.setup()
            rows.append(("langgraph: put, get (its SqliteStore)", stores(theirs, times)))
        with Memory(folder / "m.db") as memory:
            rows.append(("mcp: remember, recall (istar-lite)", asyncio.run(server(memory, times))))
        with Memory(folder / "f.db") as memory:
            rows.append(("no door: remember, search", facade(memory, times)))
    print(f"| door ({times} times each) | one write, ms | one read, ms |\n|---|---|---|")
    for label, (write, read) in rows:
        print(f"| {label} | {write:.2f} | {read:.2f} |")


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
