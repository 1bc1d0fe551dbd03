"""Rows a second of every kind, one by one and in batches, with everything on: triggers, full text, and vectors at the
end; and the share of raw SQL on the same schema."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from istar_lite import Atom, AtomExtractor, Memory, ObservationConfig, TurnRecord
from istar_lite.bench.ground import EPISODE, NOW, OBSERVED, Answers, Setup, sentences, turn
from istar_lite.bench.measures import Measure
from istar_lite.database import sqlite3

PAIRS = 2  # an exchange is two messages
# A name, how many rows, what writes them. What prepares it has run before.
Work = tuple[str, int, Callable[[], object]]


class EachTurn(AtomExtractor):
    """An atom for each turn."""

    def extract(self, window: Sequence[TurnRecord], existing: Sequence[Atom], /) -> list[Atom]:
        """One for each."""
        return [
            Atom(
                id=f"k{one.turn}",
                turn=one.turn,
                type="note",
                content=f"noted at turn {one.turn}",
                priority=one.turn % 97,
            )
            for one in window
        ]


def adds(setup: Setup) -> Iterator[Measure]:
    """Each kind of row in turn."""
    rates: dict[str, float] = {}
    answers = Answers()
    with Memory(setup.folder / "adds.db", llm=answers.model()) as memory:
        for make in (_turns, _atoms, _episodes, _profiles, _memories, _messages, _exchanges, _observations, _kept):
            for name, count, work in make(memory, setup, answers):

                def timed(work: Callable[[], object] = work) -> None:
                    work()
                    memory.status()  # makes the vectors that are missing

                rates[name] = count / setup.seconds(timed)
                yield Measure("adds", name, rates[name], "rows/s")
    raw = setup.items / setup.seconds(lambda: _raw_turns(setup.folder / "raw.db", _record(setup.items)))
    yield Measure("adds", "turns, raw SQL on the same schema", raw, "rows/s")
    yield Measure("adds", "turns, one by one, share of raw SQL", rates["turns, one by one"] / raw, "ratio")


def _record(count: int, seed: int = 0) -> list[TurnRecord]:
    return [turn(at, text) for at, text in enumerate(sentences(count, seed=seed), start=1)]


def _each(write: Callable[[Any], object], values: Sequence[Any]) -> Callable[[], None]:
    def work() -> None:
        for value in values:
            write(value)

    return work


def _turns(memory: Memory, setup: Setup, answers: Answers) -> Iterator[Work]:
    record = _record(setup.items)
    yield "turns, one by one", setup.items, _each(memory.agent("one by one").record_turn, record)
    yield "turns, in a batch", setup.items, lambda: memory.agent("batch").record_turns(record)


def _atoms(memory: Memory, setup: Setup, answers: Answers) -> Iterator[Work]:
    for name, every in (("one by one", 1), ("in a batch", setup.items)):
        agent = memory.agent(f"atoms {name}", atom_extractor=EachTurn(), extract_every=every)
        record = _record(setup.items)

        def each(agent: Any = agent, record: Sequence[TurnRecord] = record) -> None:
            for one in record:
                agent.record_turn(one)
                agent.extract_atoms(one.turn)

        def batch(agent: Any = agent, record: Sequence[TurnRecord] = record) -> None:
            agent.record_turns(record)
            agent.extract_atoms(len(record))

        yield f"atoms, {name}, each with its turn", setup.items, each if every == 1 else batch


def _episodes(memory: Memory, setup: Setup, answers: Answers) -> Iterator[Work]:
    count = max(1, setup.items // EPISODE)
    agent = memory.agent("episodes", episode_every=EPISODE)
    record = _record(count * EPISODE)

    def each() -> None:
        for at in range(0, len(record), EPISODE):
            agent.record_turns(record[at : at + EPISODE])
            agent.update_episode(at + EPISODE)

    yield f"episodes, one by one, each with its {EPISODE} turns", count, each


def _profiles(memory: Memory, setup: Setup, answers: Answers) -> Iterator[Work]:
    agents = [memory.agent(f"profile {number}", extract_every=1) for number in range(max(1, setup.items // 100))]
    for agent in agents:
        agent.record_turns(_record(20))
        agent.extract_atoms(20)
    yield "profiles, one by one", len(agents), _each(lambda agent: agent.summarise_run("market"), agents)


def _memories(memory: Memory, setup: Setup, answers: Answers) -> Iterator[Work]:
    texts = list(sentences(setup.items))
    yield "memories, one by one", setup.items, _each(memory.remember, texts)
    again = [f"{text} again" for text in texts]
    yield "memories, in a batch", setup.items, lambda: memory.remember_many(again)


def _messages(memory: Memory, setup: Setup, answers: Answers) -> Iterator[Work]:
    texts = list(sentences(setup.items))
    watch = memory.observe("watch", context_window=1_000_000, background=None)
    yield "messages, one by one", setup.items, _each(lambda text: watch.add("user", text), texts)
    lines = [{"role": "user", "content": text, "id": str(at)} for at, text in enumerate(texts)]
    yield "messages, imported", setup.items, lambda: memory.import_conversation(lines, session="imported")


def _exchanges(memory: Memory, setup: Setup, answers: Answers) -> Iterator[Work]:
    texts = list(sentences(setup.items // PAIRS))
    chat = memory.chat("chat")
    yield (
        "exchanges, with an extraction that finds nothing",
        len(texts),
        _each(lambda text: chat.store(text, "noted"), texts),
    )
    answers.statements = True
    more = memory.chat("chat with statements")
    yield "exchanges, each with a memory", len(texts), _each(lambda text: more.store(text, "noted"), texts)
    answers.statements = False


def _observations(memory: Memory, setup: Setup, answers: Answers) -> Iterator[Work]:
    config = ObservationConfig(buffer_min_tokens=50, reflection_threshold=0.05)
    watch = memory.observe("observed", context_window=4_000, config=config, background=None)
    texts = list(sentences(setup.items // 2))

    def talk() -> None:
        for at, text in enumerate(texts, start=1):
            watch.add("user", text)
            if at % OBSERVED == 0:
                watch.trigger()
                watch.context()

    yield f"observations and reflections, with their {OBSERVED} messages", max(1, len(texts) // OBSERVED), talk


def _kept(memory: Memory, setup: Setup, answers: Answers) -> Iterator[Work]:
    """What other programs keep."""
    items, files = memory.items(), memory.files()
    texts = list(enumerate(sentences(setup.items)))

    def put(one: tuple[int, str]) -> None:
        with items.writing() as shelf:
            shelf.put(("one",), str(one[0]), {"text": one[1]})

    def put_all() -> None:
        with items.writing() as shelf:
            for at, text in texts:
                shelf.put(("batch",), str(at), {"text": text})

    def write(one: tuple[int, str]) -> None:
        with files.writing() as tree:
            tree.write(f"/memories/{one[0]}.md", one[1], "create")

    yield "items, one by one", setup.items, _each(put, texts)
    yield "items, in a batch", setup.items, put_all
    yield "files, one by one", setup.items, _each(write, texts)
    script = memory.transcript("transcript")
    lines = [{"role": "user", "content": text} for _, text in texts]
    yield "items of a transcript, one by one", setup.items, _each(lambda line: script.add([line]), lines)
    yield "items of a transcript, in a batch", setup.items, lambda: script.add(lines)


def _raw_turns(path: Path, record: Sequence[TurnRecord]) -> None:
    """The same rows by bare statements, one transaction each; full text by the same triggers, no vectors."""
    Memory(path, embedder=None).close()
    connection = sqlite3.connect(path, isolation_level=None)
    for pragma in ("journal_mode = wal", "synchronous = normal", "secure_delete = on"):
        connection.execute(f"pragma {pragma}")
    connection.execute("insert into session (name, kind) values ('raw', 'run')")
    for one in record:
        connection.execute("begin immediate")
        connection.execute(
            "insert into turn (session, turn, reward, reward_unit, events, extra, occurred_at, recorded_at)"
            " values (1, ?, ?, ?, ?, ?, ?, ?)",
            (one.turn, one.reward, "EUR", '["storm"]', json.dumps(one.extra), NOW, NOW),
        )
        connection.execute("commit")
    connection.close()
