"""The committed rows of the ranking study: as the page shows them, and as was expected before training."""

from __future__ import annotations

import importlib.util
import json
from dataclasses import fields
from math import sqrt
from pathlib import Path

import polars as pl
import pytest
from scipy.stats import kendalltau

pytestmark = pytest.mark.slow

pytest.importorskip("torch")

ROOT = Path(__file__).resolve().parents[2]
WEIGHTS = (
    "frobenius_squared",
    "mean_log_norm",
    "log10_worst_case",
    "log10_spectrum_adaptive",
    "log10_edelman",
)


@pytest.fixture(scope="module")
def rows():
    return pl.read_csv(ROOT / "docs" / "experiments" / "ranking" / "runs.csv")


@pytest.fixture(scope="module")
def columns(study, rows):
    return study.ranking_table.columns_of(study.ranking_table.with_gap(rows), study.train_ranking.all_runs())


def test_the_page_and_the_file_show_what_the_rows_give(study, rows):
    """tables.txt has every table, and the page has the first of them once the site is built."""
    tables = study.ranking_study.tables(rows, study.train_ranking.all_runs())
    saved = (ROOT / "docs" / "experiments" / "ranking" / "tables.txt").read_text(encoding="utf-8")
    assert saved == "\n\n".join(tables) + "\n"
    spec = importlib.util.spec_from_file_location("measured", ROOT / "docs" / "hooks" / "measured.py")
    hook = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(hook)
    page = hook.on_page_markdown((ROOT / "docs" / "theory" / "numbers.md").read_text(encoding="utf-8"))
    assert f"\n\n{tables[0]}\n\n" in page


def test_rows_are_those_of_the_runs(study, rows):
    """Each row has the factors of the run of its number, and ended by the family's rule."""
    runs = {(run.family, run.seed, run.number): run for run in study.train_ranking.all_runs()}
    names = [field.name for field in fields(study.ranking_tasks.Run)]
    for row in rows.iter_rows(named=True):
        run = runs[row["family"], row["seed"], row["number"]]
        assert {name: row[name] for name in names} == {name: getattr(run, name) for name in names}
        family = study.ranking_tasks.FAMILIES[run.family]
        assert row["steps"] == family.steps or row["loss"] < family.loss
        assert row["ties"] == row["flat"] == 0
    recipe = json.loads((ROOT / "docs" / "experiments" / "ranking" / "recipe.json").read_text())
    assert recipe["families"] == json.loads(json.dumps(study.train_ranking.recipe()["families"]))


def untied_pairs(values):
    counts = values.value_counts()["count"]
    return (len(values) ** 2 - int((counts**2).sum())) // 2


def test_taus_are_those_of_scipy(study, columns):
    """tau-a from scipy's tau-b, which divides by sqrt(untied pairs of x times untied pairs of the gap)."""
    table = study.ranking_table.table(columns)
    for row in table.filter(pl.col("measure").is_in(["mean_log_distance", "parameters"])).iter_rows(
        named=True
    ):
        total = pairs = 0
        for _, group in columns[row["column"]].group_by("n"):
            count = group.height * (group.height - 1) // 2
            x, y = (untied_pairs(group[name]) for name in (row["measure"], "gap"))
            total += kendalltau(group[row["measure"]], group["gap"]).statistic * sqrt(x * y)
            pairs += count
        assert row["tau"] == pytest.approx(total / pairs, abs=1e-12)


def digits_with_few(columns):
    digits = {name: table.filter(n=100) for name, table in columns.items() if name.startswith("digits")}
    assert digits
    return digits.values()


def test_digits_come_out_as_was_expected(study, columns):
    """Ranges that were stated before these runs were trained, from five repeats with other training sets."""
    agreement = study.ranking_table.agreement
    for table in digits_with_few(columns):
        distance, unsure = (agreement(table, name) for name in ("mean_log_distance", "unsure"))
        assert 0.5 < distance.tau < 0.85
        assert distance.tau > unsure.tau - 0.05
        assert 0.25 < agreement(table, "mean_log_distance", ("n", "noise")).tau < 0.7
        for name in WEIGHTS:
            assert -0.45 < agreement(table, name).tau < 0.35


def test_mod_comes_out_as_was_expected(study, columns):
    tables = [table for name, table in columns.items() if name.startswith("mod")]
    assert tables
    for table in tables:
        assert 0.5 < study.ranking_table.agreement(table, "mean_log_distance").tau < 0.85


def test_weights_alone_order_mod_and_not_digits(study, columns):
    """Above zero by two errors on mod, and on digits not: no score for both."""
    agreement = study.ranking_table.agreement
    names = ("frobenius_squared", "stable_rank", "tail_exponent", "log10_worst_case", "log10_fixed_p_2")
    for name in (*names, "log10_spectrum_adaptive", "log10_edelman", "log10_trauger_tewari"):
        on_mod, on_digits = agreement(columns["mod 0"], name), agreement(columns["digits 0"], name)
        assert on_mod.tau > 2 * on_mod.error
        assert on_digits.tau < 2 * on_digits.error


def test_the_figure_has_every_measure_and_family(study, columns):
    text = json.dumps(study.ranking_figure.chart(columns).to_dict())
    assert all(measure.label in text for measure in study.ranking_measures.MEASURES)
    assert all(column in text for column in columns)


def test_the_band_is_the_range_of_tau_between_seeds(study, columns):
    """Equal gaps agree wholly, reversed ones not at all; without a second seed there is no band."""
    table, band = columns["mod 0"], study.ranking_figure.seed_band
    assert band({"mod 0": table}) is None
    shifted, reversed_ = (table.with_columns(gap=f(pl.col("gap"))) for f in (lambda x: x + 1, lambda x: -x))
    untied = (
        1
        - study.ranking_table.agreement(table, "gap").tied / study.ranking_table.agreement(table, "gap").pairs
    )
    low, high = band({"mod 0": table, "mod 1": shifted})
    assert low <= untied <= high
    assert band({"mod 0": table, "mod 1": reversed_}) == pytest.approx((-high, -low))
