"""What goes in and what comes out: frozen pydantic models with `.to_dict()` (JSON-ready) and, where they are meant
for a prompt, `.to_prompt()`. Times in results are aware datetimes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any, Literal, Protocol, Self, runtime_checkable

from pydantic import ConfigDict, Field

from istar_lite import notebook
from istar_lite.frames import escape_frame, fence, indented, one_line
from istar_lite.records import EMOTIONS as EMOTIONS
from istar_lite.records import KINDS as KINDS
from istar_lite.records import Hit as Hit
from istar_lite.records import Priority, Whole
from istar_lite.records import Ranking as Ranking
from istar_lite.records import Record as Record
from istar_lite.records import Results as Results
from istar_lite.records import Source as Source
from istar_lite.records import Status as Status
from istar_lite.records import json_ready as json_ready
from istar_lite.values import plain

# --- agents that act in turns ---------------------------------------------------------------------------------


class TurnRecord(Record):
    """One step of a run. `turn` rises within the run, not necessarily by one.

    `events` and `actions_taken` are lists of texts or of dicts (or one dict); `extra` is a dict; what they may hold
    is said in `values.py`. `text` overrides the line that search sees. `occurred_at`: any instant, default now.
    """

    turn: Whole
    reward: Any = None
    reward_unit: str = ""
    events: Any = Field(default_factory=list)
    actions_taken: Any = Field(default_factory=list)
    extra: Any = Field(default_factory=dict)
    text: str | None = None
    occurred_at: Any = None


class Atom(Record):
    """Something that stood out. `id` is the user's key, unique within a run (None: `atom_id(turn, type)`);
    `priority` 0–100; `status` is set by the store."""

    id: str | None = None
    turn: Whole
    type: str
    content: str
    priority: Priority = 50.0
    tags: tuple[str, ...] = ()
    status: Status = "active"


class Episode(Record):
    """A stretch of turns: phase, range (inclusive), narrative of the model, and how often it went into a prompt."""

    name: str
    turn_start: int
    turn_end: int
    narrative: str
    heat: int = 0
    id: int | None = None


class Rule(Record):
    """IF `condition` THEN `action`, with the turns it cites."""

    condition: str
    action: str
    cited_turns: tuple[int, ...] = ()


class Profile(Record):
    """What a run taught for the next one: the notes as written by the model, and the rules read from them."""

    id: int
    profile_id: str
    run: str
    text: str
    rules: tuple[Rule, ...] = ()
    created_at: datetime


class EpisodePromptContext(Record):
    """What the host tells the model for an episode: the valid phases, the domain, what happened, how to tell phases."""

    phase_names: Sequence[str]
    domain_preamble: str = ""
    context_summary: str = ""
    phase_guidance: str = ""


class RetroPromptContext(Record):
    """What the host tells the model for a retrospective."""

    domain_preamble: str = ""
    outcome_summary: str = ""
    outcome_metric_name: str = "reward"


class Tick(Record):
    """What one `tick` did: the turn's row id, the new atoms, and the episode if one was written."""

    turn_id: int
    atoms: tuple[Atom, ...] = ()
    episode: Episode | None = None


class MemoryBlock(dict[str, Any]):
    """`{"current_phase", "key_observations"}` for a prompt: a plain dict that can render itself."""

    def to_prompt(self) -> str:
        """The block as fenced text: data that no stored text can close or imitate. Only the first line of the phase,
        which the store wrote itself, keeps the form of a header."""
        header, _, narrative = (self.get("current_phase") or "").partition("\n")
        lines = [header, escape_frame(narrative)] if header else []
        lines += [f"- {indented(text, '  ')}" for text in self.get("key_observations", ())]
        return fence("memory", "\n".join(lines), escaped=True)


class Notes(str):
    """Lessons of earlier runs: plain text that can render itself for a prompt."""

    __slots__ = ()

    def to_prompt(self) -> str:
        """The notes as fenced text: data that no stored text can close or imitate."""
        return fence("lessons of earlier runs", self)


@runtime_checkable
class AtomExtractor(Protocol):
    """The user's rules: `window` (turns, `window.context` of them at its head seen before) and the atoms of the
    working set → new atoms. Deterministic; no model. One that raises leaves the window due."""

    def extract(self, window: Sequence[TurnRecord], existing: Sequence[Atom], /) -> Sequence[Atom]: ...


