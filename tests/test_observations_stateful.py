"""Random histories of one conversation: whatever is said, answered, killed or deleted, each message is in one place
only, the context stays within its budget, and nothing is lost."""

from __future__ import annotations

import tempfile
from collections.abc import Generator
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from observing import condensed, observed, problems

from istar_lite import IstarError, Memory
from istar_lite.llm import Answer, Flow
from istar_lite.models import ObservationConfig
from istar_lite.observations.cutting import text_of
from istar_lite.observations.work import work_session
from istar_lite.testing import FixedClock

WINDOW = 1_000
LIMIT = 0.9 * WINDOW
CONFIG = ObservationConfig(buffer_min_tokens=150, buffer_token_cap=400)


class Conversation(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.folder = tempfile.TemporaryDirectory()
        self.clock = FixedClock()
        self.mode = "good"
        self.said: dict[int, str] = {}
        self.number = 0
        self.kept_alive: list[Any] = []  # what a killed process held: never closed, never collected
        self.late: Flow[int] | None = None
        self.head: tuple[Any, str | None] | None = None
        self.open()

    def open(self) -> None:
        path = Path(self.folder.name) / "memory.db"
        self.memory = Memory(path, embedder=None, llm=self.answer, clock=self.clock)
        self.observing = self.memory.observe(
            "long", context_window=WINDOW, utility_window=800, config=CONFIG, background=None
        )

    def answer(self, messages: list[dict[str, str]], tag: str | None = None) -> str:
        if self.mode == "fails":
            raise ConnectionError("429: too many requests")
        if self.mode == "hangs":
            raise TimeoutError("no answer in time")
        if self.mode == "lies":
            return "I looked at it and everything is fine."
        if self.mode == "nothing" and tag == "observe":
            return "<observations>\n</observations>"
        return observed(messages) if tag == "observe" else condensed(messages)

    def add(self, role: str, content: Any, **more: Any) -> None:
        message = self.observing.add(role, content, **more)
        self.said[message.id] = message.content
        self.clock.advance(60)

    # --- what may happen ------------------------------------------------------------------------------------------

    @rule(words=st.integers(1, 60))
    def exchange(self, words: int) -> None:
        self.number += 1
        self.add("user", f"question {self.number} " + "word " * words)
        self.add("assistant", f"reply {self.number} " + "word " * words)

    @rule(words=st.integers(1, 60))
    def question(self, words: int) -> None:
        self.number += 1
        self.add("user", f"question {self.number} " + "word " * words)

    @rule(words=st.sampled_from([300, 900, 1500]))
    def giant(self, words: int) -> None:
        self.number += 1
        self.add("user", f"giant {self.number} " + "word " * words)

    @rule(runs=st.integers(1, 12), words=st.integers(1, 80))
    def tools(self, runs: int, words: int) -> None:
        for _ in range(runs):
            self.number += 1
            call = {"id": f"call{self.number}", "type": "function", "function": {"name": "look", "arguments": "{}"}}
            self.add("assistant", None, tool_calls=[call])
            self.add("tool", f"result {self.number} " + "row " * words, tool_call_id=f"call{self.number}")

    @rule(total=st.one_of(st.none(), st.integers(0, 1_200)))
    def turn_end(self, total: int | None) -> None:
        self.observing.turn_end(total)

    @rule(mode=st.sampled_from(["good", "good", "fails", "hangs", "lies", "nothing"]))
    def model(self, mode: str) -> None:
        self.mode = mode

    @rule()
    def work(self) -> None:
        self.memory.work()

    @rule()
    def trigger(self) -> None:
        self.observing.trigger()

    @rule(seconds=st.sampled_from([1, 60, 4_000]))
    def time_passes(self, seconds: int) -> None:
        self.clock.advance(seconds)

    @rule(extra=st.sampled_from([0, 0, 100]))
    def context(self, extra: int) -> None:
        state = self.observing.state()
        messages = self.observing.context(extra)
        size = sum(-(-len(text_of(message)) // 4) for message in messages)
        overhead = max(extra, self.observing._overhead)
        assert size + overhead < LIMIT or size <= 0.2 * LIMIT, f"{size} tokens and {overhead} of the host"
        if self.mode in ("good", "nothing") and not (state.in_flight or state.failed or overhead > 300):
            assert messages.left_out == 0
        self.newest_is_shown(messages)
        self.tools_are_whole(messages)
        self.head_is_stable(messages, extra)

    def newest_is_shown(self, messages: list[dict[str, Any]]) -> None:
        if self.said:
            newest = self.said[max(self.said)]
            assert messages, "there is something to show"
            assert newest[:8] in text_of(messages[-1]) or "left out" in text_of(messages[-1])

    def tools_are_whole(self, messages: list[dict[str, Any]]) -> None:
        calls = {call["id"] for message in messages for call in message.get("tool_calls", ())}
        results = {message["tool_call_id"] for message in messages if "tool_call_id" in message}
        deleted = {one for one in calls ^ results if not self.both_there(one)}
        assert calls - deleted == results - deleted

    def both_there(self, call: str) -> bool:
        rows = self.memory.db.query("select parts from message where parts like ?", (f'%"{call}"%',))
        return len(list(rows)) == 2

    def head_is_stable(self, messages: Any, extra: int) -> None:
        active = tuple(
            row["id"] for row in self.memory.db.query("select id from observation where stage = 'active' and stale = 0")
        )
        heads = tuple(
            row["id"] for row in self.memory.db.query("select id from reflection where status = 'active' and stale = 0")
        )
        head = next((m["content"] for m in messages if "<istar_memory" in str(m.get("content"))), None)
        rows = (active, heads, messages.left_out, max(extra, self.observing._overhead))
        if self.head is not None and self.head[0] == rows and messages.left_out == 0:
            assert self.head[1] == head, "the text before the tail changes only when the log does"
        self.head = (rows, head)

    @precondition(lambda self: self.late is None)
    @rule()
    def work_begins_and_hangs(self) -> None:
        session = self.observing._watch.find()
        if session is None:
            return
        flow = work_session(self.observing._watch, session)
        try:
            self.asked = next(flow)
        except StopIteration:
            return
        self.late = flow

    @precondition(lambda self: self.late is not None)
    @rule()
    def the_late_answer_comes(self) -> None:
        flow, self.late = self.late, None
        assert flow is not None
        try:
            while True:
                text = observed(self.asked.messages) if self.asked.tag == "observe" else condensed(self.asked.messages)
                self.asked = flow.send(Answer(text))
        except StopIteration:
            return
        except IstarError as error:
            assert "is closed" in str(error)

    @precondition(lambda self: len(self.kept_alive) < 6)
    @rule(forgets_answer=st.booleans())
    def killed_and_reopened(self, forgets_answer: bool) -> None:
        self.kept_alive += [self.memory, self.observing]
        if forgets_answer:
            self.kept_alive.append(self.late)
            self.late = None
        self.open()

    @precondition(lambda self: bool(self.said))
    @rule(data=st.data())
    def message_is_deleted(self, data: Any) -> None:
        identity = data.draw(st.sampled_from(sorted(self.said)))
        self.memory.db.execute("delete from message where id = ?", (identity,))
        self.memory.db.conn.commit()
        del self.said[identity]

    @precondition(lambda self: bool(self.said))
    @rule(data=st.data())
    def message_is_edited(self, data: Any) -> None:
        identity = data.draw(st.sampled_from(sorted(self.said)))
        row = next(iter(self.memory.db.query("select parts from message where id = ?", (identity,))))
        if row["parts"] is None:
            self.said[identity] = f"edited {self.said[identity][:2000]}"
            self.memory.db.execute("update message set content = ? where id = ?", (self.said[identity], identity))
            self.memory.db.execute("update message set tokens = null where id = ?", (identity,))
            self.memory.db.conn.commit()

    # --- what must hold -------------------------------------------------------------------------------------------

    @invariant()
    def each_message_is_in_one_place(self) -> None:
        assert list(problems(self.memory.db.conn)) == []

    @invariant()
    def nothing_is_lost(self) -> None:
        rows = self.memory.db.query("select id, content from message order by id")
        assert {row["id"]: row["content"] for row in rows} == self.said

    @invariant()
    def one_worker_at_a_time(self) -> None:
        now = self.memory._services.now()
        rows = self.memory.db.query(
            "select purpose, count(*) as n from task where state = 'claimed' and claimed_until > ? group by purpose",
            (now,),
        )
        assert all(row["n"] <= 1 for row in rows)

    def teardown(self) -> None:
        self.mode = "good"
        self.kept_alive.append(self.late)
        self.clock.advance(10_000)
        self.memory.work(force=True)
        assert self.observing.context().left_out == 0
        # (A log of nothing but critical lines cannot be condensed: that a reflection failed is no fault.)
        failed = self.memory.db.query("select * from task where purpose = 'observe' and state = 'failed'")
        assert list(failed) == []
        assert list(problems(self.memory.db.conn)) == []
        assert self.memory.check() == []
        for flow in [one for one in self.kept_alive if isinstance(one, Generator)]:
            flow.close()
        for memory in [one for one in [*self.kept_alive, self.memory] if isinstance(one, Memory)]:
            memory.close()
        self.folder.cleanup()


Conversation.TestCase.settings = settings(
    max_examples=20, stateful_step_count=25, deadline=None, suppress_health_check=list(HealthCheck)
)
TestConversation = Conversation.TestCase
