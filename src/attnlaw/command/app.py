"""The table of verbs. A new verb is a module with a `command` (or a group, `app`) and one line here."""

from __future__ import annotations

import inspect
import os
import re
from typing import Any

import typer
from typer.core import TyperGroup

from attnlaw import __version__
from attnlaw.command import audit, fit, learn, lens, limit, report, study

# On a screen of width 0, as some terminals tell it, nothing could be shown: it counts as not told.
if not os.environ.get("COLUMNS", "0").strip("0"):
    os.environ.pop("COLUMNS", None)


class Verbs(TyperGroup):
    """The verbs; Ctrl-C in any of them is answered here, in one line."""

    def invoke(self, ctx: typer.Context) -> Any:  # type: ignore[override]
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            typer.echo("attnlaw: stopped", err=True)
            raise typer.Exit(130) from None


app = typer.Typer(
    name="attnlaw",
    cls=Verbs,
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


def _flowing(text: str | None) -> str:
    """A docstring whose lines break where the terminal ends, not where the source does.

    Paragraphs and lines such as `name: what it means` stay apart.

    >>> _flowing("One\\nsentence.\\n\\nrandom: noise\\nlearned: a law")
    'One sentence.\\n\\nrandom: noise\\nlearned: a law'
    """
    return re.sub(r"(?<!\n)\n(?!\n|[a-z-]+( [a-z]+)?: )", " ", inspect.cleandoc(text or ""))


for verb in (audit, fit, learn, lens, limit, report):
    app.command(verb.__name__.rpartition(".")[2], help=_flowing(verb.command.__doc__))(verb.command)
app.add_typer(study.app, name="study")
