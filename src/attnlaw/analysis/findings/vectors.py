"""Detect norms and biases that were reset: all gains of the layers are 1, or all their biases are 0.

Both are the values before training. But gains may be folded into the next matrix on purpose, and a format may
store zeros for a model without biases. So the weights alone cannot show that something is wrong. Untrained
models are left out, because other detectors report them.
"""

from __future__ import annotations

from collections.abc import Iterator

from attnlaw.analysis.findings.evidence import (
    BIAS,
    NORM_GAIN,
    OFFSET_GAIN,
    Hit,
    StoredTensor,
    Subject,
    TensorLocation,
)
from attnlaw.analysis.findings.sizes import is_trained

LEAST_BIASES = 4


def gains_one(subject: Subject, threshold: float) -> Iterator[Hit]:
    gains = _of_parts(subject, NORM_GAIN, OFFSET_GAIN)
    if gains and all(map(_is_neutral, gains)) and is_trained(subject):
        yield Hit(TensorLocation(), None, f"all {len(gains)} gains of the norm layers are exactly 1")


def _is_neutral(gain: StoredTensor) -> bool:
    return gain.zero if gain.part == OFFSET_GAIN else gain.constant and gain.peak == 1


def biases_zero(subject: Subject, threshold: float) -> Iterator[Hit]:
    biases = _of_parts(subject, BIAS)
    are_zero = len(biases) >= LEAST_BIASES and all(bias.zero for bias in biases)
    if are_zero and is_trained(subject):
        yield Hit(TensorLocation(), None, f"all {len(biases)} biases in the layers are exactly 0")


def _of_parts(subject: Subject, *parts: str) -> list[StoredTensor]:
    return [tensor for tensor in subject.evidence.tensors if tensor.part in parts]
