"""L3: what a run taught for the next one, written by the model at its end: notes, and rules that plain SQL can read.

A profile gathers the lessons of many runs under a name of the host's choice. A second retrospective of the same run for
the same profile supersedes the first; history stays.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from istar_lite import places, prompts, runs, tasks
from istar_lite.answers import RetroBlock, read_retro
from istar_lite.clock import from_text
from istar_lite.errors import BadInput
from istar_lite.extractors import RewardOutcome
from istar_lite.llm import Flow
from istar_lite.models import Notes, Profile, RetroClassifier, RetroPromptContext, Rule
from istar_lite.runs import Run
from istar_lite.values import as_int, as_name

if TYPE_CHECKING:
    from istar_lite.database import sqlite3
    from istar_lite.models import Atom, Episode
    from istar_lite.services import Services

PURPOSE = "retro"
ATOMS_SHOWN = 10


@dataclass(frozen=True, slots=True)
class _Past:
    """A run as the model is told of it."""

    session: int
    profile_id: str
    rows: list[sqlite3.Row]
    episodes: list[Episode]  # all, for the sequence of phases
    current: list[Episode]
    atoms: list[Atom]

    @property
    def detail(self) -> object:
        return {"profile_id": self.profile_id}


def summarise(services: Services, run: Run, classifier: RetroClassifier, profile_id: str) -> Flow[Profile | None]:
    """Has the model look back on the run, whether or not it did before. None, without a call, when there are neither
    atoms nor episodes; None too when it could not be done now and stays due."""
    name = as_name(profile_id, "profile_id")
    with services.file.reading() as connection:
        past = _past(connection, run, name)
    if past is None or services.file.read_only:
        return None
    first, last = int(past.rows[0]["turn"]), int(past.rows[-1]["turn"])
    if services.llm is None:
        runs.note_due(services, PURPOSE, past.session, first, last, detail=past.detail)
        return None
    with services.file.write() as tx:
        task = runs.take(services, tx, PURPOSE, past.session, first, last, detail=past.detail)
    if task is None:
        return None
    return (yield from tasks.attempt(services, task, _write(services, run, task, past, classifier)))


def _past(connection: sqlite3.Connection, run: Run, profile_id: str) -> _Past | None:
    session = runs.find(connection, run)
    if session is None:
        return None
    rows = runs.turn_rows(connection, session)
    episodes = runs.episodes(connection, session)
    atoms = runs.atoms(connection, session, weightiest=ATOMS_SHOWN)
    if not rows or not (episodes or atoms):
        return None
    current = episodes[-runs.cadence_of(connection, session, "max_episodes") :]
    return _Past(session, profile_id, rows, episodes, current, atoms)


def _write(
    services: Services, run: Run, task: tasks.Task, past: _Past, classifier: RetroClassifier
) -> Flow[Profile | None]:
    context = tasks.call_host(_context, classifier, past)
    prompt = prompts.retro(
        outcome_summary=context.outcome_summary,
        outcome_metric_name=context.outcome_metric_name,
        domain_preamble=context.domain_preamble,
        phase_sequence=[episode.name for episode in past.episodes],
        episodes=[(told.name, told.turn_start, told.turn_end, told.narrative) for told in past.current],
        atoms=[atom.content for atom in past.atoms],
    )
    text = yield from tasks.ask(services, task, tasks.as_ask(prompt))
    block = read_retro(text, example_text=prompt.example_texts[0], prompt_text=prompt.text)
    now = services.now()
    with services.file.write() as tx:
        if runs.turn_rows(tx, past.session, until=int(past.rows[-1]["turn"])) != past.rows:
            raise tasks.ClaimLost("turns of the run were changed or deleted meanwhile")
        identity = _insert(services, tx, past, block, now)
        tasks.finish(tx, task, now)
        return as_profile(tx, tx.execute(f"{_SELECT} where profile.id = ?", (identity,)).fetchone())


def _context(classifier: RetroClassifier, past: _Past) -> RetroPromptContext:
    context = classifier.build_context(runs.as_turns(past.rows), list(past.episodes))
    if not isinstance(context, RetroPromptContext):
        raise BadInput("retro_classifier", f"gave {type(context).__name__}, not a RetroPromptContext")
    return context


def _insert(services: Services, tx: sqlite3.Connection, past: _Past, block: RetroBlock, now: str) -> int:
    namespace = runs.owner(tx, past.session)
    last = past.rows[-1]
    cursor = tx.execute(
        "insert into profile (namespace, profile_id, session, text, turn_end, occurred_at, recorded_at)"
        " values (?, ?, ?, ?, ?, ?, ?)",
        (
            namespace,
            past.profile_id,
            past.session,
            services.stored_text(block.text, "text"),
            last["turn"],
            last["occurred_at"],
            now,
        ),
    )
    identity = int(cursor.lastrowid or 0)
    for rule in block.rules:
        condition, action = (services.stored_text(text, "rule", blank=True) for text in (rule.condition, rule.action))
        tx.execute(
            "insert into profile_rule (profile, condition, action, cited_turns) values (?, ?, ?, ?)",
            (identity, condition, action, json.dumps(rule.cited_turns)),
        )
    tx.execute(
        "update profile set status = 'superseded', ended_at = ?, ended_by = ? where namespace = ? and profile_id = ?"
        " and session = ? and id <> ? and status = 'active'",
        (last["occurred_at"], f"profile {identity}", namespace, past.profile_id, past.session, identity),
    )
    return identity


# --- reading ----------------------------------------------------------------------------------------------------

_SELECT = "select profile.*, session.name as run from profile left join session on session.id = profile.session"
_LIVE = "profile.status = 'active' and profile.stale = 0"


def as_profile(connection: sqlite3.Connection, row: sqlite3.Row) -> Profile:
    """A row of `profile` with its rules."""
    rules = connection.execute("select * from profile_rule where profile = ? order by id", (row["id"],))
    return Profile(
        id=row["id"],
        profile_id=row["profile_id"],
        run=row["run"] or "",
        text=row["text"],
        rules=tuple(
            Rule(condition=rule["condition"], action=rule["action"], cited_turns=tuple(json.loads(rule["cited_turns"])))
            for rule in rules
        ),
        created_at=from_text(row["recorded_at"]),
    )


def prior_notes(services: Services, namespace: str, profile_id: str, last: int = 1) -> Notes | None:
    """The newest notes of a profile, or the `last` ones with the newest at the end; None when it has none.

    Newest is what was written last, not what happened last: simulated runs may all start on the same day.
    """
    rows = (
        services.file.reader()
        .execute(
            f"{_SELECT} where profile.namespace = (select id from namespace where name = ?) and profile.profile_id = ?"
            f" and {_LIVE} order by profile.id desc limit ?",
            (namespace, as_name(profile_id, "profile_id"), as_int(last, "last", low=0)),
        )
        .fetchall()
    )
    return Notes("\n\n".join(str(row["text"]) for row in reversed(rows))) if rows else None


def export(services: Services, namespace: str, folder: str | os.PathLike[str]) -> list[Path]:
    """Writes one `<profile_id>.md` for each profile with live notes, the newest notes first, and returns the paths.

    A name that cannot be a file's, or differs from another one only in case or form, gets what can be kept of it and
    a digest. Files are replaced whole; others in the folder are left alone.
    """
    connection = services.file.reader()
    target = _folder(folder)
    rows = connection.execute(
        f"{_SELECT} where profile.namespace = (select id from namespace where name = ?) and {_LIVE}"
        " order by profile.id desc",
        (namespace,),
    ).fetchall()
    by_name: dict[str, list[Profile]] = {}
    for row in rows:
        by_name.setdefault(row["profile_id"], []).append(as_profile(connection, row))
    names = file_names(sorted(by_name, key=lambda name: by_name[name][-1].id))
    return [_write_file(target / names[name], _markdown(name, by_name[name])) for name in names]


def _folder(folder: object) -> Path:
    if not isinstance(folder, (str, os.PathLike)):
        raise BadInput("folder", f"a path is wanted, not {type(folder).__name__}")
    path = Path(folder)
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise BadInput("folder", f"{path} is no folder and cannot become one ({error.strerror})") from error
    return path


# Windows cannot have these as names of files, whatever the ending.
_RESERVED = re.compile(r"(con|prn|aux|nul|conin\$|conout\$|com[0-9¹²³]|lpt[0-9¹²³])(\..*)?", re.IGNORECASE)
_SAFE = re.compile(r"[\w+=@(),-]([\w+=@(), .-]*[\w+=@(),-])?")
_LONGEST_NAME = 120  # bytes; some file systems hold 143, and the digest and the ending come on top


def file_names(profile_ids: Sequence[str]) -> dict[str, str]:
    """A file name for each profile, all different also where file systems ignore case or the form of accents. The
    first of several that would collide keeps its plain name."""
    taken: set[str] = set()
    names = {}
    for profile_id in profile_ids:
        name = profile_id
        if not _is_safe(profile_id) or _folded(name) in taken:
            digest = hashlib.sha256(profile_id.encode()).hexdigest()
            kept = re.sub(r"[^\w+=@-]+", "_", profile_id).strip("_.")
            kept = kept.encode()[: _LONGEST_NAME - 13].decode("utf-8", "ignore")
            name = f"{kept}-{digest[:12]}" if kept else digest[:12]
        taken.add(_folded(name))
        names[profile_id] = f"{name}.md"
    return names


def _is_safe(name: str) -> bool:
    return bool(
        _SAFE.fullmatch(name) and not _RESERVED.fullmatch(name) and len(name.encode()) <= _LONGEST_NAME
    ) and name == unicodedata.normalize("NFC", name)


def _folded(name: str) -> str:
    return unicodedata.normalize("NFC", unicodedata.normalize("NFKD", name).casefold())


def _markdown(profile_id: str, profiles: Sequence[Profile]) -> str:
    parts = [f"# {' '.join(profile_id.split())}"]
    for profile in profiles:
        parts.append(f"## {' '.join(profile.run.split())} · {profile.created_at:%Y-%m-%d %H:%M} UTC\n\n{profile.text}")
    return "\n\n".join(parts) + "\n"


def _write_file(path: Path, text: str) -> Path:
    draft = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        draft.write_text(text, encoding="utf-8", newline="\n")
        os.replace(draft, path)
    finally:
        draft.unlink(missing_ok=True)
    return path


# --- work that nobody's turn drives -------------------------------------------------------------------------------


def drain(services: Services, namespace: str, *, limit: int | None = None, force: bool = False) -> Flow[int]:
    """Writes the retrospectives that are due or stale; how many were done."""
    done = 0
    if not services.file.read_only:
        _drop_unfounded(services, namespace)
    for run, profile_id in _waiting(services, namespace, force):
        classifier = runs.choose(services, run, "retro", RewardOutcome())
        if classifier is not None and (limit is None or done < limit):
            done += (yield from summarise(services, run, classifier, profile_id)) is not None
    return done


def _drop_unfounded(services: Services, namespace: str) -> None:
    """Stale retrospectives of runs that have no turn left rest on nothing, and cannot be told anew: they go."""
    unfounded = (
        "namespace = (select id from namespace where name = ?) and stale = 1 and session is not null"
        " and not exists (select 1 from turn where turn.session = profile.session)"
    )
    connection = services.file.reader()
    if connection.execute(f"select 1 from profile where {unfounded} limit 1", (namespace,)).fetchone() is None:
        return
    with services.file.write() as tx:
        tx.execute(f"delete from profile where {unfounded}", (namespace,))


def _waiting(services: Services, namespace: str, force: bool) -> list[tuple[Run, str]]:
    connection = services.file.reader()
    owner = places.find_namespace(connection, namespace)
    due: dict[tuple[int, str], bool] = {}
    for row in connection.execute(
        "select session, profile_id from profile where namespace = ? and session is not null and status = 'active'"
        " and stale = 1 order by id",
        (owner,),
    ):
        due[row["session"], row["profile_id"]] = True
    for row in tasks.open_rows(connection, PURPOSE, owner or 0):
        detail: dict[str, Any] = json.loads(row["detail"] or "{}")
        if row["session"] is not None and "profile_id" in detail:
            due[row["session"], detail["profile_id"]] = tasks.may_try(row, now=services.now(), force=force)
    return [
        (Run(namespace, _name(connection, session)), profile_id) for (session, profile_id), now in due.items() if now
    ]


def _name(connection: sqlite3.Connection, session: int) -> str:
    return str(connection.execute("select name from session where id = ?", (session,)).fetchone()[0])
