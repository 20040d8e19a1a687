"""The law of an attention layer at initialisation: at infinite width, and exactly at any finite one."""

from attnlaw.limits.compare import QUANTITIES, WidthRow, compare_widths, density_rows
from attnlaw.limits.distance import Distances, distances
from attnlaw.limits.finite import output_law, sample
from attnlaw.limits.inputs import GivenInputs, RandomInputs
from attnlaw.limits.kernel_density import kernel_kl
from attnlaw.limits.layer import Layer, Sample, WeightVariances
from attnlaw.limits.limit import conditional_covariance, gaussian_covariance, score_covariance
from attnlaw.limits.mixture import Estimate, Law, gaussian_law
from attnlaw.limits.scores import Scores
from attnlaw.limits.stack import PathPoint, Stack, StackLaw, StackSample, sample_stack, stack_law

__all__ = [
    "QUANTITIES",
    "Distances",
    "Estimate",
    "GivenInputs",
    "Law",
    "Layer",
    "PathPoint",
    "RandomInputs",
    "Sample",
    "Scores",
    "Stack",
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
