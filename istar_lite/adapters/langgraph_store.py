"""A `BaseStore` of LangGraph on a memory file: items by namespace and key, with filters, vectors and times to live.

    from istar_lite.adapters.langgraph_store import IstarStore

    with IstarStore.from_conn_string("agent.db") as store:
        graph = builder.compile(store=store)

With an `index` the host's own embedder ranks, by the distance that it names, as in LangGraph's stores. Without one a
`query` is not ignored as there: the memory's own search ranks, and what it does not find comes after what it finds.
Times to live follow LangGraph: an item past its time is there until a sweep, unless the config says `omit_expired`;
`Memory.search` leaves it out at once.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import logging
import os
import threading
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, cast

import numpy as np
from langgraph.store.base import (
    BaseStore,
    GetOp,
    IndexConfig,
    InvalidNamespaceError,
    Item,
    ListNamespacesOp,
    Op,
    PutOp,
    Result,
    SearchItem,
    SearchOp,
    TTLConfig,
    ensure_embeddings,
    get_text_at_path,
    tokenize_path,
)
from langgraph.store.base.batch import AsyncBatchedBaseStore

from istar_lite import BadInput, IstarError, Memory
from istar_lite.adapters.common import Source, in_worker

if TYPE_CHECKING:
    from langchain_core.embeddings import Embeddings

    from istar_lite.items import Shelf
    from istar_lite.models import KeptItem

_logger = logging.getLogger(__name__)
WHOLE = "$"  # the field that is the whole value
SWEEP_MINUTES = 5.0
_MOST_FOUND = 5_000  # items that the memory's own search ranks; those beyond come in order of writing
Labels = tuple[str, ...]
Vector = Sequence[float]
Embedded = tuple[list[Vector], list[Vector]]


@dataclass
class _Plan:
    """A batch before anything is read: its operations, and the texts that vectors are wanted of."""

    ops: list[Op]
    texts: list[str] = field(default_factory=list)
    fields: dict[int, dict[str, int]] = field(default_factory=dict)  # op → field → place in `texts`
    queries: list[str] = field(default_factory=list)
    asked: dict[int, int] = field(default_factory=dict)  # op → place in `queries`
    found: dict[int, dict[int, float]] = field(default_factory=dict)  # op → item → score of the memory's own search


class _Store:
    """What both stores share: config, planning, and running a planned batch."""

    memory: Memory
    index_config: dict[str, Any] | None
    embeddings: Embeddings | None
    ttl_config: TTLConfig | None

    def _configure(self, source: Source, index: IndexConfig | Mapping[str, Any] | None, ttl: TTLConfig | None) -> None:
        self._source = source
        self.memory = source.memory
        self._items = source.memory.items()
        self.ttl_config = ttl
        self.index_config, self.embeddings, self._fields = _index(index)

    @property
    def conn(self) -> Any:
        """A plain connection on the file."""
        return self.memory.db.conn

    @property
    def _omits_expired(self) -> bool:
        return bool(self.ttl_config and self.ttl_config.get("omit_expired"))

    @property
    def _refreshes(self) -> bool:
        return bool(self.ttl_config and self.ttl_config.get("refresh_on_read"))

    def _plan(self, ops: Iterable[Op]) -> _Plan:
        plan = _Plan(list(ops))
        for at, op in enumerate(plan.ops):
            self._check_labels(op)
            if isinstance(op, SearchOp | ListNamespacesOp):
                self._items.check_page(op.limit, op.offset)
            if isinstance(op, PutOp) and op.value is not None and self.embeddings is not None:
                self._plan_vectors(plan, at, op)
            elif isinstance(op, SearchOp) and op.query and self.embeddings is not None:
                plan.asked[at] = len(plan.queries)
                plan.queries.append(op.query)
        return plan

    def _check_labels(self, op: Op) -> None:
        """Before anything runs, so that a batch with one bad operation changes nothing."""
        if isinstance(op, ListNamespacesOp):
            told = [tuple(one.path) for one in op.match_conditions or ()]
        else:
            told = [tuple(op.namespace_prefix if isinstance(op, SearchOp) else op.namespace)]
        with _langgraph_errors():
            for labels in told:
                self._items.check(labels)

    def _plan_vectors(self, plan: _Plan, at: int, op: PutOp) -> None:
        if op.index is False:
            return
        plan.fields[at] = {}
        for name, text in _texts(cast("Mapping[str, Any]", op.value), op.index or self._fields):
            plan.fields[at][name] = len(plan.texts)
            plan.texts.append(text)

    def _run(self, plan: _Plan, embedded: Embedded) -> list[Result]:
        """All reads see the state before the batch's own writes; of two writes to one key the last counts."""
        for at, op in enumerate(plan.ops):
            if isinstance(op, SearchOp) and op.query and self.embeddings is None:
                plan.found[at] = self._found(op.query)
        puts: dict[tuple[Labels, str], int] = {}
        for at, op in enumerate(plan.ops):
            if isinstance(op, PutOp):
                puts.pop((tuple(op.namespace), op.key), None)
                puts[(tuple(op.namespace), op.key)] = at
        writes = bool(puts) or (
            self._refreshes and any(isinstance(op, GetOp | SearchOp) and op.refresh_ttl for op in plan.ops)
        )
        with self._items.writing() if writes else self._items.reading() as shelf:
            results = [self._read(shelf, plan, at, op, embedded) for at, op in enumerate(plan.ops)]
            for at in puts.values():
                self._put(shelf, plan, at, embedded)
        return results

    def _read(self, shelf: Shelf, plan: _Plan, at: int, op: Op, embedded: Embedded) -> Result:
        if isinstance(op, GetOp):
            kept = shelf.get(op.namespace, op.key, live=self._omits_expired)
            if kept is None:
                return None
            self._refresh(shelf, op.refresh_ttl, [kept.id])
            return Item(**_item_values(kept))
        if isinstance(op, SearchOp):
            found = self._search(shelf, plan, at, op, embedded)
            self._refresh(shelf, op.refresh_ttl, [kept.id for kept, _ in found])
            return [SearchItem(**_item_values(kept), score=score) for kept, score in found]
        if isinstance(op, ListNamespacesOp):
            return self._list(shelf, op)
        return None

    def _refresh(self, shelf: Shelf, wanted: bool, ids: list[int]) -> None:
        if wanted and self._refreshes and ids:
            shelf.refresh(ids)

    # --- search -----------------------------------------------------------------------------------------------

    def _search(
        self, shelf: Shelf, plan: _Plan, at: int, op: SearchOp, embedded: Embedded
    ) -> list[tuple[KeptItem, float | None]]:
        labels, live = tuple(op.namespace_prefix), self._omits_expired
        if at in plan.asked:
            stored = shelf.vectors(labels, op.filter, live=live)
            distance = str((self.index_config or {}).get("distance_type", "cosine"))
            ranked: list[tuple[int, float | None]] = list(_nearest(stored, embedded[1][plan.asked[at]], distance))
        elif at in plan.found:
            scores = plan.found[at]
            ids = shelf.find(labels, op.filter, live=live)
            ranked = [(id, scores.get(id)) for id in sorted(ids, key=lambda id: -scores.get(id, -1.0))]
        else:
            return [(kept, None) for kept in shelf.page(labels, op.filter, op.limit, op.offset, live=live)]
        chosen = ranked[op.offset : op.offset + op.limit]
        loaded = shelf.load([id for id, _ in chosen])
        return [(kept, score) for kept, (_, score) in zip(loaded, chosen, strict=True)]

    def _found(self, query: str) -> dict[int, float]:
        results = self.memory.search(query, k=_MOST_FOUND, kinds="item", sources=False)
        return {hit.id: hit.score for hit in results}

    def _list(self, shelf: Shelf, op: ListNamespacesOp) -> list[Labels]:
        patterns = [
            self._items.pattern(one.path, suffix=one.match_type == "suffix") for one in op.match_conditions or ()
        ]
        found = [labels[: op.max_depth] for labels in shelf.labels(patterns, live=self._omits_expired)]
        return list(dict.fromkeys(found))[op.offset : op.offset + op.limit]

    # --- put --------------------------------------------------------------------------------------------------

    def _put(self, shelf: Shelf, plan: _Plan, at: int, embedded: Embedded) -> None:
        op = cast("PutOp", plan.ops[at])
        if op.value is None:
            shelf.delete(op.namespace, op.key)
            return
        shelf.put(
            op.namespace,
            op.key,
            op.value,
            text=self._words(op),
            indexed=op.index is not False,
            ttl_minutes=op.ttl,
            vectors={name: _blob(embedded[0][place]) for name, place in plan.fields.get(at, {}).items()},
        )

    def _words(self, op: PutOp) -> str | None:
        """What the memory's own search sees of a value: the texts of the fields to be indexed, None for all."""
        fields = op.index or self._fields
        if op.index is False or WHOLE in fields:
            return None
        return "\n".join(text for _, text in _texts(cast("Mapping[str, Any]", op.value), fields))

    def _close(self) -> None:
        self._source.close()


