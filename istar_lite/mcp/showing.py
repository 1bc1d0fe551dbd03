"""How rows and hits are shown to a model: fenced as data, one entry a row, with where it comes from."""

from __future__ import annotations

import json
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from istar_lite.frames import fence, indented, one_line
from istar_lite.mcp.results import Found
from istar_lite.text import shorten

if TYPE_CHECKING:
    from istar_lite.models import Hit, Row

MOST = 4_000  # characters of one text in a list; fetch gives all of it
_INNER = ("id", "namespace", "stale", "stability", "access_count", "last_accessed_at", "mention_count",
          "last_mentioned_at", "recorded_at", "parts", "digest")  # fmt: skip
_TEXTS = ("text", "content", "narrative", "value")  # where the kinds keep what they say


def text_of(row: Row) -> str:
    """What a row says."""
    values = row.to_values()
    return next((str(values[name]) for name in _TEXTS if values.get(name) is not None), "")


def is_live(row: Row) -> bool:
    """Whether a row holds now: not ended, not stale, not past its time."""
    values = row.to_values()
    expires = values.get("expires_at")
    return (
        values.get("status", "active") == "active"
        and not values.get("stale")
        and (expires is None or expires > datetime.now(UTC))
    )


def found(hit: Hit) -> Found:
    """Where a hit comes from."""
    return Found(
        kind=hit.kind,
        id=hit.id,
        score=round(hit.score, 4),
        session=_safe(hit.session),
        speaker=_safe(hit.speaker),
        title=_safe(hit.title),
        occurred_at=iso(hit.occurred_at),
    )


def listed(kind: str, row: Row) -> Found:
    """Where a listed row comes from."""
    values = row.to_values()
    title = next((values[name] for name in ("title", "name", "path", "profile_id", "key") if values.get(name)), None)
    at = next((values[name] for name in ("occurred_at", "updated_at") if values.get(name)), None)
    return Found(
        kind=kind, id=values["id"], speaker=_safe(values.get("speaker")), title=_safe(title), occurred_at=iso(at)
    )


def block(title: str, entries: Iterable[tuple[Found, str]]) -> str:
    """The texts as one fenced block: an entry begins with what and when it is."""
    lines = [_entry(place, text) for place, text in entries]
    return fence(title, "\n".join(lines) or "(nothing)", escaped=True)


def _entry(place: Found, text: str) -> str:
    # A date without its zone is read as the reader's own, a day off for half the world.
    day = "" if place.occurred_at is None else f"{place.occurred_at[:10]} UTC"
    about = [f"{place.kind} {place.id}", day, place.speaker or ""]
    cut = shorten(text, MOST)
    more = f"\n    (cut here; fetch {place.kind}:{place.id} gives all {len(text)} characters)" if cut != text else ""
    return f"- ({', '.join(part for part in about if part)}) {indented(cut)}{more}"


def headline(hit: Hit) -> str:
    """A title for a result: the first words of what it says, or its own title with them."""
    words = one_line(shorten(" ".join(hit.text.split()), 100))
    own = hit.title if hit.kind in ("file", "item", "episode", "profile") else None
    return f"{one_line(own)}: {words}" if own else words


def metadata(row: Row) -> dict[str, str]:
    """The short columns of a row as text."""
    return {
        name: one_line((iso(value) or "") if isinstance(value, datetime) else str(value))
        for name, value in row.to_values().items()
        if value is not None and name not in (*_TEXTS, *_INNER) and len(str(value)) <= 200
    }


def as_json(value: Any) -> str:
    """JSON for a resource."""
    return json.dumps(value, ensure_ascii=False, indent=2)


def iso(moment: datetime | None) -> str | None:
    """A time as text, UTC."""
    return None if moment is None else moment.astimezone(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")


def _safe(name: str | None) -> str | None:
    """Names are stored text too."""
    return None if name is None else one_line(shorten(str(name), 200))
