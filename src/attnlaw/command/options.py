"""Options that several verbs share, described once."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def directory(text: str) -> Path:
    """The directory of this name; no name, as of a shell variable that is not set, is not taken for `.`."""
    if not text:
        raise typer.BadParameter("found an empty name; give a directory (. is the one you are in)")
    return Path(text)


Models = Annotated[
    list[str],
    typer.Argument(metavar="MODEL...", help="Checkpoint files, directories, shard indexes or hub ids."),
]
Layers = Annotated[str | None, typer.Option(metavar="0:4", help="Only these layers (as a slice).")]
Only = Annotated[
    str | None,
    typer.Option(metavar="qk,vo,...", help="Only these: qk, vo, cross, ffn, embedding, unembedding."),
]
Heads = Annotated[int | None, typer.Option(help="Attention heads, where no config.json tells their number.")]
Map = Annotated[
    Path | None,
    typer.Option("--map", metavar="FILE.toml", help="The names of an architecture of your own."),
]
Adapter = Annotated[Path | None, typer.Option(metavar="DIR", help="A LoRA adapter to add to the model.")]
Jobs = Annotated[int | None, typer.Option(help="Threads; all cores unless given.")]
