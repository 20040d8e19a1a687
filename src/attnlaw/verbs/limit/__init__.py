"""`limit`: the output of an attention layer before training, compared with its infinite-width limit."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from attnlaw.core.errors import BadSetting, InputError
from attnlaw.core.progress import Progress
from attnlaw.core.quantity import Quantity, TableSpec
from attnlaw.core.settings import Settings, setting, setting_fields, settings_dataclass
from attnlaw.core.verb import Verb
from attnlaw.theory.limit.depth import Depth
from attnlaw.theory.limit.inputs import (
    LARGEST_SIZE,
    GivenInputs,
    Inputs,
    RandomInputs,
    check_tokens,
    read_gram,
)
from attnlaw.theory.limit.kernels import ACTIVATIONS
from attnlaw.theory.limit.layer import (
    MASKS,
    SCALINGS,
    SCORES,
    AttentionLayer,
    ScoreSettings,
    check_head_width,
)
from attnlaw.theory.limit.limit import WidthRow, at_width, compare_widths, density_of
from attnlaw.theory.limit.mixture import BATCHES
from attnlaw.theory.limit.sampler import MOST_DRAWS

LAYER = "Layers"
token_setting = partial(setting, panel="Tokens")
layer_setting = partial(setting, panel=LAYER, sweepable=True)
law_setting = partial(setting, panel="Law")
FIXED_TOKENS = ("embeddings", "gram")  # tokens that are not random


@settings_dataclass
class LimitSettings(Settings):
    """Check whether an attention layer of some width already behaves like its infinite-width limit.

    All weights are random, as before training (arXiv 2506.00846). attnlaw computes how one coordinate of the
    output of one token is distributed over random weights, at each width and in the limit, and compares the
    two. As the width grows with the number of heads fixed, the output does not become Gaussian. Numbers in
    parentheses are standard errors.
    """

    tokens: int = token_setting(
        4,
        "Number of random tokens.",
        symbol="s",
        minimum=1,
        excluded_by=FIXED_TOKENS,
        sweepable=True,
        slider_range=(1, 32),
    )
    activation: str = token_setting(
        "identity",
        "Activation function applied to Gaussian vectors to draw the tokens.",
        symbol="ψ",
        choices=ACTIVATIONS,
        excluded_by=FIXED_TOKENS,
        sweepable=True,
    )
    embeddings: str | None = token_setting(
        None,
        "Checkpoint whose token embeddings are used instead of random tokens.",
        is_path=True,
        requires="ids",
        excluded_by="gram",
        metavar="MODEL",
    )
    ids: tuple[int, ...] | None = token_setting(
        None,
        "Ids of the tokens whose embeddings are used.",
        minimum=0,
        requires="embeddings",
        metavar="1,2,3",
    )
    gram: str | None = token_setting(
        None,
        "File with the Gram matrix X X^T / n of the tokens: .npy, or text with one row in each line.",
        is_path=True,
        metavar="FILE",
    )
    token: int = token_setting(
        1,
        "Token whose output is analysed (the chosen token), counted from 1.",
        symbol="i",
        minimum=1,
        slider_range=(1, 8),
    )

    heads: int = layer_setting(
        2, "Number of attention heads.", symbol="H", minimum=1, maximum=LARGEST_SIZE, slider_range=(1, 64)
    )
    width: float = layer_setting(
        math.inf,
        "Width of the layer; inf is the infinite-width limit.",
        symbol="n",
        minimum=1,
        maximum=LARGEST_SIZE,
        allow_infinite=True,
        default_sweep=(16, 64, 256, 1024, math.inf),
        slider_range=(4, 4096),
        lab_default=64,
    )
    head_width: int | None = layer_setting(
        None,
        "Width of each head. The default is the width of the layer.",
        symbol="n_H",
        minimum=1,
        maximum=LARGEST_SIZE,
    )
    score: str = layer_setting(
        "softmax",
        "Function that turns scores into attention weights. Only softmax makes them add up to 1.",
        choices=SCORES,
    )
    mask: str = layer_setting(
        "none",
        "Tokens that a token attends to: all (none), itself and earlier ones (causal), or those at "
        "most K places away (band:K).",
        choices=MASKS,
    )
    scaling: str = layer_setting(
        "1/sqrt(n)",
        "Factor that multiplies the attention scores, for width n. With 1/n, scores vanish in the limit.",
        choices=SCALINGS,
    )
    depth: int = layer_setting(
        1,
        "Number of layers. The output of the last one is analysed.",
        minimum=1,
        maximum=LARGEST_SIZE,
        slider_range=(1, 8),
    )
    residual: bool = setting(
        False, "Add the input of each layer to its output (residual connection).", panel=LAYER
    )
    normalise: bool = setting(False, "Apply RMSNorm before each layer.", panel=LAYER)

    draws: int = law_setting(
        50_000,
        "Number of random draws for each width. More draws give smaller errors.",
        minimum=BATCHES,
        maximum=MOST_DRAWS,
        slider_range=(1000, 100_000),
        lab_default=5000,
    )
    other_scaling: str | None = law_setting(
        None,
        "Also compute the KL divergence to the limit with this other factor of the attention scores.",
        choices=SCALINGS,
    )
    gaussian: bool = law_setting(
        False, "Also compute the KL divergence to the Gaussian of equal mean and variance."
    )
    kernel: bool = law_setting(
        False,
        "Also compute the KL divergence from kernel density estimates, as in arXiv 2506.00846 "
        "(biased upwards).",
    )
    seed: int = law_setting(
        0, "Seed of the random numbers. Equal seeds give equal results.", minimum=0, slider_range=(0, 20)
    )

    def check(self) -> None:
        finite = self.width != math.inf
        if self.other_scaling == self.scaling:
            raise BadSetting(
                "other_scaling", "is the same as {scaling}; give the other one", self.other_scaling
            )
        for name in ("scaling", "other_scaling"):
            scaling = getattr(self, name)
            if scaling and SCALINGS[scaling].vanishing and SCORES[self.score].zero_at_zero:
                raise BadSetting(
                    "score",
                    f"but there is no limit with {{{name}}} {scaling}: all scores would be zero, and so "
                    "would the output; choose softmax or sigmoid",
                    self.score,
                )
        if finite and self.width != int(self.width):
            raise BadSetting("width", "expected a whole number, or inf", self.width)
        if self.head_width is not None and not finite:
            raise BadSetting(
                "head_width",
                "but heads are infinitely wide in the limit ({width} inf); give finite widths only, which "
                "are compared with the limit anyway",
                self.head_width,
            )
        if self.head_width is not None:
            check_head_width(self.head_width, self.width)
        if self.gram is None:
            count = self.tokens if self.ids is None else len(self.ids)
            check_tokens(count)
            if self.token > count:
                message = f"expected a number from 1 to {count}, the count of {{tokens}}"
                raise BadSetting("token", message, self.token)


estimate = partial(Quantity, error=True, in_summary=True)
distance = partial(estimate, log=True)
QUANTITIES = (
    estimate(
        "score_variance",
        "variance of the attention score of the chosen token with itself, in the last layer",
        "Var p",
    ),
    estimate("output_variance", "variance of one coordinate of the output of the chosen token", "Var y"),
    estimate(
        "kurtosis", "kurtosis of one coordinate of the output: 3 for a Gaussian, more for heavier tails"
    ),
    distance(
        "kl_to_limit",
        "KL divergence of the output from the infinite-width limit in nats; 0 means equal",
        "KL",
        display_name="KL divergence to the limit",
        axis="KL divergence to the limit (nats)",
    ),
    distance(
        "w1_to_limit",
        "Wasserstein-1 distance between the output and the infinite-width limit, in the units of the output",
        "W1",
        display_name="Wasserstein-1 distance to the limit",
    ),
    distance(
        "ks_to_limit",
        "largest difference between the cumulative distributions of the output and of the "
        "infinite-width limit (Kolmogorov-Smirnov)",
        "KS",
        display_name="largest difference between distributions",
    ),
    Quantity(
        "residual_of_distances",
        "numerical error of the computed densities: how far the area below a density is from 1",
        hidden=True,
    ),
    distance(
        "kl_to_other_limit",
        "KL divergence of the output from the limit with the scaling of --other-scaling, in nats",
        "KL (other limit)",
        display_name="KL divergence to the other limit",
    ),
    distance(
        "kl_to_gaussian",
        "KL divergence of the output from the Gaussian of equal mean and variance, in nats",
        "KL (Gaussian)",
        display_name="KL divergence to a Gaussian",
        axis="KL divergence to a Gaussian (nats)",
    ),
    Quantity(
        "kernel_kl_to_limit",
        "KL divergence from the limit by kernel density estimates, as in arXiv 2506.00846, which "
        "overestimate it",
        "KL (kernel)",
        in_summary=True,
        log=True,
        display_name="KL divergence (kernel estimate)",
    ),
    Quantity(
        "path_squared_length",
        "squared length of the chosen token divided by the width, before the first and after each layer",
        kind="floats",
        error=True,
        display_name="squared length by layer",
    ),
    estimate(
        "path_cosine",
        "mean cosine between different tokens, before the first and after each layer; 1 means that "
        "all are parallel",
        kind="floats",
        display_name="mean cosine by layer",
    ),
)


def run(cases: Sequence[LimitSettings], progress: Progress) -> Iterator[WidthRow | InputError]:
    """Yield the result of each case. Cases that differ only in width share limit and draws."""
    tables: dict[tuple[Any, ...], list[LimitSettings]] = {}
    for case in cases:
        tables.setdefault(_key_without_width(case), []).append(case)
    results: dict[LimitSettings, WidthRow | InputError] = {}
    for case in cases:
        if case not in results:
            together = tables[_key_without_width(case)]
            results |= _solve_widths(together, progress, len(results), len(cases))
        yield results[case]


def _key_without_width(case: LimitSettings) -> tuple[Any, ...]:
    return tuple(getattr(case, name) for name in setting_fields(LimitSettings) if name != "width")


def _solve_widths(
    cases: Sequence[LimitSettings], progress: Progress, before: int, total: int
) -> dict[LimitSettings, WidthRow | InputError]:
    """Compute cases that differ only in their width, after `before` of all `total` cases are done."""
    first = cases[0]
    errors: dict[float, InputError] = {}
    try:
        rows = compare_widths(
            _stack(first),
            [case.width for case in cases],
            first.draws,
            first.seed,
            first.token - 1,
            lambda done, _: progress(before + done, total),
            other_scaling=first.other_scaling,
            gaussian=first.gaussian,
            kernel=first.kernel,
            errors=errors,
        )
    except InputError as error:
        return dict.fromkeys(cases, error)
    outcomes = errors | {row.width: row for row in rows}
    return {case: outcomes[case.width] for case in cases}


def _stack(case: LimitSettings) -> Depth:
    scores = ScoreSettings(case.score, case.scaling, case.mask)
    layer = AttentionLayer(_inputs(case), case.heads, math.inf, case.head_width, scores)
    return Depth(layer, case.depth, case.residual, None, case.normalise)


def _inputs(case: LimitSettings) -> Inputs:
    if case.gram is not None:
        return GivenInputs(read_gram(Path(case.gram)))
    if case.embeddings is not None:
        from attnlaw.checkpoints.open import open_model

        embedding, ids = open_model(case.embeddings).embedding(), list(case.ids or ())
        last = len(embedding) - 1
        for number in ids:
            if number > last:
                message = f"outside the vocabulary of {case.embeddings}; choose ids from 0 to {last}"
                raise BadSetting("ids", message, number)
        return GivenInputs.from_tokens(embedding[ids])
    return RandomInputs(case.tokens, case.activation)


def precheck(case: LimitSettings) -> None:
    """Raise an `InputError` if a layer cannot exist or needs too much memory."""
    if case.embeddings is None:
        stack = _stack(case)
        for width in (math.inf, case.width):
            at_width(stack, width, case.draws)


DENSITIES = (
    Quantity("y", "value of one coordinate of the output", display_name="output coordinate (y)"),
    Quantity("density", "probability density of one coordinate of the output"),
    Quantity(
        "gaussian_density",
        "density of the Gaussian that has the mean and variance of this coordinate of the output",
    ),
    Quantity(
        "ratio",
        "density of the output divided by that of the infinite-width limit; empty if the limit was "
        "not computed",
        display_name="density relative to the limit",
    ),
)


VERB = Verb(
    "limit",
    "Compare an attention layer with its infinite-width limit",
    LimitSettings,
    QUANTITIES,
    run,
    tables=(TableSpec("densities", DENSITIES, lambda row: density_of(row.width, row.laws_by_width)),),
    charts=("densities", "distances", "gaussian", "path"),
    is_random=True,
    precheck=precheck,
    example="""
    >>> import attnlaw
    >>> result = attnlaw.limit(width=[8, 64], draws=1000)
    >>> result.rows["width"].to_list(), result[0].output_variance.error < 0.1
    ([8.0, 64.0], True)
    """,
    examples={
        "attnlaw limit --width 16,64,inf": "find out how far two widths are from infinite width",
        "attnlaw limit --score relu --tokens 8 --width 16,64,inf": (
            "do the same for ReLU attention to eight tokens"
        ),
    },
)
