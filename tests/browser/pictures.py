"""Makes the pictures of the page that are kept in examples/, from the file of examples/look_inside.py.

python tests/browser/pictures.py
"""

from __future__ import annotations

import importlib.util
import tempfile
from datetime import UTC, datetime
from pathlib import Path

from chromium import Page, browsing

EXAMPLES = Path(__file__).parents[2] / "examples"


def made(folder: Path) -> Path:
    """The page of the example."""
    spec = importlib.util.spec_from_file_location("look_inside", EXAMPLES / "look_inside.py")
    assert spec and spec.loader
    example = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(example)
    example.fill(folder / "agent.db", datetime.now(UTC))
    example.report(folder / "agent.db", folder / "memory.html")
    return folder / "memory.html"


def keep(page: Page, name: str) -> None:
    """The screen, as it is."""
    page.picture(EXAMPLES / f"{name}.png")


def at(page: Page, section: str) -> None:
    """Brings a section to the top."""
    page.js(f"document.getElementById('{section}').scrollIntoView({{ behavior: 'instant' }})")
    page.js("new Promise((done) => setTimeout(done, 300))")


def main() -> None:
    """All pictures."""
    with tempfile.TemporaryDirectory() as folder, browsing(Path(folder) / "profile") as page:
        path = made(Path(folder))
        page.show(width=1200, height=880)
        page.open(path)
        page.js("new Promise((done) => setTimeout(done, 300))")
        keep(page, "page-knows")
        at(page, "timeline")
        keep(page, "page-timeline")
        page.open(path, "#memory-12")
        page.js("new Promise((done) => setTimeout(done, 300))")
        keep(page, "page-sources")
        page.show(width=1200, height=880, dark=True)
        page.open(path)
        at(page, "fading")
        keep(page, "page-dark")
        page.show(width=390, height=780)
        page.open(path)
        page.js("new Promise((done) => setTimeout(done, 300))")
        keep(page, "page-phone")


if __name__ == "__main__":
    main()
