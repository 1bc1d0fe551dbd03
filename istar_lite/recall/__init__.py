"""Recall: the right rows among many, with no model asked.

`request` checks what is asked for; `finding` filters, ranks, and brings the rows. `query` reads the question, `words`
and `vectors` say what each document has of it, `signals` is how that becomes a ranking (one table of weights),
`scope` holds the documents as columns, `loading` keeps them up with the file, `floor` says when nothing is relevant,
`explain` why a hit is where it is. `cells` and `wide` do the same for namespaces of more than 100,000 documents.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from istar_lite.models import Results
    from istar_lite.recall.request import Request
    from istar_lite.services import Services

__all__ = ["make_request", "search", "tend"]


def search(services: Services, request: Request) -> Results:
    """See `istar_lite.recall.finding`; numpy is imported by the first search, not before."""
    from istar_lite.recall.finding import search as run

    return run(services, request)


def make_request(namespace: str, query: Any, **choices: Any) -> Request:
    """A checked `Request` from the arguments of `Memory.search`."""
    from istar_lite.recall.request import make_request as make

    return make(namespace, query, **choices)


def tend(services: Services) -> None:
    """Makes and keeps up the cells of large namespaces; see `istar_lite.recall.cells`."""
    if services.embedding.embedders:
        from istar_lite.recall.cells import tend as run

        run(services)
