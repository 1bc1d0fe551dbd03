"""The command line: `istar-lite COMMAND FILE …`, the memory file always first.

Exit status: 0 all well, 1 nothing found or problems found, 2 an error, told in one line.
"""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Sequence
from typing import Any, NoReturn

import click

from istar_lite import IstarError, __version__
from istar_lite.cli import benches, doors, files, looking, showing, writing


class OneLineErrors(click.Group):
    """A group whose errors are one line on stderr and exit status 2: no usage text, no traceback."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """In the order of their groups, not of the alphabet."""
        return list(self.commands)

    def main(
        self,
        args: Sequence[str] | None = None,
        prog_name: str | None = None,
        complete_var: str | None = None,
        standalone_mode: bool = True,
        **extra: Any,
    ) -> Any:
        """Runs the command line; see click's `Command.main`."""
        if not standalone_mode:
            return super().main(args, prog_name, complete_var, False, **extra)
        # What was found may hold characters that the terminal's encoding lacks: better a "?" than no answer.
        for stream in (sys.stdout, sys.stderr):
            if hasattr(stream, "reconfigure"):
                stream.reconfigure(errors="replace")
        try:
            with warnings.catch_warnings():
                warnings.showwarning = _tell
                status = super().main(args, prog_name, complete_var, False, **extra)
        except click.ClickException as error:
            _fail(error.format_message())
        except IstarError as error:
            _fail(str(error).replace("overwrite=True", "--overwrite"))
        except click.Abort:
            _fail("interrupted", status=130)
        except BrokenPipeError:  # before OSError, whose kind it is
            # The reader (`head`, say) has what it wanted; without this, Python complains again at exit.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            sys.exit(0)
        except OSError as error:
            _fail(f"{error.filename}: {error.strerror}" if error.filename else str(error))
        sys.exit(status if isinstance(status, int) else 0)


def _tell(message: Warning | str, *_: Any, **__: Any) -> None:
    """A warning in one line, without the place in our code that raised it."""
    click.echo(f"istar-lite: {' '.join(str(message).split())}", err=True)


def _fail(message: str, *, status: int = 2) -> NoReturn:
    click.echo(f"istar-lite: {' '.join(message.split())}", err=True)
    sys.exit(status)


@click.group(cls=OneLineErrors, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
@click.version_option(__version__, prog_name="istar-lite")
def main() -> None:
    """The long-term memory of a desktop agent in one SQLite file.

    The memory file is the first argument of every command. Exit status: 0 all well, 1 nothing found or problems
    found, 2 an error. Every command prints JSON with --json.
    """


for command in (
    *showing.COMMANDS,
    *writing.COMMANDS,
    *looking.COMMANDS,
    *files.COMMANDS,
    *benches.COMMANDS,
    *doors.COMMANDS,
):
    main.add_command(command)
