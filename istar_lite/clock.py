"""Instants: one stored form, `2026-01-02T03:04:05.678Z`, so that text order is time order in every SQLite tool.

The rule for input: aware datetimes, ISO-8601 text and epoch seconds name an instant; naive datetimes and ISO text
without an offset (also a bare date, which is its midnight) are local time. Nothing below the facade reads the
wall clock: the time is an argument.
"""

from __future__ import annotations

import math
import re
import time
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from functools import lru_cache
from numbers import Real

from istar_lite.errors import BadInput, FileDamaged

Instant = datetime | date | str | float | int
Clock = Callable[[], float | datetime]
YEAR_9999 = 253_370_764_800.0  # its first second

_ISO = re.compile(r"\d{4}-\d{2}-\d{2}([T ]\d{2}(:?\d{2}(:?\d{2}([.,]\d{1,9})?)?)?\s?(Z|z|[+-]\d{2}(:?\d{2})?)?)?")


def wall_clock() -> float:
    """Seconds since 1970, from the machine. The one place that asks it."""
    return time.time()


def parse_time(value: object, field: str) -> datetime:
    """The aware UTC datetime that `value` names; `BadInput(field)` for anything that names none."""
    moment = _aware(value, field)
    try:
        return moment.astimezone(UTC)
    except (OverflowError, OSError, ValueError) as error:
        raise BadInput(field, f"{value!r} lies outside the years 1 to 9999") from error


def _aware(value: object, field: str) -> datetime:
    if isinstance(value, datetime):
        return value
    if isinstance(value, date):
        return datetime(value.year, value.month, value.day)
    if isinstance(value, str):
        return _from_text(value, field)
    if isinstance(value, Real) and not isinstance(value, bool):
        return _from_epoch(float(value), field)
    raise BadInput(field, f"a time is a datetime, ISO text or epoch seconds, not {type(value).__name__}")


def _from_text(value: str, field: str) -> datetime:
    text = value.strip()
    # fromisoformat also reads week dates and bare years ("2026-W01", "20260101"): too easily a typing mistake.
    if not _ISO.fullmatch(text):
        raise BadInput(field, f"{value[:40]!r} is not an ISO-8601 time such as 2026-01-02T03:04:05Z")
    try:
        return datetime.fromisoformat(re.sub(r"\s(?=[Zz+-])", "", text).replace("z", "Z").replace(",", "."))
    except ValueError as error:
        raise BadInput(field, f"{value!r} is no possible date and time ({error})") from error


def _from_epoch(value: float, field: str) -> datetime:
    if not math.isfinite(value):
        raise BadInput(field, f"{value!r} is no time")
    try:
        return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(seconds=value)
    except OverflowError as error:
        raise BadInput(field, f"{value!r} seconds lie outside the years 1 to 9999") from error


def to_text(value: object, field: str = "occurred_at") -> str:
    """The stored form of an instant: ISO-8601, UTC, milliseconds (cut, not rounded), `Z`."""
    return format_time(parse_time(value, field))


def epoch_to_text(seconds: float) -> str:
    """The stored form of epoch seconds (0 to YEAR_9999): `to_text` in a fifth of its time, for the clock that every
    write asks."""
    whole, micros = divmod(round(seconds * 1_000_000), 1_000_000)
    return f"{_second_to_text(whole)}{micros // 1000:03d}Z"


@lru_cache(maxsize=4)
def _second_to_text(second: int) -> str:
    return (datetime(1970, 1, 1) + timedelta(seconds=second)).isoformat() + "."


def format_time(moment: datetime) -> str:
    """The stored form of an aware datetime."""
    return moment.astimezone(UTC).replace(tzinfo=None).isoformat(timespec="milliseconds") + "Z"


def from_text(stored: str) -> datetime:
    """The aware UTC datetime of a stored time. One that a shell wrote in SQLite's own form (without an offset) is UTC;
    what is no time at all raises `FileDamaged`."""
    try:
        moment = datetime.fromisoformat(stored)
    except (TypeError, ValueError) as error:
        raise FileDamaged(f"{stored!r} is no time; `istar-lite check` names the row") from error
    return moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)


def epoch(stored: str) -> float:
    """Epoch seconds of a stored time."""
    return from_text(stored).timestamp()


def later(stored: str, seconds: float) -> str:
    """The stored time `seconds` after `stored`, held at the last millisecond of the year 9999."""
    try:
        return format_time(from_text(stored) + timedelta(seconds=seconds))
    except OverflowError:
        return "9999-12-31T23:59:59.999Z"
