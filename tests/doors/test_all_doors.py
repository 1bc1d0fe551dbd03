"""All doors open on one file at the same time: what is written through one is found through each of the others."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("mcp", reason="needs the extra `mcp`")
pytest.importorskip("anthropic", reason="needs the extra `anthropic`")
pytest.importorskip("agents", reason="needs the extra `openai-agents`")
pytest.importorskip("langgraph", reason="needs the extra `langgraph`")

from click.testing import CliRunner
from mcp import ClientSession, StdioServerParameters
from mcp.client.stdio import stdio_client

from istar_lite import Memory, TurnRecord
from istar_lite.adapters.anthropic_memory import AsyncMemoryTool
from istar_lite.adapters.langgraph_store import IstarStore
from istar_lite.adapters.openai_session import IstarSession
from istar_lite.cli import main
from istar_lite.testing import ScriptedLLM

# door → what is written through it, and a question that it alone answers
TOLD = {
    "mcp": ("The spare key lies under the blue pot.", "where is the spare key?"),
    "anthropic": ("Deploys happen on Fridays at noon.", "when do deploys happen?"),
    "openai": ("My sister plays the trombone.", "who plays the trombone?"),
    "langgraph": ("Breakfast is porridge with cherries.", "what is for breakfast with cherries?"),
    "chat": ("The dentist moved to Elm Street.", "where did the dentist move?"),
    "agent": ("wool_price_doubled", "wool_price_doubled"),
    "cli": ("The bicycle has a puncture.", "what has a puncture?"),
}


async def write_through_all(path: Path, mcp: ClientSession, memory: Memory) -> tuple[Any, ...]:
    tool = AsyncMemoryTool(path)
    session = IstarSession("trip", path)
    store = IstarStore(str(path))
    chat = memory.chat("trip")
    runner = CliRunner()
    await asyncio.gather(
        mcp.call_tool("remember", {"text": TOLD["mcp"][0]}),
        tool.call({"command": "create", "path": "/memories/work.md", "file_text": TOLD["anthropic"][0]}),
        session.add_items([{"role": "user", "content": TOLD["openai"][0]}]),
        store.aput(("users", "1"), "food", {"text": TOLD["langgraph"][0]}),
        asyncio.to_thread(chat.store, TOLD["chat"][0], "Noted."),
        asyncio.to_thread(memory.agent("run").record_turn, TurnRecord(turn=1, events=[TOLD["agent"][0]])),
        asyncio.to_thread(runner.invoke, main, ["remember", str(path), TOLD["cli"][0]]),
    )
    return tool, session, store


async def found_through(door: str, question: str, doors: dict[str, Any]) -> str:
    """What a door finds for a question, as text."""
    if door == "mcp":
        return str((await doors["mcp"].call_tool("recall", {"query": question, "limit": 3})).content[0].text)
    if door == "cli":
        result = await asyncio.to_thread(
            CliRunner().invoke, main, ["search", str(doors["path"]), question, "--json", "-k", "3"]
        )
        return str(result.output)
    memory: Memory = doors[door].memory if door != "memory" else doors["memory"]
    return " ".join(hit.text for hit in await memory.asearch(question, k=3))


def test_what_is_written_through_one_door_is_found_through_each(tmp_path: Path) -> None:
    path = tmp_path / "agent.db"
    server = StdioServerParameters(command=sys.executable, args=["-m", "istar_lite", "mcp", str(path)])

    async def use() -> None:
        with Memory(path, llm=ScriptedLLM({"extract": '{"memories": []}'})) as memory:
            async with stdio_client(server) as streams, ClientSession(*streams) as mcp:
                await mcp.initialize()
                tool, session, store = await write_through_all(path, mcp, memory)
                doors = {"mcp": mcp, "anthropic": tool, "openai": session, "langgraph": store, "memory": memory,
                         "cli": None, "path": path}  # fmt: skip
                for text, question in TOLD.values():
                    for door in ("mcp", "anthropic", "openai", "langgraph", "memory", "cli"):
                        assert text in await found_through(door, question, doors), (door, question)
                # A conversation of one name is one transcript, whoever wrote into it.
                items = await session.get_items()
                assert sorted(item["content"] for item in items) == sorted(
                    [TOLD["openai"][0], TOLD["chat"][0], "Noted."]
                )
                assert await session.pop_item() is not None
                for one in (tool, session, store):
                    one.close()
            assert memory.forget(text="porridge").counts == {"item": 1}
            assert memory.check() == []

    asyncio.run(use())
    assert [one.name for one in tmp_path.iterdir()] == ["agent.db"]
    with Memory(path, read_only=True) as memory:
        kinds = memory.stats()["kinds"]
        assert (kinds["memory"], kinds["file"], kinds["item"], kinds["turn"]) == (2, 1, 0, 1)


def test_an_export_takes_what_came_through_the_doors_along(tmp_path: Path) -> None:
    with Memory(tmp_path / "one.db", embedder=None) as memory:
        with memory.files().writing() as tree:
            tree.write("/memories/a.md", "one", "create")
            tree.write("/memories/a.md", "two", "insert")
        with memory.items().writing() as shelf:
            shelf.put(("u",), "k", {"text": "kept"}, vectors={"text": b"\0\0\0\0"})
        memory.transcript("s").add([{"type": "function_call", "name": "f", "call_id": "1", "arguments": "{}"}])
        memory.export(tmp_path / "one.jsonl")
    with Memory(tmp_path / "two.db", embedder=None) as other:
        other.merge(tmp_path / "one.jsonl")
        other.merge(tmp_path / "one.db")
        assert [version.text for version in other.files().history("/memories/a.md")] == ["one", "two"]
        with other.items().reading() as shelf:
            assert shelf.get(("u",), "k").value == {"text": "kept"}  # type: ignore[union-attr]
            assert [blob for _, blob in shelf.vectors(())] == [b"\0\0\0\0"]
        assert other.transcript("s").items().items[0]["name"] == "f"
        assert other.check() == []
