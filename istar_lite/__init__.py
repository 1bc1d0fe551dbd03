"""istar-lite: the long-term memory of a desktop agent in one SQLite file.

The names below are imported when they are first asked for (PEP 562): `import istar_lite` costs next to nothing, and a
program that searches does not pay for what consolidates. Checkers and editors see ordinary imports.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from istar_lite.errors import (
    BadInput,
    BudgetSpent,
    Busy,
    FileDamaged,
    FileTooNew,
    IstarError,
    NotAMemoryFile,
    ReadOnly,
    ScopeRequired,
    UnusableAnswer,
    WrongEmbedder,
)

if TYPE_CHECKING:
    from istar_lite.agent import AgentMemory
    from istar_lite.atoms import atom_id
    from istar_lite.chat import Chat
    from istar_lite.embedders import Embedder
    from istar_lite.llm import LLM, as_llm
    from istar_lite.memory import Memory
    from istar_lite.models import (
        Atom,
        AtomExtractor,
        Budget,
        Consolidated,
        ContextBlock,
        Difference,
        Episode,
        EpisodeClassifier,
        EpisodePromptContext,
        Exported,
        Forgotten,
        Hit,
        Imported,
        MemoryItem,
        Merged,
        Message,
        Observation,
        ObservationConfig,
        ObservationEvent,
        ObservationState,
        Pair,
        Profile,
        Recalled,
        Reflection,
        ReflectionEvent,
        Results,
        Retrieved,
        RetroClassifier,
        RetroPromptContext,
        Rule,
        Stored,
        Tick,
        TurnRecord,
    )
    from istar_lite.observations import ContextMessages, ObservationalMemory, RecallTool

__version__ = "0.1.0"

__all__ = [
    "LLM",
    "AgentMemory",
    "Atom",
    "AtomExtractor",
    "BadInput",
    "Budget",
    "BudgetSpent",
    "Busy",
    "Chat",
    "Consolidated",
    "ContextBlock",
    "ContextMessages",
    "Difference",
    "Embedder",
    "Episode",
    "EpisodeClassifier",
    "EpisodePromptContext",
    "Exported",
    "FileDamaged",
    "FileTooNew",
    "Forgotten",
    "Hit",
    "Imported",
    "IstarError",
    "Memory",
    "MemoryItem",
    "Merged",
    "Message",
    "NotAMemoryFile",
    "Observation",
    "ObservationConfig",
    "ObservationEvent",
    "ObservationState",
    "ObservationalMemory",
    "Pair",
    "Profile",
    "ReadOnly",
    "RecallTool",
    "Recalled",
    "Reflection",
    "ReflectionEvent",
    "Results",
    "Retrieved",
    "RetroClassifier",
    "RetroPromptContext",
    "Rule",
    "ScopeRequired",
    "Stored",
    "Tick",
    "TurnRecord",
    "UnusableAnswer",
    "WrongEmbedder",
    "as_llm",
    "atom_id",
]

# Module → names of it: those imported above for type checkers (a test holds the two equal).
_HOMES = {
    "agent": "AgentMemory",
    "atoms": "atom_id",
    "chat": "Chat",
    "embedders": "Embedder",
    "llm": "LLM as_llm",
    "memory": "Memory",
    "models": """Atom AtomExtractor Budget Consolidated ContextBlock Difference Episode EpisodeClassifier
        EpisodePromptContext Exported Forgotten Hit Imported MemoryItem Merged Message Observation
        ObservationConfig ObservationEvent ObservationState Pair Profile Recalled Reflection ReflectionEvent
        Results Retrieved RetroClassifier RetroPromptContext Rule Stored Tick TurnRecord""",
    "observations": "ContextMessages ObservationalMemory RecallTool",
}
_HOME = {name: module for module, names in _HOMES.items() for name in names.split()}


def __getattr__(name: str) -> Any:
    if name in _HOMES:  # the module itself
        return import_module(f"{__name__}.{name}")
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f"{__name__}.{_HOME[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
