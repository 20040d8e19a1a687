"""The chain against networks of width 4 and 8 with every weight drawn; wrong variants are rejected."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from theory.init.brute_force import Network
from theory.init.shapes import SMALL
from theory.init.two_samples import chain_statistics, p_values, statistics

from attnlaw.theory.init.architecture import Architecture
from attnlaw.theory.init.chain import Chain, unit_kernel
from attnlaw.theory.init.tokens import Tokens
from attnlaw.theory.limit.wishart import bartlett, compress, symmetric_root

DRAWS = 5000
LEVEL = 1e-3  # of all tests of a family together
TOKENS = Tokens((5, 9, 5, 17, 6))
PADDED = Tokens((5, 9, 5, 17, 0, 0), 2, (0, 0, 1, 1, 0, 0))
TINY = {"hidden_size": 8, "num_attention_heads": 2, "vocab_size": 24, "initializer_range": 0.5}
# A model, narrower: 2 (5 + 1) + 4 rows of the state are more than the width.
WIDTHS: dict[str, dict[str, Any]] = {
    "gpt2": {**SMALL["gpt2"], "n_embd": 4, "n_head": 2, "n_inner": 6, "vocab_size": 24},
    "llama": {
        **SMALL["llama"],
        **TINY,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "intermediate_size": 6,
    },
    "bert": {**SMALL["bert"], **TINY, "intermediate_size": 6},
    "qwen3": {**SMALL["qwen3"], **TINY, "head_dim": 4, "intermediate_size": 6},
    "gpt_neox": {**SMALL["gpt_neox"], **TINY, "rotary_pct": 0.5, "intermediate_size": 6},
    "gemma2": {**SMALL["gemma2"], **TINY, "num_key_value_heads": 1, "head_dim": 4, "intermediate_size": 6},
    "mixtral": {**SMALL["mixtral"], **TINY, "intermediate_size": 4},
    "granite": {**SMALL["granite"], **TINY, "intermediate_size": 6},
    "opt_post": {**SMALL["opt_post"], **TINY, "word_embed_proj_dim": 8, "ffn_dim": 6},
}


def case(name: str) -> tuple[Architecture, Tokens]:
    return Architecture.from_config(WIDTHS[name]), PADDED if name == "bert" else TOKENS


_REAL: dict[str, dict[str, Any]] = {}


def real(name: str) -> dict[str, Any]:
    """Statistics of networks with every weight drawn, once."""
    if name not in _REAL:
        model, tokens = case(name)
        net = Network(model, tokens, DRAWS, seed=11)
        token_logits = net.logits[:, :, list(tokens.distinct)]
        _REAL[name] = statistics(net.grams, net.weights, token_logits, net.loss, tokens)
    return _REAL[name]


@pytest.mark.slow
@pytest.mark.parametrize("name", WIDTHS)
def test_the_chain_has_the_law_of_networks(name: str) -> None:
    model, tokens = case(name)
    pvalues = p_values(chain_statistics(model, tokens, DRAWS, seed=7), real(name))
    assert len(pvalues) > 20
    worst = min(pvalues, key=pvalues.__getitem__)
    assert pvalues[worst] > LEVEL / len(pvalues), (worst, pvalues[worst])


class NoCentring(Chain):
    def norm(self, x: Any) -> Any:
        return x / np.sqrt((x * x).sum(axis=-1, keepdims=True) + self.model.epsilon)


class WholeWidth(Chain):
    """N degrees of freedom across the state, where there are N - r."""

    def add(self, r: Any) -> None:
        n, k, rank = self.model.width, r.shape[-1], self.root.shape[-1]
        across = r @ bartlett(k, n, (self.draws,), self.rng)
        along = r @ self.rng.standard_normal((self.draws, k, rank))
        wide = np.zeros((self.draws, self.root.shape[1], rank + across.shape[-1]))
        wide[..., :rank] = self.root
        wide[:, : len(self.tokens)] += np.concatenate([along, across], axis=-1) / math.sqrt(n)
        self.root = compress(wide)


class OwnKeys(Chain):
    """Keys and values that no heads share."""

    def attention(self, h: Any, layer: int) -> Any:
        shared = self.model
        self.model = replace(shared, key_value_heads=shared.heads)
        output = super().attention(h, layer)
        self.model = shared
        return output


class NoPositions(Chain):
    def _rotary_scores(self, t: Any) -> Any:
        return self._plain_scores(t)


class GaussianScores(Chain):
    def _plain_scores(self, t: Any) -> Any:
        model, m = self.model, t.shape[-1]
        core = self.rng.standard_normal((self.draws, model.heads, m, m)) * math.sqrt(model.head_width)
        left = model.width * model.deviations.query * model.deviations.key * t[:, None]
        return left @ core @ np.swapaxes(t[:, None], -1, -2)


class KernelUnits(Chain):
    def mlp(self, h: Any) -> Any:
        gram = self.model.hidden * unit_kernel(self.model, h @ np.swapaxes(h, -1, -2))
        return symmetric_root(gram) * self.model.deviations.residual


class ExactNorm(Chain):
    """Without epsilon."""

    def norm(self, x: Any) -> Any:
        model = self.model
        self.model = replace(model, epsilon=0.0)
        output = super().norm(x)
        self.model = model
        return output


class EqualAsDifferent(Chain):
    """Equal ids taken as different."""

    def _initial_root(self) -> Any:
        root, tokens = super()._initial_root(), self.tokens
        fresh = super()._initial_root()
        assert tokens.ids[0] == tokens.ids[2]
        root[:, 2] = fresh[:, 2] if root.shape[-1] == fresh.shape[-1] else root[:, 2]
        return root


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "wrong"),
    [
        ("gpt2", NoCentring),
        ("llama", WholeWidth),
        ("llama", OwnKeys),
        ("llama", NoPositions),
        ("gpt2", GaussianScores),
        ("llama", KernelUnits),
        ("gpt2", EqualAsDifferent),
    ],
)
def test_wrong_variants_are_rejected(name: str, wrong: type[Chain]) -> None:
    model, tokens = case(name)
    pvalues = p_values(chain_statistics(model, tokens, DRAWS, 7, wrong), real(name))
    assert min(pvalues.values()) < LEVEL / len(pvalues), wrong.__name__


def test_epsilon_counts() -> None:
    values = {**WIDTHS["gpt2"], "initializer_range": 0.002}  # the mean square of a token is near epsilon
    model = Architecture.from_config(values)
    net = Network(model, TOKENS, 1000, seed=3)
    real = statistics(net.grams, net.weights, net.logits[:, :, list(TOKENS.distinct)], net.loss, TOKENS)
    right = p_values(chain_statistics(model, TOKENS, 1000, 4), real)
    wrong = p_values(chain_statistics(model, TOKENS, 1000, 4, ExactNorm), real)
    assert min(right.values()) > LEVEL / len(right)
    assert min(wrong.values()) < LEVEL / len(wrong)


@pytest.mark.slow
@pytest.mark.parametrize("change", [{"tied": False}, {"causal": False}])
def test_other_models_are_rejected(change: dict[str, Any]) -> None:
    model, tokens = case("gpt2")
    pvalues = p_values(chain_statistics(replace(model, **change), tokens, DRAWS, 7), real("gpt2"))
    assert min(pvalues.values()) < LEVEL / len(pvalues)


@pytest.mark.slow
def test_the_residual_scale_of_gpt2_counts() -> None:
    model, tokens = case("gpt2")
    plain = replace(model, deviations=replace(model.deviations, residual=model.deviations.query))
    pvalues = p_values(chain_statistics(plain, tokens, DRAWS, 7), real("gpt2"))
    assert min(pvalues.values()) < LEVEL / len(pvalues)
