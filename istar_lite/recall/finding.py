"""`search`: filters, then ranks what passes them, then brings the rows with what they rest on."""

from __future__ import annotations

import json
import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from istar_lite import places
from istar_lite.clock import epoch, from_text
from istar_lite.recall import cells, explain, floor, signals, vectors, wide, words
from istar_lite.recall.loading import Place, Scopes
from istar_lite.recall.marks import read_marks
from istar_lite.recall.query import Query, Term, read_query
from istar_lite.recall.request import STATUSES, Request
from istar_lite.recall.scope import KNOWN, TIMED, Flags, Floats, Ints, Scope, any_of
from istar_lite.records import Hit, Results, Source
from istar_lite.values import as_int, as_text

if TYPE_CHECKING:
    from istar_lite.database import sqlite3
    from istar_lite.embedding import Model
    from istar_lite.services import Services

POOL = 100  # documents whose texts are looked at before the last sorting; 800 find the same
SOURCES = 10  # of one hit
Row = Mapping[str, Any]


def search(services: Services, request: Request) -> Results:
    """What the request finds, best first.

    Filters apply before ranking; scores lie in [0, 1); ties go to the newer document, then to the higher id. With
    `floor`, what is hardly related is held back and counted in `filtered`, as is what `min_score` holds back.
    """
    blank = not any(unicodedata.category(character)[0] in "LN" for character in request.query)
    if blank or request.k == 0:
        return Results(query=request.query)
    request = replace(request, tags=services.stored_tags(request.tags))
    place = _place(services.file.reader(), request)
    if place is not None and services.embedding.embedders:
        services.embedding.settle(services, namespace=place.namespace)
        if place.sessions is None:
            cells.keep_up(services, place.namespace)
    with services.file.reading() as connection:
        if place is None:
            results = Results(query=request.query, mode=services.embedding.mode(connection))
            results._explain_missing = _nowhere(request)
            return results
        return _Search(services, connection, request, place).run()


def _place(connection: sqlite3.Connection, request: Request) -> Place | None:
    """Where to search; None when there is no such namespace or session."""
    namespace = places.find_namespace(connection, request.namespace)
    if namespace is None or request.sessions is None:
        return None if namespace is None else Place(namespace)
    found = connection.execute(
        "select id from session where namespace = ? and name in (select value from json_each(?)) order by id",
        (namespace, json.dumps(request.sessions)),
    ).fetchall()
    return Place(namespace, tuple(int(row[0]) for row in found)) if found else None


def _nowhere(request: Request) -> Any:
    where = f"the namespace {request.namespace!r}" + (f", the sessions {request.sessions}" if request.sessions else "")
    return lambda kind, id: f"{kind} {id} was left out: nothing is stored in {where}"


def scopes_of(services: Services) -> Scopes:
    """The scopes kept for this open file."""
    with services.lock:
        if services.scopes is None:
            services.scopes = Scopes()
        return services.scopes


@dataclass
class _Evidence:
    """What words and vectors say, per document of the scope."""

    values: dict[str, Floats]  # by signal
    by: dict[str, str]  # who compared, by signal
    coverage: Floats
    mentions: Flags  # whose text holds the name of the only participant named
    among: Mapping[str, signals.Moments] | None = None  # of all documents, where the scope is but a part of them


