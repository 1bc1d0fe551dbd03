"""Embedders: what turns text into vectors. Nothing here reads a model file or the network before the first text.

`StaticEmbedder` is the default: the token table and vocabulary inside the wheel of wordllama 0.2.2.post0 (MIT), which
is used as data and never imported. Its vocabulary is read by the few lines of `_Pieces` instead of by `tokenizers`,
which needs 75 ms to load it (these 10) and is slower on ordinary text, since words repeat and are kept; a test holds
the two equal. All tokens weigh the same: the table's norms already carry how telling a token is, and rarities learnt
from the own texts gave .007–.010 of Recall@10 more but make a vector depend on what else the file held at that time.
"""

from __future__ import annotations

import importlib.util
import inspect
import json
import os
import sys
import threading
from collections.abc import Callable, Iterable, Sequence
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from istar_lite.errors import BadInput, IstarError
from istar_lite.later import Later
from istar_lite.values import as_int, as_name

if TYPE_CHECKING:
    import socket

    import numpy as np
    import numpy.typing as npt

    Matrix = npt.NDArray[np.float32]
else:
    socket = Later("socket")

EmbedderLike = Any  # "static", "fastembed", "fastembed:<model>", an Embedder, a callable, a list of these, or None
STATIC = "static/l2-supercat-256"
DEFAULT_NEURAL = "sentence-transformers/all-MiniLM-L6-v2"
CONNECT_SECONDS = 5.0


@runtime_checkable
class Embedder(Protocol):
    """Texts to vectors. `embed_query(text) -> (dimension,)` may be given beside these, where queries differ."""

    @property
    def model_id(self) -> str:
        """Names the vector space: vectors are compared only under equal names."""
        ...

    @property
    def dimension(self) -> int:
        """Components of a vector; 0 while not known."""
        ...

    def embed(self, texts: Sequence[str]) -> Any:
        """Vectors of shape (len(texts), dimension), of any length: only their direction counts."""
        ...


class EmbedderUnavailable(IstarError):
    """The embedder's model is not at hand; the message says how to bring it. Words still find."""


def adapt(chosen: EmbedderLike) -> tuple[Embedder, ...]:
    """The embedders that `chosen` names, the main one first; `BadInput` if it names none."""
    if chosen is None:
        return ()
    if isinstance(chosen, (list, tuple)):
        return tuple(embedder for item in chosen for embedder in adapt(item))
    if isinstance(chosen, str):
        return _by_name(chosen)
    if hasattr(chosen, "embed") and hasattr(chosen, "model_id") and hasattr(chosen, "dimension"):
        return (_checked(chosen),)
    if callable(chosen):
        return (CallableEmbedder(chosen),)
    raise BadInput(
        "embedder",
        f"{type(chosen).__name__} has no model_id, dimension and embed(texts), and is no callable, 'static',"
        " 'fastembed[:model]' or None",
    )


def _checked(embedder: Any) -> Embedder:
    """What would else fail at the first vector, deep in a search, with the file's own words."""
    if as_name(embedder.model_id, "embedder.model_id") != embedder.model_id:
        raise BadInput("embedder.model_id", "holds characters that cannot be stored")
    as_int(embedder.dimension, "embedder.dimension", low=0)
    if not callable(embedder.embed):
        raise BadInput("embedder.embed", f"{type(embedder.embed).__name__} cannot be called")
    chosen: Embedder = embedder
    return chosen


def _by_name(name: str) -> tuple[Embedder, ...]:
    kind, _, model = name.partition(":")
    if name == "static":
        return (StaticEmbedder(),)
    if kind == "fastembed":
        # The static table beside the model costs little and finds what the model misses.
        return (FastEmbedder(model or DEFAULT_NEURAL, download=bool(model)), StaticEmbedder())
    raise BadInput("embedder", f"{name!r} is none of 'static', 'fastembed', 'fastembed:<model>'")


class CallableEmbedder:
    """A function from a list of texts to their vectors. Its dimension is known after the first call."""

    def __init__(self, function: Callable[[list[str]], Any]) -> None:
        named = function if inspect.isroutine(function) else type(function)
        self.model_id = f"callable/{named.__module__}.{named.__qualname__}"
        self.dimension = 0
        self._function = function

    def embed(self, texts: Sequence[str]) -> Any:
        """What the function gives for all texts."""
        return self._function(list(texts))


# --- the static table -----------------------------------------------------------------------------------------


