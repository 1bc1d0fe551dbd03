"""What all models have in common, and those that a search gives. A program that only searches makes no others: the
forty classes of `models.py`, which has these too, take as long as ten searches."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator
from datetime import datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Annotated, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, PrivateAttr, Strict, ValidationError

from istar_lite import notebook
from istar_lite.errors import BadInput
from istar_lite.text import clean
from istar_lite.values import INTEGER_LIMIT, plain

Status = Literal["active", "evicted", "superseded", "merged"]
Ranking = Literal["balanced", "ebbinghaus"]
KINDS = ("turn", "atom", "episode", "profile", "message", "memory", "observation", "reflection", "file", "item")
EMOTIONS = ("joy", "sadness", "anger", "fear", "surprise", "love", "neutral")


# pydantic takes True, 3.0 and "3" for the number 3: more likely a slip than a turn.
Whole = Annotated[int, Strict(), Field(ge=-INTEGER_LIMIT, lt=INTEGER_LIMIT)]
Priority = Annotated[float, Strict(), Field(ge=0, le=100, allow_inf_nan=False)]


def _mended(value: Any) -> Any:
    """What hosts do have and pydantic refuses, in a form it takes: texts with half an emoji in them, numbers of other
    libraries. Done after it refused, so that all others do not pay for it."""
    if isinstance(value, str):
        return clean(value)
    if isinstance(value, (tuple, list)):
        return type(value)(map(_mended, value)) if type(value) in (tuple, list) else value
    if isinstance(value, (bool, int, float)):
        return value
    try:
        return operator.index(value)
    except TypeError:
        pass
    try:
        return float(value) if isinstance(value, Decimal) or getattr(value, "ndim", None) == 0 else value
    except (TypeError, ValueError):  # a signalling NaN; an array of texts
        return value


class Record(BaseModel):
    """Base of all models: frozen, unknown fields refused, wrong values a `BadInput` that names the field."""

    model_config = ConfigDict(frozen=True, extra="forbid", arbitrary_types_allowed=True, defer_build=True)

    if not TYPE_CHECKING:  # type checkers keep pydantic's own signature

        def __init__(self, *values: Any, **named: Any) -> None:
            if values:
                named = {**self._by_name(values), **named}
            try:
                super().__init__(**named)
            except ValidationError:
                self._init_mended(named)

        def _init_mended(self, named: dict[str, Any]) -> None:
            try:
                super().__init__(**{name: _mended(value) for name, value in named.items()})
            except RecursionError as error:
                raise BadInput(type(self).__name__, "a value holds itself, or is nested too deeply") from error
            except ValidationError as error:
                first = error.errors()[0]
                field = ".".join(str(part) for part in first["loc"]) or type(self).__name__
                raise BadInput(field, first["msg"]) from error

        @classmethod
        def _by_name(cls, values: tuple[Any, ...]) -> dict[str, Any]:
            names = list(cls.model_fields)
            if len(values) > len(names):
                raise BadInput(cls.__name__, f"takes {len(names)} values, {len(values)} were given")
            return dict(zip(names, values, strict=False))

    @classmethod
    def of_ours(cls, values: dict[str, Any]) -> Self:
        """A model of values that we know to be right: all fields, nothing checked, no validator built. (pydantic's
        `model_construct` goes through each field's aliases and defaults: ten times as long, and a search makes 30.)"""
        made = cls.__new__(cls)
        object.__setattr__(made, "__dict__", values)
        object.__setattr__(made, "__pydantic_fields_set__", set(values))
        object.__setattr__(made, "__pydantic_extra__", None)
        object.__setattr__(made, "__pydantic_private__", None)
        return made

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready: times as ISO text in UTC, tuples as lists."""
        return {name: json_ready(getattr(self, name), name) for name in type(self).model_fields}


def json_ready(value: object, field: str) -> Any:
    """`value` as JSON's own types; models by their own `to_dict`."""
    if isinstance(value, Record):
        return value.to_dict()
    if isinstance(value, (list, tuple)):
        return [json_ready(item, field) for item in value]
    return plain(value, field)


# --- search ---------------------------------------------------------------------------------------------------


class Source(Record):
    """A row that another one rests on, or its neighbour."""

    kind: str
    id: int
    text: str
    session: str | None = None
    speaker: str | None = None
    occurred_at: datetime | None = None
    external_id: str | None = None


class Hit(Record):
    """Something found. `id` is the row's id in the table `kind`; `score` in [0, 1), higher is better."""

    kind: str
    id: int
    text: str
    title: str | None = None
    score: float
    session: str | None = None
    speaker: str | None = None
    occurred_at: datetime
    external_id: str | None = None
    status: str = "active"
    sources: tuple[Source, ...] = ()
    explain: Any = None

    def _shown(self) -> dict[str, Any]:
        what = f"{self.kind} {self.id}" + ("" if self.status == "active" else f" ({self.status})")
        return {
            "score": notebook.Share(self.score),
            "what": what,
            "when": self.occurred_at,
            "where": self.session,
            "who": self.speaker,
            "text": self.text,
        }

    def _repr_html_(self) -> str:
        """For a notebook: the hit, and the rows it rests on."""
        rests = {f"{source.kind} {source.id}": source.text for source in self.sources}
        return notebook.pairs({**self._shown(), **rests}, self.title or self.kind)

    def _repr_pretty_(self, printer: notebook.Printer, cycle: bool) -> None:
        printer.text(notebook.plain([self._shown()], self.title or self.kind))


class Results(Record):
    """The hits, best first: a sequence. `mode` tells what ranked them ("hybrid", "words", "empty" …); `filtered`
    how many were held back by the floor or `min_score`."""

    hits: tuple[Hit, ...] = ()
    mode: str = "empty"
    filtered: int = 0
    query: str = ""
    _explain_missing: Callable[[str, int], str] | None = PrivateAttr(default=None)

    def explain_missing(self, kind: str, id: int) -> str:
        """At which step an expected row was lost, in one sentence."""
        if self._explain_missing is None:
            return "nothing was asked: the query was blank, or these results are a copy"
        return self._explain_missing(kind, id)

    def __getstate__(self) -> dict[Any, Any]:
        """For pickle and copies: the hits go, what answers `explain_missing` stays, since it holds the open file."""
        state = super().__getstate__()
        return {**state, "__pydantic_private__": {"_explain_missing": None}}

    def _caption(self) -> str:
        held = f", {self.filtered} held back" if self.filtered else ""
        return f"{len(self.hits)} found for “{self.query}” ({self.mode}{held})"

    def _repr_html_(self) -> str:
        """For a notebook: a line for each hit."""
        return notebook.table([hit._shown() for hit in self.hits], self._caption())

    def _repr_pretty_(self, printer: notebook.Printer, cycle: bool) -> None:
        printer.text(notebook.plain([hit._shown() for hit in self.hits], self._caption()))

    def __len__(self) -> int:
        return len(self.hits)

    def __bool__(self) -> bool:
        return bool(self.hits)

    def __getitem__(self, at: Any) -> Any:
        return self.hits[at]

    def __iter__(self) -> Iterator[Hit]:  # type: ignore[override]  # a sequence of hits, not of (name, value)
        return iter(self.hits)
