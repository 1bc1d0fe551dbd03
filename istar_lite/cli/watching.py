"""`istar-lite show --watch`: a running agent's memory, followed in the terminal. Needs the extra `watch` (rich).

The file is read on a connection of its own while the agent writes; nothing in it changes.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from istar_lite import tasks
from istar_lite.browse import owned
from istar_lite.cli.common import printable
from istar_lite.database import File

if TYPE_CHECKING:
    from istar_lite.database import sqlite3

# What came in, whatever it is: the default of `show` is "sessions", which hardly change while one watches.
STREAM = "document"
STREAM_COLUMNS = ("occurred_at", "kind", "title", "text")
STYLES = {"memory": "magenta", "atom": "yellow", "episode": "cyan", "profile": "blue", "observation": "green"}


def watch(
    path: Path,
    namespace: str,
    kind: str,
    columns: Sequence[str],
    *,
    limit: int,
    every: float,
    console: Console | None = None,
    wait: Callable[[float], object] = time.sleep,
) -> None:
    """Draws the newest `limit` rows of `kind` every so many seconds until it is interrupted; what came in since the
    last look stands out."""
    with (
        closing(File(path, read_only=True)) as file,
        Live(console=console or Console(), auto_refresh=False, screen=False) as live,
    ):
        try:
            for picture in _pictures(file, namespace, kind, columns, limit):
                live.update(picture, refresh=True)
                wait(every)
        except KeyboardInterrupt:
            return


def _pictures(file: File, namespace: str, kind: str, columns: Sequence[str], limit: int) -> Iterator[RenderableType]:
    seen: int | None = None
    while True:
        with file.reading() as connection:
            rows = newest(connection, namespace, kind, limit)
            picture = Group(_head(connection, namespace, file.path.name), table(rows, columns, new_after=seen))
        yield picture
        seen = max((row["id"] for row in rows), default=seen or 0)


def newest(connection: sqlite3.Connection, namespace: str, kind: str, limit: int) -> list[dict[str, Any]]:
    """The newest rows of a kind that belong to a namespace, the newest last."""
    rows = connection.execute(
        f"select * from {kind} where {owned(kind)} order by id desc limit :limit",
        {"namespace": namespace, "limit": limit},
    )
    return [dict(row) for row in rows][::-1]


def table(rows: Sequence[Mapping[str, Any]], columns: Sequence[str], new_after: int | None) -> Table:
    """Rows as a table, those with ids above `new_after` in bold. Stored text is shown and never obeyed: neither as
    control characters nor as markup of rich."""
    made = Table(box=None, pad_edge=False, expand=True)
    for name in columns:
        made.add_column(
            name, no_wrap=name != columns[-1], overflow="ellipsis", ratio=1 if name == columns[-1] else None
        )
    for row in rows:
        style = STYLES.get(str(row.get("kind", "")), "")
        is_new = new_after is not None and row["id"] > new_after
        made.add_row(*(Text(_cell(row.get(name)), style=f"bold {style}" if is_new else style) for name in columns))
    return made


def _head(connection: sqlite3.Connection, namespace: str, name: str) -> Text:
    """One line: what is in the namespace, what waits, what it cost."""
    kinds = connection.execute(
        "select kind, count(*) from document where namespace = (select id from namespace where name = ?)"
        " and status = 'active' group by kind order by kind",
        (namespace,),
    ).fetchall()
    work = tasks.summary(connection, namespace)
    held = " · ".join(f"{count:,} {kind}" for kind, count in kinds) or "nothing yet"
    waits = f"{work['due']} due, {work['failed']} failed · {work['calls']:,} calls, {work['tokens']:,} tokens"
    return Text.assemble(
        (printable(name), "bold"), f"  {printable(held)}  ", (waits, "red" if work["failed"] else "dim")
    )


def _cell(value: Any) -> str:
    if value is None:
        return ""
    text = printable(str(value))
    try:
        return f"{datetime.fromisoformat(text).astimezone():%m-%d %H:%M:%S}" if text.endswith("Z") else text
    except ValueError:
        return text
