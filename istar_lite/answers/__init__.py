"""Readers of what real models answer: pure functions on text that raise `UnusableAnswer` and nothing else.

An answer that cannot be read leaves its input due. No reader makes a memory of prose.
"""

from __future__ import annotations

from istar_lite.answers.episode import UNKNOWN, EpisodeBlock, read_episode
from istar_lite.answers.extraction import (
    EMOTIONS,
    ExtractedMemory,
    Extraction,
    read_consolidation,
    read_extraction,
)
from istar_lite.answers.log import CRITICAL, DONE, LOW, MARKS, MEDIUM, LogLine, format_log, parse_log
from istar_lite.answers.observation import ObservationBlock, read_observations
from istar_lite.answers.reflection import read_reflection
from istar_lite.answers.repetition import Repetition, cut_repetition, find_repetition
from istar_lite.answers.retro import RETRO_HEADER, RetroBlock, Rule, read_retro

__all__ = [
    "CRITICAL",
    "DONE",
    "EMOTIONS",
    "LOW",
    "MARKS",
    "MEDIUM",
    "RETRO_HEADER",
    "UNKNOWN",
    "EpisodeBlock",
    "ExtractedMemory",
    "Extraction",
    "LogLine",
    "ObservationBlock",
    "Repetition",
    "RetroBlock",
    "Rule",
    "cut_repetition",
    "find_repetition",
    "format_log",
    "parse_log",
    "read_consolidation",
    "read_episode",
    "read_extraction",
    "read_observations",
    "read_reflection",
    "read_retro",
]