class _Pieces:
    """The vocabulary of a byte-fallback BPE whose merges are ranked by id: the pair with the lowest id merges first.

    Words are cut independently, since no piece of this vocabulary has a space inside.
    """

    SPACE = "\u2581"
    LONGEST = 48  # merging is quadratic in the length of a word, and only base64 and the like are longer
    KEPT = 200_000

    def __init__(self, file: Path) -> None:
        raw = file.read_bytes()
        start = raw.index(b"{", raw.index(b'"vocab"'))
        # Reading the whole file as JSON takes four times as long: the merges are most of it.
        self._ids: dict[str, int] = json.loads(raw[start : raw.rindex(b"}", start, raw.index(b'"merges"')) + 1])
        self._bytes = self._ids["<0x00>"]
        self._known: dict[str, tuple[int, ...]] = {}

    def ids(self, text: str) -> list[int]:
        """Ids of the pieces of `text`; runs of white space count as one space."""
        found: list[int] = []
        for word in text.split():
            known = self._known.get(word)
            if known is None:
                known = self._cut(word)
                if len(self._known) < self.KEPT:
                    self._known[word] = known
            found.extend(known)
        return found

    def _cut(self, word: str) -> tuple[int, ...]:
        marked = self.SPACE + word
        parts = (marked[at : at + self.LONGEST] for at in range(0, len(marked), self.LONGEST))
        return tuple(piece for part in parts for piece in self._merge(list(part)))

    def _merge(self, pieces: list[str]) -> Iterable[int]:
        ids = self._ids
        while len(pieces) > 1:
            lowest, at = min((ids.get(pieces[i] + pieces[i + 1], sys.maxsize), i) for i in range(len(pieces) - 1))
            if lowest == sys.maxsize:
                break
            pieces[at : at + 2] = [pieces[at] + pieces[at + 1]]
        for piece in pieces:
            known = ids.get(piece)
            if known is None:
                yield from (self._bytes + byte for byte in piece.encode("utf-8", "replace"))
            else:
                yield known


class StaticEmbedder:
    """The mean of the table's rows for the pieces of a text, at unit length: (n, 256) float32. Offline, no model.

    A text without pieces gets zeros, which the store takes for "no vector". About 10 µs for a turn of a conversation.
    The table is mapped, so that only the rows in use are read; those are kept as float32 (1 KB each, of 32,000), since
    turning float16 into float32 again and again was four fifths of the time.
    """

    model_id = STATIC
    dimension = 256

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._pieces: _Pieces | None = None
        self._table: Any = None
        self._rows: Any = None  # float32 of the table, where `_known`
        self._known: Any = None

    def embed(self, texts: Sequence[str]) -> Matrix:
        """Unit vectors, shape (len(texts), 256)."""
        import numpy as np  # 60 ms: who only writes and reads by word need not pay

        pieces = self._load()
        ids = [pieces.ids(text) for text in texts]
        flat = np.fromiter(chain.from_iterable(ids), np.intp)
        self._make_known(flat)
        result = np.zeros((len(texts), self.dimension), np.float32)
        start = 0
        for vector, row in zip(result, ids, strict=True):
            end = start + len(row)
            for at in range(start, end, 4096):
                vector += np.add.reduce(self._rows.take(flat[at : min(at + 4096, end)], axis=0), axis=0)
            start = end
        lengths = np.linalg.norm(result, axis=1, keepdims=True)
        np.divide(result, lengths, out=result, where=lengths > 0)
        return result

    def _make_known(self, ids: npt.NDArray[np.intp]) -> None:
        new = ids[~self._known[ids]]
        if new.size:
            self._rows[new] = self._table[new]
            self._known[new] = True  # last: another thread may read the row from here on

    def _load(self) -> _Pieces:
        with self._lock:
            if self._pieces is None:
                import numpy as np

                folder = _wheel_folder()
                pieces = _Pieces(folder / "tokenizers" / "l2_supercat_tokenizer_config.json")
                self._table = _map_table(folder / "weights" / "l2_supercat_256.safetensors")
                self._rows = np.empty(self._table.shape, np.float32)  # no memory before a row is written
                self._known = np.zeros(len(self._table), bool)
                self._pieces = pieces
            return self._pieces


def _wheel_folder() -> Path:
    spec = importlib.util.find_spec("wordllama")
    if spec is None or not spec.submodule_search_locations:
        raise EmbedderUnavailable(
            "the static table is missing: pip install wordllama==0.2.2.post0, or give Memory(…, embedder=…)"
        )
    return Path(next(iter(spec.submodule_search_locations)))


def _map_table(file: Path) -> Any:
    """The one tensor of a safetensors file, mapped: 8 bytes length of the header, JSON header, data."""
    import numpy as np

    with file.open("rb") as handle:
        length = int.from_bytes(handle.read(8), "little")
        header = json.loads(handle.read(length))
    tensor = header["embedding.weight"]
    return np.memmap(file, "<f2", "r", offset=8 + length + tensor["data_offsets"][0], shape=tuple(tensor["shape"]))


# --- fastembed ------------------------------------------------------------------------------------------------

