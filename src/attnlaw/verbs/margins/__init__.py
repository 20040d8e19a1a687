"""`attnlaw margins MODEL...`: rank trained models of one task on inputs without labels."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from math import log10
from typing import Any

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

D_MEANING = "ranks models of one task, trained to a similar loss, on the same inputs; not an error rate"


@settings_dataclass
class MarginsSettings(InputSettings, LocalModel):
    """Show which of several trained models generalises better, from inputs without labels.

    D is the margin of the model's own prediction, divided by its gradient and the spread of the inputs. It
    ranks models of one task, trained to a similar loss, on the same inputs; it is not an error rate. Give
    inputs that training did not see: 12 are needed, 32 nearly suffice, 200 are plenty. Two or more models are
    compared in pairs. D has not been validated for causal language models. This command needs the
    optional packages of attnlaw[lens].
    """

    limit: int = setting(200, "Inputs to use, the first ones.", minimum=12, metavar="N")
    positions: str = setting("last", "The token of a causal model that is read.", choices=POSITIONS)
    at: int = setting(0, "Block whose input is moved and spread.", minimum=0, metavar="L")
    kappa: bool = setting(False, "Where a margin could be lost: the condition of every linear map.")
    amplification: bool = setting(
        False,
        "What is measured beside the worst case: amplification by layer, scale and directions by matrix.",
    )
    seed: int = setting(0, "Seed of sampled positions and of power iteration.", minimum=0)


QUANTITIES = (
    Quantity(
        "geometric_mean",
        f"exp of the mean log D: {D_MEANING}",
        "D",
        error=True,
        in_summary=True,
        display_name="geometric mean of D",
    ),
    Quantity("mean_log", "mean of log D", error=True, display_name="mean log D"),
    Quantity(
        "median", "of D, with an interval of ranks", range=True, in_summary=True, display_name="median D"
    ),
    Quantity("mean", "of D, which saturated inputs rule", display_name="mean D"),
    Quantity("spread", "pooled standard deviation of a token at its position", "s"),
    Quantity("inputs", "that were used", kind="int", in_summary=True),
    Quantity("ties", "inputs of margin 0, in no mean", kind="int"),
    Quantity("flat", "inputs of gradient 0, in no mean", kind="int"),
    Quantity("confidence", "mean of the largest probability: it ranks worse than D"),
    Quantity("extension", "a causal language model, where nothing is established", kind="bool"),
    Quantity("total_kappa", "median over inputs of the condition, summed over maps", "κ", in_summary=True),
    Quantity(
        "kappa_layer", "the layer that has most of it; maps outside of layers may have more", kind="int"
    ),
    Quantity("compared_with", "the first model", kind="text"),
    Quantity(
        "log_ratio", "mean difference of log D from the first model, in pairs", error=True, in_summary=True
    ),
    Quantity("comparison", "what the pairs say", kind="text"),
    Quantity("inputs_sha256", "of the token ids", kind="text"),
)
MODEL = Quantity("model", "its directory", kind="text")
MARGINS = (
    Quantity("input", "from 0", kind="int"),
    Quantity("tokens", "that are visible", kind="int"),
    Quantity("position", "that is read; empty for a classifier", kind="int"),
    Quantity("predicted", "the model's own class", kind="int"),
    Quantity("margin", "largest logit minus the next", "m"),
    Quantity("gradient", "of the margin, over the visible tokens", "g"),
    Quantity(
        "distance",
        "m / (g s √T); empty where m and g are 0",
        display_name="D",
        axis="relative margin D",
        log=True,
    ),
    Quantity("confidence", "largest probability"),
    Quantity("status", "ok, tie or flat", kind="text"),
)
CONDITION = (
    Quantity("layer", "from 0; empty outside of blocks", kind="int"),
    Quantity("kind", "name of the map inside its block", kind="text"),
    Quantity("name", "of the map", kind="text"),
    Quantity("norm", "largest singular value of the weight"),
    Quantity("kappa", "median over inputs", display_name="κ"),
    Quantity("share", "median over inputs of its part in the sum over maps"),
)
LAYERS = (
    Quantity("layer", "from 0; empty outside of layers", kind="int"),
    Quantity("place", "the layer, or the map outside of layers", kind="text"),
    Quantity(
        "kappa", "median over inputs of the sum over the maps there", display_name="κ", axis="condition κ"
    ),
)
KAPPA_KINDS = (
    Quantity("kind", "name of the maps inside their blocks", kind="text"),
    Quantity("kappa", "median over inputs of the sum over these maps", display_name="κ"),
)
PAIRS = (
    Quantity("compared_with", "the first model", kind="text"),
    Quantity("inputs", "that have D in both", kind="int"),
)
AMPLIFICATION = (
    Quantity("layer", "from 0", kind="int"),
    Quantity("output", "what is moved: the logits", kind="text"),
    Quantity("median", "over inputs, measured", display_name="amplification"),
    Quantity("max", "over inputs, measured"),
    Quantity("iterations", "rounds of power iteration; none where it is exact", kind="int"),
    Quantity("residual", "|JᵀJv − A²v| / A², no error bound"),
    Quantity("log10_measured", "log10 of the median", display_name="log₁₀, measured"),
    Quantity(
        "log10_worst_case",
        "the weights alone, product over layers from here on",
        display_name="log₁₀, worst case",
    ),
)
DIRECTIONS = (
    Quantity("layer", "from 0", kind="int"),
    Quantity("head", "from 0; empty for maps of feed-forward", kind="int"),
    Quantity("kind", "of the matrix", kind="text", choices=KINDS),
    Quantity("rank", "numerical rank", kind="int"),
    Quantity("log10_scale", "γ α L, by the weights alone", display_name="log₁₀ scale, worst case"),
    Quantity("p", "best Schatten index at that scale", display_name="p*, worst case"),
    Quantity(
        "log10_scale_measured",
        "L √(mean of |dm/dM|²) / median m, nuclear norms",
        display_name="log₁₀ scale, measured",
    ),
    Quantity("p_measured", "best Schatten index at that scale; 0 counts ranks", display_name="p*, measured"),
    Quantity("effective_directions", "singular values that count at the measured scale", kind="int"),
    Quantity("directions", "the same, of how many", kind="text", display_name="effective directions"),
    Quantity("directions_share", "of the rank", display_name="effective directions / rank"),
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
