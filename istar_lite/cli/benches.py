"""`istar-lite bench …`: measurements that users can run themselves."""

from __future__ import annotations

from pathlib import Path

import click

from istar_lite.cli.common import print_json


@click.group("bench")
def bench() -> None:
    """Measure: how well recall finds what answers a question."""


@bench.command("recall")
@click.argument("data", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--embedder", "embedders", multiple=True, help='"static", "fastembed:<model>", or "none" for words only.')
@click.option("--pooled", is_flag=True, help="Also all conversations in one file.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def recall(data: Path, embedders: tuple[str, ...], pooled: bool, as_json: bool) -> int:
    """Recall over conversations with questions (LoCoMo JSON), beside plain full text search."""
    from istar_lite.bench.recall import compare, lines  # only who measures pays for its imports

    chosen = {f"istar-lite, {name}": None if name == "none" else name for name in embedders} or None
    scores = compare(data, embedders=chosen, pooled=pooled)
    if as_json:
        print_json([score.to_dict() for score in scores])
    else:
        for line in lines(scores):
            click.echo(line)
    return 0


COMMANDS: tuple[click.Command, ...] = (bench,)
