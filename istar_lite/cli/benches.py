"""`istar-lite bench …`: measurements that users can run themselves."""

from __future__ import annotations

from pathlib import Path

import click

from istar_lite import as_llm
from istar_lite.cli.common import NOTHING, load_llm, print_json, print_table, printable


@click.group("bench")
def bench() -> None:
    """Measure: how well recall finds, and how well a model answers."""


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


@bench.command("prompts")
@click.argument("data", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--llm", "llm_spec", metavar="MODULE:NAME", required=True, help="The model: what as_llm accepts.")
@click.option("--model", help="The name of the model, for clients that want one.")
@click.option("--timeout", type=float, default=120.0, show_default=True, help="Seconds for one call.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def prompts(data: Path, llm_spec: str, model: str | None, timeout: float, as_json: bool) -> int:
    """How many of your model's answers to our prompts can be read. DATA: requests as JSON lines. Exit status 1 if some
    cannot."""
    from istar_lite.bench.prompts import run  # only who measures pays for its imports

    told = run(data, as_llm(load_llm(llm_spec), model), timeout=timeout)
    if as_json:
        print_json([one.to_dict() for one in told])
    else:
        columns = ("purpose", "asked", "readable", "seconds")
        print_table([one.to_dict() for one in told], columns)
        for one in told:
            for problem in one.problems:
                click.echo(f"{one.purpose}: {printable(problem)}", err=True)
    return 0 if all(one.readable == one.asked for one in told) else NOTHING


COMMANDS: tuple[click.Command, ...] = (bench,)
