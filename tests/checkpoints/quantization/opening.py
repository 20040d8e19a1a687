"""Open checkpoints in memory that the encoders made."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from checkpoints.quantization.encoders import Coded

from attnlaw.checkpoints.config import Config
from attnlaw.checkpoints.quantization import decoded
from attnlaw.checkpoints.tensors import InMemoryTensors, Tensors
from attnlaw.core.errors import InputError


def opened(coded: Coded) -> Tensors:
    """The tensors of a checkpoint under their plain names."""
    tensors = InMemoryTensors(coded.tensors)
    tensors.texts = coded.texts
    values: dict[str, Any] = dict(coded.values)
    if coded.quantization is not None:
        values["quantization_config"] = dict(coded.quantization)
    return decoded(tensors, Config(values, "config.json"))


def reads_right(coded: Coded) -> None:
    """Assert that the weights of a checkpoint, and nothing else, are read, bit by bit."""
    tensors = opened(coded)
    assert set(tensors.shapes) == set(coded.weights)
    for name, weight in coded.weights.items():
        ours = tensors.read(name)
        assert ours.dtype == np.float32
        assert tensors.shapes[name] == ours.shape == weight.shape
        assert np.array_equal(ours, weight)
        for member in range(len(weight) if weight.ndim == 3 else 0):
            assert np.array_equal(tensors.read(name, member), weight[member])


def read_all(coded: Coded) -> None:
    tensors = opened(coded)
    for name in tensors.shapes:
        tensors.read(name)


def refused(coded: Coded, *parts: str) -> str:
    """The one line in which opening and reading a checkpoint ends."""
    with pytest.raises(InputError) as caught:
        read_all(coded)
    message = str(caught.value)
    assert "\n" not in message
    assert ";" in message  # what is wrong; what to do
    for part in parts:
        assert part in message, message
    return message
