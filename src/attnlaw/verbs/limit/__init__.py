"""`limit`: the law of an attention layer's output at initialisation, compared with infinite width."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from attnlaw.checkpoints.open import open_model
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
    """Compute the law of an attention layer's output at initialisation, and its distance to the limit.

    The limit is infinite width. The law describes one coordinate of y_i, the output of token i (arXiv
    2506.00846). Errors are standard errors. Var p is the variance of the score p_ii, including the
    randomness of the inputs.
    """

    tokens: int = token_setting(
        4,
        "Random tokens.",
        symbol="s",
        minimum=1,
        excluded_by=FIXED_TOKENS,
        sweepable=True,
        slider_range=(1, 32),
    )
    activation: str = token_setting(
        "identity",
        "psi in the random tokens psi(W h).",
        symbol="ψ",
        choices=ACTIVATIONS,
        excluded_by=FIXED_TOKENS,
        sweepable=True,
    )
    embeddings: str | None = token_setting(
        None,
        "Tokens from a checkpoint's embedding.",
        is_path=True,
        requires="ids",
        excluded_by="gram",
        metavar="MODEL",
    )
    ids: tuple[int, ...] | None = token_setting(
        None, "Their token ids.", minimum=0, requires="embeddings", metavar="1,2,3"
    )
    gram: str | None = token_setting(
        None,
        "The tokens' Gram matrix X X^T / n: .npy, or text with one row a line.",
        is_path=True,
        metavar="FILE",
    )
    token: int = token_setting(
        1, "The token whose output is read, from 1.", symbol="i", minimum=1, slider_range=(1, 8)
    )

    heads: int = layer_setting(2, "Heads.", symbol="H", minimum=1, maximum=LARGEST_SIZE, slider_range=(1, 64))
    width: float = layer_setting(
        math.inf,
        "Width; inf is the limit.",
        symbol="n",
        minimum=1,
        maximum=LARGEST_SIZE,
        allow_infinite=True,
        default_sweep=(16, 64, 256, 1024, math.inf),
        slider_range=(4, 4096),
        lab_default=64,
    )
    head_width: int | None = layer_setting(
        None, "Width of a head, else the layer's.", symbol="n_H", minimum=1, maximum=LARGEST_SIZE
    )
    score: str = layer_setting(
        "softmax",
        "Function that turns scores into attention weights. Only softmax makes them add up to 1.",
        choices=SCORES,
    )
    mask: str = layer_setting("none", "Which tokens a token sees.", choices=MASKS)
    scaling: str = layer_setting("1/sqrt(n)", "Of the scores.", choices=SCALINGS)
    depth: int = layer_setting(
        1,
        "Layers; the law is that of the last one's output.",
        minimum=1,
        maximum=LARGEST_SIZE,
        slider_range=(1, 8),
    )
    residual: bool = setting(False, "Add each layer's input to its output.", panel=LAYER)
    normalise: bool = setting(False, "RMSNorm before each layer.", panel=LAYER)

    draws: int = law_setting(
        50_000,
        "Draws for each width.",
        minimum=BATCHES,
        maximum=MOST_DRAWS,
        slider_range=(1000, 100_000),
        lab_default=5000,
    )
    other_scaling: str | None = law_setting(
        None, "Also the distance to the limit of this scaling.", choices=SCALINGS
    )
    gaussian: bool = law_setting(False, "Also the distance to the Gaussian of the same mean and variance.")
    kernel: bool = law_setting(
        False, "Also the paper's distance: kernel estimates from a draw for each variance."
    )
    seed: int = law_setting(0, "Seed; equal seeds repeat the table.", minimum=0, slider_range=(0, 20))

    def check(self) -> None:
        finite = self.width != math.inf
        if self.other_scaling == self.scaling:
            raise BadSetting(
                "other_scaling", "is the {scaling} itself; give the other one", self.other_scaling
            )
        for name in ("scaling", "other_scaling"):
            scaling = getattr(self, name)
            if scaling and SCALINGS[scaling].vanishing and SCORES[self.score].zero_at_zero:
                raise BadSetting(
                    "score",
                    f"there is no law with {{{name}}} {scaling}: in the limit all scores are zero, and so is "
                    "the output; choose softmax or sigmoid",
                    self.score,
                )
        if finite and self.width != int(self.width):
            raise BadSetting("width", "expected a whole number, or inf", self.width)
        if self.head_width is not None and not finite:
            raise BadSetting(
                "head_width",
                "but heads are infinitely wide at {width} inf, the limit; choose finite widths: kl_to_limit "
                "compares them with it",
                self.head_width,
            )
        if self.head_width is not None:
            check_head_width(self.head_width, self.width)
        if self.gram is None:
            there = self.tokens if self.ids is None else len(self.ids)
            check_tokens(there)
            if self.token > there:
                raise BadSetting("token", f"expected one of the {there} {{tokens}}, from 1", self.token)


estimate = partial(Quantity, error=True, in_summary=True)
distance = partial(estimate, log=True)
QUANTITIES = (
    estimate("score_variance", "of p_ii in the last attention block", "Var p"),
    estimate("output_variance", "of the coordinate", "Var y"),
    estimate("kurtosis", "3 for a Gaussian"),
    distance("kl_to_limit", "relative entropy to the limit", "KL"),
    distance("w1_to_limit", "Wasserstein distance to the limit", "W1"),
    distance("ks_to_limit", "Kolmogorov-Smirnov distance", "KS"),
    Quantity("residual_of_distances", "error of the quadrature behind the distances", hidden=True),
    distance("kl_to_other_limit", "to the limit of the other scaling", "KL other"),
    distance(
        "kl_to_gaussian",
        "to the Gaussian of the same mean and variance",
        "KL Gaussian",
        display_name="KL divergence to a Gaussian",
    ),
    Quantity(
        "kernel_kl_to_limit",
        "by kernel estimates, as in arXiv 2506.00846",
        "KL kernel",
        in_summary=True,
        log=True,
    ),
    Quantity("path_squared_length", "of the token that is read, by depth", kind="floats", error=True),
    estimate("path_cosine", "mean cosine between tokens, by depth", kind="floats"),
)


def run(cases: Sequence[LimitSettings], progress: Progress) -> Iterator[WidthRow | InputError]:
    """Yield the result of each case.

    Cases that differ only in their width share the limit, the draws and the points of the densities.
    """
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
    """Build the layers of a case at infinite width."""
    scores = ScoreSettings(case.score, case.scaling, case.mask)
    layer = AttentionLayer(_inputs(case), case.heads, math.inf, case.head_width, scores)
    return Depth(layer, case.depth, case.residual, None, case.normalise)


def _inputs(case: LimitSettings) -> Inputs:
    if case.gram is not None:
        return GivenInputs(read_gram(Path(case.gram)))
    if case.embeddings is not None:
        embedding, ids = open_model(case.embeddings).embedding(), list(case.ids or ())
        last = len(embedding) - 1
        for number in ids:
            if number > last:
                message = f"outside the vocabulary of {case.embeddings}; choose from 0 to {last}"
                raise BadSetting("ids", message, number)
        return GivenInputs.from_tokens(embedding[ids])
    return RandomInputs(case.tokens, case.activation)


def precheck(case: LimitSettings) -> None:
    """Raise an `InputError` for a layer that cannot exist or needs too much memory.

    The function does not open checkpoints, so it does not check tokens from an embedding.
    """
    if case.embeddings is None:
        stack = _stack(case)
        for width in (math.inf, case.width):
            at_width(stack, width, case.draws)


DENSITIES = (
    Quantity("y", "a value of the coordinate", display_name="output coordinate y"),
    Quantity("density", "of the law there"),
    Quantity("gaussian_density", "that of the Gaussian of the same mean and variance there"),
    Quantity(
        "ratio",
        "to the limit's, where that is among the cases",
        display_name="density / density of the limit",
    ),
)


VERB = Verb(
    "limit",
    "The law of attention layers",
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
