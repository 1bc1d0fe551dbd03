"""Puts the page together: template, style, program and data in one HTML file that asks nothing of anybody."""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Sequence
from html import escape
from importlib.resources import files
from typing import Any

from istar_lite.report.shelf import embed_json

GENERATOR = '<meta name="generator" content="istar-lite report">'
# In the order of their use.
SCRIPTS = ("dom", "data", "charts", "detail", "known", "timeline", "fading", "layers", "gone", "work", "main")


def assemble(data: dict[str, Any], title: str) -> str:
    """The page. Only the style and the program in it may act: a policy names both by their digests, so that stored
    text could not run even if it got out of its JSON."""
    style, program = _part("page.css"), "".join(_part(f"{name}.js") for name in SCRIPTS)
    program = f'"use strict";(() => {{\n{program}}})();'
    return _filled(
        _part("page.html"),
        {
            "policy": f"default-src 'none'; script-src {_digest(program)}; style-src {_digest(style)}; "
            "base-uri 'none'; form-action 'none'",
            "generator": GENERATOR,
            "title": escape(title),
            "style": style,
            "plain": _plain(data),
            "data": embed_json({**data, "title": title}),
            "program": program,
        },
    )


def _part(name: str) -> str:
    return files("istar_lite.report").joinpath("web", name).read_text(encoding="utf-8")


def _digest(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def _filled(template: str, values: dict[str, str]) -> str:
    """`{{name}}` replaced in one pass: a value that holds such marks is left as it is."""
    return re.sub(r"\{\{(\w+)\}\}", lambda match: values[match[1]], template)


def _plain(data: dict[str, Any]) -> str:
    """What a reader without script sees (some mail programs): the strongest rows of each kind, as text."""
    return "".join(
        f"<h2>{escape(kind)}</h2><ul>{_items(data['rows'], kind, ids[:20])}</ul>"
        for kind, ids in data["known"].items()
        if ids
    )


def _items(rows: dict[str, Any], kind: str, ids: Sequence[int]) -> str:
    return "".join(f"<li>{escape(rows[f'{kind}-{id}'].get('text', ''))}</li>" for id in ids)
