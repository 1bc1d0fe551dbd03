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
        return _from_path(Path(os.fspath(source)).expanduser())
    if isinstance(source, Mapping):
        return _from_document("default", source)
    if isinstance(source, Iterable) and not isinstance(source, (bytes, bytearray)):
        return Source("default", iter(enumerate(source, 1)), len(source) if isinstance(source, list) else None)
    raise BadInput("source", f"a path, a list or a dict is wanted, not {type(source).__name__}")


def _from_path(path: Path) -> Source:
    try:
        if path.is_dir():
            return _from_text(path.name, (path / EXPORT_FILE).read_bytes(), lines=False)
        with open(path, "rb") as handle:
            head = handle.read(len(SQLITE_HEADER))
        if head == SQLITE_HEADER:
            return Source(path.stem, iter(()), database=path.absolute())
        if head.startswith(b"PK\x03\x04"):
            return _from_text(path.stem, _from_archive(path), lines=False)
        return _from_text(path.stem, path.read_bytes(), lines=path.suffix.lower() in (".jsonl", ".ndjson"))
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


def _from_text(name: str, data: bytes, *, lines: bool) -> Source:
    """`lines` says that the file's name promises JSON lines; else a file is first tried as one document."""
    data = data.removeprefix(b"\xef\xbb\xbf")
    problem = None
    if not lines:
        try:
            return _from_document(name, json.loads(data))
        except (ValueError, RecursionError) as error:
            problem = error
    rows = data.split(b"\n")
    if problem is not None and all(isinstance(row, Unreadable) for row in _lines(rows)):
        raise BadInput("source", f"{name} is neither JSON nor JSON lines ({problem})")
    return Source(name, _lines(rows), sum(1 for row in rows if row.strip()))


def _lines(rows: list[bytes]) -> Iterator[Numbered | Unreadable]:
    for number, row in enumerate(rows, 1):
        if not row.strip():
            continue
        try:
            value = json.loads(row)
        except UnicodeDecodeError as error:
            yield Unreadable(number, f"is not UTF-8 ({error.reason} at byte {error.start})")
        except (ValueError, RecursionError) as error:
            yield Unreadable(number, f"is not JSON ({error})")
        else:
            yield (number, value) if isinstance(value, dict) else Unreadable(number, "is not a JSON object")


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