# Models that were trained with a word before the text: fastembed adds none.
_PREFIXES = {
    "e5": ("query: ", "passage: "),
    "bge": ("Represent this sentence for searching relevant passages: ", ""),
    "nomic": ("search_query: ", "search_document: "),
}


class FastEmbedder:
    """A model run by fastembed (ONNX), loaded at the first text: local files first.

    `model`: a name that fastembed knows. `folder`: a local ONNX folder (`model.onnx`, `tokenizer.json`, …) that holds
    it, with `dimension` and mean pooling unless the name is known. `download`: the network may be asked when the
    files are not here. The cache lies in the user's data folder, or where FASTEMBED_CACHE_PATH says.
    """

    def __init__(
        self,
        model: str = DEFAULT_NEURAL,
        *,
        folder: str | os.PathLike[str] | None = None,
        dimension: int = 0,
        download: bool = False,
    ) -> None:
        self.model_id = f"fastembed/{model}"
        self.dimension = dimension
        self._model = model
        self._folder = None if folder is None else Path(folder)
        self._download = download
        self._loaded: Any = None
        self._failure: EmbedderUnavailable | None = None
        self._lock = threading.Lock()
        prefixes = (pair for mark, pair in _PREFIXES.items() if mark in model.lower().split("/")[-1].split("-"))
        self._query_prefix, self._passage_prefix = next(prefixes, ("", ""))

    def embed(self, texts: Sequence[str]) -> Any:
        """Vectors of passages, shape (len(texts), dimension)."""
        return self._run([self._passage_prefix + text for text in texts])

    def embed_query(self, text: str) -> Any:
        """The vector of a query, shape (dimension,)."""
        return self._run([self._query_prefix + text])[0]

    def retry(self) -> None:
        """Forgets that loading failed: it is tried again at the next text (offline each try costs seconds)."""
        self._failure = None

    def _run(self, texts: list[str]) -> Any:
        import numpy as np

        model = self._load()
        # Texts of like length are run together: a batch is padded to its longest.
        order = sorted(range(len(texts)), key=lambda at: len(texts[at]))
        vectors = np.stack(list(model.embed([texts[at] for at in order], batch_size=16)))
        result = np.empty_like(vectors)
        result[order] = vectors
        self.dimension = int(result.shape[1])
        return result

    def _load(self) -> Any:
        with self._lock:
            if self._failure is not None:
                raise self._failure
            if self._loaded is None:
                try:
                    self._loaded = self._open()
                except (OSError, ValueError, RuntimeError, ImportError) as error:
                    self._failure = EmbedderUnavailable(
                        f"{self._model} could not be loaded ({str(error)[:200]}); give a local folder"
                        " (FastEmbedder(model, folder=…)), a callable, or embedder='static'"
                    )
                    raise self._failure from error
            return self._loaded

    def _open(self) -> Any:
        from fastembed import TextEmbedding

        if self._folder is not None:
            return self._open_folder(TextEmbedding)
        cache = str(Path(os.environ.get("FASTEMBED_CACHE_PATH") or user_data_folder() / "fastembed"))
        try:
            return TextEmbedding(self._model, cache_dir=cache, local_files_only=True)
        except (OSError, ValueError, RuntimeError):
            if not self._download:
                raise
        _require_network()
        return TextEmbedding(self._model, cache_dir=cache)

    def _open_folder(self, text_embedding: Any) -> Any:
        from fastembed.common.model_description import ModelSource, PoolingType

        if not (self._folder / "model.onnx").is_file():  # type: ignore[operator]  # set, as the caller checked
            raise OSError(f"{self._folder} holds no model.onnx")
        name = f"local/{self._model}"
        if name not in {known["model"] for known in text_embedding.list_supported_models()}:
            text_embedding.add_custom_model(
                model=name,
                pooling=PoolingType.MEAN,
                normalization=True,
                sources=ModelSource(hf=name),
                dim=self.dimension or 384,
                model_file="model.onnx",
            )
        return text_embedding(name, specific_model_path=str(self._folder), local_files_only=True)


def user_data_folder() -> Path:
    """Where models are kept for this user (fastembed's own default is the temporary folder, which is emptied)."""
    if sys.platform == "win32":
        return Path(os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local") / "istar-lite"
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Application Support" / "istar-lite"
    return Path(os.environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share") / "istar-lite"


def _require_network() -> None:
    """Fails within seconds where fastembed would try for 40. Behind a proxy only the proxy can tell: no check."""
    if any(os.environ.get(name) for name in ("HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy")):
        return
    try:
        socket.create_connection(("huggingface.co", 443), timeout=CONNECT_SECONDS).close()
    except OSError as error:
        raise OSError(f"its files are not on this machine, and huggingface.co cannot be reached: {error}") from error
