"""`init`: the exact law of a whole Transformer before training, from its config.json."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from attnlaw.base.charts import Curves, Own
from attnlaw.base.declare import Progress, Verb, each
from attnlaw.base.errors import BadSetting
from attnlaw.base.quantity import Quantity, Table, columns
from attnlaw.base.settings import Settings, declared, setting, settings
from attnlaw.initial.variants import KEPT, SCORE_SCALINGS

if TYPE_CHECKING:
    from attnlaw.initial.architecture import Architecture
    from attnlaw.initial.records import InitialLaw
    from attnlaw.initial.tokens import Tokens

TOKENS, MODEL, LAW = "Tokens", "Model", "Law"
OWN, LIMIT = "own", "inf"
MOST_TOKENS = 2048


@settings
class Init(Settings):
    """How a freshly initialised Transformer treats signals, attention and logits, from its config alone.

    Layer by layer, over initialisations: exact at the model's own width for given tokens, with no weight
    matrix drawn. Only config.json is read; the weights are those that the library of the model's family
    would draw, which need not be what its authors drew. The limits of infinite width, and all but the
    attention of one layer in them, are extensions of arXiv 2506.00846.
    """

    model: str = setting(
        help="A config.json, its folder, a hub id, or gpt2, bert, llama-7b.",
        positional=True,
        file=True,
        many=True,
        metavar="MODEL",
    )
    std: float | None = setting(
        None, "Deviation of the weights, else the config's.", above=0, many=True, panel=MODEL
    )
    depth: int | None = setting(
        None, "Layers, else the config's.", symbol="L", least=1, most=10_000, many=True, panel=MODEL
    )
    width: str = setting(
        OWN,
        "own, inf (the limit), or a width to scale the model to: gains are kept.",
        many=True,
        metavar="own|inf|N",
        panel=MODEL,
    )
    keep: str = setting("heads", "What stays as the width changes.", choices=KEPT, many=True, panel=MODEL)
    scaling: str = setting(
        "1/sqrt(d)", "Of the scores; 1/d is muP's.", choices=SCORE_SCALINGS, many=True, panel=MODEL
    )

    tokens: int = setting(
        16,
        "Tokens, all different.",
        symbol="s",
        least=1,
        most=MOST_TOKENS,
        unless="ids",
        many=True,
        panel=TOKENS,
    )
    ids: tuple[int, ...] | None = setting(
        None, "Their ids; only which are equal counts.", least=0, metavar="1,2,3", panel=TOKENS
    )
    padding: int = setting(0, "How many of them, at the end, are padding.", least=0, panel=TOKENS)

    draws: int = setting(100, "Initialisations.", least=2, most=10**6, panel=LAW)
    units: int = setting(
        0,
        "Hidden units that stand for all of an MLP: mean and covariance stay exact. 0 draws all.",
        least=0,
        panel=LAW,
    )
    gradients: int = setting(
        0,
        "Also norms of gradients, over so many initialisations, at the own width. Needs the extra lens.",
        least=0,
        most=10**6,
        panel=LAW,
    )
    seed: int = setting(0, "Seed; equal seeds repeat the table.", least=0, panel=LAW)

    def check(self) -> None:
        if self.width not in (OWN, LIMIT) and not (self.width.isdecimal() and 0 < int(self.width) <= 10**7):
            raise BadSetting("width", "expected own, inf or a whole number of at most 10000000", self.width)
        there = self.tokens if self.ids is None else len(self.ids)
        if self.padding >= there:
            raise BadSetting("padding", f"expected fewer than the {there} {{tokens}}", self.padding)

    @property
    def model_width(self) -> float | None:
        """The width as a number; None is the model's own."""
        return None if self.width == OWN else math.inf if self.width == LIMIT else int(self.width)


QUANTITIES = (
    Quantity("model_width", "none in the limit", "N", kind="int", called="width N"),
    Quantity("rms", "of the stream's entries after the last layer", error=True, brief=True, log=True),
    Quantity(
        "cosine",
        "mean between tokens after the last layer",
        error=True,
        brief=True,
        axis="mean cosine between tokens",
    ),
    Quantity(
        "cosine_spread", "its deviation over initialisations", log=True, axis="deviation of the mean cosine"
    ),
    Quantity("effective_rank", "of the tokens after the last layer", error=True),
    Quantity(
        "score_sd", "deviation of scores in the first layer", error=True, brief=True, called="score deviation"
    ),
    Quantity("entropy", "of attention over uniform in the first layer", error=True, brief=True),
    Quantity(
        "logit_sd",
        "deviation of the logit of an id not among the tokens",
        error=True,
        brief=True,
        called="logit deviation",
    ),
    Quantity(
        "loss",
        "next token (BERT: the token itself); beyond 4096 ids their sum is taken as normal",
        error=True,
        brief=True,
        axis="loss, nats",
    ),
    Quantity("loss_spread", "its deviation over initialisations"),
    Quantity("uniform_loss", "ln of the vocabulary"),
    Quantity("own_probability", "of the id that stands at the place", error=True, log=True),
    Quantity("own_cosine", "of the last tokens with their own embeddings (tied head)", error=True),
    Quantity("angle_exponent", "slope of log(1 - cosine) by layer", error=True),
    Quantity("gradient_norm", "of the weight matrices of all layers", error=True, brief=True),
    Quantity("gradient_exponent", "slope of the log norm by layer", error=True),
    Quantity("initialiser", "where it was read from", kind="text"),
)


