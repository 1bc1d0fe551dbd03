"""Keeping what is said: checked, redacted, readable, counted."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from istar_lite.observations import rows
from istar_lite.observations.parts import as_parts, flatten, speaker_of
from istar_lite.observations.units import Spoken

if TYPE_CHECKING:
    from istar_lite.database import sqlite3
    from istar_lite.services import Services


def say(
    services: Services,
    tx: sqlite3.Connection,
    session: int,
    role: str,
    content: Any,
    more: Mapping[str, Any],
    *,
    occurred_at: str | None = None,
) -> Spoken:
    """Writes a message at the end of the session. `more`: what the host's message holds beside role and content.
    Raises `BadInput` for what holds nothing to read or cannot be stored."""
    parts = redacted(services, as_parts(content, more))
    text = content if parts is None else flatten(parts, role, partial(_tool_name, tx, session))
    stored = services.stored_text(text, "content")
    now = services.now()
    return rows.insert_message(
        tx,
        session,
        role,
        stored,
        parts,
        speaker=speaker_of(parts, role),
        tokens=services.count_tokens(stored),
        occurred_at=occurred_at or now,
        now=now,
    )


def _tool_name(tx: sqlite3.Connection, session: int, call: str) -> str | None:
    return rows.tool_names(tx, session).get(call)


def redacted(services: Services, parts: Any) -> Any:
    """`parts` with every text in it as it may be stored."""
    if isinstance(parts, str):
        return services.stored_text(parts, "content", blank=True)
    if isinstance(parts, list):
        return [redacted(services, part) for part in parts]
    if isinstance(parts, dict):
        return {key: redacted(services, value) for key, value in parts.items()}
    return parts
