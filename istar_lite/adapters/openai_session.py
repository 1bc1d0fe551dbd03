"""A `Session` of the OpenAI Agents SDK on a memory file: the conversation is found, observed and forgotten like any.

    from istar_lite.adapters.openai_session import IstarSession

    session = IstarSession("user-17", "agent.db")
    result = await Runner.run(agent, "Where were we?", session=session)

Items come back exactly as they were added. What other doors wrote into the conversation of this name (a chat, an
import) is part of it.
"""

from __future__ import annotations

import logging
import os
from typing import TYPE_CHECKING, Any, TypeVar

from agents.memory import SessionABC, SessionSettings

from istar_lite import Memory
from istar_lite.adapters.common import Source, in_worker

if TYPE_CHECKING:
    from collections.abc import Callable

    from agents.items import TResponseInputItem

    from istar_lite.models import TranscriptItems

R = TypeVar("R")
_logger = logging.getLogger(__name__)


class IstarSession(SessionABC):
    """One conversation. `db_path`: a path, ":memory:" for a file that goes when the session is closed, or a `Memory`
    that is open. `session_settings`: the SDK's; its `limit` holds where `get_items` is given none."""

    def __init__(
        self,
        session_id: str,
        db_path: Memory | str | os.PathLike[str] = ":memory:",
        namespace: str | None = None,
        *,
        session_settings: SessionSettings | dict[str, Any] | None = None,
    ) -> None:
        self.session_id = session_id
        self.session_settings = _settings(session_settings)
        self.corrupt_rows: tuple[int, ...] = ()
        """Ids of the message rows that the last call skipped because they hold no item."""
        self._closed = False
        self._source = Source(db_path, namespace)
        try:
            self._transcript = self._source.memory.transcript(session_id)
        except BaseException:
            self._source.close()
            raise

    @property
    def memory(self) -> Memory:
        """The memory behind the session."""
        return self._source.memory

    async def get_items(self, limit: int | None = None) -> list[TResponseInputItem]:
        """The newest `limit` items, oldest first; without a limit that of the settings, else all. A negative limit is
        none, as in the SDK's own session."""
        if limit is None and self.session_settings is not None:
            limit = self.session_settings.limit
        return self._noted(await self._run(self._transcript.items, limit))

    async def add_items(self, items: list[TResponseInputItem]) -> None:
        """Appends items, all or none."""
        await self._run(self._transcript.add, items)

    async def pop_item(self) -> TResponseInputItem | None:
        """Takes the newest item off and gives it; None if there is none."""
        found = self._noted(await self._run(self._transcript.pop))
        return found[0] if found else None

    async def clear_session(self) -> None:
        """Takes all items of this session away."""
        await self._run(self._transcript.clear)

    def close(self) -> None:
        """Ends the session, and closes the file if it was opened here."""
        self._closed = True
        self._source.close()

    async def _run(self, call: Callable[..., R], *args: Any) -> R:
        if self._closed:
            raise RuntimeError("IstarSession is closed")
        return await in_worker(call, *args)

    def _noted(self, found: TranscriptItems) -> list[TResponseInputItem]:
        self.corrupt_rows = found.corrupt
        if found.corrupt:
            rows = ", ".join(str(row) for row in found.corrupt)
            _logger.warning("session %r: skipped message rows that hold no item: %s", self.session_id, rows)
        items: list[Any] = list(found.items)
        return items


def _settings(given: SessionSettings | dict[str, Any] | None) -> SessionSettings:
    if given is None:
        return SessionSettings()
    return SessionSettings(**given) if isinstance(given, dict) else given
