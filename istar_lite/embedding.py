"""The vectors of documents: who makes them, what the file knows of it, and what is still missing.

Layers write rows and know nothing of vectors; `Embedding.settle` makes those of documents that have none, in batches
and outside any transaction, at the latest before something is searched. An embedder that fails leaves them missing,
words go on finding, and a later settle makes them.

What the file knows: `embedding_model` (name, dimension, scale), the setting `embedding_models` (the names in use, main
one first, with the ids of their models), and per namespace `embedded:<model>` (up to which document and which change
all is done, so that a settle with nothing to do costs a few microseconds at any size of the file).
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from istar_lite import places
from istar_lite.database import warn_once
from istar_lite.embedders import Embedder, EmbedderLike, EmbedderUnavailable, adapt
from istar_lite.errors import BadInput, Busy

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from istar_lite.database import sqlite3
    from istar_lite.services import Services

    Vector = npt.NDArray[np.float32]

PASSAGE = 1200  # characters: some 300 tokens, what sentence models read
BATCH = 256  # documents embedded and written in one go
FAILURES = 3  # in a row, after which only `work` and `reembed` try again: a failing call may take long
Progress = Callable[[int, int], None]

_BREAK = re.compile(r"\n|[.!?…。！？]\s|\s")


@dataclass(frozen=True, slots=True)
class Model:
    """A row of `embedding_model`: components are int8 values times `scale`."""

    id: int
    name: str
    dimension: int
    scale: float


def passages(text: str) -> list[tuple[int, int]]:
    """(start, length) of the pieces of a text that get a vector each: all of it, cut at lines, sentences or spaces."""
    if len(text) <= PASSAGE:
        return [(0, len(text))]
    found: list[tuple[int, int]] = []
    start = 0
    while start < len(text):
        end = min(start + PASSAGE, len(text))
        if end < len(text):
            end = _cut(text, start + PASSAGE * 3 // 4, end)
        found.append((start, end - start))
        start = end
    return found


def _cut(text: str, low: int, high: int) -> int:
    """The best place to cut between `low` and `high`: after the last line, else sentence, else word, else `high`."""
    best = {"\n": 0, "s": 0, " ": 0}
    for match in _BREAK.finditer(text, low, high):
        mark = match.group()
        best["\n" if mark == "\n" else "s" if len(mark) > 1 else " "] = match.end()
    return best["\n"] or best["s"] or best[" "] or high


def scale_for(dimension: int) -> float:
    """The int8 step for unit vectors: components beyond 8 standard deviations, which none has, would be cut."""
    return min(1.0, 8.0 / math.sqrt(dimension)) / 127.0


def quantise(vectors: Vector, scale: float) -> list[bytes]:
    """Rows as int8 blobs; a row that is zero, NaN or infinite becomes b"": known to have no vector."""
    import numpy as np

    lengths = np.linalg.norm(vectors, axis=1)
    usable = np.isfinite(lengths) & (lengths > 0)
    unit = np.divide(vectors, lengths[:, None], out=np.zeros_like(vectors), where=usable[:, None])
    steps = np.clip(np.rint(unit / scale), -127, 127).astype(np.int8)
    return [row.tobytes() if good and row.any() else b"" for row, good in zip(steps, usable, strict=True)]


class Embedding:
    """The embedders that the host chose, and their vectors in the file."""

    def __init__(self, chosen: EmbedderLike) -> None:
        self.embedders: tuple[Embedder, ...] = adapt(chosen)
        self.last_error: str | None = None
        self._failures: dict[str, int] = {}
        self._models: dict[int, Model] = {}

    # --- what the file knows ----------------------------------------------------------------------------------

    def in_use(self, connection: sqlite3.Connection) -> dict[str, Model | None]:
        """The models whose vectors the file is searched by, main one first; None while the first vector is due."""
        value = places.setting(connection, "embedding_models")
        return {name: self._model(connection, id) for name, id in (_named(value) if value else ())}

    def _model(self, connection: sqlite3.Connection, id: int | None) -> Model | None:
        """A model by its id. Kept once seen: such a row never changes, and its id is never used again."""
        known = self._models.get(id or 0)
        if known is None:
            known = _model(connection, id)
            if known is not None:
                self._models[known.id] = known
        return known

    def usable(self, connection: sqlite3.Connection) -> list[tuple[Embedder, Model]]:
        """Embedders at hand whose vectors the file has; warns once if the main one is another than the file's."""
        known = self.in_use(connection)
        self._warn_if_wrong(known)
        pairs = ((embedder, known.get(embedder.model_id)) for embedder in self.embedders)
        return [
            (embedder, model)
            for embedder, model in pairs
            if model is not None and embedder.dimension in (0, model.dimension)
        ]

    def wrong(self, known: dict[str, Model | None]) -> str | None:
        """The sentence of a `WrongEmbedder`, or None where the main embedder is the file's."""
        if not known or not self.embedders:
            return None
        mine, name = self.embedders[0], next(iter(known))
        stored = known[name]
        if mine.model_id == name and (stored is None or mine.dimension in (0, stored.dimension)):
            return None
        held = f"{name} ({stored.dimension} dimensions)" if stored else name
        return (
            f"the file holds vectors of {held}, the embedder at hand is {mine.model_id} ({mine.dimension} dimensions):"
            " words still find, no vector is dropped, and memory.reembed() rebuilds them"
        )

    def _warn_if_wrong(self, known: dict[str, Model | None]) -> None:
        sentence = self.wrong(known)
        if sentence is not None:
            self.last_error = sentence
            warn_once(sentence)

    def mode(self, connection: sqlite3.Connection) -> str:
        """How search ranks now: "words", or "hybrid" with vectors beside them."""
        return "hybrid" if self.usable(connection) else "words"

    def pending(self, connection: sqlite3.Connection, namespace: int | None) -> int:
        """Documents of a namespace (None: a namespace without rows) without a vector of the main embedder."""
        if not self.embedders or namespace is None:
            return 0
        model = self.in_use(connection).get(self.embedders[0].model_id)
        row = connection.execute(
            "select count(*) from document where namespace = ?"
            " and not exists (select 1 from embedding where document = document.id and model = ?)",
            (namespace, -1 if model is None else model.id),
        ).fetchone()
        return int(row[0])

    # --- queries ----------------------------------------------------------------------------------------------

    def query(self, embedder: Embedder, text: str, dimension: int) -> Vector | None:
        """The unit vector of a query; None when the embedder fails or has none for it."""
        import numpy as np

        if self._given_up(embedder):
            return None
        try:
            vector = _vectors(_query_call(embedder), [text], embedder.model_id, dimension)[0]
        except EmbedderUnavailable as error:
            self._note(embedder, error)
            return None
        length = float(np.linalg.norm(vector))
        return (vector / length).astype(np.float32) if math.isfinite(length) and length > 0 else None

    def _given_up(self, embedder: Embedder) -> bool:
        return self._failures.get(embedder.model_id, 0) >= FAILURES

    def _note(self, embedder: Embedder, error: EmbedderUnavailable) -> None:
        self._failures[embedder.model_id] = self._failures.get(embedder.model_id, 0) + 1
        self.last_error = str(error)
        warn_once(str(error))

    # --- making vectors ---------------------------------------------------------------------------------------

    def settle(
        self,
        services: Services,
        *,
        namespace: int | None = None,
        on_progress: Progress | None = None,
        retry: bool = False,
    ) -> int:
        """Makes the missing vectors (of one namespace, or of the file); how many documents got some.

        Embedders that failed are tried again, but after three failures in a row only with `retry`.
        """
        if not self.embedders or services.file.read_only:
            return 0
        if retry:
            self._forget_failures(self.embedders)
        with services.lock:
            connection = services.file.reader()
            if not self._failures:
                self.last_error = None
            self._warn_if_wrong(self.in_use(connection))
            owners = [namespace] if namespace is not None else _namespaces(connection)
            made = 0
            for embedder in self.embedders:
                if self._given_up(embedder):
                    continue
                try:
                    made += self._settle_one(services, embedder, owners, on_progress)
                except EmbedderUnavailable as error:
                    self._note(embedder, error)
                except Busy as error:  # somebody writes for long: the vectors can wait, whoever asked cannot
                    self.last_error = str(error)
            return made

    def _forget_failures(self, embedders: Sequence[Embedder]) -> None:
        self._failures.clear()
        for embedder in embedders:
            retry = getattr(embedder, "retry", None)
            if retry is not None:
                retry()

    def _settle_one(
        self, services: Services, embedder: Embedder, owners: Sequence[int], on_progress: Progress | None
    ) -> int:
        connection = services.file.reader()
        known = self.in_use(connection)
        if known and embedder.model_id not in known:
            return 0
        model = known.get(embedder.model_id)
        made = 0
        for owner in owners:
            work = _Missing(connection, owner, model)
            if not work.anything():
                continue
            total = work.count() if on_progress is not None else 0
            for batch in work.batches():
                model = self._embed_batch(services, embedder, batch, model, register=True)
                made += len(batch)
                if on_progress is not None:
                    on_progress(min(made, total), total)
            if model is not None and (made or work.behind() > BATCH):
                with services.file.write() as tx:
                    work.mark_done(tx, model)
        return made

    def _embed_batch(
        self,
        services: Services,
        embedder: Embedder,
        batch: Sequence[tuple[int, str]],
        model: Model | None,
        *,
        register: bool,
    ) -> Model:
        """Embeds some documents, then writes their vectors in one short transaction."""
        places_of = [passages(text) for _, text in batch]
        texts = [
            text[start : start + length]
            for (_, text), parts in zip(batch, places_of, strict=True)
            for start, length in parts
        ]
        vectors = _vectors(embedder.embed, texts, embedder.model_id, model.dimension if model else embedder.dimension)
        self._note_unusable(embedder, vectors)
        self._failures.pop(embedder.model_id, None)
        with services.file.write() as tx:
            if model is None:
                model = _ensure_model(tx, embedder.model_id, int(vectors.shape[1]))
                if register:
                    self._register(tx, model)
            blobs = iter(quantise(vectors, model.scale))
            _save(
                tx,
                (
                    (document, model.id, part, start, length, next(blobs), text)
                    for (document, text), parts in zip(batch, places_of, strict=True)
                    for part, (start, length) in enumerate(parts)
                ),
            )
        return model

    def _note_unusable(self, embedder: Embedder, vectors: Vector) -> None:
        """Says that there are vectors of NaN or infinite numbers. One text that upsets a model must not hold up the
        others, so it is kept without a vector; where no text has one, the embedder has failed."""
        import numpy as np

        unusable = int(np.count_nonzero(~np.isfinite(vectors).all(axis=1)))
        if not unusable:
            return
        sentence = (
            f"the embedder {embedder.model_id} gave NaN or infinite numbers for {unusable} of {len(vectors)} texts"
        )
        if 1 < unusable == len(vectors):
            raise EmbedderUnavailable(sentence)
        warn_once(f"{sentence}: words alone find those, and memory.reembed() tries again")

    def _register(self, tx: sqlite3.Connection, model: Model) -> None:
        """Enters a model that has its first vector; the others at hand are entered as due."""
        known = self.in_use(tx) or dict.fromkeys(embedder.model_id for embedder in self.embedders)
        ids = {name: found.id if found else None for name, found in known.items()}
        ids[model.name] = model.id
        places.set_setting(tx, "embedding_models", json.dumps(list(ids.items())))

    def reembed(self, services: Services, embedder: EmbedderLike = None, on_progress: Progress | None = None) -> int:
        """Makes the vectors of `embedder` (default: the one at hand) for the whole file; how many documents.

        Those of another model serve until all are made and go then, in one transaction. Interrupted, it goes on where
        it stopped. Raises `EmbedderUnavailable` when the embedder fails; nothing is lost then.
        """
        chosen = adapt(embedder) if embedder is not None else self.embedders
        if not chosen:
            raise BadInput("embedder", "there is none to embed with: name one")
        self._forget_failures(chosen)
        with services.lock:
            made = 0
            models: list[Model] = []
            for one in chosen:
                model, count = self._embed_all(services, one, on_progress)
                made = max(made, count)
                if model is not None:
                    models.append(model)
            with services.file.write() as tx:
                _switch(tx, models)
            self.embedders = chosen
            return made

    def _embed_all(
        self, services: Services, embedder: Embedder, on_progress: Progress | None
    ) -> tuple[Model | None, int]:
        connection = services.file.reader()
        # A model whose dimension is not known before it runs is found by its name alone.
        row = connection.execute(
            "select id, name, dimension, scale from embedding_model where name = ?1 and ?2 in (0, dimension)",
            (embedder.model_id, embedder.dimension),
        ).fetchone()
        model = None if row is None else Model(*row)
        if model is not None:
            with services.file.write() as tx:
                tx.execute("delete from embedding where model = ? and length(vector) = 0", (model.id,))
        made = 0
        total = 0
        for owner in _namespaces(connection):
            work = _Missing(connection, owner, model, whole=True)
            total += work.count()
            for batch in work.batches():
                model = self._embed_batch(services, embedder, batch, model, register=False)
                made += len(batch)
                if on_progress is not None:
                    on_progress(made, max(total, made))
        return model, made


