"""`attention`: the singular values of a random attention layer, compared with the law that predicts them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from attnlaw.core.errors import BadSetting
from attnlaw.core.estimate import Estimate
from attnlaw.core.progress import Progress
from attnlaw.core.quantity import Quantity, TableSpec
from attnlaw.core.settings import Settings, setting, settings_dataclass
from attnlaw.core.verb import Verb, run_each_case
from attnlaw.theory.laws.attention_shape import CENTRINGS, MATRICES, SHARINGS, AttentionShape, RandomLayer
from attnlaw.theory.laws.law import Bounded
from attnlaw.theory.laws.multi_head_sample import LEVELS, MultiHeadDraws, draw_bytes, multi_head_draws
from attnlaw.theory.laws.readout import arrival_time, readout
from attnlaw.theory.limit.inputs import MOST_MEMORY

LAYER = "Layer"
layer_setting = partial(setting, panel=LAYER, sweepable=True)
law_setting = partial(setting, panel="Law")
readout_setting = partial(setting, panel="Readout", active_if=("matrix", "output"))
MOST_BETA = 5
MOST_TOKENS = 32_768


@settings_dataclass
class AttentionSettings(Settings):
    """Check whether the singular values of random softmax attention are as theory predicts.

    attnlaw draws random layers and compares their singular values with the prediction of arXiv 2610.10033,
    which assumes orthogonal tokens and random Gaussian weights. First the mean of attention is subtracted.
    Then there is one singular value for each token, including zeros.
    """

    name: str | None = setting(None, "Name of the layer in tables and charts.", panel=LAYER)
    beta: float = layer_setting(
        1.0,
        "Sharpness of attention: standard deviation of the logits in a row of attention.",
        symbol="β",
        greater_than=0,
        maximum=MOST_BETA,
        slider_range=(0.1, 3.0),
    )
    tokens: int = layer_setting(
        256,
        "Number of tokens (orthogonal vectors).",
        symbol="n",
        minimum=2,
        maximum=MOST_TOKENS,
        slider_range=(32, 1024),
    )
    heads: int = layer_setting(
        8, "Number of heads.", symbol="h", minimum=1, maximum=10_000, slider_range=(1, 64)
    )
    head_size: int = layer_setting(
        32,
        "Head size: number of entries of a key.",
        symbol="d_K",
        minimum=1,
        maximum=10_000,
        slider_range=(4, 256),
    )
    value_size: int | None = layer_setting(
        None,
        "Number of entries of a value (default: the head size).",
        symbol="d_V",
        minimum=1,
        maximum=10_000,
        slider_range=(4, 256),
        lab_default=32,
    )
    output_size: int | None = layer_setting(
        None,
        "Number of entries of the layer's output (default: number of heads times value size).",
        symbol="d_O",
        minimum=1,
        maximum=1_000_000,
        slider_range=(16, 4096),
        lab_default=256,
    )
    sharing: str = layer_setting(
        "none",
        "What heads share: nothing (none), one key and value for all heads (across), or keys that "
        "are also the values (tied).",
        choices=SHARINGS,
    )
    matrix: str = law_setting(
        "attention",
        "Matrix to analyse: attention of all heads side by side, mean over heads, attention times "
        "values, or output of the layer.",
        choices=MATRICES,
        sweepable=True,
    )
    centring: str = law_setting(
        "columns",
        "What to subtract from attention first: the mean of each column (columns), or the constant "
        "1/n (mean).",
        choices=CENTRINGS,
    )
    second_order: bool = law_setting(
        False, "Correct the prediction for narrow heads (a second-order term, which is not in the paper)."
    )
    draws: int = law_setting(
        4,
        "Number of random layers to draw; 0 only computes the prediction.",
        minimum=0,
        maximum=10_000,
        slider_range=(0, 16),
        lab_default=1,
    )
    ridge: float = readout_setting(
        1e-4,
        "Penalty λ of a ridge regression that reads targets from the output, divided by the mean "
        "squared singular value.",
        symbol="λ",
        greater_than=0,
    )
    noise_variance: float = readout_setting(
        0.1,
        "Noise variance of the regression targets, times n/(d_O m), where m is the mean squared "
        "singular value.",
        symbol="s²",
        minimum=0,
    )
    loss: float = readout_setting(
        0.1,
        "Training loss that the regression should reach, as a share of the loss at the start.",
        greater_than=0,
        maximum=1,
    )
    seed: int = law_setting(0, "Seed of the random numbers. Equal seeds give equal results.", minimum=0)

    def check(self) -> None:
        tied = SHARINGS[self.sharing].tied
        if tied and self.value_size not in (None, self.head_size):
            raise BadSetting(
                "value_size", f"expected {self.head_size}, the {{head_size}}, if K = V", self.value_size
            )
        if tied and self.second_order and MATRICES[self.matrix].values:
            raise BadSetting("second_order", "there is no second-order law for K = V; leave this out", True)
        need = draw_bytes(self.shape, self.matrix) if self.draws else 0
        if need > MOST_MEMORY:
            raise BadSetting(
                "tokens",
                f"a draw needs about {-(-need // 2**30)} GiB of memory, more than {MOST_MEMORY // 2**30}; "
                "choose fewer {tokens} or smaller sizes, or {draws} 0 for the law alone",
                self.tokens,
            )

    @property
    def shape(self) -> AttentionShape:
        return AttentionShape(
            self.tokens, self.heads, self.head_size, self.value_size, self.output_size, self.sharing
        )


@dataclass(frozen=True)
class AttentionSpectrum:
    """The law of one case, its random draws, and numbers of a readout if the matrix is the output."""

    draws: MultiHeadDraws
    coefficient_error: float | None = None
    degrees_of_freedom: float | None = None
    arrival_time: float | None = None

    @property
    def quantities(self) -> dict[str, Any]:
        law = self.draws.layer.law
        return {**vars(self.draws), **vars(self)} | {
            "mean": law.mean,
            "edges": [end for pair in law.intervals for end in pair],
            "atom_at_zero": law.mass_of_atoms,
            "spike": self.draws.layer.spike,
        }

    @property
    def remark(self) -> str | None:
        return "; ".join(self.draws.layer.warnings) or None


distance = partial(Quantity, error=True, in_summary=True, log=True)
QUANTITIES = (
    distance(
        "equivalent_w1",
        "mean distance (Wasserstein-1) between squared singular values of random layers and of their "
        "Gaussian equivalent (attention replaced by a Gaussian matrix), divided by the mean",
        "W1",
        display_name="W1 to the Gaussian equivalent",
    ),
    distance(
        "equivalent_distance",
        "largest difference between the cumulative distributions of random layers and of their "
        "Gaussian equivalent (attention replaced by a Gaussian matrix)",
        "KS",
        display_name="difference to the Gaussian equivalent",
    ),
    distance(
        "law_w1",
        "mean distance (Wasserstein-1) between the squared singular values of random layers and the "
        "predicted ones, divided by their mean",
        "W1 (law)",
        display_name="W1 to the prediction",
    ),
    distance(
        "law_distance",
        "largest difference between the cumulative distributions of random layers and of the "
        "prediction (Kolmogorov-Smirnov)",
        "KS (law)",
        display_name="difference to the prediction",
    ),
    Quantity(
        "mean",
        "predicted mean of the squared singular values",
        display_name="mean squared singular value",
    ),
    Quantity(
        "edges",
        "lower and upper end of each interval of predicted squared singular values, in increasing order",
        kind="floats",
        display_name="edges of the predicted spectrum",
    ),
    Quantity(
        "atom_at_zero",
        "predicted share of singular values that are zero",
        display_name="share of zeros",
    ),
    Quantity(
        "spike",
        "predicted squared singular value above all others, if only the constant 1/n is subtracted "
        "(our extension)",
        display_name="predicted largest value",
    ),
    Quantity(
        "spike_found",
        "largest squared singular value of the drawn layers, if only the constant 1/n is subtracted",
        error=True,
        display_name="largest value of the drawn layers",
    ),
    Quantity(
        "coefficient_error",
        "squared error of a ridge regression on the layer's output, relative to learning nothing (1)",
        in_summary=True,
        display_name="error of the ridge regression",
    ),
    Quantity(
        "degrees_of_freedom",
        "number of directions that a ridge regression on the output uses, divided by the number of tokens",
    ),
    Quantity(
        "arrival_time",
        "training time until a linear regression on the output reaches the target loss, times the "
        "mean squared singular value",
        in_summary=True,
        log=True,
        display_name="training time to reach the target loss",
        axis="training time to reach the target loss (1/mean)",
    ),
)


def run(case: AttentionSettings, progress: Progress) -> AttentionSpectrum:
    layer = RandomLayer(case.shape, case.beta, case.matrix, case.centring, case.second_order)
    drawn = multi_head_draws(layer, case.draws, case.seed, progress)
    if not MATRICES[case.matrix].output:
        return AttentionSpectrum(drawn)
    read = readout(layer.law, case.ridge, case.noise_variance)
    arrival = arrival_time(layer.law, case.loss)
    return AttentionSpectrum(drawn, read.coefficient_error, read.degrees_of_freedom, arrival)


DENSITY = (
    Quantity("x", "squared singular value", display_name="squared singular value"),
    Quantity("density", "predicted density of the squared singular values at this value"),
    Quantity("interval", "index of the interval of the predicted spectrum, counting from 0", kind="int"),
)
POINTS = 200
QUANTILES = (
    Quantity("level", "share of the singular values that are at most as large as this quantile"),
    Quantity("law", "predicted singular value at this quantile"),
    Quantity("drawn", "singular value of the drawn layers at this quantile (mean over layers)", error=True),
)


def _density(spectrum: AttentionSpectrum) -> list[dict[str, Any]]:
    """Return the law's density on each interval. The points are denser near the ends."""
    law = spectrum.draws.layer.law
    rows = []
    for number, (low, high) in enumerate(law.intervals):
        x, _ = Bounded(low, high).at(np.linspace(0.0, np.pi, POINTS + 2)[1:-1])
        pairs = zip(x.tolist(), law.density(x).tolist(), strict=True)
        rows += [{"x": place, "density": value, "interval": number} for place, value in pairs]
    return rows


