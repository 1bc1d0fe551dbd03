"""`istar-lite report`: a memory file as one HTML page that shows what is known, where it came from, and what became
of the rest. It needs no network and no server, and can be mailed.

Outside the facade: it reads views and tables of the file on a reading connection and changes nothing.
"""

from __future__ import annotations

import os
from contextlib import closing
from pathlib import Path

from istar_lite.database import File, absolute_path, replacing
from istar_lite.errors import BadInput
from istar_lite.models import Record
from istar_lite.report.gather import gather
from istar_lite.report.page import GENERATOR, assemble
from istar_lite.values import as_name


class Reported(Record):
    """A page that was written: `rows` that can be found in the namespace, and how many of them it holds whole."""

    path: str
    bytes: int
    rows: int
    shown: int


def report(
    path: str | os.PathLike[str],
    out: str | os.PathLike[str],
    *,
    namespace: str = "default",
    overwrite: bool = False,
) -> Reported:
    """Writes the page of one namespace of the memory file at `path` to `out`. The file is only read.

    An earlier page at `out` is replaced; any other file there is kept and is `BadInput`, unless `overwrite`. Raises
    `NotAMemoryFile` and its like, `BadInput` for a namespace that is not there.
    """
    goal = absolute_path(out)
    owner = as_name(namespace, "namespace")
    with closing(File(path, read_only=True)) as file, file.reading() as connection:
        _require_free(goal, file.path, overwrite)
        if not connection.execute("select 1 from namespace where name = ?", (owner,)).fetchone():
            raise BadInput("namespace", f"{file.path} has no namespace {owner!r}")
        data = gather(connection, owner)
        page = assemble(data, file.path.name).encode()
    with replacing(goal) as draft:
        draft.write_bytes(page)
    shown = sum(row.get("kind") != "exchange" for row in data["rows"].values())
    return Reported(path=str(goal), bytes=len(page), rows=sum(row["rows"] for row in data["counts"]), shown=shown)


def _require_free(goal: Path, source: Path, overwrite: bool) -> None:
    """A slip of the hand (`-o agent.db`) must not cost a memory, whatever is said."""
    if goal.exists() and goal.samefile(source):
        raise BadInput("out", f"{goal} is the memory file itself")
    if not goal.exists() or overwrite:
        return
    with goal.open("rb") as handle:
        if GENERATOR.encode() not in handle.read(4096):
            raise BadInput("out", f"{goal} exists and is no page of ours; overwrite=True replaces it")