class _Missing:
    """The documents of a namespace that have no vector of a model, found without reading those known to have one."""

    def __init__(
        self, connection: sqlite3.Connection, namespace: int, model: Model | None, *, whole: bool = False
    ) -> None:
        self._connection = connection
        self._namespace = namespace
        self._model = -1 if model is None else model.id
        self._through, self._change = (0, 0)
        if model is not None and not whole:
            self._through, self._change = _mark(connection, model.id, namespace)
        self._newest, self._newest_change, oldest_change = connection.execute(
            "select coalesce((select max(id) from document), 0), coalesce((select max(id) from document_change), 0),"
            " coalesce((select min(id) from document_change), 0)"
        ).fetchone()
        if oldest_change > self._change + 1:  # older changes are no longer kept: look at all
            self._through = 0

    def anything(self) -> bool:
        """Whether documents came or changed since all was done."""
        return bool(self._newest > self._through or self._newest_change > self._change)

    def behind(self) -> int:
        """How many ids were not looked at when all was last known to be done."""
        return int(max(self._newest - self._through, self._newest_change - self._change))

    def count(self) -> int:
        """How many are missing."""
        counts = (
            self._connection.execute(f"select count(*) {self._WHERE} and {which}", self._values(0)).fetchone()[0]
            for which in self._WHICH
        )
        return int(sum(counts))

    def batches(self) -> Iterator[list[tuple[int, str]]]:
        """(id, text) of the missing ones, the new ones first, in order of ids; long texts make the batch smaller."""
        for which in self._WHICH:
            after = 0
            while True:
                rows = self._connection.execute(
                    f"select id, text {self._WHERE} and {which} order by id limit {BATCH}", self._values(after)
                ).fetchall()
                if not rows:
                    break
                batch = _within(rows, BATCH * PASSAGE)
                yield batch
                after = batch[-1][0]

    # `+namespace` keeps SQLite from reading the whole namespace by its index where few rows are new.
    _WHERE = (
        "from document where +namespace = :namespace"
        " and not exists (select 1 from embedding where document = document.id and model = :model)"
    )
    # One at a time, and each with one lower bound: joined by `or`, or of two bounds, SQLite would go through all.
    _WHICH = (
        "id > max(:after, :through)",
        "+id > :after and +id <= :through and id in (select document from document_change where id > :change)",
    )

    def _values(self, after: int) -> dict[str, int]:
        return {
            "namespace": self._namespace,
            "after": after,
            "through": self._through,
            "change": self._change,
            "model": self._model,
        }

    def mark_done(self, tx: sqlite3.Connection, model: Model) -> None:
        """Records that all up to here is done."""
        value = json.dumps([self._newest, self._newest_change])
        places.set_setting(tx, f"embedded:{model.id}", value, namespace=self._namespace)


