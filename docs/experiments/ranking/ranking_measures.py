"""What is held against the generalization gap: measures of one trained model, all by attnlaw's own functions.

Each has the sign with which a larger value should mean a larger gap. Measures on inputs use no labels; where
not said otherwise the inputs are held out from training and from the test error.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from math import log, log10
from pathlib import Path
from typing import Any

import numpy as np
import torch
from ranking_model import Transformer
from ranking_tasks import Data, Run, data_of
from safetensors import safe_open

import attnlaw
from attnlaw.analysis.fit.tail import power_law_tails
from attnlaw.analysis.forward.amplification import amplification
from attnlaw.analysis.forward.condition import condition
from attnlaw.analysis.forward.margins import measure_margins
from attnlaw.checkpoints.open import open_model
from attnlaw.spectra.measure import Selection, measure
from attnlaw.theory.bounds.factors import lipschitz, log_layer_factor

ARCHITECTURE = Path(__file__).parent / "architecture.toml"
FEW = 32  # inputs of the amplification, which needs a backward pass for each class


@dataclass(frozen=True)
class Measure:
    """A column of the rows, what it is called, and what it looks at: inputs or weights alone."""

    name: str
    label: str
    needs: str


MEASURES = tuple(
    Measure(*words)
    for words in (
        ("mean_log_distance", "D, geometric mean", "inputs"),
        ("median_distance", "D, median", "inputs"),
        ("mean_distance", "D, arithmetic mean", "inputs"),
        ("smooth_distance", "D with a smooth margin, median", "inputs"),
        ("training_distance", "D on training inputs", "inputs"),
        ("unscaled_distance", "D without the spread of inputs", "inputs"),
        ("unsure", "1 - confidence", "inputs"),
        ("margin", "plain margin, median", "inputs"),
        ("kappa_per_map", "kappa, mean over matrices", "inputs"),
        ("kappa", "kappa, sum over matrices", "inputs"),
        ("log10_amplification", "measured amplification", "inputs"),
        ("frobenius_squared", "Frobenius norm squared", "weights"),
        ("mean_log_norm", "mean log spectral norm", "weights"),
        ("stable_rank", "mean stable rank", "weights"),
        ("tail_exponent", "mean tail exponent", "weights"),
        ("log10_worst_case", "worst-case amplification", "weights"),
        ("log10_spectrum_adaptive", "spectrum-adaptive proxy", "weights"),
        ("log10_fixed_p_2", "proxy at p = 2", "weights"),
        ("log10_edelman", "Edelman proxy", "weights"),
        ("log10_trauger_tewari", "Trauger-Tewari proxy", "weights"),
        ("parameters", "number of parameters", "weights"),
    )
)


def row_of(path: Path) -> dict[str, Any]:
    """Factors, outcome and measures of the run whose weights are in a file."""
    torch.set_num_threads(1)
    with safe_open(path, "pt") as file:
        words = file.metadata()
        state = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    run = Run(**json.loads(words["run"]))
    model = Transformer(run)
    model.load_state_dict(state)
    return asdict(run) | json.loads(words["outcome"]) | measures(model.eval(), data_of(run))


def measures(model: Transformer, data: Data) -> dict[str, Any]:
    """All of `MEASURES` for one model."""
    return on_inputs(model, data) | of_weights(model)


def on_inputs(model: Transformer, data: Data) -> dict[str, Any]:
    """Measures of D, confidence, kappa and amplification; a causal model is read where `sample` draws."""
    how: dict[str, Any] = {"blocks": model.blocks, "positions": "sample"}
    margins = measure_margins(model, data.held_out, **how)
    smooth = measure_margins(model, data.held_out, margin="smooth", **how)
    training = measure_margins(model, data.inputs[: len(data.held_out)], **how)
    where = condition(model, data.held_out, **how)
    moved = [row for row in margins.rows if row.gradient > 0]
    first = amplification(model, data.held_out[:FEW], **how).rows[0]
    return {
        "mean_log_distance": -margins.mean_log.value,
        "median_distance": -margins.median.value,
        "mean_distance": -margins.mean,
        "smooth_distance": -smooth.median.value,
        "training_distance": -training.mean_log.value,
        "unscaled_distance": -float(np.median([row.margin / row.gradient for row in moved])),
        "unsure": 1 - margins.confidence,
        "margin": -float(np.median([row.margin for row in margins.rows])),
        "kappa_per_map": where.total / len(where.rows),
        "kappa": where.total,
        "log10_amplification": log10(first.median),
        "ties": margins.ties,
        "flat": margins.flat,
    }


def of_weights(model: Transformer) -> dict[str, Any]:
    """Measures that need no input."""
    audit = attnlaw.audit(model, map=ARCHITECTURE)
    matrices, proxies = audit.matrices, audit.summary["proxies"]
    tails = power_law_tails(np.square(values) for values in audit.spectra["singular_values"])
    parts = (part for block in model.blocks for part in block.modules())
    maps = [part.weight.detach().double() for part in parts if isinstance(part, torch.nn.Linear)]
    return {
        "frobenius_squared": float(sum(weight.square().sum() for weight in maps)),
        "mean_log_norm": float(matrices["spectral_norm"].log().mean()),
        "stable_rank": matrices["stable_rank"].mean(),
        "tail_exponent": float(np.mean([tail.alpha for tail in tails if tail is not None])),
        "log10_worst_case": worst_case(model),
        "log10_spectrum_adaptive": proxies["spectrum_adaptive"]["log10"],
        "log10_fixed_p_2": proxies["fixed_p"]["2"]["log10"],
        "log10_edelman": proxies["edelman"]["log10"],
        "log10_trauger_tewari": proxies["trauger_tewari"]["log10"],
        "parameters": sum(p.numel() for p in model.parameters()),
    }


def worst_case(model: Transformer) -> float:
    """log10 of the product of the factors of all layers (arXiv 2605.07297)."""
    network = measure(open_model(model, map=ARCHITECTURE), Selection())
    constant = lipschitz(network.activation)
    return float(sum(log_layer_factor(layer, constant) for layer in network.layers)) / log(10)
