"""The verb `init`: how a whole Transformer starts before training, computed from its config.json alone."""

from __future__ import annotations

import math
from functools import partial
from typing import Any

from attnlaw.core.errors import BadSetting
from attnlaw.core.progress import Progress
from attnlaw.core.quantity import Quantity, TableSpec
from attnlaw.core.settings import Settings, setting, setting_fields, settings_dataclass
from attnlaw.core.verb import Verb, run_each_case
from attnlaw.theory.init.architecture import KEPT, SCORE_SCALINGS, Architecture, at_width
from attnlaw.theory.init.configuration import config_of, library_values
from attnlaw.theory.init.gradients import gradient_law
from attnlaw.theory.init.law import initial_law
from attnlaw.theory.init.records import InitialLaw, Spread
from attnlaw.theory.init.tokens import Tokens, check_tokens, random_tokens

model_setting = partial(setting, panel="Model", sweepable=True)
token_setting = partial(setting, panel="Tokens")
law_setting = partial(setting, panel="Law")
OWN_WIDTH, LIMIT_WIDTH = "own", "inf"
MOST_TOKENS = 2048


@settings_dataclass
class InitSettings(Settings):
    """Check how a Transformer starts before training, with random weights as its config.json describes them.

    attnlaw reads only config.json, and no weights of a checkpoint. It computes signals, tokens, attention and
    loss as means over random initialisations, exact at the width of the model for the given tokens. Weights
    are distributed as the transformers library draws them; the authors of the model may have used other
    values. The limits of infinite width extend arXiv 2506.00846, which covers the attention of one layer.
    """

    model: str = setting(
        help="Model: a config.json, its folder, a hub id, or one of gpt2, bert and llama-7b.",
        positional=True,
        is_path=True,
        sweepable=True,
        metavar="MODEL",
    )
    std: float | None = model_setting(
        None,
        "Standard deviation of the initial weights. The default is the value in the config.",
        greater_than=0,
    )
    depth: int | None = model_setting(
        None,
        "Number of layers. The default is the number in the config.",
        symbol="L",
        minimum=1,
        maximum=10_000,
    )
    width: str = model_setting(
        OWN_WIDTH,
        "Width of the model: unchanged (own), infinite (inf), or a number to which the model is scaled.",
        metavar="own|inf|N",
    )
    keep: str = model_setting(
        "heads",
        "What stays fixed if the width changes: the number of heads, or the width of a head.",
        choices=KEPT,
    )
    scaling: str = model_setting(
        "1/sqrt(d)",
        "Factor that multiplies the attention scores, where d is the width of a head. muP uses 1/d.",
        choices=SCORE_SCALINGS,
    )

    tokens: int = token_setting(
        16,
        "Number of random input tokens, all different.",
        symbol="s",
        minimum=1,
        maximum=MOST_TOKENS,
        excluded_by="ids",
        sweepable=True,
    )
    ids: tuple[int, ...] | None = token_setting(
        None,
        "Token ids of the input. Only which ids are equal matters, not which ids they are.",
        minimum=0,
        metavar="1,2,3",
    )
    padding: int = token_setting(0, "Number of tokens at the end of the input that are padding.", minimum=0)

    draws: int = law_setting(
        100, "Number of random initialisations to average over.", minimum=2, maximum=10**6
    )
    units: int = law_setting(
        0,
        "Draw only this many hidden units of an MLP, which is faster: means and covariances stay "
        "exact. 0 draws all.",
        minimum=0,
    )
    gradients: int = law_setting(
        0,
        "Also compute gradient norms over this many initialisations, at the model's own width (needs "
        "attnlaw[lens]).",
        minimum=0,
        maximum=10**6,
    )
    seed: int = law_setting(0, "Seed of the random numbers. Equal seeds give equal results.", minimum=0)

    def check(self) -> None:
        if self.width not in (OWN_WIDTH, LIMIT_WIDTH) and not (
            self.width.isdecimal() and 0 < int(self.width) <= 10**7
        ):
            raise BadSetting("width", "expected own, inf or a whole number of at most 10000000", self.width)
        count = self.tokens if self.ids is None else len(self.ids)
        if self.padding >= count:
            raise BadSetting("padding", f"expected fewer than the {count} {{tokens}}", self.padding)

    @property
    def model_width(self) -> float | None:
        """The width as a number, or None if the model keeps its width."""
        return None if self.width == OWN_WIDTH else math.inf if self.width == LIMIT_WIDTH else int(self.width)


