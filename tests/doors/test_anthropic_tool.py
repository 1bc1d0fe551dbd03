"""The memory tool of the Anthropic SDK: what its own folder on disk does and says, on a memory file, with history."""

from __future__ import annotations

import asyncio
import importlib.util
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

anthropic = pytest.importorskip("anthropic", reason="needs the extra `anthropic`")
# The client that the SDK is built on; it was renamed in between.
httpx = pytest.importorskip("httpx2" if importlib.util.find_spec("httpx2") else "httpx")

from anthropic.lib.tools import ToolError  # noqa: E402
from anthropic.tools.memory import BetaLocalFilesystemMemoryTool  # noqa: E402
from hypothesis import given, settings  # noqa: E402
from hypothesis import strategies as st  # noqa: E402

from istar_lite import BadInput, Memory  # noqa: E402
from istar_lite.adapters.anthropic_memory import AsyncMemoryTool, MemoryTool  # noqa: E402
from istar_lite.testing import FixedClock  # noqa: E402


@pytest.fixture
def tool(tmp_path: Path) -> Iterator[MemoryTool]:
    with MemoryTool(tmp_path / "agent.db") as tool:
        yield tool


def say(tool: Any, command: str, **values: Any) -> Any:
    """What the model is told, errors and all."""
    try:
        return tool.call({"command": command, **values})
    except ToolError as error:
        return f"error: {error}"


def create(tool: Any, path: str, text: str = "text") -> Any:
    return say(tool, "create", path=path, file_text=text)


# --- against the SDK's own ------------------------------------------------------------------------------------

NAMES = st.sampled_from(["a", "b", "a.md", "B c", ".hidden", "é", "50%25"])
PATHS = st.lists(NAMES, max_size=3).map(lambda names: "/".join(["/memories", *names])) | st.sampled_from(
    ["/memories/", "/memories//a", "/memories/a/../b", "/memories/./a", "/memories/../../etc", "/other", "memories/a"]
)
TEXTS = st.lists(st.sampled_from(["one", "two", "two two", "", "x\r"]), max_size=4).map("\n".join)
COMMANDS = st.one_of(
    st.fixed_dictionaries({"command": st.just("create"), "path": PATHS, "file_text": TEXTS}),
    st.fixed_dictionaries({"command": st.just("create"), "path": PATHS, "file_text": TEXTS}),
    st.fixed_dictionaries(
        {"command": st.just("view"), "path": PATHS},
        optional={"view_range": st.tuples(st.integers(-1, 4), st.integers(-1, 4)).map(list)},
    ),
    st.fixed_dictionaries(
        {"command": st.just("str_replace"), "path": PATHS, "old_str": st.sampled_from(["one", "two", "o", "zz"]),
         "new_str": st.sampled_from(["", "three", "four\nfive"])}
    ),
    st.fixed_dictionaries(
        {"command": st.just("insert"), "path": PATHS, "insert_line": st.integers(-1, 4),
         "insert_text": st.sampled_from(["new", "new\n\n", ""])}
    ),
    st.fixed_dictionaries({"command": st.just("delete"), "path": PATHS}),
    st.fixed_dictionaries({"command": st.just("rename"), "old_path": PATHS, "new_path": PATHS}),
)  # fmt: skip


def without_folder_sizes(said: str) -> str:
    """Sizes of folders are those of the disk there, of their files here."""
    return re.sub(r"^[\d.]+[BKMG]\t(?=.*/$|/memories[^\n]*(\n|\Z))", "", said, flags=re.MULTILINE)


def disk(tool: BetaLocalFilesystemMemoryTool, values: dict[str, Any]) -> str:
    try:
        return str(tool.call(values))
    except ToolError as error:
        return f"error: {error}"
    except OSError:
        # The SDK lets the disk's own errors through: a file in the way of a folder, a folder moved into itself.
        return "error: of the disk"


@settings(max_examples=25)
@given(st.lists(COMMANDS, min_size=1, max_size=25))
def test_it_says_what_the_folder_on_disk_says(
    tmp_path_factory: pytest.TempPathFactory, commands: list[dict[str, Any]]
) -> None:
    folder = tmp_path_factory.mktemp("tool")
    theirs = BetaLocalFilesystemMemoryTool(str(folder))
    with Memory(folder / "agent.db", embedder=None) as memory:
        ours = MemoryTool(memory)
        for command in commands:
            expected = disk(theirs, command)
            if expected == "error: of the disk":
                assert say(ours, **command).startswith("error: ")
                break  # the disk may have made folders on the way
            if command["command"] == "rename" and expected.startswith("error: The path"):
                assert say(ours, **command) == expected
                break  # the disk has made the folders of the new path, we have not
            assert without_folder_sizes(say(ours, **command)) == without_folder_sizes(expected), command
        files = {f"/{path.relative_to(folder)}": path.read_bytes().decode() for path in folder.rglob("memories/**/*")
                 if path.is_file()}  # fmt: skip
        assert {path: memory.files().read(path) for path in memory.files().paths()} == files
        assert memory.check() == []


