"""Makes the database of a release that every later version must open: `python tests/files/make.py 0.1.0`.

Run once, with the release itself, and never again for it: the point of the file is that it is old. It holds something
of every layer, made through the public names, and is opened by `test_versions.py`.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from istar_lite import Memory, ObservationConfig, TurnRecord
from istar_lite.testing import FixedClock, ScriptedLLM, WordEmbedder

HERE = Path(__file__).parent


def extract(messages: Any) -> str:
    """One statement for each exchange."""
    kind = str(messages[-1]["content"]).rsplit("tea of kind ", 1)[-1].split()[0]
    return json.dumps({"memories": [{"text": f"likes tea of kind {kind}", "importance": 0.6, "emotion": "joy"}]})


def episodes() -> list[str]:
    """A narrative for each episode of the run."""
    return [
        f"[{phase}]\nThe price {what} and the agent {did}."
        for phase, what, did in (
            ("OPENING | T1-T5", "held", "watched"),
            ("GROWTH | T6-T10", "rose", "bought"),
            ("DECLINE | T11-T15", "fell after a spike", "sold too late"),
        )
    ]


def model() -> ScriptedLLM:
    """Answers for every purpose."""
    return ScriptedLLM(
        {
            "extract": extract,
            "episode": episodes(),
            "retro": "[RUN RETROSPECTIVE]\nPhase sequence: OPENING -> GROWTH -> DECLINE\nOutcome: 15 EUR\n"
            "Root cause: it held too long (T12).\n"
            "Rule: IF the price jumps above 5 THEN sell half of it at once (T4, T11)",
            "observe": "<observations>\nDate: 2026-01-02\n* (10:00) the person asked for tea\n</observations>",
        }
    )


def live(memory: Memory, clock: FixedClock) -> None:
    """A run, a chat, a long conversation, statements that were corrected and forgotten, another owner."""
    agent = memory.agent("market", extract_every=5, episode_every=5, max_atoms=4)
    for turn in range(1, 16):
        clock.advance(3600)
        events = ["spike"] if turn in (4, 11) else []
        agent.tick(TurnRecord(turn=turn, reward=float(turn % 7), reward_unit="EUR", events=events, extra={"n": turn}))
    agent.memory_block()
    agent.summarise_run("trader")
    chat = memory.chat("kitchen")
    for kind in range(9):
        clock.advance(60)
        chat.store(f"I like tea of kind {kind}", "Noted.", key=f"k{kind}")
    chat.retrieve("which tea of kind 3?")
    old = memory.remember("the port is 22", tags=["net"], key="port")
    clock.advance(86400)
    memory.supersede(old.id, "the port is 49222")
    memory.remember("the code is 4711")
    memory.forget(text="4711")
    memory.remember("drinks 緑茶 in Tōkyō 😀", emotion="love", ttl=10**9)
    memory.in_namespace("other").remember("likes black tea")
    config = ObservationConfig(buffer_min_tokens=50, buffer_token_cap=200)
    with memory.observe("long", context_window=2000, config=config, background=None) as log:
        for number in range(4):
            log.add("user", f"message {number} " + "tea " * 200)
            log.add("assistant", f"answer {number}")
            log.turn_end()
    memory.work()
    memory.search("tea")


def make(version: str) -> Path:
    """The file of a release, made anew."""
    path = HERE / f"{version}.db"
    path.unlink(missing_ok=True)
    clock = FixedClock("2026-01-01T00:00:00Z")
    with Memory(path, llm=model(), embedder=WordEmbedder(32), clock=clock) as memory:
        live(memory, clock)
        assert memory.check() == []
    return path


if __name__ == "__main__":
    print(make(sys.argv[1]))
