"""LoCoMo JSON: long conversations between two people, in dated sessions; sessions are named `<sample_id>/<n>`."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from typing import Any

from istar_lite.importing.items import Item, Numbered, Said, Unreadable

_SESSION = re.compile(r"session_(\d+)")
_DATE = re.compile(r"\s*(\d{1,2}):(\d{2})\s*([ap]m)\s+on\s+(\d{1,2})\s+([a-z]+),?\s+(\d{4})\s*", re.IGNORECASE)
# By name and not by strptime, whose month names follow the locale.
_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")


def matches(item: Mapping[str, Any]) -> bool:
    """Whether an item looks like a LoCoMo sample."""
    conversation = item.get("conversation")
    return isinstance(conversation, Mapping) and any(_SESSION.fullmatch(str(key)) for key in conversation)


def read(items: Iterable[Numbered]) -> Iterator[Item]:
    """The turns of every sample, session by session. `number` is that of the sample."""
    for number, item in items:
        if not (isinstance(item, Mapping) and matches(item)):
            yield Unreadable(number, "holds no conversation with sessions")
            continue
        conversation = item["conversation"]
        sample = str(item.get("sample_id") or number)
        for key in sorted((key for key in conversation if _SESSION.fullmatch(key)), key=_ordinal):
            yield from _session(
                number, f"{sample}/{_ordinal(key)}", conversation[key], conversation.get(f"{key}_date_time")
            )


def _ordinal(key: str) -> int:
    return int(key.removeprefix("session_"))


def _session(number: int, name: str, turns: Any, date: Any) -> Iterator[Item]:
    if not isinstance(turns, list):
        yield Unreadable(number, f"{name}: is not a list of turns")
        return
    occurred_at = parse_date(date)
    if occurred_at is None and date is not None:
        yield Unreadable(number, f"{name}: {date!r} is no date such as '1:56 pm on 8 May, 2023'; its turns are undated")
    for turn in turns:
        if not isinstance(turn, Mapping):
            yield Unreadable(number, f"{name}: holds a turn that is not a JSON object")
            continue
        yield Said(
            number,
            _content(turn),
            speaker=turn.get("speaker"),
            parts=_picture(turn),
            external_id=turn.get("dia_id"),
            occurred_at=occurred_at,
            session=name,
        )


def _content(turn: Mapping[str, Any]) -> Any:
    """Text and caption. The caption comes first, so that a turn that asks still ends in its question mark."""
    text, caption = turn.get("text", ""), turn.get("blip_caption")
    if not isinstance(text, str) or not isinstance(caption, str) or not caption:
        return text
    return f"({caption}) {text}".rstrip()


def _picture(turn: Mapping[str, Any]) -> list[dict[str, Any]] | None:
    picture = {key: turn[key] for key in ("img_url", "blip_caption", "query") if turn.get(key)}
    return [{"type": "image", **picture}] if picture else None


def parse_date(value: Any) -> datetime | None:
    """The (naive, so local) time that `1:56 pm on 8 May, 2023` names, or None."""
    match = _DATE.fullmatch(value) if isinstance(value, str) else None
    if match is None:
        return None
    hour, minute, half, day, month, year = match.groups()
    if month[:3].lower() not in _MONTHS:
        return None
    afternoon = 12 if half.lower() == "pm" else 0
    try:
        return datetime(
            int(year), 1 + _MONTHS.index(month[:3].lower()), int(day), int(hour) % 12 + afternoon, int(minute)
        )
    except ValueError:
        return None
