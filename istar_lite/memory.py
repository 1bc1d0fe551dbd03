"""`Memory`: the facade. It holds the file, the model, the embedder and the clock; every method calls one layer.

Where a call asks a model or may take long it has an async twin with the prefix `a`; both run the same code.

Vectors are made in batches: at the latest when something is searched, counted or copied, or the file is closed. A
process that dies before leaves rows without vectors; words find them, and the next search makes the vectors.
"""

from __future__ import annotations

import builtins
import logging
import os
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from datetime import timedelta
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, cast

from istar_lite import places, recall, tasks
from istar_lite.clock import Clock, Instant, wall_clock
from istar_lite.database import Durability, File
from istar_lite.embedders import EmbedderLike
from istar_lite.embedding import Embedding
from istar_lite.errors import IstarError
from istar_lite.later import Later
from istar_lite.llm import Flow, as_llm
from istar_lite.running import arun_flow, in_thread, run_flow
from istar_lite.services import OnError, Services, check_choices
from istar_lite.values import as_int, as_name

if TYPE_CHECKING:
    import sqlite_utils

    from istar_lite import (
        agent,
        atoms,
        browse,
        chat,
        checking,
        consolidation,
        episodes,
        exchanges,
        exporting,
        files,
        forgetting,
        importing,
        items,
        memories,
        merging,
        models,
        observations,
        packing,
        profiles,
        room,
        sealing,
        transcripts,
        upkeep,
    )
    from istar_lite.agent import AgentMemory
    from istar_lite.chat import Chat
    from istar_lite.files import Files
    from istar_lite.items import Items
    from istar_lite.models import (
        AtomExtractor,
        Budget,
        ContextBlock,
        Difference,
        EpisodeClassifier,
        Exported,
        Forgotten,
        Imported,
        MemoryItem,
        Merged,
        Notes,
        ObservationConfig,
        Page,
        Results,
        RetroClassifier,
        Row,
        StoreStatus,
    )
    from istar_lite.observations import ObservationalMemory
    from istar_lite.observations.observational import BackgroundKind
    from istar_lite.transcripts import Transcript
else:
    # Opening a file needs none of these: they are imported by the first call that goes to them (see later.py); models,
    # and with them pydantic (35 ms), by the first result.
    agent = Later("istar_lite.agent")
    atoms = Later("istar_lite.atoms")
    browse = Later("istar_lite.browse")
    chat = Later("istar_lite.chat")
    checking = Later("istar_lite.checking")
    consolidation = Later("istar_lite.consolidation")
    episodes = Later("istar_lite.episodes")
    exchanges = Later("istar_lite.exchanges")
    exporting = Later("istar_lite.exporting")
    files = Later("istar_lite.files")
    forgetting = Later("istar_lite.forgetting")
    importing = Later("istar_lite.importing")
    items = Later("istar_lite.items")
    memories = Later("istar_lite.memories")
    merging = Later("istar_lite.merging")
    models = Later("istar_lite.models")
    observations = Later("istar_lite.observations")
    packing = Later("istar_lite.packing")
    profiles = Later("istar_lite.profiles")
    room = Later("istar_lite.room")
    sealing = Later("istar_lite.sealing")
    transcripts = Later("istar_lite.transcripts")
    upkeep = Later("istar_lite.upkeep")

_log = logging.getLogger("istar_lite")

# What `work` drains, in this order: atoms go into episodes, episodes into retrospectives, extracted statements into
# consolidated ones.
_DRAINS = (atoms, episodes, profiles, exchanges, consolidation, observations)


