"""A time limit over all calls of a model that one call of the host makes."""

from __future__ import annotations

from dataclasses import replace
from time import monotonic
from typing import TypeVar

from istar_lite.llm import Answer, Flow

T = TypeVar("T")


class Limit:
    """Seconds that the host will wait in one call, over all that is done in it."""

    def __init__(self, seconds: float | None) -> None:
        self._end = None if seconds is None else monotonic() + seconds

    @property
    def left(self) -> float | None:
        """Seconds left, not below 0; None is no limit."""
        return None if self._end is None else max(0.0, self._end - monotonic())


def within(flow: Flow[T], limit: Limit) -> Flow[T]:
    """`flow` with each call held to what is left of `limit`; past it the model is not asked any more."""
    try:
        request = next(flow)
        while True:
            left = limit.left
            if left == 0:
                answer = Answer(None, TimeoutError("the time limit of the host's call is used up"))
            else:
                answer = yield replace(request, timeout=left)
            request = flow.send(answer)
    except StopIteration as stop:
        result: T = stop.value
        return result
    finally:
        flow.close()  # an interruption ends here: the flow releases what it holds
