"""`attnlaw lens MODEL --ids 1,2,3`"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from attnlaw.command.options import directory

if TYPE_CHECKING:
    from rich.table import Table

    from attnlaw.forward import Lens

SHOWN = 32


def command(
    model: Annotated[
        str, typer.Argument(metavar="MODEL", help="A local directory with config.json and weights.")
    ],
    ids: Annotated[str, typer.Option(metavar="1,2,3", help="Token ids of the input.")],
    top: Annotated[int, typer.Option(metavar="K", help="Singular values to compute.")] = 8,
    seed: Annotated[
        int, typer.Option(min=0, help="Seed of the probes that estimate the map of a large operator.")
    ] = 0,
    out: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR", help="Write lens.json, lens_map.png and lens_map.html.", parser=directory
        ),
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print JSON and nothing else.")] = False,
) -> None:
    """The forward pass over these tokens as one exact affine map, vec F(X) = T(X) vec X + c(X).

    F runs from the embeddings to the last hidden state, in float64 (TensorLens, arXiv 2601.17958). Shown
    are how well T and c rebuild the network's output, the largest singular values of T, and how much each
    input token moves each output token: block norms of T, beside attention rollout. Needs the extra lens.

    The same from Python: attnlaw.forward.linearise(MODEL, ids, top=K, seed=...)
    """
    from attnlaw.base.files import replace_all
    from attnlaw.command.console import print_json, progress, say
    from attnlaw.command.models import results_in
    from attnlaw.forward import linearise

    numbers = _integers(ids)
    with results_in(out):
        with progress(f"lens {Path(model).name}") as report:
            found = linearise(model, numbers, top=top, seed=seed, progress=report)
        if json:
            print_json(_json(found, top, seed))
        else:
            _show(found)
        if out is not None:
            replace_all(_files(found, out, top, seed))
            say(f"wrote lens.json, lens_map.png and lens_map.html in {out}")
        if found.remark is not None:
            say(f"attnlaw: {found.remark}")


def _json(found: Lens, top: int, seed: int) -> Any:
    from attnlaw.verbs.lens import VERB, LensSettings

    case = LensSettings(model=found.model, ids=found.ids, top=top, seed=seed)
    return VERB.json(case, found)


def _integers(text: str) -> list[int]:
    from attnlaw.base.errors import InputError

    items = [item.strip() for item in text.split(",") if item.strip()]
    try:
        return [int(item) for item in items]
    except ValueError:
        raise InputError(f"--ids: found {text!r}, expected integers with commas, such as 1,2,3") from None


def _show(lens: Lens) -> None:
    from rich.text import Text

    from attnlaw.command.console import output, print_table

    tokens = len(lens.ids)
    output.print(Text(lens.model, style="bold"), soft_wrap=True)
    output.print(
        f"{lens.family}, {lens.layers} layers, {tokens} tokens of width {lens.operator.width}", style="dim"
    )
    output.print(f"reconstruction error  {lens.reconstruction_error:.2e} ({lens.outcome})")
    output.print(f"offset |c| / |F(X)|   {lens.offset_share:.3g}")
    values = lens.singular_values
    if values is not None:
        output.print(f"singular values of T  {'  '.join(f'{value:.4g}' for value in values)}", soft_wrap=True)
    print_table(output, lambda left_out: _table(lens, left_out), ("rollout",))
    if tokens > SHOWN:
        output.print(f"{tokens - SHOWN} more tokens; --out DIR draws all of them")
    probes = lens.token_map.probes
    if probes is not None:
        worst = float((lens.token_map.errors / lens.token_map.norms.clip(min=1e-300)).max())
        output.print(f"norms estimated from {probes} probes a token, standard error up to {worst:.1%}")


def _table(lens: Lens, left_out: Sequence[str]) -> Table:
    """One row for each token: what moves it, and what moves it most, by the operator and by rollout."""
    from rich.table import Table

    from attnlaw.command.audit_table import sparkline

    both = {"moved by (operator)": lens.token_map.shares, "rollout": lens.rollout}
    maps = {title: rows for title, rows in both.items() if title not in left_out}
    table = Table(box=None, pad_edge=False)
    for title in ("token", "id"):
        table.add_column(title, justify="right", no_wrap=True)
    for title in maps:
        table.add_column(title, no_wrap=True)
        table.add_column("most", no_wrap=True)
    for i, token in enumerate(lens.ids[:SHOWN]):
        cells: list[str] = []
        for rows in maps.values():
            top = float(rows[i].max())
            cells.append(sparkline(rows[i].tolist(), top=top) if len(lens.ids) <= SHOWN else "")
            cells.append(f"{rows[i].argmax()} ({top:.0%})")
        table.add_row(str(i), str(token), *cells)
    return table


def _files(lens: Lens, folder: Path, top: int, seed: int) -> dict[Path, bytes]:
    """What the directory gets: the numbers, and the map as a figure and as a page."""
    from attnlaw.base.files import to_json
    from attnlaw.report.lens_charts import page_bytes, token_maps
    from attnlaw.report.style import chart_bytes
    from attnlaw.verbs.lens import VERB

    chart = token_maps(VERB.tables[0].rows(lens).rename({"norm_error": "error"}))
    figure = folder / "lens_map.png"
    return {
        folder / "lens.json": f"{to_json(_json(lens, top, seed))}\n".encode(),
        figure: chart_bytes(chart, figure),
        folder / "lens_map.html": page_bytes(chart, f"{lens.model}: what moves each token"),
    }
