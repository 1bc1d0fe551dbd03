"""The same work by other stores, as far as they are installed: items with given vectors, added one by one, then asked.

Each store does the nearest thing it has, with its defaults, and its rows say what that is: chromadb and LangGraph
compare vectors only, agentrecall-db and ours words and vectors, OpenAI's session only keeps. All get the same texts and
the same made-up vectors, so that no embedder is measured.
"""

from __future__ import annotations

import asyncio
import importlib
import importlib.util
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from istar_lite import Memory
from istar_lite.bench.ground import Setup, questions, sentences
from istar_lite.bench.measures import Measure
from istar_lite.database import sqlite3

DIMENSION = 384
ASKED = 100  # queries of which the median is taken
WARM = 20


class GivenVectors:
    """Vectors that depend on the text alone: no model, no cost to speak of, no meaning."""

    model_id = "given"
    dimension = DIMENSION

    def embed(self, texts: Sequence[str]) -> Any:
        """(n, 384) float32, unit length."""
        import numpy as np

        return np.array([_given(text) for text in texts], dtype=np.float32).reshape(-1, DIMENSION)


@lru_cache(maxsize=256)  # the queries, which are asked again and again: to make one takes as long as some searches
def _given(text: str) -> Any:
    import numpy as np

    vector = np.random.default_rng(zlib.crc32(text.encode())).standard_normal(DIMENSION)
    return vector / np.linalg.norm(vector)


@dataclass(frozen=True)
class Store:
    """How one store adds a text, asks a question (None: it cannot), and ends; `compares`: what its query looks at."""

    add: Callable[[str], object]
    ask: Callable[[str], object] | None
    close: Callable[[], object]
    compares: str


def run(setup: Setup) -> Iterator[Measure]:
    """Adds a second, median query, and bytes an item of each store that is installed; ours first."""
    for name, (module, make) in STORES.items():
        if _installed(module):
            yield from measure(setup, name, make)


def _installed(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:  # not even the package that would hold it
        return False


def measure(setup: Setup, name: str, make: Callable[[Path], Store]) -> Iterator[Measure]:
    """One store, in a folder of its own."""
    folder = setup.folder / f"peer-{name}"
    folder.mkdir()
    store = make(folder)
    texts = list(sentences(setup.items))
    if store.ask is not None:
        store.ask("warm up")

    def add_all() -> None:
        for text in texts:
            store.add(text)
        if store.ask is not None:
            store.ask(texts[0])  # ours makes vectors in batches: the last batch belongs to the adds

    does = "" if store.ask is not None else f" ({store.compares})"
    yield Measure("peers", f"{name}: adds one by one{does}", setup.items / setup.seconds(add_all), "rows/s")
    if store.ask is not None:
        queries, ask = questions(), store.ask
        for _ in range(WARM):  # a file that was just written is searched a little slower at first
            ask(next(queries))
        asked = setup.median(lambda: ask(next(queries)), ASKED)
        yield Measure("peers", f"{name}: query at {setup.items:,}, {store.compares}", 1000 * asked, "ms", ASKED)
    store.close()
    size = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
    yield Measure("peers", f"{name}: bytes an item", size / setup.items, "bytes")


def _ours(folder: Path) -> Store:
    memory = Memory(folder / "ours.db", embedder=GivenVectors())
    return Store(memory.remember, lambda query: memory.search(query, sources=False), memory.close, "words and vectors")


class _ListVectors:
    """The same vectors in the shape that agentrecall-db asks for."""

    dim = DIMENSION

    def embed(self, texts: Sequence[str]) -> Any:
        """Lists of floats."""
        return GivenVectors().embed(texts).tolist()


def _agentrecall(folder: Path) -> Store:
    package = importlib.import_module("agentrecall")
    # Its vectors need extension loading, which many builds of the standard module lack: it gets our driver.
    importlib.import_module("agentrecall.store").__dict__["sqlite3"] = sqlite3
    store = package.Memory(str(folder / "peer.db"), embedder=_ListVectors())
    return Store(store.add, lambda query: store.search(query, k=10), store.close, "words and vectors")


def _chromadb(folder: Path) -> Store:
    client = importlib.import_module("chromadb").PersistentClient(path=str(folder))
    collection = client.create_collection("peer", embedding_function=None)
    given = GivenVectors()

    def add(text: str) -> None:
        collection.add(ids=[text], documents=[text], embeddings=given.embed([text]))

    def ask(query: str) -> object:
        return collection.query(query_embeddings=given.embed([query]), n_results=10)

    return Store(add, ask, lambda: None, "vectors only")


def _langgraph(folder: Path) -> Store:
    given = GivenVectors()
    package: Any = importlib.import_module("langgraph.store.sqlite")
    importlib.import_module("langgraph.store.sqlite.base").__dict__["sqlite3"] = sqlite3  # as above
    opened = package.SqliteStore.from_conn_string(
        str(folder / "peer.db"),
        index={"dims": DIMENSION, "embed": lambda texts: given.embed(texts).tolist(), "fields": ["text"]},
    )
    store = opened.__enter__()
    store.setup()
    return Store(
        lambda text: store.put(("peer",), text, {"text": text}),
        lambda query: store.search(("peer",), query=query, limit=10),
        lambda: opened.__exit__(None, None, None),
        "vectors only",
    )


def _openai(folder: Path) -> Store:
    session: Any = importlib.import_module("agents").SQLiteSession("peer", str(folder / "peer.db"))
    loop = asyncio.new_event_loop()

    def add(text: str) -> None:
        loop.run_until_complete(session.add_items([{"role": "user", "content": text}]))

    def close() -> None:
        session.close()
        loop.close()

    return Store(add, None, close, "it has no search")


STORES: dict[str, tuple[str, Callable[[Path], Store]]] = {
    "istar-lite": ("istar_lite", _ours),
    "agentrecall-db": ("agentrecall", _agentrecall),
    "chromadb": ("chromadb", _chromadb),
    "langgraph SqliteStore": ("langgraph.store.sqlite", _langgraph),
    "OpenAI's SQLiteSession": ("agents", _openai),
}
