"""Look into a memory: two runs of an agent, a fortnight at a desk, a long shift, and the page that shows it all.

    python examples/look_inside.py [FILE.db] [PAGE.html]

The file holds everything that a memory can hold: turns, atoms, episodes and lessons (the market of `istar-lite demo`),
statements taken out of a conversation, one of them replaced, two merged, one forgotten, and a log that stands for a
long conversation. The model is a stand-in that answers from a table, so nothing is downloaded and no key is needed.
"""

from __future__ import annotations

import json
import re
import sys
import tempfile
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from istar_lite import Memory, ObservationConfig, demo
from istar_lite.report import Reported, report
from istar_lite.testing import FixedClock, ScriptedLLM

# Days ago, what the operator said, what the agent answered, what is worth keeping of it (importance, emotion).
DESK: list[tuple[float, str, str, list[tuple[str, float, str]]]] = [
    (13, "Please keep reports short. I read them on the phone between two rounds.", "Short reports it is.",
     [("The operator wants short reports, read on the phone", 0.9, "neutral")]),
    (12.8, "Unit 2 may never run below 40 MW, the burner goes out under that.", "Noted: unit 2 stays at 40 MW or more.",
     [("Unit 2 must not run below 40 MW: the burner goes out", 1.0, "fear")]),
    (12, "The coal barge comes on Tuesdays, except when the river is frozen.", "Then I plan the stock around Tuesdays.",
     [("The coal barge comes on Tuesdays unless the river is frozen", 0.6, "neutral")]),
    (10.5, "I was so glad when the old turbine started at the first try today!", "That is good news.",
     [("The old turbine started at the first try, which made the operator glad", 0.4, "joy")]),
    (9, "Gas is bought from the northern hub. The southern one let us down in winter.", "Northern hub, then.",
     [("Gas is bought from the northern hub; the southern one failed in winter", 0.8, "anger")]),
    (8, "The inspection is on the 14th. The boiler book has to be complete by then.", "I will remind you of the book.",
     [("The inspection is on the 14th; the boiler book must be complete by then", 0.9, "neutral")]),
    (6, "The wind forecast was off by 80 MW yesterday. Do not trust it past six hours.", "Six hours and no further.",
     [("The wind forecast is not to be trusted beyond six hours", 0.85, "surprise")]),
    (5, "Night shifts are two people now, we cannot restart unit 1 with two.", "No restarts of unit 1 at night.",
     [("Unit 1 cannot be restarted at night: the shift is two people", 0.8, "neutral")]),
    (4.5, "Remember, wind forecasts beyond six hours cannot be trusted.", "I remember.",
     [("The wind forecast beyond six hours is not to be trusted", 0.8, "neutral")]),
    (2, "The gate code is 4471, in case the driver asks.", "Understood.",
     [("The gate code is 4471", 0.3, "neutral")]),
]  # fmt: skip

# When which question brought memories back.
ASKED = [
    (11.5, "May unit 2 run below 40 MW tonight?"), (9.5, "How should I write the reports for the operator?"),
    (7.5, "Can unit 2 run at 35 MW?"), (6.5, "When does the coal barge come?"), (5.5, "Where is gas bought?"),
    (4, "Is the wind forecast to be trusted for tomorrow?"), (3, "Can unit 1 be restarted at night?"),
    (2.5, "Does the operator want the report long or short?"), (1, "How far below 40 MW may unit 2 run on Sunday?"),
    (0.5, "Is the wind forecast good beyond six hours?"),
]  # fmt: skip

SHIFT = [
    "Start of shift. Unit 1 at 180 MW, unit 2 at 95 MW, wind 60 MW. Stock for nine days. Nothing open from before.",
    "Feed pump B sounds rough. Bearing at 71 degrees, it was 64 yesterday. I want it looked at before the weekend.",
    "The mechanic says the bearing can run until Friday if it stays under 80 degrees. Pump C is ready as a spare.",
    "Grid control asks for 20 MW more from ten o'clock. Unit 1 takes it, unit 2 stays where it is.",
    "Bearing of pump B now 76 degrees. Switch to pump C at 78 and call the mechanic, whatever the hour.",
    "Switched to pump C at 13:20, bearing B reached 78. Mechanic is called, comes tomorrow at seven.",
    "Ash line 3 is blocked again, third time this month. Cleared by hand. Write it up for the maintenance meeting.",
    "End of shift. Unit 1 at 200 MW, unit 2 at 95 MW. Pump C in use, B waits for the mechanic at seven.",
]


