"""The one place that knows which mcp is installed: 2.x, or 1.x in the environments of older hosts."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from mcp.server.transport_security import TransportSecuritySettings
from mcp.types import ToolAnnotations
from pydantic import ValidationError

__all__ = ["ResourceError", "Server", "ToolError", "hints", "http_app", "make_server", "one_line", "run_http"]

# Whom a server on loopback listens to. A page of another site can make a browser send requests to loopback, but not
# with one of these names in them (DNS rebinding).
_NAMES = ("127.0.0.1", "localhost", "[::1]")
SECURITY = TransportSecuritySettings(
    enable_dns_rebinding_protection=True,
    allowed_hosts=[*_NAMES, *(f"{name}:*" for name in _NAMES)],
    allowed_origins=[origin for name in _NAMES for origin in (f"http://{name}", f"http://{name}:*")],
)


def _import_server() -> tuple[Any, Any]:
    """The class of servers and the module of its errors. By name, since no type checker knows both versions."""
    try:
        return importlib.import_module("mcp.server").MCPServer, importlib.import_module(
            "mcp.server.mcpserver.exceptions"
        )
    except AttributeError:
        older = importlib.import_module("mcp.server.fastmcp")
        return older.FastMCP, importlib.import_module("mcp.server.fastmcp.exceptions")


if TYPE_CHECKING:
    BaseServer = Any
    _errors: Any = None
else:
    BaseServer, _errors = _import_server()
IS_2 = BaseServer.__name__ == "MCPServer"
ToolError: type[Exception] = _errors.ToolError
ResourceError: type[Exception] = _errors.ResourceError


class Server(BaseServer):
    """The server whose tool errors are one line each, those of unfit arguments as well."""

    _tool_manager: Any

    async def call_tool(self, name: str, arguments: dict[str, Any], *rest: Any, **more: Any) -> Any:
        """See the base class. A misspelt condition of `forget`, silently left out, would forget too much: what is no
        argument of the tool is refused."""
        tool = self._tool_manager.get_tool(name)
        unknown = sorted(set(arguments) - set(tool.parameters.get("properties", ()))) if tool is not None else []
        if unknown:
            raise ToolError(one_line(f"{name}: there is no argument {', '.join(unknown)}"))
        try:
            return await super().call_tool(name, arguments, *rest, **more)
        except ToolError as error:
            cause = error.__cause__
            told = f"{name}: {_unfit(cause)}" if isinstance(cause, ValidationError) else str(error)
            raise ToolError(one_line(told)) from cause


def _unfit(error: ValidationError) -> str:
    return "; ".join(f"{'.'.join(str(part) for part in one['loc'])}: {one['msg']}" for one in error.errors())


def one_line(error: object) -> str:
    """A message without line breaks."""
    return " ".join(str(error).split())


def make_server(name: str, version: str, instructions: str, *, host: str, port: int) -> Server:
    """A server without tools yet; where it will listen, if over HTTP, is told to 1.x at once."""
    if IS_2:
        return Server(name, title="istar-lite memory", version=version, instructions=instructions)
    older = Server(name, instructions=instructions, host=host, port=port, transport_security=SECURITY)
    older._mcp_server.version = version  # else the version of the mcp package is told as ours
    return older


def http_app(server: Server) -> Any:
    """The server as an ASGI application at /mcp."""
    if IS_2:
        return server.streamable_http_app(transport_security=SECURITY)
    return server.streamable_http_app()


def run_http(server: Server, host: str, port: int) -> None:
    """Serves at `http://<host>:<port>/mcp` until interrupted."""
    if IS_2:
        server.run("streamable-http", host=host, port=port, transport_security=SECURITY)
    else:
        server.run("streamable-http")


def hints(title: str, *, reads: bool, destroys: bool, idempotent: bool) -> ToolAnnotations:
    """All four hints of a tool; none of ours reaches beyond the file."""
    # By the protocol's names: as keyword arguments the two versions spell them differently.
    return ToolAnnotations.model_validate(
        {
            "title": title,
            "readOnlyHint": reads,
            "destructiveHint": destroys,
            "idempotentHint": idempotent,
            "openWorldHint": False,
        }
    )
