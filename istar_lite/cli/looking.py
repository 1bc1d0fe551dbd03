"""Commands that look: nothing in the file changes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from istar_lite.cli.common import (
    NOTHING,
    embedder_option,
    memory_command,
    print_json,
    print_table,
    printable,
    reading,
    require,
    writing,
)
from istar_lite.models import KINDS

if TYPE_CHECKING:
    from istar_lite import Results

# What `show` prints of each kind, the longest column last.
COLUMNS = {
    "namespace": ("name",),
    "session": ("name", "kind", "turns", "messages", "created_at"),
    "turn": ("id", "turn", "reward", "occurred_at", "text"),
    "atom": ("id", "turn", "type", "priority", "status", "content"),
    "episode": ("id", "name", "turn_start", "turn_end", "heat", "narrative"),
    "profile": ("id", "profile_id", "status", "occurred_at", "text"),
    "message": ("id", "position", "speaker", "role", "occurred_at", "content"),
    "exchange": ("id", "prompt", "response", "status", "occurred_at"),
    "memory": ("id", "importance", "emotion", "status", "occurred_at", "text"),
    "observation": ("id", "first_message", "last_message", "stage", "text"),
    "reflection": ("id", "generation", "level", "tokens_after", "text"),
    "file": ("id", "path", "change", "status", "occurred_at", "text"),
    "item": ("id", "prefix", "key", "updated_at", "value"),
    "recall": ("id", "via", "recalled_at", "query"),
    "task": ("id", "purpose", "state", "attempts", "last_error"),
}
PLURALS = {"memories" if kind == "memory" else kind + "s": kind for kind in COLUMNS}


@memory_command("search")
@click.argument("query")
@click.option("-k", type=int, default=10, show_default=True, help="At most so many hits.")
@click.option("--kind", "kinds", multiple=True, type=click.Choice(KINDS), help="Only these kinds.")
@click.option("--session", "sessions", multiple=True, help="Only these sessions.")
@click.option("--tag", "tags", multiple=True, help="Only what has all these tags.")
@click.option("--since", help="Not before this time (ISO-8601).")
@click.option("--until", help="Before this time.")
@click.option("--as-of", help="What held at this time, whatever became of it since.")
@click.option("--status", default="active", show_default=True, help="active, evicted, superseded, merged or any.")
@click.option("--min-score", type=float, help="Leave out what scores less.")
@click.option("--explain", is_flag=True, help="Say how each score came about.")
@embedder_option
def search(
    file: Path,
    namespace: str,
    as_json: bool,
    query: str,
    k: int,
    kinds: tuple[str, ...],
    sessions: tuple[str, ...],
    tags: tuple[str, ...],
    since: str | None,
    until: str | None,
    as_of: str | None,
    status: str,
    min_score: float | None,
    explain: bool,
    embedder: str,
) -> int:
    """What fits QUERY best: turns, messages, memories, atoms, episodes, any kind. Exit status 1 if nothing does."""
    with reading(file, namespace, embedder) as memory:
        results = memory.search(
            query,
            k=k,
            kinds=kinds or None,
            session=sessions or None,
            tags=tags or None,
            since=since,
            until=until,
            as_of=as_of,
            status=status,
            min_score=min_score,
            sources=as_json,
        )
    if as_json:
        print_json(results.to_dict())
    else:
        _print_hits(results, explain)
    return 0 if results else NOTHING


def _print_hits(results: Results, explain: bool) -> None:
    if not results:
        held = f" ({results.filtered} held back)" if results.filtered else ""
        click.echo(f"nothing found{held}", err=True)
        return
    rows = [
        {
            "score": f"{hit.score:.3f}",
            "what": f"{hit.kind} {hit.id}",
            "when": hit.occurred_at,
            "where": hit.session,
            "who": hit.speaker,
            "text": hit.text,
        }
        for hit in results
    ]
    columns = [name for name in rows[0] if any(row[name] for row in rows)]
    print_table(rows, columns)
    if explain:
        for hit in results:
            click.echo(f"\n{hit.kind} {hit.id}: score {hit.score:.3f}")
            for line in _explained(hit.explain):
                click.echo(f"  {line}")


def _explained(explain: Any) -> Iterator[str]:
    """What a hit's explanation says, a line each."""
    for name, signal in explain["signals"].items():
        yield f"{name}: {signal['z']:.2f} above the usual × {signal['weight']:g} = {signal['part']:.2f}"
    shares = [f"{name} {value:.2f}" for name, value in explain["shares"].items() if value]
    if shares:
        yield f"neighbours: {', '.join(shares)}"
    for name, factor in explain["factors"].items():
        yield f"{name} × {factor['factor']:.2f}: {factor['why']}"


@memory_command("context")
@click.argument("query")
@click.option("--budget", "budget_tokens", type=int, default=1000, show_default=True, help="Tokens at most.")
@click.option("--session", help="Also the log and the messages of this session.")
@click.option("--touch", is_flag=True, help="Reinforce what is shown and keep the trail, as a program would.")
@embedder_option
def context(
    file: Path,
    namespace: str,
    as_json: bool,
    query: str,
    budget_tokens: int,
    session: str | None,
    touch: bool,
    embedder: str,
) -> int:
    """The prompt block for QUERY: what is worth knowing, packed to a budget. Exit status 1 if nothing is."""
    opened = writing(file, namespace, embedder=embedder) if touch else reading(file, namespace, embedder)
    with opened as memory:
        block = memory.context(query, budget_tokens=budget_tokens, session=session, touch=touch)
    if as_json:
        print_json(block.to_dict())
    elif block:
        click.echo(str(block))
    else:
        click.echo(block.reason, err=True)
    return 0 if block else NOTHING


