"""Commands about the file as a whole: check, snapshot, export, reembed, verify-forget, seal."""

from __future__ import annotations

from pathlib import Path

import click

from istar_lite.cli.common import (
    NOTHING,
    counted,
    embedder_option,
    memory_command,
    print_json,
    print_table,
    printable,
    progress,
    reading,
    require,
    writing,
)


@memory_command("snapshot")
@click.argument("target", type=click.Path(dir_okay=False, path_type=Path))
@click.option("--overwrite", is_flag=True, help="Replace an existing TARGET.")
def snapshot(file: Path, namespace: str, as_json: bool, target: Path, overwrite: bool) -> int:
    """A complete copy in one file TARGET, safe while others write."""
    with writing(file, namespace) as memory, progress("copying") as on_progress:
        made = memory.snapshot(target, overwrite=overwrite, on_progress=on_progress)
    size = made.stat().st_size
    if as_json:
        print_json({"path": str(made), "bytes": size})
    else:
        click.echo(f"{made}: {size:,} bytes")
    return 0


@memory_command("reembed")
@embedder_option
def reembed(file: Path, namespace: str, as_json: bool, embedder: str) -> int:
    """Make the vectors of the embedder for the whole file. Those of another one serve until all are there and go then;
    interrupted, it goes on where it stopped."""
    with writing(file, namespace) as memory, progress("embedding") as on_progress:
        made = memory.reembed(embedder, on_progress)
    if as_json:
        print_json({"documents": made})
    else:
        click.echo(f"{counted(made, 'document')} embedded")
    return 0


@memory_command("check")
@click.option("--fix", is_flag=True, help="Mend what can be derived from the rows, and tell what is left.")
@click.option("--key", envvar="ISTAR_KEY", help="Check the seal too, with this key (or in ISTAR_KEY).")
def check(file: Path, namespace: str, as_json: bool, fix: bool, key: str | None) -> int:
    """What is wrong with the file, one line each. Exit status 1 if anything is."""
    opened = writing(file, namespace) if fix else reading(file, namespace)
    with opened as memory, progress("checking") as on_progress:
        problems = memory.check(fix=fix, key=key, on_progress=on_progress)
    if as_json:
        print_json({"problems": problems, "whole": not problems})
    elif problems:
        for problem in problems:
            click.echo(problem)
    else:
        click.echo("the file is whole")
    return NOTHING if problems else 0


@memory_command("seal")
@click.option("--key", envvar="ISTAR_KEY", required=True, help="The key (or in ISTAR_KEY).")
def seal(file: Path, namespace: str, as_json: bool, key: str) -> int:
    """Write one keyed digest over all rows, before the file is shipped: `check --key` then tells in which tables
    anything was edited, removed or put back. It hides nothing, and who has the key can seal anew."""
    with writing(file, namespace) as memory:
        digest = memory.seal(key)
    if as_json:
        print_json({"digest": digest})
    else:
        click.echo(f"sealed: {digest}")
    return 0


@memory_command("export")
@click.argument("target", type=click.Path(dir_okay=False, path_type=Path))
@click.option("--overwrite", is_flag=True, help="Replace an existing TARGET.")
def export(file: Path, namespace: str, as_json: bool, target: Path, overwrite: bool) -> int:
    """Write every row as JSON lines to TARGET. Of a damaged file it saves what can be read, and exit status is 1."""
    # Not through Memory, which refuses to open a damaged file.
    from istar_lite.exporting import export as export_file

    with progress("exporting") as on_progress:
        done = export_file(require(file), target, overwrite=overwrite, on_progress=on_progress)
    if as_json:
        print_json(done.to_dict())
    else:
        click.echo(f"{done.path}: {counted(sum(done.rows.values()), 'row')} of {counted(len(done.rows), 'table')}")
        for loss in done.lost:
            click.echo(f"lost: {printable(loss)}", err=True)
    return NOTHING if done.lost else 0


@memory_command("merge")
@click.argument("other", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--dry-run", is_flag=True, help="Say in what the files differ, and write nothing.")
def merge(file: Path, namespace: str, as_json: bool, other: Path, dry_run: bool) -> int:
    """Bring in everything of the memory file (or export) OTHER, once, however often it is merged. OTHER is only read.
    All namespaces are merged. With --dry-run exit status is 1 if the files do not differ."""
    if dry_run:
        return _print_differences(file, namespace, other, as_json)
    with writing(file, namespace) as memory, progress("merging") as on_progress:
        done = memory.merge(other, on_progress)
        memory.work(limit=0)  # as after an import
    if as_json:
        print_json({**done.to_dict(), "total": done.total})
        return 0
    for table, count in done.added.items():
        click.echo(f"{table:>18}  {count:,} added, {done.met.get(table, 0):,} were here")
    for name, new_name in done.renamed:
        click.echo(f"run {printable(name)} came in as {printable(new_name)}")
    click.echo(f"{counted(done.total, 'row')} added, {done.refused} refused, {done.removed} removed as forgotten there")
    return 0


def _print_differences(file: Path, namespace: str, other: Path, as_json: bool) -> int:
    with reading(file, namespace) as memory:
        found = memory.diff(other)
    if as_json:
        print_json({"differences": [each.to_dict() for each in found]})
    elif found:
        columns = ("where", "kind", "namespace", "session", "fields", "text")
        print_table([{**each.to_dict(), "fields": ", ".join(each.fields)} for each in found], columns)
    else:
        click.echo("the files do not differ", err=True)
    return 0 if found else NOTHING


@memory_command("verify-forget")
@click.argument("text")
def verify_forget(file: Path, namespace: str, as_json: bool, text: str) -> int:
    """Prove that TEXT is forgotten: look for it in rows, index, vectors and bytes, then, in a copy, feed it again and
    look once more. Exit status 1 if anything is left or comes back."""
    from istar_lite.verifying import verify_forget as verify  # it drives the whole memory, numpy included

    found = verify(require(file), text, namespace=namespace)
    if as_json:
        print_json(found.to_dict())
        return 0 if found.ok else NOTHING
    for each in found.checks:
        mark = "ok " if each.ok else "NOT"
        click.echo(f"{mark}  {each.name}" + (f": {printable(each.detail)}" if each.detail else ""))
    click.echo("gone, and it stays away" if found.ok else "not gone (forget --secure rewrites the file too)")
    return 0 if found.ok else NOTHING


COMMANDS: tuple[click.Command, ...] = (check, snapshot, merge, export, reembed, verify_forget, seal)
