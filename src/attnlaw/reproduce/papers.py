"""Papers, their figures, the shipped study that repeats each, and numbers of others beside its rows.

This is what `attnlaw reproduce` shows. A figure goes by the name of its study. If a paper has no numbers that
can be compared, `Paper.numbers` says why.

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
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from attnlaw.core.errors import InputError
from attnlaw.core.estimate import Estimate
from attnlaw.core.quantity import Quantity
from attnlaw.core.settings import parse_number

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
ABSTRACT = "only its abstract was at hand; no number of its figures can be compared"


@dataclass(frozen=True)
class PaperFigure:
    """A figure or a table of a paper, and the study of this name that repeats it."""

    study: str
    about: str
    needs: str = ""  # what must be there beside attnlaw
    large: bool = False  # takes an hour or a network: left out of a quick run


@dataclass(frozen=True)
class Paper:
    """A paper by its number on arXiv; `numbers`: what of its numbers can be compared."""

    arxiv: str
    title: str
    figures: tuple[PaperFigure, ...]
    numbers: str = ""


PAPERS = (
    Paper(
        "2605.07297",
        "Spectrum-adaptive bounds",
        (
            PaperFigure(
                "bounds-reference",
                "proxies of a trained BERT, reference values",
                needs="pip install --no-deps rxnfp==0.1.0 (its weights), and the extra torch",
            ),
            PaperFigure(
                "bounds-miniatures",
                "proxies of the 24 BERT miniatures by depth and width",
                needs="the extras hub and torch, and a network",
                large=True,
            ),
        ),
        "its values of the miniatures are read off figures; an independent program's values of another "
        "trained BERT take their place",
    ),
    Paper(
        "2506.00846",
        "Infinite-width limit of an attention layer",
        (
            PaperFigure("limit-width", "distance to the limit against the width"),
            PaperFigure("limit-heads", "one head and many, and the way to a Gaussian"),
            PaperFigure("limit-scaling", "scalings 1/sqrt(n) and 1/n"),
            PaperFigure("limit-low-rank", "low-rank heads"),
            PaperFigure("limit-relu", "ReLU tokens"),
        ),
        "it shows curves; an independent program's values, of its recipe of kernels too, take their place",
    ),
    Paper(
        "2610.10033",
        "Spectrum of multi-head attention",
        (
            PaperFigure("limit-spectrum", "softmax attention and its Gaussian equivalent (table D.2)"),
            PaperFigure("limit-spectrum-large", "the two largest rows of that table", large=True),
            PaperFigure("limit-readout", "readouts: narrow keys against wide ones (D.1)"),
            PaperFigure("limit-arrival", "arrival times of gradient flow"),
        ),
    ),
    Paper(
        "2509.24914",
        "Single-head attention in high dimensions",
        (
            PaperFigure("learn-curves", "error against samples, three students"),
            PaperFigure("learn-spectrum", "spectrum of the trained matrix"),
            PaperFigure("learn-phase-diagram", "where attention learns its target"),
            PaperFigure("learn-scaling", "exponents for power-law targets"),
        ),
        "it shows curves; an independent program's values of the same equations take their place",
    ),
    Paper(
        "2506.01582",
        "Bayes-optimal learning of attention",
        (PaperFigure("learn-tokens", "E against samples through a softmax of 2, 3 and 4 tokens"),),
    ),
    Paper(
        "2609.03858",
        "Learning dynamics of attention",
        (
            PaperFigure("dynamics-flow", "gradient flow through four outputs"),
            PaperFigure("dynamics-students", "alignment and loss against time, three students"),
            PaperFigure("dynamics-spectra", "the spectrum on its way"),
            PaperFigure("dynamics-cost", "what one pass costs"),
            PaperFigure("dynamics-modes", "modes are learned in order"),
            PaperFigure(
                "dynamics-training",
                "heads of a real model beside the theory's picture",
                needs="the extra torch",
                large=True,
            ),
        ),
        "its figures are images that state neither the scale of the target nor of the start; an independent "
        "program's values take their place",
    ),
    Paper(
        "2108.11489",
        "Interpolation by two linear layers",
        (PaperFigure("regression-scale", "risk against the scale of the start"),),
        ABSTRACT,
    ),
    Paper(
        "2406.03171",
        "Importance weights under covariate shift",
        (PaperFigure("regression-shift", "weights and risk against the ridge"),),
        ABSTRACT,
    ),
    Paper(
        "2007.08322",
        "Early stopping of factors",
        (PaperFigure("early-stopping", "risk against the threshold of stopping"),),
        ABSTRACT,
    ),
    Paper(
        "2405.13721",
        "Matrix completion",
        (PaperFigure("complete-connectivity", "a missing entry against the scale of the start"),),
        ABSTRACT,
    ),
    Paper(
        "2201.13383",
        "Ensembles of learners",
        (PaperFigure("regression-ensemble", "error of 1, 4 and infinitely many learners"),),
        ABSTRACT,
    ),
)


def find_figures(name: str) -> list[tuple[Paper, PaperFigure]]:
    """The figures of a paper, or the one of a name; an `InputError` where there is neither.

    >>> [figure.study for _, figure in find_figures("2506.01582")]
    ['learn-tokens']
    """
    every = [(paper, figure) for paper in PAPERS for figure in paper.figures]
    pairs = [pair for pair in every if name in (pair[0].arxiv, pair[1].study)]
    if not pairs:
        raise InputError(f"{name}: no such paper or figure; attnlaw reproduce list names them all")
    return pairs


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
    number = parse_number(text)
    return text if isinstance(number, str) else f"{number:.6g}"


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
