"""The figure of docs/theory/numbers.md: tau of every measure with the generalization gap, with errors.

    python docs/experiments/ranking/ranking_figure.py [FILE.svg]

draws it from the rows in this folder, to docs/figures/ranking.svg unless a file is given.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import polars as pl
from ranking_measures import MEASURES
from ranking_table import columns_of, second_seed, seed_to_seed, table, with_gap
from train_ranking import all_runs

from attnlaw.core.files import write_all
from attnlaw.render.charts.encodings import inline_data
from attnlaw.render.charts.style import PALETTE, draw_svg, house_spec

HERE = Path(__file__).resolve().parent
FIGURE = HERE.parents[1] / "figures" / "ranking.svg"
GROUPS = {"inputs": "on inputs without labels", "weights": "of the weights alone"}
LINE = 30  # points of height for each measure


def chart(columns: Mapping[str, pl.DataFrame]) -> Any:
    """One panel for each group of measures: a dot and its error for each family and seed, and the band."""
    import altair as alt

    taus = table(columns)
    band = seed_band(columns)
    panels = [_panel(group, taus, band, last=group == "weights") for group in GROUPS]
    return alt.vconcat(*panels, spacing=8, background="white")


def seed_band(columns: Mapping[str, pl.DataFrame]) -> tuple[float, float] | None:
    """Least and largest tau between the gaps of two seeds, over families and n."""
    pairs = [(runs, second_seed(name, columns)) for name, runs in columns.items()]
    agreed = [seed_to_seed(runs, other) for runs, other in pairs if other is not None]
    taus = [agreement.tau for by_n in agreed for agreement in by_n.values() if agreement.tau is not None]
    return (min(taus), max(taus)) if taus else None


def _panel(group: str, taus: pl.DataFrame, band: tuple[float, float] | None, last: bool) -> Any:
    import altair as alt

    labels = {measure.name: measure.label for measure in MEASURES if measure.needs == group}
    rows = [
        {
            "label": labels[row["measure"]],
            "family": row["column"].split()[0],
            "column": row["column"],
            "tau": row["tau"],
            "low": row["tau"] - row["error"],
            "high": row["tau"] + row["error"],
        }
        for row in taus.drop_nulls("tau").iter_rows(named=True)
        if row["measure"] in labels
    ]
    families = list(dict.fromkeys(row["family"] for row in rows))
    order = list(dict.fromkeys(row["column"] for row in rows))
    axis = alt.Axis(ticks=False, domain=False, grid=True, bandPosition=0, labelLimit=220)
    scale = alt.Scale(domain=[-0.8, 1.0], nice=False)
    base = alt.Chart(inline_data(rows)).encode(
        y=alt.Y("label:N", title="", sort=list(labels.values()), axis=axis),
        yOffset=alt.YOffset("column:N", sort=order, scale=alt.Scale(domain=order)),
        color=alt.Color(
            "family:N",
            scale=alt.Scale(domain=families, range=list(PALETTE[: len(families)])),
            legend=alt.Legend(title="", orient="top", symbolType="circle", symbolStrokeWidth=0),
        ),
    )
    title = "Kendall's tau with the generalization gap" if last else ""
    x = alt.X("tau:Q", title=title, scale=scale, axis=alt.Axis(format=".1f", tickCount=10))
    bars = base.mark_rule(strokeWidth=1).encode(x=alt.X("low:Q", scale=scale, title=title), x2="high:Q")
    dots = base.mark_point(filled=True, size=26, opacity=1).encode(x=x)
    zero = alt.Chart(inline_data([{"tau": 0}])).mark_rule(color="#666").encode(x=alt.X("tau:Q", scale=scale))
    layers = [*_band(band, scale, first=not last), zero, bars, dots]
    panel = alt.layer(*layers).properties(width=430, height=LINE * len(labels))
    return panel.properties(title=alt.TitleParams(GROUPS[group], fontSize=11, anchor="start", frame="group"))


def _band(band: tuple[float, float] | None, scale: Any, first: bool) -> list[Any]:
    """The grey band of the gap's own agreement between seeds, named in the first panel."""
    import altair as alt

    if band is None:
        return []
    rows = inline_data([{"low": band[0], "high": band[1], "middle": sum(band) / 2}])
    area = alt.Chart(rows).mark_rect(color="#b8c9d9", opacity=0.45)
    drawn = [area.encode(x=alt.X("low:Q", scale=scale), x2="high:Q")]
    if first:
        words = alt.Chart(rows).mark_text(
            baseline="bottom", dy=-3, fontSize=9, color="#444", text="gap, seed to seed"
        )
        drawn.append(words.encode(x=alt.X("middle:Q", scale=scale), y=alt.value(0)))
    return drawn


def save_figure(columns: Mapping[str, pl.DataFrame], file: Path) -> None:
    write_all({file: draw_svg(house_spec(chart(columns))).encode()})
    print("wrote", file)


def main() -> None:
    rows = with_gap(pl.read_csv(HERE / "runs.csv"))
    save_figure(columns_of(rows, all_runs()), Path(sys.argv[1]) if len(sys.argv) > 1 else FIGURE)


if __name__ == "__main__":
    main()
