"""The columns of a monitored run's tables, in order: of each measured step (`STEPS`), of each matrix in it
(`STEP_MATRICES`), and of each mode, a singular value of a head beyond its random null (`STEP_MODES`)."""

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
    "proxy (log₁₀)": {f"log10_{bound.name}": bound.short for bound in MONITORED},
    "median stable rank": _lines(LAYER_GROUPS, "stable_rank"),
    "directions beyond random weights, total": _lines(LAYER_GROUPS, "outliers"),
    "median tail exponent (α)": _lines(LAYER_GROUPS, "alpha"),
    "median excess of a head's factors": _lines(HEAD_KINDS, "factor_excess"),
    "median imbalance of factors, relative to the start": _lines(HEAD_KINDS, "factor_imbalance_kept"),
    "median AᵀA − BᵀB of factors, relative to the start": _lines(HEAD_KINDS, "factor_difference_kept"),
    "median mean and Frobenius norm of heads": _lines(HEAD_KINDS, "mean", "frobenius"),
    "larger directions appear first (τ)": _lines(HEAD_KINDS, "stronger_first"),
    "median spread of logits": {"score_spread_qk": "qk"},
    "largest bound of logits": {"logit_bound": "qk"},
    "relative margin (mean log D)": {"margins_mean_log": "D"},
}
STEPS = (
    Quantity("step", "training step (number of optimizer updates so far)", kind="int"),
    Quantity("model", "name of the model", kind="text"),
    *(
        Quantity(f"log10_{bound.name}", f"log10 of the generalization proxy: {bound.label}")
        for bound in MONITORED
    ),
    *_each(LAYER_GROUPS, "stable_rank", "median stable rank of the {} matrices"),
    *_each(
        LAYER_GROUPS,
        "outliers",
        "number of singular values of the {} matrices beyond the edge of random weights",
        kind="int",
    ),
    *_each(LAYER_GROUPS, "alpha", "median tail exponent α of the {} matrices"),
    *_each(
        HEAD_KINDS,
        "factor_excess",
        "median relative excess of the size of the factors of {} heads over the smallest factors "
        "with the same product",
    ),
    *_each(
        HEAD_KINDS,
        "factor_imbalance_kept",
        "median imbalance of the factors of {} heads, relative to the first measured step",
    ),
    *_each(
        HEAD_KINDS,
        "factor_difference_kept",
        "median ‖AᵀA − BᵀB‖ of the factors of {} heads, relative to the first measured step; gradient flow "
        "without weight decay keeps 1",
    ),
    *_each(HEAD_KINDS, "mean", "median scaled trace |Tr M| / √N of the matrices M of {} heads"),
    *_each(HEAD_KINDS, "frobenius", "median scaled Frobenius norm ‖M‖_F / √N of the matrices M of {} heads"),
    *_each(
        HEAD_KINDS,
        "stronger_first",
        "Kendall's τ between size and time of appearance of directions in {} heads: 1 if larger directions "
        "left the random bulk earlier, −1 if later",
        "τ",
    ),
    *_each(
        HEAD_KINDS,
        "stronger_first_p",
        "probability that a random order of the directions in {} heads gives this τ or more (one-sided)",
        "p",
    ),
    Quantity(
        "score_spread_qk",
        "standard deviation of attention logits for tokens in random directions (median over heads)",
    ),
    Quantity(
        "logit_bound", "largest attention logit that any input could reach, over all heads with a known bound"
    ),
    Quantity(
        "margins_mean_log", "mean over the given inputs of log D, where D is the relative margin", error=True
    ),
    Quantity("margins_median", "median over the given inputs of the relative margin (D)"),
    Quantity("seconds", "CPU seconds that the measurement took"),
    Quantity("overhead", "CPU time of all measurements so far, divided by that of the training"),
    Quantity(
        "status",
        "result of the measurement: done, or failed if the weights could not be measured",
        kind="text",
    ),
    Quantity("remark", "names of the missing numbers, with the reason", kind="text"),
    VERSION,
)
STEP_MATRICES = (
    STEPS[0],
    *LOCATION,
    Quantity("spectral_norm", "largest singular value of the matrix", log=True),
    Quantity(
        "log10_contribution",
        "log10 of the amount that the matrix adds to the generalization proxy",
        "log₁₀ C(p*)",
    ),
    Quantity(
        "stable_rank", "stable rank of the matrix: squared Frobenius norm / squared spectral norm", log=True
    ),
    Quantity("outliers", OUTLIERS.description, kind="int"),
    Quantity(
        "alpha", "exponent of a power law that fits the largest eigenvalues (squared singular values)", "α"
    ),
    Quantity(
        "factor_excess",
        "relative excess of the size of a head's two factors over the smallest factors with the same product",
    ),
    IMBALANCE,
    Quantity(
        "factor_difference", "imbalance of a head's factors A and B: Frobenius norm ‖AᵀA − BᵀB‖", log=True
    ),
    Quantity(
        "factor_imbalance_kept",
        "relative imbalance of a head's two factors, divided by that at the first measured step",
    ),
    Quantity(
        "factor_difference_kept",
        "imbalance ‖AᵀA − BᵀB‖ of a head's factors, divided by that at the first measured step",
    ),
    Quantity("mean", "scaled trace Tr M / √N of a head's matrix M (N × N); null if M is not square"),
    Quantity("frobenius", "scaled Frobenius norm ‖M‖_F / √N of a head's matrix M with N rows"),
)
STEP_MODES = (
    STEPS[0],
    *LOCATION,
    Quantity(
        "mode",
        "index of the direction in its head, in the order in which directions leave the random bulk",
        kind="int",
    ),
    Quantity(
        "left_step",
        "first measured step at which the direction was outside the random bulk; null if it always was",
        kind="int",
    ),
    Quantity("value", "singular value of the head's matrix along the direction", log=True),
    Quantity("edge", "edge of the random bulk: only 1% of random matrices have a singular value above it"),
)
