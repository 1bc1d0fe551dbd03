"""The exports of ChatGPT and Claude: a list of conversations, each a session named by its title and part of its id
(titles repeat and change; a conversation that was renamed since keeps the session it has)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from istar_lite.importing.items import Item, Numbered, Said, Unreadable
from istar_lite.importing.messages import first_of, text_of_parts


def matches_chatgpt(item: Mapping[str, Any]) -> bool:
    """Whether an item looks like a conversation of ChatGPT."""
    return isinstance(item.get("mapping"), Mapping)


def matches_claude(item: Mapping[str, Any]) -> bool:
    """Whether an item looks like a conversation of Claude."""
    return isinstance(item.get("chat_messages"), list)


def session_name(title: Any, identity: Any) -> tuple[str | None, str | None]:
    """(name, key) of a conversation's session: `Title [1a2b3c4d]` and `[1a2b3c4d]`, the end of its id (ids often
    begin with the time, which two of them may share)."""
    if identity is None:
        return (str(title) if title else None), None
    key = f"[{str(identity)[-8:]}]"
    return f"{str(title or '').strip() or 'Untitled'} {key}", key


def read_chatgpt(items: Iterable[Numbered]) -> Iterator[Item]:
    """What both sides see of each conversation: the branch that ends at its current node, without hidden nodes."""
    for number, item in items:
        if not (isinstance(item, Mapping) and matches_chatgpt(item)):
            yield Unreadable(number, "is not a conversation of a ChatGPT export (no mapping)")
            continue
        name, key = session_name(item.get("title"), first_of(item, ("conversation_id", "id")))
        for identity, message in _branch(item["mapping"], item.get("current_node")):
            said = _chatgpt_message(number, identity, message, item.get("create_time"))
            if said is not None:
                yield said._replace(session=name, session_key=key)


def _branch(mapping: Mapping[str, Any], leaf: Any) -> list[tuple[str, Mapping[str, Any]]]:
    """(id, message) from the root to `leaf`, which is the newest leaf when the export names none."""
    node_id = leaf if isinstance(leaf, str) and leaf in mapping else _newest_leaf(mapping)
    path: list[tuple[str, Mapping[str, Any]]] = []
    seen: set[str] = set()
    while isinstance(node_id, str) and node_id not in seen:  # `seen`: a damaged export may run in a circle
        seen.add(node_id)
        node = mapping.get(node_id)
        if not isinstance(node, Mapping):
            break
        if isinstance(node.get("message"), Mapping):
            path.append((node_id, node["message"]))
        node_id = node.get("parent")
    return path[::-1]


def _newest_leaf(mapping: Mapping[str, Any]) -> str | None:
    leaves = [key for key, node in mapping.items() if isinstance(node, Mapping) and not node.get("children")]
    return max(leaves, key=lambda key: _time(mapping[key].get("message")), default=None)


def _time(message: Any) -> float:
    value = message.get("create_time") if isinstance(message, Mapping) else None
    return float(value) if isinstance(value, (int, float)) else 0.0


def _chatgpt_message(number: int, identity: str, message: Mapping[str, Any], default_time: Any) -> Said | None:
    author = message.get("author")
    author = author if isinstance(author, Mapping) else {}
    metadata = message.get("metadata")
    if isinstance(metadata, Mapping) and metadata.get("is_visually_hidden_from_conversation"):
        return None
    content = message.get("content")
    content = content if isinstance(content, Mapping) else {}
    parts = _list(content.get("parts"))
    text = text_of_parts(parts) if parts else first_of(content, ("text", "result", "content"))
    if not isinstance(text, str) or not text.strip():
        return None  # nodes without text: the empty system node at the root, calls of tools, thinking
    pictures = [part for part in parts if not isinstance(part, str)]
    return Said(
        number,
        text,
        role=author.get("role") or "user",
        speaker=author.get("name"),
        parts=pictures or None,
        external_id=message.get("id") or identity,
        occurred_at=first_of({"own": message.get("create_time"), "all": default_time}, ("own", "all")),
    )


def read_claude(items: Iterable[Numbered]) -> Iterator[Item]:
    """The messages of each conversation."""
    for number, item in items:
        if not (isinstance(item, Mapping) and matches_claude(item)):
            yield Unreadable(number, "is not a conversation of a Claude export (no chat_messages)")
            continue
        name, key = session_name(item.get("name"), item.get("uuid"))
        for message in item["chat_messages"]:
            said = _claude_message(number, message, item.get("created_at"))
            if isinstance(said, Said):
                said = said._replace(session=name, session_key=key)
            if said is not None:
                yield said


def _claude_message(number: int, message: Any, default_time: Any) -> Said | Unreadable | None:
    if not isinstance(message, Mapping):
        return Unreadable(number, "holds a message that is not a JSON object")
    blocks = _list(message.get("content"))
    attached = [file for file in _list(message.get("attachments")) if isinstance(file, Mapping)]
    texts = [text_of_parts(blocks) or message.get("text") or ""]
    texts += [str(file["extracted_content"]) for file in attached if file.get("extracted_content")]
    text = "\n\n".join(text for text in texts if isinstance(text, str) and text.strip())
    if not text:
        return None
    sender = message.get("sender")
    other = [block for block in blocks if not (isinstance(block, Mapping) and block.get("type") == "text")]
    return Said(
        number,
        text,
        role="user" if sender == "human" else sender or "user",
        parts=other or None,
        external_id=message.get("uuid"),
        occurred_at=message.get("created_at") or default_time,
    )


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []
