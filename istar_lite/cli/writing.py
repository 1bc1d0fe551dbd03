"""Commands that write memories: import, remember, forget, work."""

from __future__ import annotations

import sys
from pathlib import Path

import click

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
from istar_lite.models import EMOTIONS

IMPORT_FORMATS = ("messages", "locomo", "chatgpt", "claude", "llm", "mem0", "mcp-memory")


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
    archive, its folder or conversations.json), the log database of llm; or the statements that mem0 or the MCP
    server-memory kept. The same source again adds nothing."""
    with writing(file, namespace, create=True) as memory, progress("importing") as on_progress:
        done = memory.import_conversation(
            source, format=format_name, session=session, dry_run=dry_run, on_progress=on_progress
        )
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
        text = sys.stdin.read().strip()
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


COMMANDS: tuple[click.Command, ...] = (import_, remember, work)