class _Search:
    """One search: the steps in order, over one state of the file."""

    def __init__(self, services: Services, connection: sqlite3.Connection, request: Request, place: Place) -> None:
        self.services = services
        self.connection = connection
        self.request = request
        self.place = place
        self.usable = services.embedding.usable(connection)

    def run(self) -> Results:
        models = [model for _, model in self.usable]
        scopes = scopes_of(self.services)
        sample = wide.sample_of(self.connection, scopes.samples, self.place, models)
        if sample is not None and self._candidates(sample.scope).mean() >= wide.ENOUGH:
            return self._among_many(sample)
        if sample is not None and wide.are_few(sample.scope, self.request.kinds):
            self.place = replace(self.place, kinds=self.request.kinds)
        elif sample is not None and (few := self._narrowed()) is not None:
            return self._among_few(sample, few)
        scope, lock = scopes.get(self.connection, self.place, models)
        with lock:
            speakers = scope.speakers if self.place.kinds is None or sample is None else sample.scope.speakers
            query = read_query(self.request.query, speakers)
            candidates = self._candidates(scope)
            newest = self.connection.execute("select coalesce(max(id), 0) from document").fetchone()[0]
            if len(scope) and scope.ids[-1] > newest:  # another thread brought the scope further than we read
                candidates &= scope.ids <= newest
            return self._ranked(scope, query, candidates, self._evidence(scope, query, candidates))

    def _among_many(self, sample: wide.Sample) -> Results:
        query = read_query(self.request.query, sample.scope.speakers)
        sought = self._sought(query)
        gathered = wide.Wide(self.connection, self.place, sample).gather(query, sought)
        scope, candidates = gathered.scope, self._candidates(gathered.scope)
        weighed = words.weigh(scope, candidates, gathered.found, gathered.corpus)
        evidence = _Evidence(
            {"words": weighed.score}, {"words": "full text"}, weighed.coverage, gathered.mentions, gathered.moments
        )
        for model, vector in sought:
            kind = vectors.signal_of(model)
            evidence.values[kind] = vectors.by_matrix(scope.vectors[model.id], vector, len(scope))
            evidence.by[kind] = "cells"
        return self._ranked(scope, query, candidates, evidence)

    def _among_few(self, sample: wide.Sample, ids: Ints) -> Results:
        scope = wide.around(self.connection, self.place, ids, [model for _, model in self.usable])
        query = read_query(self.request.query, sample.scope.speakers)
        candidates = self._candidates(scope)
        return self._ranked(scope, query, candidates, self._evidence(scope, query, candidates))

    def _ranked(self, scope: Scope, query: Query, candidates: Flags, evidence: _Evidence) -> Results:
        request = self.request
        weights = request.weights or signals.WEIGHTS
        size = max(POOL, 3 * request.k)
        ranking = signals.first_round(
            scope, query, evidence.values, candidates, evidence.mentions, size, weights, evidence.among
        )
        self._mark(scope, ranking.pool, time=query.asks_time)
        ranking = signals.second_round(scope, query, ranking, self._prior(scope.ids[ranking.pool]), weights)
        order = self._order(scope, ranking)
        best = order[: request.k]
        kept = best[self._passes(scope, query, evidence, ranking, best)]
        results = Results.model_construct(
            hits=self._hits(scope, query, ranking, evidence, kept),
            mode="hybrid" if len(evidence.values) > 1 else "words",
            filtered=len(best) - len(kept),
            query=request.query,
        )
        self._explain_missing(results, scope.ids[ranking.pool[order]], scope.ids[ranking.pool[kept]])
        return results

    # --- filters ----------------------------------------------------------------------------------------------

    def _candidates(self, scope: Scope) -> Flags:
        """Which documents pass every filter. With `as_of`: what held on that day, whatever became of it since."""
        request = self.request
        now = _julian_day(request.as_of or self.services.now())
        passes = scope.speaking().copy()
        if request.as_of is not None:
            passes &= (scope.day <= now) & (scope.ended > now) & (scope.expires > now)
        elif request.statuses is not None:
            passes &= any_of(scope.status, [STATUSES.index(status) for status in request.statuses])
            passes &= scope.expires > now
        if request.kinds is not None:
            passes &= scope.of_kinds(request.kinds)
        if request.since is not None:
            passes &= scope.day >= _julian_day(request.since)
        if request.until is not None:
            passes &= scope.day < _julian_day(request.until)
        if request.tags:
            tagged = np.zeros(len(scope), bool)
            tagged[scope.places(self._tagged())] = True
            passes &= tagged
        return passes

    def _narrowed(self) -> Ints | None:
        """Ids of the documents that carry the tags asked for, or are of the time: all that pass are among them. Without
        an index by time (36 bytes a document) that goes through the namespace, and still takes a fifth of the memory
        of comparing all of it. None where neither was asked for, or too many are."""
        request = self.request
        if request.tags:
            ids = self._tagged()
        elif request.since is not None or request.until is not None:
            rows = _plain(
                self.connection,
                "select id from document where +namespace = ? and occurred_at >= ? and occurred_at < ? limit ?",
                (self.place.namespace, request.since or "", request.until or "~", wide.FEW + 1),
            )
            ids = np.asarray([row[0] for row in rows], np.int64)
        else:
            return None
        return np.sort(ids) if len(ids) <= wide.FEW else None

    def _tagged(self) -> Ints:
        """Documents that carry all the tags."""
        rows = self.connection.execute(
            "select document.id from tag join document on document.kind = tag.kind and document.row = tag.row"
            " where tag.tag in (select value from json_each(?1)) group by document.id having count(*) = ?2",
            (json.dumps(self.request.tags), len(self.request.tags)),
        ).fetchall()
        return np.asarray([row[0] for row in rows], np.int64)

    # --- evidence ---------------------------------------------------------------------------------------------

    def _evidence(self, scope: Scope, query: Query, candidates: Flags) -> _Evidence:
        found = words.look_up(self.connection, self.place, scope, query.terms)
        weighed = words.weigh(scope, candidates, found)
        evidence = _Evidence(
            {"words": weighed.score}, {"words": "full text"}, weighed.coverage, self._mentions(scope, query)
        )
        for model, vector in self._sought(query):
            cosines, by = self._cosines(scope, model, vector)
            if not np.isnan(cosines).all():
                kind = vectors.signal_of(model)
                evidence.values[kind], evidence.by[kind] = cosines, by
        return evidence

    def _sought(self, query: Query) -> list[tuple[Model, Floats]]:
        """The vector of the query for each model that has one."""
        found = []
        for embedder, model in self.usable:
            vector = self.services.embedding.query(embedder, query.plain[:2000], model.dimension)
            if vector is not None:
                found.append((model, vector))
        return found

    def _cosines(self, scope: Scope, model: Model, vector: Floats) -> tuple[Floats, str]:
        held = scope.vectors.get(model.id)
        if held is None:
            return vectors.over_blobs(self.connection, self.place, scope, model, vector)
        return vectors.by_matrix(held, vector, len(scope)), "matrix"

    def _mentions(self, scope: Scope, query: Query) -> Flags:
        """Documents whose text holds the name of the only participant named; those without a speaker count."""
        mentions = np.zeros(len(scope), bool)
        if len(query.named) == 1 and bool((scope.speaker < 0).any()):
            terms = [Term(name, f'text: "{name}"') for name in query.names]
            for found in words.look_up(self.connection, self.place, scope, terms):
                mentions[found.places] = True
        return mentions

    # --- the last sorting -------------------------------------------------------------------------------------

    def _mark(self, scope: Scope, pool: Ints, *, time: bool) -> None:
        """Makes the marks known of the pool and of those before it; they are kept with the scope."""
        before = scope.links()[0][pool]
        needed = np.concatenate([pool, before[before >= 0]])
        wanted = KNOWN | TIMED if time else KNOWN
        unknown = np.asarray(sorted(set(needed[scope.marks[needed] & wanted != wanted].tolist())), np.int64)
        if not len(unknown):
            return
        texts = dict(self._of(scope.ids[unknown], "select id, text from document where id"))
        names = {word.lower() for speaker in scope.speakers for word in speaker.split()}
        for at, id in zip(unknown.tolist(), scope.ids[unknown].tolist(), strict=True):
            scope.marks[at] = read_marks(texts.get(id, ""), names, time=time)

    def _of(self, ids: Ints, select: str) -> list[Any]:
        """Rows of these documents, by a statement that ends in the name of their id."""
        return _plain(self.connection, f"{select} in (select value from json_each(?))", (json.dumps(ids.tolist()),))

    def _prior(self, ids: Ints) -> Floats:
        result = np.ones(len(ids))
        if self.request.prior is None:
            return result
        rows = self._of(ids, "select id, kind, row from document where id")
        place = {id: at for at, id in enumerate(ids.tolist())}
        given = self.request.prior([(kind, row) for _, kind, row in rows])
        result[[place[id] for id, _, _ in rows]] = np.asarray(given, np.float64)
        return result

    def _order(self, scope: Scope, ranking: signals.Ranking) -> Ints:
        """Places in the pool, best first. Where nothing but words was compared, what holds none of them and is near
        none that does is no find; where vectors were, everything was compared."""
        pool, raw = ranking.pool, ranking.raw
        likeness: Floats = np.zeros(len(pool))
        for signal in ranking.signals.values():
            likeness += np.where(np.isnan(signal.value), 0.0, signal.value)
        found = (raw > 0) | (likeness > 0)
        order = np.lexsort((-scope.ids[pool], -scope.day[pool], -likeness, -raw))
        return np.asarray(order[found[order]], np.int64)

    def _passes(self, scope: Scope, query: Query, evidence: _Evidence, ranking: signals.Ranking, best: Ints) -> Flags:
        passes = np.ones(len(best), bool)
        if self.request.min_score is not None:
            passes &= np.asarray(signals.score_of(ranking.raw[best])) >= self.request.min_score
        if self.request.floor:
            cosines = {kind: signal.value for kind, signal in ranking.signals.items() if kind != "words"}
            floors = {
                vectors.signal_of(model): floor.cosine_floor(self.connection, vectors.signal_of(model), scope, model)
                for _, model in self.usable
                if vectors.signal_of(model) in cosines
            }
            passes &= floor.passes(floor.relevance(query, evidence.coverage[ranking.pool], cosines, floors), best)
        return passes

    # --- results ----------------------------------------------------------------------------------------------

    def _hits(
        self, scope: Scope, query: Query, ranking: signals.Ranking, evidence: _Evidence, kept: Ints
    ) -> tuple[Hit, ...]:
        places = ranking.pool[kept]
        links = np.stack([link[places] for link in scope.links()]) if self.request.sources else np.zeros((0, 0), int)
        wanted = scope.ids[np.concatenate([places, links[links >= 0]])]
        rows = {row[0]: row for row in self._of(wanted, f"{_ROW} where document.id")}
        beside = [[rows.get(id) for id in ids] for ids in _ids_of(scope, links)] or [[] for _ in places]
        hits = []
        for at, id, around in zip(kept.tolist(), scope.ids[places].tolist(), beside, strict=True):
            if id in rows:  # the scope may know what came after this connection's state of the file
                told = explain.explain(ranking, query, evidence.by, at) if self.request.explain else None
                hits.append(self._hit(rows[id], around, float(ranking.raw[at]), told))
        return tuple(hits)

    def _hit(self, found: _Row, beside: Sequence[_Row | None], raw: float, told: dict[str, Any] | None) -> Hit:
        _, kind, row, title, *_, status, _ = found
        return Hit.of_ours(
            {
                **_shown(found),
                "title": title,
                "score": float(signals.score_of(raw)),
                "status": status,
                "sources": self._sources(kind, row, beside) if self.request.sources else (),
                "explain": told,
            }
        )

    def _sources(self, kind: str, row: int, beside: Sequence[_Row | None]) -> tuple[Source, ...]:
        """The rows a hit rests on; for a turn or message, those beside it in its session."""
        if kind not in ("turn", "message"):
            beside = _rests_on(self.connection, kind, row)
        return tuple(_source(one) for one in beside if one is not None)

    def _explain_missing(self, results: Results, order: Ints, kept: Ints) -> None:
        request, ids, shown = self.request, order.tolist(), set(kept.tolist())

        def after(document: int) -> str:
            if document in shown:
                return "it is among the hits"
            if document not in ids:
                return "it was compared, but shares no word and nothing else with the query that others had not more of"
            rank = ids.index(document) + 1
            if rank > request.k:
                return f"it ranks {rank}., and k is {request.k}"
            return f"it ranks {rank}., but lies below {'the floor' if request.floor else 'min_score'}"

        def asked(kind: str, id: int) -> str:
            connection = self.services.file.reader()
            return explain.missing_from(
                connection, self._checks(connection), after, as_text(kind, "kind"), as_int(id, "id")
            )

        results._explain_missing = asked

    def _checks(self, connection: sqlite3.Connection) -> list[explain.Check]:
        """The filters once more, as sentences over a row of `document`."""
        request, place = self.request, self.place
        moment = request.as_of or self.services.now()
        statuses = request.statuses if request.as_of is None else None

        def tags_of(row: Row) -> set[str]:
            found = connection.execute("select tag from tag where kind = ? and row = ?", (row["kind"], row["row"]))
            return {tag[0] for tag in found}

        return [
            ("it holds no text", lambda row: row["text"] != ""),
            ("it belongs to another namespace", lambda row: row["namespace"] == place.namespace),
            ("it is of another session", lambda row: place.sessions is None or row["session"] in place.sessions),
            ("its kind was not asked for", lambda row: request.kinds is None or row["kind"] in request.kinds),
            ("it does not carry all the tags", lambda row: set(request.tags) <= tags_of(row)),
            ("it is older than `since`", lambda row: not request.since or row["occurred_at"] >= request.since),
            ("it is not older than `until`", lambda row: not request.until or row["occurred_at"] < request.until),
            (
                "it did not hold at `as_of`",
                lambda row: (
                    not request.as_of
                    or (row["occurred_at"] <= moment and (row["ended_at"] is None or row["ended_at"] > moment))
                ),
            ),
            ("its status was not asked for", lambda row: statuses is None or row["status"] in statuses),
            ("it rests on something that was changed or forgotten", lambda row: not row["stale"]),
            (
                "it has expired",
                lambda row: (
                    (statuses is None and not request.as_of) or row["expires_at"] is None or row["expires_at"] > moment
                ),
            ),
        ]


