"""Architectures from config.json, against the models that `transformers` makes of the same files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.stats import chi2
from theory.init.library import config, drawn
from theory.init.shapes import SMALL

from attnlaw.checkpoints.families.read_toml import known_families
from attnlaw.core.errors import InputError
from attnlaw.theory.init.architecture import Architecture
from attnlaw.theory.init.configuration import known_types

INITS = {kind: init for family in known_families() for kind, init in family.init.items()}


@pytest.mark.parametrize("kind", sorted(INITS))
def test_defaults_are_those_of_the_library(kind: str) -> None:
    made = config({"model_type": kind})
    ours = INITS[kind].defaults
    inherited = INITS[INITS[kind].like].defaults if INITS[kind].like else {}
    for key, value in ours.items():
        if key == "rope_theta":
            assert made.rope_parameters[key] == value
        elif key == "sliding_window" and "use_sliding_window" in ours:  # the library drops an unused one
            assert getattr(config({"model_type": kind, "use_sliding_window": True}), key) == value
        elif not (key in inherited and inherited[key] == value and not hasattr(made, key)):
            assert getattr(made, key) == value, key


def roles(model: Any) -> dict[str, list[Any]]:
    """Matrices of a model by the field of `Deviations` that rules them."""
    matrices: dict[str, list[Any]] = {}
    endings = {
        "embedding": ("wte", "embed_tokens", "word_embeddings", "embed_in"),
        "position": ("wpe", "embed_positions", "position_embeddings", "token_type_embeddings"),
        "query": ("c_attn", "q_proj", "self.query", "query_key_value"),
        "key": ("k_proj", "self.key"),
        "value": ("v_proj", "self.value"),
        "residual": (
            "c_proj",
            "o_proj",
            "out_proj",
            "output.dense",
            "attention.dense",
            "self_attn.dense",
            "down_proj",
            "dense_4h_to_h",
            "fc2",
        ),
        "inner": (
            "c_fc",
            "up_proj",
            "gate_proj",
            "gate_up_proj",
            "intermediate.dense",
            "dense_h_to_4h",
            "fc1",
            "mlp.gate",
        ),
        "head": ("lm_head", "transform.dense"),
    }
    for name, tensor in model.named_parameters():
        if tensor.ndim < 2:
            continue
        stem = name.removesuffix(".weight")
        role = next(role for role, ends in endings.items() if stem.endswith(ends))
        matrices.setdefault(role, []).append(tensor.detach().double().numpy())
    return matrices


@pytest.mark.parametrize("name", SMALL)
def test_every_matrix_has_the_variance_that_is_said(name: str) -> None:
    architecture = Architecture.from_config(SMALL[name])
    model = drawn(SMALL[name], seed=1)
    for role, matrices in roles(model).items():
        values = np.concatenate([matrix.ravel() for matrix in matrices])
        zeros = (values == 0).sum()
        if role == "embedding" and architecture.padding is not None:
            assert zeros == architecture.width
        else:
            assert zeros == 0, role
        values = values[values != 0]
        # The sum of squares is chi-squared: two sides of 1e-5 in each of some 100 tests.
        square = (values**2).sum() / getattr(architecture.deviations, role) ** 2
        assert chi2.ppf(1e-5, len(values)) < square < chi2.ppf(1 - 1e-5, len(values)), role


@pytest.mark.parametrize("name", SMALL)
def test_sizes_and_positions_are_those_of_the_model(name: str) -> None:
    architecture, model = Architecture.from_config(SMALL[name]), drawn(SMALL[name], seed=1)
    made = model.config
    assert architecture.width == made.hidden_size
    assert architecture.depth == made.num_hidden_layers
    assert (architecture.heads, architecture.vocabulary) == (made.num_attention_heads, made.vocab_size)
    assert architecture.tied == made.tie_word_embeddings
    rotary = [part for part in model.modules() if hasattr(part, "inv_freq")]
    if rotary:
        # Single precision: an exponent rounded to 2^-23 moves base^x by log(base) of that, bases are <= 1e6.
        rounding = 2.0**-23 * (1 + np.log(1e6))
        np.testing.assert_allclose(
            architecture.frequencies, rotary[0].inv_freq.double().numpy(), rtol=rounding
        )
    else:
        assert architecture.frequencies == ()


REFUSED = {
    "yarn": (
        {"model_type": "llama", "rope_scaling": {"rope_type": "yarn", "factor": 2.0}},
        "rotary scaling 'yarn'",
    ),
    "mamba": ({"model_type": "mamba", "state_size": 16}, "state-space"),
    "albert": ({"model_type": "albert"}, "share"),
    "t5": ({"model_type": "t5", "is_encoder_decoder": True}, "models with an encoder and"),
    "t5 encoder": ({"model_type": "t5"}, "T5"),
    "bloom": ({"model_type": "bloom"}, "ALiBi"),
    "bart": ({"model_type": "bart", "is_encoder_decoder": True}, "models with an encoder and"),
    "deepseek": ({"model_type": "deepseek_v3"}, "latent attention"),
    "unknown": (
        {"model_type": "coin"},
        f"attnlaw does not know how its weights are initialised; it knows {', '.join(known_types())}",
    ),
    "no type": ({"hidden_size": 4}, "no model_type"),
    "narrow": ({"model_type": "opt", "word_embed_proj_dim": 512}, "word_embed_proj_dim 512"),
    "activation": ({"model_type": "llama", "hidden_act": "sin"}, "activation 'sin'"),
    "relative": ({"model_type": "bert", "position_embedding_type": "relative_key"}, "relative_key"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_the_law_does_not_have_is_refused_by_name(name: str) -> None:
    values, words = REFUSED[name]
    with pytest.raises(InputError) as refused:
        Architecture.from_config(values)
    assert words in str(refused.value)
    assert "\n" not in str(refused.value)


def test_a_file_and_its_folder_are_read(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(SMALL["gpt2"]))
    expected = Architecture.from_config(SMALL["gpt2"])
    assert Architecture.from_config(tmp_path) == expected
    assert Architecture.from_config(tmp_path / "config.json") == expected
    with pytest.raises(InputError, match="no such file"):
        Architecture.from_config(tmp_path / "missing.json")
    weights = tmp_path / "model.safetensors"
    weights.write_bytes(bytes(8))
    with pytest.raises(InputError) as refused:
        Architecture.from_config(weights)
    assert str(refused.value) == f"{weights}: this is not a config.json; give that file or its folder"


def test_a_deviation_and_a_depth_of_ones_own() -> None:
    architecture = Architecture.from_config(SMALL["gpt2"], std=0.1, depth=8)
    assert (architecture.deviations.query, architecture.deviations.residual) == (0.1, 0.025)
    assert len(architecture.score_scales) == architecture.depth == 8


def test_known_types() -> None:
    asked = {"gpt2", "llama", "bert", "qwen3", "gpt_neox", "opt", "gemma2", "mixtral"}
    assert asked <= set(known_types())
