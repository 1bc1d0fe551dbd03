"""`AgentMemory`: a run of an agent that acts in turns, as `memory.agent(run)` gives it.

It holds the host's rules and nothing else. Cadences, caps and watermarks are in the file, so that another object or
another process on the same run sees the same, and a run that was cut off goes on where it was.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from istar_lite import atoms, blocks, episodes, places, profiles, runs, turns
from istar_lite.errors import BadInput
from istar_lite.extractors import RewardOutcome, RewardPhases, default_extractor
from istar_lite.llm import Flow
from istar_lite.models import (
    Atom,
    AtomExtractor,
    Episode,
    EpisodeClassifier,
    MemoryBlock,
    Profile,
    RetroClassifier,
    Tick,
    TurnRecord,
)
from istar_lite.notebook import Printer, Share, plain, table
from istar_lite.running import arun_flow, in_thread, run_flow
from istar_lite.runs import Run
from istar_lite.values import as_int, as_name

if TYPE_CHECKING:
    from istar_lite.services import Services

# Attribute of AgentMemory → name of its argument, and the method it must have.
_RULES = {
    "extractor": ("atom_extractor", "extract"),
    "classifier": ("episode_classifier", "build_context"),
    "retro": ("retro_classifier", "build_context"),
}


class AgentMemory:
    """A run: turns → atoms → episodes → a profile of lessons.

    `extractor`, `classifier` and `retro` are the host's own rules, None where the ready-made ones serve.
    """

    def __init__(
        self,
        services: Services,
        namespace: str,
        run: str,
        *,
        atom_extractor: AtomExtractor | None = None,
        episode_classifier: EpisodeClassifier | None = None,
        retro_classifier: RetroClassifier | None = None,
        extract_every: int | None = None,
        episode_every: int | None = None,
        max_atoms: int | None = None,
        max_episodes: int | None = None,
    ) -> None:
        self._services = services
        self.run = Run(namespace, as_name(run, "run"))
        self.extractor = atom_extractor
        self.classifier = episode_classifier
        self.retro = retro_classifier
        for attribute, (argument, method) in _RULES.items():
            rules = getattr(self, attribute)
            if rules is not None and not callable(getattr(rules, method, None)):
                raise BadInput(argument, f"an object with a method {method}() is wanted, not {type(rules).__name__}")
        given = {
            "extract_every": extract_every,
            "episode_every": episode_every,
            "max_atoms": max_atoms,
            "max_episodes": max_episodes,
        }
        self._settle({key: as_int(value, key, low=1) for key, value in given.items() if value is not None})
        with services.lock:
            services.agents.add(self)

    def _settle(self, settings: dict[str, int]) -> None:
        """Writes to the run what was given and differs. That it has rules of its own is written too, for `work()`
        in a process that does not have them. A read-only file must have what was given."""
        connection = self._services.file.reader()
        session = runs.find(connection, self.run)
        if self._services.file.read_only:
            own, kept = {}, {key: places.setting(connection, key, session=session or 0) for key in settings}
        else:
            own = {f"own_{attribute}": 1 for attribute in _RULES if getattr(self, attribute) is not None}
            kept = {} if session is None else places.own_settings(connection, session)
        wanted = {**settings, **own}
        if kept.items() >= wanted.items():
            return
        now = self._services.now()
        with self._services.file.write() as tx:
            session = places.ensure_session(tx, self.run.namespace, self.run.name, "run", now)
            for key, value in wanted.items():
                places.set_setting(tx, key, value, session=session)

    def __repr__(self) -> str:
        return f"AgentMemory(run={self.run.name!r}, namespace={self.run.namespace!r})"

    # --- L0 to L2: while the run goes on ----------------------------------------------------------------------

    def record_turn(self, record: TurnRecord) -> int:
        """Writes one turn in one short transaction, asking nobody; returns its row id.

        Numbers rise within a run: the newest turn again with the same content changes nothing and returns its id,
        with other content, or a lower number, it is `BadInput` naming both. So is what no JSON can hold, before
        anything is written.
        """
        return turns.record(self._services, self.run, record)

    def record_turns(self, records: Iterable[TurnRecord]) -> list[int]:
        """Writes several turns in one transaction, all or none; returns their row ids."""
        return turns.record_many(self._services, self.run, records)

    def extract_atoms(self, turn: int) -> list[Atom]:
        """Shows the turns not yet seen to the extractor, when `extract_every` turns are; returns the atoms that were
        new, each with its status after eviction. An extractor that raises, or gives what is no list of atoms, leaves
        its window due: it is tried again after 1, 2, 4 … 16 turns, and `memory.status()` tells why."""
        return atoms.extract(self._services, self.run, self.extractor or default_extractor(), turn)

    def update_episode(self, turn: int) -> Episode | None:
        """Has the model tell the turns that no episode covers, when `episode_every` of them are there. None: it is
        not due, or could not be done now: then it stays due and is tried again after 1, 2, 4 … 16 turns."""
        return run_flow(self._services, self._episode(turn))

    def tick(self, record: TurnRecord) -> Tick:
        """Records the turn and does whatever is due at it."""
        return run_flow(self._services, self._tick(record))

    def memory_block(self, count: bool = True) -> MemoryBlock | None:
        """`{"current_phase": "[NAME | Ta–Tb]\\n…" or None, "key_observations": [the top 5 atoms]}` for the next
        prompt (`.to_prompt()` renders it as fenced data), or None while there is nothing. Counts as a use of the
        episode (`heat`) and leaves a trail, unless `count=False` or the file is read-only."""
        return blocks.memory_block(self._services, self.run, count=count)

    # --- L3: at its end ---------------------------------------------------------------------------------------

    def summarise_run(self, profile_id: str) -> Profile | None:
        """Has the model look back on the run: notes and rules for the profile, found by `memory.prior_run_notes`.
        A former retrospective of this run there is superseded. None, without a call, when the run has neither atoms
        nor episodes; None too when it could not be done now: then it is due for `memory.work()`."""
        return run_flow(self._services, self._summary(profile_id))

    # --- looking at it ----------------------------------------------------------------------------------------

    def atoms(self, status: str | None = "active") -> list[Atom]:
        """Atoms in the order of their turns; `status` None is any."""
        connection = self._services.file.reader()
        session = runs.find(connection, self.run)
        return [] if session is None else runs.atoms(connection, session, status=status)

    def episodes(self, current: bool = False) -> list[Episode]:
        """Episodes in order; `current`: the newest `max_episodes` only. Stale ones are left out."""
        connection = self._services.file.reader()
        session = runs.find(connection, self.run)
        if session is None:
            return []
        newest = runs.cadence_of(connection, session, "max_episodes") if current else None
        return runs.episodes(connection, session, newest=newest)

    def _shown(self) -> tuple[list[dict[str, Any]], str]:
        """The current episode and the working set, the weightiest first: a look, not counted as handed out."""
        told = self.episodes(current=True)[-1:]
        kept = sorted(self.atoms(), key=lambda atom: (-atom.priority, -atom.turn))
        rows: list[dict[str, Any]] = [
            *({"what": f"{one.name} T{one.turn_start}–T{one.turn_end}", "text": one.narrative} for one in told),
            *({"what": f"atom T{a.turn}", "priority": Share(a.priority / 100), "text": a.content} for a in kept),
        ]
        return rows, f"run {self.run.name}: {len(kept)} atoms in the working set"

    def _repr_html_(self) -> str:
        """For a notebook."""
        return table(*self._shown())

    def _repr_pretty_(self, printer: Printer, cycle: bool) -> None:
        printer.text(plain(*self._shown()))

    # --- flows and async twins --------------------------------------------------------------------------------

    def _episode(self, turn: int) -> Flow[Episode | None]:
        return episodes.update(self._services, self.run, self.classifier or RewardPhases(), turn)

    def _summary(self, profile_id: str) -> Flow[Profile | None]:
        return profiles.summarise(self._services, self.run, self.retro or RewardOutcome(), profile_id)

    def _tick(self, record: TurnRecord) -> Flow[Tick]:
        row = self.record_turn(record)
        new = self.extract_atoms(record.turn)
        episode = yield from self._episode(record.turn)
        return Tick(turn_id=row, atoms=tuple(new), episode=episode)

    arecord_turn = in_thread(record_turn)
    arecord_turns = in_thread(record_turns)
    aextract_atoms = in_thread(extract_atoms)
    amemory_block = in_thread(memory_block)

    async def aupdate_episode(self, turn: int) -> Episode | None:
        """`update_episode` for async callers."""
        return await arun_flow(self._services, self._episode(turn))

    async def atick(self, record: TurnRecord) -> Tick:
        """`tick` for async callers."""
        return await arun_flow(self._services, self._tick(record))

    async def asummarise_run(self, profile_id: str) -> Profile | None:
        """`summarise_run` for async callers."""
        return await arun_flow(self._services, self._summary(profile_id))