class IstarStore(_Store, BaseStore):
    """The store, for sync and async callers. `source`: a path, ":memory:", or a `Memory` that is open (with
    `namespace`, seen as that owner). `index` and `ttl` as LangGraph documents them; `index` may also name a
    `distance_type`: "cosine" (default), "l2" or "inner_product", higher scores being nearer in each."""

    supports_ttl = True

    def __init__(
        self,
        source: Memory | str | os.PathLike[str],
        namespace: str | None = None,
        *,
        index: IndexConfig | Mapping[str, Any] | None = None,
        ttl: TTLConfig | None = None,
    ) -> None:
        super().__init__()
        self._configure(Source(source, namespace), index, ttl)
        self._sweeper: threading.Thread | None = None
        self._stop = threading.Event()

    @classmethod
    @contextmanager
    def from_conn_string(
        cls,
        conn_string: str,
        *,
        namespace: str | None = None,
        index: IndexConfig | Mapping[str, Any] | None = None,
        ttl: TTLConfig | None = None,
    ) -> Iterator[IstarStore]:
        """The store on the file at a path, closed at the end of the block."""
        store = cls(conn_string, namespace, index=index, ttl=ttl)
        try:
            yield store
        finally:
            store.close()

    def setup(self) -> None:
        """Nothing is left to set up: opening the file has done it. Here because LangGraph's own stores want it."""

    def batch(self, ops: Iterable[Op]) -> list[Result]:
        """All operations in one transaction, results in their order. Reads see the state before the writes."""
        plan = self._plan(ops)
        embedded: Embedded = ([], [])
        if self.embeddings is not None:
            embedded = (_embed(self.embeddings, plan.texts), [self.embeddings.embed_query(q) for q in plan.queries])
        with _langgraph_errors():
            return self._run(plan, embedded)

    async def abatch(self, ops: Iterable[Op]) -> list[Result]:
        """`batch` for async callers: the embedder is awaited, the file is read and written in a worker thread."""
        plan = self._plan(ops)
        embedded: Embedded = ([], [])
        if self.embeddings is not None:
            documents = await self.embeddings.aembed_documents(plan.texts) if plan.texts else []
            queries = [await self.embeddings.aembed_query(query) for query in plan.queries]
            embedded = (cast("list[Vector]", documents), cast("list[Vector]", queries))
        with _langgraph_errors():
            return await in_worker(self._run, plan, embedded)

    def sweep_ttl(self) -> int:
        """Deletes items that are past their time; how many."""
        return self._items.sweep()

    def start_ttl_sweeper(self, sweep_interval_minutes: float | None = None) -> concurrent.futures.Future[None]:
        """Sweeps in a thread, every so many minutes, until `stop_ttl_sweeper` or until the future is cancelled. Without
        a TTL config there is nothing to do, and the future is done."""
        future: concurrent.futures.Future[None] = concurrent.futures.Future()
        if not self.ttl_config:
            future.set_result(None)
            return future
        future.add_done_callback(lambda done: self._stop.set() if done.cancelled() else None)
        if self._sweeper is not None and self._sweeper.is_alive():
            return future
        self._stop.clear()
        minutes = sweep_interval_minutes or self.ttl_config.get("sweep_interval_minutes") or SWEEP_MINUTES
        self._sweeper = threading.Thread(
            target=self._sweep_until_stopped, args=(float(minutes) * 60, future), daemon=True, name="ttl-sweeper"
        )
        self._sweeper.start()
        return future

    def _sweep_until_stopped(self, seconds: float, future: concurrent.futures.Future[None]) -> None:
        while not self._stop.wait(seconds):
            _swept(self)
        if not future.cancelled():
            future.set_result(None)

    def stop_ttl_sweeper(self, timeout: float | None = None) -> bool:
        """Ends the sweeping; False if its thread did not end within `timeout` seconds."""
        self._stop.set()
        if self._sweeper is None or not self._sweeper.is_alive():
            return True
        self._sweeper.join(timeout)
        return not self._sweeper.is_alive()

    def close(self) -> None:
        """Ends the sweeping, and closes the file if it was opened here."""
        self.stop_ttl_sweeper()
        self._close()

    def __enter__(self) -> IstarStore:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class AsyncIstarStore(AsyncBatchedBaseStore):
    """The store for one event loop: single calls that arrive together go to the file as one batch. Its sync calls are
    for other threads, and refused in the loop's own."""

    supports_ttl = True

    def __init__(
        self,
        source: Memory | str | os.PathLike[str],
        namespace: str | None = None,
        *,
        index: IndexConfig | Mapping[str, Any] | None = None,
        ttl: TTLConfig | None = None,
    ) -> None:
        super().__init__()
        self._store = IstarStore(source, namespace, index=index, ttl=ttl)
        self.memory = self._store.memory
        self.index_config = self._store.index_config
        self.embeddings = self._store.embeddings
        self.ttl_config = ttl
        self._sweeper: asyncio.Task[None] | None = None

    @classmethod
    @asynccontextmanager
    async def from_conn_string(
        cls,
        conn_string: str,
        *,
        namespace: str | None = None,
        index: IndexConfig | Mapping[str, Any] | None = None,
        ttl: TTLConfig | None = None,
    ) -> AsyncIterator[AsyncIstarStore]:
        """The store on the file at a path, closed at the end of the block."""
        store = cls(conn_string, namespace, index=index, ttl=ttl)
        try:
            yield store
        finally:
            await store.aclose()

    async def setup(self) -> None:
        """Nothing is left to set up: opening the file has done it."""

    async def abatch(self, ops: Iterable[Op]) -> list[Result]:
        """See `IstarStore.abatch`."""
        return await self._store.abatch(ops)

    async def sweep_ttl(self) -> int:
        """Deletes items that are past their time; how many."""
        return await in_worker(self._store.sweep_ttl)

    async def start_ttl_sweeper(self, sweep_interval_minutes: float | None = None) -> asyncio.Task[None]:
        """Sweeps in a task, every so many minutes, until `stop_ttl_sweeper` or until the task is cancelled. Without a
        TTL config the task is done at once."""
        if self._sweeper is None or self._sweeper.done():
            config = self.ttl_config or {}
            minutes = sweep_interval_minutes or config.get("sweep_interval_minutes") or SWEEP_MINUTES
            self._sweeper = asyncio.create_task(self._sweep(float(minutes) * 60 if self.ttl_config else None))
        return self._sweeper

    async def _sweep(self, seconds: float | None) -> None:
        while seconds is not None:
            await asyncio.sleep(seconds)
            await in_worker(_swept, self._store)

    async def stop_ttl_sweeper(self, timeout: float | None = None) -> bool:
        """Ends the sweeping; False if its task did not end within `timeout` seconds."""
        if self._sweeper is None:
            return True
        self._sweeper.cancel()
        await asyncio.wait({self._sweeper}, timeout=timeout)
        return self._sweeper.done()

    async def aclose(self) -> None:
        """Ends the sweeping, and closes the file if it was opened here."""
        await self.stop_ttl_sweeper()
        await in_worker(self._store.close)

    async def __aenter__(self) -> AsyncIstarStore:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()


