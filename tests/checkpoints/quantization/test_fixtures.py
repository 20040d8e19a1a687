"""Every fixture decodes to the numbers of the library that wrote it, bit by bit."""

from __future__ import annotations

import numpy as np
import pytest
from checkpoints.quantization.fixtures import FOLDER, NAMES, difference, expected

from attnlaw.checkpoints.open import open_model


@pytest.mark.parametrize("name", NAMES)
def test_a_fixture_decodes_to_the_weights_of_its_library(name: str) -> None:
    model = open_model(FOLDER / name)
    assert expected(name)
    for weight in expected(name):
        ours = model.tensors.read(weight)
        assert difference(name, weight, ours) == 0, weight


@pytest.mark.parametrize("name", NAMES)
def test_a_member_of_a_stack_is_the_same_as_in_the_whole(name: str) -> None:
    tensors = open_model(FOLDER / name).tensors
    for weight, values in expected(name).items():
        if values.ndim == 3:
            for member in range(len(values)):
                assert np.array_equal(tensors.read(weight, member), tensors.read(weight)[member])
