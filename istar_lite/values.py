"""Checks of arguments, done before anything is written: a wrong value gets a `BadInput` that names its field.

What JSON columns accept (`to_json`), and the form in which it comes back: str, int, float, bool, None, lists and
dicts as they are; tuples and sets as lists (sets sorted by their JSON); datetimes as UTC ISO text, dates as ISO
text; Decimal, UUID and paths as text; an Enum as its value; dataclasses and pydantic models as dicts; numpy scalars
and arrays as numbers and lists; int, float and bool keys as text. NaN, infinities, bytes, other objects and
structures that contain themselves are refused: stored as something else they would come back as something else.
"""

from __future__ import annotations

import dataclasses
import json
import math
import operator
from collections.abc import Iterable, Mapping, Sequence
from datetime import date, datetime
from decimal import Decimal
from enum import Enum
from pathlib import PurePath
from typing import TYPE_CHECKING, Any
from uuid import UUID

from istar_lite.clock import to_text
from istar_lite.errors import BadInput
from istar_lite.later import Later
from istar_lite.text import clean, is_blank

if TYPE_CHECKING:
    import pydantic
    import pydantic_core
else:
    pydantic = Later("pydantic")
    pydantic_core = Later("pydantic_core")

INTEGER_LIMIT = 2**63
MILLIARD = 10**9


def as_text(value: object, field: str, *, blank: bool = False) -> str:
    """`value` as storable text; refuses other types, and blank text unless `blank`."""
    if not isinstance(value, str):
        raise BadInput(field, f"text is wanted, not {type(value).__name__}")
    text = clean(value)
    if not blank and is_blank(text):
        raise BadInput(field, "is blank")
    return text


def as_name(value: object, field: str) -> str:
    """A namespace, session, run, profile or key: non-blank text, compared exactly and with case."""
    return as_text(value, field)


def as_int(value: object, field: str, *, low: int = -INTEGER_LIMIT, high: int = INTEGER_LIMIT - 1) -> int:
    """`value` as an integer within `low`…`high` (by default what SQLite holds); refuses bool and fractions."""
    if isinstance(value, bool):
        raise BadInput(field, "a whole number is wanted, not bool")
    try:
        number = operator.index(value)  # type: ignore[arg-type]
    except TypeError as error:
        raise BadInput(field, f"a whole number is wanted, not {type(value).__name__}") from error
    if not low <= number <= high:
        raise BadInput(field, f"{number} lies outside {low} to {high}")
    return number


def as_real(value: object, field: str, *, low: float = -math.inf, high: float = math.inf) -> float:
    """`value` as a finite float within `low`…`high`; accepts int, float, Decimal, Fraction, numpy scalars."""
    if isinstance(value, (bool, str, bytes)) or not hasattr(value, "__float__"):
        raise BadInput(field, f"a number is wanted, not {type(value).__name__}")
    try:
        number = float(value)
    except (TypeError, ValueError, OverflowError) as error:
        raise BadInput(field, f"{type(value).__name__} is no number here ({error})") from error
    if not math.isfinite(number):
        raise BadInput(field, f"{number} is not a finite number")
    if not low <= number <= high:
        raise BadInput(field, f"{number} lies outside {low} to {high}")
    return number


def as_tags(value: object, field: str = "tags") -> tuple[str, ...]:
    """Tags as a tuple of distinct non-blank texts in the order given; one bare text is refused (a likely slip)."""
    told = as_list(value, field, "a list of texts")
    return tuple(dict.fromkeys(as_text(tag, f"{field}[{at}]") for at, tag in enumerate(told)))


def as_list(value: object, field: str, wanted: str = "a list") -> Iterable[Any]:
    """`value` to go through once: any iterable but one text or one mapping, which are slips that would pass silently
    as a list of letters or keys."""
    if isinstance(value, (str, bytes, bytearray, Mapping)) or not isinstance(value, Iterable):
        raise BadInput(field, f"{wanted} is wanted, not {type(value).__name__}")
    return value


