"""Who drives the work in the background: a thread, an asyncio task, or nobody (the host calls `memory.work()`).

There is one thread or task per object at most, only while there is work; none lies idle, so none is left behind. What
it does is claimed in the file, so that two of them, or two processes, do nothing twice. It never raises into the
host's turn: failures of the model are told by `status()`, others are logged; only what means "stop" (a
KeyboardInterrupt that a model raised) is raised again at the host's next call.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable
from contextvars import ContextVar
from dataclasses import replace
from typing import TYPE_CHECKING

from istar_lite.errors import IstarError
from istar_lite.llm import Flow, start_thread
from istar_lite.running import arun_flow, run_flow

if TYPE_CHECKING:
    from concurrent.futures import Future

    from istar_lite.services import Services

Work = Callable[["Services"], Flow[int]]
# Whose work is being done here: threads and tasks that it starts, the handlers it calls among them, inherit it.
_worker: ContextVar[Background | None] = ContextVar("worker", default=None)
_log = logging.getLogger("istar_lite.observations")


class Background:
    """Nobody: work stays in the queue."""

    def __init__(self, services: Services, work: Work) -> None:
        # The host that asked for on_error="raise" asked for its own steps, not for a thread that dies.
        self._services = replace(services, on_error="keep")
        self._work = work
        self._lock = threading.Lock()
        self._again = False
        self._idle = threading.Event()
        self._idle.set()
        self._stop: BaseException | None = None

    @property
    def busy(self) -> bool:
        """Whether work is being done."""
        return not self._idle.is_set()

    def kick(self) -> None:
        """There may be work: somebody is to look."""

    def wait(self, timeout: float | None) -> bool:
        """Waits until nothing is being done; False when that takes longer than `timeout` seconds."""
        if _worker.get() is self:
            return False  # a handler that waits for the work it is called from would wait for ever
        done = self._idle.wait(timeout)
        self.raise_stop()
        return done

    async def await_(self, timeout: float | None) -> bool:
        """`wait` for async callers."""
        return await asyncio.to_thread(self.wait, timeout)

    def stop(self) -> None:
        """The host waits no longer; what comes late is dropped (its claim is released by the caller)."""

    def raise_stop(self) -> None:
        """Raises what meant "stop", once."""
        with self._lock:
            stop, self._stop = self._stop, None
        if stop is not None:
            raise stop

    def _begin(self) -> bool:
        """Whether to start; if somebody is at work they will look once more."""
        with self._lock:
            if self.busy:
                self._again = True
                return False
            self._idle.clear()
            return True

    def _goes_on(self) -> bool:
        """Whether to look once more; if not, this worker has ended (decided under the lock: no kick is lost)."""
        with self._lock:
            again, self._again = self._again, False
            if not again:
                self._idle.set()
            return again

    def _failed(self, error: BaseException) -> None:
        with self._lock:
            self._again = False
            if not isinstance(error, Exception | asyncio.CancelledError):
                self._stop = error
            self._idle.set()
        if isinstance(error, Exception) and not self._services.file.closed:
            _log.error("background work of a conversation stopped; it stays due", exc_info=error)


class ThreadBackground(Background):
    """A daemon thread."""

    def kick(self) -> None:
        self.raise_stop()
        if self._services.llm is not None and self._begin():
            start_thread(self._run).add_done_callback(self._ended)

    def _run(self) -> None:
        _worker.set(self)
        while True:
            run_flow(self._services, self._work(self._services))
            if not self._goes_on():
                return

    def _ended(self, future: Future[None]) -> None:
        error = future.exception()
        if error is not None:
            self._failed(error)


class AsyncBackground(Background):
    """A task of the running event loop. Called outside any loop, the work stays due for the next call inside one."""

    _task: asyncio.Task[None] | None = None

    def kick(self) -> None:
        self.raise_stop()
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            return
        if self._task is not None and self._task.get_loop().is_closed():
            self._idle.set()  # its loop ended under it, and its claim was released by the cancellation
        if self._services.llm is not None and self._begin():
            self._task = loop.create_task(self._run())
            self._task.add_done_callback(self._ended)

    async def _run(self) -> None:
        _worker.set(self)
        while True:
            await arun_flow(self._services, self._work(self._services))
            if not self._goes_on():
                return

    def _ended(self, task: asyncio.Task[None]) -> None:
        error = asyncio.CancelledError() if task.cancelled() else task.exception()
        if error is not None:
            self._failed(error)

    def wait(self, timeout: float | None) -> bool:
        task = self._task
        if self.busy and task is not None and _is_running_here(task):
            raise IstarError("the work runs in this event loop: use `await observing.await_(timeout)`")
        return super().wait(timeout)

    async def await_(self, timeout: float | None) -> bool:
        task = self._task
        if not self.busy or task is None or not _is_running_here(task):
            return await super().await_(timeout)
        if _worker.get() is self:
            return False
        await asyncio.wait({task}, timeout=timeout)
        self.raise_stop()
        return not self.busy

    def stop(self) -> None:
        task = self._task
        if task is not None and not task.done() and not task.get_loop().is_closed():
            task.get_loop().call_soon_threadsafe(task.cancel)


def _is_running_here(task: asyncio.Task[None]) -> bool:
    try:
        return task.get_loop() is asyncio.get_running_loop()
    except RuntimeError:
        return False


BACKGROUNDS: dict[str | None, type[Background]] = {
    None: Background,
    "thread": ThreadBackground,
    "async": AsyncBackground,
}
