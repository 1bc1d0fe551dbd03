"""Modules that are imported when something of them is first asked for: whoever opens a file and searches pays for that
alone (asyncio costs 50 ms, all layers 60, a search's own part 30).

    if TYPE_CHECKING:                       # checkers and editors see an ordinary import
        from istar_lite import forgetting
    else:
        forgetting = Later("istar_lite.forgetting")

Used where it counts, and nowhere else: by the facade for its layers, and for asyncio. `importlib.util.LazyLoader` was
not taken: before 3.12.3, two threads that ask at the same time can find a module half made.
"""

from __future__ import annotations

import sys
from importlib import import_module
from typing import Any


class Later:
    """Stands for the module `name`."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, attribute: str) -> Any:
        # Looked up each time: one who replaces a function in the module (a test, a tracer) is heard here too.
        module = sys.modules.get(self._name)
        if module is None or getattr(getattr(module, "__spec__", None), "_initializing", False):
            module = import_module(self._name)  # waits for a thread that is importing it
        return getattr(module, attribute)

    def __repr__(self) -> str:
        return f"Later({self._name!r})"
