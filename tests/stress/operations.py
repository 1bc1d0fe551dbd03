"""The operations that stress tests kill, starve and repeat, each as a function of a memory and a number.

Every operation says what it has acknowledged (`done`) by writing a line to a log that the killer reads, after the
call returned. Whatever is in the log must be in the file afterwards.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from istar_lite import Memory, ObservationConfig, TurnRecord
from istar_lite.testing import FixedClock, ScriptedLLM, WordEmbedder

START = 1_767_225_600.0  # 2026-01-01


def scripted() -> ScriptedLLM:
    """The scripted model: one usable answer for each purpose."""
    return ScriptedLLM(
        {
            "extract": Extract(),
            "episode": Episode(),
            "retro": "[RUN RETROSPECTIVE]\nPhase sequence: GROWTH -> DECLINE\nOutcome: 5 EUR\n"
            "Root cause: it held too long (T2).\nRule: IF a spike THEN sell (T3)",
            "consolidate": "likes green tea",
            "observe": Observe(),
            "reflect": "<observations>\n* likes green tea\n</observations>",
        }
    )


class Extract:
    """One statement for each exchange, with its number."""

    def __call__(self, messages: Any) -> str:
        number = str(messages[-1]["content"]).rsplit("number ", 1)[-1].split()[0].strip(".\"'<>")
        return json.dumps({"memories": [{"text": f"likes tea number {number}", "importance": 0.6, "emotion": "joy"}]})


class Episode:
    """A phase with a narrative that is another each time."""

    count = 0

    def __call__(self, messages: Any) -> str:
        Episode.count += 1
        return f"[GROWTH | T1-T9]\nThe price rose again and the agent sold what it held, time {Episode.count}."


class Observe:
    """One line for each chunk, another each time."""

    count = 0

    def __call__(self, messages: Any) -> str:
        Observe.count += 1
        return f"<observations>\n* (10:00) the person asked for tea, time {Observe.count}\n</observations>"


def opened(path: Path, **more: Any) -> Memory:
    """The memory that the operations work on."""
    settings = {"llm": scripted(), "embedder": WordEmbedder(32), "clock": FixedClock(START)} | more
    return Memory(path, **settings)


# --- operations -----------------------------------------------------------------------------------------------


def record(memory: Memory, number: int) -> str:
    """A turn of a run."""
    agent = memory.agent(f"run {number % 3}")
    turn = 1 + int(next(memory.db.query("select coalesce(max(turn), 0) as n from turn"))["n"])
    agent.record_turn(TurnRecord(turn=turn, reward=float(turn), events=["spike"] if turn % 4 == 0 else []))
    return f"turn {turn}"


def tick(memory: Memory, number: int) -> str:
    """A turn with whatever is due: atoms, an episode."""
    agent = memory.agent("ticking", extract_every=2, episode_every=3)
    last = memory.db.execute(
        "select coalesce(max(turn), 0) from turn join session on session.id = turn.session"
        " where session.name = 'ticking'"
    ).fetchone()[0]
    agent.tick(TurnRecord(turn=last + 1, reward=float(number), events=[f"event {number}"]))
    return f"tick {last + 1}"


def summarise(memory: Memory, number: int) -> str:
    """A retrospective of the run."""
    profile = memory.agent("ticking").summarise_run("trader")
    return f"profile {profile.id}" if profile is not None else ""


def store(memory: Memory, number: int) -> str:
    """An exchange with its extraction."""
    stored = memory.chat("kitchen").store(f"I like tea number {number}", f"Noted {number}")
    return f"exchange {stored.exchange_id}"


def remember(memory: Memory, number: int) -> str:
    """A memory told directly."""
    return f"memory {memory.remember(f'drinks tea of kind {number}', key=f'k{number}').id}"


def correct(memory: Memory, number: int) -> str:
    """A correction of the newest live memory."""
    rows = memory.db.execute("select id from memory where status = 'active' order by id desc limit 1").fetchall()
    if not rows:
        return ""
    return f"memory {memory.supersede(rows[0][0], f'drinks coffee of kind {number}').id}"


def consolidate(memory: Memory, number: int) -> str:
    """Clusters of like memories become one."""
    memory.chat("kitchen").consolidate()
    return ""


def observe(memory: Memory, number: int) -> str:
    """Messages of a long conversation, observed, activated, reflected."""
    config = ObservationConfig(buffer_min_tokens=50, buffer_token_cap=200, reflection_threshold=0.05)
    with memory.observe("long", context_window=1000, config=config, background=None) as log:
        log.add("user", f"message {number} " + "tea " * 60)
        log.add("assistant", f"answer {number} " + "milk " * 60)
        log.turn_end()
        log.context()
    memory.work(force=True)
    return ""


def forget(memory: Memory, number: int) -> str:
    """Whatever names one number is forgotten."""
    memory.forget(text=f"kind {number - 3}")
    return f"forgotten {number - 3}"


def retrieve(memory: Memory, number: int) -> str:
    """Recall that reinforces."""
    memory.chat("kitchen").retrieve(f"which tea number {number - 1}?")
    return ""


def snapshot(memory: Memory, number: int) -> str:
    """A copy beside the file, replaced each time."""
    memory.snapshot(memory.path.with_name("snapshot.db"), overwrite=True)
    return "snapshot"


def reembed(memory: Memory, number: int) -> str:
    """All vectors anew, by another model each time."""
    memory.reembed(WordEmbedder(32 if number % 2 else 16))
    return ""


def merge(memory: Memory, number: int) -> str:
    """A file with some rows of its own comes in."""
    other = memory.path.with_name("other.db")
    with opened(other) as theirs:
        theirs.remember(f"told elsewhere {number}")
        theirs.chat("elsewhere").store(f"I like tea number {number}", "Noted")
    memory.merge(other)
    return f"merged {number}"


def export(memory: Memory, number: int) -> str:
    """An export beside the file, replaced each time."""
    memory.export(memory.path.with_name("export.jsonl"), overwrite=True)
    return "export"


def work(memory: Memory, number: int) -> str:
    """Whatever is due."""
    memory.work(force=True)
    return ""


OPERATIONS: dict[str, Callable[[Memory, int], str]] = {
    function.__name__: function
    for function in (
        record, tick, summarise, store, remember, correct, consolidate, observe, forget, retrieve, snapshot, reembed,
        merge, export, work,
    )
}  # fmt: skip


# --- what was acknowledged is there ---------------------------------------------------------------------------


def missing(path: Path, log: Path) -> list[str]:
    """Lines of the log that the file does not bear out."""
    lines = log.read_text().split("\n")[:-1] if log.exists() else []  # a last line without its end was not written
    forgotten = {line.split()[1] for line in lines if line.startswith("forgotten")}
    absent = []
    with opened(path, llm=None) as memory:
        db = memory.db
        for line in lines:
            what, _, value = line.partition(" ")
            if not value and what not in ("snapshot", "export"):
                continue
            if what in ("turn", "tick"):
                found = db.execute("select 1 from turn where turn = ?", [int(value)]).fetchone()
            elif what == "exchange":
                found = db.execute("select 1 from exchange where id = ?", [int(value)]).fetchone()
            elif what == "memory":
                found = db.execute("select 1 from memory where id = ?", [int(value)]).fetchone() or forgotten
            elif what == "profile":
                found = db.execute("select 1 from profile where id = ?", [int(value)]).fetchone()
            elif what == "forgotten":
                gone = db.execute("select 1 from memory where text like ?", [f"%kind {value}"]).fetchone()
                found = gone is None
            elif what == "merged":
                found = db.execute("select 1 from memory where text = ?", [f"told elsewhere {value}"]).fetchone()
            else:
                found = True
            if not found:
                absent.append(line)
    return absent


def troubles(path: Path) -> list[str]:
    """What is wrong with the file beside what `check` tells: ranges that overlap, work that is skipped or lost."""
    with opened(path, llm=None) as memory:
        db = memory.db
        found = list(memory.check())
        found += [
            f"episodes {a} and {b} overlap"
            for a, b in db.execute(
                "select a.id, b.id from episode a join episode b on b.session = a.session and b.id > a.id"
                " where a.status = 'active' and b.status = 'active'"
                " and a.turn_start <= b.turn_end and b.turn_start <= a.turn_end"
            )
        ]
        found += [
            f"exchange {row[0]} is neither extracted nor due"
            for row in db.execute(
                "select id from exchange where not exists (select 1 from task where purpose = 'extract' and first ="
                " exchange.id) and not exists (select 1 from session where session.id = exchange.session and name ="
                " 'elsewhere')"
            )
        ]
        found += [
            f"{row[0]} live memories say {row[1]!r}"
            for row in db.execute(
                "select count(*), text from memory where status = 'active' group by namespace, text having count(*) > 1"
            )
        ]
    return found


def main(path: Path, names: list[str], first: int, log: Path) -> None:
    """Runs operations in turn for ever; the caller kills this process."""
    with opened(path) as memory, open(log, "a") as out:
        number = first
        while True:
            for name in names:
                number += 1
                line = OPERATIONS[name](memory, number)
                out.write(line + "\n")
                out.flush()
                os.fsync(out.fileno())


def clear(folder: Path) -> None:
    """An empty folder."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2].split(","), int(sys.argv[3]), Path(sys.argv[4]))
