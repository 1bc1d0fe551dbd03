"""L0: what an agent saw, did and gained at each step. Recording is one short transaction and asks nobody.

The line that search sees is made by the file itself (view `turn_line`), for rows written here as for those written by
hand: one rule instead of two that drift apart. It costs 10 µs of the 160 a turn takes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from istar_lite import places, runs
from istar_lite.clock import to_text
from istar_lite.database import insert_rows
from istar_lite.errors import BadInput
from istar_lite.models import TurnRecord
from istar_lite.runs import Run
from istar_lite.values import as_int, as_list, as_real, as_text, dump, plain

if TYPE_CHECKING:
    from istar_lite.database import sqlite3
    from istar_lite.services import Services


class _Checked(NamedTuple):
    """A turn as its columns take it. `text` and `occurred_at` are None where the host left them out."""

    turn: int
    reward: float | None
    reward_unit: str
    events: str
    actions_taken: str
    extra: str
    text: str | None
    occurred_at: str | None


def record(services: Services, run: Run, turn: TurnRecord) -> int:
    """Writes one turn and returns its row id. The newest turn again with the same content changes nothing."""
    checked = _check(services, turn)
    now = services.now()
    with services.file.write() as tx:
        session, newest = _place(tx, run, now)
        if newest is not None and checked.turn <= newest:
            return _repeated(tx, session, checked, newest)
        return _write(tx, [_values(session, checked, now)])[0]


def record_many(services: Services, run: Run, turns: Iterable[TurnRecord]) -> list[int]:
    """Writes turns in one transaction, all or none. Returns their row ids."""
    checked = [_check(services, turn) for turn in as_list(turns, "records")]  # everything, before anything is written
    now = services.now()
    with services.file.write() as tx:
        session, newest = _place(tx, run, now)
        ids: list[int] = []
        new: list[tuple[Any, ...]] = []
        for turn in checked:
            if newest is None or turn.turn > newest:
                new.append(_values(session, turn, now))
                newest = turn.turn
            else:
                ids += _write(tx, new)  # what is repeated is compared with the file
                new = []
                ids.append(_repeated(tx, session, turn, newest))
        return ids + _write(tx, new)


def _place(tx: sqlite3.Connection, run: Run, now: str) -> tuple[int, int | None]:
    """The run's session, made if it is new, and the number of its newest turn. Asked from the file each time: another
    process may be recording into the same run."""
    session, newest = runs.newest_turn(tx, run)
    if session is None:
        session = places.ensure_session(tx, run.namespace, run.name, "run", now)
    return session, newest


def _write(tx: sqlite3.Connection, rows: Sequence[tuple[Any, ...]]) -> list[int]:
    columns = "session, turn, reward, reward_unit, events, actions_taken, extra, text, occurred_at, recorded_at"
    return insert_rows(tx, "turn", columns, rows)


def _values(session: int, turn: _Checked, now: str) -> tuple[Any, ...]:
    return (
        session,
        turn.turn,
        turn.reward,
        turn.reward_unit,
        turn.events,
        turn.actions_taken,
        turn.extra,
        turn.text,
        turn.occurred_at or now,
        now,
    )


def _repeated(tx: sqlite3.Connection, session: int, turn: _Checked, newest: int) -> int:
    """The id of the newest turn when `turn` is that one again: a host that retries must not fail."""
    if turn.turn < newest:
        raise BadInput("turn", f"{turn.turn} is not above the run's newest turn {newest}: numbers rise within a run")
    row = tx.execute("select * from turn where session = ? and turn = ?", (session, newest)).fetchone()
    for column in ("reward", "reward_unit", "events", "actions_taken", "extra", "text", "occurred_at"):
        given = getattr(turn, column)
        left_out = given is None and column in ("text", "occurred_at")  # then the file's own was taken
        if not left_out and given != row[column]:
            raise BadInput(
                "turn",
                f"{turn.turn} is the run's newest turn {newest} and was recorded with another {column}:"
                f" {str(row[column])[:80]!r}, now {str(given)[:80]!r}",
            )
    return int(row["id"])


def _check(services: Services, turn: TurnRecord) -> _Checked:
    if not isinstance(turn, TurnRecord):
        raise BadInput("record", f"a TurnRecord is wanted, not {type(turn).__name__}")
    redact = services.redact
    return _Checked(
        as_int(turn.turn, "turn"),
        None if turn.reward is None else as_real(turn.reward, "reward"),
        services.stored_text(turn.reward_unit, "reward_unit", blank=True) if turn.reward_unit else "",
        _items(turn.events, "events", redact),
        _items(turn.actions_taken, "actions_taken", redact),
        _fields(turn.extra, "extra", redact) if turn.extra else "{}",
        None if turn.text is None else services.stored_text(turn.text, "text"),
        None if turn.occurred_at is None else to_text(turn.occurred_at),
    )


def _items(value: object, field: str, redact: Callable[[str], str] | None) -> str:
    """JSON of a list (of texts or dicts) or of one dict; one bare text is a list of one."""
    if value == []:
        return "[]"
    held = plain(value, field)
    if held is None:
        held = []
    elif isinstance(held, str):
        held = [held]
    elif not isinstance(held, (list, dict)):
        raise BadInput(field, f"a list of texts or dicts is wanted, not {type(value).__name__}")
    return _text_of(held, field, redact)


def _fields(value: object, field: str, redact: Callable[[str], str] | None) -> str:
    """JSON of a dict."""
    held = plain({} if value is None else value, field)
    if not isinstance(held, dict):
        raise BadInput(field, f"a dict is wanted, not {type(value).__name__}")
    return _text_of(held, field, redact)


def _text_of(held: Any, field: str, redact: Callable[[str], str] | None) -> str:
    if redact is not None:
        held = _redacted(held, field, redact)
    return dump(held)


def _redacted(held: Any, field: str, redact: Callable[[str], str]) -> Any:
    """Every text inside, keys too, through the host's redaction."""
    if isinstance(held, str):
        return as_text(redact(held), "redact", blank=True)
    if isinstance(held, list):
        return [_redacted(item, field, redact) for item in held]
    if isinstance(held, Mapping):
        result = {as_text(redact(key), "redact", blank=True): _redacted(held[key], field, redact) for key in held}
        if len(result) < len(held):
            raise BadInput(field, "two keys become the same by redaction")
        return result
    return held
