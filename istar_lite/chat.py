"""`Chat`: exchanges and memories of one conversation, as `memory.chat()` gives it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from istar_lite import consolidation, exchanges
from istar_lite.llm import Flow
from istar_lite.models import Consolidated, Ranking, Retrieved, Stored
from istar_lite.running import arun_flow, in_thread, run_flow
from istar_lite.values import as_name

if TYPE_CHECKING:
    from istar_lite.clock import Instant
    from istar_lite.services import Services


class Chat:
    """A conversation. Its exchanges belong to the session, the memories taken out of them to the namespace."""

    def __init__(self, services: Services, namespace: str, session: str) -> None:
        self._services = services
        self.namespace = namespace
        self.session = as_name(session, "session")

    def store(
        self, prompt: str, response: str, *, occurred_at: Instant | None = None, key: str | None = None
    ) -> Stored:
        """Keeps an exchange, then asks the model once for the statements worth keeping.

        The exchange is safe before the model is asked. Without a model, or when it fails, its extraction stays due
        (`Stored.extraction`) and `memory.work()` makes up for it. `key`: an idempotency key of the session; the same
        key gives the same exchange, with other texts it is `BadInput`, as is a blank prompt or response.
        """
        return run_flow(self._services, self._store(prompt, response, occurred_at=occurred_at, key=key))

    async def astore(
        self, prompt: str, response: str, *, occurred_at: Instant | None = None, key: str | None = None
    ) -> Stored:
        """`store` for async callers."""
        return await arun_flow(self._services, self._store(prompt, response, occurred_at=occurred_at, key=key))

    def retrieve(
        self,
        prompt: str,
        *,
        limit: int = 5,
        pairs: int = 5,
        ranking: Ranking = "balanced",
        touch: bool = True,
        as_of: Instant | None = None,
        min_score: float | None = None,
    ) -> Retrieved:
        """The last `pairs` exchanges, oldest first, and up to `limit` memories of the namespace that matter for
        `prompt`, best first; none when nothing is relevant (`reason` tells that from an empty store).

        `ranking`: "balanced" is relevance × (0.9 + 0.1 · decay) × equally bounded priors of importance and emotion;
        "ebbinghaus" is similarity × decay × importance × emotional weight, which costs most of the recall on
        questions about the past (Recall@10 .80 → .05). What is returned becomes stronger, unless `touch=False`, the
        file is read-only, or `as_of` asks what held on another day. `min_score` cuts by the score that ranks.
        """
        return exchanges.retrieve(
            self._services,
            self.namespace,
            self.session,
            prompt,
            limit=limit,
            pairs=pairs,
            ranking=ranking,
            touch=touch,
            as_of=as_of,
            min_score=min_score,
        )

    def consolidate(self) -> Consolidated:
        """Merges live memories of the namespace that say nearly the same: clusters at an average cosine distance
        below 0.15 become one memory each, written by the model, or joined without one. Each cluster is one
        transaction; one whose call fails stays as it is, and due."""
        return run_flow(self._services, consolidation.consolidate(self._services, self.namespace))

    async def aconsolidate(self) -> Consolidated:
        """`consolidate` for async callers."""
        return await arun_flow(self._services, consolidation.consolidate(self._services, self.namespace))

    aretrieve = in_thread(retrieve)

    def _store(self, prompt: str, response: str, **options: object) -> Flow[Stored]:
        return exchanges.store(self._services, self.namespace, self.session, prompt, response, **options)
