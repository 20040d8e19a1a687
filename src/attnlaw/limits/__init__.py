"""The law of an attention layer at initialisation: at infinite width, and exactly at any finite one.

The names below are imported when first used: what a layer may be made of is known without mathematics.
"""

from __future__ import annotations

from typing import Any

from attnlaw.base.public import public

_PUBLIC: dict[str, str] = {
    "AttentionLayer": "attnlaw.limits.layer",
    "Depth": "attnlaw.limits.stack",
    "Distances": "attnlaw.limits.distance",
    "GivenInputs": "attnlaw.limits.inputs",
    "OutputLaw": "attnlaw.limits.mixture",
    "PathPoint": "attnlaw.limits.stack",
    "RandomInputs": "attnlaw.limits.inputs",
    "Sample": "attnlaw.limits.layer",
    "Scores": "attnlaw.limits.scores",
    "StackLaw": "attnlaw.limits.stack",
    "StackSample": "attnlaw.limits.stack",
    "WeightVariances": "attnlaw.limits.layer",
    "WidthRow": "attnlaw.limits.compare",
    "compare_widths": "attnlaw.limits.compare",
    "conditional_covariance": "attnlaw.limits.limit",
    "density_rows": "attnlaw.limits.compare",
    "distances": "attnlaw.limits.distance",
    "gaussian_covariance": "attnlaw.limits.limit",
    "gaussian_law": "attnlaw.limits.mixture",
    "kernel_kl": "attnlaw.limits.distance",
    "output_law": "attnlaw.limits.finite",
    "sample": "attnlaw.limits.finite",
    "sample_stack": "attnlaw.limits.stack",
    "score_covariance": "attnlaw.limits.limit",
    "stack_law": "attnlaw.limits.stack",
}

__all__ = sorted(_PUBLIC)


def __getattr__(name: str) -> Any:
    return public(__name__, _PUBLIC, name)
