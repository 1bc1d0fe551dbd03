"""`istar-lite demo`: an agent sells electricity for 120 turns, and a second run starts with the lessons of the first.

Everything is here, offline and the same each time: a small market in which producers bid against each other, the
rules by which one of them remembers, and a stand-in for a model. The stand-in is no script of answers: it reads the
prompts it is sent and answers from what stands there, so what the second run knows really went through the file.
"""

from __future__ import annotations

import math
import os
import random
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from statistics import fmean
from typing import Any

from istar_lite.agent import AgentMemory
from istar_lite.clients import ChatMessage
from istar_lite.extractors import FirstAppearance, NewExtreme, Several, SignChange, new_turns
from istar_lite.memory import Memory
from istar_lite.models import Atom, Episode, EpisodePromptContext, RetroPromptContext, TurnRecord

TURNS = 120
START = datetime(2026, 1, 5, tzinfo=UTC)
PROFILE = "seller"

# --- the market ---------------------------------------------------------------------------------------------------

EVENTS = {"heat_wave": (110, 0), "wind_front": (0, 110)}
"""Event → what it adds to the demand and to the wind, in MW."""


@dataclass(frozen=True, slots=True)
class Plant:
    """A producer: capacity in MW, cost in EUR per MWh, and what an hour costs it even when it stands."""

    name: str
    capacity: int
    cost: float
    standing: float = 300.0


@dataclass(frozen=True, slots=True)
class Hour:
    """What an hour brings, known before the bids: demand and wind in MW, and the event that rules it, if any."""

    number: int
    demand: int
    wind: int
    event: str | None


@dataclass(frozen=True, slots=True)
class Cleared:
    """An hour's outcome: the price of the last plant needed, in EUR per MWh, and the MW that each plant sold."""

    hour: Hour
    price: float
    sold: Mapping[str, int]

    def profit(self, plant: Plant) -> float:
        """EUR that the plant made of it."""
        return self.sold[plant.name] * (self.price - plant.cost) - plant.standing


def hours(number: int, seed: int = 7) -> list[Hour]:
    """The hours of a run: the same ones for the same seed."""
    chance = random.Random(seed)
    found: list[Hour] = []
    event, left = None, 0
    for at in range(1, number + 1):
        left -= 1
        if left < 0:
            event = chance.choice([None, None, *EVENTS])
            left = chance.randint(3, 7)
        demand, wind = EVENTS.get(event or "", (0, 0))
        daily = round(35 * math.sin(2 * math.pi * at / 24) + chance.uniform(-10, 10))
        found.append(Hour(at, 260 + demand + daily, 40 + wind, event))
    return found


def clear(hour: Hour, plants: Sequence[Plant], bids: Mapping[str, float]) -> Cleared:
    """Runs the cheapest plants first until the demand is met; all get the price of the last one."""
    open_demand, price, sold = hour.demand - hour.wind, 0.0, dict.fromkeys((plant.name for plant in plants), 0)
    for plant in sorted(plants, key=lambda plant: (bids[plant.name], plant.name)):
        if open_demand > 0:
            sold[plant.name] = min(plant.capacity, open_demand)
            open_demand -= sold[plant.name]
            price = bids[plant.name]
    return Cleared(hour, price, sold)


OURS = Plant("ours", 130, 22.0)
RIVALS = (Plant("lignite", 120, 26.0), Plant("gas", 110, 36.0))
USUAL = "bid as usual"
BIDS = {"bid low": 29.0, USUAL: 40.0, "bid high": 120.0}
_RULE = re.compile(r"IF (\w+) THEN (bid \w+)")


def choose(hour: Hour, notes: str | None) -> str:
    """What the agent does in an hour: what the lessons of earlier runs say for its event, else as usual."""
    rules = dict(_RULE.findall(notes or ""))
    action = rules.get(hour.event or "", USUAL)
    return action if action in BIDS else USUAL


# --- the rules by which it remembers ------------------------------------------------------------------------------


