"""A plugin of Datasette: shares are drawn as bars, and what names a row links to it and to where it came from."""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING, Any

from datasette import hookimpl
from markupsafe import Markup, escape

from istar_lite.driver import add_missing_functions
from istar_lite.models import KINDS

if TYPE_CHECKING:
    from datasette.app import Datasette

TABLES = (*KINDS, "exchange")
# Columns that hold a share from 0 to 1.
SHARES = ("decay", "importance", "similarity")
# Column that holds an id → column of the same row that says of which table.
NAMED = {"id": "kind", "source_id": "source_kind", "row": "kind", "source_row": "source_kind"}
# Views whose ids are those of one table.
OF_TABLE = {"memory_strength": "memory", "next_evictions": "atom", "message_stage": "message"}


@hookimpl  # type: ignore[untyped-decorator]
def prepare_connection(conn: Any) -> None:
    """Some builds of SQLite lack exp(), which the view memory_strength needs."""
    add_missing_functions(conn)


@hookimpl  # type: ignore[untyped-decorator]
def render_cell(
    row: Any, value: Any, column: str, table: str | None, database: str | None, datasette: Datasette
) -> Markup | None:
    """None leaves the cell as it is."""
    if column in SHARES and isinstance(value, (int, float)) and math.isfinite(value) and 0 <= value <= 1:
        return Markup('<meter min="0" max="1" value="{0:.4f}"></meter> {0:.3f}').format(float(value))
    if database is None:
        return None
    if column == "ended_by" and isinstance(value, str) and (named := re.fullmatch(r"(\w+) (\d+)", value)):
        return _linked(datasette, database, named[1], int(named[2]), value)
    if column in NAMED and isinstance(value, int):
        kind = OF_TABLE.get(table or "") or _column(row, NAMED[column])
        return _linked(datasette, database, kind, value, f"{kind} {value}")
    return None


def _column(row: Any, name: str) -> Any:
    return row[name] if name in row.keys() else None  # noqa: SIM118  # a row of sqlite3 is no mapping


def _linked(datasette: Datasette, database: str, kind: Any, id: int, text: str) -> Markup | None:
    """The row, and beside it the question where it comes from. Kinds of a host's own have no table."""
    if kind not in TABLES:
        return None
    row, sources = datasette.urls.row(database, kind, str(id)), datasette.urls.query(database, "sources")
    return Markup('<a href="{}">{}</a> <a href="{}?kind={}&amp;id={}" title="where it comes from">⤷</a>').format(
        row, escape(text), sources, kind, id
    )
