"""Running flows for the facade and its views: for sync callers, for async ones, and without a model."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TypeVar

from istar_lite.errors import IstarError
from istar_lite.later import Later
from istar_lite.llm import Flow, adrive, drive

if TYPE_CHECKING:
    import asyncio

    from istar_lite.services import Services
else:
    asyncio = Later("asyncio")

P = ParamSpec("P")
R = TypeVar("R")
S = TypeVar("S")


def in_thread(method: Callable[Concatenate[S, P], R]) -> Callable[Concatenate[S, P], Coroutine[Any, Any, R]]:
    """The async twin of a method that asks no model: the same call in a worker thread, so that no loop is blocked."""

    async def twin(self: S, /, *args: P.args, **kwargs: P.kwargs) -> R:
        return await asyncio.to_thread(method, self, *args, **kwargs)

    twin.__name__ = f"a{method.__name__}"
    twin.__doc__ = f"`{method.__name__}` for async callers; it runs in a worker thread."
    return twin


def run_flow(services: Services, flow: Flow[R]) -> R:
    """Runs a flow for a sync caller."""
    if services.llm is None:
        return _without_model(flow)
    return drive(flow, services.llm, timeout=services.llm_timeout)


async def arun_flow(services: Services, flow: Flow[R]) -> R:
    """Runs a flow for an async caller."""
    if services.llm is None:
        return await asyncio.to_thread(_without_model, flow)
    return await adrive(flow, services.llm, timeout=services.llm_timeout)


def _without_model(flow: Flow[R]) -> R:
    try:
        next(flow)
    except StopIteration as stop:
        result: R = stop.value
        return result
    flow.close()
    raise IstarError("this needs a model: give Memory(…, llm=…)")