class Chances:
    """Atoms of what an event did to us: a loss, scarcity that did not raise the price, or a bid that paid."""

    def extract(self, window: Sequence[TurnRecord], existing: Sequence[Atom], /) -> list[Atom]:
        """One atom for the first such turn of each event in the window."""
        found: dict[str, Atom] = {}
        for turn in new_turns(window):
            for event in turn.events:
                if event not in found and (said := self._said(turn)):
                    content = f"T{turn.turn}: {event}, {said}"
                    found[event] = Atom(turn=turn.turn, type=event, content=content, priority=80, tags=(event,))
        return list(found.values())

    @staticmethod
    def _said(turn: TurnRecord) -> str | None:
        market, action = turn.extra, turn.actions_taken[0]
        if turn.reward < 0:
            return (
                f"lost {-turn.reward:g} EUR, {market['sold']} of {OURS.capacity} MW sold at a bid of {market['bid']:g}"
            )
        if action != USUAL:
            return f"{action} brought {turn.reward:g} EUR"
        if market["scarce"]:
            return f"every plant was needed but the price stayed at {market['price']:g}"
        return None


class Phases:
    """Episodes: what the weather did to the market."""

    names = ("CALM", "SCARCITY", "GLUT", "MIXED")

    def build_context(self, recent_turns: Sequence[TurnRecord], prev_episode_end_turn: int, /) -> EpisodePromptContext:
        """Profit and price of the stretch, and in how many of its hours which event ruled."""
        events = Counter(event for turn in recent_turns for event in turn.events)
        return EpisodePromptContext(
            phase_names=self.names,
            domain_preamble="A power plant sells in an hourly auction against two others.",
            context_summary=(
                f"{len(recent_turns)} hours; mean profit {fmean(turn.reward for turn in recent_turns):.0f} EUR an hour,"
                f" mean price {fmean(turn.extra['price'] for turn in recent_turns):.1f};"
                + "".join(f" {name} in {events[name]} hours;" for name in EVENTS)
            ),
            phase_guidance="SCARCITY when heat waves prevail, GLUT when wind fronts do, MIXED when both were long.",
        )


class Profit:
    """Retrospectives: what the run earned."""

    def build_context(self, all_turns: Sequence[TurnRecord], episodes: Sequence[Episode], /) -> RetroPromptContext:
        """The profit of the whole run."""
        total = sum(turn.reward for turn in all_turns)
        return RetroPromptContext(
            domain_preamble="A power plant sells in an hourly auction against two others.",
            outcome_summary=f"{total:.0f} EUR in {len(all_turns)} hours",
            outcome_metric_name="profit",
        )


# --- a stand-in for a model ---------------------------------------------------------------------------------------


class MarketReader:
    """Answers from what stands in the prompt, as a model would, without one."""

    def __call__(self, messages: Sequence[ChatMessage], /, *, tag: str | None = None) -> str:
        """The answer to an episode's or a retrospective's request; "" to others."""
        prompt = messages[-1]["content"]
        return self._episode(prompt) if tag == "episode" else self._retro(prompt) if tag == "retro" else ""

    def _episode(self, prompt: str) -> str:
        hours_of = {name: int(count) for name, count in re.findall(r"(\w+) in (\d+) hours", prompt)}
        heat, wind = hours_of.get("heat_wave", 0), hours_of.get("wind_front", 0)
        phase = "MIXED" if min(heat, wind) >= 5 else "SCARCITY" if heat >= 5 else "GLUT" if wind >= 5 else "CALM"
        profit = _first(r"mean profit (-?\d+) EUR", prompt)
        start, end = re.findall(r"turns T(-?\d+) to T(-?\d+)", prompt)[-1]
        seen = _observations(prompt)
        told = f" What stood out: {'; '.join(seen[-2:])}." if seen else ""
        return (
            f"[{phase} | T{start}-T{end}]\nFrom T{start} to T{end} a heat wave ruled {heat} hours and a wind front"
            f" {wind}; each hour brought {profit} EUR.{told}"
        )

    def _retro(self, prompt: str) -> str:
        rules = [rule for sign, action in _SIGNS.items() if (rule := _rule(_observations(prompt), sign, action))]
        usual = any(sign in prompt for sign in ("lost", "every plant"))
        return "\n".join(
            [
                "[RUN RETROSPECTIVE]",
                f"Phase sequence: {_first(r'Phase sequence: (.+)', prompt) or 'CALM'}",
                f"Outcome: {_first(r'Result[^:]*: (.+)', prompt)}",
                f"Root cause: {'one bid in every weather' if usual else 'bids that went with the weather'}.",
                *(f"Rule for next run: {rule}" for rule in rules),
            ]
        )