@runtime_checkable
class EpisodeClassifier(Protocol):
    """What to tell the model about the turns since the last episode."""

    def build_context(
        self, recent_turns: Sequence[TurnRecord], prev_episode_end_turn: int, /
    ) -> EpisodePromptContext: ...


@runtime_checkable
class RetroClassifier(Protocol):
    """What to tell the model about the whole run."""

    def build_context(self, all_turns: Sequence[TurnRecord], episodes: Sequence[Episode], /) -> RetroPromptContext: ...


# --- conversations --------------------------------------------------------------------------------------------


class Message(Record):
    """What one side said. `parts`: tool calls and results as the host gave them."""

    id: int
    role: str
    content: str
    speaker: str | None = None
    parts: Any = None
    position: int
    tokens: int | None = None
    external_id: str | None = None
    occurred_at: datetime


class MemoryItem(Record):
    """A memory. `occurred_at`: when it came to be true or was said; `recorded_at`: when it was learnt."""

    id: int
    text: str
    importance: float
    emotion: str
    tags: tuple[str, ...] = ()
    status: Status = "active"
    key: str | None = None
    stability: float = 2.0
    access_count: int = 0
    last_accessed_at: datetime | None = None
    mention_count: int = 1
    occurred_at: datetime
    recorded_at: datetime
    expires_at: datetime | None = None
    ended_at: datetime | None = None
    ended_by: str | None = None
    stale: bool = False

    def _shown(self) -> dict[str, Any]:
        seen = self.model_dump(exclude={"id", "key", "recorded_at", "mention_count", "ended_by", "stale"})
        return {"text": seen.pop("text"), "importance": notebook.Share(seen.pop("importance")), **seen}

    def _repr_html_(self) -> str:
        """For a notebook."""
        return notebook.pairs(self._shown(), f"memory {self.id}")

    def _repr_pretty_(self, printer: notebook.Printer, cycle: bool) -> None:
        printer.text(notebook.plain([self._shown()], f"memory {self.id}"))


class Stored(Record):
    """What `Chat.store` did. `extraction` is "done", or "due" while it waits for the model."""

    exchange_id: int
    memory_ids: tuple[int, ...] = ()
    extraction: Literal["done", "due"]
    consolidation_recommended: bool = False


class Pair(Record):
    """An exchange as it was said."""

    prompt: str
    response: str
    created_at: datetime
    id: int | None = None

    def to_dict(self) -> dict[str, Any]:
        """`created_at` as epoch seconds."""
        return {"prompt": self.prompt, "response": self.response, "created_at": self.created_at.timestamp()}


