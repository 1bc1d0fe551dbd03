"""The same work by other stores, as far as they are installed: items with given vectors, added one by one, then asked.

Each store does the nearest thing it has, with its defaults: chromadb and LangGraph compare vectors only, agentrecall-db
and ours words and vectors. All get the same texts and the same made-up vectors, so that no embedder is measured.
"""

from __future__ import annotations

import importlib
import importlib.util
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import cycle
from pathlib import Path
from typing import Any

from istar_lite import Memory
from istar_lite.bench.measures import Measure
from istar_lite.bench.speed import QUERIES, Setup, sentences
from istar_lite.database import sqlite3

DIMENSION = 384


class GivenVectors:
    """Vectors that depend on the text alone: no model, no cost to speak of, no meaning."""

    model_id = "given"
    dimension = DIMENSION

    def embed(self, texts: Sequence[str]) -> Any:
        """(n, 384) float32, unit length."""
        import numpy as np

        rows = [np.random.default_rng(zlib.crc32(text.encode())).standard_normal(DIMENSION) for text in texts]
        vectors = np.array(rows, dtype=np.float32).reshape(-1, DIMENSION)
        return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


@dataclass(frozen=True)
class Store:
    """How one store adds a text, asks a question, and ends."""

    add: Callable[[str], object]
    ask: Callable[[str], object]
    close: Callable[[], object]


def run(setup: Setup) -> Iterator[Measure]:
    """Adds a second, median query, and bytes an item of each store that is installed; ours first."""
    for name, (module, make) in STORES.items():
        if _installed(module):
            yield from _measure(setup, name, make)


def _installed(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:  # not even the package that would hold it
        return False


def _measure(setup: Setup, name: str, make: Callable[[Path], Store]) -> Iterator[Measure]:
    folder = setup.folder / f"peer-{name}"
    folder.mkdir()
    store = make(folder)
    texts = list(sentences(setup.items))
    queries = cycle(QUERIES)
    store.ask("warm up")

    def add_all() -> None:
        for text in texts:
            store.add(text)
        store.ask(texts[0])  # ours makes vectors in batches: the last batch belongs to the adds

    yield Measure("peers", f"{name}: adds one by one", setup.items / setup.seconds(add_all), "rows/s")
    count = min(20, 4 * setup.runs)
    asked = setup.median(lambda: store.ask(next(queries)), count)
    yield Measure("peers", f"{name}: query at {setup.items:,}", 1000 * asked, "ms", count)
    store.close()
    size = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
    yield Measure("peers", f"{name}: bytes an item", size / setup.items, "bytes")


def _ours(folder: Path) -> Store:
    memory = Memory(folder / "ours.db", embedder=GivenVectors())
    return Store(memory.remember, lambda query: memory.search(query, sources=False), memory.close)


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
    return Store(store.add, lambda query: store.search(query, k=10), store.close)


def _chromadb(folder: Path) -> Store:
    client = importlib.import_module("chromadb").PersistentClient(path=str(folder))
    collection = client.create_collection("peer", embedding_function=None)
    given = GivenVectors()

    def add(text: str) -> None:
        collection.add(ids=[text], documents=[text], embeddings=given.embed([text]))

    return Store(add, lambda query: collection.query(query_embeddings=given.embed([query]), n_results=10), lambda: None)


def _langgraph(folder: Path) -> Store:
    given = GivenVectors()
    package: Any = importlib.import_module("langgraph.store.sqlite")
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
    )


STORES: dict[str, tuple[str, Callable[[Path], Store]]] = {
    "istar-lite": ("istar_lite", _ours),
    "agentrecall-db": ("agentrecall", _agentrecall),
    "chromadb": ("chromadb", _chromadb),
    "langgraph SqliteStore": ("langgraph.store.sqlite", _langgraph),
}