# What an observation shows → what to do about it.
_SIGNS = {
    "lost": "bid low",
    "every plant was needed": "bid high",
    "bid low brought": "bid low",
    "bid high brought": "bid high",
}


def _first(pattern: str, text: str) -> str:
    found = re.search(pattern, text)
    return found[1].strip() if found else ""


def _observations(prompt: str) -> list[str]:
    return [line[2:] for line in prompt.splitlines() if line.startswith("- T")]


def _rule(seen: Sequence[str], sign: str, action: str) -> str | None:
    """A rule about the event that goes with most of the observations in which `sign` stands."""
    cases = [match for line in seen if sign in line and (match := re.match(r"T(\d+): (\w+), ", line))]
    if not cases:
        return None
    event = Counter(case[2] for case in cases).most_common(1)[0][0]
    turns = ", ".join(f"T{case[1]}" for case in cases if case[2] == event)
    return f"IF {event} THEN {action} ({turns})"


# --- the story ----------------------------------------------------------------------------------------------------


def open_agent(memory: Memory, run: str) -> AgentMemory:
    """A run with the rules above beside a few ready-made ones."""
    return memory.agent(
        run,
        atom_extractor=Several(Chances(), SignChange(), NewExtreme(), FirstAppearance("events")),
        episode_classifier=Phases(),
        retro_classifier=Profit(),
    )


def play(memory: Memory, run: str, *, turns: int = TURNS) -> dict[str, Any]:
    """Plays a run and looks back on it. Returns what it earned and what it left in the file."""
    agent = open_agent(memory, run)
    notes = memory.prior_run_notes(PROFILE)
    profit = 0.0
    for hour in hours(turns):
        action = choose(hour, notes)
        bids = {OURS.name: BIDS[action], **{rival.name: rival.cost * 1.15 for rival in RIVALS}}
        outcome = clear(hour, (OURS, *RIVALS), bids)
        profit += outcome.profit(OURS)
        agent.tick(_turn(outcome, action))
    profile = agent.summarise_run(PROFILE)
    return {
        "run": run,
        "turns": turns,
        "atoms": len(agent.atoms()),
        "episodes": [f"[{told.name} | T{told.turn_start}–T{told.turn_end}]" for told in agent.episodes()],
        "rules": [f"IF {rule.condition} THEN {rule.action}" for rule in profile.rules] if profile else [],
        "profit": round(profit),
        "started_with": [f"IF {event} THEN {action}" for event, action in _RULE.findall(notes or "")],
    }


def _turn(outcome: Cleared, action: str) -> TurnRecord:
    hour = outcome.hour
    residual = hour.demand - hour.wind
    return TurnRecord(
        turn=hour.number,
        reward=round(outcome.profit(OURS), 2),
        reward_unit="EUR",
        events=[hour.event] if hour.event else [],
        actions_taken=[action],
        extra={
            "price": round(outcome.price, 2),
            "demand": hour.demand,
            "wind": hour.wind,
            "bid": BIDS[action],
            "sold": outcome.sold[OURS.name],
            "scarce": residual > sum(rival.capacity for rival in RIVALS),
        },
        occurred_at=START + timedelta(hours=hour.number),
    )


def run(path: str | os.PathLike[str], *, turns: int = TURNS) -> dict[str, Any]:
    """Plays two runs into the file at `path` (new runs, when it holds some already), the second with the lessons of
    the first. Returns what happened, with `lines` to print."""
    with Memory(path, llm=MarketReader()) as memory:
        number = 1 + sum(session["kind"] == "run" for session in memory.sessions())
        played = [play(memory, f"market-{number + at}", turns=turns) for at in range(2)]
        block = open_agent(memory, played[-1]["run"]).memory_block(count=False)
    return {"path": str(path), "runs": played, "memory_block": block, "lines": _lines(played)}


def _lines(played: Sequence[Mapping[str, Any]]) -> list[str]:
    lines = []
    for told in played:
        lessons = f"started with the lessons: {'; '.join(told['started_with'])}" if told["started_with"] else ""
        lines += [
            f"{told['run']}: {told['turns']} turns → {told['atoms']} atoms in the working set →"
            f" {len(told['episodes'])} episodes → {len(told['rules'])} rules; earned {told['profit']:,} EUR",
            *([f"  {lessons}"] if lessons else []),
            f"  {' '.join(told['episodes'])}",
            *(f"  learnt: {rule}" for rule in told["rules"]),
        ]
    return lines