estimate = partial(Quantity, error=True, in_summary=True)
QUANTITIES = (
    Quantity(
        "model_width",
        "width of the model; empty in the limit of infinite width",
        "N",
        kind="int",
        display_name="width (N)",
    ),
    estimate(
        "rms",
        "root mean square of the entries of the residual stream after the last layer",
        log=True,
        display_name="size of the residual stream",
    ),
    estimate(
        "cosine",
        "mean cosine between different tokens after the last layer; 1 means that all are parallel",
        display_name="mean cosine between tokens",
    ),
    Quantity(
        "cosine_spread",
        "how much the mean cosine between tokens varies between random initialisations (standard deviation)",
        log=True,
        display_name="spread of the mean cosine",
    ),
    Quantity(
        "effective_rank",
        "effective number of directions that the tokens span after the last layer; fractions are possible",
        error=True,
        display_name="effective rank of the tokens",
    ),
    estimate(
        "score_sd",
        "standard deviation of the attention scores in the first layer",
        display_name="standard deviation of scores",
    ),
    estimate(
        "entropy",
        "mean entropy of attention in the first layer, divided by that of uniform attention: 1 means uniform",
        display_name="attention entropy relative to uniform",
    ),
    estimate(
        "logit_sd",
        "standard deviation of the output logit of a token that is not in the input",
        display_name="standard deviation of logits",
    ),
    estimate(
        "loss",
        "mean loss before training in nats, for the next token (BERT: the token itself); approximate "
        "for more than 4096 token ids",
        display_name="initial loss",
        axis="initial loss (nats)",
    ),
    Quantity(
        "loss_spread",
        "how much the initial loss varies between random initialisations (standard deviation, in nats)",
        display_name="spread of the initial loss",
    ),
    Quantity(
        "uniform_loss",
        "loss of a uniform guess in nats: ln V for a vocabulary of V tokens",
        display_name="loss of a uniform guess (ln V)",
    ),
    Quantity(
        "own_probability",
        "mean probability that the untrained model gives to the token that it just read",
        error=True,
        log=True,
        display_name="probability of the token itself",
    ),
    Quantity(
        "own_cosine",
        "mean cosine between a token after the last layer and its own embedding, if input and output "
        "embeddings are shared",
        error=True,
        display_name="cosine with the token's embedding",
    ),
    Quantity(
        "angle_exponent",
        "rate at which angles between tokens shrink: slope per layer of log(1 − mean cosine); "
        "negative if tokens become alike",
        error=True,
        display_name="rate at which token angles shrink",
    ),
    estimate(
        "gradient_norm",
        "norm of the gradient of the loss with respect to the weight matrices of all layers",
    ),
    Quantity(
        "gradient_exponent",
        "growth of the gradient norm from layer to layer: mean slope of its logarithm",
        error=True,
        display_name="growth of gradients from layer to layer",
    ),
    Quantity("initialiser", "library and version whose rule for random initial weights is used", kind="text"),
)


def _measure_quantities(name: str, meaning: str, title: str, **more: Any) -> tuple[Quantity, ...]:
    return (
        Quantity(name, meaning, error=True, axis=title, **more),
        Quantity(f"{name}_spread", f"{title}: standard deviation over initialisations"),
        Quantity(f"{name}_low", f"{title}: 5% of initialisations are below this value"),
        Quantity(f"{name}_high", f"{title}: 5% of initialisations are above this value"),
    )


# The meaning of each measure of a layer, and the title of a chart of it.
MEASURED = {
    "rms": ("root mean square of the entries of the residual stream", "size of the residual stream"),
    "cosine": ("mean cosine between different tokens", "mean cosine between tokens"),
    "effective_rank": (
        "effective number of directions that the tokens span; fractions are possible",
        "effective rank",
    ),
    "entropy": (
        "mean entropy of attention divided by that of uniform attention: 1 means uniform",
        "attention entropy relative to uniform",
    ),
    "score_sd": ("standard deviation of the attention scores", "standard deviation of scores"),
    "gradient": (
        "norm of the gradient of the loss with respect to the weights of the layer",
        "gradient norm",
    ),
}
LAYERS = (
    Quantity("layer", "index of the layer; 0 means the embeddings", kind="int"),
    *(
        quantity
        for name, (meaning, title) in MEASURED.items()
        for quantity in _measure_quantities(name, meaning, title)
    ),
)


