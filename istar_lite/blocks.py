"""What an agent's next prompt gets of its run: the phase it is in and what stood out most."""

from __future__ import annotations

from typing import TYPE_CHECKING

from istar_lite import runs
from istar_lite.models import Episode, MemoryBlock
from istar_lite.runs import Run
from istar_lite.trail import Handed, write_trail

if TYPE_CHECKING:
    from istar_lite.database import sqlite3
    from istar_lite.services import Services

ATOMS_SHOWN = 5


def memory_block(services: Services, run: Run, *, count: bool = True) -> MemoryBlock | None:
    """The newest episode and the top atoms, or None while there are neither. Handing it out heats the episode and
    leaves a trail, except with `count=False` and in a read-only file."""
    with services.file.reading() as connection:
        session = runs.find(connection, run)
        if session is None:
            return None
        told = runs.episodes(connection, session, newest=1)
        rows = _weightiest(connection, session)
    if not told and not rows:
        return None
    if count and not services.file.read_only:
        _count(services, run, session, told, rows)
    return MemoryBlock(
        current_phase=_phase(told[0]) if told else None, key_observations=[str(row["content"]) for row in rows]
    )


def _weightiest(connection: sqlite3.Connection, session: int) -> list[sqlite3.Row]:
    return connection.execute(
        "select id, content, priority from atom where session = ? and status = 'active' and stale = 0"
        " order by priority desc, turn desc, id desc limit ?",
        (session, ATOMS_SHOWN),
    ).fetchall()


def _phase(episode: Episode) -> str:
    return f"[{episode.name} | T{episode.turn_start}–T{episode.turn_end}]\n{episode.narrative}"


def _count(services: Services, run: Run, session: int, told: list[Episode], rows: list[sqlite3.Row]) -> None:
    handed: list[Handed] = [("episode", episode.id or 0, None, None, None) for episode in told]
    handed += [("atom", row["id"], row["priority"] / 100, None, None) for row in rows]
    with services.file.write() as tx:
        for episode in told:
            tx.execute("update episode set heat = heat + 1 where id = ?", (episode.id,))
        write_trail(tx, run.namespace, session, "memory_block", None, handed, services.now())
