"""The Schatten index that each matrix chooses at the worst-case scale and at the scale measured on inputs.

    python docs/experiments/measured-scale/measured_scale.py [--model DIR --ids FILE]

measures a classifier on inputs (token ids, one input a line) and writes the rows, then draws the figure of
docs/theory/bounds.md. Without a model it starts from the rows in this folder: rxnfp 0.1.0 (bert_ft_10k_25s)
on the 32 reactions of tests/published/margins/reactions.txt. Needs the extra lens.
"""

from __future__ import annotations

import argparse
from math import log10
from pathlib import Path

import altair as alt
import polars as pl

import attnlaw
from attnlaw.checkpoints.network import KINDS
from attnlaw.numerics.logs import LN10
from attnlaw.render.charts.encodings import EXTENT, colour_encoding, inline_data, panel_title
from attnlaw.render.charts.paper import save_chart
from attnlaw.render.charts.style import palette
from attnlaw.theory.bounds.spectrum_adaptive import best_index

HERE = Path(__file__).parent
ROWS = HERE / "scales.parquet"
FIGURE = HERE.parents[1] / "figures" / "measured-scale.svg"


def main() -> None:
    parser = argparse.ArgumentParser(description="Schatten indices at two scales.")
    parser.add_argument("--model", help="a checkpoint of a classifier; without it, from the rows")
    parser.add_argument("--ids", help="token ids, one input a line")
    options = parser.parse_args()
    if options.model is not None:
        measure(options.model, options.ids).write_parquet(ROWS, compression="zstd")
    rows = pl.read_parquet(ROWS)
    for name in ("p", "p_measured", "p_without_depth"):
        print(f"{name} > 0 for {rows.filter(pl.col(name) > 0).height} of {rows.height} matrices")
    print("figure", save_chart(draw(rows), FIGURE))


def measure(model: str, ids: str) -> pl.DataFrame:
    """Return scale and index of every matrix: worst case, measured, and measured without the factor L."""
    directions = attnlaw.margins(model, ids=f"@{ids}", amplification=True).directions
    tree = attnlaw.audit(model).record.tree
    spectra = {(at.layer, at.kind, at.head): spectrum for at, spectrum in tree.leaves()}
    without = [
        best_index(
            spectra[row["layer"], row["kind"], row["head"]],
            (row["log10_scale_measured"] - log10(tree.depth)) * LN10,
            tree.hidden_size,
        )
        for row in directions.iter_rows(named=True)
    ]
    kept = directions.select(
        "layer", "head", "kind", "rank", "log10_scale", "p", "log10_scale_measured", "p_measured"
    )
    return kept.with_columns(p_without_depth=pl.Series(without))


def draw(rows: pl.DataFrame) -> alt.HConcatChart:
    """Draw the index against the scale: at both scales on the left, measured by kind on the right."""
    worst, measured = "worst case, from the weights", "measured on inputs"
    both = pl.concat(
        [
            rows.select(x="log10_scale", y="p", series=pl.lit(worst)),
            rows.select(x="log10_scale_measured", y="p_measured", series=pl.lit(measured)),
        ]
    )
    labels = {kind: KINDS[kind].label for kind in KINDS if kind in set(rows["kind"])}
    by_kind = rows.select(
        x="log10_scale_measured", y="p_measured", series=pl.col("kind").replace_strict(labels)
    )
    left = _panel(both, palette([worst, measured]), "at both scales")
    right = _panel(by_kind, palette(labels.values()), "at the measured scale, by kind")
    return alt.hconcat(left, right).resolve_scale(color="independent")


def _panel(points: pl.DataFrame, colours: dict[str, str], title: str) -> alt.Chart:
    y = alt.Y(
        "y:Q", title="Schatten index p*", scale=alt.Scale(domain=[0, 1]), axis=alt.Axis(minExtent=EXTENT)
    )
    x = alt.X("x:Q", title="log₁₀ scale (γαL)", scale=alt.Scale(nice=True))
    dots = alt.Chart(inline_data(points), title=panel_title(title)).mark_point(
        size=22, filled=True, opacity=0.6
    )
    return dots.encode(x=x, y=y, color=colour_encoding(colours, orient="bottom", columns=2)).properties(
        width=260, height=190
    )


if __name__ == "__main__":
    main()
