"""Doors for other programs: the MCP server."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import NoReturn

import click

import istar_lite  # Memory is imported when the server opens one


@click.command("mcp")
@click.argument("file", type=click.Path(dir_okay=False, path_type=Path), envvar="ISTAR_DB")
@click.option(
    "-n",
    "--namespace",
    default="default",
    show_default=True,
    envvar="ISTAR_NAMESPACE",
    show_envvar=True,
    help="Whose memory: exact, with case.",
)
@click.option("--http", is_flag=True, help="Serve streamable HTTP on loopback instead of stdio.")
@click.option("--port", type=click.IntRange(1, 65535), default=8000, show_default=True, help="With --http.")
@click.option("--read-only", is_flag=True, help="Serve a memory that nobody may change.")
def mcp(file: Path, namespace: str, http: bool, port: int, read_only: bool) -> int:
    """Serve FILE to an MCP host: over stdio, or with --http to many at http://127.0.0.1:PORT/mcp. The file is made if
    it is not there; without an argument it is taken from ISTAR_DB."""
    try:
        # The packages behind it cost half a second: only who serves pays.
        from istar_lite.mcp import serve_http, serve_stdio
    except ModuleNotFoundError as error:
        raise click.ClickException(f"this needs {error.name}: pip install 'istar-lite[mcp]'") from error
    with istar_lite.Memory(file.expanduser(), namespace, read_only=read_only) as memory:
        signal.signal(signal.SIGTERM, lambda *_: _end(memory))
        if http:
            # Standard output is the protocol's; over HTTP it is free, but a host may start either.
            click.echo(f"serving {memory.path} at http://127.0.0.1:{port}/mcp", err=True)
            serve_http(memory, port=port)
        else:
            serve_stdio(memory)
    return 0


def _end(memory: istar_lite.Memory) -> NoReturn:
    """Hosts end a server by SIGTERM, which would end Python at once and leave the log beside the file. An exception
    would not do: the thread that waits for the host's next line holds up every orderly way out."""
    memory.close()
    os._exit(0)


COMMANDS: tuple[click.Command, ...] = (mcp,)