def _model_and_tokens(case: InitSettings) -> tuple[Architecture, Tokens]:
    """Return the model and the tokens of a case. Only the config of the model is read."""
    model = Architecture.from_config(case.model, case.std, case.depth or 0)
    if case.ids is None:
        return model, random_tokens(model, case.tokens, case.padding, case.seed)
    return model, Tokens(case.ids, case.padding)


def precheck(case: InitSettings) -> None:
    """Raise an `InputError` if the theory does not cover the model, the tokens or the width of a case."""
    model, tokens = _model_and_tokens(case)
    check_tokens(model, tokens)
    if case.width not in (OWN_WIDTH, LIMIT_WIDTH):
        at_width(model, int(case.width), case.keep)


@run_each_case
def run(case: InitSettings, progress: Progress) -> InitialLaw:
    model, tokens = _model_and_tokens(case)
    law = initial_law(
        model,
        tokens,
        case.draws,
        case.seed,
        width=case.model_width,
        keep=case.keep,
        scaling=case.scaling,
        units=case.units,
        progress=progress,
    )
    if (
        not case.gradients
        or case.width != OWN_WIDTH
        or case.scaling != setting_fields(InitSettings)["scaling"].default
    ):
        return law
    values = library_values(config_of(case.model), case.depth or 0)
    gradients = gradient_law(values, model, tokens, case.gradients, case.seed, progress)
    return law.with_gradients(gradients)


ARCHITECTURE = (
    Quantity("model_type", "model type that config.json states, such as gpt2", kind="text"),
    Quantity(
        "random",
        "whether results differ between random initialisations; in some limits of infinite width they do not",
        kind="bool",
    ),
)


GRADIENTS = (
    Quantity(
        "layer", "index of the layer, counting from 1; empty for a matrix outside of the layers", kind="int"
    ),
    Quantity("matrix", "name of the weight matrix in its layer", kind="text"),
    *_measure_quantities(
        "gradient", "norm of the gradient of the loss with respect to the matrix", "gradient norm", log=True
    ),
)


def _layers(law: InitialLaw) -> list[dict[str, Any]]:
    return [
        dict(cell for name in MEASURED for cell in _cells(name, getattr(layer, name)).items())
        | {"layer": layer.layer}
        for layer in law.layers
    ]


def _gradients(law: InitialLaw) -> list[dict[str, Any]] | None:
    if law.gradients is None:
        return None
    return [vars(matrix) | _cells("gradient", matrix.gradient) for matrix in law.gradients.matrices]


def _cells(name: str, measured: Spread | None) -> dict[str, Any]:
    if measured is None:
        return {}
    return {name: measured.estimate} | {
        f"{name}_{end}": getattr(measured, end) for end in ("spread", "low", "high")
    }


VERB = Verb(
    "init",
    "Check how a Transformer starts",
    InitSettings,
    QUANTITIES,
    run,
    tables=(
        TableSpec("layers", LAYERS, _layers, json=True),
        TableSpec("gradients", GRADIENTS, _gradients, json=True, optional=True),
        TableSpec(
            "architecture",
            ARCHITECTURE,
            lambda law: [{"model_type": law.architecture.name, "random": law.random}],
        ),
    ),
    charts=("init_layers", "init_depth", "init_width", "init_width_spread", "init_std"),
    is_random=True,
    precheck=precheck,
    example="""
    >>> import attnlaw
    >>> result = attnlaw.init("examples/tiny-decoder", tokens=4, draws=2)
    >>> result.record.draws
    2
    """,
    examples={
        "attnlaw init gpt2 --tokens 8": "find out how GPT-2 treats its inputs before training",
        "attnlaw init examples/tiny-decoder --tokens 8 --width own,inf": (
            "compare the model with its limit of infinite width"
        ),
    },
)