class Recalled(Record):
    """A memory that matters now. `score` ranks; it is made of `similarity` (cosine in [0, 1], the words' score where
    there is no vector), `relevance` (search's score in [0, 1)), `decay_score` in (0, 1], `importance` and
    `emotional_weight`, all taken before this recall made the memory stronger."""

    id: int
    text: str
    score: float
    similarity: float
    relevance: float
    decay_score: float
    importance: float
    emotion: str
    emotional_weight: float
    created_at: datetime
    sources: tuple[Source, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """What chat applications expect: text, score, created_at as epoch seconds, decay_score, importance, emotion."""
        names = ("text", "score", "decay_score", "importance", "emotion")
        return {**{name: getattr(self, name) for name in names}, "created_at": self.created_at.timestamp()}


class Retrieved(Record):
    """What `Chat.retrieve` gives: the last exchanges, oldest first, and the memories that matter now, best first.

    `reason` tells why there are no memories: "the store is empty" (of live memories) or "nothing relevant"; None where
    there are some. `filtered`: how many were held back as not relevant enough.
    """

    recent_pairs: tuple[Pair, ...] = ()
    memories: tuple[Recalled, ...] = ()
    reason: str | None = None
    filtered: int = 0

    def to_dict(self) -> dict[str, Any]:
        """`{"recent_pairs": [...], "memories": [...]}`, JSON-ready, `created_at` as epoch seconds."""
        return {
            "recent_pairs": [pair.to_dict() for pair in self.recent_pairs],
            "memories": [memory.to_dict() for memory in self.memories],
        }

    def to_prompt(self) -> str:
        """The memories as fenced text, "" without any: data that no stored text can close or imitate. The exchanges
        are not in it: a host sends those as messages."""
        if not self.memories:
            return ""
        lines = (f"- ({memory.created_at:%Y-%m-%d} UTC) {one_line(memory.text)}" for memory in self.memories)
        return fence("memories", "\n".join(lines), escaped=True)


class ContextBlock(str):
    """A prompt block packed to a budget: text that also tells what is in it.

    `tokens`: of the whole block, never above the budget. `stable`: the first part, unchanged between calls while
    nothing changed. `items`: (kind, id) in their order. `left_out`: how many found items had no room, by kind.
    `reason`: why the block is empty ("the store is empty", "nothing relevant", "the budget is too small"), else None.
    """

    tokens: int
    stable: str
    items: tuple[tuple[str, int], ...]
    left_out: Mapping[str, int]
    reason: str | None

    def __new__(
        cls,
        text: str = "",
        *,
        tokens: int = 0,
        stable: str = "",
        items: tuple[tuple[str, int], ...] = (),
        left_out: Mapping[str, int] | None = None,
        reason: str | None = None,
    ) -> Self:
        block = super().__new__(cls, text)
        block.tokens, block.stable, block.items = tokens, stable, items
        block.left_out, block.reason = dict(left_out or {}), reason
        return block

    @property
    def text(self) -> str:
        """The block."""
        return str(self)

    def to_prompt(self) -> str:
        """The block."""
        return str(self)

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready."""
        return {
            "text": str(self),
            "tokens": self.tokens,
            "items": [list(item) for item in self.items],
            "left_out": dict(self.left_out),
            "reason": self.reason,
        }


class Consolidated(Record):
    """What `Chat.consolidate` did."""

    clusters_merged: int = 0
    memories_removed: int = 0


class Forgotten(Record):
    """How many rows of each kind were forgotten, and how many derived rows are stale until redone."""

    counts: Mapping[str, int] = Field(default_factory=dict)
    stale: int = 0

    @property
    def total(self) -> int:
        """All rows forgotten."""
        return sum(self.counts.values())

    def __getitem__(self, kind: str) -> int:
        return self.counts.get(kind, 0)


class Imported(Record):
    """What an import brought, or would bring. `skipped`: known before; `forgotten`: held back because their text was
    forgotten here; `errors`: (line or item number, reason) of what was left out."""

    messages: int = 0
    memories: int = 0
    skipped: int = 0
    forgotten: int = 0
    sessions: int = 0
    errors: tuple[tuple[int, str], ...] = ()


class Exported(Record):
    """What an export wrote: its path, rows by table, and what a damaged file did not give back."""

    path: str
    rows: Mapping[str, int] = Field(default_factory=dict)
    lost: tuple[str, ...] = ()


class Merged(Record):
    """What a merge brought. By table: rows that were `added`, and rows that both files had (`met`). `refused`: rows
    that were forgotten here; `removed`: rows here that were forgotten there. `renamed`: runs of a name that was taken
    by other turns, as (name, new name)."""

    added: Mapping[str, int] = Field(default_factory=dict)
    met: Mapping[str, int] = Field(default_factory=dict)
    refused: int = 0
    removed: int = 0
    renamed: tuple[tuple[str, str], ...] = ()
    pending_vectors: int = 0

    @property
    def total(self) -> int:
        """All rows added."""
        return sum(self.added.values())


class Difference(Record):
    """A row that only one file has, or (`where` "both") that differs in `fields`."""

    where: Literal["here", "there", "both"]
    kind: str
    namespace: str
    session: str | None = None
    text: str
    occurred_at: datetime | None = None
    fields: tuple[str, ...] = ()


# --- search ---------------------------------------------------------------------------------------------------


class Row(Record):
    """A row of a table, its columns as attributes and as keys; times are aware datetimes."""

    model_config = ConfigDict(extra="allow")

    def __getitem__(self, column: str) -> Any:
        return self.to_values()[column]

    def to_values(self) -> dict[str, Any]:
        """Column → value."""
        return dict(self.__pydantic_extra__ or {})

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready: times as ISO text."""
        return {name: plain(value, name) for name, value in self.to_values().items()}


class Page(Record):
    """One page of rows; `after` is what to pass on for the next one."""

    items: tuple[Row, ...] = ()
    has_more: bool = False
    after: int | None = None

    def __len__(self) -> int:
        return len(self.items)

    def __getitem__(self, at: Any) -> Any:
        return self.items[at]

    def __iter__(self) -> Iterator[Row]:  # type: ignore[override]
        return iter(self.items)


# --- what other programs keep ---------------------------------------------------------------------------------


class FileVersion(Record):
    """One version of a file. `change`: what made it (create, str_replace, insert, rename); `ended_by`: "file 12", the
    version that took its place, or "delete"; None while it is live."""

    id: int
    path: str
    text: str
    change: str
    status: Status
    occurred_at: datetime
    ended_at: datetime | None = None
    ended_by: str | None = None


class TranscriptItems(Record):
    """Items of a conversation in their order; `corrupt`: ids of message rows that hold no item, and were skipped."""

    items: tuple[dict[str, Any], ...] = ()
    corrupt: tuple[int, ...] = ()


class KeptItem(Record):
    """A value kept under a key."""

    id: int
    labels: tuple[str, ...]
    key: str
    value: Any
    ttl_minutes: float | None = None
    created_at: datetime
    updated_at: datetime
    expires_at: datetime | None = None


# --- work and state -------------------------------------------------------------------------------------------


class Budget(Record):
    """At most so many model calls and tokens in one UTC day; None is no limit."""

    calls_per_day: int | None = Field(default=None, ge=0)
    tokens_per_day: int | None = Field(default=None, ge=0)


class StoreStatus(Record):
    """What waits and what it cost. `mode` is how search ranks now; `due`, `failed`, `claimed` count tasks."""

    due: int = 0
    failed: int = 0
    claimed: int = 0
    pending_vectors: int = 0
    mode: str = "words"
    last_error: str | None = None
    calls: int = 0
    tokens: int = 0
    budget_spent: bool = False
    by_purpose: Mapping[str, Mapping[str, int]] = Field(default_factory=dict)


# --- observational memory -------------------------------------------------------------------------------------


class Observation(Record):
    """A chunk of the log: what it says, which messages it stands for, where it is on its way."""

    id: int
    text: str
    first_message: int
    last_message: int
    stage: Literal["buffered", "active", "reflected"]
    tokens: int = 0
    tokens_observed: int = 0
    current_task: str | None = None
    suggested_response: str | None = None
    occurred_at: datetime


class Reflection(Record):
    """The log condensed: generation counts the successes, level how tight it had to be."""

    id: int
    text: str
    first_observation: int
    last_observation: int
    generation: int
    level: int
    tokens_before: int = 0
    tokens_after: int = 0
    occurred_at: datetime


class ObservationConfig(Record):
    """Budgets of observational memory; fractions are of the context window, the rest are tokens."""

    activation_threshold: float = Field(default=0.9, gt=0, le=1)
    buffer_token_cap: int = Field(default=30_000, gt=0)
    buffer_min_tokens: int = Field(default=5_000, gt=0)
    buffer_target_cycles: int = Field(default=4, gt=0)
    reflection_threshold: float = Field(default=0.20, gt=0, le=1)
    reflection_buffer_activation: float = Field(default=0.5, gt=0, le=1)
    previous_observer_tokens: int = Field(default=2_000, ge=0)
    observer_instruction: str | None = None
    reflector_instruction: str | None = None


class ObservationEvent(Record):
    """Told to `on_observation` handlers."""

    messages: tuple[Message, ...]
    first_id: int
    last_id: int
    observations: str
    utilisation: float
    sync: bool
    at: datetime


class ReflectionEvent(Record):
    """Told to `on_reflection` handlers."""

    before: str
    after: str
    generation: int
    level: int
    at: datetime


class ObservationState(Record):
    """Where a session's observational memory stands. Token counts by the store's counter. `left_out`: messages
    that the last `context()` of this object had no room for and that are not in the log yet."""

    observations: str = ""
    current_task: str | None = None
    suggested_response: str | None = None
    tokens: int = 0
    generation: int = 0
    buffered: int = 0
    in_flight: int = 0
    due: int = 0
    failed: int = 0
    tokens_raw: int = 0
    tokens_observed: int = 0
    compression: float | None = None
    last_error: str | None = None
    left_out: int = 0