def _within(rows: Sequence[Any], characters: int) -> list[tuple[int, str]]:
    """The first rows whose texts together have at most so many characters, at least one."""
    taken: list[tuple[int, str]] = []
    for id, text in rows:
        characters -= len(text)
        if taken and characters < 0:
            break
        taken.append((int(id), text))
    return taken


def _mark(connection: sqlite3.Connection, model: int, namespace: int) -> tuple[int, int]:
    row = connection.execute(
        "select value from setting where key = ? and namespace = ? and session = 0", (f"embedded:{model}", namespace)
    ).fetchone()
    through, change = json.loads(row[0]) if row else (0, 0)
    return int(through), int(change)


def _namespaces(connection: sqlite3.Connection) -> list[int]:
    return [int(row[0]) for row in connection.execute("select id from namespace order by id")]


def _model(connection: sqlite3.Connection, id: int | None) -> Model | None:
    row = connection.execute("select id, name, dimension, scale from embedding_model where id = ?", (id,)).fetchone()
    return None if row is None else Model(*row)


def _ensure_model(tx: sqlite3.Connection, name: str, dimension: int) -> Model:
    tx.execute(
        "insert into embedding_model (name, dimension, scale) values (?, ?, ?)"
        " on conflict (name, dimension) do nothing",
        (name, dimension, scale_for(dimension)),
    )
    row = tx.execute(
        "select id, name, dimension, scale from embedding_model where name = ? and dimension = ?", (name, dimension)
    ).fetchone()
    return Model(*row)


