"""What the doors have in common: which memory is behind them, and calling it from an event loop."""

from __future__ import annotations

import asyncio
import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

from istar_lite import Memory

P = ParamSpec("P")
R = TypeVar("R")


class Source:
    """The memory behind a door: one that the host has open and closes itself, or a path, opened and closed here.

    `~` in a path is the user's folder. ":memory:" is a file of its own that goes when the door is closed: the hosts'
    own stores know that name, and their examples use it.
    """

    def __init__(self, source: Memory | str | os.PathLike[str], namespace: str | None = None, **settings: Any) -> None:
        self._folder: tempfile.TemporaryDirectory[str] | None = None
        self._owned = not isinstance(source, Memory)
        if isinstance(source, Memory):
            self.memory = source if namespace is None else source.in_namespace(namespace)
            return
        if str(source) == ":memory:":
            self._folder = tempfile.TemporaryDirectory(prefix="istar-lite-")
            source = Path(self._folder.name) / "memory.db"
        self.memory = Memory(Path(source).expanduser(), namespace or "default", **settings)

    def close(self) -> None:
        """Closes what was opened here; again does nothing."""
        if self._owned:
            self._owned = False
            self.memory.close()
            if self._folder is not None:
                self._folder.cleanup()


async def in_worker(call: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
    """The call in a worker thread, so that no event loop is blocked. It is waited for even when the caller is
    cancelled, and the cancellation raised afterwards: a write that goes on behind the caller's back could land after
    what the caller does next."""
    task = asyncio.ensure_future(asyncio.to_thread(call, *args, **kwargs))
    cancelled: asyncio.CancelledError | None = None
    while not task.done():
        try:
            await asyncio.wait({task})
        except asyncio.CancelledError as error:
            cancelled = error
    if cancelled is not None:
        # The outcome is nobody's any more; asked for, so that a failure is not reported as never looked at.
        task.exception()
        raise cancelled
    return task.result()
