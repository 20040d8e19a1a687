"""The verb `init`: the exact law of a whole Transformer before training, computed from its config.json."""

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
    """Compute how an untrained Transformer treats signals, attention and logits, from its config alone.

    The numbers are for each layer, over initialisations. They are exact at the model's own width for given
    tokens, and no weight matrix is drawn. attnlaw reads only config.json. The weights are those that the
    library of the model's family would draw, which need not be what its authors drew. The limits of infinite
    width, and everything in them except the attention of one layer, are extensions of arXiv 2506.00846.
    """

    model: str = setting(
        help="A config.json, its folder, a hub id, or gpt2, bert, llama-7b.",
        positional=True,
        is_path=True,
        sweepable=True,
        metavar="MODEL",
    )
    std: float | None = model_setting(None, "Deviation of the weights, else the config's.", greater_than=0)
    depth: int | None = model_setting(
        None, "Layers, else the config's.", symbol="L", minimum=1, maximum=10_000
    )
    width: str = model_setting(
        OWN_WIDTH,
        "own, inf (the limit), or a width to scale the model to: gains are kept.",
        metavar="own|inf|N",
    )
    keep: str = model_setting("heads", "What stays as the width changes.", choices=KEPT)
    scaling: str = model_setting("1/sqrt(d)", "Of the scores; 1/d is muP's.", choices=SCORE_SCALINGS)

    tokens: int = token_setting(
        16,
        "Tokens, all different.",
        symbol="s",
        minimum=1,
        maximum=MOST_TOKENS,
        excluded_by="ids",
        sweepable=True,
    )
    ids: tuple[int, ...] | None = token_setting(
        None, "Their ids; only which are equal counts.", minimum=0, metavar="1,2,3"
    )
    padding: int = token_setting(0, "How many of them, at the end, are padding.", minimum=0)

    draws: int = law_setting(100, "Initialisations.", minimum=2, maximum=10**6)
    units: int = law_setting(
        0,
        "Hidden units that stand for all of an MLP: mean and covariance stay exact. 0 draws all.",
        minimum=0,
    )
    gradients: int = law_setting(
        0,
        "Also norms of gradients, over so many initialisations, at the own width. Needs the extra lens.",
        minimum=0,
        maximum=10**6,
    )
    seed: int = law_setting(0, "Seed; equal seeds repeat the table.", minimum=0)

    def check(self) -> None:
        if self.width not in (OWN_WIDTH, LIMIT_WIDTH) and not (
            self.width.isdecimal() and 0 < int(self.width) <= 10**7
        ):
            raise BadSetting("width", "expected own, inf or a whole number of at most 10000000", self.width)
        there = self.tokens if self.ids is None else len(self.ids)
        if self.padding >= there:
            raise BadSetting("padding", f"expected fewer than the {there} {{tokens}}", self.padding)

    @property
    def model_width(self) -> float | None:
        """The width as a number; None means the model's own width."""
        return None if self.width == OWN_WIDTH else math.inf if self.width == LIMIT_WIDTH else int(self.width)


estimate = partial(Quantity, error=True, in_summary=True)
QUANTITIES = (
    Quantity("model_width", "none in the limit", "N", kind="int", display_name="width N"),
    estimate("rms", "of the stream's entries after the last layer", log=True),
    estimate("cosine", "mean between tokens after the last layer", axis="mean cosine between tokens"),
    Quantity(
        "cosine_spread", "its deviation over initialisations", log=True, axis="deviation of the mean cosine"
    ),
    Quantity("effective_rank", "of the tokens after the last layer", error=True),
    estimate("score_sd", "deviation of scores in the first layer", display_name="score deviation"),
    estimate("entropy", "of attention over uniform in the first layer"),
    estimate(
        "logit_sd", "deviation of the logit of an id not among the tokens", display_name="logit deviation"
    ),
    estimate(
        "loss",
        "next token (BERT: the token itself); beyond 4096 ids their sum is taken as normal",
        axis="loss, nats",
    ),
    Quantity("loss_spread", "its deviation over initialisations"),
    Quantity("uniform_loss", "ln of the vocabulary"),
    Quantity("own_probability", "of the id that stands at the place", error=True, log=True),
    Quantity("own_cosine", "of the last tokens with their own embeddings (tied head)", error=True),
    Quantity("angle_exponent", "slope of log(1 - cosine) by layer", error=True),
    estimate("gradient_norm", "of the weight matrices of all layers"),
    Quantity("gradient_exponent", "slope of the log norm by layer", error=True),
    Quantity("initialiser", "where it was read from", kind="text"),
)


def _measure_quantities(name: str, meaning: str, **more: Any) -> tuple[Quantity, ...]:
    """Return the columns for one measure of a layer: mean, deviation and quantiles over initialisations."""
    return (
        Quantity(name, meaning, error=True, **more),
        Quantity(f"{name}_spread", "its deviation over initialisations"),
        Quantity(f"{name}_low", "5% of initialisations are below"),
        Quantity(f"{name}_high", "5% of initialisations are above"),
    )


MEASURED = {
    "rms": "root mean square of the residual stream",
    "cosine": "mean cosine between tokens",
    "effective_rank": "effective rank of the tokens",
    "entropy": "attention entropy over uniform",
    "score_sd": "deviation of the scores",
    "gradient": "norm of the gradient",
}
LAYERS = (
    Quantity("layer", "0: the embeddings", kind="int"),
    *(quantity for name, meaning in MEASURED.items() for quantity in _measure_quantities(name, meaning)),
)


def _model_and_tokens(case: InitSettings) -> tuple[Architecture, Tokens]:
    """Return the model and the tokens of a case. Only the config of the model is read."""
    model = Architecture.from_config(case.model, case.std, case.depth or 0)
    if case.ids is None:
        return model, random_tokens(model, case.tokens, case.padding, case.seed)
    return model, Tokens(case.ids, case.padding)


def precheck(case: InitSettings) -> None:
    """Raise an `InputError` if the law does not cover the model, the tokens or the width of a case."""
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
    Quantity("model_type", "that of the config", kind="text"),
    Quantity("random", "whether initialisations differ; a limit may not", kind="bool"),
)


GRADIENTS = (
    Quantity("layer", "from 1; empty outside of layers", kind="int"),
    Quantity("matrix", "its name there", kind="text"),
    *_measure_quantities("gradient", "norm of the gradient", log=True),
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
    "A Transformer before training",
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