def _save(tx: sqlite3.Connection, vectors: Iterable[tuple[int, int, int, int, int, bytes, str]]) -> None:
    """Writes vectors (document, model, part, start, length, vector, text), but not of a document whose text is no
    longer the one that was embedded."""
    tx.executemany(
        "insert into embedding (document, model, part, start, length, vector) select ?1, ?2, ?3, ?4, ?5, ?6"
        " where exists (select 1 from document where id = ?1 and text = ?7)"
        " on conflict (document, model, part) do update set start = excluded.start, length = excluded.length,"
        " vector = excluded.vector",
        vectors,
    )


def _switch(tx: sqlite3.Connection, models: Sequence[Model]) -> None:
    """From now on the file is searched by these models; vectors of all others go."""
    places.set_setting(tx, "embedding_models", json.dumps([[model.name, model.id] for model in models]))
    for row in tx.execute("select id from embedding_model").fetchall():
        if row[0] not in {model.id for model in models}:
            tx.execute("delete from embedding where model = ?", (row[0],))
            tx.execute("delete from embedding_model where id = ?", (row[0],))
            tx.execute("delete from setting where key = ?", (f"embedded:{row[0]}",))


def _query_call(embedder: Embedder) -> Callable[[list[str]], Any]:
    one = getattr(embedder, "embed_query", None)
    return embedder.embed if one is None else lambda texts: [one(texts[0])]


def _vectors(call: Callable[[list[str]], Any], texts: list[str], name: str, dimension: int) -> Vector:
    """What the embedder gives, as float32 of shape (len(texts), dimension); `EmbedderUnavailable` otherwise."""
    import numpy as np

    try:
        given = call(texts)
        vectors = np.asarray(given if hasattr(given, "__array__") else list(given), dtype=np.float32)
    except EmbedderUnavailable:
        raise
    except Exception as error:  # the host's code: whatever it raises, words must go on finding
        raise EmbedderUnavailable(f"the embedder {name} failed: {type(error).__name__}: {error}") from error
    wanted = (len(texts), dimension or (vectors.shape[1] if vectors.ndim == 2 else 0))
    if vectors.shape != wanted or not wanted[1]:
        raise EmbedderUnavailable(f"the embedder {name} gave vectors of shape {vectors.shape}, wanted {wanted}")
    return vectors


@lru_cache(maxsize=16)
def _named(value: str) -> tuple[tuple[str, int | None], ...]:
    """Names and ids of the models in use, as the setting holds them: a search asks four times."""
    return tuple((name, id) for name, id in json.loads(value))
