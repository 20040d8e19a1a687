"""`multi_head`, a verb for studies: the spectrum of random multi-head attention and its law."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from attnlaw.core.errors import BadSetting
from attnlaw.core.progress import Progress
from attnlaw.core.quantity import Quantity, TableSpec
from attnlaw.core.settings import Settings, setting, settings_dataclass
from attnlaw.core.verb import Verb, run_each_case
from attnlaw.theory.laws.attention_shape import CENTRINGS, MATRICES, SHARINGS, AttentionShape, RandomLayer
from attnlaw.theory.laws.law import Bounded
from attnlaw.theory.laws.multi_head_sample import MultiHeadDraws, multi_head_draws
from attnlaw.theory.laws.readout import arrival_time, readout

LAYER = "Layer"
layer_setting = partial(setting, panel=LAYER, sweepable=True)
law_setting = partial(setting, panel="Law")
readout_setting = partial(setting, panel="Readout")
MOST_BETA = 5
MOST_TOKENS = 32_768


@settings_dataclass
class MultiHeadSettings(Settings):
    """Compare the squared singular values of random multi-head attention with their law (arXiv 2610.10033).

    The spectrum has all n values of the chosen matrix, including zeros, after its mean is subtracted. Tokens
    are orthogonal.
    """

    name: str | None = setting(None, "How its rows are called.", panel=LAYER)
    beta: float = setting(
        1.0,
        "Standard deviation of a row's logits.",
        symbol="β",
        greater_than=0,
        maximum=MOST_BETA,
        sweepable=True,
    )
    tokens: int = layer_setting(256, "Tokens.", symbol="n", minimum=2, maximum=MOST_TOKENS)
    heads: int = layer_setting(8, "Heads.", symbol="h", minimum=1, maximum=10_000)
    head_size: int = layer_setting(32, "Size of a head's keys.", symbol="d_K", minimum=1, maximum=10_000)
    value_size: int | None = layer_setting(
        None, "Size of its values, else the keys'.", symbol="d_V", minimum=1, maximum=10_000
    )
    output_size: int | None = layer_setting(
        None, "Size of the output, else that of all values.", symbol="d_O", minimum=1, maximum=1_000_000
    )
    sharing: str = layer_setting(
        "none",
        "What heads share: nothing, one key and value (across), or a head its key as its value (tied).",
        choices=SHARINGS,
    )
    matrix: str = law_setting("output", "The matrix that is meant.", choices=MATRICES, sweepable=True)
    centring: str = law_setting(
        "columns", "What is taken off attention: its column means, or 1/n.", choices=CENTRINGS
    )
    second_order: bool = law_setting(
        False, "Keep the second Hermite term, which narrow heads need (an extension)."
    )
    draws: int = law_setting(4, "Draws; 0 for the law alone.", minimum=0, maximum=10_000)
    ridge: float = readout_setting(
        1e-4, "Penalty of a readout of the output, in units of the mean.", symbol="λ", greater_than=0
    )
    noise_variance: float = readout_setting(
        0.1, "Of its targets, times n/(d_O mean).", symbol="s²", minimum=0
    )
    loss: float = readout_setting(0.1, "Training loss that a readout is to reach.", greater_than=0, maximum=1)
    seed: int = law_setting(0, "Seed of the draws.", minimum=0)

    def check(self) -> None:
        tied = SHARINGS[self.sharing].tied
        if tied and self.value_size not in (None, self.head_size):
            raise BadSetting(
                "value_size", f"expected the {{head_size}}, {self.head_size}, where K = V", self.value_size
            )
        if tied and self.second_order and MATRICES[self.matrix].values:
            raise BadSetting("second_order", "there is no such law for K = V; leave it out", True)


@dataclass(frozen=True)
class MultiHeadSpectrum:
    """The law of one case, its draws, and the numbers of a readout if the matrix is the output."""

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
    distance("equivalent_w1", "Wasserstein-1 distance to the Gaussian equivalent over the mean", "W1"),
    distance("equivalent_distance", "Kolmogorov-Smirnov distance to it", "KS"),
    distance("law_w1", "Wasserstein-1 distance to the law over the mean"),
    distance("law_distance", "Kolmogorov-Smirnov distance to the law"),
    Quantity("mean", "of the law"),
    Quantity("edges", "ends of the law's intervals, low and high in turn", kind="floats"),
    Quantity("atom_at_zero", "share of values that are zero"),
    Quantity("spike", "where a value is expected beyond the edge if 1/n alone is taken off (an extension)"),
    Quantity("spike_found", "the largest value then", error=True),
    Quantity("coefficient_error", "of a ridge readout of the output", in_summary=True),
    Quantity("degrees_of_freedom", "of that readout, over n"),
    Quantity(
        "arrival_time", "at which gradient flow has the loss, in units of 1/mean", in_summary=True, log=True
    ),
)


def run(case: MultiHeadSettings, progress: Progress) -> MultiHeadSpectrum:
    shape = AttentionShape(
        case.tokens, case.heads, case.head_size, case.value_size, case.output_size, case.sharing
    )
    layer = RandomLayer(shape, case.beta, case.matrix, case.centring, case.second_order)
    drawn = multi_head_draws(layer, case.draws, case.seed, progress)
    if not MATRICES[case.matrix].output:
        return MultiHeadSpectrum(drawn)
    read = readout(layer.law, case.ridge, case.noise_variance)
    arrival = arrival_time(layer.law, case.loss)
    return MultiHeadSpectrum(drawn, read.coefficient_error, read.degrees_of_freedom, arrival)


DENSITY = (
    Quantity("x", display_name="squared singular value"),
    Quantity("density", "of the law there"),
    Quantity("interval", "which of the law's", kind="int"),
)
POINTS = 200


def _density(spectrum: MultiHeadSpectrum) -> list[dict[str, Any]]:
    """Return the law's density on each interval. The points are denser near the ends."""
    law = spectrum.draws.layer.law
    rows = []
    for number, (low, high) in enumerate(law.intervals):
        x, _ = Bounded(low, high).at(np.linspace(0.0, np.pi, POINTS + 2)[1:-1])
        pairs = zip(x.tolist(), law.density(x).tolist(), strict=True)
        rows += [{"x": place, "density": value, "interval": number} for place, value in pairs]
    return rows


def _values(spectrum: MultiHeadSpectrum) -> list[dict[str, float]] | None:
    values = spectrum.draws.values
    return None if values is None else [{"value": value} for value in values.tolist()]


VERB = Verb(
    "multi_head",
    "The spectrum of multi-head attention",
    MultiHeadSettings,
    QUANTITIES,
    run_each_case(run),
    tables=(
        TableSpec("law_densities", DENSITY, _density),
        TableSpec(
            "drawn_values",
            (
                Quantity(
                    "value", "squared singular value of the first draw", display_name="squared singular value"
                ),
            ),
            _values,
        ),
    ),
    charts=("spectra", "readout", "arrival"),
    is_random=True,
)
