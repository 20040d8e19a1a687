"""Matrices inside the layers that no table names, against a search through all layers for each of them."""

from __future__ import annotations

import numpy as np

from attnlaw.checkpoints.assembly.remarks import _names_with_prefix
from attnlaw.checkpoints.open import open_model


def test_names_begin_with_one_of_the_prefixes_as_a_search_through_all_finds() -> None:
    draw = np.random.default_rng(0)

    def texts(count: int, longest: int) -> list[str]:
        return ["".join(draw.choice(list("ab."), draw.integers(0, longest))) for _ in range(count)]

    match_count = 0
    for trial in range(300):
        prefixes, names = texts(trial % 8, 4), texts(20, 6)
        expected = [name for name in names if name.startswith(tuple(prefixes))]
        assert _names_with_prefix(prefixes, names) == expected
        match_count += len(expected)
    assert 0 < match_count < 300 * 20


def test_layers_whose_numbers_begin_alike_are_told_apart() -> None:
    parts = ("q_proj", "k_proj", "v_proj", "o_proj")
    state = {
        f"layers.{layer}.self_attn.{part}.weight": np.eye(4, dtype=np.float32)
        for layer in range(12)
        for part in parts
    }
    extra = {name: np.eye(4, dtype=np.float32) for name in ("layers.11.x", "layers.1x", "layers.12x.x", "x")}
    warnings = open_model(state | extra, heads=2).warnings
    assert "attnlaw leaves out 1 matrix inside the layers, such as layers.11.x" in warnings
