"""What every layer is handed: the file, the clock, the model, the embedder, and the host's choices."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any, Literal

from istar_lite.clock import YEAR_9999, Clock, epoch_to_text, format_time, parse_time
from istar_lite.database import File
from istar_lite.errors import BadInput
from istar_lite.text import estimate_tokens, is_blank
from istar_lite.values import as_int, as_real, as_tags, as_text

if TYPE_CHECKING:
    from istar_lite.embedding import Embedding
    from istar_lite.llm import LLM
    from istar_lite.models import Budget
    from istar_lite.recall.loading import Scopes

OnError = Literal["keep", "raise"]


def check_choices(*, on_error: object, llm_timeout: object, budget: object, **functions: object) -> None:
    """`BadInput` for a choice of the host that nothing could use, before the file is touched: told later, it would
    be told by the first turn that needs it. `functions`: clock, redact, count_tokens; None where not given."""
    if on_error not in ("keep", "raise"):
        raise BadInput("on_error", f"{on_error!r} is neither 'keep' nor 'raise'")
    if llm_timeout is not None:
        as_real(llm_timeout, "llm_timeout", low=0.0)
    if budget is not None:
        from istar_lite.models import Budget  # who opens a file without one does not pay for pydantic's import

        if not isinstance(budget, Budget):
            raise BadInput("budget", f"{type(budget).__name__} is no Budget")
    for name, function in functions.items():
        if function is not None and not callable(function):
            raise BadInput(name, f"{type(function).__name__} cannot be called")


@dataclass
class Services:
    """Shared by all views of one open file (`Memory.in_namespace`). Layers take it as their first argument."""

    file: File
    clock: Clock
    worker: str  # who claims work: unique to this object, also across processes
    embedding: Embedding
    llm: LLM | None = None
    model: str | None = None
    llm_timeout: float | None = 60.0
    on_error: OnError = "keep"
    budget: Budget | None = None
    redact: Callable[[str], str] | None = None
    counter: Callable[[str], int] | None = None
    lock: threading.RLock = field(default_factory=threading.RLock)
    warned_without_model: bool = False  # the first `store` without a model says so, once
    scopes: Scopes | None = None  # what recall keeps in memory of the file; made by the first search
    # Agents whose rules `work()` may use while the host keeps them; see `runs.Rules`. Guarded by `lock`.
    agents: weakref.WeakSet[Any] = field(default_factory=weakref.WeakSet)
    # Observational memories whose handlers are told, and whose background work ends with the file. The same.
    watchers: weakref.WeakSet[Any] = field(default_factory=weakref.WeakSet)

    def now(self) -> str:
        """The present instant in its stored form, from the clock the host gave."""
        reading = self.clock()
        if type(reading) is float and 0 <= reading < YEAR_9999:
            return epoch_to_text(reading)
        if isinstance(reading, datetime) and reading.tzinfo is None:
            raise BadInput("clock", "gave a naive datetime; epoch seconds or an aware datetime is wanted")
        return format_time(parse_time(reading, "clock"))

    def stored_text(self, value: object, field_name: str, *, blank: bool = False) -> str:
        """`value` as it may be stored: checked, cleaned, redacted."""
        text = as_text(value, field_name, blank=blank)
        if self.redact is None:
            return text
        redacted = self.redact(text)
        if not isinstance(redacted, str):
            raise BadInput("redact", f"gave {type(redacted).__name__} for a text")
        return as_text(redacted, field_name, blank=True)

    def stored_tags(self, tags: object) -> tuple[str, ...]:
        """Tags as they may be stored, and so as they are asked for: checked, cleaned, redacted, each once. One that a
        redaction leaves blank says nothing any more and is left out."""
        if type(tags) is tuple and not tags:  # none were given
            return ()
        stored = (self.stored_text(tag, "tags") for tag in as_tags(tags))
        return tuple(dict.fromkeys(tag for tag in stored if not is_blank(tag)))

    def redact_texts(self, value: Any, field_name: str) -> Any:
        """`value` (JSON's own types) with every text in it redacted; names of keys stay."""
        if self.redact is None:
            return value
        if isinstance(value, str):
            return self.stored_text(value, field_name, blank=True)
        if isinstance(value, list):
            return [self.redact_texts(item, f"{field_name}[{at}]") for at, item in enumerate(value)]
        if isinstance(value, dict):
            return {key: self.redact_texts(item, f"{field_name}.{key}") for key, item in value.items()}
        return value

    def count_tokens(self, text: str) -> int:
        """Tokens of `text` by the host's counter, else a quarter of its characters."""
        if self.counter is None:
            return estimate_tokens(text)
        return as_int(self.counter(text), "count_tokens", low=0)
