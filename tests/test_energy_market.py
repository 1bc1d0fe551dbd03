"""The simulated market: the demo and the example tell the same story each time, and lessons pay."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from istar_lite import Memory, demo

EXAMPLE = Path(__file__).parent.parent / "examples" / "energy_market.py"


@pytest.mark.filterwarnings("ignore:the static table is missing")
def test_the_demo_plays_120_turns_through_all_layers_and_its_lessons_pay(path: Path) -> None:
    told = demo.run(path)
    first, second = told["runs"]
    assert (first["turns"], first["started_with"]) == (120, [])
    assert set(second["started_with"]) == {"IF wind_front THEN bid low", "IF heat_wave THEN bid high"}
    assert second["profit"] > 2 * first["profit"]
    with Memory(path, embedder=None) as memory:
        kinds = memory.stats()["kinds"]
        assert {kind: kinds[kind] for kind in ("turn", "episode", "profile")} == {
            "turn": 240,
            "episode": 8,
            "profile": 2,
        }
        assert kinds["atom"] >= 40
        status = memory.status()
        assert (status.failed, status.due, status.calls) == (0, 0, 10)
    assert len(told["lines"]) > 4


def test_the_demo_can_be_played_again_into_its_file(path: Path) -> None:
    demo.run(path, turns=30)
    again = demo.run(path, turns=30)
    assert [told["run"] for told in again["runs"]] == ["market-3", "market-4"]


def test_what_is_in_the_prompt_is_what_the_stand_in_answers() -> None:
    prompt = "Result (profit): 5 EUR\n\nObservations:\n- T3: storm, lost 4 EUR\n- T9: storm, lost 2 EUR\n"
    answer = demo.MarketReader()([{"role": "user", "content": prompt}], tag="retro")
    assert "IF storm THEN bid low (T3, T9)" in answer
    assert "Outcome: 5 EUR" in answer
    assert demo.MarketReader()([{"role": "user", "content": prompt}], tag="observe") == ""


def test_the_market_clears_the_cheapest_plants_at_the_last_ones_price() -> None:
    plants = (demo.Plant("a", 10, 1.0, 5.0), demo.Plant("b", 10, 2.0, 5.0))
    outcome = demo.clear(demo.Hour(1, 20, 5, None), plants, {"a": 3.0, "b": 7.0})
    assert (outcome.price, dict(outcome.sold)) == (7.0, {"a": 10, "b": 5})
    assert [outcome.profit(plant) for plant in plants] == [55.0, 20.0]
    assert demo.hours(50) == demo.hours(50)


def test_the_example_runs_and_every_plant_does_better_with_its_lessons(tmp_path: Path) -> None:
    result = subprocess.run(
        [sys.executable, str(EXAMPLE), str(tmp_path / "market.db")], capture_output=True, text=True, check=True
    )
    seasons = result.stdout.split("season ")[1:3]
    for plant in ("hydro", "lignite", "gas"):
        before, after = (int(season.split(plant)[1].split()[0].replace(",", "")) for season in seasons)
        assert after > before
    assert "IF heat_wave THEN bid high" in result.stdout
