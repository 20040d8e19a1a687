"""The law of an attention layer at initialisation: at infinite width, and exactly at any finite one.

The names below are imported when first used: what a layer may be made of is known without mathematics.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

_PUBLIC: dict[str, str] = {
    "AttentionLayer": "layer",
    "Depth": "stack",
    "Distances": "distance",
    "GivenInputs": "inputs",
    "OutputLaw": "mixture",
    "PathPoint": "stack",
    "RandomInputs": "inputs",
    "Sample": "layer",
    "Scores": "scores",
    "StackLaw": "stack",
    "StackSample": "stack",
    "WeightVariances": "layer",
    "WidthRow": "compare",
    "compare_widths": "compare",
    "conditional_covariance": "limit",
    "density_rows": "compare",
    "distances": "distance",
    "gaussian_covariance": "limit",
    "gaussian_law": "mixture",
    "kernel_kl": "distance",
    "output_law": "finite",
    "sample": "finite",
    "sample_stack": "stack",
    "score_covariance": "limit",
    "stack_law": "stack",
}

__all__ = sorted(_PUBLIC)


def __getattr__(name: str) -> Any:
    if name in _PUBLIC:
        return getattr(import_module(f"{__name__}.{_PUBLIC[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
