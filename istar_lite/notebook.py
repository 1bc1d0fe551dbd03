"""How results show in a notebook: compact HTML tables, and aligned plain text in a terminal of IPython.

Text from memory is escaped for HTML, and shown without the control characters that would steer a terminal.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Mapping, Sequence
from datetime import datetime
from html import escape
from typing import Any, Protocol

LONGEST = 300  # characters of a cell

_CELL = 'style="text-align:left;vertical-align:top;padding:.2em .8em .2em 0"'
_BAR = (
    '<span style="display:inline-block;width:5em;height:.5em;background:rgba(128,128,128,.25);border-radius:1em">'
    '<span style="display:block;width:{width}%;height:100%;background:#0b7d76;border-radius:1em"></span></span> {value}'
)


class Share(float):
    """A number from 0 to 1 that is drawn as a bar."""


class Printer(Protocol):
    """What IPython hands to `_repr_pretty_`."""

    def text(self, text: str, /) -> None: ...


def table(rows: Sequence[Mapping[str, Any]], caption: str) -> str:
    """An HTML table of rows under a caption; columns without any value are left out."""
    columns = _columns(rows)
    heads = "".join(f"<th {_CELL}>{escape(name)}</th>" for name in columns)
    lines = "".join(
        f"<tr>{''.join(f'<td {_CELL}>{_html(row.get(name))}</td>' for name in columns)}</tr>" for row in rows
    )
    body = f"<thead><tr>{heads}</tr></thead><tbody>{lines}</tbody>" if rows else ""
    return f'<table><caption style="text-align:left">{escape(caption)}</caption>{body}</table>'


def pairs(values: Mapping[str, Any], caption: str) -> str:
    """An HTML table of names and values under a caption; names without a value are left out."""
    lines = "".join(
        f"<tr><th {_CELL}>{escape(name)}</th><td {_CELL}>{_html(value)}</td></tr>"
        for name, value in values.items()
        if _cell(value)
    )
    return f'<table><caption style="text-align:left">{escape(caption)}</caption><tbody>{lines}</tbody></table>'


def plain(rows: Sequence[Mapping[str, Any]], caption: str) -> str:
    """The same as aligned text, for a terminal."""
    columns = _columns(rows)
    cells = [columns, *([_cell(row.get(name)) for name in columns] for row in rows)] if rows else []
    widths = [max(len(line[at]) for line in cells) for at in range(len(columns))] if rows else []
    lines = ("  ".join(text.ljust(width) for text, width in zip(line, widths, strict=True)).rstrip() for line in cells)
    return "\n".join([caption, *lines])


def _columns(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    names = dict.fromkeys(name for row in rows for name in row)
    return [name for name in names if any(_cell(row.get(name)) for row in rows)]


def _html(value: Any) -> str:
    if isinstance(value, Share):
        return _BAR.format(width=round(100 * min(max(value, 0.0), 1.0)), value=f"{value:.2f}")
    return escape(_cell(value))


def _cell(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, datetime):
        return f"{value:%Y-%m-%d %H:%M}"
    if isinstance(value, float):
        return f"{value:.2f}" if isinstance(value, Share) else f"{value:g}"
    line = " ".join((", ".join(map(str, value)) if isinstance(value, tuple) else str(value)).split())
    shown = "".join("�" if unicodedata.category(letter) in ("Cc", "Cf") else letter for letter in line)
    return shown if len(shown) <= LONGEST else shown[: LONGEST - 1] + "…"
