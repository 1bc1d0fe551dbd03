"""The memory tool of the Anthropic SDK (`memory_20250818`) on a memory file, with the history of every change.

    from istar_lite.adapters.anthropic_memory import MemoryTool

    runner = client.beta.messages.tool_runner(model=..., messages=..., tools=[MemoryTool("agent.db")])

What the model is told is what the SDK's own folder on disk tells it, word for word. Paths are stricter: whatever would
leave /memories is refused, also when it is spelt in URL escapes or with backslashes, though nothing here is on a disk.
"""

from __future__ import annotations

import functools
import os
import posixpath
import re
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Concatenate, ParamSpec, TypeVar
from urllib.parse import unquote

from anthropic.lib.tools import BetaAbstractMemoryTool, BetaAsyncAbstractMemoryTool, ToolError

from istar_lite import IstarError, Memory
from istar_lite.adapters.common import Source, in_worker
from istar_lite.text import clean
from istar_lite.values import as_int, as_text

if TYPE_CHECKING:
    from anthropic.types.beta import (
        BetaCacheControlEphemeralParam,
        BetaMemoryTool20250818CreateCommand,
        BetaMemoryTool20250818DeleteCommand,
        BetaMemoryTool20250818InsertCommand,
        BetaMemoryTool20250818RenameCommand,
        BetaMemoryTool20250818StrReplaceCommand,
        BetaMemoryTool20250818ViewCommand,
    )

    from istar_lite.files import Tree
    from istar_lite.models import FileVersion

ROOT = "/memories"
MOST_LINES = 999_999
LEVELS = 2  # of folders that a listing shows
AROUND = 2  # lines shown before and after a replacement

P = ParamSpec("P")
S = TypeVar("S")


def _told(method: Callable[Concatenate[S, P], str]) -> Callable[Concatenate[S, P], str]:
    """What goes wrong in the memory is told to the model in one line, as all the tool's errors are. Whatever is told
    can be sent: half an emoji in a path that the model made up would fail the host's next request."""

    @functools.wraps(method)
    def wrapped(self: S, /, *args: P.args, **kwargs: P.kwargs) -> str:
        try:
            return clean(method(self, *args, **kwargs))
        except IstarError as error:
            raise ToolError(clean(" ".join(str(error).split()))) from error
        except ToolError as error:
            raise ToolError(clean(str(error))) from error

    return wrapped


