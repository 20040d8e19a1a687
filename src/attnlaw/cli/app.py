"""The table of verbs. A new verb is a module with a `command` (or a group, `app`) and one line here."""

from __future__ import annotations

import typer

from attnlaw import __version__
from attnlaw.cli import audit, fit, learn, lens, limit, report, study

app = typer.Typer(
    name="attnlaw",
    help="The spectral theory of attention, executable.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
)


def _version(value: bool) -> None:
    if value:
        typer.echo(f"attnlaw {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: bool = typer.Option(
        False, "--version", callback=_version, is_eager=True, help="Print the version."
    ),
) -> None:
    """The spectral theory of attention, executable."""


app.command("audit")(audit.command)
app.command("fit")(fit.command)
app.command("learn")(learn.command)
app.command("lens")(lens.command)
app.command("limit")(limit.command)
app.command("report")(report.command)
app.add_typer(study.app, name="study")