@memory_command("show")
@click.argument("kind", type=click.Choice([*PLURALS, *COLUMNS]), default="sessions", metavar="[KIND]")
@click.option("--limit", type=click.IntRange(min=1), default=20, show_default=True)
@click.option("--after", type=int, help="Only rows with ids above this one: the next page.")
@click.option("--id", "row_id", type=int, help="Only this row, with all its columns.")
@click.option("--watch", is_flag=True, help="Follow a running agent: the newest rows, drawn anew until Ctrl-C.")
@click.option("--every", type=click.FloatRange(min=0.1), default=1.0, show_default=True, help="Seconds, with --watch.")
def show(
    file: Path,
    namespace: str,
    as_json: bool,
    kind: str,
    limit: int,
    after: int | None,
    row_id: int | None,
    watch: bool,
    every: float,
) -> int:
    """Rows of one KIND: sessions (the default), turns, atoms, episodes, profiles, messages, exchanges, memories,
    observations, reflections, recalls, tasks, namespaces. With --watch: what comes in, of all kinds or of KIND."""
    kind = PLURALS.get(kind, kind)
    if watch:
        return _watch(file, namespace, kind, limit=limit, every=every)
    with reading(file, namespace) as memory:
        if row_id is not None:
            return _show_row(memory.get(kind, row_id), as_json)
        more, next_page = False, None
        if kind == "namespace":
            rows: list[dict[str, Any]] = [{"name": name} for name in memory.namespaces()]
        elif kind == "session":
            rows = memory.sessions()
        else:
            page = memory.list(kind, limit=limit, after=after)
            rows = [row.to_dict() for row in page]
            more, next_page = page.has_more, page.after
    if as_json:
        print_json({"kind": kind, "items": rows, "has_more": more, "after": next_page})
    elif rows:
        print_table(rows, COLUMNS[kind])
        if more:
            click.echo(f"… more: --after {next_page}")
    else:
        click.echo(f"no {next(plural for plural, one in PLURALS.items() if one == kind)} in {namespace!r}", err=True)
    return 0 if rows else NOTHING


def _watch(file: Path, namespace: str, kind: str, *, limit: int, every: float) -> int:
    try:
        from istar_lite.cli import watching  # rich is an extra
    except ModuleNotFoundError as error:
        raise click.ClickException(f"this needs {error.name}: pip install 'istar-lite[watch]'") from error
    whole = kind in ("session", "namespace")
    watching.watch(
        require(file),
        namespace,
        watching.STREAM if whole else kind,
        watching.STREAM_COLUMNS if whole else COLUMNS[kind],
        limit=limit,
        every=every,
    )
    return 0


def _show_row(row: Any, as_json: bool) -> int:
    if row is None:
        click.echo("no such row", err=True)
        return NOTHING
    values = row.to_dict()
    if as_json:
        print_json(values)
    else:
        for name, value in values.items():
            click.echo(f"{name:>18}  {'' if value is None else printable(str(value))}")
    return 0


@memory_command("stats")
def stats(file: Path, namespace: str, as_json: bool) -> int:
    """How many rows of each kind, how many sessions; what the file takes, table by table, and how it grows."""
    with reading(file, namespace) as memory:
        found = memory.stats()
    if as_json:
        print_json(found)
        return 0
    tables, growth = found.pop("tables"), found.pop("growth")
    if not found.get("sampled"):
        found.pop("sampled", None)
    _print_pairs({**found.pop("kinds"), **found})
    _print_growth(growth)
    if tables:
        click.echo()
        print_table(list(_largest(tables)), ("table", "bytes", "indices", "share"))
    return 0


def _print_growth(growth: dict[str, Any]) -> None:
    if growth["bytes_per_day"] is None:
        _print_pairs({"growth": growth["rests_on"]})
        return
    _print_pairs({name: growth[name] for name in ("bytes_per_day", "in_30_days", "in_365_days")})
    _print_pairs({"by": growth["rests_on"]})


def _largest(tables: dict[str, dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """The tables that take a hundredth of the file or more (and the largest in any case), then all others together."""
    shown = max(1, sum(one["share"] >= 0.01 for one in tables.values()))
    rows = [{"table": name, **one} for name, one in tables.items()]
    rest = rows[shown:]
    if rest:
        others = {name: sum(one[name] for one in rest) for name in ("bytes", "indices", "share")}
        rows[shown:] = [{"table": f"{len(rest)} others", **others}]
    for row in rows:
        yield {**row, "bytes": f"{row['bytes']:,}", "indices": f"{row['indices']:,}", "share": f"{row['share']:.1%}"}


@memory_command("status")
def status(file: Path, namespace: str, as_json: bool) -> int:
    """What waits for the model or for vectors, what failed last, what the model cost."""
    with reading(file, namespace) as memory:
        found = memory.status().to_dict()
    if as_json:
        print_json(found)
        return 0
    purposes = found.pop("by_purpose")
    _print_pairs(found)
    for purpose, states in purposes.items():
        click.echo(f"{purpose:>18}  {', '.join(f'{count} {state}' for state, count in states.items())}")
    return 0


def _print_pairs(values: dict[str, Any]) -> None:
    for name, value in values.items():
        if isinstance(value, dict):
            value = ", ".join(f"{key} {inner}" for key, inner in value.items())
        text = f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)
        click.echo(f"{name.replace('_', ' '):>18}  {'–' if value is None else printable(text)}")


COMMANDS: tuple[click.Command, ...] = (search, context, show, stats, status)
