"""One watched conversation: whose it is, its budgets, and how the host's own steps are counted."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from istar_lite import places, tasks
from istar_lite.errors import BadInput
from istar_lite.models import ObservationConfig, ObservationEvent, ReflectionEvent
from istar_lite.observations import rows
from istar_lite.observations.budget import Budgets
from istar_lite.values import as_int

if TYPE_CHECKING:
    from istar_lite.database import sqlite3
    from istar_lite.services import Services

Event = ObservationEvent | ReflectionEvent
SETTING = "observing"  # of the session: the windows and the config that it was last opened with, as JSON
_log = logging.getLogger("istar_lite.observations")


@dataclass(frozen=True, slots=True)
class Watch:
    """A conversation and its budgets; everything else is in the file."""

    services: Services
    namespace: str
    session: str
    budgets: Budgets

    def find(self) -> int | None:
        """Id of the session, or None while nothing was said in it."""
        return rows.find_session(self.services.file.reader(), self.namespace, self.session)

    def ensure(self, tx: sqlite3.Connection) -> int:
        """Id of the session, made if it is new; it keeps the budgets, so that `work()` in any process knows them."""
        session = places.ensure_session(tx, self.namespace, self.session, "conversation", self.services.now())
        places.set_setting(tx, SETTING, _as_json(self.budgets), session=session)
        return session

    def tell(self, event: Event) -> None:
        """Tells the handlers of all objects of this process that watch the session. No lock is held here."""
        with self.services.lock:
            watchers = [one for one in self.services.watchers if one.watches(self.namespace, self.session)]
        for watcher in watchers:
            for handler in watcher.handlers(type(event)):
                call_handler(handler, event)


@lru_cache(maxsize=16)  # every message that is added asks for it
def _as_json(budgets: Budgets) -> str:
    return json.dumps(
        {
            "context_window": budgets.window,
            "utility_window": budgets.utility,
            "config": budgets.config.to_dict(),
        }
    )


def call_handler(handler: Callable[[Any], object], event: Event) -> None:
    """Calls a handler of the host; one that raises is logged and hurts nobody."""
    try:
        tasks.call_host(handler, event)
    except tasks.CallFailed as failure:
        _log.error("a handler for %s raised: %s", type(event).__name__, failure, exc_info=failure.__cause__)


def watch_of(services: Services, session: int) -> Watch | None:
    """The watch of a session as it was last opened, for work that is drained elsewhere. None: the session is gone."""
    connection = services.file.reader()
    row = connection.execute(
        "select session.name, namespace.name as owner from session join namespace on namespace.id = session.namespace"
        " where session.id = ?",
        (session,),
    ).fetchone()
    if row is None:
        return None
    return Watch(services, row["owner"], row["name"], _kept_budgets(connection, session))


def _kept_budgets(connection: sqlite3.Connection, session: int) -> Budgets:
    kept = places.setting(connection, SETTING, session=session)
    if kept is None:
        return Budgets(None, None, ObservationConfig())
    values = json.loads(kept)
    return Budgets(values["context_window"], values["utility_window"], ObservationConfig(**values["config"]))


def make_budgets(context_window: object, utility_window: object, config: object) -> Budgets:
    """Checked budgets; `BadInput` names what is wrong."""
    window = as_int(context_window, "context_window", low=1)
    utility = None if utility_window is None else as_int(utility_window, "utility_window", low=1)
    if not isinstance(config, ObservationConfig):
        raise BadInput("config", f"an ObservationConfig is wanted, not {type(config).__name__}")
    return Budgets(window, utility, config)


def step_of(connection: sqlite3.Connection, session: int) -> int:
    """The host's own step: how many messages there are. A failure waits for more of them, not for time alone."""
    row = connection.execute("select max(position) from message where session = ?", (session,)).fetchone()
    return int(row[0] or 0)
