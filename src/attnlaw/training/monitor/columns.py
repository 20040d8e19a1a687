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
    "total number of directions beyond random weights": _lines(LAYER_GROUPS, "outliers"),
    "median tail exponent (α)": _lines(LAYER_GROUPS, "alpha"),
    "median excess size of a head's factors": _lines(HEAD_KINDS, "factor_excess"),
    "median imbalance of factors, relative to the start": _lines(HEAD_KINDS, "factor_imbalance_kept"),
    "median norm of AᵀA − BᵀB, relative to the start": _lines(HEAD_KINDS, "factor_difference_kept"),
    "medians over heads: mean and Frobenius norm": _lines(HEAD_KINDS, "mean", "frobenius"),
    "do larger directions appear first? (τ)": _lines(HEAD_KINDS, "stronger_first"),
    "median spread of logits": {"score_spread_qk": "qk"},
    "largest bound on the logits": {"logit_bound": "qk"},
    "relative margin (mean log D)": {"margins_mean_log": "D"},
}
STEPS = (
    Quantity("step", "training step (number of optimizer updates so far)", kind="int"),
    Quantity("model", "name of the model", kind="text"),
    *(
        Quantity(f"log10_{bound.name}", f"log10 of the generalization proxy: {bound.label}")
        for bound in MONITORED
    ),
    *_each(
        LAYER_GROUPS,
        "stable_rank",
        "median stable rank of the {} matrices: number of directions that carry most of a matrix",
    ),
    *_each(
        LAYER_GROUPS,
        "outliers",
        "number of singular values of the {} matrices above those of random matrices",
        kind="int",
    ),
    *_each(
        LAYER_GROUPS,
        "alpha",
        "median over the {} matrices of the power-law exponent α of their largest eigenvalues",
    ),
    *_each(
        HEAD_KINDS,
        "factor_excess",
        "how much larger (squared norm) the two factors of {} heads are than their product needs "
        "(median over heads)",
    ),
    *_each(
        HEAD_KINDS,
        "factor_imbalance_kept",
        "median imbalance of the two factors of {} heads, relative to the first measured step",
    ),
    *_each(
        HEAD_KINDS,
        "factor_difference_kept",
        "median of ‖AᵀA − BᵀB‖ over {} heads with factors A and B, relative to the first measured step",
    ),
    *_each(HEAD_KINDS, "mean", "median of |Tr M| / √N over {} heads with N × N matrices M"),
    *_each(
        HEAD_KINDS,
        "frobenius",
        "median of the Frobenius norm ‖M‖_F / √N over {} heads, for matrices M with N rows",
    ),
    *_each(
        HEAD_KINDS,
        "stronger_first",
        "whether larger directions of {} heads grew out of the random bulk first: 1 if always, −1 if "
        "always last (Kendall's τ)",
        "τ",
    ),
    *_each(
        HEAD_KINDS,
        "stronger_first_p",
        "p-value of this order in {} heads: probability that a random order gives the same τ or a larger one",
        "p",
    ),
    Quantity(
        "score_spread_qk",
        "standard deviation of attention logits for tokens in random directions (median over heads)",
    ),
    Quantity(
        "logit_bound",
        "largest attention logit that any input can produce, over all heads for which a limit is known",
    ),
    Quantity(
        "margins_mean_log",
        "mean over the given inputs of log D, for the relative margin D (distance of a "
        "prediction from flipping)",
        error=True,
    ),
    Quantity(
        "margins_median",
        "median over the given inputs of the relative margin D (distance of a prediction from flipping)",
    ),
    Quantity("seconds", "CPU seconds that the measurement took"),
    Quantity("overhead", "CPU time of all measurements so far, relative to the CPU time of the training"),
    Quantity(
        "status",
        "whether the step was measured: done, or failed if the weights could not be measured",
        kind="text",
    ),
    Quantity("remark", "numbers that are missing, with the reason", kind="text"),
    VERSION,
)
STEP_MATRICES = (
    STEPS[0],
    *LOCATION,
    Quantity("spectral_norm", "largest singular value of the matrix", log=True),
    Quantity(
        "log10_contribution",
        "log10 of the matrix's part of the spectrum-adaptive generalization proxy",
        "log₁₀ C(p*)",
    ),
    Quantity("stable_rank", "stable rank: number of directions that carry most of the matrix", log=True),
    Quantity("outliers", OUTLIERS.description, kind="int"),
    Quantity(
        "alpha",
        "exponent of the power law x^−α that fits the largest eigenvalues (squared singular values)",
        "α",
    ),
    Quantity(
        "factor_excess",
        "how much larger (squared norm) a head's two factors are than their product needs: 0 at "
        "best, 0.1 for 10%",
    ),
    IMBALANCE,
    Quantity(
        "factor_difference",
        "difference between the sizes of a head's two factors A and B: Frobenius norm ‖AᵀA − BᵀB‖, 0 "
        "if balanced",
        log=True,
    ),
    Quantity(
        "factor_imbalance_kept",
        "relative imbalance of a head's two factors, as a multiple of that at the first measured step",
    ),
    Quantity(
        "factor_difference_kept",
        "imbalance ‖AᵀA − BᵀB‖ of a head's factors A and B, as a multiple of that at the first measured step",
    ),
    Quantity(
        "mean", "mean eigenvalue of a head's N × N matrix M, times √N (Tr M / √N); null if M is not square"
    ),
    Quantity(
        "frobenius", "Frobenius norm of a head's matrix M, divided by the square root of its number of rows N"
    ),
)
STEP_MODES = (
    STEPS[0],
    *LOCATION,
    Quantity(
        "mode",
        "index of the direction within its head, in the order in which directions grew out of the "
        "random bulk",
        kind="int",
    ),
    Quantity(
        "left_step",
        "first measured step at which the direction was stronger than random ones; null if it always was",
        kind="int",
    ),
    Quantity("value", "singular value of the head's matrix along the direction", log=True),
    Quantity("edge", "singular value that only 1% of random matrices exceed (edge of the random bulk)"),
)
