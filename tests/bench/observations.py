"""A long run: real conversations one after the other through a small context window.

    python -m tests.bench.observations [path of the conversations] [--window 16000]

The model's answers are replayed: the observer notes what the data says was observed in the messages it is shown, the
reflector keeps what it is told to keep. Printed: peak context, calls, tokens raw and kept, time of context(), share of
the prompt that stayed the same from call to call, and how many evidence turns of the questions the recall tool finds
of those that the log no longer holds.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import statistics
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path
from time import perf_counter
from typing import Any

from istar_lite import Memory, ObservationState
from istar_lite.importing.locomo import parse_date
from istar_lite.observations.cutting import text_of
from istar_lite.observations.recall_tool import search_messages
from istar_lite.prompts import reflect

DATA = Path(os.environ.get("ISTAR_DATA", Path(__file__).parents[3] / "shared" / "data")) / "locomo_dev.json"
_EVIDENCE = re.compile(r"D\s*:?\s*(\d+)\s*:\s*(\d+)")
CRITICAL_EVERY = 10
REFLECTION_WISHES = [reflect("", level=level).messages[-1]["content"].split(".")[0] for level in range(5)]


@dataclass(frozen=True)
class Turn:
    key: tuple[str, str]  # conversation, dia_id
    role: str
    speaker: str
    text: str
    at: datetime


def turns(conversation: dict[str, Any]) -> Iterator[Turn]:
    talk = conversation["conversation"]
    for number in range(1, 200):
        session = talk.get(f"session_{number}")
        if not session:
            continue
        start = parse_date(talk[f"session_{number}_date_time"])
        assert start is not None
        for at, turn in enumerate(session):
            caption = f" [picture: {turn['blip_caption']}]" if turn.get("blip_caption") else ""
            role = "user" if turn["speaker"] == talk["speaker_a"] else "assistant"
            moment = start + timedelta(seconds=20 * at)
            key = (conversation["sample_id"], turn["dia_id"])
            yield Turn(key, role, turn["speaker"], turn["text"] + caption, moment)


def noted(conversation: dict[str, Any]) -> Iterator[tuple[tuple[str, str], str]]:
    for session in conversation["observation"].values():
        for lines in session.values():
            for text, source in lines:
                sources = source if isinstance(source, list) else [source]
                for one in sources:
                    for found in _EVIDENCE.finditer(str(one)):
                        yield (conversation["sample_id"], f"D{found[1]}:{found[2]}"), text


@dataclass
class Replay:
    """A model that answers from the data."""

    by_text: dict[str, list[tuple[tuple[str, str], str]]] = field(default_factory=dict)
    calls: dict[str, int] = field(default_factory=lambda: {"observe": 0, "reflect": 0})

    def __call__(self, messages: Sequence[dict[str, str]], *, tag: str | None = None) -> str:
        self.calls[tag or ""] += 1
        asked = messages[-1]["content"]
        return self._observe(asked) if tag == "observe" else self._reflect(asked)

    def _observe(self, asked: str) -> str:
        asked = asked.split("Messages:\n", 1)[1]
        lines, number, time, date = [], 0, "00:00", ""
        for line in asked.splitlines():
            if line.startswith("Date: "):
                date = line
                lines.append(date)
            head = re.match(r"\*\*(.+?) \((\d\d:\d\d)\)\*\*: (.*)", line)
            if head is None:
                continue
            time = head[2]
            for _, text in self.by_text.get(head[3].strip()[:60], ()):
                number += 1
                lines.append(f"* {'!' if number % CRITICAL_EVERY == 1 else '-'} ({time}) {text}")
        return "<observations>\n" + "\n".join(lines) + "\n</observations>"

    def _reflect(self, asked: str) -> str:
        """Keeps the critical lines, and of the others the newer ones: fewer the harder it is asked to condense."""
        level = next((at for at in range(5) if asked.startswith(REFLECTION_WISHES[at])), 0)
        log = asked[asked.index("<observations>") + 14 : asked.rindex("</observations>")].strip().splitlines()
        others = [at for at, line in enumerate(log) if line.startswith("* -")]
        gone = set(others[: len(others) * (level + 3) // 7])
        kept = "\n".join(line for at, line in enumerate(log) if at not in gone)
        return f"<observations>\n{kept}\n</observations>"


@dataclass
class Result:
    peak: int = 0
    times: list[float] = field(default_factory=list)
    stable: list[float] = field(default_factory=list)
    sent: int = 0
    reused: int = 0


def flat(messages: Sequence[dict[str, Any]]) -> str:
    return "\n".join(f"{message['role']}: {text_of(message)}" for message in messages)


def common(one: str, other: str) -> int:
    low, high = 0, min(len(one), len(other))
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if one[:middle] == other[:middle] else (low, middle - 1)
    return low


def run(memory: Memory, window: int, talk: Sequence[Turn]) -> tuple[Any, Result, dict[tuple[str, str], int]]:
    observing = memory.observe("long", context_window=window, background=None)
    observing.recall_tool()
    result, before, ids = Result(), "", {}
    for turn in talk:
        ids[turn.key] = observing.add(turn.role, turn.text, occurred_at=turn.at, name=turn.speaker).id
        if turn.role == "user":
            start = perf_counter()
            messages = observing.context()
            result.times.append(perf_counter() - start)
            size = sum(-(-len(text_of(message)) // 4) for message in messages)
            result.peak = max(result.peak, size)
            now = flat(messages)
            same = common(before, now)
            result.stable.append(same / len(now))
            result.sent += len(now)
            result.reused += same
            before = now
        else:
            observing.turn_end()
            memory.work()
    return observing, result, ids


def questions(data: Sequence[dict[str, Any]], ids: dict[tuple[str, str], int]) -> Iterator[tuple[str, list[int]]]:
    for conversation in data:
        for question in conversation["qa"]:
            if question.get("category") not in (1, 2, 3, 4):
                continue
            found = [f"D{one[1]}:{one[2]}" for text in question["evidence"] for one in _EVIDENCE.finditer(str(text))]
            gold = {ids[key] for dia in found if (key := (conversation["sample_id"], dia)) in ids}
            if gold:
                yield question["question"], sorted(gold)


def recall_of_what_is_gone(memory: Memory, observing: Any, data: Sequence[dict[str, Any]], ids: Any) -> dict[str, Any]:
    """Turn Recall@10 of the tool for questions of which neither a raw evidence turn nor a line about one is left."""
    log = observing.state().observations
    raw = {row["id"] for row in memory.db.query("select id from message_stage where stage in ('raw', 'buffered')")}
    texts: dict[int, list[str]] = {}
    for conversation in data:
        for key, text in noted(conversation):
            if key in ids:
                texts.setdefault(ids[key], []).append(text)
    asked, shares, all_shares = 0, [], []
    for question, gold in questions(data, ids):
        found = [hit.id for hit in search_messages(observing._watch, question, None, None)[:10]]
        share = sum(one in found for one in gold) / len(gold)
        all_shares.append(share)
        held = any(one in raw or any(text in log for text in texts.get(one, ())) for one in gold)
        if not held:
            asked += 1
            shares.append(share)
    return {
        "questions": len(all_shares),
        "gone": asked,
        "gone_recall": statistics.mean(shares) if shares else None,
        "recall": statistics.mean(all_shares),
    }


def report(talk: Sequence[Turn], window: int, model: Replay, state: ObservationState, result: Result) -> None:
    times = [1e3 * seconds for seconds in result.times]
    same = f"{statistics.mean(result.stable):.3f} (of all characters {result.reused / result.sent:.3f})"
    rows = {
        "messages": len(talk),
        "tokens said": sum(-(-len(turn.text) // 4) for turn in talk),
        "context window": f"{window} (activation at {int(0.9 * window)})",
        "peak context": result.peak,
        "calls": model.calls,
        "tokens observed / kept": f"{state.tokens_observed} / {state.tokens} ({state.compression}x)",
        "generation": state.generation,
        "context() median / worst ms": f"{statistics.median(times):.2f} / {max(times):.1f}",
        "prompt unchanged, mean": same,
        "left out, failed": f"{state.left_out}, {state.failed}",
    }
    for name, value in rows.items():
        print(f"{name:28} {value}")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("data", nargs="?", type=Path, default=DATA)
    parser.add_argument("--window", type=int, default=16_000)
    parser.add_argument("--embedder", default="static")
    choice = parser.parse_args()
    data = json.loads(choice.data.read_text())
    model = Replay()
    talk = [turn for conversation in data for turn in turns(conversation)]
    by_key = {turn.key: turn for turn in talk}
    for conversation in data:
        for key, text in noted(conversation):
            if key in by_key:
                model.by_text.setdefault(by_key[key].text.strip()[:60], []).append((key, text))
    with tempfile.TemporaryDirectory() as folder:
        embedder = None if choice.embedder == "none" else choice.embedder
        memory = Memory(Path(folder) / "long.db", llm=model, embedder=embedder)
        observing, result, ids = run(memory, choice.window, talk)
        report(talk, choice.window, model, observing.state(), result)
        gone = recall_of_what_is_gone(memory, observing, data, ids)
        print(
            f"recall tool, Turn Recall@10  {gone['gone_recall']:.3f} over {gone['gone']} questions the log is silent on"
        )
        print(f"  over all questions         {gone['recall']:.3f} over {gone['questions']}")
        print(f"problems                     {memory.check()}")
        memory.close()


if __name__ == "__main__":
    main()
