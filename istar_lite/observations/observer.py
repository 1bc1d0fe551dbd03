"""The observer: turns messages into a chunk of the log. One claim, one or more calls, one short write per chunk."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from istar_lite import prompts, tasks
from istar_lite.answers import ObservationBlock, cut_repetition, find_repetition, read_observations
from istar_lite.clock import from_text
from istar_lite.errors import UnusableAnswer
from istar_lite.frames import strip_frames
from istar_lite.llm import Ask, Flow
from istar_lite.models import Observation, ObservationEvent
from istar_lite.observations import claims, rows
from istar_lite.observations.parts import Other, ToolCall, ToolResult, described, pieces
from istar_lite.observations.units import Spoken, Unit, units
from istar_lite.text import digest

if TYPE_CHECKING:
    from istar_lite.database import sqlite3
    from istar_lite.observations.watch import Watch

ANSWER_TOKENS_LEAST, ANSWER_TOKENS_MOST = 800, 6_000
SECOND_TEMPERATURE = 0.4  # asked at 0 again, a model that repeats itself would only do so again
SHRINK_MOST = 2  # after failures the input is halved so many times: what was too much for the model may be less


@dataclass(frozen=True, slots=True)
class Chunk:
    """What one observation will stand for: whole units with nothing of the session between them."""

    units: tuple[Unit, ...]

    @property
    def messages(self) -> tuple[Spoken, ...]:
        """The messages in order."""
        return tuple(message for unit in self.units for message in unit.messages)

    @property
    def tokens(self) -> int:
        """Tokens of the messages."""
        return sum(unit.tokens for unit in self.units)


def observe(
    watch: Watch, session: int, messages: Sequence[Spoken], *, sync: bool, step: int | None = None
) -> Flow[tuple[Observation, ...]]:
    """Observes these raw messages (without what still waits for a tool), chunk by chunk; `sync`: the host waits, and
    the result stands for the messages at once, else it is buffered. Ends at the first chunk that does not succeed:
    what is left stays raw and due."""
    done: list[Observation] = []
    for chunk in plan(watch, session, messages):
        written = yield from _observe_chunk(watch, session, chunk, sync=sync, step=step)
        if written is None:
            break
        done.append(written)
    return tuple(done)


def plan(watch: Watch, session: int, messages: Sequence[Spoken]) -> list[Chunk]:
    """The chunks: whole units, as many as one call may hold, broken where other messages stand between."""
    if not messages:
        return []
    connection = watch.services.file.reader()
    order = rows.ids_between(connection, session, messages[0].id, messages[-1].id)
    place = {identity: at for at, identity in enumerate(order)}
    limit = _call_limit(watch, connection, session)
    chunks: list[list[Unit]] = []
    size = 0
    for unit in units(messages, open_end=rows.is_newest(connection, session, messages[-1])):
        if unit.pending:
            continue
        for run in _runs(unit, place):
            adjoins = bool(chunks) and place[run.first] == place[chunks[-1][-1].last] + 1
            if adjoins and size + run.tokens <= limit:
                chunks[-1].append(run)
                size += run.tokens
            else:
                chunks.append([run])
                size = run.tokens
    return [Chunk(tuple(chunk)) for chunk in chunks]


def _runs(unit: Unit, place: Mapping[int, int]) -> list[Unit]:
    """The unit itself; in pieces where something between its messages is observed already."""
    runs: list[list[Spoken]] = []
    for message in unit.messages:
        if message.id not in place:
            continue  # gone since it was read
        if runs and place[message.id] == place[runs[-1][-1].id] + 1:
            runs[-1].append(message)
        else:
            runs.append([message])
    return [Unit(tuple(run)) for run in runs]


def _call_limit(watch: Watch, connection: sqlite3.Connection, session: int) -> int:
    """Tokens that one call may hold, less where the last tries show that it was too much for the model."""
    halvings = 0
    for row in claims.open_tasks(connection, session, "observe"):
        if str(row["last_error"] or "").startswith(("UnusableAnswer", "TimeoutError")):
            halvings = max(halvings, min(row["attempts"], SHRINK_MOST))
    return max(1, watch.budgets.call >> halvings)


def _observe_chunk(
    watch: Watch, session: int, chunk: Chunk, *, sync: bool, step: int | None
) -> Flow[Observation | None]:
    services = watch.services
    if services.llm is None:
        with services.file.write() as tx:
            claims.queue(services, tx, "observe", session, chunk.messages[0].id, chunk.messages[-1].id)
        return None
    with services.file.write() as tx:
        if not rows.unchanged(tx, chunk.messages):
            return None
        taken = claims.claim(services, tx, "observe", session, chunk.messages[0].id, chunk.messages[-1].id)
        log = rows.log(tx, session)
    if taken is None:
        return None
    task, before = taken
    written = yield from tasks.attempt(
        services, task, _ask_and_write(watch, session, chunk, task, before, log, sync=sync), step=step
    )
    if written is not None:
        watch.tell(_event(watch, session, chunk, written, sync=sync))
    return written


def _ask_and_write(
    watch: Watch, session: int, chunk: Chunk, task: tasks.Task, before: sqlite3.Row, log: rows.Log, *, sync: bool
) -> Flow[Observation | None]:
    services = watch.services
    blocks = yield from _ask_all(watch, chunk, task, before, log)
    text = "\n".join(block.observations for block in blocks if block.observations)
    hints = next((block for block in reversed(blocks) if block.current_task or block.suggested_response), None)
    with services.file.write() as tx:
        if not rows.unchanged(tx, chunk.messages):
            # Deleted, edited or covered meanwhile: the late result is dropped, what is left of the range is due.
            tasks.release(services, task)
            claims.settle_observed(services, tx, session)
            return None
        tasks.finish(tx, task, services.now(), first=chunk.messages[0].id, last=chunk.messages[-1].id)
        tx.execute("update task set detail = null where id = ?", (task.id,))
        observation = rows.insert_observation(
            tx,
            session,
            chunk.messages,
            text=text,
            stage="active" if sync else "buffered",
            current_task=hints.current_task if hints else None,
            suggested_response=hints.suggested_response if hints else None,
            tokens=services.count_tokens(text) if text else 0,
            now=services.now(),
        )
        claims.settle_observed(services, tx, session, before)
    return observation


def _ask_all(
    watch: Watch, chunk: Chunk, task: tasks.Task, before: sqlite3.Row, log: rows.Log
) -> Flow[list[ObservationBlock]]:
    """The answers to all pieces of the chunk (nearly always one). Those of a chunk too large for one call are kept in
    the task as they come, so that a failure at the fourth piece does not pay for the first three again."""
    services = watch.services
    parts = list(split(said(chunk.messages), watch.budgets.call, services.count_tokens))
    mark = digest("\n".join(prompts.render_said(part) for part in parts))
    blocks = _kept_blocks(before, mark)
    for part in parts[len(blocks) :]:
        earlier = "\n".join([log.text, *(block.observations for block in blocks)]).strip()
        blocks.append((yield from _ask_one(watch, task, part, earlier)))
        if len(parts) > 1:
            _keep_blocks(watch, task, mark, blocks)
    return blocks


def _kept_blocks(before: sqlite3.Row, mark: str) -> list[ObservationBlock]:
    kept = json.loads(before["detail"]) if before["detail"] else {}
    if kept.get("of") != mark:
        return []
    return [ObservationBlock(*block) for block in kept["blocks"]]


def _keep_blocks(watch: Watch, task: tasks.Task, mark: str, blocks: Sequence[ObservationBlock]) -> None:
    kept = {
        "of": mark,
        "blocks": [(block.observations, block.current_task, block.suggested_response) for block in blocks],
    }
    with watch.services.file.write() as tx:
        tx.execute(
            "update task set detail = ? where id = ? and claim = ?",
            (json.dumps(kept, ensure_ascii=False), task.id, task.claim),
        )


def _ask_one(watch: Watch, task: tasks.Task, part: Sequence[prompts.Said], earlier: str) -> Flow[ObservationBlock]:
    """One answer, read. What repeats itself or was cut off is asked for once more; then loops are cut, and what is
    cut off is refused (its span stays due)."""
    services = watch.services
    texts = [one.text for one in part]
    max_tokens = answer_tokens(watch, sum(services.count_tokens(text) for text in texts))
    prompt = prompts.observe(
        part,
        earlier=prompts.newest_lines(earlier, watch.budgets.config.previous_observer_tokens, services.count_tokens),
        instruction=watch.budgets.config.observer_instruction,
        max_tokens=max_tokens,
    )
    for attempt in (1, 2):
        temperature = prompt.temperature if attempt == 1 else SECOND_TEMPERATURE
        answer = yield from tasks.ask(services, task, Ask(prompt.messages, prompt.tag, max_tokens, temperature))
        loops = find_repetition(answer) is not None
        if loops and attempt == 1:
            continue
        block = read_observations(
            cut_repetition(answer) if loops else answer,
            supported_by=texts,
            example_lines=prompt.example_texts,
            max_tokens=max_tokens,
        )
        if block.complete:
            return block
    raise UnusableAnswer("the observations were cut off before their end")


def answer_tokens(watch: Watch, tokens: int) -> int:
    """How long an answer about so many tokens may be."""
    most = ANSWER_TOKENS_MOST
    if watch.budgets.utility is not None:
        most = max(1, min(most, watch.budgets.utility // 4))
    return min(max(ANSWER_TOKENS_LEAST, tokens // 2), most)


def said(messages: Sequence[Spoken]) -> list[prompts.Said]:
    """Messages as the observer reads them. What memory itself handed out is cut: it is in the log already."""
    tools = {
        piece.id: piece.name
        for message in messages
        for piece in pieces(message.parts, message.role)
        if isinstance(piece, ToolCall)
    }
    return [one for message in messages for one in _said(message, tools) if one.text.strip() or one.kind == "call"]


def _said(message: Spoken, tools: dict[str | None, str]) -> Iterator[prompts.Said]:
    moment = from_text(message.occurred_at)
    # The zone stands beside the date: a time without one is read as the reader's own.
    date, time = f"{moment:%b} {moment.day}, {moment.year} (UTC)", f"{moment:%H:%M}"
    who = message.speaker or message.role
    if message.parts is None:
        yield prompts.Said(who, strip_frames(message.content), date, time)
        return
    for piece in pieces(message.parts, message.role):
        if isinstance(piece, ToolCall):
            yield prompts.Said(who, piece.arguments, date, time, "call", piece.name)
        elif isinstance(piece, ToolResult):
            name = piece.name or tools.get(piece.call) or "a tool"
            yield prompts.Said("tool", strip_frames(piece.text), date, time, "result", name)
        elif isinstance(piece, Other):
            yield prompts.Said(who, described(piece), date, time)
        else:
            yield prompts.Said(who, strip_frames(piece), date, time)


def split(
    messages: Sequence[prompts.Said], limit: int, count_tokens: Callable[[str], int]
) -> Iterator[list[prompts.Said]]:
    """The messages in parts of at most `limit` tokens; a text longer than that is cut, at a line where one ends."""
    part: list[prompts.Said] = []
    size = 0
    for message in messages:
        for text in cut_text(message.text, limit, count_tokens):
            tokens = count_tokens(text)
            if part and size + tokens > limit:
                yield part
                part, size = [], 0
            part.append(replace(message, text=text))
            size += tokens
    if part:
        yield part


def cut_text(text: str, limit: int, count_tokens: Callable[[str], int]) -> Iterator[str]:
    """`text` in pieces of at most about `limit` tokens each, nothing left out."""
    tokens = count_tokens(text)
    if tokens <= limit:
        yield text
        return
    length = max(1, int(len(text) * limit / tokens))
    at = 0
    while at < len(text):
        end = _end_of_piece(text, at, length)
        yield text[at:end]
        at = end


def _end_of_piece(text: str, at: int, length: int) -> int:
    """Where a piece of at most `length` characters ends: after a line of its second half, else after a word."""
    end = at + length
    if end >= len(text):
        return len(text)
    for mark in ("\n", " "):
        found = text.rfind(mark, at + length // 2, end)
        if found > at:
            return found + 1
    return end


def _event(watch: Watch, session: int, chunk: Chunk, written: Observation, *, sync: bool) -> ObservationEvent:
    return ObservationEvent(
        messages=tuple(rows.as_message(message) for message in chunk.messages),
        first_id=written.first_message,
        last_id=written.last_message,
        observations=written.text,
        utilisation=utilisation(watch, session),
        sync=sync,
        at=from_text(watch.services.now()),
    )


def utilisation(watch: Watch, session: int) -> float:
    """Share of the context window that log and messages would fill now, by our own count."""
    connection = watch.services.file.reader()
    tokens = rows.log(connection, session).tokens + sum(rows.waiting_tokens(connection, session))
    return tokens / watch.budgets.window if watch.budgets.window else 0.0
