"""What ranks trained models by their generalization gap: measures over families of small Transformers.

    python docs/experiments/ranking/ranking_study.py [--quick | --train]

prints the tables from the rows in this folder. tables.txt has them; docs/theory/numbers.md shows the first.
`--quick` trains 64 small models of digits and ranks them, in about 4 minutes. `--train` trains and measures
all 400, in about an hour on two cores.

Rows: runs.csv, one for each run with its factors, errors and measures, and recipe.json. Trained weights are
kept under --weights, and what is there already is not trained again. `ranking_figure.py` draws the figure.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import polars as pl
from ranking_measures import MEASURES, row_of
from ranking_pilot import beside_the_pilot
from ranking_table import (
    ALL_FACTORS,
    Agreement,
    agreement,
    columns_of,
    missing,
    second_seed,
    seed_to_seed,
    sign_test,
    table,
    with_gap,
)
from ranking_tasks import FAMILIES, Run
from train_ranking import all_runs, file_of, in_workers, is_quick, recipe, train_all

from attnlaw.core.files import write_all

HERE = Path(__file__).parent
SHOWN = ("mean_log_distance", "unsure")  # factor by factor


def main() -> None:
    parser = argparse.ArgumentParser(description="What ranks trained models by their generalization gap.")
    parser.add_argument("--train", action="store_true", help="train what is missing, measure, write rows")
    parser.add_argument("--quick", action="store_true", help="the same for digits with 100 examples; no rows")
    parser.add_argument("--weights", type=Path, default=HERE / "weights")
    parser.add_argument("--out", type=Path, default=HERE, help="where the rows go, or are")
    parser.add_argument("--workers", type=int, default=2)
    options = parser.parse_args()
    expected = [run for run in all_runs() if is_quick(run) or not options.quick]
    if options.train or options.quick:
        train_all(expected, options.weights, options.workers)
        rows = measured(expected, options.weights, options.workers)
    else:
        rows = pl.read_csv(options.out / "runs.csv")
    if options.train:
        write_rows(rows, options.out)
    print("\n\n".join(tables(rows, expected)))


def measured(expected: Sequence[Run], weights: Path, workers: int) -> pl.DataFrame:
    """The rows of all expected runs whose weights are there."""
    files = [path for run in expected if (path := file_of(run, weights)).exists()]
    rows = list(in_workers(row_of, [(path,) for path in files], workers))
    return pl.DataFrame(rows, infer_schema_length=None).sort("family", "seed", "number")


def write_rows(rows: pl.DataFrame, out: Path) -> None:
    """runs.csv with eight digits of each number, and the recipe."""
    out.mkdir(parents=True, exist_ok=True)
    table = rows.with_columns(pl.col(pl.Float64).round_sig_figs(8)).write_csv()
    settings = json.dumps(recipe(), indent=2) + "\n"
    write_all({out / "runs.csv": table.encode(), out / "recipe.json": settings.encode()})


def tables(rows: pl.DataFrame, expected: Sequence[Run]) -> list[str]:
    """All tables of the study in Markdown, and a line for what is missing."""
    rows = with_gap(rows)
    columns = columns_of(rows, expected)
    if not columns:
        raise SystemExit("no family has all of its runs for a seed and n; train them with --train")
    taus = table(columns)
    lacking = [f"{column} ({count})" for column, count in missing(rows, expected).items()]
    texts = [
        short_table(taus),
        measure_table(taus),
        check_table(columns),
        psi_table(taus),
        tie_table(taus),
        family_table(columns),
    ]
    titles, lines = beside_the_pilot(taus)
    texts += [markdown(titles, lines)] if lines else []
    return texts + ([f"Missing runs: {', '.join(lacking)}."] if lacking else [])


def short_table(taus: pl.DataFrame) -> str:
    """tau of every measure by family, the values of two seeds in one cell."""
    family = pl.col("column").str.split(" ").list.first()
    families = taus.select(family).to_series().unique(maintain_order=True).to_list()
    lines = []
    for measure in MEASURES:
        cells = []
        for name in families:
            of_family = taus.filter(family == name, measure=measure.name)
            columns = of_family.select("tau", "error", "pairs", "tied").iter_rows()
            cells.append(", ".join(str(Agreement(*row)) for row in columns))
        lines.append([measure.label, measure.needs, *cells])
    return markdown(["measure", "needs", *families], lines)


def measure_table(taus: pl.DataFrame) -> str:
    """tau of every measure in every column, within one noise level where there are two, and the sign test."""
    columns = taus["column"].unique(maintain_order=True).to_list()
    noisy = taus.filter("noisy")["column"].unique(maintain_order=True).to_list()
    lines = []
    for measure in MEASURES:
        of_measure = taus.filter(measure=measure.name)
        positive, count, chance = sign_test(of_measure["tau"].to_list())
        signs = f"{positive} of {count}" + ("" if chance is None else f", p = {chance:.2g}")
        whole = [Agreement(*row) for row in of_measure.select("tau", "error", "pairs", "tied").iter_rows()]
        inside = of_measure.filter("noisy").select("tau_within_noise", "error_within_noise")
        within = [Agreement(*row, pairs=0, tied=0) for row in inside.iter_rows()]
        lines.append([measure.label, measure.needs, *map(str, whole), *map(str, within), signs])
    inner = [f"{column}, one noise level" for column in noisy]
    return markdown(["tau with the gap", "needs", *columns, *inner, "positive"], lines)


def check_table(columns: Mapping[str, pl.DataFrame]) -> str:
    """Some measures among the runs that reached the loss, and with the test error instead of the gap."""
    lines = []
    for measure in (entry for entry in MEASURES if entry.name in SHOWN):
        for column, runs in columns.items():
            loss = FAMILIES[runs["family"][0]].loss
            ended = "" if loss is None else str(agreement(runs.filter(pl.col("loss") < loss), measure.name))
            with_test = str(agreement(runs, measure.name, target="test_error"))
            lines.append([measure.label, column, str(agreement(runs, measure.name)), ended, with_test])
    titles = ["tau", "family", "with the gap", "runs that reached the loss", "with the test error"]
    return markdown(titles, lines)


def psi_table(taus: pl.DataFrame) -> str:
    """Psi of each factor for some measures, columns one after the other."""
    lines = []
    for measure in (entry for entry in MEASURES if entry.name in SHOWN):
        for row in taus.filter(measure=measure.name).iter_rows(named=True):
            values = [row[f"psi_{factor}"] for factor in ALL_FACTORS]
            cells = ["" if value is None else f"{value:.2f}" for value in values]
            lines.append([measure.label, row["column"], *cells])
    return markdown(["Psi", "family", *ALL_FACTORS], lines)


def tie_table(taus: pl.DataFrame) -> str:
    """The measures that tie some pairs, with the share of pairs that they tie."""
    columns = taus["column"].unique(maintain_order=True).to_list()
    lines = []
    for measure in MEASURES:
        of_measure = taus.filter(measure=measure.name)
        if of_measure["tied"].sum():
            shares = (of_measure["tied"] / of_measure["pairs"]).to_list()
            lines.append([measure.label, *(f"{share:.1%}" if share else "" for share in shares)])
    return markdown(["pairs that it ties", *columns], lines)


def family_table(columns: Mapping[str, pl.DataFrame]) -> str:
    """What each family is: runs, range of the gap, runs that missed the loss, seeds, cost."""
    lines = []
    for column, runs in columns.items():
        family = FAMILIES[runs["family"][0]]
        missed = "" if family.loss is None else str(runs.filter(pl.col("loss") >= family.loss).height)
        agreed = seed_to_seed(runs, other) if (other := second_seed(column, columns)) is not None else {}
        lines.append(
            [
                column,
                str(runs.height),
                f"{runs['gap'].min():.3f} to {runs['gap'].max():.3f}",
                f"{agreement(runs, 'gap').tied / agreement(runs, 'gap').pairs:.1%}",
                missed,
                ", ".join(f"{tau} (n = {n})" for n, tau in agreed.items()),
                f"{runs['cpu_seconds'].sum() / 60:.1f}",
            ]
        )
    titles = ["family", "runs", "gap", "tied gaps", "missed the loss", "gap, seed to seed", "CPU minutes"]
    return markdown(titles, lines)


def markdown(titles: Sequence[str], lines: Iterable[Sequence[str]]) -> str:
    rows = [titles, ["---"] * len(titles), *lines]
    return "\n".join("| " + " | ".join(row) + " |" for row in rows)


if __name__ == "__main__":
    main()
