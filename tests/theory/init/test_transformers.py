"""The chain against models of `transformers` at its own initialisers."""

from __future__ import annotations

from typing import Any

import pytest
from theory.init.library import real_statistics
from theory.init.shapes import SMALL
from theory.init.two_samples import chain_statistics, p_values

from attnlaw.theory.init.architecture import Architecture
from attnlaw.theory.init.tokens import Tokens

TOKENS = Tokens((5, 9, 5, 17, 33, 9))
PADDED = Tokens((5, 9, 5, 17, 33, 0), 1, (0, 0, 0, 1, 1, 0))
FEW = ("gpt2", "llama", "bert")
LEVEL = 1e-3  # of all tests of a model together
# Deeper and wider, at deviations as they are used: at 0.02 the epsilon of the first norms counts.
DEEP: dict[str, dict[str, Any]] = {
    "gpt2": {"n_embd": 96, "n_layer": 6, "initializer_range": 0.02},
    "llama": {"hidden_size": 96, "num_hidden_layers": 6, "initializer_range": 0.1},
    "bert": {"hidden_size": 64, "num_hidden_layers": 6, "initializer_range": 0.125},
}


def same_law(name: str, draws: int, **changes: Any) -> None:
    tokens = PADDED if name == "bert" else TOKENS
    values = {**SMALL[name], **changes}
    model = Architecture.from_config(values)
    real = real_statistics(values, tokens, draws, seed=1000)
    pvalues = p_values(chain_statistics(model, tokens, 4 * draws, 17, last=False), real)
    worst = min(pvalues, key=pvalues.__getitem__)
    assert pvalues[worst] > LEVEL / len(pvalues), (worst, pvalues[worst])


@pytest.mark.slow
@pytest.mark.parametrize("name", FEW)
def test_some_models(name: str) -> None:
    same_law(name, 80)


@pytest.mark.long
@pytest.mark.parametrize("name", SMALL)
def test_every_model(name: str) -> None:
    same_law(name, 600)


@pytest.mark.long
@pytest.mark.parametrize("name", DEEP)
def test_deeper_models(name: str) -> None:
    same_law(name, 600, **DEEP[name])
