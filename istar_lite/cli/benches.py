"""`istar-lite bench …`: measurements that users can run themselves."""

from __future__ import annotations

import tempfile
import time
from pathlib import Path

import click

import istar_lite
from istar_lite.cli.common import NOTHING, load_llm, print_json, print_table, printable

EXISTING = click.Path(exists=True, dir_okay=False, path_type=Path)


@click.group("bench")
def bench() -> None:
    """Measure: how well recall finds, how well a model answers, how fast it all is."""


@bench.command("recall")
@click.argument("data", type=EXISTING)
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
@click.argument("data", type=EXISTING)
@click.option("--llm", "llm_spec", metavar="MODULE:NAME", required=True, help="The model: what as_llm accepts.")
@click.option("--model", help="The name of the model, for clients that want one.")
@click.option("--timeout", type=float, default=120.0, show_default=True, help="Seconds for one call.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def prompts(data: Path, llm_spec: str, model: str | None, timeout: float, as_json: bool) -> int:
    """How many of your model's answers to our prompts can be read. DATA: requests as JSON lines. Exit status 1 if some
    cannot."""
    from istar_lite.bench.prompts import run  # only who measures pays for its imports

    told = run(data, istar_lite.as_llm(load_llm(llm_spec), model), timeout=timeout)
    if as_json:
        print_json([one.to_dict() for one in told])
    else:
        columns = ("purpose", "asked", "readable", "seconds")
        print_table([one.to_dict() for one in told], columns)
        for one in told:
            for problem in one.problems:
                click.echo(f"{one.purpose}: {printable(problem)}", err=True)
    return 0 if all(one.readable == one.asked for one in told) else NOTHING


@bench.command("speed")
@click.option("--items", type=click.IntRange(10), default=2000, show_default=True, help="Adds of each kind.")
@click.option("--size", "sizes", type=click.IntRange(500), multiple=True, help="Documents in scope (1000 and 10000).")
@click.option("--runs", type=click.IntRange(1), default=5, show_default=True, help="Runs of which the median is taken.")
@click.option("--days", type=click.IntRange(0), default=0, help="Also the growth over so many days of 500 turns.")
@click.option("--cpu", is_flag=True, help="Count CPU time, not the wall's: for a machine that is busy.")
@click.option("--peers", is_flag=True, help="Also the other stores that are installed, on the same items and vectors.")
@click.option("--compare", type=EXISTING, help="An older --json run.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def speed(
    items: int,
    sizes: tuple[int, ...],
    runs: int,
    days: int,
    cpu: bool,
    peers: bool,
    compare: Path | None,
    as_json: bool,
) -> int:
    """Cold start, adds, searches at size, the other calls, bytes and memory, as a Markdown table."""
    from istar_lite.bench import ground, measures, speed  # only who measures pays for its imports
    from istar_lite.bench import peers as others

    with tempfile.TemporaryDirectory() as folder:
        clock = time.process_time if cpu else time.perf_counter
        setup = ground.Setup(Path(folder), items, sizes or (1_000, 10_000), runs, days, clock)
        measured = list(speed.run(setup))
        if peers:
            measured += others.run(setup)
    old = None if compare is None else measures.from_json(compare.read_text(encoding="utf-8"))
    if as_json:
        click.echo(measures.to_json(measured))
    else:
        for line in measures.markdown(measured, old):
            click.echo(line)
    return 0


COMMANDS: tuple[click.Command, ...] = (bench,)
