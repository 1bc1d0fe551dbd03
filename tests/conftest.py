"""What all tests share: a memory on a real file, a standing clock, the command line, and no network."""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from hypothesis import HealthCheck, settings

from istar_lite import Memory
from istar_lite.testing import FixedClock

ROOT = Path(__file__).parent.parent
# Research data that is read where it lies and never shipped; tests that need it skip without it.
DATA = Path(os.environ.get("ISTAR_DATA", ROOT.parent / "shared" / "data"))

settings.register_profile(
    "istar",
    deadline=None,
    max_examples=int(os.environ.get("ISTAR_EXAMPLES", "50")),
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
settings.load_profile("istar")


@pytest.fixture(autouse=True)
def no_network(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever asks the network in a test gets an error that says so. Loopback and local sockets are allowed."""
    connect = socket.socket.connect

    def guarded(self: socket.socket, address: Any) -> Any:
        if self.family in (socket.AF_INET, socket.AF_INET6) and address[0] not in ("127.0.0.1", "::1", "localhost"):
            raise AssertionError(f"the network was asked: {address}")
        return connect(self, address)

    names = socket.getaddrinfo

    def looked_up(host: Any, *arguments: Any, **named: Any) -> Any:
        if host not in (None, "", "127.0.0.1", "::1", "localhost", b"localhost", b"127.0.0.1"):
            raise AssertionError(f"the network was asked for {host}")
        return names(host, *arguments, **named)

    monkeypatch.setattr(socket.socket, "connect", guarded)
    monkeypatch.setattr(socket, "getaddrinfo", looked_up)


@pytest.fixture
def clock() -> FixedClock:
    """A clock that stands at the start of 2026 until it is told to advance."""
    return FixedClock()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Where the memory of a test lies."""
    return tmp_path / "agent.db"


@pytest.fixture
def memory(path: Path, clock: FixedClock) -> Iterator[Memory]:
    """An open memory without vectors (quick); closed after the test."""
    with Memory(path, embedder=None, clock=clock) as opened:
        yield opened


class Shell:
    """The command line, run in this process. `code` 0, 1 or 2 is asserted by each call."""

    def __call__(self, *arguments: object, code: int = 0, input: str | None = None) -> Result:
        """Runs `istar-lite` with the arguments."""
        from istar_lite.cli import main

        result = CliRunner().invoke(main, [str(argument) for argument in arguments], input=input)
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        assert result.exit_code == code, result.output
        return result

    def json(self, *arguments: object, code: int = 0) -> Any:
        """The JSON document that it prints."""
        return json.loads(self(*arguments, "--json", code=code).stdout)


@pytest.fixture
def shell() -> Shell:
    """The command line."""
    return Shell()


@pytest.fixture
def locomo() -> Path:
    """Five long conversations with questions; the test skips where they are not at hand."""
    found = DATA / "locomo_dev.json"
    if not found.exists():
        pytest.skip(f"{found.name} is not here (research data; set ISTAR_DATA to its folder)")
    return found
