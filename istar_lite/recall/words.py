"""Words: which documents of a scope hold which terms of a query, and what that says.

`bm25()` is not asked: it counts over the whole index, so that other namespaces would change my ranking. Each term is
looked up by itself, within the scope, and weighted here by how rare it is *in the scope*. How often a text repeats a
term is left out (it would need `bm25()`): on conversations that changes Recall@10 by less than .001.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from istar_lite.recall.query import Term
from istar_lite.recall.scope import Flags, Floats, Holders, Ints, Scope

if TYPE_CHECKING:
    from istar_lite.database import sqlite3
    from istar_lite.recall.loading import Place

ROOM = 16  # times as many places are kept for terms as a scope has documents
BACKGROUND = 50  # documents without any of the words, thought of beside the scope: one memory alone has rare words too
SATURATION = 1.2  # as in BM25
LENGTH = 0.3  # how much long texts are held back; BM25's usual 0.75 is too much for turns of a conversation


@dataclass(frozen=True, slots=True)
class Found:
    """Places of the documents that hold a term."""

    term: Term
    places: Ints


def look_up(connection: sqlite3.Connection, place: Place, scope: Scope, terms: Sequence[Term]) -> list[Found]:
    """Looks up each term within the scope; costs what the scope holds of it, whatever the file holds.

    Where the scope is most of the file, it is cheaper to look up in all of it. One string of ids comes back per term:
    four times as fast as rows. What was found before is kept, and only what came since is looked up.
    """
    newest, change = connection.execute(
        "select coalesce((select max(id) from document), 0), coalesce((select max(id) from document_change), 0)"
    ).fetchone()
    known = (
        scope.holders if scope.state == (newest, change) else Holders()
    )  # another thread may have brought it further
    through = int(scope.ids[-1]) if len(scope) else 0
    within = "" if 2 * len(scope) > newest else f"{place.words} AND "
    cursor = connection.cursor()
    cursor.row_factory = None
    found = []
    for term in terms:
        before, places = known.get(term.expression)
        if before < through or not before:
            ids = cursor.execute(
                "select group_concat(rowid) from document_fts where document_fts match ? and rowid > ?",
                (f"{within}({term.expression})", before),
            ).fetchone()[0]
            places = np.append(places, scope.places(np.fromstring(ids or "", np.int64, sep=",")))
            known.put(term.expression, through, places, ROOM * max(len(scope), 1000))
        found.append(Found(term, places))
    return found


@dataclass(frozen=True, slots=True)
class WordEvidence:
    """Per document: the score, and the share of the query's words (by rarity) that it holds."""

    score: Floats
    coverage: Floats


@dataclass(frozen=True, slots=True)
class Corpus:
    """What words are counted over, where that is more than the documents at hand: how many there are, their mean
    length, and in how many of them each term is."""

    count: int
    length: float
    frequencies: Sequence[float]


def rarity(count: int, frequency: float) -> float:
    """The weight of a term that so many of `count` documents hold."""
    return float(np.log1p((count + BACKGROUND - frequency + 0.5) / (frequency + 0.5)))


def weigh(scope: Scope, candidates: Flags, found: Sequence[Found], corpus: Corpus | None = None) -> WordEvidence:
    """Scores of all documents, counted over the candidates alone, or over the `corpus` that they are taken from."""
    everything = bool(candidates.all())
    held = [one.places if everything else one.places[candidates[one.places]] for one in found]
    if corpus is None:
        count = len(scope) if everything else int(np.count_nonzero(candidates))
        lengths = scope.length if everything else scope.length[candidates]
        corpus = Corpus(count, float(lengths.mean(dtype=np.float64)) if count else 1.0, [len(one) for one in held])
    score = np.zeros(len(scope), np.float32)
    covered = np.zeros(len(scope), np.float32)
    total = 0.0
    for one, inside, frequency in zip(found, held, corpus.frequencies, strict=True):
        weight = rarity(corpus.count, frequency)
        score[inside] += np.float32(weight)
        if one.term.is_word:
            covered[inside] += np.float32(weight)
            total += weight
    held_back = scope.length * np.float32(SATURATION * LENGTH / max(corpus.length, 1.0))
    held_back += np.float32(1 + SATURATION * (1 - LENGTH))
    score *= np.float32(1 + SATURATION)
    score /= held_back
    return WordEvidence(score, covered / np.float32(total) if total else covered)
