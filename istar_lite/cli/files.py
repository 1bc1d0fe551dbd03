"""Commands about the file as a whole: snapshot, check, merge, export, reembed."""

from __future__ import annotations

from pathlib import Path

import click

from istar_lite.cli.common import counted, memory_command, print_json, progress, writing


@memory_command("snapshot")
@click.argument("target", type=click.Path(dir_okay=False, path_type=Path))
@click.option("--overwrite", is_flag=True, help="Replace an existing TARGET.")
def snapshot(file: Path, namespace: str, as_json: bool, target: Path, overwrite: bool) -> int:
    """A complete copy in one file TARGET, safe while others write."""
    with writing(file, namespace) as memory:
        made = memory.snapshot(target, overwrite=overwrite)
    size = made.stat().st_size
    if as_json:
        print_json({"path": str(made), "bytes": size})
    else:
        click.echo(f"{made}: {size:,} bytes")
    return 0


@memory_command("reembed")
@click.option("--embedder", metavar="NAME", help='"static" (the default), "fastembed" or "fastembed:<model>".')
def reembed(file: Path, namespace: str, as_json: bool, embedder: str | None) -> int:
    """Make the vectors of the whole file anew; the old ones serve until all new ones are there. Interrupted, it goes
    on where it stopped."""
    with writing(file, namespace) as memory, progress("embedding") as on_progress:
        made = memory.reembed(embedder, on_progress)
    if as_json:
        print_json({"documents": made})
    else:
        click.echo(f"{counted(made, 'document')} embedded")
    return 0


COMMANDS: tuple[click.Command, ...] = (snapshot, reembed)