# --- helpers --------------------------------------------------------------------------------------------------


def _swept(store: IstarStore) -> None:
    """One sweep; one that fails (the file is busy, say) leaves the work to the next."""
    try:
        store.sweep_ttl()
    except IstarError:
        _logger.exception("a sweep of expired items failed")


@contextmanager
def _langgraph_errors() -> Iterator[None]:
    """A namespace that cannot be is LangGraph's own error; everything else is a `BadInput`, which is a ValueError."""
    try:
        yield
    except BadInput as error:
        if error.field.startswith("namespace"):
            raise InvalidNamespaceError(str(error)) from error
        raise


def _index(
    given: IndexConfig | Mapping[str, Any] | None,
) -> tuple[dict[str, Any] | None, Embeddings | None, list[str]]:
    """The config as a dict, its embedder, and the fields to be indexed. `text_fields` is what some of LangGraph's own
    stores call `fields`."""
    if given is None:
        return None, None, [WHOLE]
    config: dict[str, Any] = dict(given)
    fields = config.get("fields") or config.get("text_fields") or [WHOLE]
    return config, ensure_embeddings(config.get("embed")), [fields] if isinstance(fields, str) else list(fields)


def _texts(value: Mapping[str, Any], fields: Sequence[str]) -> Iterator[tuple[str, str]]:
    """(name, text) of all texts at these fields of a value; a field with several has them numbered."""
    for path in fields:
        texts = get_text_at_path(value, WHOLE if path == WHOLE else tokenize_path(path))
        for at, text in enumerate(texts):
            yield (f"{path}.{at}" if len(texts) > 1 else path), text