# --- what is particular to it ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "path",
    ["/memories/%2e%2e/x", "/memories/%2E%2E%2Fx", "/memories/%252e%252e/x", "/memories/..\\x", "/memories/..%5cx",
     "/memories/a/%2e%2e/%2e%2e/etc/passwd", "/memories/../../../etc/passwd", "/memories/.."],
)  # fmt: skip
def test_a_path_that_climbs_out_is_refused_however_it_is_spelt(tool: MemoryTool, path: str) -> None:
    assert create(tool, path) == f"error: Path {path} would escape /memories directory"
    assert say(tool, "view", path=path) == f"error: Path {path} would escape /memories directory"
    assert tool.memory.files().paths() == []


@pytest.mark.parametrize(
    ("command", "values", "named"),
    [
        ("view", {"view_range": [1.5, 2]}, "view_range"),
        ("view", {"view_range": ["1", None]}, "view_range"),
        ("str_replace", {"old_str": "text", "new_str": None}, "new_str"),
        ("str_replace", {"old_str": 5, "new_str": ""}, "old_str"),
        ("insert", {"insert_line": 0.5, "insert_text": "x"}, "insert_line"),
        ("insert", {"insert_line": 0, "insert_text": ["x"]}, "insert_text"),
    ],
)
def test_a_value_of_a_wrong_kind_is_told_to_the_model_by_name(
    tool: MemoryTool, command: str, values: dict[str, Any], named: str
) -> None:
    create(tool, "/memories/a.txt")
    before = tool.memory.files().read("/memories/a.txt")
    told = say(tool, command, path="/memories/a.txt", **values)
    assert told.startswith("error: ") and named in told
    assert tool.memory.files().read("/memories/a.txt") == before


@pytest.mark.parametrize("path", ["/memoriesx/a", "/memories.txt", "/etc/passwd", "memories/a", "", "/Memories/a"])
def test_a_path_that_is_not_under_memories_is_refused(tool: MemoryTool, path: str) -> None:
    assert create(tool, path) == f"error: Path must start with /memories, got: {path}"


def test_a_path_with_a_null_byte_is_refused(tool: MemoryTool) -> None:
    assert "null byte" in create(tool, "/memories/a\0b")


@pytest.mark.parametrize("name", ["50%25 off.md", "a%20b.md", "it's;drop table file.md", "%_.md", "日本.md"])
def test_other_names_are_taken_literally(tool: MemoryTool, name: str) -> None:
    create(tool, f"/memories/{name}", "here")
    assert say(tool, "view", path=f"/memories/{name}").endswith("     1\there")
    assert tool.memory.files().paths() == [f"/memories/{name}"]


def test_half_an_emoji_in_a_path_is_a_replacement_character(tool: MemoryTool) -> None:
    assert create(tool, "/memories/notes\ud83d") == "File created successfully at: /memories/notes\ufffd"
    assert "1\ttext" in say(tool, "view", path="/memories/notes\ud83d")
    assert tool.memory.files().paths() == ["/memories/notes\ufffd"]
    assert say(tool, "delete", path="/memories/\ud83d") == "error: The path /memories/\ufffd does not exist"


def test_names_that_begin_alike_are_different_folders(tool: MemoryTool) -> None:
    for path in ("/memories/a/x", "/memories/ab/x", "/memories/a.b/x", "/memories/A/x"):
        create(tool, path)
    say(tool, "delete", path="/memories/a")
    assert tool.memory.files().paths() == ["/memories/A/x", "/memories/a.b/x", "/memories/ab/x"]


def test_sizes_are_those_of_the_texts(tool: MemoryTool) -> None:
    create(tool, "/memories/d/one", "é" * 768)
    create(tool, "/memories/empty", "")
    listing = say(tool, "view", path="/memories")
    assert listing.split("\n")[1:] == [
        "1.5K\t/memories", "1.5K\t/memories/d/", "1.5K\t/memories/d/one", "0B\t/memories/empty",
    ]  # fmt: skip


def test_more_lines_than_numbers_fit_are_told(tmp_path: Path) -> None:
    with Memory(tmp_path / "agent.db", embedder=None) as memory:
        tool = MemoryTool(memory)
        create(tool, "/memories/huge", "\n" * 999_999)
        told = say(tool, "view", path="/memories/huge")
        assert told == "error: File /memories/huge exceeds maximum line limit of 999,999 lines."