def _julian_day(stored: str) -> float:
    """A stored time as SQLite's `julianday` gives it, to the last bit: both divide the same milliseconds."""
    return (round(epoch(stored) * 1000) + 210_866_760_000_000) / 86_400_000.0


_Row = tuple[int, str, int, str | None, str, str | None, str | None, str, str, str | None]  # as _ROW selects
_ROW = (
    "select document.id, document.kind, row, title, text, speaker, external_id, occurred_at, status,"
    " session.name as session from document left join session on session.id = document.session"
)


def _plain(connection: sqlite3.Connection, sql: str, values: Sequence[Any]) -> list[Any]:
    """Rows as plain tuples: to ask a row for its columns by name takes longer than to read it."""
    cursor = connection.cursor()
    cursor.row_factory = None
    return cursor.execute(sql, values).fetchall()


def _source(found: _Row) -> Source:
    return Source.of_ours(_shown(found))


def _shown(found: _Row) -> dict[str, Any]:
    """What a hit and a source tell alike."""
    _, kind, row, _, text, speaker, external_id, occurred_at, _, session = found
    return {
        "kind": kind,
        "id": row,
        "text": text,
        "session": session,
        "speaker": speaker,
        "occurred_at": from_text(occurred_at),
        "external_id": external_id,
    }


