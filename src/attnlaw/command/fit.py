"""`attnlaw fit MODEL...`"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from attnlaw.command.options import Adapter, Heads, Jobs, Layers, Map, Models, Only, directory


def command(
    models: Models,
    out: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Write fits.parquet and curves.parquet.", parser=directory),
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print the laws as JSON and nothing else.")] = False,
    layers: Layers = None,
    only: Only = None,
    heads: Heads = None,
    map_file: Map = None,
    adapter: Adapter = None,
    jobs: Jobs = None,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the nulls and of the bootstrap.")] = 0,
    figures: Annotated[
        str | None, typer.Option(metavar="pdf|svg|png", help="With --out: the map of laws, too.")
    ] = None,
) -> None:
    """Tell noise from what attention learns in theory, heavy tails, and neither, matrix by matrix.

    random: independent Gaussian entries (a head: two such factors) pass at level 0.01
    learned: the law of trained attention (arXiv 2509.24914), on real heads an extension
    heavy-tailed: high-temperature Marchenko-Pastur (arXiv 2506.03470), heavier than the null
    power-law tail: the bulk follows none of these, the tail a power of exponent alpha

    The same from Python: attnlaw.fit(MODEL, layers=..., only=..., heads=..., map=...,
    adapter=..., jobs=..., seed=...); with --out DIR also .save(DIR, figures=...)
    """
    from attnlaw import fit
    from attnlaw.command.console import output, say
    from attnlaw.command.fit_table import show, show_together
    from attnlaw.command.models import each_model, require_figures, results_in

    require_figures(figures, out)
    with results_in(out):
        done, failed = each_model(
            "fit",
            models,
            lambda model, report: fit(
                model,
                layers=layers,
                only=only,
                heads=heads,
                map=map_file,
                adapter=adapter,
                jobs=jobs,
                seed=seed,
                progress=report,
            ),
            lambda one: show(one, output),
            lambda every: show_together(every, output),
            json,
        )
        if done is not None and out is not None:
            done.save(out, figures)
            beside = "curves.parquet" if figures is None else f"curves.parquet and laws.{figures}"
            say(f"wrote {out / 'fits.parquet'} and beside it {beside}")
        if failed:
            raise typer.Exit(1)
