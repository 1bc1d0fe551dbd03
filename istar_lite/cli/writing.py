"""Commands that write memories: import, remember, forget, work."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from istar_lite import ScopeRequired
from istar_lite.cli.common import (
    NOTHING,
    counted,
    load_llm,
    memory_command,
    print_json,
    printable,
    progress,
    writing,
)
from istar_lite.models import EMOTIONS, KINDS

IMPORT_FORMATS = ("messages", "locomo", "chatgpt", "claude", "llm", "mem0", "mcp-memory", "istar-lite")


@memory_command("import")
@click.argument("source", type=click.Path(exists=True, path_type=Path))
@click.option("--format", "format_name", type=click.Choice(IMPORT_FORMATS), help="Default: recognised.")
@click.option("--session", help="Name for what the source leaves unnamed; stands before the names that it gives.")
@click.option("--dry-run", is_flag=True, help="Say what would come in, and write nothing.")
def import_(
    file: Path,
    namespace: str,
    as_json: bool,
    source: Path,
    format_name: str | None,
    session: str | None,
    dry_run: bool,
) -> int:
    """Bring in the conversations of SOURCE: messages as JSON lines, LoCoMo JSON, an export of ChatGPT or Claude (the
    archive, its folder or conversations.json), the log database of llm; the statements that mem0 or the MCP
    server-memory kept; or another memory file of ours. The same source again adds nothing."""
    with writing(file, namespace, create=True) as memory, progress("importing") as on_progress:
        done = memory.import_conversation(
            source, format=format_name, session=session, dry_run=dry_run, on_progress=on_progress
        )
        if not dry_run:
            memory.work(limit=0)  # nothing for a model, only the upkeep: the cells of what has become large
    if as_json:
        print_json({**done.to_dict(), "dry_run": dry_run})
        return NOTHING if done.errors else 0
    for number, reason in done.errors:
        click.echo(f"{source}:{number}: {reason}", err=True)
    verb = "would import" if dry_run else "imported"
    known = f"; {done.skipped:,} were known" if done.skipped else ""
    bad = f"; {counted(len(done.errors), 'problem')}" if done.errors else ""
    told = f"{counted(done.memories, 'memory', 'memories')} and " if done.memories else ""
    gone = f"; {done.forgotten:,} were forgotten here and stay out" if done.forgotten else ""
    said = f"{told}{counted(done.messages, 'message')} in {counted(done.sessions, 'session')}"
    click.echo(f"{verb} {said}{known}{gone}{bad}")
    return NOTHING if done.errors else 0


@memory_command("remember")
@click.argument("text")
@click.option("--importance", type=float, default=0.7, show_default=True, help="0 to 1.")
@click.option("--emotion", type=click.Choice(EMOTIONS), default="neutral", show_default=True)
@click.option("--tag", "tags", multiple=True, help="May be given several times.")
@click.option("--occurred-at", help="When it came to be true: ISO-8601; default now.")
@click.option("--ttl", type=float, help="Seconds after which it is no longer found.")
@click.option("--key", help="An idempotency key: the same key twice is one memory.")
def remember(
    file: Path,
    namespace: str,
    as_json: bool,
    text: str,
    importance: float,
    emotion: str,
    tags: tuple[str, ...],
    occurred_at: str | None,
    ttl: float | None,
    key: str | None,
) -> int:
    """Keep the statement TEXT ("-" reads it from stdin). No model is asked."""
    if text == "-":
        text = "" if sys.stdin is None else sys.stdin.read().removeprefix("\ufeff").strip()
    with writing(file, namespace, create=True) as memory:
        kept = memory.remember(
            text, importance=importance, emotion=emotion, tags=tags, occurred_at=occurred_at, ttl=ttl, key=key
        )
    if as_json:
        print_json(kept.to_dict())
    else:
        again = f", told {kept.mention_count} times" if kept.mention_count > 1 else ""
        click.echo(f"memory {kept.id}{again}: {printable(kept.text)}")
    return 0


@memory_command("forget")
@click.option("--kind", type=click.Choice(KINDS), default="memory", show_default=True, help="What --id means.")
@click.option("--id", "ids", type=int, multiple=True, help="This row; may be given several times.")
@click.option("--tag", help="Everything with this tag.")
@click.option("--session", help="Everything in this session.")
@click.option("--text", help="Everything that contains this, without regard to case.")
@click.option("--before", help="What occurred before this time (ISO-8601).")
@click.option("--after", help="What occurred at this time or later.")
@click.option("--everything", is_flag=True, help="All of this namespace; said alone.")
@click.option("--secure", is_flag=True, help="Leave no trace in the bytes of the file either.")
@click.option("--yes", is_flag=True, help="Do not ask before --everything (asked on a terminal only).")
def forget(
    file: Path,
    namespace: str,
    as_json: bool,
    kind: str,
    ids: tuple[int, ...],
    tag: str | None,
    session: str | None,
    text: str | None,
    before: str | None,
    after: str | None,
    everything: bool,
    secure: bool,
    yes: bool,
) -> int:
    """Forget for good what fulfils all conditions; there is no undo. Exit status 1 if nothing does."""
    if not (ids or tag or session or text or before or after or everything):
        raise ScopeRequired("say what to forget: --id, --tag, --session, --text, --before, --after or --everything")
    if everything and not yes and sys.stdin is not None and sys.stdin.isatty():
        click.confirm(f"Forget everything of {namespace!r}?", abort=True)
    with writing(file, namespace) as memory:
        done = memory.forget(
            kind=kind,
            ids=ids or None,
            tag=tag,
            session=session,
            text=text,
            before=before,
            after=after,
            everything=everything,
            secure=secure,
        )
    if as_json:
        print_json({**done.to_dict(), "total": done.total})
    else:
        kinds = ", ".join(f"{count} {kind}" for kind, count in done.counts.items() if count)
        stale = f"; {done.stale} that rest partly on it wait to be redone" if done.stale else ""
        click.echo(f"forgot {counted(done.total, 'row')}{f' ({kinds})' if kinds else ''}{stale}")
    return 0 if done.total else NOTHING


@memory_command("work")
@click.option("--llm", "llm_spec", metavar="MODULE:NAME", help="The model: a function, a client, what as_llm accepts.")
@click.option("--model", help="The name of the model, for clients that want one.")
@click.option("--limit", type=click.IntRange(min=0), help="At most so many pieces of work.")
@click.option("--force", is_flag=True, help="Try again at once what failed.")
def work(
    file: Path,
    namespace: str,
    as_json: bool,
    llm_spec: str | None,
    model: str | None,
    limit: int | None,
    force: bool,
) -> int:
    """Do what is due: ask the model for what waits for it, make missing vectors. Exit status 1 if something failed."""
    llm = None if llm_spec is None else load_llm(llm_spec)
    with writing(file, namespace, llm=llm, model=model) as memory:
        done = memory.work(limit=limit, force=force)
        left = memory.status()
    if as_json:
        print_json({"done": done, "due": left.due, "failed": left.failed, "last_error": left.last_error})
    else:
        click.echo(f"{counted(done, 'piece')} of work done; {left.due} due, {left.failed} failed")
        if left.last_error:
            click.echo(printable(left.last_error), err=True)
    return NOTHING if left.failed else 0


COMMANDS: tuple[click.Command, ...] = (import_, remember, forget, work)
