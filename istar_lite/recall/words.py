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
from istar_lite.recall.scope import Flags, Floats, Ints, Scope

if TYPE_CHECKING:
    from istar_lite.database import sqlite3
    from istar_lite.recall.loading import Place

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
    four times as fast as rows.
    """
    newest = connection.execute("select coalesce(max(id), 0) from document").fetchone()[0]
    within = "" if 2 * len(scope) > newest else f"{place.words} AND "
    cursor = connection.cursor()
    cursor.row_factory = None
    found = []
    for term in terms:
        ids = cursor.execute(
            "select group_concat(rowid) from document_fts where document_fts match ?", (f"{within}({term.expression})",)
        ).fetchone()[0]
        found.append(Found(term, scope.places(np.fromstring(ids or "", np.int64, sep=","))))
    return found


@dataclass(frozen=True, slots=True)
class WordEvidence:
    """Per document: the score, and the share of the query's words (by rarity) that it holds."""

    score: Floats
    coverage: Floats


def weigh(scope: Scope, candidates: Flags, found: Sequence[Found]) -> WordEvidence:
    """Scores of all documents, counted over the candidates alone."""
    everything = bool(candidates.all())
    count = len(scope) if everything else int(np.count_nonzero(candidates))
    lengths = scope.length if everything else scope.length[candidates]
    mean = max(float(lengths.mean(dtype=np.float64)), 1.0) if count else 1.0
    held = [one.places if everything else one.places[candidates[one.places]] for one in found]
    rarities = [float(np.log1p((count + BACKGROUND - len(inside) + 0.5) / (len(inside) + 0.5))) for inside in held]
    score = np.zeros(len(scope), np.float32)
    covered = np.zeros(len(scope), np.float32)
    total = 0.0
    for one, inside, rarity in zip(found, held, rarities, strict=True):
        score[inside] += np.float32(rarity)
        if one.term.is_word:
            covered[inside] += np.float32(rarity)
            total += rarity
    held_back = scope.length * np.float32(SATURATION * LENGTH / mean)
    held_back += np.float32(1 + SATURATION * (1 - LENGTH))
    score *= np.float32(1 + SATURATION)
    score /= held_back
    return WordEvidence(score, covered / np.float32(total) if total else covered)
