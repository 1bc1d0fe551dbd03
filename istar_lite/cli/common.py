"""What the commands share: the arguments of all, opening the file, tables, JSON, progress."""

from __future__ import annotations

import contextlib
import importlib
import json
import shutil
import sys
import unicodedata
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

import istar_lite  # Memory is imported when a command opens one: --help and completion do without
from istar_lite import NotAMemoryFile

if TYPE_CHECKING:
    from istar_lite import Memory

NOTHING = 1  # exit status: nothing found, or problems found


def memory_command(name: str, **settings: Any) -> Callable[[Callable[..., int]], click.Command]:
    """A command whose first argument is the memory file, with --namespace and --json. It returns its exit status."""

    def wrap(function: Callable[..., int]) -> click.Command:
        with_json = click.option("--json", "as_json", is_flag=True, help="Print JSON.")(function)
        owned = click.option(
            "-n", "--namespace", default="default", show_default=True, help="Whose memory: exact, with case."
        )(with_json)
        filed = click.argument("file", type=click.Path(dir_okay=False, path_type=Path))(owned)
        make: Callable[[Callable[..., int]], click.Command] = click.command(name, **settings)
        return make(filed)

    return wrap


embedder_option = click.option(
    "--embedder",
    envvar="ISTAR_EMBEDDER",
    default="static",
    show_default=True,
    metavar="NAME",
    help='"static", "fastembed" or "fastembed:<model>" (or in ISTAR_EMBEDDER).',
)


def reading(file: Path, namespace: str, embedder: str = "static") -> Memory:
    """The memory opened to look only: nothing in the file changes."""
    return istar_lite.Memory(file, namespace, embedder=embedder, read_only=True)


def writing(file: Path, namespace: str, *, create: bool = False, **settings: Any) -> Memory:
    """The memory opened for writing; a file that is not there is an error unless `create` (a likely slip)."""
    if not create:
        require(file)
    return istar_lite.Memory(file, namespace, **settings)


def require(file: Path) -> Path:
    """The absolute path of a file that is there."""
    if not file.exists():
        raise NotAMemoryFile(f"{file}: there is no such file")
    return file.absolute()


def load_llm(spec: str) -> Any:
    """The object that `package.module:name` names, found from the current folder too; for --llm.

    What a module raises while it is imported belongs to its author and is shown as it is.
    """
    module, _, name = spec.partition(":")
    if not name:
        raise click.BadParameter(f"{spec!r} is not of the form package.module:name", param_hint="--llm")
    sys.path.insert(0, str(Path.cwd()))
    try:
        found: Any = importlib.import_module(module)
        for part in name.split("."):
            found = getattr(found, part)
    except (ModuleNotFoundError, AttributeError) as error:
        raise click.BadParameter(str(error), param_hint="--llm") from error
    return found


def print_json(value: Any) -> None:
    """One JSON document, readable and valid in any encoding."""
    encoding = (getattr(sys.stdout, "encoding", None) or "ascii").lower().replace("-", "")
    click.echo(json.dumps(value, ensure_ascii=not encoding.startswith("utf"), indent=2))


def print_table(rows: Sequence[Mapping[str, Any]], columns: Sequence[str]) -> None:
    """Rows under the heads of `columns`. In a terminal the last column is cut to its width."""
    cells = [[_cell(row.get(column)) for column in columns] for row in rows]
    widths = [max(_width(text) for text in (column, *texts)) for column, texts in _by_column(columns, cells)]
    terminal = sys.stdout is not None and sys.stdout.isatty()  # None: it was closed before Python started
    room = shutil.get_terminal_size().columns if terminal else None
    for line in (list(columns), ["-" * min(width, 40) for width in widths], *cells):
        click.echo(_line(line, widths, room).rstrip())


def _by_column(columns: Sequence[str], cells: list[list[str]]) -> Iterator[tuple[str, list[str]]]:
    for at, column in enumerate(columns):
        yield column, [row[at] for row in cells]


def _line(texts: list[str], widths: list[int], room: int | None) -> str:
    padded = [text + " " * (width - _width(text)) for text, width in zip(texts[:-1], widths, strict=False)]
    line = "  ".join([*padded, texts[-1]])
    if room is None or _width(line) <= room:
        return line
    kept, used = [], 0
    for character in line:
        used += _width(character)
        if used >= room:
            break
        kept.append(character)
    return "".join(kept) + "…"


def _cell(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, datetime):
        return value.strftime("%Y-%m-%d %H:%M")
    if isinstance(value, float):
        return f"{value:.3f}".rstrip("0").rstrip(".")
    return printable(str(value))


def printable(text: str) -> str:
    """`text` on one line without control characters: what was stored must not steer the terminal."""
    spaced = " ".join(text.split())
    return "".join("�" if unicodedata.category(character) in ("Cc", "Cf") else character for character in spaced)


def _width(text: str) -> int:
    """Columns of a terminal that `text` takes."""
    if text.isascii():
        return len(text)
    return sum(
        0 if unicodedata.combining(character) else 2 if unicodedata.east_asian_width(character) in "WF" else 1
        for character in text
    )


@contextlib.contextmanager
def progress(label: str) -> Iterator[Callable[[int, int], None] | None]:
    """An `on_progress` that draws a bar; None when nobody is watching (stderr is no terminal)."""
    if not sys.stderr.isatty():
        yield None
        return
    with click.progressbar(length=1, label=label, file=sys.stderr) as bar:

        def show(done: int, total: int) -> None:
            if done < bar.pos:  # another stretch of the work begins
                bar.pos, bar.finished = 0, False
            bar.length = max(total, 1)
            bar.update(done - bar.pos)

        yield show


def counted(number: int, thing: str, things: str | None = None) -> str:
    """`1 message`, `2 messages`."""
    return f"{number:,} {thing if number == 1 else things or thing + 's'}"
