"""How the project asks a model: flows, and the two drivers that run them.

A *flow* is a generator: it does short database work, yields an `Ask`, receives an `Answer`, works again,
returns. It knows neither threads nor event loops, so each layer is written once: `drive` runs it for
synchronous callers, `adrive` for asynchronous ones. No transaction may be open across a `yield`.

Whatever the model does wrong comes back as `Answer.error`. Only what means "stop" (KeyboardInterrupt,
SystemExit, CancelledError) is thrown into the flow, which can release there what it holds, and is then raised
again.

Nothing here or in clients.py belongs to an event loop: one memory serves `asyncio.run` after `asyncio.run`.
"""

from __future__ import annotations

import contextvars
import threading
from collections.abc import Awaitable, Callable, Generator
from dataclasses import dataclass
from functools import partial
from time import perf_counter
from typing import TYPE_CHECKING, Generic, TypeAlias, TypeVar, cast

from istar_lite.clients import LLM, Ask, ChatMessage, Model, adapt, as_llm
from istar_lite.later import Later
from istar_lite.replies import Reply

if TYPE_CHECKING:
    import asyncio
    from concurrent import futures
else:
    asyncio = Later("asyncio")
    futures = Later("concurrent.futures")

__all__ = ["LLM", "Answer", "Ask", "ChatMessage", "Flow", "adrive", "as_llm", "drive"]

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Answer:
    """What came of an `Ask`: the `text`, maybe empty, or None and the `error`; `seconds` is how long it took.

    `model`, `tokens_in` and `tokens_out` are None where the client did not tell.
    """

    text: str | None
    error: Exception | None = None
    seconds: float = 0.0
    model: str | None = None
    tokens_in: int | None = None
    tokens_out: int | None = None


Flow: TypeAlias = Generator[Ask, Answer, T]


def drive(flow: Flow[T], llm: LLM, *, timeout: float | None) -> T:
    """Run a flow to its end in this thread and give its result; `timeout` seconds for each call of the model.

    An asynchronous model runs in a loop of its own. Works inside a running loop too, but blocks it; `adrive`
    does not.
    """
    model = adapt(llm)
    try:
        step = _advance(flow, None)
        while isinstance(step, Ask):
            step = _advance(flow, _ask(model, step, _limit(step, timeout)))
    except BaseException as interruption:
        _interrupt(flow, interruption)
        raise
    return step.value


async def adrive(flow: Flow[T], llm: LLM, *, timeout: float | None) -> T:
    """`drive` for asynchronous callers: the flow's steps run in threads, one at a time; the loop stays free."""
    model = adapt(llm)
    try:
        step = await _to_its_end(partial(_advance, flow, None))
        while isinstance(step, Ask):
            answer = await _aask(model, step, _limit(step, timeout))
            step = await _to_its_end(partial(_advance, flow, answer))
    except GeneratorExit:  # this coroutine is being thrown away: nothing can be awaited any more
        flow.close()
        raise
    except BaseException as interruption:
        await _to_its_end(partial(_interrupt, flow, interruption))
        raise
    return step.value


def _limit(ask: Ask, timeout: float | None) -> float | None:
    """Seconds for one call: the driver's, or fewer where the flow has fewer left."""
    return timeout if ask.timeout is None else ask.timeout if timeout is None else min(ask.timeout, timeout)


# --- steps of a flow ----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Done(Generic[T]):
    """A flow's result. (StopIteration itself cannot pass through a future.)"""

    value: T


def _advance(flow: Flow[T], answer: Answer | None) -> Ask | _Done[T]:
    try:
        return next(flow) if answer is None else flow.send(answer)
    except StopIteration as stop:
        return _Done(stop.value)


def _interrupt(flow: Flow[T], interruption: BaseException) -> None:
    """Let the flow release what it holds; one that has ended, by an error of its own too, takes no notice."""
    try:
        flow.throw(interruption)
    except StopIteration:
        return
    except BaseException as error:
        if error is not interruption:
            raise
    else:
        flow.close()  # it would have gone on asking


