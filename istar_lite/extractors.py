"""Ready-made rules for people who have none yet: atom extractors over a numeric field, first appearances, and what to
tell the model about phases and outcome from rewards alone.

A *field* is "reward" or the path of a number in `extra` ("price", "market.price"). All rules are deterministic, and
what they find does not depend on where windows are cut: what they must remember they keep in `window.state`, which
lives in the file beside the watermark. `Several(...)` runs a few together:

    memory.agent("run-7", atom_extractor=Several(ThresholdCrossing("price", 100), SignChange("reward")))
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from statistics import fmean
from typing import Any, Literal

from istar_lite.errors import BadInput
from istar_lite.models import (
    Atom,
    AtomExtractor,
    Episode,
    EpisodePromptContext,
    RetroPromptContext,
    TurnRecord,
)
from istar_lite.values import as_int, as_real, as_text

MOST_NAMES = 1_000  # first appearances that are told apart in one run; bounds what the file keeps of them
_NUMBER = re.compile(r"\d+(?:[.,:]\d+)*")
_NAME_KEYS = ("name", "type", "event", "action", "kind")


def number_of(turn: TurnRecord, field: str) -> float | None:
    """The number a field holds in a turn; None when it is missing or no number."""
    value: Any = turn.reward if field == "reward" else turn.extra
    if field != "reward":
        for part in [field] if isinstance(value, dict) and field in value else field.split("."):
            value = value.get(part) if isinstance(value, dict) else None
    return float(value) if isinstance(value, (int, float)) and not isinstance(value, bool) else None


def new_turns(window: Sequence[TurnRecord]) -> Sequence[TurnRecord]:
    """The turns of a window that were not seen before."""
    return window[getattr(window, "context", 0) :]


def state_of(window: Sequence[TurnRecord], key: str) -> dict[str, Any]:
    """What a rule remembered under `key`: a dict to read and change. (A plain list of turns has none.)"""
    state: dict[str, Any] = getattr(window, "state", {})
    kept: dict[str, Any] = state.setdefault(key, {})
    return kept


def _shown(value: float, turn: TurnRecord, field: str) -> str:
    unit = f" {turn.reward_unit}" if field == "reward" and turn.reward_unit else ""
    return f"{value:.6g}{unit}"


def _type_of(field: str, what: str) -> str:
    return f"{field.replace('.', '_')}_{what}"


class _OfField:
    """Rules over the numbers of one field, turn by turn. Subclasses say what to make of each."""

    what: str
    setting: float | None = None  # what sets rules of one kind and field apart

    def __init__(self, field: str = "reward", *, priority: float = 50.0) -> None:
        self.field = as_text(field, "field")
        self.priority = as_real(priority, "priority", low=0, high=100)

    @property
    def key(self) -> str:
        """Where `window.state` keeps what this rule remembers."""
        return f"{self.what}:{self.field}" + ("" if self.setting is None else f":{self.setting!r}")

    def extract(self, window: Sequence[TurnRecord], existing: Sequence[Atom], /) -> list[Atom]:
        """The atoms of the turns not seen before."""
        state = state_of(window, self.key)
        found: list[Atom] = []
        for turn in new_turns(window):
            value = number_of(turn, self.field)
            if value is not None:
                found += self.look(turn, value, state)
        return found

    def look(self, turn: TurnRecord, value: float, state: dict[str, Any]) -> Iterator[Atom]:
        """The atoms of one number; `state` is this rule's own."""
        raise NotImplementedError

    def _atom(self, turn: int, what: str, content: str) -> Atom:
        return Atom(turn=turn, type=_type_of(self.field, what), content=content, priority=self.priority)


class ThresholdCrossing(_OfField):
    """The field goes above `threshold`, or back to it or below; `direction` "up", "down" or "both"."""

    what = "crossing"

    def __init__(
        self,
        field: str,
        threshold: float,
        *,
        direction: Literal["up", "down", "both"] = "both",
        priority: float = 70.0,
    ) -> None:
        super().__init__(field, priority=priority)
        self.threshold = self.setting = as_real(threshold, "threshold")
        if direction not in ("up", "down", "both"):
            raise BadInput("direction", f"{direction!r} is none of 'up', 'down', 'both'")
        self.direction = direction

    def look(self, turn: TurnRecord, value: float, state: dict[str, Any]) -> Iterator[Atom]:
        """An atom where the side changes; the first number only tells the side."""
        above, before = value > self.threshold, state.get("above")
        state["above"] = above
        way = "up" if above else "down"
        if before is not None and before != above and self.direction in (way, "both"):
            told = "rose above" if above else "fell to or below"
            yield self._atom(
                turn.turn,
                f"crossed_{way}_{self.threshold:g}",
                f"T{turn.turn}: {self.field} {told} {self.threshold:g} ({_shown(value, turn, self.field)})",
            )


