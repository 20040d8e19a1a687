"""The arithmetic of the ranking study: how well a measure orders the runs of a family by their gap.

| symbol | here |
|---|---|
| gap | (1 - nu) test error + nu (1 - 1/K) - training error, nu the label noise, K classes |
| tau | mean of sign(x_i - x_j) sign(gap_i - gap_j) over pairs of runs with the same n (Kendall's tau-a) |
| error | jackknife: runs left out one at a time, sqrt((R - 1)/R sum (tau_i - mean)^2) |
| Psi | the same mean over the pairs that differ in one factor alone |

Noisy labels are wrong with probability nu (1 - 1/K) for whoever knows the task: without that term of the gap
label noise would look like overfitting. A measure that is the same in all runs to be compared has no tau: it
is constant. A column is one family and seed with all of its runs, or all of those with some n.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import comb, sqrt
from typing import Any

import numpy as np
import polars as pl
from ranking_measures import MEASURES
from ranking_tasks import FAMILIES, Run

ALL_FACTORS = ("n", "decay", "width", "depth", "rate", "noise", "dropout", "draw")


@dataclass(frozen=True)
class Agreement:
    """tau with its jackknife error over `pairs`, of which the measure ties `tied`; None: it is constant."""

    tau: float | None
    error: float | None
    pairs: int
    tied: int

    def __str__(self) -> str:
        """.71(2), or constant."""
        if self.tau is None:
            return "constant"
        digits = "" if self.error is None else f"({100 * self.error:.0f})"
        return f"{round(self.tau, 2) + 0.0:.2f}".replace("0.", ".") + digits  # + 0.0: never -.00


def with_gap(rows: pl.DataFrame) -> pl.DataFrame:
    """Rows with the column `gap`."""
    classes = pl.col("family").replace_strict({name: family.classes for name, family in FAMILIES.items()})
    noise = pl.col("noise")
    expected = (1 - noise) * pl.col("test_error") + noise * (1 - 1 / classes)
    return rows.with_columns(gap=expected - pl.col("training_error"))


def columns_of(rows: pl.DataFrame, expected: Sequence[Run]) -> dict[str, pl.DataFrame]:
    """The rows of each family and seed that has all of its expected runs, by a name such as `digits 0`.

    Where some are missing, those values of n that have all of theirs: `digits 1, n = 100`.
    """
    known = set(rows.select("family", "seed", "number").iter_rows())
    columns = {}
    families = list(FAMILIES)
    ordered = sorted(expected, key=lambda run: (families.index(run.family), run.seed, run.number))
    for column, runs in _grouped(ordered, _column).items():
        parts = _grouped(runs, lambda run: run.n)
        whole = {n: part for n, part in parts.items() if all(_key(run) in known for run in part)}
        if whole:
            complete = len(whole) == len(FAMILIES[runs[0].family].factors["n"])
            name = column if complete else f"{column}, n = {', '.join(map(str, whole))}"
            chosen = pl.col("n").is_in(list(whole))
            columns[name] = rows.filter(chosen, family=runs[0].family, seed=runs[0].seed).sort("number")
    return columns


def missing(rows: pl.DataFrame, expected: Sequence[Run]) -> dict[str, int]:
    """How many runs the families lack that are not complete."""
    known = set(rows.select("family", "seed", "number").iter_rows())
    return dict(Counter(_column(run) for run in expected if _key(run) not in known))


def _grouped(runs: Iterable[Run], key: Callable[[Run], Any]) -> dict[Any, list[Run]]:
    groups: dict[Any, list[Run]] = {}
    for run in runs:
        groups.setdefault(key(run), []).append(run)
    return groups


def _column(run: Run) -> str:
    return f"{run.family} {run.seed}"


def _key(run: Run) -> tuple[str, int, int]:
    return run.family, run.seed, run.number


def agreement(
    runs: pl.DataFrame, measure: str, same: Sequence[str] = ("n",), target: str = "gap"
) -> Agreement:
    """tau of a measure with the gap over the pairs of runs that agree in each factor of `same`.

    >>> rows = pl.DataFrame({"n": [1, 1, 1], "x": [1.0, 2.0, 3.0], "gap": [0.1, 0.3, 0.2]})
    >>> str(agreement(rows, "x"))
    '.33(94)'
    """
    pairs = np.ones((runs.height, runs.height), dtype=bool)
    np.fill_diagonal(pairs, False)
    for factor in same:
        pairs &= _equal(runs[factor])
    moves = _signs(runs[measure])
    return _agreement(moves * _signs(runs[target]), pairs, int((pairs & (moves == 0)).sum()) // 2)


def _agreement(concordance: np.ndarray, pairs: np.ndarray, tied: int) -> Agreement:
    """The mean over pairs and its jackknife error, both from the sums over the pairs of each run."""
    sums, counts = np.where(pairs, concordance, 0).sum(axis=1), pairs.sum(axis=1)
    count = int(counts.sum()) // 2
    if tied == count:
        return Agreement(None, None, count, tied)
    total, R = sums.sum() / 2, len(pairs)
    left_out = (total - sums) / (count - counts)
    error = sqrt((R - 1) / R * float(((left_out - left_out.mean()) ** 2).sum()))
    return Agreement(float(total / count), error, count, tied)


def psi(runs: pl.DataFrame, measure: str) -> dict[str, float | None]:
    """For each factor the mean sign agreement of pairs that differ in it alone; None where it is fixed."""
    agrees = _signs(runs[measure]) * _signs(runs["gap"])
    agreements: dict[str, float | None] = {}
    for factor in ALL_FACTORS:
        pairs = ~_equal(runs[factor])
        for other in ALL_FACTORS:
            if other != factor:
                pairs &= _equal(runs[other])
        agreements[factor] = float(agrees[pairs].mean()) if pairs.any() else None
    return agreements


def seed_to_seed(first: pl.DataFrame, second: pl.DataFrame) -> dict[int, Agreement]:
    """tau between the gaps of equal runs of two seeds for each n that both have."""
    both = first.select("number", "n", "gap").join(second.select("number", other=pl.col("gap")), on="number")
    return {n: agreement(both.filter(n=n), "other") for n in sorted(both["n"].unique())}


def second_seed(column: str, columns: Mapping[str, pl.DataFrame]) -> pl.DataFrame | None:
    """The runs of seed 1 for the column of seed 0 of the same family; None for other columns."""
    family, seed = column.split(",")[0].split()
    if seed != "0":
        return None
    return next((runs for name, runs in columns.items() if name.startswith(f"{family} 1")), None)


def sign_test(taus: Sequence[float | None]) -> tuple[int, int, float | None]:
    """How many of the columns have tau > 0, of how many, and the chance of so many under fair signs.

    >>> sign_test([0.7, 0.6, 0.5, 0.3, 0.1])
    (5, 5, 0.03125)
    """
    known = [tau for tau in taus if tau]
    positive, count = sum(tau > 0 for tau in known), len(known)
    if not count:
        return 0, 0, None
    return positive, count, sum(comb(count, k) for k in range(positive, count + 1)) / 2**count


def table(columns: Mapping[str, pl.DataFrame]) -> pl.DataFrame:
    """One row for each measure and column: tau, its error, tied pairs, tau within a noise level, Psi."""
    rows = []
    for column, runs in columns.items():
        noisy = runs["noise"].n_unique() > 1
        for measure in MEASURES:
            whole = agreement(runs, measure.name)
            within = agreement(runs, measure.name, ("n", "noise")) if noisy else None
            rows.append(
                {
                    "measure": measure.name,
                    "column": column,
                    "tau": whole.tau,
                    "error": whole.error,
                    "pairs": whole.pairs,
                    "tied": whole.tied,
                    "noisy": noisy,
                    "tau_within_noise": within and within.tau,
                    "error_within_noise": within and within.error,
                    **{f"psi_{factor}": value for factor, value in psi(runs, measure.name).items()},
                }
            )
    return pl.DataFrame(rows, infer_schema_length=None)


def _signs(values: pl.Series) -> np.ndarray:
    """sign(x_i - x_j) of all pairs, by comparisons: infinities are ranked too."""
    x = values.to_numpy()
    return (x[:, None] > x).astype(int) - (x[:, None] < x)


def _equal(values: pl.Series) -> np.ndarray:
    x = values.to_numpy()
    return x[:, None] == x
