"""Measure one model on many inputs: its margins and, on request, condition, amplification and scales."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from attnlaw.analysis.forward.amplification import Amplification
from attnlaw.analysis.forward.amplification import amplification as measure_amplification
from attnlaw.analysis.forward.classifier import as_inputs, open_classifier
from attnlaw.analysis.forward.condition import Condition
from attnlaw.analysis.forward.condition import condition as measure_condition
from attnlaw.analysis.forward.inputs import RawInput, open_tokenizer, read_input
from attnlaw.analysis.forward.load import load_classifier
from attnlaw.analysis.forward.margins import Difference, Margins, compare_margins, measure_margins
from attnlaw.analysis.forward.scales import MatrixScale, log10_worst_case, matrix_scales
from attnlaw.analysis.forward.trace import max_input_tokens
from attnlaw.checkpoints.open import open_model
from attnlaw.core.errors import InputError
from attnlaw.core.estimate import BriefRepr, Outcome
from attnlaw.core.progress import Progress, no_progress
from attnlaw.spectra.measure import Selection, measure


@dataclass(frozen=True, repr=False)
class MarginMeasurement(BriefRepr):
    margins: Margins
    condition: Condition | None = None
    amplification: Amplification | None = None
    log10_worst_case: tuple[float, ...] | None = None  # worst-case amplification from each layer on
    matrices: tuple[MatrixScale, ...] | None = None
    compared_with: str | None = None  # name of the first model, which this one is compared with
    difference: Difference | None = None  # the comparison with the first model
    comparison_problem: str | None = None  # why there is no comparison

    @property
    def quantities(self) -> dict[str, Any]:
        alike = ("geometric_mean", "mean_log", "median", "mean", "spread", "inputs", "ties", "flat")
        return {
            **{name: getattr(self.margins, name) for name in (*alike, "confidence", "inputs_sha256")},
            "extension": self.margins.causal,
            "total_kappa": self.condition and self.condition.total,
            "kappa_layer": self.condition and self.condition.worst_layer,
            "compared_with": self.compared_with,
            "log_ratio": self.difference and self.difference.log_ratio,
            "comparison": self.difference.sentence if self.difference else self.comparison_problem,
        }

    @property
    def outcome(self) -> Outcome:
        lost = self.amplification is not None and not self.amplification.converged
        return Outcome.NOT_CONVERGED if lost else Outcome.DONE

    @property
    def remark(self) -> str | None:
        more = self.amplification.remark if self.amplification else None
        return "; ".join(filter(None, (self.margins.remark, more))) or None

    def compare_to(self, first: MarginMeasurement) -> MarginMeasurement:
        """Return this measurement, with a comparison to another model on the same inputs."""
        name = first.margins.model
        try:
            return replace(self, compared_with=name, difference=compare_margins(self.margins, first.margins))
        except InputError as error:
            return replace(self, compared_with=name, comparison_problem=f"not compared: {error}")


def measure_model(
    source: str,
    raw_inputs: Sequence[RawInput],
    at: int = 0,
    positions: str = "last",
    seed: int = 0,
    kappa: bool = False,
    amplification: bool = False,
    progress: Progress = no_progress,
) -> MarginMeasurement:
    """Measure the margins of a model in a directory and, on request, kappa and amplification."""
    kind, module = load_classifier(source)
    tokenizer = open_tokenizer(source, module.config.vocab_size)
    longest = max_input_tokens(kind, module.config)
    read = [read_input(raw, tokenizer, longest).ids for raw in raw_inputs]
    inputs = as_inputs(read)
    network = replace(open_classifier(module, inputs), name=source)
    shared: dict[str, Any] = {"positions": positions, "seed": seed, "progress": progress}
    margins = measure_margins(network, inputs, at=at, **shared)
    unknown = tokenizer.unknown_id
    count = sum(row.count(unknown) for row in read) if unknown is not None else 0
    condition = measure_condition(network, inputs, **shared) if kappa else None
    measurement = MarginMeasurement(replace(margins, unknown=count), condition)
    if not amplification:
        return measurement
    spectra: Any = measure(open_model(source), Selection())
    worst = log10_worst_case(spectra)
    return replace(
        measurement,
        amplification=measure_amplification(network, inputs, **shared),
        log10_worst_case=None if worst is None else tuple(worst),
        matrices=matrix_scales(network, spectra, inputs, **shared),
    )
