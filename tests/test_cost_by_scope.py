"""What a call costs grows with what it touches, never with the file: counted in steps of SQLite's virtual machine,
triggers included, so that neither the machine nor its load matters. A statement that turns into a scan fails here."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from istar_lite import Memory, TurnRecord, upkeep
from istar_lite.database import File
from istar_lite.testing import FixedClock, WordEmbedder

STEPS = 10  # of the virtual machine: how finely is counted
SMALL, LARGE = 60, 1200  # rows of others
GROWTH = 1.6  # what a deeper tree and a longer list of words cost; a scan would cost tens of times as much
SPARE = 60  # counts: below them a few steps more are no scan


class Counter:
    """Counts the steps of all connections of files opened while it is in place."""

    def __init__(self) -> None:
        self.count = 0

    def step(self) -> int:
        self.count += 1
        return 0

    def of(self, call: Callable[[], object]) -> int:
        self.count = 0
        call()
        return self.count


@pytest.fixture
def counter(monkeypatch: pytest.MonkeyPatch) -> Iterator[Counter]:
    counter = Counter()
    connect = File._connect

    def counted(self: File, *values: Any, **named: Any) -> Any:
        connection = connect(self, *values, **named)
        connection.set_progress_handler(counter.step, STEPS)
        return connection

    monkeypatch.setattr(File, "_connect", counted)
    yield counter


def fill(path: Path, clock: FixedClock, others: int) -> None:
    """A scope of 40 messages, 20 memories and 20 turns, and many times as much of others, in the same namespace (other
    sessions and runs, and what was forgotten) and in another one."""
    with Memory(path, embedder=WordEmbedder(16), clock=clock) as memory:
        stranger = memory.in_namespace("stranger")
        memory.import_conversation(messages("mine", 40), format="messages")
        for number in range(others // 60):
            memory.import_conversation(messages(f"other {number}", 30), format="messages")
            stranger.import_conversation(messages(f"other {number}", 30), format="messages")
        stranger.remember_many([f"a stranger's fact {number} about tea" for number in range(others)])
        memory.remember_many([{"text": f"gone fact {number}", "tags": ["gone"]} for number in range(others)])
        memory.forget(tag="gone")
        memory.remember_many([f"fact {number} about tea and roses" for number in range(20)])
        memory.agent("mine").record_turn(turn(1))
        for number in range(others // 60):
            memory.agent(f"run {number}", extract_every=10**6, episode_every=10**6)
        run = stranger.agent("theirs", extract_every=10**6, episode_every=10**6)
        for at in range(others // 10):
            run.record_turn(turn(at))
        for name in ("default", "stranger"):
            memory.in_namespace(name).search("tea")
        memory.status()
        # How many parts the full-text index is in just now depends on chance, and each is asked.
        with memory._services.file.write() as tx:
            tx.execute("insert into document_fts (document_fts) values ('optimize')")


def messages(session: str, count: int) -> list[dict[str, Any]]:
    return [
        {"speaker": ("Ann", "Bob")[at % 2], "content": f"tea number {at} with roses", "session": session,
         "timestamp": 1.7e9 + at}
        for at in range(count)
    ]  # fmt: skip


def turn(number: int) -> TurnRecord:
    return TurnRecord(turn=number, events=[f"price {number}"], actions_taken=["hold"], reward=1.0)


def calls(memory: Memory) -> dict[str, Callable[[int], object]]:
    """Each hot call, made anew for a number that counts up."""
    agent = memory.agent("mine", extract_every=10**6, episode_every=10**6)
    chat = memory.chat("talk")
    long = memory.observe("mine", context_window=100_000, background=None)
    small = memory.in_namespace("small")
    small.remember_many([f"small fact {number} about tea" for number in range(10)])
    return {
        "search in a session": lambda at: memory.search(f"roses {at}", session="mine"),
        "search in a small namespace": lambda at: small.search(f"tea {at}"),
        "search after a write": lambda at: (small.remember(f"tea again {at}"), small.search("tea")),
        "context of a small namespace": lambda at: small.context(f"tea {at}", budget_tokens=500),
        "retrieve in a small namespace": lambda at: small.chat("talk").retrieve(f"tea fact {at}"),
        "record_turn": lambda at: agent.record_turn(turn(at + 2)),
        "memory_block": lambda at: agent.memory_block(),
        "remember": lambda at: small.remember(f"one more fact {at} about green tea"),
        "remember beside what was forgotten": lambda at: memory.remember(f"one more fact {at} about green tea"),
        "store": lambda at: chat.store(f"is tea {at} good?", f"tea {at} is good"),
        "message": lambda at: long.add("user", f"tea message {at}"),
        "first message of a session": lambda at: memory.observe(
            f"fresh {at}", context_window=100_000, background=None
        ).add("user", "a first message"),
        "first turn of a run": lambda at: memory.agent(f"fresh {at}").record_turn(turn(1)),
        "first statement in a namespace": lambda at: memory.in_namespace(f"fresh {at}").remember("a first statement"),
    }


def costs_of(memory: Memory, counter: Counter) -> dict[str, float]:
    """What each hot call costs: the median, since now and then full text merges its parts, which is paid off over many
    writes."""
    made = calls(memory)
    for call in made.values():
        call(0)
    return {
        name: statistics.median(counter.of(lambda at=at, call=call: call(at)) for at in range(1, 8))  # type: ignore[misc]
        for name, call in made.items()
    }


@pytest.mark.filterwarnings("ignore:no model given")
def test_no_hot_call_costs_more_in_a_larger_file(
    tmp_path: Path, clock: FixedClock, counter: Counter, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Without statistics: with them SQLite finds its way where an index is missing, but a file has none at first.
    monkeypatch.setattr(upkeep, "FEWEST", 10**9)
    costs: list[dict[str, float]] = []
    for others in (SMALL, LARGE):
        path = tmp_path / f"{others}.db"
        fill(path, clock, others)
        with Memory(path, embedder=WordEmbedder(16), clock=clock) as memory:
            costs.append(costs_of(memory, counter))
    small, large = costs
    assert all(small.values())
    grown = {name: (small[name], large[name]) for name in small if large[name] > GROWTH * small[name] + SPARE}
    assert grown == {}


@pytest.mark.filterwarnings("ignore:no model given")
def test_statistics_do_not_lead_a_hot_call_astray(
    tmp_path: Path, clock: FixedClock, counter: Counter, monkeypatch: pytest.MonkeyPatch
) -> None:
    costs: list[dict[str, float]] = []
    for analysed in (False, True):
        path = tmp_path / f"{analysed}.db"
        monkeypatch.setattr(upkeep, "FEWEST", 1_000 if analysed else 10**9)
        fill(path, clock, LARGE)
        with Memory(path, embedder=WordEmbedder(16), clock=clock) as memory:
            memory.work()
            tables = memory._services.file.reader().execute(
                "select name from sqlite_master where name = 'sqlite_stat1'"
            )
            assert len(tables.fetchall()) == analysed
        with Memory(path, embedder=WordEmbedder(16), clock=clock) as memory:
            costs.append(costs_of(memory, counter))
    plain, analysed_ = costs
    assert {name: (plain[name], analysed_[name]) for name in plain if analysed_[name] > 1.2 * plain[name] + SPARE} == {}


def test_what_was_forgotten_is_looked_up_not_through(tmp_path: Path, clock: FixedClock, counter: Counter) -> None:
    counts = []
    for others in (SMALL, LARGE // 2):  # below what is worth statistics, which would let SQLite skip by itself
        with Memory(tmp_path / f"{others}.db", embedder=None, clock=clock) as memory:
            memory.remember_many([f"gone fact {number}" for number in range(others)])
            memory.forget(everything=True)
            counts.append(counter.of(lambda memory=memory: memory.remember("one more fact")))  # type: ignore[misc]
    assert counts[1] <= GROWTH * counts[0] + SPARE


def test_the_counting_would_notice_a_scan(tmp_path: Path, clock: FixedClock, counter: Counter) -> None:
    counts = []
    for others in (SMALL, LARGE):
        fill(tmp_path / f"{others}.db", clock, others)
        with Memory(tmp_path / f"{others}.db", embedder=None, clock=clock) as memory:
            reader = memory._services.file.reader()
            counts.append(
                counter.of(lambda reader=reader: reader.execute("select max(length(text)) from document").fetchall())  # type: ignore[misc]
            )
    assert counts[1] > GROWTH * counts[0] + SPARE
