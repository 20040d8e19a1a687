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
    "D compares models of one task, trained to a similar loss, on the same inputs. It is not an error rate."
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

    limit: int = setting(200, "Number of inputs to use, from the first.", minimum=12, metavar="N")
    positions: str = setting(
        "last", "Token of each input at which a causal language model is read.", choices=POSITIONS
    )
    at: int = setting(0, "Block whose input is moved to find the nearest flip.", minimum=0, metavar="L")
    kappa: bool = setting(
        False, "Also show where the margin depends on the weights most: the condition of every linear map."
    )
    amplification: bool = setting(
        False,
        "Also measure how much each layer amplifies small changes, and how many directions of each matrix "
        "matter, next to the worst case from the weights alone.",
    )
    seed: int = setting(0, "Seed of sampled positions and of power iteration.", minimum=0)


QUANTITIES = (
    Quantity(
        "geometric_mean",
        "geometric mean over inputs of the relative margin; larger if predictions are further from flipping",
        "D",
        error=True,
        in_summary=True,
        display_name="relative margin D",
    ),
    Quantity("mean_log", "mean over inputs of log D", error=True, display_name="mean log D"),
    Quantity(
        "median",
        "median over inputs of D, with a confidence interval from ranks",
        range=True,
        in_summary=True,
        display_name="median D",
    ),
    Quantity(
        "mean", "arithmetic mean over inputs of D; a few saturated inputs dominate it", display_name="mean D"
    ),
    Quantity("spread", "spread of the inputs: pooled standard deviation of a token at its position", "s"),
    Quantity("inputs", "number of inputs that were used", kind="int", in_summary=True),
    Quantity("ties", "number of inputs with margin 0, which no mean includes", kind="int"),
    Quantity("flat", "number of inputs with gradient 0, which no mean includes", kind="int"),
    Quantity(
        "confidence",
        "mean over inputs of the largest predicted probability; ranks models worse than D",
    ),
    Quantity(
        "extension",
        "whether the model is a causal language model, for which D has not been validated",
        kind="bool",
        display_name="causal language model",
    ),
    Quantity(
        "total_kappa",
        "condition: median over inputs of κ summed over linear maps; a relative change of the weights by 1/κ "
        "could flip an input, to first order",
        "κ",
        in_summary=True,
        display_name="condition κ",
    ),
    Quantity(
        "kappa_layer",
        "layer with the largest κ; maps outside of layers may have more",
        kind="int",
        display_name="layer with the largest κ",
    ),
    Quantity("compared_with", "first model, which this one is compared with", kind="text"),
    Quantity(
        "log_ratio",
        "mean over inputs of log D of this model minus log D of the first model",
        error=True,
        in_summary=True,
    ),
    Quantity("comparison", "comparison with the first model in words", kind="text"),
    Quantity("inputs_sha256", "SHA-256 hash of all token ids", kind="text"),
)
MODEL = Quantity("model", "directory of the model", kind="text")
LAYER = Quantity("layer", "number of the layer, from 0; empty for maps outside of layers", kind="int")
MARGINS = (
    Quantity("input", "number of the input, from 0", kind="int"),
    Quantity("tokens", "number of tokens that are not padding", kind="int"),
    Quantity("position", "position that is read; empty for a classifier", kind="int"),
    Quantity("predicted", "class that the model predicts", kind="int"),
    Quantity("margin", "largest logit minus the next one", "m"),
    Quantity(
        "gradient", "norm of the gradient of the margin with respect to the tokens that the block reads", "g"
    ),
    Quantity(
        "distance",
        "relative margin D = m / (g s √T) for T tokens; empty if m and g are 0",
        display_name="D",
        axis="relative margin (D)",
        log=True,
    ),
    Quantity("confidence", "largest predicted probability"),
    Quantity("status", "ok, tie (margin 0) or flat (gradient 0)", kind="text"),
)
CONDITION = (
    LAYER,
    Quantity("kind", "name of the linear map inside its layer", kind="text"),
    Quantity("name", "full name of the linear map", kind="text"),
    Quantity("norm", "largest singular value of the weight"),
    Quantity("kappa", "median over inputs of the condition of this map", display_name="condition κ"),
    Quantity("share", "median over inputs of this map's share of the condition of all maps"),
)
LAYERS = (
    LAYER,
    Quantity("place", "number of the layer, or name of the map outside of layers", kind="text"),
    Quantity(
        "kappa",
        "median over inputs of the condition, summed over the linear maps of this layer",
        display_name="condition κ",
        axis="condition (κ)",
    ),
)
KAPPA_KINDS = (
    Quantity("kind", "name of the linear maps inside their layers", kind="text"),
    Quantity(
        "kappa",
        "median over inputs of the condition, summed over these maps",
        display_name="condition κ",
    ),
)
PAIRS = (
    Quantity("compared_with", "first model, which this one is compared with", kind="text"),
    Quantity("inputs", "number of inputs that have D in both models", kind="int"),
)
AMPLIFICATION = (
    Quantity("layer", "number of the layer, from 0", kind="int"),
    Quantity("output", "numbers whose change is measured: the logits", kind="text"),
    Quantity(
        "median",
        "change of the logits per small change of what the layer reads, median over inputs",
        display_name="amplification",
    ),
    Quantity(
        "max",
        "change of the logits per small change of what the layer reads, largest over inputs",
        display_name="largest amplification",
    ),
    Quantity("iterations", "rounds of power iteration; none if the value is exact", kind="int"),
    Quantity("residual", "residual of power iteration, |JᵀJv − A²v| / A²; not an error bound"),
    Quantity("log10_measured", "log10 of the median amplification", display_name="measured"),
    Quantity(
        "log10_worst_case",
        "log10 of the worst case from the weights alone: product over this and all later layers",
        display_name="worst case from the weights",
    ),
)
DIRECTIONS = (
    Quantity("layer", "number of the layer, from 0", kind="int"),
    Quantity("head", "number of the head, from 0; empty for feed-forward maps", kind="int"),
    Quantity("kind", "kind of matrix", kind="text", choices=KINDS),
    Quantity("rank", "numerical rank of the matrix", kind="int"),
    Quantity(
        "log10_scale",
        "log10 of the worst-case scale γ α L, from the weights alone",
        display_name="log₁₀ scale, worst case",
    ),
    Quantity("p", "best Schatten index at the worst-case scale", display_name="p*, worst case"),
    Quantity(
        "log10_scale_measured",
        "log10 of the scale on these inputs, L √(mean of |dm/dM|²) / median m in nuclear norms",
        display_name="log₁₀ scale, measured",
    ),
    Quantity(
        "p_measured", "best Schatten index at the measured scale; 0 counts ranks", display_name="p*, measured"
    ),
    Quantity(
        "effective_directions", "number of singular values that matter at the measured scale", kind="int"
    ),
    Quantity(
        "directions",
        "number of singular values that matter at the measured scale, and the rank, as text: 14 of 64",
        kind="text",
        display_name="effective directions",
    ),
    Quantity(
        "directions_share",
        "share of the rank that matters at the measured scale",
        display_name="effective directions / rank",
    ),
)


def run(cases: Sequence[MarginsSettings], progress: Progress) -> Iterator[MarginMeasurement | InputError]:
    """Measure every model, and compare each with the first model that worked."""
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
