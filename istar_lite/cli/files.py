"""Commands about the file as a whole: snapshot, check, merge, export, reembed."""

from __future__ import annotations

from pathlib import Path

import click

from istar_lite.cli.common import memory_command, print_json, writing


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


COMMANDS: tuple[click.Command, ...] = (snapshot,)
