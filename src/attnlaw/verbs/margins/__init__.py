"""`attnlaw margins MODEL...`: compare trained models of one task on inputs without labels."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from math import log10
from typing import Any, ClassVar

from attnlaw.analysis.forward.inputs import POSITIONS, InputSettings, raw_inputs
from attnlaw.analysis.forward.margin_measurement import MarginMeasurement, measure_model
from attnlaw.analysis.forward.scales import MatrixScale
from attnlaw.checkpoints.network import KINDS
from attnlaw.core.errors import InputError
from attnlaw.core.progress import Progress
from attnlaw.core.quantity import Quantity, TableSpec
from attnlaw.core.settings import setting, settings_dataclass
from attnlaw.core.verb import Verb, attempt
from attnlaw.verbs.lens import LocalModel

D_MEANING = (
    "D compares models of one task, trained to a similar loss, on the same inputs. D is not an error rate."
)


@settings_dataclass
class MarginsSettings(InputSettings, LocalModel):
    """Compare trained models of one task on inputs without labels.

    D is the relative margin: the margin of the model's own prediction, divided by its gradient and by the
    spread of the inputs. The larger D, the further predictions are from flipping, and the smaller the gap to
    expect between training and test error. D compares models of one task, trained to a similar loss, on the
    same inputs. It is not an error rate, and it has not been validated for causal language models. Give
    inputs that training did not see: at least 12, better 32, ideally 200. Each further model is compared with
    the first. This command needs the optional packages of attnlaw[lens].
    """

    example_input: ClassVar[tuple[str, str]] = ("file", "examples/sentences.txt")

    limit: int = setting(200, "Number of inputs to use, from the first one on.", minimum=12, metavar="N")
    positions: str = setting(
        "last",
        "Token at which a causal language model's margin is measured: the last, or a random one (sample).",
        choices=POSITIONS,
    )
    at: int = setting(
        0,
        "Index of the layer whose input is varied, to see how much change flips a prediction (0: the "
        "first layer).",
        minimum=0,
        metavar="L",
    )
    kappa: bool = setting(
        False,
        "Also show which weights the margin depends on most: the condition number κ of every linear layer.",
    )
    amplification: bool = setting(
        False,
        "Also measure how much each layer amplifies small changes, and how many directions of each "
        "matrix these inputs need.",
    )
    seed: int = setting(
        0,
        "Seed of random positions and of the start of power iterations. Equal seeds give equal results.",
        minimum=0,
    )


QUANTITIES = (
    Quantity(
        "geometric_mean",
        "relative margin D (geometric mean over inputs): larger if predictions are further from flipping",
        "D",
        error=True,
        in_summary=True,
        display_name="relative margin D",
    ),
    Quantity(
        "mean_log",
        "mean over inputs of log D, for the relative margin D",
        error=True,
        display_name="mean log D",
    ),
    Quantity(
        "median",
        "median over inputs of the relative margin D, with a confidence interval",
        range=True,
        in_summary=True,
        display_name="median D",
    ),
    Quantity(
        "mean",
        "arithmetic mean over inputs of the relative margin D; a few very confident inputs dominate it",
        display_name="mean D",
    ),
    Quantity(
        "spread",
        "how much the layer's input varies between inputs: standard deviation of a token's entries "
        "at the same position",
        "s",
    ),
    Quantity("inputs", "number of inputs that were used", kind="int", in_summary=True),
    Quantity(
        "ties",
        "number of inputs whose two largest logits are equal (margin 0); all means leave them out",
        kind="int",
    ),
    Quantity(
        "flat",
        "number of inputs whose margin does not change with the layer's input (gradient 0); all "
        "means leave them out",
        kind="int",
    ),
    Quantity(
        "confidence",
        "mean over inputs of the largest predicted probability, which ranks models less well than D",
    ),
    Quantity(
        "extension",
        "whether the model is a causal language model, for which the relative margin D is not validated",
        kind="bool",
        display_name="causal language model",
    ),
    Quantity(
        "total_kappa",
        "condition number κ (median over inputs): changing all weights by a fraction 1/κ could flip "
        "a prediction",
        "κ",
        in_summary=True,
        display_name="condition κ",
    ),
    Quantity(
        "kappa_layer",
        "layer with the largest condition number κ, not counting matrices outside of the layers",
        kind="int",
        display_name="layer with the largest κ",
    ),
    Quantity("compared_with", "first model of the command, which this model is compared with", kind="text"),
    Quantity(
        "log_ratio",
        "mean over inputs of log D of this model minus log D of the first model",
        error=True,
        in_summary=True,
    ),
    Quantity("comparison", "comparison of this model with the first one, in words", kind="text"),
    Quantity(
        "inputs_sha256",
        "SHA-256 hash of the token ids of all inputs: equal if two runs used the same inputs",
        kind="text",
    ),
)
MODEL = Quantity("model", "directory of the model", kind="text")
LAYER = Quantity(
    "layer", "index of the layer, counting from 0; empty for matrices outside of layers", kind="int"
)
MARGINS = (
    Quantity("input", "index of the input, counting from 0", kind="int"),
    Quantity("tokens", "number of tokens in the input, without padding", kind="int"),
    Quantity(
        "position",
        "position of the token at which the margin is measured; empty for a classifier",
        kind="int",
    ),
    Quantity("predicted", "class that the model predicts", kind="int"),
    Quantity("margin", "margin m: largest logit minus the second largest", "m"),
    Quantity(
        "gradient", "norm of the gradient of the margin with respect to the input of the chosen layer", "g"
    ),
    Quantity(
        "distance",
        "relative margin D: margin divided by gradient norm, spread of the inputs and √tokens; empty "
        "if margin and gradient are 0",
        display_name="D",
        axis="relative margin (D)",
        log=True,
    ),
    Quantity("confidence", "largest predicted probability"),
    Quantity("status", "whether the input counts: ok, tie (margin 0) or flat (gradient 0)", kind="text"),
)
CONDITION = (
    LAYER,
    Quantity("kind", "name of the weight matrix within its layer", kind="text"),
    Quantity("name", "full name of the weight matrix", kind="text"),
    Quantity("norm", "largest singular value of the weight matrix"),
    Quantity(
        "kappa",
        "condition number κ of this weight matrix (median over inputs); large if small changes of "
        "its weights flip predictions",
        display_name="condition κ",
    ),
    Quantity(
        "share",
        "share of this weight matrix in the condition number κ of the model (median over inputs)",
    ),
)
LAYERS = (
    LAYER,
    Quantity("place", "index of the layer, or name of a weight matrix outside of the layers", kind="text"),
    Quantity(
        "kappa",
        "condition number κ, summed over the weight matrices of the layer (median over inputs)",
        display_name="condition κ",
        axis="condition (κ)",
    ),
)
KAPPA_KINDS = (
    Quantity("kind", "name of the weight matrices within their layers", kind="text"),
    Quantity(
        "kappa",
        "condition number κ, summed over all weight matrices of this kind (median over inputs)",
        display_name="condition κ",
    ),
)
PAIRS = (
    Quantity("compared_with", "first model of the command, which this model is compared with", kind="text"),
    Quantity("inputs", "number of inputs on which D is known for both models", kind="int"),
)
AMPLIFICATION = (
    Quantity("layer", "index of the layer, counting from 0", kind="int"),
    Quantity("output", "what the change is measured on: the logits", kind="text"),
    Quantity(
        "median",
        "how much larger the change of the logits is than a small change of the layer's input "
        "(median over inputs)",
        display_name="amplification",
    ),
    Quantity(
        "max",
        "how much larger the change of the logits is than a small change of the layer's input "
        "(largest over inputs)",
        display_name="largest amplification",
    ),
    Quantity(
        "iterations", "number of power iterations that computed the value; empty if it is exact", kind="int"
    ),
    Quantity(
        "residual",
        "numerical residual of the power iteration, |JᵀJv − A²v| / A²; small means that it has converged",
    ),
    Quantity(
        "log10_measured",
        "log10 of the amplification from the layer's input to the logits (median over inputs)",
        display_name="measured",
    ),
    Quantity(
        "log10_worst_case",
        "log10 of the largest amplification from the layer's input to the logits that the weights "
        "allow for any input",
        display_name="worst case, from weights",
    ),
)
DIRECTIONS = (
    Quantity("layer", "index of the layer, counting from 0", kind="int"),
    Quantity(
        "head", "index of the attention head, counting from 0; empty for feed-forward matrices", kind="int"
    ),
    Quantity(
        "kind",
        "kind of weight matrix, such as qk (query-key), vo (value-output) or ffn_in (feed-forward)",
        kind="text",
        choices=KINDS,
    ),
    Quantity("rank", "rank of the matrix: number of singular values above rounding errors", kind="int"),
    Quantity(
        "log10_scale",
        "log10 of the factor that multiplies the matrix in the generalization proxy, in the worst "
        "case (from the weights alone)",
        display_name="log₁₀ of the worst-case factor",
    ),
    Quantity(
        "p",
        "exponent p that makes the matrix's part of the generalization proxy smallest, in the worst case",
        display_name="best exponent p*, worst case",
    ),
    Quantity(
        "log10_scale_measured",
        "log10 of the factor that multiplies the matrix in the generalization proxy, measured on "
        "these inputs",
        display_name="log₁₀ of the measured factor",
    ),
    Quantity(
        "p_measured",
        "exponent p that makes the matrix's part of the generalization proxy smallest, on these "
        "inputs; at 0 only its rank counts",
        display_name="p*, measured",
    ),
    Quantity(
        "effective_directions",
        "number of directions (singular values) of the matrix that matter on these inputs",
        kind="int",
    ),
    Quantity(
        "directions",
        "number of directions of the matrix that matter on these inputs, next to its rank, such as 14 of 64",
        kind="text",
        display_name="effective directions",
    ),
    Quantity(
        "directions_share",
        "share of the matrix's rank that matters on these inputs",
        display_name="effective directions relative to the rank",
    ),
)


def run(cases: Sequence[MarginsSettings], progress: Progress) -> Iterator[MarginMeasurement | InputError]:
    """Measure every model, and compare each with the first model that could be measured."""
    first = None
    for case in cases:
        measurement = attempt(_measure, case, progress)
        if isinstance(measurement, InputError):
            yield measurement
        else:
            yield measurement if first is None else measurement.compare_to(first)
            first = first or measurement


def _measure(case: MarginsSettings, progress: Progress) -> MarginMeasurement:
    given = raw_inputs(case)[: case.limit]
    parts = case.kappa, case.amplification
    return measure_model(case.model, given, case.at, case.positions, case.seed, *parts, progress)


def _table(
    name: str,
    columns: tuple[Quantity, ...],
    part: str,
    rows: Callable[[Any], Iterable[dict[str, Any]]],
    json: bool = True,
) -> TableSpec[MarginMeasurement]:
    """Declare a table of margins whose rows name the model. There is no table if `part` was not measured."""

    def with_model(measurement: MarginMeasurement) -> list[dict[str, Any]] | None:
        if getattr(measurement, part) is None:
            return None
        return [{"model": measurement.margins.model} | row for row in rows(measurement)]

    return TableSpec(name, (MODEL, *columns), with_model, json, optional=part != "margins")


def _amplification_rows(measurement: Any) -> list[dict[str, Any]]:
    rows = measurement.amplification.rows
    worst = measurement.log10_worst_case or (None,) * len(rows)
    return [
        vars(row) | {"log10_measured": log10(row.median) if row.median else None, "log10_worst_case": largest}
        for row, largest in zip(rows, worst, strict=True)
    ]


def _layer_rows(measurement: Any) -> list[dict[str, Any]]:
    names = ("layer", "place", "kappa")
    return [dict(zip(names, place, strict=True)) for place in measurement.condition.places]


def _kind_rows(measurement: Any) -> list[dict[str, Any]]:
    return [{"kind": kind, "kappa": kappa} for kind, kappa in measurement.condition.by_kind.items()]


def _direction_row(row: MatrixScale) -> dict[str, Any]:
    if row.effective_directions is None or not row.rank:
        return vars(row)
    directions = f"{row.effective_directions} of {row.rank}"
    return vars(row) | {"directions": directions, "directions_share": row.effective_directions / row.rank}


VERB = Verb(
    "margins",
    "Margins on inputs without labels",
    MarginsSettings,
    QUANTITIES,
    run,
    tables=(
        _table(
            *("margins", MARGINS, "margins"),
            lambda measured: [vars(row) | {"status": row.status} for row in measured.margins.rows],
        ),
        _table("condition", CONDITION, "condition", lambda measured: map(vars, measured.condition.rows)),
        _table("kappa_layers", LAYERS, "condition", _layer_rows),
        _table("amplification", AMPLIFICATION, "amplification", _amplification_rows),
        _table("directions", DIRECTIONS, "matrices", lambda measured: map(_direction_row, measured.matrices)),
        _table("kappa_kinds", KAPPA_KINDS, "condition", _kind_rows, json=False),
        _table(
            *("pairs", PAIRS, "difference"),
            lambda measured: [
                {"compared_with": measured.compared_with, "inputs": measured.difference.inputs}
            ],
            json=False,
        ),
    ),
    charts=("margins_distances", "margins_kappa", "margins_amplification", "margins_directions"),
    example="""
    >>> import attnlaw
    >>> model, file = "examples/tiny-decoder", "examples/sentences.txt"
    >>> attnlaw.margins(model, file=file, limit=12).inputs
    12
    """,
    examples={
        "attnlaw margins base tuned --file examples/sentences.txt": (
            "compare two models on the same inputs, without labels"
        ),
        "attnlaw margins tuned --file examples/sentences.txt --kappa": (
            "also show which layers the margin depends on"
        ),
    },
)
