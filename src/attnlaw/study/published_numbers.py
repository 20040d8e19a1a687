"""Numbers of others beside the rows of a study.

`published/STUDY.csv` has a line for each number: `quantity`, `value`, `error` (one standard error or
deviation; empty where none is known), `kind`, `source`, and, under their names, the settings of the rows that
it belongs to (empty: any). Several such rows are repetitions: their mean is ours, its error from theirs, or
from their spread where they have none. The kinds:

published  stands in the paper, or in files that its authors published
reference  of an independent program that shares no code with attnlaw; not the paper's
beside     published, of another algorithm or size: shown beside ours, no test of it
"""

from __future__ import annotations

import csv
import math
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from attnlaw.core.estimate import Estimate
from attnlaw.core.quantity import Quantity

if TYPE_CHECKING:
    import polars as pl

FOLDER = Path(__file__).parent / "published"
NUMBER_COLUMNS = ("quantity", "value", "error", "kind", "source")
# Columns of published.csv. `difference` is ours over theirs, less 1; `z` is the difference over both errors
# together, null where neither side is drawn at random.
COMPARISON = (
    *(Quantity(name, kind="text") for name in ("paper", "study", "case", "quantity", "kind")),
    *(Quantity(name, error=True) for name in ("published", "ours")),
    *(Quantity(name) for name in ("difference", "z")),
    Quantity("source", kind="text"),
)
SETTING_TOLERANCE = 1e-9  # of a setting that was written in decimals


def published_lines(study: str) -> list[dict[str, str]]:
    """The lines of a study, none where nobody's numbers are known."""
    file = FOLDER / f"{study}.csv"
    if not file.exists():
        return []
    with file.open(encoding="utf-8", newline="") as lines:
        return list(csv.DictReader(lines))


def compare(paper: str, study: str, rows: pl.DataFrame, random_verbs: Iterable[str]) -> list[dict[str, Any]]:
    """Compare published numbers with ours, as far as the rows have them; `random_verbs` draw at random."""
    comparisons = []
    for line in published_lines(study):
        settings = {name: value for name, value in line.items() if name not in NUMBER_COLUMNS and value}
        pair = _our_estimate(rows, line["quantity"], settings, frozenset(random_verbs))
        if pair is None:
            continue
        ours, is_random = pair
        theirs = Estimate(float(line["value"]), float(line["error"]) if line["error"] else None)
        comparisons.append(
            {
                "paper": paper,
                "study": study,
                "case": "; ".join(
                    f"{name.replace('_', ' ')} {_short(value)}" for name, value in settings.items()
                ),
                "settings": settings,
                "quantity": line["quantity"],
                "kind": line["kind"],
                "published": theirs,
                "ours": ours,
                "difference": ours.value / theirs.value - 1.0 if theirs.value else None,
                "z": None if line["kind"] == "beside" else _z(theirs, ours, is_random),
                "source": line["source"],
            }
        )
    return comparisons


def _short(text: str) -> str:
    """A number to six digits; any other text as it is."""
    try:
        return f"{float(text):.6g}"
    except ValueError:
        return text


def _z(theirs: Estimate, ours: Estimate, is_random: bool) -> float | None:
    """How many errors they are apart; the error of a solver alone is no scale for digits of others."""
    if theirs.error is None and not is_random:
        return None
    both = math.hypot(theirs.error or 0.0, ours.error or 0.0)
    return (ours.value - theirs.value) / both if both else None


def _our_estimate(
    rows: pl.DataFrame, quantity: str, settings: Mapping[str, str], random_verbs: frozenset[str]
) -> tuple[Estimate, bool] | None:
    """The value in the rows of these settings, and whether it is drawn at random."""
    import polars as pl

    if quantity in DERIVED:
        derived = DERIVED[quantity](rows)
        return None if derived is None else (Estimate(derived), False)
    if not {quantity, *settings} <= set(rows.columns):
        return None
    for name, value in settings.items():
        if rows[name].dtype.is_numeric():
            number = float(value)
            rows = rows.filter(
                (pl.col(name) == number) | ((pl.col(name) / number - 1.0).abs() < SETTING_TOLERANCE)
            )
        else:
            rows = rows.filter(pl.col(name).cast(pl.String) == value)
    rows = rows.filter(pl.col(quantity).is_not_null())
    if not rows.height:
        return None
    random = bool(set(rows["verb"]) & random_verbs)
    values = rows[quantity].cast(pl.Float64).to_list()
    mean = math.fsum(values) / len(values)
    error = f"{quantity}_error"
    stated = rows[error].drop_nulls().to_list() if error in rows.columns else []
    if len(stated) == len(values):
        return Estimate(mean, math.hypot(*stated) / len(stated)), random
    if len(values) == 1:
        return Estimate(mean), random
    spread = math.fsum((value - mean) ** 2 for value in values) / (len(values) - 1)
    return Estimate(mean, math.sqrt(spread / len(values))), random


def _crossing(rows: pl.DataFrame) -> float | None:
    """beta at which errors of narrow keys with wide values and of equal ones cross: a cubic by 4 points."""
    import numpy as np
    import polars as pl

    narrow, equal = (rows.filter(pl.col("head_size") == size).sort("beta") for size in (64, 128))
    beta = narrow["beta"].to_numpy()
    if narrow.height < 4 or beta.tolist() != equal["beta"].to_list():
        return None
    apart = np.log((narrow["coefficient_error"] / equal["coefficient_error"]).to_numpy())
    (turns,) = np.nonzero(np.diff(np.sign(apart)))
    if not turns.size:
        return None
    first = int(np.clip(turns[0] - 1, 0, beta.size - 4))
    near = slice(first, first + 4)
    return float(np.polyval(np.polyfit(apart[near], beta[near], 3), 0.0))


# Numbers that no single row has: a function of all rows of the study.
DERIVED: dict[str, Callable[[pl.DataFrame], float | None]] = {"crossing_beta": _crossing}
