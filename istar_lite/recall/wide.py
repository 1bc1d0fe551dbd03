"""Large scopes: candidates from words and from cells, then the same ranking over these and their neighbours.

`Wide` brings a small `Scope` that stands for a large one: the documents that hold the rarest words of the query, those
in the nearest cells, what the cells do not cover, and what stands beside all of these in its session. How rare a word
is and how a vector stands out is counted over all: the frequency of a word that many hold is read off the first few
thousand (they say what part of all ids they take), mean and spread of the cosines off a sample of short runs of
documents, which is kept.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from istar_lite.database import sqlite3
from istar_lite.recall import cells, signals, vectors, words
from istar_lite.recall.loading import Place, add_vectors, chunks, scope_of, vectors_of
from istar_lite.recall.query import Query, Term
from istar_lite.recall.scope import Flags, Floats, Ints, Scope

if TYPE_CHECKING:
    from istar_lite.embedding import Model

LISTED = 4_000  # documents of one word that are looked at: newer ones first, where more hold it
BY_WORDS, BY_VECTORS = 450, 120  # candidates that words give, and that each model's vectors give
BESIDE = (-2, -1, 1, 2)  # places in the session beside a candidate
RUNS, RUN = 300, 5  # the sample: so many runs of so many documents in a row
OTHERS = frozenset(("turn", "message"))
FEW = 100_000  # documents that pass a narrow filter and are compared one by one
ENOUGH = 0.2  # share of the sample that passes the filters: with less, candidates would mostly be thrown away


@dataclass(frozen=True)
class Sample:
    """Documents that stand for a namespace of `count` documents; centres and cover of its cells by model."""

    scope: Scope
    count: int
    centres: Mapping[int, cells.Centres]
    covers: Mapping[int, cells.Cover]


@dataclass(frozen=True)
class Gathered:
    """A small scope that stands for a large one: who holds which term, and over what all of it counts."""

    scope: Scope
    found: list[words.Found]
    mentions: Flags
    corpus: words.Corpus
    moments: dict[str, signals.Moments]  # by signal


def are_few(sample: Scope, kinds: Sequence[str] | None) -> bool:
    """Whether documents of these kinds are few beside the turns and messages of a large namespace: then these alone are
    a scope, and the others need not be read."""
    if kinds is None or not OTHERS.isdisjoint(kinds):
        return False
    return float(sample.of_kinds(kinds).mean()) < ENOUGH


def covers_of(connection: sqlite3.Connection, place: Place, models: Sequence[Model]) -> dict[int, cells.Cover] | None:
    """What the cells of a whole namespace cover, by model; None where a search has to compare all."""
    if place.sessions is not None or not models:
        return None
    found = {model.id: cells.cover(connection, place.namespace, model) for model in models}
    held = {id: cover for id, cover in found.items() if cover is not None}
    return held if len(held) == len(found) else None


def sample_of(
    connection: sqlite3.Connection, samples: dict[Place, Sample], place: Place, models: Sequence[Model]
) -> Sample | None:
    """The kept sample of a large namespace, made anew when its cells were; None where a search has to compare all."""
    covers = covers_of(connection, place, models)
    if covers is None:
        return None
    known = samples.get(place)
    if known is None or {id: held.first for id, held in known.covers.items()} != {
        id: held.first for id, held in covers.items()
    }:
        known = _make_sample(connection, place, models, covers)
    elif known.covers != covers:
        known = replace(known, covers=covers)
    samples[place] = known
    return known


def _make_sample(
    connection: sqlite3.Connection, place: Place, models: Sequence[Model], covers: Mapping[int, cells.Cover]
) -> Sample:
    first, newest, count = connection.execute(
        "select min(id), max(id), count(*) from document where namespace = ?", (place.namespace,)
    ).fetchone()
    starts = np.linspace(first, max(first, newest - RUN), RUNS).astype(np.int64)
    ids = np.asarray(sorted({int(start) + step for start in starts for step in range(RUN)}), np.int64)
    scope = scope_of(connection, place, ids)
    for model in models:
        add_vectors(scope, model, vectors_of(connection, model, scope.ids))
    known = {model: cells.centres(connection, cover) for model, cover in covers.items()}
    return Sample(scope, int(count), known, covers)


@dataclass(frozen=True, slots=True)
class Listed:
    """A term with documents that hold it: all of those with ids from `complete_from` on."""

    term: Term
    ids: Ints
    frequency: float
    complete_from: int


class Wide:
    """One search of a large namespace."""

    def __init__(self, connection: sqlite3.Connection, place: Place, sample: Sample) -> None:
        self.connection = connection
        self.place = place
        self.sample = sample
        self.newest = int(connection.execute("select max(id) from document").fetchone()[0])

    def gather(self, query: Query, sought: Sequence[tuple[Model, Floats]]) -> Gathered:
        """Candidates and their neighbours for a query and its vectors, by model."""
        names = [Term(name, f'text: "{name}"') for name in query.names] if len(query.named) == 1 else []
        lists = [self._list(term) for term in (*query.terms, *names)]
        asked = lists[: len(query.terms)]
        ids = [self._rarest(asked)]
        for model, vector in sought:
            ids.append(cells.near(self.connection, self.sample.centres[model.id], vector, BY_VECTORS))
            ids.append(cells.uncovered(self.connection, self.sample.covers[model.id], cells.TAIL))
        chosen = np.asarray(sorted(set(np.concatenate(ids).tolist())), np.int64)
        scope = scope_of(self.connection, self.place, with_those_beside(self.connection, chosen, chosen))
        for model, _ in sought:
            add_vectors(scope, model, vectors_of(self.connection, model, scope.ids))
        found = self._holders(scope, lists, chosen)
        mentions = np.zeros(len(scope), bool)
        for one in found[len(asked) :]:
            mentions[one.places] = True
        lengths = self.sample.scope.length
        corpus = words.Corpus(
            self.sample.count, float(lengths.mean()) if len(lengths) else 1.0, [one.frequency for one in asked]
        )
        moments = {vectors.signal_of(model): self._moments(model, vector) for model, vector in sought}
        moments["words"] = word_moments(corpus)
        return Gathered(scope, found[: len(asked)], mentions, corpus, moments)

    def _list(self, term: Term) -> Listed:
        """The newest documents that hold a term, and an estimate of how many hold it."""
        within = "" if 2 * self.sample.count > self.newest else f"{self.place.words} AND "
        joined = self.connection.execute(
            "select group_concat(rowid) from (select rowid from document_fts where document_fts match ?"
            " order by rowid desc limit ?)",
            (f"{within}({term.expression})", LISTED),
        ).fetchone()[0]
        ids = np.fromstring(joined or "", np.int64, sep=",")
        if len(ids) < LISTED:
            return Listed(term, ids, float(len(ids)), 0)
        oldest = int(ids[-1])
        return Listed(term, ids, len(ids) * self.newest / (self.newest - oldest + 1), oldest)

    def _rarest(self, lists: Sequence[Listed]) -> Ints:
        """The documents that hold most of the terms, by rarity."""
        if not sum(len(one.ids) for one in lists):
            return np.zeros(0, np.int64)
        rarities = [words.rarity(self.sample.count, one.frequency) for one in lists]
        ids = np.concatenate([one.ids for one in lists])
        weights = np.repeat(rarities, [len(one.ids) for one in lists])
        order = np.argsort(ids, kind="stable")
        ids = ids[order]
        starts = np.flatnonzero(np.append(True, ids[1:] != ids[:-1]))
        sums = np.add.reduceat(weights[order], starts)
        best = np.argsort(-sums, kind="stable")[:BY_WORDS]
        return np.asarray(ids[starts[best]], np.int64)

    def _holders(self, scope: Scope, lists: Sequence[Listed], chosen: Ints) -> list[words.Found]:
        """Which documents of the scope hold each term: as listed, and of the chosen ones that are older than a list by
        looking them up. (That a neighbour holds one of the commonest words is let go.)"""
        found = [words.Found(one.term, scope.places(one.ids)) for one in lists]
        cut = [number for number, one in enumerate(lists) if one.complete_from]
        if cut:
            whole = look_up(self.connection, scope, [lists[number].term for number in cut], chosen)
            for number, one in zip(cut, whole, strict=True):
                both = sorted({*found[number].places.tolist(), *one.places.tolist()})
                found[number] = words.Found(one.term, np.asarray(both, np.int64))
        return found

    def _moments(self, model: Model, vector: Floats) -> signals.Moments:
        scope = self.sample.scope
        cosines = vectors.by_matrix(scope.vectors[model.id], vector, len(scope))
        if vectors.signal_of(model) == "static":
            cosines = signals.smoothed(cosines, scope, signals.WEIGHTS.smooth)
        return signals.moments(cosines, scope.speaking())


def around(connection: sqlite3.Connection, place: Place, ids: Ints, models: Sequence[Model]) -> Scope:
    """Some documents of a large namespace (ids ascending) with their vectors, and those beside them in sessions."""
    scope = scope_of(connection, place, ids)
    before, after = scope.links()
    edges = scope.ids[(scope.session > 0) & ((before < 0) | (after < 0))]
    if len(edges):
        scope = scope_of(connection, place, with_those_beside(connection, scope.ids, edges))
    for model in models:
        add_vectors(scope, model, vectors_of(connection, model, scope.ids))
    return scope


def with_those_beside(connection: sqlite3.Connection, ids: Ints, some: Ints) -> Ints:
    """Ids, and those of the documents that stand beside some of them in their sessions."""
    cursor = connection.cursor()
    cursor.row_factory = None
    rows = cursor.execute(
        "select other.id from json_each(?1) as known cross join document as one on one.id = known.value"
        " cross join json_each(?2) as step cross join document as other on other.namespace = one.namespace"
        " and other.session = one.session and other.position = one.position + step.value and other.kind = one.kind",
        (json.dumps(some.tolist()), json.dumps(BESIDE)),
    ).fetchall()
    return np.asarray(sorted({*ids.tolist(), *(row[0] for row in rows)}), np.int64)


def look_up(connection: sqlite3.Connection, scope: Scope, terms: Sequence[Term], ids: Ints) -> list[words.Found]:
    """Which of a few documents hold which terms: by full text over these alone, in memory, with the file's tokenizer.
    (`rowid in (…)` on the file's own would begin the search anew for each of them.)"""
    (declared,) = connection.execute("select sql from sqlite_master where name = 'document_fts'").fetchone()
    tokenizer = declared[declared.index("tokenize") :].rstrip(" )\n")
    texts = chunks(
        connection,
        "select document.id, text, cjk from json_each(?) as known cross join document on document.id = known.value",
        (json.dumps(ids.tolist()),),
    )
    memory = sqlite3.connect(":memory:", isolation_level=None)
    try:
        memory.execute(f"create virtual table small using fts5 (text, cjk, content='', {tokenizer})")
        memory.execute("begin")
        for rows in texts:
            memory.executemany("insert into small (rowid, text, cjk) values (?, ?, ?)", rows)
        found = []
        for term in terms:
            rows = memory.execute("select rowid from small where small match ?", (term.expression,)).fetchall()
            found.append(words.Found(term, scope.places(np.asarray([row[0] for row in rows], np.int64))))
        return found
    finally:
        memory.close()


def word_moments(corpus: words.Corpus) -> signals.Moments:
    """Mean and spread of the words' scores over all documents, as if terms were spread independently of each other."""
    shares = [min(frequency / max(corpus.count, 1), 1.0) for frequency in corpus.frequencies]
    rarities = [words.rarity(corpus.count, frequency) for frequency in corpus.frequencies]
    mean = math.fsum(share * rarity for share, rarity in zip(shares, rarities, strict=True))
    variance = math.fsum(share * (1 - share) * rarity**2 for share, rarity in zip(shares, rarities, strict=True))
    return signals.Moments(corpus.count, mean, variance)