def test_a_file_in_the_way_of_a_folder_is_told(tool: MemoryTool) -> None:
    create(tool, "/memories/a")
    assert "is a file" in create(tool, "/memories/a/b")
    assert say(tool, "view", path="/memories/a/b").endswith("does not exist. Please provide a valid path.")


# --- history, search, forgetting ------------------------------------------------------------------------------


def test_every_change_is_in_the_history(tmp_path: Path) -> None:
    with Memory(tmp_path / "agent.db", clock=FixedClock("2026-03-01T10:00:00Z")) as memory:
        tool = MemoryTool(memory)
        create(tool, "/memories/n.md", "tea")
        say(tool, "str_replace", path="/memories/n.md", old_str="tea", new_str="coffee")
        say(tool, "insert", path="/memories/n.md", insert_line=1, insert_text="and milk")
        say(tool, "rename", old_path="/memories/n.md", new_path="/memories/drinks.md")
        say(tool, "delete", path="/memories/drinks.md")
        old, new = tool.history("/memories/n.md"), tool.history("/memories/drinks.md")
        assert [(one.change, one.text) for one in old] == [
            ("create", "tea"), ("str_replace", "coffee"), ("insert", "coffee\nand milk\n"),
        ]  # fmt: skip
        assert [one.ended_by for one in (*old, *new)] == ["file 2", "file 3", "file 4", "delete"]
        assert memory.files().paths() == []
        assert memory.check() == []


def test_what_the_model_wrote_is_found_and_what_it_deleted_is_not(tool: MemoryTool) -> None:
    create(tool, "/memories/pets.md", "The cat is called Minka.")
    create(tool, "/memories/work.md", "Deploys happen on Fridays.")
    hit = tool.memory.search("what is the cat called?")[0]
    assert (hit.kind, hit.title) == ("file", "/memories/pets.md")
    say(tool, "delete", path="/memories/pets.md")
    assert "/memories/pets.md" not in [hit.title for hit in tool.memory.search("cat Minka")]
    assert tool.memory.search("cat Minka", status="superseded")[0].title == "/memories/pets.md"


def test_forgetting_takes_the_history_along(tool: MemoryTool) -> None:
    create(tool, "/memories/k.md", "the code is 4711")
    say(tool, "str_replace", path="/memories/k.md", old_str="4711", new_str="secret")
    assert tool.memory.forget(text="4711").counts == {"file": 1}
    assert [one.text for one in tool.history("/memories/k.md")] == ["the code is secret"]
    assert tool.memory.check() == []


def test_a_deleted_file_can_be_restored_unless_another_took_its_place(tool: MemoryTool) -> None:
    create(tool, "/memories/a.md", "first")
    say(tool, "delete", path="/memories/a.md")
    create(tool, "/memories/a.md", "second")
    with pytest.raises(BadInput, match="delete or rename it first"):
        tool.memory.restore("file", 1)
    say(tool, "rename", old_path="/memories/a.md", new_path="/memories/b.md")
    tool.memory.restore("file", 1)
    assert say(tool, "view", path="/memories/a.md").endswith("first")
    assert say(tool, "view", path="/memories/b.md").endswith("second")
    assert tool.memory.check() == []


def test_owners_do_not_see_each_others_files(tmp_path: Path) -> None:
    with Memory(tmp_path / "agent.db", embedder=None) as memory:
        one, other = MemoryTool(memory, "a"), MemoryTool(memory, "a%")
        create(one, "/memories/x.md", "mine")
        assert "does not exist" in say(other, "view", path="/memories/x.md")
        assert other.history("/memories/x.md") == []
        other.clear_all_memory()
        assert "mine" in say(one, "view", path="/memories/x.md")


def test_an_edit_is_lost_by_no_one(tmp_path: Path) -> None:
    with MemoryTool(tmp_path / "agent.db") as tool:
        create(tool, "/memories/log.md", "start\n")

        async def add(asynchronous: AsyncMemoryTool, number: int) -> None:
            await asynchronous.call(
                {"command": "insert", "path": "/memories/log.md", "insert_line": 1, "insert_text": f"line {number}"}
            )

        async def many() -> None:
            async with AsyncMemoryTool(tmp_path / "agent.db") as first, AsyncMemoryTool(tool.memory) as second:
                await asyncio.gather(*(add(first if n % 2 else second, n) for n in range(20)))

        asyncio.run(many())
        lines = (tool.memory.files().read("/memories/log.md") or "").split("\n")
        assert sorted(lines) == sorted(["", "start", *(f"line {n}" for n in range(20))])
        assert len(tool.history("/memories/log.md")) == 21


