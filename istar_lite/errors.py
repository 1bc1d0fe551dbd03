"""Everything istar-lite raises on purpose. The first sentence of each docstring is the message's meaning.

IstarError
├── NotAMemoryFile   FileTooNew   FileDamaged   ReadOnly   Busy
├── WrongEmbedder    UnusableAnswer   BudgetSpent
├── BadInput (also a ValueError; .field)
└── ScopeRequired (also a ValueError)
"""

from __future__ import annotations


class IstarError(Exception):
    """The memory could not do what was asked; the message says why and names the thing at fault."""


class NotAMemoryFile(IstarError):
    """The file exists but is no istar-lite memory: no database, or another program's. It was not changed."""


class FileTooNew(IstarError):
    """The file was written by a newer istar-lite than this one. It was not changed."""


class FileDamaged(IstarError):
    """The file is an istar-lite memory, but SQLite cannot read it whole. It was not changed."""


class ReadOnly(IstarError):
    """The memory cannot be written: opened read-only, or the file or its folder forbids it."""


class Busy(IstarError):
    """Somebody else holds the file, and the bounded wait ran out. Nothing was written; trying again is safe."""


class WrongEmbedder(IstarError):
    """The embedder at hand is not the one whose vectors the file holds. Words still find; `reembed` rebuilds."""


class UnusableAnswer(IstarError):
    """The model answered, but nothing readable: the input stays due and is asked again later."""


class BudgetSpent(IstarError):
    """The day's budget of model calls or tokens is used up: the work stays due until tomorrow or more budget."""


class BadInput(IstarError, ValueError):
    """An argument cannot be accepted. `.field` names it; nothing was written."""

    def __init__(self, field: str, problem: str) -> None:
        super().__init__(f"{field}: {problem}")
        self.field = field
        self.problem = problem

    def __reduce__(self) -> tuple[type[BadInput], tuple[str, str]]:
        # Exceptions are rebuilt from `args` by default, which would lose the second argument.
        return (type(self), (self.field, self.problem))


class ScopeRequired(IstarError, ValueError):
    """`forget` was called without saying what: name a condition, or say `everything=True`."""
