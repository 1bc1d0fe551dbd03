"""Where the items come from: a file of JSON lines, a JSON document, an archive or folder of an export, a database, or
data at hand. Whatever it is, it becomes numbered items; lines that are no JSON become `Unreadable` ones."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from istar_lite.errors import BadInput
from istar_lite.importing.items import Numbered, Unreadable

SQLITE_HEADER = b"SQLite format 3\0"
EXPORT_FILE = "conversations.json"  # in the archives of ChatGPT and Claude
LINES = (".jsonl", ".ndjson")
BOM = b"\xef\xbb\xbf"
_WRAPPERS = ("messages", "results", "conversations", "memories")


@dataclass
class Source:
    """Numbered items, or the path of a database. `name`: the session of messages that name none."""

    name: str
    items: Iterator[Numbered | Unreadable]
    total: int | None = None
    database: Path | None = None


def open_source(source: object) -> Source:
    """The source that `source` names: a path, or a dict or list (also a generator) of what such a file would hold.

    Raises `BadInput` for what is neither, does not exist, or holds no JSON at all.
    """
    if isinstance(source, (str, os.PathLike)):
        return _from_path(Path(os.fspath(source)).expanduser().absolute())  # "." has a name too
    if isinstance(source, Mapping):
        return _from_document("default", source)
    if isinstance(source, Iterable) and not isinstance(source, (bytes, bytearray)):
        return Source("default", iter(enumerate(source, 1)), len(source) if isinstance(source, list) else None)
    raise BadInput("source", f"a path, a list or a dict is wanted, not {type(source).__name__}")


def _from_path(path: Path) -> Source:
    if "\0" in str(path):
        raise BadInput("source", "a path holds no NUL character")
    try:
        if path.is_dir():
            return _from_document(path.name, _parsed(path.name, (path / EXPORT_FILE).read_bytes()))
        with open(path, "rb") as handle:
            head = handle.read(len(SQLITE_HEADER))
        if head == SQLITE_HEADER:
            return Source(path.stem, iter(()), database=path)
        if head.startswith(b"PK\x03\x04"):
            return _from_document(path.stem, _parsed(path.stem, _from_archive(path)))
        return _from_file(path)
    except OSError as error:
        raise BadInput("source", f"{path} cannot be read ({error.strerror})") from error


def _from_archive(path: Path) -> bytes:
    import zipfile  # with its compressors it costs `import istar_lite` 5 ms, for what few ever import

    try:
        with zipfile.ZipFile(path) as archive:
            inside = [name for name in archive.namelist() if name.rsplit("/", 1)[-1] == EXPORT_FILE]
            if not inside:
                raise BadInput("source", f"{path} holds no {EXPORT_FILE}")
            return archive.read(inside[0])
    except zipfile.BadZipFile as error:
        raise BadInput("source", f"{path} is a damaged archive ({error})") from error


def _from_file(path: Path) -> Source:
    """JSON lines are read as they come, however many there are. A name that does not promise them is first tried as
    one document."""
    if path.suffix.lower() not in LINES:
        try:
            return _from_document(path.stem, _parsed(path.stem, path.read_bytes()))
        except BadInput:
            if all(isinstance(row, Unreadable) for row in _lines(path)):
                raise
    with open(path, "rb") as rows:
        total = sum(1 for row in rows if row.strip())
    return Source(path.stem, _lines(path), total)


def _parsed(name: str, data: bytes) -> Any:
    try:
        return json.loads(data.removeprefix(BOM))
    except (ValueError, RecursionError) as error:
        raise BadInput("source", f"{name} is neither JSON nor JSON lines ({error})") from error


def _lines(path: Path) -> Iterator[Numbered | Unreadable]:
    with open(path, "rb") as rows:
        for number, row in enumerate(rows, 1):
            if row.strip():
                yield _line(number, row.removeprefix(BOM))


def _line(number: int, row: bytes) -> Numbered | Unreadable:
    try:
        value = json.loads(row)
    except UnicodeDecodeError as error:
        return Unreadable(number, f"is not UTF-8 ({error.reason} at byte {error.start})")
    except (ValueError, RecursionError) as error:
        return Unreadable(number, f"is not JSON ({error})")
    return (number, value) if isinstance(value, dict) else Unreadable(number, "is not a JSON object")


def _from_document(name: str, document: Any) -> Source:
    items = _unwrapped(document)
    return Source(name, iter(enumerate(items, 1)), len(items))


def _unwrapped(document: Any) -> list[Any]:
    """The list in a document: itself, the one under a well-known key, or the document as its only item."""
    if isinstance(document, list):
        return document
    if not isinstance(document, Mapping):
        raise BadInput("source", f"a JSON list or object is wanted, not {type(document).__name__}")
    lists = [document[key] for key in _WRAPPERS if isinstance(document.get(key), list)]
    return list(lists[0]) if lists else [document]