def test_a_read_only_file_is_told_as_a_tool_error(tmp_path: Path) -> None:
    Memory(tmp_path / "agent.db").close()
    with Memory(tmp_path / "agent.db", read_only=True) as memory:
        assert "read-only" in create(MemoryTool(memory), "/memories/a")
        assert "/memories" in say(MemoryTool(memory), "view", path="/memories")


def test_the_async_tool_says_the_same(tmp_path: Path) -> None:
    async def talk() -> list[object]:
        async with AsyncMemoryTool(tmp_path / "agent.db") as tool:
            said = [
                await tool.call({"command": "create", "path": "/memories/a", "file_text": "one"}),
                await tool.call({"command": "view", "path": "/memories/a"}),
                await tool.call({"command": "str_replace", "path": "/memories/a", "old_str": "one", "new_str": "two"}),
                await tool.call({"command": "rename", "old_path": "/memories/a", "new_path": "/memories/b"}),
                await tool.call({"command": "delete", "path": "/memories/b"}),
                await tool.clear_all_memory(),
            ]
            with pytest.raises(ToolError, match="The path /memories/b does not exist"):
                await tool.call({"command": "delete", "path": "/memories/b"})
            return said

    assert [str(one).split("\n")[0] for one in asyncio.run(talk())] == [
        "File created successfully at: /memories/a",
        "Here's the content of /memories/a with line numbers:",
        "The memory file has been edited. Here is the snippet showing the change (with line numbers):",
        "Successfully renamed /memories/a to /memories/b",
        "Successfully deleted /memories/b",
        "All memory cleared",
    ]


# --- through the SDK's runner ---------------------------------------------------------------------------------


def answer(*content: dict[str, Any]) -> dict[str, Any]:
    return {
        "id": "msg", "type": "message", "role": "assistant", "model": "test", "content": list(content),
        "stop_reason": "tool_use" if content[0]["type"] == "tool_use" else "end_turn", "stop_sequence": None,
        "usage": {"input_tokens": 1, "output_tokens": 1},
    }  # fmt: skip


def use(number: int, **command: Any) -> dict[str, Any]:
    return {"type": "tool_use", "id": f"t{number}", "name": "memory", "input": command}


SCRIPT = [
    answer(use(1, command="view", path="/memories")),
    answer(use(2, command="create", path="/memories/coffee.md", file_text="likes coffee")),
    answer(use(3, command="view", path="/memories/none.md")),
    answer({"type": "text", "text": "Noted."}),
]


class Script:
    """A transport that plays the API: answers in order, and the requests as they came."""

    def __init__(self) -> None:
        self.requests: list[dict[str, Any]] = []

    def __call__(self, request: Any) -> Any:
        self.requests.append(json.loads(request.content))
        return httpx.Response(200, json=SCRIPT[len(self.requests) - 1])

    def results(self) -> list[tuple[str, bool]]:
        """What the tool told the model: text, and whether it was an error."""
        told = [request["messages"][-1]["content"][0] for request in self.requests[1:]]
        return [
            (
                part["content"] if isinstance(part["content"], str) else part["content"][0]["text"],
                part.get("is_error", False),
            )
            for part in told
        ]


ASK = {"model": "test", "max_tokens": 100, "messages": [{"role": "user", "content": [{"type": "text", "text": "hi"}]}]}


def test_the_tool_runner_drives_it(tmp_path: Path) -> None:
    script = Script()
    client = anthropic.Anthropic(api_key="k", http_client=httpx.Client(transport=httpx.MockTransport(script)))
    with MemoryTool(tmp_path / "agent.db") as tool:
        final = client.beta.messages.tool_runner(**ASK, tools=[tool]).until_done()
        assert final.content[0].text == "Noted."
        assert tool.memory.files().read("/memories/coffee.md") == "likes coffee"
    assert script.requests[0]["tools"] == [{"type": "memory_20250818", "name": "memory"}]
    (listed, created, missing) = script.results()
    assert listed[0].startswith("Here're the files and directories")
    assert created == ("File created successfully at: /memories/coffee.md", False)
    assert "The path /memories/none.md does not exist" in missing[0]
    assert missing[1] is True


def test_the_async_tool_runner_drives_it(tmp_path: Path) -> None:
    script = Script()

    async def talk() -> None:
        http = httpx.AsyncClient(transport=httpx.MockTransport(script))
        client = anthropic.AsyncAnthropic(api_key="k", http_client=http)
        async with AsyncMemoryTool(tmp_path / "agent.db") as tool:
            await client.beta.messages.tool_runner(**ASK, tools=[tool]).until_done()
            assert tool.memory.files().read("/memories/coffee.md") == "likes coffee"

    asyncio.run(talk())
    assert script.results()[1] == ("File created successfully at: /memories/coffee.md", False)