def _desk() -> ScriptedLLM:
    """A model that knows the answers of this story."""
    kept = {
        said: json.dumps(
            {"memories": [dict(zip(("text", "importance", "emotion"), one, strict=True)) for one in worth]}
        )
        for _, said, _, worth in DESK
    }
    return ScriptedLLM(
        {
            "observe": _observe,
            "reflect": "<observations>\nDate: today\n- Pump B failed at 78 degrees, pump C runs, mechanic at seven"
            "\n- Ash line 3 blocked three times this month\n</observations>",
            "consolidate": "The wind forecast is not to be trusted beyond six hours",
            **kept,
        },
        default="{}",
    )


def _observe(messages: list[Any]) -> str:
    """The first sentence of each message, as a log."""
    said = re.findall(r"\*\*user \((?:[^)]*?)(\d\d:\d\d)\)\*\*:?\s*([^.\n]+)", messages[-1]["content"], re.IGNORECASE)
    lines = "\n".join(f"- ({when}) {sentence}" for when, sentence in said) or "- the shift went on"
    task = "<current-task>\nKeep the shift running\n</current-task>"
    return f"<observations>\nDate: today\n{lines}\n</observations>\n{task}"


def fill(path: Path, now: datetime) -> None:
    """Fills the file with a fortnight that ends at `now`."""
    demo.run(path)
    clock = FixedClock(now - timedelta(days=14))
    happenings = [(ago, "told", index) for index, (ago, *_) in enumerate(DESK)]
    happenings += [(ago, "asked", index) for index, (ago, _) in enumerate(ASKED)]
    with Memory(path, llm=_desk(), clock=clock) as memory:
        desk = memory.chat("control desk")
        for ago, what, index in sorted(happenings, reverse=True):
            clock.advance((now - timedelta(days=ago)).timestamp() - clock())
            if what == "told":
                _, said, answered, _ = DESK[index]
                desk.store(said, answered)
            else:
                desk.retrieve(ASKED[index][1], limit=2)
        _correct(memory)
        _watch(memory, clock)
        memory.context("What should the next shift know?", budget_tokens=300)


def _correct(memory: Memory) -> None:
    """What a memory goes through: corrected, merged, expiring, forgotten."""
    inspection = memory.search("the inspection is on the 14th", kinds="memory", k=1)[0]
    memory.supersede(inspection.id, "The inspection is on the 16th; the boiler book must be complete by then")
    memory.chat("control desk").consolidate()
    memory.remember("The spare transformer is lent to the neighbouring plant", tags=["equipment"], ttl=7 * 86_400)
    memory.forget(text="4471")


def _watch(memory: Memory, clock: FixedClock) -> None:
    """A long shift, observed: the log takes the place of the messages."""
    config = ObservationConfig(buffer_min_tokens=40, reflection_threshold=0.3)
    watch = memory.observe("shift", context_window=190, config=config, background=None)
    for said in SHIFT:
        watch.add("user", said)
        watch.add("assistant", "Noted.")
        watch.turn_end()
        memory.work()
        watch.context()
        clock.advance(3600)


def main(file: Path, page: Path) -> Reported:
    """Makes the file and its page."""
    fill(file, datetime.now(UTC))
    return report(file, page)


if __name__ == "__main__":
    folder = Path(tempfile.mkdtemp(prefix="istar-lite-"))
    given = [Path(argument) for argument in sys.argv[1:]]
    made = main(given[0] if given else folder / "desk.db", given[1] if given[1:] else folder / "memory.html")
    print(f"{made.path}: {made.bytes // 1000} KB, {made.shown} of {made.rows} rows; open it in a browser")