def _embed(embeddings: Embeddings, texts: list[str]) -> list[Vector]:
    return cast("list[Vector]", embeddings.embed_documents(texts)) if texts else []


def _blob(vector: Vector) -> bytes:
    return np.asarray(vector, dtype=np.float32).tobytes()


def _nearest(stored: list[tuple[int, bytes]], query: Vector, distance: str) -> Iterator[tuple[int, float]]:
    """Items by the nearest of their vectors, nearest first; vectors of another size are those of another embedder."""
    asked = np.asarray(query, dtype=np.float32)
    fitting = [(id, blob) for id, blob in stored if len(blob) == asked.nbytes]
    if not fitting:
        return
    matrix = np.frombuffer(b"".join(blob for _, blob in fitting), dtype=np.float32).reshape(len(fitting), -1)
    best: dict[int, float] = {}
    for (id, _), score in zip(fitting, _scores(matrix, asked, distance).tolist(), strict=True):
        best[id] = max(score, best.get(id, -float("inf")))
    yield from sorted(best.items(), key=lambda pair: -pair[1])


def _scores(matrix: np.ndarray[Any, Any], asked: np.ndarray[Any, Any], distance: str) -> np.ndarray[Any, Any]:
    if distance == "l2":
        return np.asarray(-np.linalg.norm(matrix - asked, axis=1))
    products = matrix @ asked
    if distance == "inner_product":
        return np.asarray(products)
    lengths = np.linalg.norm(matrix, axis=1) * np.linalg.norm(asked)
    return np.asarray(np.divide(products, lengths, out=np.zeros_like(products), where=lengths > 0))


def _item_values(kept: KeptItem) -> dict[str, Any]:
    return {
        "namespace": kept.labels,
        "key": kept.key,
        "value": kept.value,
        "created_at": kept.created_at,
        "updated_at": kept.updated_at,
    }
