"""What all measurements of speed stand on: made-up text from a fixed seed, the settings of a run, own processes."""

from __future__ import annotations

import itertools
import json
import random
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from istar_lite import Memory, TurnRecord
from istar_lite.bench.measures import median_seconds
from istar_lite.testing import ScriptedLLM

SEED = 20_260_102
_VOCABULARY = """
market price storm harbour battery orchard violin garden winter invoice printer deploy server meeting cousin birthday
bicycle tunnel coffee recipe passport dentist ticket concert painting river mountain budget contract station signal
charge sensor kitchen window ladder blanket lantern compass anchor ferry castle forest
"""
_SYLLABLES = ["ba", "co", "di", "fe", "gu", "la", "mi", "no", "pe", "ri", "sa", "tu", "vo", "we", "zi"]
# As in the turns of real conversations: of 12 words that tell something, the most frequent stands in a quarter of all
# turns, the tenth in a tenth, the hundredth in a fiftieth, the thousandth in one of 500.
WORDS = (*_VOCABULARY.split(), *("".join(word) for n in (2, 3) for word in itertools.product(_SYLLABLES, repeat=n)))
_WEIGHTS = tuple(itertools.accumulate(1 / (rank + 5) for rank in range(1, len(WORDS) + 1)))
_SMALL = ["the", "a", "of", "to", "and", "in", "for", "with", "on", "it", "was", "my"]
TELLING, SMALL = 12, 10  # words of a sentence
EPISODE = 25  # turns
OBSERVED = 10  # messages
NOW = "2026-01-02T03:04:05.678Z"


def sentences(count: int, *, seed: int = SEED) -> Iterator[str]:
    """Made-up sentences as long as turns of real conversations (about 125 characters), all different."""
    chance = random.Random(seed)
    for at in range(count):
        small = chance.choices(_SMALL, k=SMALL)
        words = itertools.zip_longest(_telling(chance, TELLING), small)
        yield f"Note {at}: " + " ".join(filter(None, itertools.chain.from_iterable(words)))


def questions(*, seed: int = SEED + 1) -> Iterator[str]:
    """Made-up questions without end, about half as many words as a sentence; hardly two are the same."""
    chance = random.Random(seed)
    while True:
        one, two, three, four = _telling(chance, 4)
        yield f"what was the {one} {two} with the {three} of {four}?"


def _telling(chance: random.Random, count: int) -> list[str]:
    return chance.choices(WORDS, cum_weights=_WEIGHTS, k=count)


@dataclass(frozen=True)
class Setup:
    """`items`: adds of each kind; `sizes`: documents in scope of a search; `runs`: of which the median is taken;
    `days`: of a simulated busy agent (500 turns a day), 0 leaves that out; `clock`: what time is."""

    folder: Path
    items: int = 2_000
    sizes: Sequence[int] = (1_000, 10_000)
    runs: int = 5
    days: int = 0
    clock: Callable[[], float] = time.perf_counter

    def seconds(self, work: Callable[[], object]) -> float:
        """Seconds of one call."""
        start = self.clock()
        work()
        return self.clock() - start

    def median(self, work: Callable[[], object], runs: int | None = None) -> float:
        """Median seconds of several calls."""
        return median_seconds(work, runs or self.runs, clock=self.clock)


def turn(number: int, text: str) -> TurnRecord:
    """A turn of an agent whose reward goes up and down."""
    return TurnRecord(turn=number, reward=number % 7, reward_unit="EUR", events=["storm"], extra={"note": text})


def messages_file(path: Path, size: int) -> Path:
    """JSON lines of `size` messages in sessions of 500, one a minute."""
    with open(path, "w", encoding="utf-8") as lines:
        for at, text in enumerate(sentences(size)):
            message = {"role": "user", "content": text, "session": f"s{at // 500}", "id": str(at)}
            lines.write(json.dumps({**message, "timestamp": 1.7e9 + 60 * at}) + "\n")
    return path


def filled(path: Path, size: int) -> None:
    """A file of `size` messages in sessions of 500, with vectors, and with cells where it is large."""
    source = messages_file(path.with_suffix(".jsonl"), size)
    with Memory(path) as memory:
        memory.import_conversation(source)
        source.unlink()
        memory.work()


def python(script: str, *arguments: str) -> str:
    """What a script prints in a process of its own."""
    done = subprocess.run([sys.executable, "-c", script, *arguments], capture_output=True, text=True, check=True)
    return done.stdout


class Answers:
    """What a model would answer, at once and of ordinary length: so that all around it is measured, and not the
    model. `statements`: whether an extraction finds one."""

    def __init__(self) -> None:
        self.statements = False
        self._numbers = itertools.count(1)
        self._phases = itertools.cycle(("OPENING", "GROWTH", "PLATEAU", "DECLINE", "RECOVERY"))  # the same goes on

    def model(self) -> ScriptedLLM:
        """A model for `Memory(llm=…)`."""
        return ScriptedLLM(
            {
                "extract": self._extracted,
                "episode": lambda _: f"[{next(self._phases)} | T1-T{EPISODE}]\n{self._told(3)}",
                "retro": lambda _: (
                    f"[RUN RETROSPECTIVE]\nPhase sequence: OPENING, GROWTH\nOutcome: {self._told(1)}\n"
                    f"Root cause: {self._told(1)}\nRule for next run: {self._told(1)}"
                ),
                "observe": lambda _: self._log(OBSERVED),
                "reflect": lambda _: self._log(2),
            },
            default='{"memories": []}',
        )

    def _extracted(self, _: object) -> str:
        return json.dumps({"memories": [{"text": self._told(1)}] if self.statements else []})

    def _told(self, count: int) -> str:
        """Sentences that were not told before."""
        numbers = itertools.islice(self._numbers, count)
        return " ".join(f"The {_word(at)} of day {at} broke {_word(at // 7)} number {at * 37}." for at in numbers)

    def _log(self, lines: int) -> str:
        log = "\n".join(f"* - (03:04) {self._told(1)}" for _ in range(lines))
        return f"<observations>\nDate: Jan 2, 2026\n{log}\n</observations>"


def _word(at: int) -> str:
    return WORDS[at % len(WORDS)]
