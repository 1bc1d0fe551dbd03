"""The context: what the main model is sent, always within its budget.

Duties in their order: the budget; the newest exchange raw; all of the log whole. So the log takes the place of older
messages first, then a reflection the place of the log, and only then is the newest exchange itself observed, of which
the prompt and the last unit (a tool call with its results) stay, cut in the middle if even they do not fit. Whatever
the model does, `arrange` finds what fits: it asks nobody.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from istar_lite import tasks
from istar_lite.frames import FRAME_MARK, escape_frame, fence
from istar_lite.llm import Flow
from istar_lite.observations import claims, reflector, rows
from istar_lite.observations.cutting import cut_message, shares, text_of
from istar_lite.observations.observer import observe
from istar_lite.observations.parts import to_message
from istar_lite.observations.units import Spoken, Unit, newest_exchange, units
from istar_lite.observations.watch import step_of

if TYPE_CHECKING:
    from istar_lite.observations.watch import Watch

# The observation message is a user's: what memory hands out is data, and a system message would lend it authority
# that a stored "ignore all previous instructions" must not have. (Some APIs know no second system message either.)
HEAD_ROLE = "user"
HEAD_TITLE = "the conversation so far"
_PREAMBLE = (
    "The earlier part of this conversation is not shown as it was said: this dated log stands for it (times are UTC). "
    "Where two lines differ, the later one holds."
)
_RECALL = "The tool `recall` finds the exact words of anything that was said."
_LEAST_SHARE = 0.25  # of the room, for the newest exchange when the log would take more
_LEAST_SHOWN = 40  # tokens in which a message can be shown at all: a few words and the note that it was cut
_LEAST_ROOM = 0.01  # of the window, however much the host says it needs itself


@dataclass(frozen=True, slots=True)
class View:
    """What a context is made of, read at one moment; `head` is the observation message of the whole log."""

    log: rows.Log
    pinned: tuple[Spoken, ...]
    messages: tuple[Spoken, ...]
    recall: bool
    head: dict[str, Any] | None
    head_tokens: int

    @property
    def newest(self) -> int:
        """Where in `messages` the newest exchange begins."""
        return newest_exchange(self.messages)

    @property
    def uncovered(self) -> tuple[Spoken, ...]:
        """Messages that nothing stands for yet in the context: raw and buffered ones."""
        return tuple(message for message in self.messages if _is_raw(message))


def _is_raw(message: Spoken) -> bool:
    return message.stage in ("raw", "buffered")


@dataclass(frozen=True, slots=True)
class Shown:
    """A context: pinned messages, the observation message, the raw tail (each message with its cut form, if any).
    `left_out`: raw messages that found no room."""

    pinned: tuple[Spoken, ...]
    head: dict[str, Any] | None
    tail: tuple[tuple[Spoken, dict[str, Any] | None], ...]
    left_out: tuple[Spoken, ...]
    tokens: int
    log: rows.Log

    @property
    def cut(self) -> tuple[Spoken, ...]:
        """Messages that are shown in part."""
        return tuple(message for message, short in self.tail if short is not None)

    def messages(self) -> list[dict[str, Any]]:
        """As message dicts."""
        opening = [to_message(one.role, one.content, one.parts) for one in self.pinned]
        head = [] if self.head is None else [self.head]
        return [*opening, *head, *(short or to_message(one.role, one.content, one.parts) for one, short in self.tail)]


def read(watch: Watch, session: int, *, recall: bool) -> View:
    """What the context is made of, from one state of the file. `recall`: the observation message names the tool."""
    with watch.services.file.reading() as connection:
        log = rows.log(connection, session)
        pinned = tuple(rows.pinned(connection, session))
        messages = tuple(rows.in_context(connection, session))
    head = head_message(log, recall=recall)
    return View(log, pinned, messages, recall, head, _count(watch, head))


# A log of 200,000 tokens takes 0.4 s to escape, and hardly changes from call to call.
_escaped = lru_cache(maxsize=64)(escape_frame)


def head_message(log: rows.Log, *, recall: bool, without: int = 0, left_out: int = 0) -> dict[str, Any] | None:
    """The observation message; None when there is nothing to say. `without`: how many of the oldest entries of the
    log there is no room for."""
    shown = log.entries[without:]
    hints = log.current_task or log.suggested_response
    if not (shown or left_out or hints or (recall and log.observations)):
        return None
    lines = [_PREAMBLE, *([_RECALL] if recall else [])]
    if without:
        lines.append(f"Older parts of the log that there is no room for here: {without}.")
    parts = {
        "observations": "\n".join(map(_escaped, shown)),
        "current-task": _escaped(log.current_task or ""),
        "suggested-response": _escaped(log.suggested_response or ""),
    }
    lines += [f"<{tag}>\n{text.strip()}\n</{tag}>" for tag, text in parts.items() if text.strip()]
    if left_out:
        lines.append(f"{left_out} messages after that are neither shown nor in the log yet.")
    return {"role": HEAD_ROLE, "content": fence(HEAD_TITLE, "\n".join(lines), escaped=True)}


def total(view: View) -> int:
    """Tokens of the whole context: pinned messages, observation message, and everything nothing stands for; of the
    newest exchange, where the log stands for it already, what it takes to show it at all."""
    size = view.head_tokens + sum(one.tokens for one in view.pinned) + sum(one.tokens for one in view.uncovered)
    if len(view.uncovered) == len(view.messages):
        return size
    groups = units(view.messages)
    return size + _least_shown([one for at in _essential(view, groups) for one in groups[at].messages])


def _least_shown(messages: Sequence[Spoken]) -> int:
    """Tokens in which those of `messages` can be shown that the log stands for already."""
    return sum(min(message.tokens, _LEAST_SHOWN) for message in messages if not _is_raw(message))


def is_head(message: Mapping[str, Any]) -> bool:
    """Whether it is an observation message that we gave out, in a list that a host took over."""
    content = message.get("content")
    return isinstance(content, str) and content.lstrip().startswith(f'<{FRAME_MARK} about="{HEAD_TITLE}"')


# --- making room ----------------------------------------------------------------------------------------------


def activate_older(watch: Watch, session: int, view: View) -> View:
    """Buffered chunks that do not reach into the newest exchange take the place of their messages."""
    limit = view.messages[view.newest].id if view.messages else 0
    return _activate(watch, session, view, [one for one in _buffered(watch, session) if one.last_message < limit])


def _buffered(watch: Watch, session: int) -> list[Any]:
    return rows.observations(watch.services.file.reader(), session, "buffered")


def _activate(watch: Watch, session: int, view: View, chunks: Sequence[Any]) -> View:
    if not chunks:
        return view
    with watch.services.file.write() as tx:
        rows.activate(tx, [one.id for one in chunks])
    return read(watch, session, recall=view.recall)


def make_room(watch: Watch, session: int, extra: int, *, recall: bool) -> Flow[None]:
    """Brings the context under its budget, as far as the model answers; then condenses the log if that is due.
    (`activate_older` has been done.)"""
    view = read(watch, session, recall=recall)

    def is_over() -> bool:
        return total(view) + extra >= watch.budgets.activation

    if is_over():
        yield from _observe_now(watch, session, view.uncovered[: _older(view)])
        view = read(watch, session, recall=recall)
    yield from _reflect_if_due(watch, session, view.log, urgent=is_over())
    view = read(watch, session, recall=recall)
    if is_over():
        view = _activate(watch, session, view, _buffered(watch, session))
    if is_over():
        yield from _observe_now(watch, session, _inner(view))
        view = read(watch, session, recall=recall)
    if is_over():
        cut = arrange(watch, view, extra).cut
        yield from _observe_now(watch, session, [one for one in cut if one.stage == "raw"])


def _older(view: View) -> int:
    """How many of the uncovered messages stand before the newest exchange."""
    start = view.messages[view.newest].id if view.messages else 0
    return sum(message.id < start for message in view.uncovered)


def _inner(view: View) -> list[Spoken]:
    """Of the newest exchange what lies between its prompt and its last unit: a long run of tool calls."""
    exchange = units(view.messages[view.newest :])
    inner = exchange[1:-1] if exchange and exchange[0].messages[0].is_prompt else exchange[:-1]
    return [message for unit in inner for message in unit.messages if _is_raw(message)]


def _observe_now(watch: Watch, session: int, messages: Sequence[Spoken]) -> Flow[None]:
    """Observes messages because their room is needed, unless that failed already at this very step."""
    wanted = [message for message in messages if message.stage == "raw"]
    if not wanted:
        return
    connection = watch.services.file.reader()
    step, now = step_of(connection, session), watch.services.now()
    open_work = claims.open_tasks(connection, session, "observe")
    if any(not claims.may_try_now(row, now=now, step=step, urgent=True) for row in open_work):
        return
    yield from observe(watch, session, wanted, sync=True, step=step)


def _reflect_if_due(watch: Watch, session: int, log: rows.Log, *, urgent: bool) -> Flow[None]:
    if log.tokens < watch.budgets.reflection:
        return
    connection = watch.services.file.reader()
    if reflector.activate_buffered(watch, session):
        log = rows.log(connection, session)
        if log.tokens < watch.budgets.reflection:
            return
    step, now = step_of(connection, session), watch.services.now()
    for row in claims.open_tasks(connection, session, "reflect"):
        # A log that could not be condensed is tried again when it has grown, or when time has passed.
        tried = row["state"] == "failed" and row["last"] == log.newest and not urgent
        if tried and not tasks.may_try(row, now=now):
            return
        if not claims.may_try_now(row, now=now, step=step, urgent=urgent):
            return
    if log.observations:
        yield from reflector.reflect(watch, session, sync=True, step=step)


# --- what fits ------------------------------------------------------------------------------------------------


def arrange(watch: Watch, view: View, extra: int) -> Shown:
    """What is shown, within the budget: everything if it fits."""
    budgets = watch.budgets
    pinned = sum(one.tokens for one in view.pinned)
    fixed = extra + pinned
    everything = _tail(view.messages)
    size = view.head_tokens + sum(one.tokens for one in view.messages)
    if fixed + size < budgets.activation:
        return Shown(view.pinned, view.head, everything, (), pinned + size, view.log)
    window = budgets.window or 0
    room = max(int(budgets.activation) - 1 - fixed, int(window * _LEAST_ROOM), 1)
    return _fit(watch, view, room, pinned)


def _tail(messages: Sequence[Spoken]) -> tuple[tuple[Spoken, dict[str, Any] | None], ...]:
    return tuple((message, None) for message in messages)


def _count(watch: Watch, message: dict[str, Any] | None) -> int:
    return 0 if message is None else watch.services.count_tokens(text_of(message))


def _fit(watch: Watch, view: View, room: int, pinned: int) -> Shown:
    """What fits. The line that says how many messages are left out needs room too: if any are, it is fitted in."""
    shown = _fitted(watch, view, room, pinned, left_out=0)
    return shown if not shown.left_out else _fitted(watch, view, room, pinned, left_out=len(view.messages))


def _fitted(watch: Watch, view: View, room: int, pinned: int, *, left_out: int) -> Shown:
    """The newest exchange first (its prompt, its last unit), then the log, then what else there is, newest first.
    `left_out`: as many messages are expected to be left out."""
    groups = units(view.messages)
    kept = _essential(view, groups)
    needed = sum(groups[at].tokens for at in kept)
    log_room = room - (needed if needed <= room * (1 - _LEAST_SHARE) else int(room * _LEAST_SHARE))
    without = _entries_without_room(watch, view, log_room, left_out)

    def head(count: int) -> dict[str, Any] | None:
        return None if without is None else head_message(view.log, recall=view.recall, without=without, left_out=count)

    left = room - _count(watch, head(left_out))
    essential = [message for at in sorted(kept) for message in groups[at].messages]
    short = _cut_to_fit(watch, essential, _share_of_essential(view, essential, left))
    left -= sum(tokens for _, tokens in short.values())
    kept |= _that_fit(groups, kept, left)
    out = _raw_outside(groups, kept)
    tail = tuple(
        (message, short[message.id][0] if message.id in short else None)
        for at in sorted(kept)
        for message in groups[at].messages
    )
    size = sum(one.tokens if cut is None else _count(watch, cut) for one, cut in tail)
    opening = head(len(out))
    return Shown(view.pinned, opening, tail, out, pinned + _count(watch, opening) + size, view.log)


def _raw_outside(groups: Sequence[Unit], kept: set[int]) -> tuple[Spoken, ...]:
    """Messages that are neither shown nor in the log."""
    outside = (group for at, group in enumerate(groups) if at not in kept)
    return tuple(message for group in outside for message in group.messages if _is_raw(message))


def _essential(view: View, groups: Sequence[Unit]) -> set[int]:
    """The units that are shown whatever happens: the one with the newest prompt, and the last one."""
    if not groups:
        return set()
    prompt = view.messages[view.newest].id
    holding = next((at for at, group in enumerate(groups) if group.first <= prompt <= group.last), len(groups) - 1)
    return {holding, len(groups) - 1}


def _share_of_essential(view: View, essential: Sequence[Spoken], room: int) -> int:
    """Tokens for the essential messages. Of those that the log stands for already, what nothing stands for yet has
    the better claim: they take what it leaves, if that is enough to show them at all."""
    least = _least_shown(essential)
    raw = sum(message.tokens for message in view.uncovered)
    if not least or raw + least > room:
        return room
    return room - raw + sum(message.tokens for message in essential if _is_raw(message))


def _entries_without_room(watch: Watch, view: View, room: int, left_out: int) -> int | None:
    """How many of the oldest entries must go so that the rest, each whole, fits; None: not even the frame does."""
    for without in range(len(view.log.entries) + 1):
        head = head_message(view.log, recall=view.recall, without=without, left_out=left_out)
        if _count(watch, head) <= room:
            return without
    return None


def _cut_to_fit(watch: Watch, messages: Sequence[Spoken], room: int) -> dict[int, tuple[dict[str, Any] | None, int]]:
    """Id → (cut form or None, tokens), so that all fit into `room` together."""
    count = watch.services.count_tokens
    given = shares([message.tokens for message in messages], max(room, 0))
    result: dict[int, tuple[dict[str, Any] | None, int]] = {}
    for message, share in zip(messages, given, strict=True):
        if message.tokens <= share:
            result[message.id] = (None, message.tokens)
        else:
            short = cut_message(message, share, count)
            result[message.id] = (short, _count(watch, short))
    return result


def _that_fit(groups: Sequence[Unit], kept: set[int], room: int) -> set[int]:
    """Units beside the kept ones that fit, newest first; a raw one that does not fit ends it, one that the log
    stands for is only passed over."""
    more: set[int] = set()
    for at in range(len(groups) - 1, -1, -1):
        if at in kept:
            continue
        if groups[at].tokens <= room:
            more.add(at)
            room -= groups[at].tokens
        elif any(_is_raw(message) for message in groups[at].messages):
            break
    return more
