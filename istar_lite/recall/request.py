"""What is searched for: the arguments of `search`, checked before anything is read."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, get_args

from istar_lite.clock import to_text
from istar_lite.errors import BadInput
from istar_lite.records import KINDS, Status
from istar_lite.values import as_int, as_name, as_real, as_tags

if TYPE_CHECKING:
    from istar_lite.recall.signals import Weights

STATUSES: tuple[str, ...] = get_args(Status)
# Documents (kind, row id) that stand a chance → a factor for each: what the caller knows beforehand.
Prior = Callable[[Sequence[tuple[str, int]]], Sequence[float]]


@dataclass(frozen=True, slots=True)
class Request:
    """A checked request. Times are stored text; `None` is no restriction, for `statuses` as well ("any")."""

    namespace: str
    query: str
    k: int = 10
    kinds: tuple[str, ...] | None = None
    sessions: tuple[str, ...] | None = None
    tags: tuple[str, ...] = ()
    since: str | None = None
    until: str | None = None
    as_of: str | None = None
    statuses: tuple[str, ...] | None = ("active",)
    min_score: float | None = None
    sources: bool = True
    floor: bool = False
    explain: bool = True
    prior: Prior | None = None
    weights: Weights | None = None  # None: those of signals.py; others are for measuring


def make_request(
    namespace: str,
    query: Any,
    *,
    k: Any = 10,
    kinds: Any = None,
    session: Any = None,
    tags: Any = None,
    since: Any = None,
    until: Any = None,
    as_of: Any = None,
    status: Any = "active",
    min_score: Any = None,
    sources: bool = True,
    floor: bool = False,
    explain: bool = True,
    prior: Prior | None = None,
    weights: Weights | None = None,
) -> Request:
    """The arguments of `Memory.search` as a `Request`; `BadInput` names the one at fault."""
    if not isinstance(query, str):
        raise BadInput("query", f"text is wanted, not {type(query).__name__}")
    return Request(
        namespace=namespace,
        query=query,
        k=as_int(k, "k", low=0),
        kinds=_choices(kinds, "kinds", KINDS),
        sessions=None if session is None else tuple(as_name(name, "session") for name in _listed(session, "session")),
        tags=() if tags is None else as_tags([tags] if isinstance(tags, str) else tags),
        since=None if since is None else to_text(since, "since"),
        until=None if until is None else to_text(until, "until"),
        as_of=None if as_of is None else to_text(as_of, "as_of"),
        statuses=None if status == "any" else _choices(status, "status", STATUSES),
        min_score=None if min_score is None else as_real(min_score, "min_score", low=0.0, high=1.0),
        sources=bool(sources),
        floor=floor,
        explain=explain,
        prior=prior,
        weights=weights,
    )


def _listed(value: Any, field: str) -> list[Any]:
    if isinstance(value, str):
        return [value]
    if not isinstance(value, Iterable):
        raise BadInput(field, f"a name or a list of names is wanted, not {type(value).__name__}")
    return list(value)


def _choices(value: Any, field: str, known: Sequence[str]) -> tuple[str, ...] | None:
    if value is None:
        return None
    chosen = tuple(_listed(value, field))
    for one in chosen:
        if one not in known:
            raise BadInput(field, f"{one!r} is none of {', '.join(known)}")
    return chosen