class SignChange(_OfField):
    """The field turns from gain to loss or back; zeros keep the sign they found."""

    what = "sign"

    def __init__(self, field: str = "reward", *, priority: float = 65.0) -> None:
        super().__init__(field, priority=priority)

    def look(self, turn: TurnRecord, value: float, state: dict[str, Any]) -> Iterator[Atom]:
        """An atom where the sign differs from the last one that was not zero."""
        if value == 0:
            return
        positive, before = value > 0, state.get("positive")
        state["positive"] = positive
        if before is not None and before != positive:
            way = "positive" if positive else "negative"
            content = f"T{turn.turn}: {self.field} turned {way} ({_shown(value, turn, self.field)})"
            yield self._atom(turn.turn, f"turned_{way}", content)


class NewExtreme(_OfField):
    """A new highest or lowest value of the run. Told once the field turns back from it, so that a long rise is one
    atom and not one a turn; the first `warmup` numbers only set the scale."""

    what = "extreme"

    def __init__(self, field: str = "reward", *, warmup: int = 5, priority: float = 60.0) -> None:
        super().__init__(field, priority=priority)
        self.warmup = self.setting = as_int(warmup, "warmup", low=1)

    def look(self, turn: TurnRecord, value: float, state: dict[str, Any]) -> Iterator[Atom]:
        """An atom where the last number was a new extreme and this one is not."""
        state["count"] = state.get("count", 0) + 1
        for side, sign in (("high", 1), ("low", -1)):
            best = state.get(side)
            if best is None or sign * value > sign * best["value"]:
                shown, pending = _shown(value, turn, self.field), state["count"] > self.warmup
                before = None if best is None else best["before"] if best["pending"] else best["shown"]
                state[side] = {"value": value, "turn": turn.turn, "shown": shown, "before": before, "pending": pending}
            elif best["pending"]:
                state[side] = {**best, "pending": False}
                yield self._extreme(side, best)

    def _extreme(self, side: str, best: dict[str, Any]) -> Atom:
        word = "highest" if side == "high" else "lowest"
        number, shown, before = best["turn"], best["shown"], best["before"]
        return self._atom(
            number, f"new_{side}", f"T{number}: {self.field} {shown} is the {word} of the run (before: {before})"
        )


class Streak(_OfField):
    """The field rises, or falls, `length` times running; told again each time the streak has doubled."""

    what = "streak"

    def __init__(self, field: str = "reward", *, length: int = 4, priority: float = 55.0) -> None:
        super().__init__(field, priority=priority)
        self.length = self.setting = as_int(length, "length", low=2)

    def look(self, turn: TurnRecord, value: float, state: dict[str, Any]) -> Iterator[Atom]:
        """An atom where a streak reaches `length`, twice that, four times that …"""
        last = state.get("last")
        way = 0 if last is None or value == last else 1 if value > last else -1
        if way == 0 or way != state.get("way"):
            state.update(way=way, count=0, start=state.get("turn", turn.turn))
        state.update(last=value, turn=turn.turn, count=state["count"] + abs(way))
        times, rest = divmod(state["count"], self.length)
        if way and rest == 0 and times & (times - 1) == 0:
            told = "rising" if way > 0 else "falling"
            since = f"since T{state['start']} ({state['count']} times running)"
            content = f"T{turn.turn}: {self.field} {told} {since}, now {_shown(value, turn, self.field)}"
            yield self._atom(turn.turn, told, content)


class FirstAppearance:
    """An event or an action of a kind not seen before in the run.

    The kind of a text is the text with its numbers left out ("sold 3 at 45" and "sold 8 at 50" are one kind), that
    of a dict its `name`, `type`, `event`, `action` or `kind`, else the names of its keys. The file keeps only
    digests of the kinds seen, no text: what is forgotten is not kept alive here.
    """

    def __init__(self, of: Literal["events", "actions_taken", "both"] = "both", *, priority: float = 45.0) -> None:
        if of not in ("events", "actions_taken", "both"):
            raise BadInput("of", f"{of!r} is none of 'events', 'actions_taken', 'both'")
        self.fields = ("events", "actions_taken") if of == "both" else (of,)
        self.priority = as_real(priority, "priority", low=0, high=100)

    def extract(self, window: Sequence[TurnRecord], existing: Sequence[Atom], /) -> list[Atom]:
        """The atoms of the turns not seen before."""
        return [
            atom for turn in new_turns(window) for field in self.fields for atom in self._firsts(turn, field, window)
        ]

    def _firsts(self, turn: TurnRecord, field: str, window: Sequence[TurnRecord]) -> Iterator[Atom]:
        seen: dict[str, Any] = state_of(window, f"first:{field}")
        word = "event" if field == "events" else "action"
        for item in _items(getattr(turn, field)):
            kind = _kind(item)
            mark = hashlib.blake2b(kind.encode(), digest_size=6).hexdigest()
            if mark not in seen and len(seen) < MOST_NAMES:
                seen[mark] = turn.turn
                content = f"T{turn.turn}: first {word} of its kind: {_line(item)}"
                key = f"first_{word}_{mark}"
                yield Atom(id=key, turn=turn.turn, type=f"first_{word}", content=content, priority=self.priority)


