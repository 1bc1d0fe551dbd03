"""`istar-lite view`: Datasette on a memory file, with our words for what is in it. Needs the extra `view`.

Outside the facade: Datasette reads the file on connections of its own, and nothing here writes. Works with stable
Datasette and with the 1.0 alphas.
"""

from __future__ import annotations

import os
from contextlib import closing

from datasette import __version__
from datasette.app import Datasette
from datasette.plugins import pm

from istar_lite.database import File
from istar_lite.view import cells
from istar_lite.view.dictionary import configuration, metadata

# Milliseconds: the views of large files take longer than Datasette's one second.
SETTINGS = {"sql_time_limit_ms": 10_000, "facet_time_limit_ms": 1_000, "suggest_facets": False}


def datasette(path: str | os.PathLike[str]) -> Datasette:
    """A Datasette that serves the memory file at `path`. Raises `NotAMemoryFile` and its like."""
    with closing(File(path, read_only=True)) as file:
        whole, name = str(file.path), file.path.stem
    if not pm.has_plugin(cells.__name__):
        pm.register(cells, name=cells.__name__)
    about, told = metadata(name), configuration(name)
    # 1.0 takes what tables and queries look like as configuration, apart from what describes them; 0.65 knows only
    # metadata, and takes both there.
    if int(__version__.split(".")[0]) >= 1:
        return Datasette([whole], metadata=about, config=told, settings=SETTINGS)
    return Datasette([whole], metadata=_merged(about, told), settings=SETTINGS)


def serve(path: str | os.PathLike[str], port: int = 8001) -> None:
    """Serves the file at http://127.0.0.1:PORT until it is interrupted. Loopback only: a memory is private."""
    import uvicorn  # comes with Datasette

    uvicorn.run(datasette(path).app(), host="127.0.0.1", port=port, log_level="warning")


def _merged(left: dict[str, object], right: dict[str, object]) -> dict[str, object]:
    """Both, key by key, all the way down."""
    found = dict(left)
    for key, value in right.items():
        here = found.get(key)
        found[key] = _merged(here, value) if isinstance(here, dict) and isinstance(value, dict) else value
    return found
