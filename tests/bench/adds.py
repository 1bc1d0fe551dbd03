"""Adds per second of one turn (with full text) and one atom, as a fraction of raw SQL on the same schema.

    python tests/bench/adds.py [turns]

Ours and raw SQL take turns in small batches in one process, so that what else the machine does meets both; CPU time of
this thread is counted, and the median of the batches' ratios printed.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from istar_lite import AgentMemory, Atom, Memory, TurnRecord
from istar_lite.database import sqlite3

BATCH = 50
EVERY = 10
NOW = "2026-01-02T03:04:05.678Z"
TURN = "insert into turn (session, turn, reward, reward_unit, events, actions_taken, extra, occurred_at, recorded_at) values (1, ?, ?, ?, ?, ?, ?, ?, ?)"  # fmt: skip  # noqa: E501
ATOM = "insert into atom (session, key, turn, type, content, priority, occurred_at, recorded_at) values (1, ?, ?, ?, ?, ?, ?, ?)"  # fmt: skip  # noqa: E501


class EachTurn:
    def extract(self, window: Any, existing: Sequence[Atom], /) -> list[Atom]:
        return [Atom(id=f"k{t.turn}", turn=t.turn, type="spike", content=content(t.turn), priority=priority(t.turn))
                for t in window[window.context :]]  # fmt: skip


def content(turn: int) -> str:
    return f"price spike at turn {turn} above 100"


def priority(turn: int) -> int:
    return turn * 37 % 100


def ours(agent: AgentMemory, first: int) -> None:
    for number in range(first, first + BATCH):
        agent.record_turn(TurnRecord(turn=number, reward=42.5, reward_unit="EUR", events=["price_spike", "storm"],
                                     actions_taken=["buy qty=10"], extra={"price": 105, "demand": 33.5}))  # fmt: skip
        agent.extract_atoms(number)


def raw(connection: sqlite3.Connection, first: int) -> None:
    for number in range(first, first + BATCH):
        connection.execute("begin immediate")
        values = (number, 42.5, "EUR", '["price_spike","storm"]', '["buy qty=10"]', '{"price":105,"demand":33.5}')
        connection.execute(TURN, (*values, NOW, NOW))
        connection.execute("commit")
        if number % EVERY == 0:
            connection.execute("begin immediate")
            for turn in range(number - EVERY + 1, number + 1):
                connection.execute(ATOM, (f"k{turn}", turn, "spike", content(turn), priority(turn), NOW, NOW))
            connection.execute("commit")


def main(turns: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        ours_memory, raw_memory = (Memory(Path(folder) / name, embedder=None) for name in ("ours.db", "raw.db"))
        agent = ours_memory.agent("r", atom_extractor=EachTurn(), extract_every=EVERY)
        raw_memory.agent("r", max_atoms=20)
        connection = raw_memory.db.conn
        connection.isolation_level = None
        connection.execute("pragma synchronous = normal")
        connection.execute("pragma journal_mode = wal").fetchall()
        seconds: dict[str, list[float]] = {"ours": [], "raw": []}
        for first in range(1, turns, BATCH):
            for name, run in (("ours", lambda: ours(agent, first)), ("raw", lambda: raw(connection, first))):  # noqa: B023
                start = time.thread_time()
                run()
                seconds[name].append(time.thread_time() - start)
        ours_memory.close()
        raw_memory.close()
    best = {name: BATCH / min(times) for name, times in seconds.items()}
    ratios = [slow / fast for fast, slow in zip(seconds["ours"], seconds["raw"], strict=True)]
    print(
        f"turns with an atom each, a second of CPU: ours {best['ours']:.0f}, raw SQL {best['raw']:.0f} (best batches)"
    )
    print(f"ours / raw: {statistics.median(ratios):.2f} (median), {best['ours'] / best['raw']:.2f} (best)")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 3000)
