"""Statements that other stores kept: what mem0 hands out (`memory.get_all()`, as JSON or JSON lines), and the JSON
lines of the MCP server-memory (entities with observations, and relations). They become memories."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from istar_lite.importing.items import Fact, Item, Numbered, Unreadable
from istar_lite.importing.messages import first_of
from istar_lite.text import digest


def matches_mem0(item: Mapping[str, Any]) -> bool:
    """Whether an item looks like a memory of mem0."""
    return isinstance(item.get("memory"), str) and "id" in item


def matches_graph(item: Mapping[str, Any]) -> bool:
    """Whether an item looks like a line of the MCP server-memory."""
    kind = item.get("type")
    return (kind == "entity" and "observations" in item) or (kind == "relation" and "relationType" in item)


def read_mem0(items: Iterable[Numbered]) -> Iterator[Item]:
    """One memory each; its categories become tags."""
    for number, item in items:
        if not (isinstance(item, Mapping) and matches_mem0(item)):
            yield Unreadable(number, "is not a memory of mem0 (memory and id are wanted)")
            continue
        categories = item.get("categories")
        tags = tuple(tag for tag in categories if isinstance(tag, str)) if isinstance(categories, list) else ()
        when = first_of(item, ("updated_at", "created_at"))
        yield Fact(number, item["memory"], key=f"mem0/{item['id']}", tags=tags, occurred_at=when)


def read_graph(items: Iterable[Numbered]) -> Iterator[Item]:
    """`Name: observation` for each observation of an entity, `a relation b` for each relation; the entity's name and
    type become tags. The file holds no times."""
    for number, item in items:
        if not isinstance(item, Mapping):
            yield Unreadable(number, "is not a JSON object")
        elif item.get("type") == "entity" and isinstance(item.get("observations"), list):
            yield from _entity(number, item)
        elif item.get("type") == "relation" and all(isinstance(item.get(end), str) for end in ("from", "to")):
            relation = str(item.get("relationType") or "relates to").replace("_", " ")
            yield _fact(number, f"{item['from']} {relation} {item['to']}", _tags(item["from"], item["to"]))
        else:
            yield Unreadable(number, "is neither an entity nor a relation")


def _entity(number: int, item: Mapping[str, Any]) -> Iterator[Item]:
    name, kind = item.get("name"), item.get("entityType")
    for observation in item["observations"]:
        if isinstance(observation, str) and isinstance(name, str):
            yield _fact(number, f"{name}: {observation}", _tags(name, kind))
        else:
            yield Unreadable(number, "holds an observation that is not text")


def _fact(number: int, text: str, tags: tuple[str, ...]) -> Fact:
    """The file gives no ids: a statement is known by what it says."""
    return Fact(number, text, key=f"mcp-memory/{digest(text)[:16]}", tags=tags)


def _tags(*names: Any) -> tuple[str, ...]:
    return tuple(dict.fromkeys(name for name in names if isinstance(name, str) and name.strip()))
