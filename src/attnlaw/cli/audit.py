"""`attnlaw audit MODEL...`"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def command(
    models: Annotated[
        list[str], typer.Argument(metavar="MODEL...", help="Checkpoint files, directories or shard indexes.")
    ],
    out: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR", help="Write matrices, spectra and layers (parquet), summary.json, report.html."
        ),
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print the summary as JSON and nothing else.")] = False,
    layers: Annotated[str | None, typer.Option(metavar="0:4", help="Only these layers (as a slice).")] = None,
    only: Annotated[
        str | None,
        typer.Option(metavar="qk,vo,...", help="Only these: qk, vo, cross, ffn, embedding, unembedding."),
    ] = None,
    heads: Annotated[
        int | None, typer.Option(help="Attention heads, where no config.json tells their number.")
    ] = None,
    samples: Annotated[
        int | None, typer.Option(help="Training samples n: show proxy / sqrt(n) too (not a bound by itself).")
    ] = None,
    jobs: Annotated[int | None, typer.Option(help="Threads; all cores unless given.")] = None,
) -> None:
    """Read a trained Transformer, show the spectra of its heads and what they imply for generalization.

    The same from Python: attnlaw.audit(MODEL, layers=..., only=..., heads=..., samples=..., jobs=...)
    """
    from attnlaw.auditing import Audit, audit
    from attnlaw.cli.audit_table import show
    from attnlaw.cli.console import messages, output, print_json, progress
    from attnlaw.errors import InputError, printable
    from attnlaw.records.files import usable_directory

    if out is not None:
        usable_directory(out)  # before the work, not after it
    done: Audit | None = None
    failures = 0
    for model in models:
        try:
            with progress(f"audit {printable(Path(model).name)}") as report:
                options = {"layers": layers, "only": only, "heads": heads, "samples": samples, "jobs": jobs}
                one = audit(model, progress=report, **options)  # type: ignore[arg-type]
        except InputError as error:
            # The other models are still audited and written; the exit status tells of this one.
            messages.print(f"attnlaw: {error}", markup=False, soft_wrap=True)
            failures += 1
            continue
        if not json:
            show(one, output)
        done = one if done is None else done + one
    if done is not None and json:
        print_json(done.as_json(as_list=len(models) > 1))
    if done is not None and out is not None:
        done.save(out, as_list=len(models) > 1)
        messages.print(f"wrote {out / 'report.html'} and the rows beside it", markup=False, soft_wrap=True)
    if failures:
        raise typer.Exit(1)