class MemoryTool(BetaAbstractMemoryTool):
    """The tool for `Anthropic` clients. `source`: a path, or a `Memory` that is open (with `namespace`, seen as that
    owner). Opened from a path it is closed by `close()`, or as a context manager."""

    def __init__(
        self,
        source: Memory | str | os.PathLike[str],
        namespace: str | None = None,
        *,
        cache_control: BetaCacheControlEphemeralParam | None = None,
    ) -> None:
        super().__init__(cache_control=cache_control)
        self._source = Source(source, namespace)
        self._files = self._source.memory.files()

    @property
    def memory(self) -> Memory:
        """The memory behind the tool."""
        return self._source.memory

    def history(self, path: str) -> list[FileVersion]:
        """All versions that a path had, oldest first."""
        return self._files.history(_checked(path))

    def close(self) -> None:
        """Closes the file, if it was opened here."""
        self._source.close()

    def __enter__(self) -> MemoryTool:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @_told
    def view(self, command: BetaMemoryTool20250818ViewCommand) -> str:
        """A file with line numbers, or what lies in a folder, two levels deep."""
        path = _checked(command.path)
        with self._files.reading() as tree:
            kind = _kind(tree, path)
            if kind is None:
                raise ToolError(f"The path {command.path} does not exist. Please provide a valid path.")
            if kind == "folder":
                return _listing(tree, path, command.path)
            text = tree.text(path) or ""
        return _numbered_view(text, command.path, command.view_range)

    @_told
    def create(self, command: BetaMemoryTool20250818CreateCommand) -> str:
        """A new file; one that is there is not overwritten."""
        path = _checked(command.path)
        with self._files.writing() as tree:
            if _kind(tree, path) is not None:
                raise ToolError(f"File {command.path} already exists")
            tree.write(path, command.file_text, "create")
        return f"File created successfully at: {command.path}"

    @_told
    def str_replace(self, command: BetaMemoryTool20250818StrReplaceCommand) -> str:
        """Another text in the place of one that stands in the file exactly once."""
        path = _checked(command.path)
        with self._files.writing() as tree:
            text = _text(tree, path, command.path)
            old = as_text(command.old_str, "old_str", blank=True)
            at = _only_place(text, old, command.path)
            changed = text[:at] + as_text(command.new_str, "new_str", blank=True) + text[at + len(old) :]
            tree.write(path, changed, "str_replace")
        return (
            "The memory file has been edited. Here is the snippet showing the change (with line numbers):\n"
            + _snippet(changed, text.count("\n", 0, at))
        )

    @_told
    def insert(self, command: BetaMemoryTool20250818InsertCommand) -> str:
        """Text as lines of its own after a line, 0 being the beginning."""
        path = _checked(command.path)
        with self._files.writing() as tree:
            lines = _text(tree, path, command.path).split("\n")
            if lines[-1] == "":
                lines.pop()
            at = as_int(command.insert_line, "insert_line")
            if not 0 <= at <= len(lines):
                raise ToolError(
                    f"Invalid `insert_line` parameter: {at}. It should be within the range [0, {len(lines)}]."
                )
            lines.insert(at, as_text(command.insert_text, "insert_text", blank=True).rstrip("\n"))
            changed = "\n".join(lines)
            tree.write(path, changed if changed.endswith("\n") else changed + "\n", "insert")
        return f"The file {command.path} has been edited."

    @_told
    def delete(self, command: BetaMemoryTool20250818DeleteCommand) -> str:
        """A file, or a folder with all in it. Their history stays in the memory file; `Memory.forget` ends it too."""
        path = _checked(command.path)
        if path == ROOT:
            raise ToolError("Cannot delete the /memories directory itself")
        with self._files.writing() as tree:
            if tree.kind(path) is None:
                raise ToolError(f"The path {command.path} does not exist")
            tree.remove(path)
        return f"Successfully deleted {command.path}"

    @_told
    def rename(self, command: BetaMemoryTool20250818RenameCommand) -> str:
        """Another path for a file or a folder."""
        old, new = _checked(command.old_path), _checked(command.new_path)
        if old == ROOT:
            raise ToolError("Cannot rename the /memories directory itself")
        with self._files.writing() as tree:
            if _kind(tree, new) is not None:
                raise ToolError(f"The destination {command.new_path} already exists")
            if tree.kind(old) is None:
                raise ToolError(f"The path {command.old_path} does not exist")
            tree.move(old, new)
        return f"Successfully renamed {command.old_path} to {command.new_path}"

    @_told
    def clear_all_memory(self) -> str:
        """Deletes everything under /memories, as `delete` does."""
        with self._files.writing() as tree:
            tree.remove(ROOT)
        return "All memory cleared"


class AsyncMemoryTool(BetaAsyncAbstractMemoryTool):
    """The tool for `AsyncAnthropic` clients: the same calls in worker threads."""

    def __init__(
        self,
        source: Memory | str | os.PathLike[str],
        namespace: str | None = None,
        *,
        cache_control: BetaCacheControlEphemeralParam | None = None,
    ) -> None:
        super().__init__(cache_control=cache_control)
        self._tool = MemoryTool(source, namespace)

    @property
    def memory(self) -> Memory:
        """The memory behind the tool."""
        return self._tool.memory

    def history(self, path: str) -> list[FileVersion]:
        """All versions that a path had, oldest first."""
        return self._tool.history(path)

    def close(self) -> None:
        """Closes the file, if it was opened here."""
        self._tool.close()

    async def __aenter__(self) -> AsyncMemoryTool:
        return self

    async def __aexit__(self, *_: object) -> None:
        await in_worker(self.close)

    async def view(self, command: BetaMemoryTool20250818ViewCommand) -> str:
        """See `MemoryTool.view`."""
        return await in_worker(self._tool.view, command)

    async def create(self, command: BetaMemoryTool20250818CreateCommand) -> str:
        """See `MemoryTool.create`."""
        return await in_worker(self._tool.create, command)

    async def str_replace(self, command: BetaMemoryTool20250818StrReplaceCommand) -> str:
        """See `MemoryTool.str_replace`."""
        return await in_worker(self._tool.str_replace, command)

    async def insert(self, command: BetaMemoryTool20250818InsertCommand) -> str:
        """See `MemoryTool.insert`."""
        return await in_worker(self._tool.insert, command)

    async def delete(self, command: BetaMemoryTool20250818DeleteCommand) -> str:
        """See `MemoryTool.delete`."""
        return await in_worker(self._tool.delete, command)

    async def rename(self, command: BetaMemoryTool20250818RenameCommand) -> str:
        """See `MemoryTool.rename`."""
        return await in_worker(self._tool.rename, command)

    async def clear_all_memory(self) -> str:
        """See `MemoryTool.clear_all_memory`."""
        return await in_worker(self._tool.clear_all_memory)