def _ids_of(scope: Scope, links: Ints) -> list[list[int]]:
    """For each hit the ids of the documents beside it, where `links` has their places by row."""
    return [[int(scope.ids[link]) for link in beside if link >= 0] for beside in links.T.tolist()]


def _rests_on(connection: sqlite3.Connection, kind: str, id: int) -> Sequence[_Row]:
    """The turns and messages at the bottom of a row, at most `SOURCES` of them, oldest first."""
    level = [(kind, id)]
    leaves: dict[tuple[str, int], None] = {}
    for _ in range(4):  # profile → episode → atom → turn is the longest way
        below: dict[tuple[str, int], None] = {}
        for one in level:
            rows = connection.execute(
                "select source_kind, source_id from provenance where kind = ? and id = ?", one
            ).fetchmany(4 * SOURCES)  # a `limit` would make SQLite go through all arms of the view: 8 times as long
            below.update(dict.fromkeys((str(row[0]), int(row[1])) for row in rows))
        leaves.update(dict.fromkeys(one for one in below if one[0] in ("turn", "message")))
        level = [one for one in below if one[0] not in ("turn", "message")]
        if not level or len(leaves) >= SOURCES:
            break
    chosen = [row for one in list(leaves)[:SOURCES] for row in _document(connection, *one)]
    return sorted(chosen, key=lambda row: (row[7], row[2]))


def _document(connection: sqlite3.Connection, kind: str, id: int) -> list[_Row]:
    return _plain(connection, f"{_ROW} where document.kind = ? and document.row = ?", (kind, id))
