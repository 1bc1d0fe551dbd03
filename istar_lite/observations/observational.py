"""`ObservationalMemory`: a long conversation within its context window, as `memory.observe()` gives it."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, Self, TypeVar

from istar_lite.clock import to_text
from istar_lite.errors import BadInput
from istar_lite.llm import Flow
from istar_lite.models import (
    Message,
    Observation,
    ObservationConfig,
    ObservationEvent,
    ObservationState,
    ReflectionEvent,
)
from istar_lite.observations import claims, rows, window
from istar_lite.observations.background import BACKGROUNDS
from istar_lite.observations.hosts_list import ContextMessages, Listed, checked, laid_out, take_over
from istar_lite.observations.limits import Limit, within
from istar_lite.observations.observer import observe
from istar_lite.observations.recall_tool import RecallTool, note_trail, search_messages
from istar_lite.observations.saying import say
from istar_lite.observations.watch import Event, Watch, make_budgets, step_of
from istar_lite.observations.work import queue_due, work_session
from istar_lite.running import arun_flow, in_thread, run_flow
from istar_lite.trail import write_trail
from istar_lite.values import as_int, as_name, as_real

if TYPE_CHECKING:
    from istar_lite.clock import Instant
    from istar_lite.services import Services

E = TypeVar("E", ObservationEvent, ReflectionEvent)
Need = Literal["nothing", "reflection", "room"]
BackgroundKind = Literal["thread", "async"] | None


@dataclass(frozen=True, slots=True)
class _Plan:
    """What one call of the host came for: the session, the tokens it needs itself, the time it will wait."""

    session: int
    extra: int
    limit: Limit


class ObservationalMemory:
    """One conversation. `add` what is said; before each call of the main model send what `context()` gives; after it,
    `turn_end()`. An observer turns older messages into a dated log while the conversation runs; near the end of the
    context window the log takes their place, and a reflector condenses the log when it grows.

    Nothing of it is kept here: another object, or another process, on the same session sees the same. A context
    manager; leaving it waits for the work under way.
    """

    def __init__(
        self,
        services: Services,
        namespace: str,
        session: str,
        *,
        context_window: int,
        utility_window: int | None = None,
        config: ObservationConfig | None = None,
        background: BackgroundKind = "thread",
    ) -> None:
        budgets = make_budgets(context_window, utility_window, ObservationConfig() if config is None else config)
        if background not in BACKGROUNDS:
            raise BadInput("background", f"{background!r} is none of 'thread', 'async', None")
        self._services = services
        self._watch = Watch(services, as_name(namespace, "namespace"), as_name(session, "session"), budgets)
        self._background = BACKGROUNDS[background](services, self._work)
        self._handlers: dict[type[Event], list[Callable[[Any], object]]] = {ObservationEvent: [], ReflectionEvent: []}
        self._overhead = 0  # what the host counted in its last call beyond our own count
        self._left_out = 0
        self._recall_offered = False
        self._handed: str | None = None
        with services.lock:
            services.watchers.add(self)

    @property
    def session(self) -> str:
        """The name of the conversation."""
        return self._watch.session

    @property
    def config(self) -> ObservationConfig:
        """The budgets it was opened with."""
        return self._watch.budgets.config

    # --- what is said -----------------------------------------------------------------------------------------

    def add(self, role: str, content: Any, *, occurred_at: Instant | None = None, **more: Any) -> Message:
        """Keeps a message. `content`: text, or parts in the OpenAI or the Anthropic form (text, tool calls, tool
        results); `more`: what the host's message holds beside it (`tool_calls`, `tool_call_id`, a speaker's `name` …),
        so that `add(**message)` takes a whole message dict. Asks nobody. Raises `BadInput`."""
        name = as_name(role, "role")
        moment = None if occurred_at is None else to_text(occurred_at)
        with self._services.file.write() as tx:
            session = self._watch.ensure(tx)
            return rows.as_message(say(self._services, tx, session, name, content, more, occurred_at=moment))

    # --- the host's turn --------------------------------------------------------------------------------------

    def turn_end(self, total_tokens: int | None = None) -> None:
        """The host's turn is over: what is due is put into the queue and begun in the background. `total_tokens`:
        what the host counted for its last call; where it is larger than our own count it holds."""
        if self._end_turn(total_tokens):
            self._background.kick()

    def _end_turn(self, total_tokens: int | None) -> bool:
        """Puts what is due into the queue; whether there is work."""
        counted = None if total_tokens is None else as_int(total_tokens, "total_tokens", low=0)
        session = self._watch.find()
        if session is None or self._services.file.read_only:
            return False
        connection = self._services.file.reader()
        estimate = sum(rows.waiting_tokens(connection, session)) + rows.log(connection, session).tokens
        if counted is not None:
            self._overhead = max(0, counted - estimate)
        return self._queue(session, estimate + self._overhead)

    def _queue(self, session: int, tokens: int) -> bool:
        queue_due(self._watch, session, tokens / (self._watch.budgets.window or 1))
        connection = self._services.file.reader()
        return any(claims.open_tasks(connection, session, purpose) for purpose in ("observe", "reflect"))

    async def aturn_end(self, total_tokens: int | None = None) -> None:
        """`turn_end` for async callers."""
        if await asyncio.to_thread(self._end_turn, total_tokens):
            self._background.kick()

    def context(self, extra_tokens: int = 0) -> ContextMessages:
        """The messages to send: below 0.9 of the window everything as it was said, else the log first and then what
        nothing stands for yet, the newest exchange raw. Always within the budget; what found no room is counted in
        `.left_out`. `extra_tokens`: what the host sends beside it (its system text, its tools).

        May ask the model, when room is needed and nothing lies ready; waits no longer than the time limit of the
        model (`llm_timeout`) in all. A model that fails costs no message: the newest that fit are returned, the rest
        stays due (`state()`).
        """
        plan = self._plan(extra_tokens)
        if plan is None:
            return ContextMessages([])
        return self._shown(plan, self._make_room(plan))

    async def acontext(self, extra_tokens: int = 0) -> ContextMessages:
        """`context` for async callers."""
        plan = await asyncio.to_thread(self._plan, extra_tokens)
        if plan is None:
            return ContextMessages([])
        view = await self._amake_room(plan)
        return await asyncio.to_thread(self._shown, plan, view)

    def _plan(self, extra_tokens: int) -> _Plan | None:
        extra = as_int(extra_tokens, "extra_tokens", low=0)
        session = self._watch.find()
        if session is None:
            return None
        return _Plan(session, max(extra, self._overhead), Limit(self._services.llm_timeout))

    def _make_room(self, plan: _Plan) -> window.View:
        """Makes room as far as that is needed; what the context is to be made of."""
        need, view = self._needs(plan)
        if need == "room":
            # What is being observed now is what the room is needed of: nobody may observe it a second time.
            self._background.wait(plan.limit.left)
            need, view = self._needs(plan)
        if need == "nothing":
            return view
        run_flow(self._services, within(self._room(plan), plan.limit))
        return self._read(plan)

    async def _amake_room(self, plan: _Plan) -> window.View:
        need, view = await asyncio.to_thread(self._needs, plan)
        if need == "room":
            await self._background.await_(plan.limit.left)
            need, view = await asyncio.to_thread(self._needs, plan)
        if need == "nothing":
            return view
        await arun_flow(self._services, within(self._room(plan), plan.limit))
        return await asyncio.to_thread(self._read, plan)

    def _room(self, plan: _Plan) -> Flow[None]:
        return window.make_room(self._watch, plan.session, plan.extra, recall=self._recall_offered)

    def _read(self, plan: _Plan) -> window.View:
        return window.read(self._watch, plan.session, recall=self._recall_offered)

    def _needs(self, plan: _Plan) -> tuple[Need, window.View]:
        """What the context lacks once the chunks that lie ready have taken their places."""
        view = self._read(plan)
        if self._services.file.read_only:
            return "nothing", view
        limit = self._watch.budgets.activation
        if window.total(view) + plan.extra >= limit:
            view = window.activate_older(self._watch, plan.session, view)
            if window.total(view) + plan.extra >= limit:
                return "room", view
        return ("reflection" if view.log.tokens >= self._watch.budgets.reflection else "nothing"), view

    def _shown(self, plan: _Plan, view: window.View) -> ContextMessages:
        shown = window.arrange(self._watch, view, plan.extra)
        self._note(plan, shown)
        return ContextMessages(shown.messages(), left_out=len(shown.left_out), tokens=shown.tokens)

    def _note(self, plan: _Plan, shown: window.Shown) -> None:
        """Keeps what was left out for `state()`, and writes the trail when another log goes into the prompt."""
        self._left_out = len(shown.left_out)
        text = None if shown.head is None else str(shown.head["content"])
        if text is None or text == self._handed or self._services.file.read_only:
            return
        self._handed = text
        services = self._services
        with services.file.write() as tx:
            write_trail(
                tx, self._watch.namespace, plan.session, "observation", None, rows.handed(shown.log), services.now()
            )

    # --- hosts that keep their own list -----------------------------------------------------------------------

    def transform(self, messages: Sequence[Mapping[str, Any]], utilisation: float) -> ContextMessages:
        """For hosts that keep their own list of messages: the messages to send, with `.dropped` telling which of the
        list are not among them. `utilisation`: the share of the context window that the list fills by the host's
        count (0.5 is half). New messages of the list are kept in the file; system messages stay where they are and
        are not kept. The host may go on with its own list or with what this returns.
        """
        plan, listed = self._take_over(messages, utilisation)
        if plan is None:
            return ContextMessages([one.message for one in listed])
        result = self._transformed(plan, listed, self._make_room(plan))
        self._background.kick()
        return result

    async def atransform(self, messages: Sequence[Mapping[str, Any]], utilisation: float) -> ContextMessages:
        """`transform` for async callers."""
        plan, listed = await asyncio.to_thread(self._take_over, messages, utilisation)
        if plan is None:
            return ContextMessages([one.message for one in listed])
        view = await self._amake_room(plan)
        result = await asyncio.to_thread(self._transformed, plan, listed, view)
        self._background.kick()
        return result

    def _take_over(self, messages: object, utilisation: float) -> tuple[_Plan | None, list[Listed]]:
        """Keeps what is new of the host's list. No plan when nothing was ever said."""
        share = as_real(utilisation, "utilisation", low=0.0)
        listed = take_over(self._watch, checked(messages))
        session = self._watch.find()
        if session is None:
            return None, listed
        given = sum(one.tokens for one in listed)
        uncounted = max(0, int(share * (self._watch.budgets.window or 0)) - given)
        self._overhead = uncounted + sum(one.tokens for one in listed if one.stays)
        return _Plan(session, self._overhead, Limit(self._services.llm_timeout)), listed

    def _transformed(self, plan: _Plan, listed: Sequence[Listed], view: window.View) -> ContextMessages:
        ids = {one.id for one in listed}
        view = replace(view, pinned=(), messages=tuple(one for one in view.messages if one.id in ids))
        shown = window.arrange(self._watch, view, plan.extra)
        self._note(plan, shown)
        short = {message.id: cut for message, cut in shown.tail}
        self._queue(plan.session, shown.tokens + plan.extra)
        return laid_out(listed, shown.head, short, left_out=len(shown.left_out), tokens=shown.tokens)

    # --- observing by hand, events ----------------------------------------------------------------------------

    def trigger(self) -> tuple[Observation, ...]:
        """Observes now everything that is raw, and lets the log stand for it; the new observations. The newest
        exchange is still shown as it was said. Empty when there is nothing, or when the model failed (`state()`)."""
        session = self._watch.find()
        if session is None:
            return ()
        limit = Limit(self._services.llm_timeout)
        self._background.wait(limit.left)
        return run_flow(self._services, within(self._trigger(session), limit))

    async def atrigger(self) -> tuple[Observation, ...]:
        """`trigger` for async callers."""
        session = await asyncio.to_thread(self._watch.find)
        if session is None:
            return ()
        limit = Limit(self._services.llm_timeout)
        await self._background.await_(limit.left)
        return await arun_flow(self._services, within(self._trigger(session), limit))

    def _trigger(self, session: int) -> Flow[tuple[Observation, ...]]:
        connection = self._services.file.reader()
        messages = rows.raw(connection, session)
        written = yield from observe(self._watch, session, messages, sync=True, step=step_of(connection, session))
        ready = rows.observations(self._services.file.reader(), session, "buffered")
        if ready:
            with self._services.file.write() as tx:
                rows.activate(tx, [one.id for one in ready])
        return written

    def on_observation(self, handler: Callable[[ObservationEvent], object]) -> Callable[[ObservationEvent], object]:
        """Calls `handler` after each observation, whoever made it in this process; no lock is held. One that raises
        is logged. Usable as a decorator."""
        return self._register(ObservationEvent, handler)

    def on_reflection(self, handler: Callable[[ReflectionEvent], object]) -> Callable[[ReflectionEvent], object]:
        """`on_observation` for reflections."""
        return self._register(ReflectionEvent, handler)

    def _register(self, kind: type[E], handler: Callable[[E], object]) -> Callable[[E], object]:
        if not callable(handler):
            raise BadInput("handler", f"a function is wanted, not {type(handler).__name__}")
        # It runs in whatever thread made the observation: its coroutine would be made and never awaited.
        if inspect.iscoroutinefunction(handler):
            raise BadInput("handler", "an async function is not awaited here: give a plain one that starts a task")
        self._handlers[kind].append(handler)
        return handler

    def watches(self, namespace: str, session: str) -> bool:
        """Whether it is this conversation."""
        return (self._watch.namespace, self._watch.session) == (namespace, session)

    def handlers(self, kind: type[Event]) -> list[Callable[[Any], object]]:
        """The handlers for a kind of event."""
        return list(self._handlers[kind])

    # --- looking ----------------------------------------------------------------------------------------------

    def recall_tool(self, search: Callable[..., Any] | None = None) -> RecallTool:
        """The tool by which the main model finds the exact words of anything said here; from now on the observation
        message says that it is there. `search(query, since=…, until=…)`: the host's own, giving texts, dicts or
        objects with `text` (and `role`, `occurred_at`); times are ISO text or None."""
        if search is not None and not callable(search):
            raise BadInput("search", f"a function is wanted, not {type(search).__name__}")
        self._recall_offered = True
        return RecallTool(search or partial(search_messages, self._watch), partial(note_trail, self._watch))

    def state(self) -> ObservationState:
        """Where the conversation stands, from the rows: the log and the hints, tokens raw and observed, what is
        buffered, in flight, due, failed, and how many messages the last `context()` had no room for."""
        session = self._watch.find()
        if session is None:
            return ObservationState()
        services = self._services
        with services.file.reading() as connection:
            log = rows.log(connection, session)
            sizes = connection.execute("select * from observation_state where session = ?", (session,)).fetchone()
            now = services.now()
            work = [row for one in ("observe", "reflect") for row in claims.open_tasks(connection, session, one)]
        held = len([row for row in work if claims.is_held(row, now)])
        failed = [row for row in work if row["state"] == "failed"]
        newest = max(failed, key=lambda row: (row["next_try_at"] or "", row["id"]), default=None)
        return ObservationState(
            observations=log.text,
            current_task=log.current_task,
            suggested_response=log.suggested_response,
            tokens=log.tokens,
            generation=log.generation,
            buffered=sizes["buffered"],
            in_flight=held,
            due=len(work) - held - len(failed),
            failed=len(failed),
            tokens_raw=sizes["tokens_raw"],
            tokens_observed=sizes["tokens_observed"],
            compression=sizes["compression"],
            last_error=None if newest is None else newest["last_error"],
            left_out=self._left_out,
        )

    # --- the end ----------------------------------------------------------------------------------------------

    def wait(self, timeout: float | None = None) -> bool:
        """Waits until nothing is under way in the background; False when that takes longer than `timeout` seconds
        (or when a handler calls it from the work itself)."""
        return self._background.wait(timeout)

    async def await_(self, timeout: float | None = None) -> bool:
        """`wait` for async callers (`await` is a word of the language)."""
        return await self._background.await_(timeout)

    def close(self, wait: bool = True, timeout: float | None = None) -> bool:
        """Ends the background work: waits for it (at most `timeout` seconds), or abandons it at once. What was
        abandoned is due again at once, and its late answer is dropped. True when nothing was abandoned. The object
        can still be used."""
        done = self._background.wait(timeout) if wait else not self._background.busy
        if not done:
            self._background.stop()
            self._release()
        return done

    async def aclose(self, wait: bool = True, timeout: float | None = None) -> bool:
        """`close` for async callers."""
        done = await self._background.await_(timeout) if wait else not self._background.busy
        if not done:
            self._background.stop()
            await asyncio.to_thread(self._release)
        return done

    def _release(self) -> None:
        """Gives back what this object's worker has claimed in the session."""
        services = self._services
        if services.file.closed or services.file.read_only:
            return
        session = self._watch.find()
        if session is None:
            return
        with services.file.write() as tx:
            tx.execute(
                "update task set state = 'due', claim = null, claimed_until = null, attempts = max(0, attempts - 1)"
                " where session = ? and purpose in ('observe', 'reflect') and state = 'claimed' and claim glob ?",
                (session, f"{services.worker}/*"),
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close(wait=error is None)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose(wait=error is None)

    def _work(self, services: Services) -> Flow[int]:
        session = self._watch.find()
        if session is None:
            return 0
        return (yield from work_session(replace(self._watch, services=services), session))

    # --- async twins ------------------------------------------------------------------------------------------

    async def aadd(self, role: str, content: Any, *, occurred_at: Instant | None = None, **more: Any) -> Message:
        """`add` for async callers; it runs in a worker thread."""
        return await asyncio.to_thread(partial(self.add, role, content, occurred_at=occurred_at, **more))

    astate = in_thread(state)
