"""The largest logits of real forward passes beside their bounds: what tests and the benchmark measure."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from checkpoints.forward_pass import Run, draw, make, recording, scored_blocks, unbanded

from attnlaw.analysis.forward.load import load_base_model
from attnlaw.checkpoints.model import Model
from attnlaw.checkpoints.open import open_model
from attnlaw.core.errors import InputError
from attnlaw.theory.bounds.logits import Logits, logit_bounds


@dataclass(frozen=True)
class Largest:
    """The largest logit of a head in a pass, and what its weights say of it."""

    layer: int
    kind: str
    head: int
    measured: float
    logits: Logits

    @property
    def ratio(self) -> float | None:
        return None if self.logits.bound is None else self.measured / self.logits.bound


def largest_logits(model: Model, run: Run) -> list[Largest]:
    """Of every call of attention in a run, head by head; what is masked is left out."""
    head_logits = {
        (location.layer, location.kind, location.head): logits
        for location, logits in logit_bounds(model).items()
    }
    rows = []
    for _, number, block, scores in scored_blocks(model, run):
        layer, kind = model.layers[number].index, "cross_qk" if block.cross else "qk"
        scores = scores if block.scores.sinks is None else scores[..., :-1]  # which no token has
        # Longformer has tokens before heads.
        length = scores.shape[1] if scores.ndim == 4 and scores.shape[2] == block.heads else -1
        for head, head_scores in enumerate(unbanded(scores, length).numpy()):
            largest = float(np.abs(head_scores[head_scores > -1e4]).max())
            rows.append(Largest(layer, kind, head, largest, head_logits[layer, kind, head]))
    return rows


def small_model(kind: str, sizes: dict[str, Any], inputs: Callable[[], Any], seed: int = 0) -> list[Largest]:
    """A random small model that runs once.

    Seeds other than 0 draw its parameters anew: matrices up to twice as large, gains of both signs.
    """
    module = make(kind, **sizes)
    if seed:
        torch.manual_seed(seed)
        draw(module)
        with torch.no_grad():
            for parameter in module.parameters():
                parameter.mul_(2 * torch.rand(()))
                if parameter.ndim == 1:
                    parameter.add_(torch.randn_like(parameter) * torch.rand(()))
    return run_once(module, inputs)


def run_once(module: Any, inputs: Callable[[], Any]) -> list[Largest]:
    """A pass of a model, which is then saved and opened; empty where it is refused."""
    with recording(module, pytest.MonkeyPatch()) as run:
        module(**inputs())
    with tempfile.TemporaryDirectory() as folder:
        module.save_pretrained(folder)
        try:
            model = open_model(folder)
        except InputError:
            return []
        return largest_logits(model, run)


def loaded_model(path: Path, ids: Sequence[int]) -> list[Largest]:
    """A checkpoint that the lens loads, on some tokens."""
    _, module = load_base_model(path)
    with recording(module, pytest.MonkeyPatch()) as run:
        module(input_ids=torch.tensor(ids)[None])
    return largest_logits(open_model(path), run)
