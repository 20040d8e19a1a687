"""The columns of a monitored run's tables, in order. Missing values are null.

`STEPS` (steps.parquet) has one row per measured step. `STEP_MATRICES` (step_matrices.parquet) has one row per
measured step and matrix. `STEP_MODES` (step_modes.parquet) has one row per measured step and mode: a singular
value of a head beyond the edge of its random null.
"""

from __future__ import annotations

from attnlaw.analysis.columns import IMBALANCE, LOCATION, OUTLIERS, VERSION
from attnlaw.checkpoints.network import LAYER_GROUPS
from attnlaw.core.quantity import Quantity
from attnlaw.theory.bounds import BOUNDS

HEAD_KINDS = ("qk", "vo")
QUANTITIES = (
    *("proxies", "stable_rank", "outliers", "alpha", "factor_excess", "factor_imbalance"),
    *("scores", "means", "modes"),
)
# Panels of the chart: columns of the steps, and the labels of their lines.
PANELS = {
    "log10 proxy": {f"log10_{bound.name}": bound.short for bound in BOUNDS.values() if bound.monitored},
    "stable rank, median": {f"stable_rank_{group}": group for group in LAYER_GROUPS},
    "outliers, total": {f"outliers_{group}": group for group in LAYER_GROUPS},
    "exponent α, median": {f"alpha_{group}": group for group in LAYER_GROUPS},
    "excess of the factors, median": {f"factor_excess_{group}": group for group in HEAD_KINDS},
    "imbalance of the factors over its start, median": {
        f"factor_imbalance_kept_{group}": group for group in HEAD_KINDS
    },
    "AᵀA − BᵀB of the factors over its start, median": {
        f"factor_difference_kept_{group}": group for group in HEAD_KINDS
    },
    "mean and Frobenius norm of heads, median": {
        f"{name}_{group}": f"{name}, {group}" for name in ("mean", "frobenius") for group in HEAD_KINDS
    },
    "stronger first, τ": {f"stronger_first_{group}": group for group in HEAD_KINDS},
    "spread of logits, median": {"score_spread_qk": "qk"},
    "bound of logits, largest": {"logit_bound": "qk"},
    "mean log D of inputs": {"margins_mean_log": "D"},
}
STEPS = (
    Quantity("step", "of the optimizer", kind="int"),
    Quantity("model", "what rows call the model", kind="text"),
    *(
        Quantity(f"log10_{bound.name}", f"log10 of the proxy: {bound.label}")
        for bound in BOUNDS.values()
        if bound.monitored
    ),
    *(Quantity(f"stable_rank_{group}", f"median over the matrices of {group}") for group in LAYER_GROUPS),
    *(
        Quantity(f"outliers_{group}", f"sum over the matrices of {group}", kind="int")
        for group in LAYER_GROUPS
    ),
    *(Quantity(f"alpha_{group}", f"median over the matrices of {group}") for group in LAYER_GROUPS),
    *(
        Quantity(f"factor_excess_{group}", f"of the factors, median over the heads of {group}")
        for group in HEAD_KINDS
    ),
    *(
        Quantity(
            f"factor_imbalance_kept_{group}", f"factor_imbalance over its start, median over heads of {group}"
        )
        for group in HEAD_KINDS
    ),
    *(
        Quantity(
            f"factor_difference_kept_{group}",
            f"‖AᵀA − BᵀB‖ over its start, median over heads of {group}; gradient flow keeps 1 without decay",
        )
        for group in HEAD_KINDS
    ),
    *(Quantity(f"mean_{group}", f"|Tr M|/√N, median over heads of {group}") for group in HEAD_KINDS),
    *(Quantity(f"frobenius_{group}", f"‖M‖_F/√N, median over heads of {group}") for group in HEAD_KINDS),
    *(
        Quantity(
            f"stronger_first_{group}",
            f"1 where larger modes of {group} left the bulk earlier, -1 later: Kendall's τ within heads",
            "τ",
        )
        for group in HEAD_KINDS
    ),
    *(
        Quantity(f"stronger_first_p_{group}", f"its one-sided p-value among orders of {group} by chance", "p")
        for group in HEAD_KINDS
    ),
    Quantity("score_spread_qk", "spread of logits over isotropic tokens (logit_typical), median over heads"),
    Quantity("logit_bound", "the largest bound of logits over the heads that have one"),
    Quantity("margins_mean_log", "mean of log D on the inputs that were given", error=True),
    Quantity("margins_median", "median of D on them"),
    Quantity("seconds", "that the measurement took"),
    Quantity("overhead", "of all measurements of the process over its training time"),
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
