"""The columns of an audit that compare heads with the law that they were drawn with."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from theory.init.library import drawn
from theory.init.shapes import SMALL

import attnlaw
from attnlaw.analysis.audit.initial_sizes import initial_size, initial_spread
from attnlaw.checkpoints.open import open_model
from attnlaw.theory.init.architecture import Architecture
from attnlaw.theory.init.chain import Chain, run_layers
from attnlaw.theory.init.tokens import Tokens

SIZE, SPREAD = "frobenius_norm_over_initial", "score_spread_over_initial"
SIGMAS = 4.5
WIDE = {  # wide enough for draws to be near their law
    "gpt2": {"n_embd": 96},
    "llama": {"hidden_size": 96, "intermediate_size": 100},
    "mixtral": {"hidden_size": 96, "intermediate_size": 100},
    "qwen3": {"hidden_size": 96, "head_dim": 16},
    "gemma2": {
        "hidden_size": 96,
        "head_dim": 16,
        "query_pre_attn_scalar": 20,
        "attn_logit_softcapping": 50.0,
    },
    "bert": {"hidden_size": 96},
}


def audited(model: Any) -> pl.DataFrame:
    return attnlaw.audit(model, jobs=1).matrices


@pytest.mark.parametrize("name", WIDE)
def test_fresh_models_are_as_large_as_they_were_drawn(name: str) -> None:
    """|M|_F^2 of a product of N x d factors has variance 2 (2 N + d + 1) / (N^2 d), of a map 2 / entries."""
    rows = audited(drawn({**SMALL[name], **WIDE[name]}, seed=5))
    for row in rows.iter_rows(named=True):
        n, d = row["rows"], row["inner"]
        assert row["kind"] not in ("qk", "vo") or n == 96
        variance = 2 / (n * row["cols"]) if d is None else 2 * (2 * n + d + 1) / (n**2 * d)
        bound = SIGMAS * math.sqrt(variance)
        assert abs(row[SIZE] ** 2 - 1) < bound, row
        if row["kind"] != "qk":
            assert row[SPREAD] is None
        elif name == "qwen3":  # norms of queries and keys leave nothing to chance
            assert row[SPREAD] == pytest.approx(1, abs=1e-6)
        else:  # centred by LayerNorm on both sides: N - 1 dimensions
            assert abs(row[SPREAD] ** 2 - 1) < bound * 96 / 95, row


@pytest.mark.parametrize("name", ["gpt2", "llama", "qwen3", "granite"])
def test_the_initial_spread_is_that_of_the_chain(name: str) -> None:
    """E p_ij^2 of different tokens in the first layer, from the law of the whole model."""
    law = replace(Architecture.from_config(SMALL[name]), epsilon=1e-12)
    state = Chain(law, Tokens((5, 9, 3)), 4000, np.random.default_rng(3))
    scores = list(run_layers(state))[1].scores
    assert scores is not None
    squares = scores[:, 0, 2, 1] ** 2
    block = open_model(drawn(SMALL[name], seed=0)).layers[0].attention
    expected = initial_spread(law.deviations, block) ** 2
    assert abs(squares.mean() - expected) < SIGMAS * squares.std() / math.sqrt(len(squares))


@pytest.mark.slow
def test_what_training_changed_is_told() -> None:
    """Queries times 3: both times 3. Gains of the norm before times 2: scores times 4, matrices as before."""
    import torch

    model = drawn(SMALL["llama"], seed=1)
    before = audited(model).filter(pl.col("layer") == 0, pl.col("kind") == "qk")
    with torch.no_grad():
        model.model.layers[0].self_attn.q_proj.weight.mul_(3)
    tripled = audited(model).filter(pl.col("layer") == 0, pl.col("kind") == "qk")
    with torch.no_grad():
        model.model.layers[0].input_layernorm.weight.mul_(2)
    gained = audited(model).filter(pl.col("layer") == 0, pl.col("kind") == "qk")
    for column, factors in ((SIZE, (3, 3)), (SPREAD, (3, 12))):
        for table, factor in zip((tripled, gained), factors, strict=True):
            np.testing.assert_allclose(table[column], factor * before[column].to_numpy(), rtol=1e-6)


def test_the_residual_scale_of_gpt2_counts() -> None:
    """Its maps back into the stream are drawn with std / sqrt(2 L), and L is that of the model."""
    std = Architecture.from_config(SMALL["gpt2"]).deviations
    assert initial_size(std, "vo", (24, 24), 6) == pytest.approx(24 * math.sqrt(6) * 0.3 * 0.3 / 2)
    assert initial_size(std, "cross_qk", (24, 24), 6) is None


@pytest.mark.parametrize(
    "change",
    [None, {"initializer_range": None}, {"model_type": "coin"}],
    ids=["no config", "no deviation", "no known initialiser"],
)
def test_missing_where_the_config_does_not_tell(change: dict[str, Any] | None, tmp_path: Path) -> None:
    model = drawn(SMALL["gpt2"], seed=1)
    model.save_pretrained(tmp_path)
    config = tmp_path / "config.json"
    assert audited(tmp_path)[SIZE].null_count() == 0
    if change is None:
        config.unlink()
        rows = attnlaw.audit(tmp_path, heads=4, jobs=1).matrices
    else:
        values = {**json.loads(config.read_text()), **change}
        config.write_text(json.dumps({key: value for key, value in values.items() if value is not None}))
        rows = audited(tmp_path)
    assert rows[SIZE].null_count() == rows[SPREAD].null_count() == rows.height