def _measure(name: str, meaning: str, **more: Any) -> tuple[Quantity, ...]:
    """A measure of a layer: its mean over initialisations, its spread, and where 90% of them are."""
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
    *(one for name, meaning in MEASURED.items() for one in _measure(name, meaning)),
)


def _given(case: Init) -> tuple[Architecture, Tokens]:
    """The model and the tokens of a case; of the model its config alone is read."""
    from attnlaw.initial.architecture import Architecture
    from attnlaw.initial.tokens import Tokens, drawn_tokens

    model = Architecture.from_config(case.model, case.std, case.depth or 0)
    if case.ids is None:
        return model, drawn_tokens(model, case.tokens, case.padding, case.seed)
    return model, Tokens(case.ids, case.padding)


def refuse(case: Init) -> None:
    """An `InputError` for a model that is not covered, or for tokens or a width that it cannot have."""
    from attnlaw.initial.law import at_width
    from attnlaw.initial.tokens import check_tokens

    model, tokens = _given(case)
    check_tokens(model, tokens)
    if case.width not in (OWN, LIMIT):
        at_width(model, int(case.width), case.keep)


@each
def run(case: Init, progress: Progress) -> InitialLaw:
    from attnlaw.initial.law import initial_law

    model, tokens = _given(case)
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
    if not case.gradients or case.width != OWN or case.scaling != declared(Init)["scaling"].default:
        return law
    from attnlaw.initial.configuration import config_of, library_values
    from attnlaw.initial.gradients import gradient_law

    values = library_values(config_of(case.model), case.depth or 0)
    found = gradient_law(values, model, tokens, case.gradients, case.seed, progress)
    return law.with_gradients(found)


def _layers(found: InitialLaw) -> Any:
    from attnlaw.base.tables import frame, schema_of

    return frame((_row(one) for one in found.layers), schema_of(columns(LAYERS)))


GRADIENTS = (
    Quantity("layer", "from 1; empty outside of layers", kind="int"),
    Quantity("matrix", "its name there", kind="text"),
    *_measure("gradient", "norm of the gradient", log=True),
)


def _gradients(found: InitialLaw) -> Any:
    from attnlaw.base.tables import frame, schema_of

    if found.gradients is None:
        return None
    rows = [
        {"layer": one.layer, "matrix": one.matrix} | _cells("gradient", one.gradient)
        for one in found.gradients.matrices
    ]
    return frame(rows, schema_of(columns(GRADIENTS)))


def _row(one: Any) -> dict[str, Any]:
    row: dict[str, Any] = {"layer": one.layer}
    for name in MEASURED:
        row |= _cells(name, getattr(one, name))
    return row


def _cells(name: str, measured: Any) -> dict[str, Any]:
    ends = {name: "value"} | {f"{name}_{end}": end for end in ("error", "spread", "low", "high")}
    return {key: None if measured is None else getattr(measured, end) for key, end in ends.items()}


CHARTS = (
    Own(
        "init_layers",
        "Layer by layer",
        draw="attnlaw.report.init_charts:layers",
        caption="Residual stream, tokens and attention: the line is the mean over initialisations, the band "
        "holds 90% of them, dashes are the limit of infinite width.",
    ),
    Curves(
        "init_depth",
        "Tokens against depth",
        x="depth",
        y="cosine",
        caption="Mean cosine between tokens after the last layer; 1 is rank collapse.",
    ),
    Curves(
        "init_width",
        "Tokens against width",
        x="model_width",
        y="cosine",
        log_x=True,
        caption="Mean cosine between tokens after the last layer at several widths, gains kept.",
    ),
    Curves(
        "init_width_spread",
        "Spread over initialisations against width",
        x="model_width",
        y="cosine_spread",
        log=True,
        caption="Deviation of the mean cosine over initialisations; at large widths the limit's own is left.",
    ),
    Curves("init_std", "Loss against the deviation of the weights", x="std", y="loss", log_x=True),
)
VERB = Verb(
    "init",
    "A Transformer before training",
    Init,
    QUANTITIES,
    run,
    tables=(
        Table("layers", LAYERS, _layers, json=True),
        Table("gradients", GRADIENTS, _gradients, json=True),
    ),
    charts=CHARTS,
    draws=True,
    refuse=refuse,
)