class Memory:
    """The memory in one file, seen as one owner (`namespace`).

    `embedder`: "static" (ships with the install, offline), "fastembed", "fastembed:<model>", an object with
    `model_id`, `dimension`, `embed(texts) -> (n, dimension) float32` and optionally `embed_query`, a callable, or
    None (words only). `clock`: gives epoch seconds or an aware datetime. `on_error`: "keep" (work that failed stays
    due, see `status()`) or "raise". `llm_timeout`: seconds per call of the model. `redact`: text → text before
    anything is stored. `count_tokens`: text → int.

    Raises `NotAMemoryFile`, `FileTooNew`, `FileDamaged`, `ReadOnly`, `Busy`, `BadInput`; the file is unchanged then.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        namespace: str = "default",
        *,
        llm: object = None,
        model: str | None = None,
        embedder: EmbedderLike = "static",
        clock: Clock | None = None,
        read_only: bool = False,
        durability: Durability = "normal",
        llm_timeout: float | None = 60.0,
        on_error: OnError = "keep",
        budget: Budget | None = None,
        redact: Callable[[str], str] | None = None,
        count_tokens: Callable[[str], int] | None = None,
    ) -> None:
        check_choices(
            on_error=on_error,
            llm_timeout=llm_timeout,
            budget=budget,
            clock=clock,
            redact=redact,
            count_tokens=count_tokens,
        )
        self.namespace = as_name(namespace, "namespace")
        adapted = None if llm is None else as_llm(llm, model)
        embedding = Embedding(embedder)
        self._services = Services(
            file=File(path, read_only=read_only, durability=durability),
            clock=clock or wall_clock,
            worker=tasks.worker_name(),
            embedding=embedding,
            llm=adapted,
            model=model,
            llm_timeout=llm_timeout,
            on_error=on_error,
            budget=budget,
            redact=redact,
            counter=count_tokens,
        )
        self._databases: list[sqlite_utils.Database] = []

    # --- the file ---------------------------------------------------------------------------------------------

    @property
    def path(self) -> Path:
        """Where the file is."""
        return self._services.file.path

    @property
    def db(self) -> sqlite_utils.Database:
        """A `sqlite_utils.Database` on the same file, on a connection of its own: for what we did not think of."""
        if not self._databases:
            from istar_lite.plain_sql import open_database  # sqlite_utils costs 0.3 s to import: only who asks pays

            self._databases.append(open_database(self._services.file))
        return self._databases[0]

    def in_namespace(self, name: str) -> Memory:
        """The same open file seen as another owner. Closing one closes all."""
        other = object.__new__(type(self))
        other.__dict__.update(self.__dict__)
        other.namespace = as_name(name, "namespace")
        return other

    def close(self) -> bool:
        """Leaves one complete file. False: somebody else has it open, and the last to close tidies up. Observations
        under way are abandoned: they are due again at once (wait for them with `ObservationalMemory.close()`)."""
        with self._services.lock:
            watchers = builtins.list(self._services.watchers)
        for watcher in watchers:
            watcher.close(wait=False)
        if not self._services.file.closed and not self._services.file.read_only:
            self._services.embedding.settle(self._services)
            self._tidy_up()
        for database in self._databases:
            database.conn.close()
        self._databases.clear()
        return self._services.file.close()

    def _tidy_up(self) -> None:
        """A little of the upkeep, by who wrote. Nothing in it may keep a file from being closed."""
        if self._services.file.was_written:
            try:
                upkeep.tend(self._services.file, upkeep.AT_CLOSE)
            except IstarError as error:
                _log.warning("%s", error)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"Memory({str(self.path)!r}, namespace={self.namespace!r})"

    def snapshot(
        self,
        path: str | os.PathLike[str],
        overwrite: bool = False,
        on_progress: Callable[[int, int], None] | None = None,
    ) -> Path:
        """A complete copy in one file, safe while others write. Refuses an existing target unless `overwrite`.
        `on_progress(done, total)`: bytes."""
        if not self._services.file.read_only:
            self._services.embedding.settle(self._services)
        return self._services.file.snapshot(path, overwrite=overwrite, on_progress=on_progress)

    def check(
        self,
        fix: bool = False,
        key: str | bytes | None = None,
        on_progress: Callable[[int, int], None] | None = None,
    ) -> builtins.list[str]:
        """Problems of the whole file, one line each; empty means whole. `fix` mends what can be derived from the
        rows (search rows, full text, indexes, what hangs in the air) and tells what is left. `key` checks the seal
        too. `on_progress(done, total)`: an estimate of the time, in microseconds. Raises `ReadOnly` for `fix` on a file
        opened read-only."""
        return checking.check(self._services.file, fix=fix, key=key, on_progress=on_progress)

    def seal(self, key: str | bytes) -> str:
        """Writes one keyed digest over all rows into the file, to be made before it is shipped: `check(key=…)`
        names the tables in which anything was edited, removed or put back since. It hides nothing, and who has the
        key can seal anew. Gives the digest (hex)."""
        with self._services.file.write() as tx:
            return sealing.seal(tx, key, self._services.now())

    def export(
        self,
        path: str | os.PathLike[str],
        overwrite: bool = False,
        on_progress: Callable[[int, int], None] | None = None,
    ) -> Exported:
        """Writes every row of the file to `path` as JSON lines, as of one moment; `load` brings them back exactly.
        Of a damaged file it saves what can be read. Raises `BadInput` if the target exists and not `overwrite`."""
        return exporting.export(self.path, path, overwrite=overwrite, on_progress=on_progress)

    def load(
        self, path: str | os.PathLike[str], on_progress: Callable[[int, int], None] | None = None
    ) -> dict[str, int]:
        """Fills a new, empty file with the rows of an export, ids and all; rows by table. Raises `BadInput` naming
        the line that is no row of an export, or when something is in the file already (merge it instead)."""
        return exporting.load(self._services.file, path, on_progress=on_progress)

    def merge(self, other: str | os.PathLike[str], on_progress: Callable[[int, int], None] | None = None) -> Merged:
        """Brings in everything of another memory file (or export), once, however often it is merged and in which
        order. The other file is only read. One transaction: all of it, or nothing.

        Rows meet by namespace, session, kind, event time, normalised text, and the ordinal among equals; counts are
        the larger, first dates the earlier, last ones the later; what ended in one file has ended; corrections are
        put in order by event time. A run of the same name with other turns comes in as `name~2`. What either side
        has forgotten is forgotten. Vectors come along where both files use the same model. Own settings hold.
        Raises `BadInput` when there is no such file or it is this one, `FileTooNew`, `FileDamaged`, `Busy`."""
        result = merging.merge(self._services, other, on_progress=on_progress)
        self._services.embedding.settle(self._services)
        return result

    def diff(self, other: str | os.PathLike[str]) -> tuple[Difference, ...]:
        """What the two files do not share: rows that only one has, and rows that both have but differ. Neither is
        changed."""
        return merging.diff(self._services.file, other)

    # --- looking around ---------------------------------------------------------------------------------------

    def namespaces(self) -> list[str]:
        """Names of all namespaces of the file, in order of their making."""
        return browse.namespaces(self._services.file.reader())

    def sessions(self) -> list[dict[str, Any]]:
        """The sessions of this namespace: name, kind, created_at, and how many turns and messages each holds."""
        return browse.sessions(self._services.file.reader(), self.namespace)

    def get(self, kind: str, id: int) -> Row | None:
        """A row of this namespace by kind and id; None if there is none."""
        return browse.get(self._services.file.reader(), self.namespace, kind, id)

    def list(self, kind: str, *, limit: int = 100, after: int | None = None) -> Page:
        """Rows of this namespace in order of their ids: `limit` at most, those after the id `after`."""
        return browse.page(self._services.file.reader(), self.namespace, kind, limit=limit, after=after)

    def status(self) -> StoreStatus:
        """What waits for the model or for vectors, what failed last, and what the model cost."""
        file = self._services.file
        if not file.read_only:
            self._services.embedding.settle(self._services)
        counts = tasks.summary(file.reader(), self.namespace)
        counts["last_error"] = counts["last_error"] or self._services.embedding.last_error
        return models.StoreStatus(
            pending_vectors=self._services.embedding.pending(
                file.reader(), places.find_namespace(file.reader(), self.namespace)
            ),
            mode=self._services.embedding.mode(file.reader()),
            budget_spent=tasks.budget_spent(self._services),
            **counts,
        )

    def stats(self) -> dict[str, Any]:
        """Rows of this namespace by kind, its sessions, and the bytes of the file; and of the whole file, `tables`
        (bytes by table with its indices), `free` bytes, `per_1000_turns` (bytes in use by 1,000 rows recorded), and
        `growth`: bytes a day, the size in 30 and 365 days, and what that rests on."""
        file = self._services.file
        return {**browse.stats(file, self.namespace), **room.told(file, self._services.now())}

    # --- search -----------------------------------------------------------------------------------------------

    def search(
        self,
        query: str,
        *,
        k: int = 10,
        kinds: Iterable[str] | str | None = None,
        session: str | Iterable[str] | None = None,
        tags: Iterable[str] | str | None = None,
        since: Instant | None = None,
        until: Instant | None = None,
        as_of: Instant | None = None,
        status: str | Iterable[str] = "active",
        min_score: float | None = None,
        sources: bool = True,
    ) -> Results:
        """The `k` rows of any kind that best fit `query`, best first, with scores in [0, 1).

        Filters apply before ranking: `kinds` (turn, atom, episode, profile, message, memory, observation, reflection,
        file, item), `session` (a name or a list), `tags` (all of them), `since` ≤ time < `until`, `as_of` (what held
        on that day, whatever became of it since), `status` (active, evicted, superseded, merged, a list, or "any").
        `min_score` holds back and counts in `.filtered`. `sources`: bring the turns and messages a hit rests on, and of
        a turn or message those beside it. A blank query finds nothing. Each hit's `explain` adds up to its score.

        Raises `BadInput`.
        """
        request = recall.make_request(
            self.namespace,
            query,
            k=k,
            kinds=kinds,
            session=session,
            tags=tags,
            since=since,
            until=until,
            as_of=as_of,
            status=status,
            min_score=min_score,
            sources=sources,
        )
        return recall.search(self._services, request)

    def reembed(self, embedder: EmbedderLike = None, on_progress: Callable[[int, int], None] | None = None) -> int:
        """Makes the vectors of the whole file anew with `embedder` (default: the one at hand); how many documents.

        The old vectors serve until all new ones are there. Interrupted, it goes on where it stopped.
        `on_progress(done, total)`: documents.
        """
        made = self._services.embedding.reembed(self._services, embedder, on_progress)
        recall.tend(self._services)
        return made

    # --- agents that act in turns -----------------------------------------------------------------------------

    def agent(
        self,
        run: str,
        *,
        atom_extractor: AtomExtractor | None = None,
        episode_classifier: EpisodeClassifier | None = None,
        retro_classifier: RetroClassifier | None = None,
        extract_every: int | None = None,
        episode_every: int | None = None,
        max_atoms: int | None = None,
        max_episodes: int | None = None,
    ) -> AgentMemory:
        """A run of an agent: turns → atoms → episodes → a profile of lessons.

        A number that is given is written to the run; None keeps what the file has, else 10 turns between two
        extractions, 25 between two episodes, 20 atoms in the working set, 5 current episodes. No extractor: the
        ready-made ones (`extractors.default_extractor`); no classifier: phases OPENING, GROWTH, PLATEAU, DECLINE,
        RECOVERY and a summary of rewards.
        """
        return agent.AgentMemory(
            self._services,
            self.namespace,
            run,
            atom_extractor=atom_extractor,
            episode_classifier=episode_classifier,
            retro_classifier=retro_classifier,
            extract_every=extract_every,
            episode_every=episode_every,
            max_atoms=max_atoms,
            max_episodes=max_episodes,
        )

    def prior_run_notes(self, profile_id: str, last: int = 1) -> Notes | None:
        """The newest notes of a profile, or the `last` ones with the newest at the end; None when it has none. Text
        that can render itself fenced as data (`.to_prompt()`)."""
        return profiles.prior_notes(self._services, self.namespace, profile_id, last)

    def export_profiles(self, folder: str | os.PathLike[str]) -> builtins.list[Path]:
        """Writes `<profile_id>.md` files, each with the notes of all its runs, newest first; returns their paths. A
        profile whose name no file can have gets what can be kept of it and a digest."""
        return profiles.export(self._services, self.namespace, folder)

    # --- chat, and memories told directly ---------------------------------------------------------------------

    def chat(self, session: str = "default") -> Chat:
        """A conversation: exchanges, and the memories taken out of them."""
        return chat.Chat(self._services, self.namespace, session)

    def remember(
        self,
        text: str,
        *,
        importance: float = 0.7,
        emotion: str = "neutral",
        tags: Iterable[str] = (),
        occurred_at: Instant | None = None,
        ttl: float | timedelta | None = None,
        key: str | None = None,
    ) -> MemoryItem:
        """Keeps a statement; no model is asked. One that is held already (equal but for case, spaces and final
        punctuation) is counted, and keeps its text, importance and first date.

        `importance`: 0 to 1. `occurred_at`: when it came to be true or was said, default now. `ttl`: seconds or a
        timedelta, counted from `occurred_at` or from now, whichever is later; past it the memory is no longer found.
        `key`: an idempotency key, unique in the namespace; with another text it is `BadInput`. A text that was
        forgotten may be told again by the host itself.
        """
        now = self._services.now()
        told = memories.statement(
            self._services,
            text,
            importance=importance,
            emotion=emotion,
            tags=tags,
            occurred_at=occurred_at,
            ttl=ttl,
            key=key,
            now=now,
        )
        return memories.remember(self._services, self.namespace, [told])[0]

    def remember_many(self, items: Iterable[str | Mapping[str, Any]]) -> builtins.list[MemoryItem]:
        """`remember` for many, all or nothing: texts, or dicts with the names of `remember`'s arguments."""
        told = memories.statements(self._services, items, self._services.now())
        return memories.remember(self._services, self.namespace, told)

    def supersede(
        self,
        id: int,
        text: str,
        *,
        importance: float = 0.7,
        emotion: str = "neutral",
        tags: Iterable[str] = (),
        occurred_at: Instant | None = None,
        ttl: float | timedelta | None = None,
        key: str | None = None,
    ) -> MemoryItem:
        """Corrects the memory `id`: it is closed, with when and by what, and `text` takes its place.

        Event time decides: a correction dated before what it corrects becomes part of its history, one dated
        between two versions ends the earlier and is ended by the later. Exactly one version is live afterwards.
        """
        now = self._services.now()
        told = memories.statement(
            self._services,
            text,
            importance=importance,
            emotion=emotion,
            tags=tags,
            occurred_at=occurred_at,
            ttl=ttl,
            key=key,
            now=now,
        )
        return memories.supersede(self._services, self.namespace, id, told, dated=occurred_at is not None)

    def restore(self, kind: str, id: int) -> Row:
        """Reopens a row that was superseded, merged or evicted, and gives it; what had taken its place stays too.
        `BadInput` where another live memory says the same. An atom that comes back into a full working set stays: the
        least important other one gives way."""
        return memories.restore(self._services, self.namespace, kind, id)

    def context(
        self, query: str, *, budget_tokens: int, session: str | None = None, touch: bool = True
    ) -> ContextBlock:
        """What is worth knowing for `query`, as a fenced block of at most `budget_tokens` tokens (by the store's
        counter): a text that also tells its `items`, `left_out` and, when it is empty, the `reason`.

        First what does not depend on the query (lessons of earlier runs; the log of `session`, if named), ordered by
        id and unchanged while nothing changed; then the relevant memories, messages and turns, these of `session`
        alone if named. Items are whole, but the best one is shortened rather than dropped. Its memories become
        stronger and the recall trail is kept, except with `touch=False` and in a read-only file.
        """
        return packing.context(
            self._services, self.namespace, query, budget_tokens=budget_tokens, session=session, touch=touch
        )

    def forget(
        self,
        *,
        kind: str = "memory",
        id: int | None = None,
        ids: Iterable[int] | None = None,
        tag: str | None = None,
        session: str | None = None,
        text: str | None = None,
        before: Instant | None = None,
        after: Instant | None = None,
        everything: bool = False,
        secure: bool = False,
    ) -> Forgotten:
        """Forgets for good what fulfils all conditions: its text, search rows, vectors and traces, and what rests
        only on it. What rests partly on it is stale until it is redone: neither searched nor handed out.

        `id`/`ids` are rows of `kind`; all other conditions reach every kind. `text`: contained, without regard to
        case. `after` ≤ occurred_at < `before`. `session` alone takes the session itself along. `everything=True`:
        this namespace, said alone. Without a condition, or with a blank one, `ScopeRequired`; no match gives zeros.

        A forgotten text does not come back through extraction, import or merge; only the host itself may tell it
        again (`remember`, `supersede`, or `store`, whose messages it records as they are).

        `secure=True` also empties stale texts, rewrites the file, and looks for the texts in its bytes. It raises
        `Busy` when another connection keeps old pages alive; the forgetting itself is done then.
        """
        wanted = forgetting.conditions(
            kind=kind,
            id=id,
            ids=ids,
            tag=tag,
            session=session,
            text=text,
            before=before,
            after=after,
            everything=everything,
        )
        return forgetting.forget(self._services, self.namespace, wanted, secure=secure)

    # --- work that waits --------------------------------------------------------------------------------------

    def work(self, limit: int | None = None, force: bool = False) -> int:
        """Does what is due in this namespace, `limit` pieces at most, and returns how many were done. What failed is
        tried again after 30 s, 2 min, 10 min, then every hour; `force` tries it at once. Then the upkeep of the file
        (full-text index, cells, statistics, log) in small steps that keep no turn waiting; `close` does a little of
        it."""
        return run_flow(self._services, self._work(limit, force))

    async def awork(self, limit: int | None = None, force: bool = False) -> int:
        """`work` for async callers."""
        return await arun_flow(self._services, self._work(limit, force))

    def _work(self, limit: int | None, force: bool) -> Flow[int]:
        most = None if limit is None else as_int(limit, "limit", low=0)
        done = 0
        for layer in _DRAINS:
            room = None if most is None else most - done
            done += yield from layer.drain(self._services, self.namespace, limit=room, force=force)
        self._services.embedding.settle(self._services, retry=True)
        recall.tend(self._services)
        upkeep.tend(self._services.file, upkeep.AT_WORK)
        upkeep.empty_log(self._services.file)
        return done

    # --- long conversations -----------------------------------------------------------------------------------

    def observe(
        self,
        session: str = "default",
        *,
        context_window: int,
        utility_window: int | None = None,
        config: ObservationConfig | None = None,
        background: BackgroundKind = "thread",
    ) -> ObservationalMemory:
        """A conversation that outgrows its context window: messages, and the dated log that takes their place.

        `context_window`: tokens of the main model. `utility_window`: tokens of the model that observes, where it is
        smaller. `config`: the budgets (`ObservationConfig()` by default); both may differ each time it is opened.
        `background`: who observes while the conversation runs: "thread", "async" (a task of the running loop), or
        None (the host calls `work()`). Nothing is asked and nothing is written before the first `add`.
        """
        return observations.ObservationalMemory(
            self._services,
            self.namespace,
            session,
            context_window=context_window,
            utility_window=utility_window,
            config=config,
            background=background,
        )

    # --- what other programs keep (the adapters' way in) ------------------------------------------------------

    def transcript(self, session: str = "default") -> Transcript:
        """A conversation as an agent framework keeps it: items that come back exactly as they were given."""
        return transcripts.Transcript(self._services, self.namespace, session)

    def files(self) -> Files:
        """The files of a model's memory folder, with the history of each."""
        return files.Files(self._services, self.namespace)

    def items(self) -> Items:
        """Values under keys, in a hierarchy of labels, with times to live."""
        return items.Items(self._services, self.namespace)

    # --- import -----------------------------------------------------------------------------------------------

    def import_conversation(
        self,
        source: str | os.PathLike[str] | Iterable[Any] | Mapping[str, Any],
        *,
        format: str | None = None,
        session: str | None = None,
        dry_run: bool = False,
        on_progress: Callable[[int, int], None] | None = None,
    ) -> Imported:
        """Brings in a conversation kept elsewhere: a path, or the list or dict that such a file holds.

        `format`: "messages" (JSON lines or a list of `role`/`speaker`, `content`/`text`, `timestamp`, `session`,
        `id`), "locomo", "chatgpt", "claude", "llm" (its log database); coming in as memories, "mem0" and "mcp-memory"
        (the JSON lines of the MCP server-memory); "istar-lite" (another memory file, or its export: it is merged,
        all namespaces of it); None recognises it. `session` names what the source leaves
        unnamed (default: the file's name) and stands before the names that it gives: `<session>/<own name>`.
        Times without an offset are local, numbers are epoch seconds, or milliseconds from 1e11 on. A message
        without a time takes that of the one before it, the first the present. `dry_run` counts and writes nothing.
        `on_progress(done, total)`: lines or items, then documents whose vectors are made.

        The same source again adds nothing. What cannot be read is in `errors` as (line or item, reason), the rest
        goes in, in transactions of 2,000 messages. Raises `BadInput` when there is no source or no known format.
        """
        if importing.is_ours(source, format):
            return self._import_ours(cast("str | os.PathLike[str]", source), dry_run, on_progress)
        done = importing.import_conversation(
            self._services,
            self.namespace,
            source,
            remember=self.remember_many,
            format=format,
            session=session,
            dry_run=dry_run,
            on_progress=on_progress,
        )
        if not dry_run:
            self._services.embedding.settle(self._services, on_progress=on_progress)
        return done

    def _import_ours(
        self, source: str | os.PathLike[str], dry_run: bool, on_progress: Callable[[int, int], None] | None
    ) -> Imported:
        """Another store of ours comes in whole, by the rules of merge."""
        if dry_run:
            new = Counter(each.kind for each in self.diff(source) if each.where == "there")
            return models.Imported(messages=new["message"], memories=new["memory"])
        merged = self.merge(source, on_progress)
        return models.Imported(
            messages=merged.added.get("message", 0),
            memories=merged.added.get("memory", 0),
            skipped=merged.met.get("message", 0) + merged.met.get("memory", 0),
            forgotten=merged.refused,
            sessions=merged.added.get("session", 0) + merged.met.get("session", 0),
        )

    # --- async twins ------------------------------------------------------------------------------------------

    astatus = in_thread(status)
    asnapshot = in_thread(snapshot)
    acheck = in_thread(check)
    aexport = in_thread(export)
    aload = in_thread(load)
    amerge = in_thread(merge)
    adiff = in_thread(diff)
    aseal = in_thread(seal)
    aremember = in_thread(remember)
    aremember_many = in_thread(remember_many)
    asupersede = in_thread(supersede)
    arestore = in_thread(restore)
    acontext = in_thread(context)
    aforget = in_thread(forget)
    aimport_conversation = in_thread(import_conversation)
    asearch = in_thread(search)
    areembed = in_thread(reembed)
    aprior_run_notes = in_thread(prior_run_notes)
    aexport_profiles = in_thread(export_profiles)
    aclose = in_thread(close)