def _items(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value] if value else []


def _kind(item: Any) -> str:
    if not isinstance(item, dict):
        return " ".join(_NUMBER.sub("#", str(item).casefold()).split())
    name = next((item[key] for key in _NAME_KEYS if isinstance(item.get(key), str)), None)
    return " ".join(_NUMBER.sub("#", name.casefold()).split()) if name else "{" + ",".join(sorted(item)) + "}"


def _line(item: Any) -> str:
    return " ".join(f"{key}={value}" for key, value in item.items()) if isinstance(item, dict) else str(item)


class Several:
    """A few extractors as one: their atoms together, in the order of their turns."""

    def __init__(self, *extractors: AtomExtractor) -> None:
        self.extractors = extractors

    def extract(self, window: Sequence[TurnRecord], existing: Sequence[Atom], /) -> list[Atom]:
        """What all of them find."""
        found = [atom for extractor in self.extractors for atom in extractor.extract(window, existing)]
        return sorted(found, key=lambda atom: atom.turn)


@cache
def default_extractor() -> AtomExtractor:
    """What a run gets that brings no rules: the reward's sign, extremes and streaks, and first appearances."""
    return Several(SignChange("reward"), NewExtreme("reward"), Streak("reward"), FirstAppearance())


# --- what to tell the model when the host brings no classifier ------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Rewards:
    """The rewards of some turns: numbers in order, and their unit."""

    values: list[float]
    unit: str

    @classmethod
    def of(cls, turns: Sequence[TurnRecord]) -> _Rewards:
        pairs = [(value, turn.reward_unit) for turn in turns if (value := number_of(turn, "reward")) is not None]
        return cls([value for value, _ in pairs], next((unit for _, unit in reversed(pairs) if unit), ""))

    def told(self, turns: Sequence[TurnRecord]) -> str:
        """One sentence: how many turns, total, mean, range, and where it went."""
        span = f"T{turns[0].turn} to T{turns[-1].turn}" if turns else "no turns"
        if not self.values:
            return f"{len(turns)} turns ({span}), none with a reward."
        unit = f" {self.unit}" if self.unit else ""
        half = max(1, len(self.values) // 2)
        return (
            f"{len(turns)} turns ({span}). Reward in total {sum(self.values):.6g}{unit}, mean"
            f" {fmean(self.values):.6g}, lowest {min(self.values):.6g}, highest {max(self.values):.6g}; mean of the"
            f" first half {fmean(self.values[:half]):.6g}, of the second half {fmean(self.values[-half:]):.6g}."
        )


class RewardPhases:
    """Phases OPENING, GROWTH, PLATEAU, DECLINE and RECOVERY, told apart by where the rewards went."""

    phase_names = ("OPENING", "GROWTH", "PLATEAU", "DECLINE", "RECOVERY")

    def build_context(self, recent_turns: Sequence[TurnRecord], prev_episode_end_turn: int, /) -> EpisodePromptContext:
        """What happened since the last episode, as a summary of rewards."""
        return EpisodePromptContext(
            phase_names=self.phase_names,
            domain_preamble="An agent acts in turns and receives a reward for each.",
            context_summary=_Rewards.of(recent_turns).told(recent_turns),
            phase_guidance=(
                "OPENING: the first turns of the run. GROWTH: rewards rise. PLATEAU: they stay level. DECLINE: they"
                " fall. RECOVERY: they rise again after a decline."
            ),
        )


class RewardOutcome:
    """The outcome of a run as its total reward."""

    def build_context(self, all_turns: Sequence[TurnRecord], episodes: Sequence[Episode], /) -> RetroPromptContext:
        """The rewards of the whole run in one sentence."""
        rewards = _Rewards.of(all_turns)
        return RetroPromptContext(
            domain_preamble="An agent acts in turns and receives a reward for each.",
            outcome_summary=rewards.told(all_turns),
            outcome_metric_name=f"total reward{f' ({rewards.unit})' if rewards.unit else ''}",
        )
