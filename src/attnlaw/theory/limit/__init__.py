"""The law of an attention layer at initialisation: at infinite width, and exactly at any finite one.

The names below are imported when first used: what a layer may be made of is known without mathematics.
"""

from __future__ import annotations

from typing import Any

from attnlaw.core.lazy import lazy_attribute

_PUBLIC: dict[str, str] = {
    "AttentionLayer": "attnlaw.theory.limit.layer",
    "Depth": "attnlaw.theory.limit.depth",
    "Distances": "attnlaw.theory.limit.distance",
    "GivenInputs": "attnlaw.theory.limit.inputs",
    "OutputLaw": "attnlaw.theory.limit.mixture",
    "PathPoint": "attnlaw.theory.limit.depth",
    "RandomInputs": "attnlaw.theory.limit.inputs",
    "Sample": "attnlaw.theory.limit.layer",
    "ScoreSettings": "attnlaw.theory.limit.layer",
    "StackLaw": "attnlaw.theory.limit.depth",
    "StackSample": "attnlaw.theory.limit.depth",
    "WeightVariances": "attnlaw.theory.limit.layer",
    "WidthRow": "attnlaw.theory.limit.limit",
    "compare_widths": "attnlaw.theory.limit.limit",
    "conditional_covariance": "attnlaw.theory.limit.limit",
    "density_rows": "attnlaw.theory.limit.limit",
    "distances": "attnlaw.theory.limit.distance",
    "gaussian_covariance": "attnlaw.theory.limit.limit",
    "gaussian_law": "attnlaw.theory.limit.mixture",
    "kernel_kl": "attnlaw.theory.limit.distance",
    "output_law": "attnlaw.theory.limit.finite",
    "sample": "attnlaw.theory.limit.finite",
    "sample_stack": "attnlaw.theory.limit.depth",
    "score_covariance": "attnlaw.theory.limit.limit",
    "stack_law": "attnlaw.theory.limit.depth",
}

__all__ = sorted(_PUBLIC)


def __getattr__(name: str) -> Any:
    return lazy_attribute(__name__, _PUBLIC, name)