def _values(spectrum: AttentionSpectrum) -> list[dict[str, float]] | None:
    values = spectrum.draws.values
    return None if values is None else [{"value": value} for value in values.tolist()]


def _quantiles(spectrum: AttentionSpectrum) -> list[dict[str, Any]]:
    drawn: Sequence[Estimate | None] = spectrum.draws.quantiles or [None] * len(LEVELS)
    law = spectrum.draws.layer.law.quantile(LEVELS) ** 0.5
    return [
        {"level": level, "law": value, "drawn": estimate}
        for level, value, estimate in zip(LEVELS, law.tolist(), drawn, strict=True)
    ]


VERB = Verb(
    "attention",
    "Compare random attention with its spectral law",
    AttentionSettings,
    QUANTITIES,
    run_each_case(run),
    tables=(
        TableSpec("law_densities", DENSITY, _density),
        TableSpec(
            "drawn_values",
            (
                Quantity(
                    "value",
                    "squared singular value of the first drawn layer",
                    display_name="squared singular value",
                ),
            ),
            _values,
        ),
        TableSpec("quantiles", QUANTILES, _quantiles),
    ),
    charts=("spectra", "readout", "arrival"),
    is_random=True,
    example="""
    >>> import attnlaw
    >>> result = attnlaw.attention(tokens=200, heads=4, head_size=50, beta=0.5)
    >>> round(result.mean, 3), result.law_distance.value < 0.05
    (0.284, True)
    """,
    examples={
        "attnlaw attention --tokens 128 --heads 4": "compare random attention layers with their law",
        "attnlaw attention --beta 0.5,1,1.5 --tokens 128 --out spectra": (
            "draw the spectrum at three sharpnesses"
        ),
    },
)
