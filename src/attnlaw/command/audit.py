"""`attnlaw audit MODEL...`"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from attnlaw.command.options import Adapter, Heads, Jobs, Layers, Map, Models, Only, directory


def command(
    models: Models,
    out: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            help="Fit laws; write the rows (parquet), summary.json and report.html.",
            parser=directory,
        ),
    ] = None,
    figures: Annotated[
        str | None,
        typer.Option(metavar="pdf|svg|png", help="With --out: every chart for a two-column paper, too."),
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print the summary as JSON and nothing else.")] = False,
    layers: Layers = None,
    only: Only = None,
    heads: Heads = None,
    map_file: Map = None,
    adapter: Adapter = None,
    samples: Annotated[
        int | None, typer.Option(help="Training samples n: show proxy / sqrt(n) too (not a bound by itself).")
    ] = None,
    approximate: Annotated[
        bool,
        typer.Option("--approximate", help="Estimate matrices of shorter side 4096 and more, with errors."),
    ] = False,
    jobs: Jobs = None,
) -> None:
    """Read a trained Transformer, show the spectra of its heads and what they imply for generalization.

    The same from Python: attnlaw.audit(MODEL, layers=..., only=..., heads=..., map=..., adapter=...,
    samples=..., approximate=..., jobs=...); with --out DIR also .fitted().save(DIR, figures=...)
    """
    from attnlaw import audit
    from attnlaw.auditing.audit import holds_audit
    from attnlaw.command.audit_table import show, show_together
    from attnlaw.command.console import output, progress, say
    from attnlaw.command.models import each_model, require_figures, results_in

    require_figures(figures, out)
    with results_in(out):
        if out is not None:
            holds_audit(out)  # another's summary.json is refused before the work
        done, failed = each_model(
            "audit",
            models,
            lambda model, report: audit(
                model,
                layers=layers,
                only=only,
                heads=heads,
                map=map_file,
                adapter=adapter,
                samples=samples,
                approximate=approximate,
                jobs=jobs,
                progress=report,
            ),
            lambda one: show(one, output),
            lambda every: show_together(every, output),
            json,
        )
        if samples is not None and done is not None:
            for summary in done.summaries:
                if summary["proxies"] is None:
                    say(f"{summary['model']}: --samples {samples} has no proxy to divide")
        if done is not None and out is not None:
            with progress("fit laws") as report:
                done = done.fitted(progress=report)
            done.save(out, as_list=len(models) > 1, figures=figures)
            more = "" if figures is None else f", and {out / 'figures'}"
            say(f"wrote {out / 'report.html'} and the rows beside it{more}")
        if failed:
            raise typer.Exit(1)