def to_json(value: object, field: str) -> str:
    """Strict JSON text of `value` (see the module's docstring for what is accepted)."""
    return dump(plain(value, field))


def dump(held: Any) -> str:
    """Strict JSON text of what `plain` gave. (`json.dumps` makes an encoder each time: six times as slow.)"""
    return pydantic_core.to_json(held).decode()


def plain(value: object, field: str, _inside: tuple[int, ...] = ()) -> Any:
    """`value` as JSON's own types; `BadInput` names the path of what cannot be held, such as `extra.price[2]`."""
    if _is_simple(value):
        return clean(value) if type(value) is str else value
    if isinstance(value, Enum):
        return plain(value.value, field, _inside)
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, str):
        return clean(value)
    if isinstance(value, int):
        # SQLite's json_extract would hand back a larger integer as a rounded float.
        return as_int(int(value), field)
    if isinstance(value, float):
        return as_real(value, field)
    if isinstance(value, datetime):
        return to_text(value, field)
    if isinstance(value, date):
        return value.isoformat()
    if isinstance(value, (Decimal, UUID, PurePath)):
        return clean(str(value))
    return _plain_container(value, field, _inside)


def _plain_container(value: object, field: str, inside: tuple[int, ...]) -> Any:
    if id(value) in inside:
        raise BadInput(field, "contains itself")
    if len(inside) > 100:
        raise BadInput(field, "is nested more than 100 levels deep")
    inside = (*inside, id(value))
    if type(value) is dict:
        return _plain_mapping(value, field, inside)
    if type(value) is list:
        return _plain_items(value, field, inside)
    if isinstance(value, pydantic.BaseModel):
        value = {name: getattr(value, name) for name in type(value).model_fields}
    elif dataclasses.is_dataclass(value) and not isinstance(value, type):
        value = {item.name: getattr(value, item.name) for item in dataclasses.fields(value)}
    elif hasattr(value, "tolist") and hasattr(value, "dtype"):  # numpy, without importing it
        return plain(value.tolist(), field, inside)
    if isinstance(value, Mapping):
        return _plain_mapping(value, field, inside)
    if isinstance(value, (list, tuple)):
        return _plain_items(value, field, inside)
    if isinstance(value, (set, frozenset)):
        items = [plain(item, f"{field}{{}}", inside) for item in value]
        return sorted(items, key=lambda item: json.dumps(item, sort_keys=True))
    raise BadInput(field, f"{type(value).__name__} cannot be stored as JSON")


def _is_simple(value: object) -> bool:
    """What nearly all values are: text or a sound number. They need neither the many questions nor a path."""
    kind = type(value)
    return kind is str or (kind is float and math.isfinite(value)) or (kind is int and -MILLIARD < value < MILLIARD)  # type: ignore[arg-type,operator]


def _plain_items(value: Sequence[Any], field: str, inside: tuple[int, ...]) -> list[Any]:
    return [
        (clean(item) if type(item) is str else item) if _is_simple(item) else plain(item, f"{field}[{at}]", inside)
        for at, item in enumerate(value)
    ]


def _plain_mapping(value: Mapping[Any, Any], field: str, inside: tuple[int, ...]) -> dict[str, Any]:
    result: dict[str, Any] = {}
    for key, item in value.items():
        name = _key(key, field)
        if name in result:
            raise BadInput(field, f"two keys become {name!r} as text")
        if _is_simple(item):
            result[name] = clean(item) if type(item) is str else item
        else:
            result[name] = plain(item, f"{field}.{name}", inside)
    return result


def _key(key: object, field: str) -> str:
    if type(key) is str:
        return clean(key)
    if isinstance(key, Enum):
        key = key.value
    if isinstance(key, str):
        return clean(key)
    if isinstance(key, (bool, int, float)) or key is None:
        return json.dumps(key)
    if isinstance(key, (UUID, date)):
        return str(key)
    raise BadInput(field, f"a key of type {type(key).__name__} cannot be stored as JSON")
