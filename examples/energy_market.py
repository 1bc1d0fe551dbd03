"""Three power plants compete in an hourly auction; each remembers for itself, and learns from its first season.

    python examples/energy_market.py [file]

Each plant is an owner of its own (a namespace) in one memory file. The three classes below are all that a host brings
to the layers: what is worth an atom, which phases an episode can have, and how a season came out. The model is a
stand-in that reads its prompts and answers offline; put your own callable in its place.
"""

from __future__ import annotations

import re
import sys
import tempfile
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from istar_lite import (
    AgentMemory,
    Atom,
    Episode,
    EpisodePromptContext,
    Memory,
    RetroPromptContext,
    TurnRecord,
)
from istar_lite.demo import Cleared, Hour, MarketReader, Plant, clear, hours

HOURS = 100
PLANTS = (Plant("hydro", 120, 15.0), Plant("lignite", 130, 26.0), Plant("gas", 110, 36.0))
ACTIONS = {"bid low": 1.05, "bid as usual": 1.5, "bid high": 4.0}  # times the plant's cost


class WhatPaid:
    """AtomExtractor: what an event made of a bid, once for each event in a window."""

    def extract(self, window: Sequence[TurnRecord], existing: Sequence[Atom], /) -> list[Atom]:
        seen_before: int = getattr(window, "context", 0)  # turns at the head that the last window ended with
        found: dict[str, Atom] = {}
        for turn in window[seen_before:]:
            if turn.events and turn.events[0] not in found and (said := self.judge(turn)):
                event = turn.events[0]
                weight = min(100.0, abs(turn.reward) / 50)
                found[event] = Atom(
                    turn=turn.turn, type=event, content=f"T{turn.turn}: {event}, {said}", priority=weight, tags=(event,)
                )
        return list(found.values())

    def judge(self, turn: TurnRecord) -> str | None:
        action = turn.actions_taken[0]
        if turn.reward < 0:
            return f"lost {-turn.reward:.0f} EUR with {turn.extra['sold']} MW sold"
        if action != "bid as usual":
            return f"{action} brought {turn.reward:.0f} EUR"
        return "every plant was needed but nobody asked for more" if turn.extra["all_needed"] else None


class Weather:
    """EpisodeClassifier: the phases of this market and what the last hours were like."""

    def build_context(self, recent_turns: Sequence[TurnRecord], prev_episode_end_turn: int, /) -> EpisodePromptContext:
        events = Counter(event for turn in recent_turns for event in turn.events)
        profit = sum(turn.reward for turn in recent_turns) / len(recent_turns)
        return EpisodePromptContext(
            phase_names=["CALM", "SCARCITY", "GLUT", "MIXED"],
            domain_preamble="A power plant sells in an hourly auction against two others.",
            context_summary=f"mean profit {profit:.0f} EUR an hour; "
            + "; ".join(f"{name} in {count} hours" for name, count in events.items()),
            phase_guidance="SCARCITY: heat waves prevail. GLUT: wind fronts prevail. MIXED: both were long.",
        )


class Season:
    """RetroClassifier: how the season came out."""

    def build_context(self, all_turns: Sequence[TurnRecord], episodes: Sequence[Episode], /) -> RetroPromptContext:
        total = sum(turn.reward for turn in all_turns)
        return RetroPromptContext(
            domain_preamble="A power plant sells in an hourly auction against two others.",
            outcome_summary=f"{total:.0f} EUR in {len(all_turns)} hours and {len(episodes)} episodes",
            outcome_metric_name="profit",
        )


class Trader:
    """A plant with its memory: bids by the lessons of earlier seasons, and remembers what came of it."""

    def __init__(self, memory: Memory, plant: Plant, season: str) -> None:
        self.plant = plant
        self.profit = 0.0
        self.memory: AgentMemory = memory.in_namespace(plant.name).agent(
            season,
            atom_extractor=WhatPaid(),
            episode_classifier=Weather(),
            retro_classifier=Season(),
            extract_every=5,
            episode_every=20,
        )
        notes = memory.in_namespace(plant.name).prior_run_notes("selling")
        self.lessons: dict[str, str] = dict(re.findall(r"IF (\w+) THEN (bid \w+)", notes or ""))

    def choose(self, hour: Hour) -> str:
        return self.lessons.get(hour.event or "", "bid as usual")

    def bid(self, action: str) -> float:
        return self.plant.cost * ACTIONS[action]

    def live_through(self, outcome: Cleared, action: str) -> None:
        profit = outcome.profit(self.plant)
        self.profit += profit
        hour = outcome.hour
        self.memory.tick(
            TurnRecord(
                turn=hour.number,
                reward=round(profit, 2),
                reward_unit="EUR",
                events=[hour.event] if hour.event else [],
                actions_taken=[action],
                extra={
                    "price": round(outcome.price, 2),
                    "sold": outcome.sold[self.plant.name],
                    "all_needed": all(outcome.sold.values()),
                },
            )
        )


def play(memory: Memory, season: str, weather: Sequence[Hour]) -> list[Trader]:
    """One season: all bid, the market clears, all remember; at its end all look back."""
    traders = [Trader(memory, plant, season) for plant in PLANTS]
    for hour in weather:
        actions = {trader.plant.name: trader.choose(hour) for trader in traders}
        bids = {trader.plant.name: trader.bid(actions[trader.plant.name]) for trader in traders}
        outcome = clear(hour, PLANTS, bids)
        for trader in traders:
            trader.live_through(outcome, actions[trader.plant.name])
    for trader in traders:
        trader.memory.summarise_run("selling")
    return traders


def tell(season: str, traders: Sequence[Trader]) -> None:
    """The story of a season as each plant remembers it."""
    print(f"\n{season}")
    for trader in traders:
        lessons = "; ".join(f"{event}: {action}" for event, action in trader.lessons.items()) or "none"
        print(f"  {trader.plant.name:8} {trader.profit:9,.0f} EUR   lessons it started with: {lessons}")
        phases = (f"{told.name} T{told.turn_start}–T{told.turn_end}" for told in trader.memory.episodes())
        print(f"           {' '.join(phases)}")
        if (block := trader.memory.memory_block()) is not None:
            print(f"           top of mind: {block['key_observations'][0]}")


def main(path: Path) -> None:
    """Two seasons in the same weather, the second with the lessons of the first (or of those already in the file)."""
    weather = hours(HOURS, seed=11)
    with Memory(path, llm=MarketReader(), embedder=None) as memory:
        past = max((len(memory.in_namespace(plant.name).sessions()) for plant in PLANTS), default=0)
        for number in (past + 1, past + 2):
            tell(f"season {number}", play(memory, f"season-{number}", weather))
        print(f"\nwhat gas takes into its next season:\n{memory.in_namespace('gas').prior_run_notes('selling')}")


if __name__ == "__main__":
    if len(sys.argv) > 1:
        main(Path(sys.argv[1]))
        print(f"\nlook for yourself:\n  sqlite3 {sys.argv[1]} 'select * from about'")
        print(f"  sqlite3 {sys.argv[1]} 'select condition, action, cited_turns from profile_rule'")
    else:
        with tempfile.TemporaryDirectory() as folder:
            main(Path(folder) / "market.db")
