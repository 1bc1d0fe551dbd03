"""Import: conversations and statements kept elsewhere come in with their dates, speakers and sessions.

A format is a reader from numbered items to `Said`, `Fact` and `Unreadable`; all of them end in one writer.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import chain, islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from istar_lite import exporting
from istar_lite.database import absolute_path, sqlite3
from istar_lite.errors import BadInput, NotAMemoryFile
from istar_lite.importing import exports, facts, llm_logs, locomo, messages
from istar_lite.importing.items import Item, Numbered, Unreadable
from istar_lite.importing.source import Source, open_source
from istar_lite.importing.writing import BATCH, Remember, Writer
from istar_lite.migrations import inspect_file
from istar_lite.models import Imported
from istar_lite.values import as_name

if TYPE_CHECKING:
    from istar_lite.services import Services

Progress = Callable[[int, int], None]
_PEEK = 50  # items looked at to recognise a format


@dataclass(frozen=True)
class Format:
    """How items of a format look, and how they are read."""

    matches: Callable[[Mapping[str, Any]], bool]
    read: Callable[[Iterable[Numbered]], Iterator[Item]]


# In the order in which they are tried: the ones with the most telling shape first.
FORMATS: dict[str, Format] = {
    "locomo": Format(locomo.matches, locomo.read),
    "chatgpt": Format(exports.matches_chatgpt, exports.read_chatgpt),
    "claude": Format(exports.matches_claude, exports.read_claude),
    "mcp-memory": Format(facts.matches_graph, facts.read_graph),
    "mem0": Format(facts.matches_mem0, facts.read_mem0),
    "messages": Format(messages.matches, messages.read),
}
LLM_LOGS = "llm"
OURS = "istar-lite"
FORMAT_NAMES = (*FORMATS, LLM_LOGS, OURS)


def is_ours(source: object, format: str | None) -> bool:
    """Whether the source is another memory file, or the export of one: what merge brings in, not this layer."""
    if format is not None or not isinstance(source, (str, os.PathLike)):
        return format == OURS
    if not Path(source).is_file():
        return False
    try:
        return exporting.is_export(source) or inspect_file(absolute_path(source)) != "new"
    except NotAMemoryFile:
        return False


def import_conversation(
    services: Services,
    namespace: str,
    source: object,
    *,
    remember: Remember,
    format: str | None = None,
    session: str | None = None,
    dry_run: bool = False,
    on_progress: Progress | None = None,
) -> Imported:
    """Brings the messages of `source` in; see `Memory.import_conversation`."""
    if format is not None and format not in FORMAT_NAMES:
        raise BadInput("format", f"{format!r} is none of {', '.join(FORMAT_NAMES)}")
    prefix = None if session is None else as_name(session, "session")
    opened = open_source(source)
    writer = Writer(services, namespace, prefix, as_name(opened.name, "session"), dry_run, remember)
    items = _items(opened, format)
    done = 0
    while batch := list(islice(items, BATCH)):
        writer.write(batch)
        done = batch[-1].number
        if on_progress is not None:
            on_progress(done, max(done, opened.total or 0))
    return Imported(
        messages=writer.messages,
        memories=writer.memories,
        skipped=writer.skipped,
        forgotten=writer.forgotten,
        sessions=len(writer.names),
        errors=tuple(writer.errors),
    )


def _items(source: Source, format: str | None) -> Iterator[Item]:
    if source.database is not None:
        return _from_database(source, format)
    head = list(islice(source.items, _PEEK))
    chosen = FORMATS[format or _recognised(head)]
    return _read(chosen, chain(head, source.items))


def _from_database(source: Source, format: str | None) -> Iterator[Item]:
    path = source.database
    if path is None or format not in (None, LLM_LOGS):
        raise BadInput("format", f"an SQLite database is not in the format {format!r}")
    try:
        if not llm_logs.matches(path):
            raise BadInput("source", f"{path} is a database, but no log of llm")
        return llm_logs.read(path)
    except sqlite3.DatabaseError as error:
        raise BadInput("source", f"{path} cannot be read ({error})") from error


def _recognised(head: list[Numbered | Unreadable]) -> str:
    """The format of the first item that has a known shape."""
    values = [item[1] for item in head if not isinstance(item, Unreadable) and isinstance(item[1], Mapping)]
    for value in values:
        for name, known in FORMATS.items():
            if known.matches(value):
                return name
    if not values:
        return "messages"  # nothing to recognise it by: an empty file, or one that holds errors alone
    raise BadInput("source", f"no format was recognised; name one of {', '.join(FORMAT_NAMES)}")


def _read(chosen: Format, items: Iterable[Numbered | Unreadable]) -> Iterator[Item]:
    """What the format makes of each item; unreadable lines keep their place among them."""
    for item in items:
        if isinstance(item, Unreadable):
            yield item
        else:
            yield from chosen.read((item,))
