"""The law of an attention layer at initialisation: at infinite width, and exactly at any finite width."""

from attnlaw.theory.limit.depth import Depth, PathPoint, StackLaw, StackSample, sample_stack, stack_law
from attnlaw.theory.limit.distance import Distances, distances, kernel_kl
from attnlaw.theory.limit.inputs import GivenInputs, RandomInputs
from attnlaw.theory.limit.layer import AttentionLayer, Sample, ScoreSettings, WeightVariances
from attnlaw.theory.limit.limit import (
    WidthRow,
    compare_widths,
    conditional_covariance,
    density_rows,
    gaussian_covariance,
    score_covariance,
)
from attnlaw.theory.limit.mixture import OutputLaw, gaussian_law
from attnlaw.theory.limit.sampler import output_law, sample

__all__ = [
    "AttentionLayer",
    "Depth",
    "Distances",
    "GivenInputs",
    "OutputLaw",
    "PathPoint",
    "RandomInputs",
    "Sample",
    "ScoreSettings",
    "StackLaw",
    "StackSample",
    "WeightVariances",
    "WidthRow",
    "compare_widths",
    "conditional_covariance",
    "density_rows",
    "distances",
    "gaussian_covariance",
    "gaussian_law",
    "kernel_kl",
    "output_law",
    "sample",
    "sample_stack",
    "score_covariance",
    "stack_law",
]
