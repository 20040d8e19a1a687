"""One model on many inputs: margins, and where asked for condition, amplification and measured scales."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from attnlaw.base.declare import Progress, silent
from attnlaw.base.errors import InputError
from attnlaw.base.estimate import Outcome
from attnlaw.base.shown import Shown
from attnlaw.forward.amplification import Amplification, amplifications
from attnlaw.forward.condition import Condition, conditions
from attnlaw.forward.headed import Headed, Inputs, as_inputs, open_headed
from attnlaw.forward.load import load_headed
from attnlaw.forward.margins import Difference, Margins, compare_margins, measured
from attnlaw.forward.scales import MatrixScale, matrix_scales
from attnlaw.forward.trace import most_tokens
from attnlaw.forward.worst_case import log10_worst_case
from attnlaw.models.inputs import Given, read_input
from attnlaw.models.open import open_model
from attnlaw.models.tokenizer import Tokenizer, open_tokenizer
from attnlaw.spectra.measure import Selection, measure


@dataclass(frozen=True, repr=False)
class Measurement(Shown, verb="margins"):
    """What was measured of a model. `difference` is against the first model, `apart` why there is none."""

    margins: Margins
    condition: Condition | None = None
    amplification: Amplification | None = None
    log10_worst_case: tuple[float, ...] | None = None
    matrices: tuple[MatrixScale, ...] | None = None
    compared_with: str | None = None
    difference: Difference | None = None
    apart: str | None = None

    @property
    def quantities(self) -> dict[str, Any]:
        """By name, as the verb declares them."""
        own = self.margins
        return {
            "geometric_mean": own.geometric_mean,
            "mean_log": own.mean_log,
            "median": own.median,
            "mean": own.mean,
            "spread": own.spread,
            "inputs": own.inputs,
            "ties": own.ties,
            "flat": own.flat,
            "confidence": own.confidence,
            "extension": own.causal,
            "total_kappa": self.condition and self.condition.total,
            "kappa_layer": self.condition and self.condition.worst_layer,
            "compared_with": self.compared_with,
            "log_ratio": self.difference and self.difference.log_ratio,
            "comparison": self.difference.sentence if self.difference else self.apart,
            "inputs_sha256": own.inputs_sha256,
        }

    @property
    def outcome(self) -> Outcome:
        lost = self.amplification is not None and not self.amplification.converged
        return Outcome.NOT_CONVERGED if lost else Outcome.DONE

    @property
    def remark(self) -> str | None:
        more = self.amplification.remark if self.amplification else None
        return "; ".join(filter(None, (self.margins.remark, more))) or None

    def beside(self, first: Measurement) -> Measurement:
        """The same, compared with another model's on the same inputs."""
        name = first.margins.model
        try:
            return replace(self, compared_with=name, difference=compare_margins(self.margins, first.margins))
        except InputError as error:
            return replace(self, compared_with=name, apart=f"not compared: {error}")


def measure_model(
    source: str,
    given: Sequence[Given],
    at: int = 0,
    positions: str = "last",
    seed: int = 0,
    kappa: bool = False,
    amplification: bool = False,
    progress: Progress = silent,
) -> Measurement:
    """Margins of a model in a directory on inputs as they were given, and what else is asked for."""
    kind, module = load_headed(source)
    tokenizer = open_tokenizer(source, module.config.vocab_size)
    read = [read_input(one, tokenizer, most_tokens(kind, module.config)).ids for one in given]
    inputs = as_inputs(read)
    network = replace(open_headed(module, inputs), name=source)
    found = measured(network, inputs, "hard", at, positions, seed, progress)
    unknown = _unknown(tokenizer)
    count = sum(row.count(unknown) for row in read) if unknown is not None else 0
    whole = Measurement(
        margins=replace(found, unknown=count),
        condition=conditions(network, inputs, "hard", positions, seed, progress) if kappa else None,
    )
    return _amplified(whole, source, network, inputs, positions, seed, progress) if amplification else whole


def _amplified(
    found: Measurement,
    source: str,
    network: Headed,
    inputs: Inputs,
    positions: str,
    seed: int,
    progress: Progress,
) -> Measurement:
    """The same with amplification by layer and scales by matrix, measured and by the weights alone."""
    spectra: Any = measure(open_model(source), Selection())
    worst = log10_worst_case(spectra)
    return replace(
        found,
        amplification=amplifications(network, inputs, positions=positions, seed=seed, progress=progress),
        log10_worst_case=None if worst is None else tuple(worst),
        matrices=matrix_scales(network, spectra, inputs, positions, seed, progress),
    )


def _unknown(tokenizer: Tokenizer) -> int | None:
    """The id of a token that stands for what the tokenizer does not know."""
    if tokenizer.own is None:
        return None
    token = getattr(tokenizer.own.model, "unk_token", None)
    return None if token is None else tokenizer.own.token_to_id(token)