# --- paths ----------------------------------------------------------------------------------------------------


def _checked(given: str) -> str:
    """The path that is meant, in its shortest form. Refused: what is not under /memories, and what is only under it
    as long as nobody decodes it."""
    if not isinstance(given, str) or not re.match(rf"{ROOT}(/|\Z)", given):
        raise ToolError(f"Path must start with /memories, got: {given}")
    if "\0" in given:
        raise ToolError(f"Path {given!r} contains a null byte")
    normal = posixpath.normpath(f"{ROOT}/{given[len(ROOT) :].lstrip('/')}")
    normal = clean(normal)
    if not f"{normal}/".startswith(f"{ROOT}/") or any(_climbs(spelt) for spelt in _decoded(given)):
        raise ToolError(f"Path {given} would escape /memories directory")
    return normal


def _decoded(given: str) -> Iterator[str]:
    """Other spellings of the path: URL escapes resolved, once and again, and backslashes read as separators."""
    seen = given
    for _ in range(8):
        if "\\" in seen:
            yield seen.replace("\\", "/")
        again = unquote(seen)
        if again == seen:
            return
        seen = again
        yield seen


def _climbs(spelt: str) -> bool:
    return ".." in spelt.split("/")


def _kind(tree: Tree, path: str) -> str | None:
    return "folder" if path == ROOT else tree.kind(path)


def _text(tree: Tree, path: str, given: str) -> str:
    kind = _kind(tree, path)
    if kind is None:
        raise ToolError(f"The path {given} does not exist. Please provide a valid path.")
    if kind == "folder":
        raise ToolError(f"The path {given} is not a file.")
    return tree.text(path) or ""


# --- what the model is shown ----------------------------------------------------------------------------------


def _numbered(lines: list[str], first: int) -> str:
    return "\n".join(f"{number:>6}\t{line}" for number, line in enumerate(lines, first))


def _numbered_view(text: str, given: str, view_range: list[int] | None) -> str:
    lines = text.split("\n")
    if len(lines) > MOST_LINES:
        raise ToolError(f"File {given} exceeds maximum line limit of 999,999 lines.")
    first, last = 1, len(lines)
    if view_range and len(view_range) == 2:
        asked = [as_int(line, "view_range") for line in view_range]
        first = max(1, asked[0])
        # Counted from the end where negative, as slices are; -1 is the end itself.
        last = len(lines) if asked[1] == -1 else asked[1]
    return f"Here's the content of {given} with line numbers:\n" + _numbered(lines[first - 1 : last], first)


def _snippet(text: str, changed_line: int) -> str:
    lines = text.split("\n")
    start = max(0, changed_line - AROUND)
    return _numbered(lines[start : changed_line + AROUND + 1], start + 1)


def _listing(tree: Tree, path: str, given: str) -> str:
    lines = [f"{_size(sum(entry.size for entry in tree.entries(path)))}\t{given}"]
    lines += [f"{_size(size)}\t{given}/{name}" for name, size in _shown(tree, path, "", LEVELS)]
    head = f"Here're the files and directories up to 2 levels deep in {given}, excluding hidden items:"
    return head + "\n" + "\n".join(lines)


def _shown(tree: Tree, path: str, before: str, levels: int) -> Iterator[tuple[str, int]]:
    for entry in tree.entries(path):
        if entry.name.startswith("."):
            continue
        yield before + entry.name + ("/" if entry.is_folder else ""), entry.size
        if entry.is_folder and levels > 1:
            yield from _shown(tree, f"{path}/{entry.name}", f"{before}{entry.name}/", levels - 1)


def _size(size: int) -> str:
    """`0B`, `512B`, `1.5K`, `2M`."""
    if size == 0:
        return "0B"
    step = min((size.bit_length() - 1) // 10, 3)
    scaled = size / 1024**step
    return f"{int(scaled) if scaled == int(scaled) else f'{scaled:.1f}'}{'BKMG'[step]}"


def _only_place(text: str, old: str, given: str) -> int:
    count = text.count(old)
    if count == 0:
        raise ToolError(f"No replacement was performed, old_str `{old}` did not appear verbatim in {given}.")
    if count > 1:
        lines = ", ".join(str(text.count("\n", 0, at) + 1) for at in _places(text, old))
        raise ToolError(
            f"No replacement was performed. Multiple occurrences of old_str `{old}` in lines: {lines}."
            " Please ensure it is unique"
        )
    return text.find(old)


def _places(text: str, old: str) -> Iterator[int]:
    at = text.find(old)
    while at != -1:
        yield at
        at = text.find(old, at + 1)
