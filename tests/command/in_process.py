"""One command of the command line, run in this process."""

from __future__ import annotations

from collections.abc import Callable

import typer
from typer.testing import CliRunner, Result


def runner(command: Callable[..., None]) -> Callable[..., Result]:
    """A function of the command's arguments and the expected exit status; errors come through as they are."""
    app = typer.Typer()
    app.command()(command)

    def run(*arguments: object, status: int = 0) -> Result:
        result = CliRunner().invoke(app, [str(argument) for argument in arguments])
        if status == 0 and result.exception is not None:
            raise result.exception
        assert result.exit_code == status
        return result

    return run
