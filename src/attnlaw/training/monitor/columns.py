"""The columns of a monitored run's tables, in order. Missing values are null.

`STEPS` (steps.parquet) has one row per measured step. `STEP_MATRICES` (step_matrices.parquet) has one row per
measured step and matrix. `STEP_MODES` (step_modes.parquet) has one row per measured step and mode: a singular
value of a head beyond the edge of its random null.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from attnlaw.analysis.columns import IMBALANCE, LOCATION, OUTLIERS, VERSION
from attnlaw.checkpoints.network import LAYER_GROUPS
from attnlaw.core.quantity import Quantity
from attnlaw.theory.bounds import BOUNDS

HEAD_KINDS = ("qk", "vo")
QUANTITIES = (
    *("proxies", "stable_rank", "outliers", "alpha", "factor_excess", "factor_imbalance"),
    *("scores", "means", "modes"),
)
MONITORED = [bound for bound in BOUNDS.values() if bound.monitored]


def _lines(groups: Iterable[str], *names: str) -> dict[str, str]:
    """Return the label of the chart line for each column. Each name and group has one column."""
    labels = {name: f"{name}, " if len(names) > 1 else "" for name in names}
    return {f"{name}_{group}": f"{labels[name]}{group}" for name in names for group in groups}


def _each(groups: Iterable[str], name: str, description: str, *label: Any, **kind: Any) -> list[Quantity]:
    """Return one column for each group. The group's name replaces `{}` in the description."""
    return [Quantity(f"{name}_{group}", description.format(group), *label, **kind) for group in groups]


# Panels of the chart: columns of the steps, and the labels of their lines.
PANELS = {
    "log10 proxy": {f"log10_{bound.name}": bound.short for bound in MONITORED},
    "stable rank, median": _lines(LAYER_GROUPS, "stable_rank"),
    "outliers, total": _lines(LAYER_GROUPS, "outliers"),
    "exponent α, median": _lines(LAYER_GROUPS, "alpha"),
    "excess of the factors, median": _lines(HEAD_KINDS, "factor_excess"),
    "imbalance of the factors over its start, median": _lines(HEAD_KINDS, "factor_imbalance_kept"),
    "AᵀA − BᵀB of the factors over its start, median": _lines(HEAD_KINDS, "factor_difference_kept"),
    "mean and Frobenius norm of heads, median": _lines(HEAD_KINDS, "mean", "frobenius"),
    "stronger first, τ": _lines(HEAD_KINDS, "stronger_first"),
    "spread of logits, median": {"score_spread_qk": "qk"},
    "bound of logits, largest": {"logit_bound": "qk"},
    "mean log D of inputs": {"margins_mean_log": "D"},
}
STEPS = (
    Quantity("step", "of the optimizer", kind="int"),
    Quantity("model", "what rows call the model", kind="text"),
    *(Quantity(f"log10_{bound.name}", f"log10 of the proxy: {bound.label}") for bound in MONITORED),
    *_each(LAYER_GROUPS, "stable_rank", "median over the matrices of {}"),
    *_each(LAYER_GROUPS, "outliers", "sum over the matrices of {}", kind="int"),
    *_each(LAYER_GROUPS, "alpha", "median over the matrices of {}"),
    *_each(HEAD_KINDS, "factor_excess", "of the factors, median over the heads of {}"),
    *_each(HEAD_KINDS, "factor_imbalance_kept", "factor_imbalance over its start, median over heads of {}"),
    *_each(
        HEAD_KINDS,
        "factor_difference_kept",
        "‖AᵀA − BᵀB‖ over its start, median over heads of {}; gradient flow keeps 1 without decay",
    ),
    *_each(HEAD_KINDS, "mean", "|Tr M|/√N, median over heads of {}"),
    *_each(HEAD_KINDS, "frobenius", "‖M‖_F/√N, median over heads of {}"),
    *_each(
        HEAD_KINDS,
        "stronger_first",
        "1 where larger modes of {} left the bulk earlier, -1 later: Kendall's τ within heads",
        "τ",
    ),
    *_each(HEAD_KINDS, "stronger_first_p", "its one-sided p-value among orders of {} by chance", "p"),
    Quantity("score_spread_qk", "spread of logits over isotropic tokens (logit_typical), median over heads"),
    Quantity("logit_bound", "the largest bound of logits over the heads that have one"),
    Quantity("margins_mean_log", "mean of log D on the inputs that were given", error=True),
    Quantity("margins_median", "median of D on them"),
    Quantity("seconds", "CPU seconds that the measurement took"),
    Quantity("overhead", "CPU time of all measurements of the process over that of its training"),
    Quantity("status", "done, or failed", kind="text"),
    Quantity("remark", "what is missing, and why", kind="text"),
    VERSION,
)
STEP_MATRICES = (
    STEPS[0],
    *LOCATION,
    Quantity("spectral_norm", "the largest singular value", log=True),
    Quantity("log10_contribution", "what it adds to the proxy", "log₁₀ C(p*)"),
    Quantity("stable_rank", "Frobenius norm squared over spectral norm squared", log=True),
    Quantity("outliers", OUTLIERS.description, kind="int"),
    Quantity("alpha", "exponent of a power law of the upper eigenvalues", "α"),
    Quantity("factor_excess", "of the factors of a head over the smallest ones with its product"),
    IMBALANCE,
    Quantity("factor_difference", "‖AᵀA − BᵀB‖ of them, Frobenius norm", log=True),
    Quantity("factor_imbalance_kept", "factor_imbalance over its start"),
    Quantity("factor_difference_kept", "factor_difference over its start"),
    Quantity("mean", "Tr M/√N of a head's product M; null where it is not square"),
    Quantity("frobenius", "‖M‖_F/√N of it"),
)
STEP_MODES = (
    STEPS[0],
    *LOCATION,
    Quantity("mode", "its number in the head, in the order in which modes left the bulk", kind="int"),
    Quantity("left_step", "the measured step at which it left; null where it stood out first", kind="int"),
    Quantity("value", "the singular value", log=True),
    Quantity("edge", "of the bulk: what the largest value of the null exceeds once in a hundred draws"),
)
