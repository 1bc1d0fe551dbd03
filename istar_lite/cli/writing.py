"""Commands that write memories: import, remember, forget, work."""

from __future__ import annotations

from pathlib import Path

import click

from istar_lite.cli.common import NOTHING, counted, memory_command, print_json, progress, writing

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


COMMANDS: tuple[click.Command, ...] = (import_,)
