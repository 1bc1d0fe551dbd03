"""Stand-ins for the tests of observational memory: models that observe and condense by rule."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Any

from istar_lite.database import sqlite3

_MESSAGE = re.compile(r"^\*\*(?P<who>[^*(]+?)(?: \((?P<time>\d\d:\d\d)\))?\*\*:? (?P<text>.*)$", re.MULTILINE)


def observed(messages: Sequence[dict[str, str]]) -> str:
    """An observer's answer: a short line for each message, every fifth of them critical, and two hints."""
    asked = messages[-1]["content"].split("Messages:\n", 1)[1]
    lines, newest = [], ""
    for at, found in enumerate(_MESSAGE.finditer(asked)):
        newest = " ".join(found["text"].split()[:2])
        lines.append(f"* {'!' if at % 5 == 0 else '-'} ({found['time'] or '00:00'}) {found['who']} said {newest}")
    if not lines:
        lines = ["* - (00:00) more of a long text went by"]
    log = "\n".join(["Date: Jan 1, 2026", *lines])
    return (
        f"<observations>\n{log}\n</observations>\n<current-task>\ngoing on with {newest}\n</current-task>\n"
        f"<suggested-response>\nanswer to {newest}\n</suggested-response>"
    )


def condensed(messages: Sequence[dict[str, str]]) -> str:
    """A reflector's answer: the critical lines, and every fourth of the others."""
    asked = messages[-1]["content"]
    log = asked[asked.index("<observations>") + len("<observations>") : asked.rindex("</observations>")]
    kept, others = [], 0
    for line in log.strip().splitlines():
        others += line.startswith("* -")
        if not line.startswith("* -") or others % 4 == 0:
            kept.append(line)
    return "<observations>\n" + "\n".join(kept) + "\n</observations>"


def problems(connection: sqlite3.Connection) -> Iterable[str]:
    """What is wrong with the rows: a message in two places, or in none that is there."""
    rows = connection.execute(
        "select message.id, message.observation, (select group_concat(observation.id) from observation"
        " where observation.session = message.session and status = 'active' and stale = 0"
        " and message.id between first_message and last_message) as covering from message"
    )
    for identity, observation, covering in rows:
        if (None if observation is None else str(observation)) != covering:
            yield f"message {identity} is in {observation}, covered by {covering}"
    heads = connection.execute(
        "select session, count(*) from reflection where stage = 'active' and status = 'active' and stale = 0"
        " group by session having count(*) > 1"
    )
    for session, count in heads:
        yield f"session {session} has {count} reflections that stand"
    wrong = connection.execute(
        "select observation.id, observation.stage from observation where status = 'active' and stale = 0 and"
        " (stage = 'reflected') is not exists (select 1 from reflection where reflection.session = observation.session"
        " and reflection.stage = 'active' and reflection.status = 'active' and reflection.stale = 0"
        " and observation.id between first_observation and last_observation)"
    )
    for identity, stage in wrong:
        yield f"observation {identity} is {stage}, whatever stands for it"


def text_tokens(message: dict[str, Any]) -> int:
    """Tokens of a message dict as a host would count them: a quarter of its characters, rounded up."""
    content = message.get("content")
    texts = (
        [content]
        if isinstance(content, str)
        else [str(part.get("text") or part.get("content") or part.get("input") or "") for part in content or ()]
    )
    return sum(-(-len(text) // 4) for text in texts)
