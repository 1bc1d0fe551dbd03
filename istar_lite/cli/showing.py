"""Commands that show the whole thing at work."""

from __future__ import annotations

from pathlib import Path

import click

from istar_lite.cli.common import counted, memory_command, print_json, require

LOOK = (
    "select name, rows from about where rows > 0",
    "select condition, action, cited_turns from profile_rule",
    "select session, title, text from timeline where kind = 'episode'",
    "select place, priority, content from next_evictions where session = 'market-1'",
)


@click.command("demo")
@click.argument("file", type=click.Path(dir_okay=False, path_type=Path), default="demo.db")
@click.option("--turns", type=click.IntRange(min=1), default=120, show_default=True)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def demo(file: Path, turns: int, as_json: bool) -> int:
    """Play a simulated energy market into FILE (default demo.db): 120 turns become atoms, episodes and lessons, and a
    second run starts with what the first one learnt. Offline: a stand-in reads the prompts in place of a model."""
    from istar_lite.demo import run  # the market is of no use to any other command

    told = run(file, turns=turns)
    lines = told.pop("lines")
    if as_json:
        print_json(told)
        return 0
    for line in lines:
        click.echo(line)
    click.echo(f"\nAll of it is in {file}. Look inside with any SQLite tool, for example:\n")
    for query in LOOK:
        click.echo(f'  sqlite3 -box {file} "{query}"')
    click.echo(f'  istar-lite search {file} "what did the heat wave cost?"')
    return 0


@memory_command("report")
@click.option(
    "-o",
    "--output",
    type=click.Path(dir_okay=False, path_type=Path),
    default="memory.html",
    show_default=True,
    help="Where the page goes.",
)
@click.option("--overwrite", is_flag=True, help="Replace a file there that is no earlier page.")
def report(file: Path, namespace: str, as_json: bool, output: Path, overwrite: bool) -> int:
    """Write one HTML page that shows what the memory knows, where it came from, and what became of the rest. It needs
    no network and can be mailed."""
    from istar_lite.report import report as write_report  # the page's parts are of use to this command alone

    made = write_report(require(file), output, namespace=namespace, overwrite=overwrite)
    if as_json:
        print_json(made.to_dict())
    else:
        click.echo(f"{made.path}: {made.bytes:,} bytes, {made.shown:,} of {counted(made.rows, 'row')} shown whole")
    return 0


@click.command("view")
@click.argument("file", type=click.Path(dir_okay=False, path_type=Path))
@click.option("--port", type=click.IntRange(1, 65535), default=8001, show_default=True)
@click.option("--open", "and_open", is_flag=True, help="Open it in the browser.")
def view(file: Path, port: int, and_open: bool) -> int:
    """Serve FILE in Datasette to this machine's browser: every table and view described, searched, with questions to
    ask. All owners (namespaces) are seen. Ends with Ctrl-C."""
    try:
        from istar_lite.view import serve  # Datasette costs a second: only who looks pays
    except ModuleNotFoundError as error:
        raise click.ClickException(f"this needs {error.name}: pip install 'istar-lite[view]'") from error
    address = f"http://127.0.0.1:{port}/"
    click.echo(f"{file} is at {address}", err=True)
    if and_open:
        click.launch(address)
    serve(require(file), port)
    return 0


COMMANDS: tuple[click.Command, ...] = (demo, report, view)