async def _to_its_end(step: Callable[[], T]) -> T:
    """Run database work in a thread, to its end even when cancelled meanwhile; only then be cancelled.

    To leave at once would leave a generator that is still executing, and maybe an open transaction.
    """
    running = asyncio.wrap_future(start_thread(step))
    cancelled: asyncio.CancelledError | None = None
    while not running.done():
        try:
            await asyncio.wait({running})
        except asyncio.CancelledError as error:
            cancelled = error
    if cancelled is not None:
        running.exception()  # looked at, lest asyncio complains that nobody did
        raise cancelled
    return running.result()


# --- one question to the model ------------------------------------------------------------------------------


def _ask(model: Model, ask: Ask, timeout: float | None) -> Answer:
    start = perf_counter()
    try:
        return _answer(_reply(model, ask, timeout), start)
    except Exception as error:  # noqa: BLE001 - a model may raise anything, and the host's turn must go on
        return Answer(None, error, perf_counter() - start, model.name)


async def _aask(model: Model, ask: Ask, timeout: float | None) -> Answer:
    start = perf_counter()
    try:
        return _answer(await _within(_areply(model, ask), timeout), start)
    except Exception as error:  # noqa: BLE001 - as in `_ask`
        return Answer(None, error, perf_counter() - start, model.name)


def _answer(reply: Reply, start: float) -> Answer:
    return Answer(str(reply), None, perf_counter() - start, reply.model, reply.tokens_in, reply.tokens_out)


def _reply(model: Model, ask: Ask, timeout: float | None) -> Reply:
    if timeout is None and not _inside_a_loop():
        return _settled(model, ask, None)
    # A call that hangs cannot be stopped from outside: its thread is left behind, and its late answer
    # dropped.
    future = start_thread(partial(_settled, model, ask, timeout))
    futures.wait([future], timeout)
    if not future.done():
        raise _late(timeout)
    return future.result()


def _settled(model: Model, ask: Ask, timeout: float | None) -> Reply:
    reply = model.send(ask)
    # A fresh loop for each call: one kept for all would be stuck for good behind a coroutine that blocks.
    return reply if isinstance(reply, Reply) else asyncio.run(_within(reply, timeout))


async def _areply(model: Model, ask: Ask) -> Reply:
    if model.asynchronous:
        return await model.asend(ask)
    reply = await asyncio.wrap_future(start_thread(partial(model.send, ask)))
    return reply if isinstance(reply, Reply) else await reply


async def _within(awaitable: Awaitable[T], timeout: float | None) -> T:
    """What the awaitable gives, or TimeoutError.

    Not `asyncio.wait_for`, which waits on for a model that ignores its cancellation.
    """
    task = asyncio.ensure_future(_outcome(awaitable))
    try:
        await asyncio.wait({task}, timeout=timeout)
    except asyncio.CancelledError:
        task.cancel()
        raise
    if not task.done():
        task.cancel()
        raise _late(timeout)
    value, error = task.result()
    if error is not None:
        raise error
    return cast(T, value)


async def _outcome(awaitable: Awaitable[T]) -> tuple[T | None, BaseException | None]:
    """The value, or the error as a value: KeyboardInterrupt raised by a task would tear down the loop."""
    try:
        return await awaitable, None
    except BaseException as error:  # noqa: BLE001 - raised again by `_within`
        return None, error


def _inside_a_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


def _late(timeout: float | None) -> TimeoutError:
    return TimeoutError(f"the model did not answer within {timeout:g} s")


def start_thread(function: Callable[[], T]) -> futures.Future[T]:
    """Start `function` in a daemon thread: for a pool's threads exit, and `asyncio.run` too, would wait."""
    future: futures.Future[T] = futures.Future()
    future.set_running_or_notify_cancel()  # from here on nobody's `cancel` can make `set_result` fail
    context = contextvars.copy_context()

    def run() -> None:
        try:
            result = context.run(function)
        except BaseException as error:  # noqa: BLE001 - carried to whoever waits, KeyboardInterrupt too
            future.set_exception(error)
        else:
            future.set_result(result)

    threading.Thread(target=run, name="istar-lite", daemon=True).start()
    return future
