"""Cells of a large namespace: made by k-means, kept up, and asked which documents lie near a query.

Above 100,000 documents a search need not compare all. There are about 2·√n cells; those whose centres are nearest
are looked into, and of their members those whose sketches (one bit a component) agree best are candidates. What the
cells do not cover yet, because it is new or was changed, is a candidate as it is.

Everything is written in short transactions of a few thousand rows. Nothing depends on cells being there or complete:
what is found through them is read anew from `document` and `embedding`.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from istar_lite import places
from istar_lite.recall.loading import Place, chunks
from istar_lite.recall.scope import Floats, Ints

if TYPE_CHECKING:
    from istar_lite.database import File, sqlite3
    from istar_lite.embedding import Model
    from istar_lite.services import Services

LEAST = 100_000  # documents of a namespace from which on cells are made; up to there a matrix is faster, in 25 MB
GROWN = 2.0  # times as many documents as when the cells were made: they are made anew
TAIL = 2_000  # documents that the cells do not cover and that are compared one by one before they are brought in
PROBES = 0.01  # share of the cells that are looked into, and
FEWEST_PROBES = 16  # at least so many
SAMPLE = 16  # vectors per cell that k-means sees
ROUNDS = 6
BATCH = 4096  # vectors brought into their cells in one transaction

Matrix = npt.NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class Cover:
    """What the cells of a namespace cover: cells `first` … `last`, documents up to `through`, changes up to `change`;
    made when there were `count` documents."""

    first: int
    last: int
    through: int
    change: int
    count: int


@dataclass(frozen=True)
class Centres:
    """The centres of cells at unit length, the ids of these, and the mean of the centres, against which bits count."""

    ids: Ints
    units: Matrix
    mean: Matrix

    def nearest(self, units: Matrix) -> Ints:
        """For each of some unit vectors the place of its nearest centre."""
        return np.asarray(np.argmax(units @ self.units.T, axis=1), np.int64)

    def sketches(self, units: Matrix) -> npt.NDArray[np.uint8]:
        """One bit for each component, eight to a byte: shape (n, ceil(dimension / 8))."""
        return np.packbits(units > self.mean, axis=1)


def cover(connection: sqlite3.Connection, namespace: int, model: Model) -> Cover | None:
    """What the cells cover; None where there are none."""
    row = connection.execute(
        "select value from setting where key = ? and namespace = ? and session = 0", (f"cells:{model.id}", namespace)
    ).fetchone()
    if row is None:
        return None
    held = Cover(**json.loads(row[0]))
    there = connection.execute("select 1 from cell where id = ? and model = ?", (held.last, model.id)).fetchone()
    return held if there else None  # somebody deleted them: all vectors are compared until they are made again


def centres(connection: sqlite3.Connection, held: Cover) -> Centres:
    """The centres of the cells, read from the file."""
    rows = connection.execute(
        "select id, centre from cell where id between ? and ? order by id", (held.first, held.last)
    ).fetchall()
    units = _units(b"".join(row[1] for row in rows), len(rows))
    return Centres(np.asarray([row[0] for row in rows], np.int64), units, units.mean(axis=0))


def _units(blobs: bytes, count: int) -> Matrix:
    rows = np.frombuffer(blobs, np.int8).reshape(count, -1).astype(np.float32)
    rows /= np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-9)
    return rows


# --- asking ---------------------------------------------------------------------------------------------------


def near(connection: sqlite3.Connection, known: Centres, query: Floats, most: int) -> Ints:
    """Documents in the cells nearest to a query (a unit vector) whose sketches agree best with it, `most` of them."""
    probes = min(max(FEWEST_PROBES, int(PROBES * len(known.ids))), len(known.ids))
    likeness = np.vecdot(known.units, query.astype(np.float32))  # not `@`: see vectors.products
    chosen = known.ids[np.argpartition(-likeness, probes - 1)[:probes]]
    cursor = connection.cursor()
    cursor.row_factory = None
    rows = cursor.execute(
        f"select document, sketch from cell_member where cell in ({', '.join(map(str, chosen.tolist()))})"
    ).fetchall()
    if not rows:
        return np.zeros(0, np.int64)
    ids, sketches = zip(*rows, strict=True)
    bits = np.frombuffer(b"".join(sketches), np.uint8).reshape(len(ids), -1)
    apart = np.bitwise_count(bits ^ known.sketches(query[None, :].astype(np.float32))).sum(axis=1, dtype=np.int64)
    best = np.argsort(apart, kind="stable")[:most] if len(ids) > most else np.arange(len(ids))
    return np.asarray(ids, np.int64)[best]


def uncovered(connection: sqlite3.Connection, held: Cover, most: int) -> Ints:
    """Documents, of any namespace, that the cells do not know as they are now, at most so many."""
    rows = connection.execute(
        "select id from document where id > ?1 union select document from document_change where id > ?2 limit ?3",
        (held.through, held.change, most),
    ).fetchall()
    return np.asarray([row[0] for row in rows], np.int64)


# --- making and keeping up ------------------------------------------------------------------------------------


def tend(services: Services, namespace: int | None = None, *, least: int | None = None) -> int:
    """Makes the cells of namespaces that have become large, and brings in what their cells do not cover; how many
    namespaces had something to do. `least`: from how many documents on, default `LEAST`."""
    file = services.file
    if file.read_only:
        return 0
    connection = file.reader()
    owners = (
        [namespace] if namespace is not None else [row[0] for row in connection.execute("select id from namespace")]
    )
    done = 0
    for _, model in services.embedding.usable(connection):
        for owner in owners:
            done += _tend_one(file, owner, model, LEAST if least is None else least)
    return done


def keep_up(services: Services, namespace: int) -> None:
    """Before a search: brings in what the cells of a namespace do not cover, once that is more than a search should
    compare one by one. Costs two look-ups else, and makes no cells."""
    if services.file.read_only:
        return
    connection = services.file.reader()
    for _, model in services.embedding.usable(connection):
        held = cover(connection, namespace, model)
        if held is not None and len(uncovered(connection, held, TAIL)) >= TAIL:
            _bring_in(services.file, namespace, model, held)


def _tend_one(file: File, namespace: int, model: Model, least: int) -> bool:
    connection = file.reader()
    held = cover(connection, namespace, model)
    newest, change = _newest(connection)
    if held is not None and (held.through, held.change) == (newest, change):
        return False
    count = connection.execute("select count(*) from document where namespace = ?", (namespace,)).fetchone()[0]
    if held is None or count > GROWN * held.count:
        if count <= least:
            return False
        _make(file, namespace, model, count)
    else:
        _bring_in(file, namespace, model, held)
    return True


def _newest(connection: sqlite3.Connection) -> tuple[int, int]:
    row = connection.execute(
        "select coalesce((select max(id) from document), 0), coalesce((select max(id) from document_change), 0)"
    ).fetchone()
    return int(row[0]), int(row[1])


def _make(file: File, namespace: int, model: Model, count: int) -> None:
    """Cells from nothing. Those that are there serve until the new ones are complete, and go then."""
    connection = file.reader()
    through, change = _newest(connection)
    found = k_means(_sample(connection, namespace, model, count), max(1, round(2 * math.sqrt(count))))
    if not len(found):
        return
    with file.write() as tx:
        tx.executemany(
            "insert into cell (namespace, model, centre) values (?, ?, ?)",
            [(namespace, model.id, _blob(centre)) for centre in found],
        )
        last = int(tx.execute("select max(id) from cell").fetchone()[0])
    held = Cover(last - len(found) + 1, last, through, change, count)
    _fill(file, namespace, model, centres(connection, held), "true")
    with file.write() as tx:
        _note(tx, namespace, model, held)
    _drop_others(file, namespace, model, held)


def _blob(unit: Matrix) -> bytes:
    steps = np.rint(unit / max(float(np.abs(unit).max()), 1e-9) * 127)
    return bytes(steps.astype(np.int8).tobytes())


def _sample(connection: sqlite3.Connection, namespace: int, model: Model, count: int) -> Matrix:
    """Vectors of documents spread evenly over the namespace, at unit length."""
    wanted = round(2 * math.sqrt(count)) * SAMPLE
    ids = np.asarray(
        [row[0] for rows in chunks(connection, f"select id from {Place(namespace).ids}") for row in rows], np.int64
    )
    chosen = ids[np.linspace(0, len(ids) - 1, min(wanted, len(ids))).astype(np.int64)]
    blobs: list[bytes] = []
    for at in range(0, len(chosen), BATCH):
        blobs.extend(
            row[0]
            for row in connection.execute(
                "select vector from json_each(?1) cross join embedding on document = value"
                " where model = ?2 and part = 0 and length(vector) > 0",
                (json.dumps(chosen[at : at + BATCH].tolist()), model.id),
            )
        )
    return _units(b"".join(blobs), len(blobs)) if blobs else np.zeros((0, model.dimension), np.float32)


def k_means(units: Matrix, count: int) -> Matrix:
    """Centres of some unit vectors, at unit length, shape (at most count, dimension). It starts from vectors spread
    evenly over their order, so that the same vectors give the same cells; cells that nothing falls to are left out."""
    if not len(units):
        return units
    found = units[np.linspace(0, len(units) - 1, min(count, len(units))).astype(np.int64)].copy()
    for _ in range(ROUNDS):
        owner = np.concatenate(
            [np.argmax(units[at : at + BATCH] @ found.T, axis=1) for at in range(0, len(units), BATCH)]
        )
        order = np.argsort(owner, kind="stable")
        starts = np.flatnonzero(np.append(True, owner[order[1:]] != owner[order[:-1]]))
        sums = np.add.reduceat(units[order], starts, axis=0)
        lengths = np.linalg.norm(sums, axis=1, keepdims=True)
        found = sums / np.maximum(lengths, 1e-9)
    return np.asarray(found, np.float32)


def _fill(file: File, namespace: int, model: Model, known: Centres, which: str) -> None:
    """Brings vectors into their cells, some thousands in a transaction; `which`: a condition over `embedding`."""
    for rows in _passages(file.reader(), namespace, model, which):
        units = _units(b"".join(row[2] for row in rows), len(rows))
        owners = known.ids[known.nearest(units)].tolist()
        sketches = known.sketches(units)
        with file.write() as tx:
            tx.executemany(
                "insert into cell_member (cell, document, part, sketch) select ?1, ?2, ?3, ?4 where exists"
                " (select 1 from embedding where document = ?2 and model = ?5 and part = ?3 and vector = ?6)"
                " on conflict (cell, document, part) do update set sketch = excluded.sketch",
                [
                    (owner, row[0], row[1], sketch.tobytes(), model.id, row[2])
                    for owner, row, sketch in zip(owners, rows, sketches, strict=True)
                ],
            )


def _passages(
    connection: sqlite3.Connection, namespace: int, model: Model, which: str
) -> Iterator[list[tuple[int, int, bytes]]]:
    """(document, part, vector), a batch at a time, in order of documents. Each batch is a query of its own, so that no
    reader stays open while its rows are written."""
    cursor = connection.cursor()
    cursor.row_factory = None
    document, part = 0, -1
    while True:
        rows = cursor.execute(
            "select embedding.document, part, vector from embedding"
            " cross join document on document.id = embedding.document and +document.namespace = ?"
            " where model = ? and embedding.document >= ? and (embedding.document > ? or part > ?)"
            f" and length(vector) > 0 and ({which}) order by embedding.document, part limit {BATCH}",
            (namespace, model.id, document, document, part),
        ).fetchall()
        if not rows:
            return
        yield rows
        document, part = rows[-1][:2]


def _bring_in(file: File, namespace: int, model: Model, held: Cover) -> None:
    """What came or changed since."""
    connection = file.reader()
    through, change = _newest(connection)
    oldest = connection.execute("select coalesce(min(id), 0) from document_change").fetchone()[0]
    since = 0 if oldest > held.change + 1 else held.through  # older changes are no longer kept: look at all
    known = centres(connection, held)
    unknown = (
        "not exists (select 1 from cell_member as member where member.document = embedding.document"
        f" and member.part = embedding.part and member.cell between {held.first} and {held.last})"
    )
    changed = f"select document from document_change where id > {held.change}"
    for which in (f"embedding.document > {since}", f"embedding.document in ({changed})"):
        _fill(file, namespace, model, known, f"{which} and {unknown}")
    with file.write() as tx:
        _note(tx, namespace, model, Cover(held.first, held.last, through, change, held.count))


def _note(tx: sqlite3.Connection, namespace: int, model: Model, held: Cover) -> None:
    places.set_setting(tx, f"cells:{model.id}", json.dumps(asdict(held)), namespace=namespace)


def _drop_others(file: File, namespace: int, model: Model, held: Cover) -> None:
    """Cells of an earlier making, or of one that was cut off: one at a time, so that nobody waits."""
    old = file.reader().execute(
        "select id from cell where namespace = ? and model = ? and id not between ? and ?",
        (namespace, model.id, held.first, held.last),
    )
    for row in old.fetchall():
        with file.write() as tx:
            tx.execute("delete from cell where id = ?", (row[0],))
