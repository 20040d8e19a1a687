"""Why a checkpoint is not read: an unsupported layout, an incomplete file, no config, a wrong option.

Four different lines, each with its remedy, and none of them in the place of another.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from checkpoints.forward_pass import SIZES, make
from checkpoints.small import VOCABULARY
from checkpoints.spoiled import CONFIG, bert_state, config_with, refusal, write_good
from safetensors.torch import load_file, save_file

from attnlaw.checkpoints.open import open_model

UNTRUE = ("incomplete", "save or download", "download the checkpoint again", "has no num_attention_heads")


def saved(folder: Path, name: str, **changes: Any) -> Path:
    make(name, **SIZES | changes).save_pretrained(folder)
    return folder


@pytest.mark.parametrize("name", ["GlmForCausalLM", "NemotronForCausalLM"])
def test_whole_checkpoints_that_were_called_incomplete_open(name: str, tmp_path: Path) -> None:
    changes = {} if name.startswith("Glm") else {"hidden_size": 32}
    model = open_model(saved(tmp_path, name, **changes))
    assert all(layer.feed_forward for layer in model.layers)
    assert model.warnings == ()


def test_without_a_config_the_family_whose_feed_forward_is_whole_is_taken() -> None:
    """Nemotron has all names of LLaMA but the gate's."""
    state = make("NemotronForCausalLM", **SIZES | {"hidden_size": 32}).state_dict()
    assert open_model(state, heads=4).family == "nemotron"
    llama = make("LlamaForCausalLM", **SIZES).state_dict()
    assert open_model(llama, heads=4).family == "llama"
    del llama["model.layers.0.mlp.gate_proj.weight"]
    refusal(llama, "tensor model.layers.0.mlp.gate_proj.weight is missing", "incomplete", heads=4)


def test_an_unsupported_layout_is_called_so(tmp_path: Path) -> None:
    """Layers of a kind that no table names stand between those that have the names of LLaMA."""
    sizes = {"shared_intermediate_size": 36, "mamba_n_heads": 6, "mamba_d_head": 8, "mamba_n_groups": 1}
    saved(tmp_path, "GraniteMoeHybridForCausalLM", layer_types=["mamba", "attention"], **sizes)
    message = refusal(tmp_path, "attnlaw does not know the model type granitemoehybrid")
    assert not any(word in message for word in UNTRUE)


def test_a_stranger_that_is_stored_otherwise_is_not_called_incomplete(tmp_path: Path) -> None:
    """A type that no table has, with the attention of one family and a feed-forward of its own."""
    saved(tmp_path, "GlmForCausalLM")
    config = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps(config | {"model_type": "newcomer"}))
    state = load_file(tmp_path / "model.safetensors")
    renamed = {name.replace("mlp.gate_up_proj", "mlp.gate_proj"): value for name, value in state.items()}
    save_file(renamed, tmp_path / "model.safetensors")
    message = refusal(
        tmp_path,
        "attnlaw does not know the model type newcomer",
        "do not match llama",
        "--map",
    )
    assert not any(word in message for word in UNTRUE)


def test_a_stranger_with_layers_missing_is_not_called_incomplete(tmp_path: Path) -> None:
    write_good(tmp_path)
    config_with(tmp_path, model_type="newcomer", num_hidden_layers=5)
    message = refusal(
        tmp_path, "expected 5 layers, found layers 0-2", "does not know the model type newcomer"
    )
    assert not any(word in message for word in UNTRUE)


def test_a_missing_tensor_of_a_known_type_is_an_incomplete_checkpoint(tmp_path: Path) -> None:
    write_good(tmp_path)
    state = bert_state()
    del state["encoder.layer.1.attention.self.value.weight"]
    save_file(state, tmp_path / "model.safetensors")
    message = refusal(tmp_path, "the checkpoint is incomplete: save or download it again")
    assert "does not know" not in message


def test_a_missing_config_is_called_missing(tmp_path: Path) -> None:
    write_good(tmp_path)
    (tmp_path / "config.json").unlink()
    message = refusal(
        tmp_path,
        f"There is no {tmp_path / 'config.json'}",
        "put the model's config.json there, or pass --heads H",
    )
    assert not any(word in message for word in UNTRUE)
    refusal(bert_state(), "There is no config.json for this state dict", "pass --heads H")


def test_a_config_without_the_heads_is_said_to_have_none(tmp_path: Path) -> None:
    write_good(tmp_path)
    config_with(tmp_path, num_attention_heads=None)
    message = refusal(tmp_path, f"{tmp_path / 'config.json'} has no num_attention_heads", "pass --heads H")
    assert "There is no" not in message


def test_a_wrong_option_is_called_by_its_name(tmp_path: Path) -> None:
    write_good(tmp_path)
    message = refusal(tmp_path, "--heads 4", "leave --heads out", heads=4)
    assert not any(word in message for word in (*UNTRUE, "does not know"))


PLAIN = {"hidden_size": 24, "num_hidden_layers": 2, "intermediate_size": 36}
TOWERS = {
    "text_config": PLAIN
    | {"num_attention_heads": 4, "max_position_embeddings": 16, "vocab_size": VOCABULARY}
    | {"bos_token_id": 0, "eos_token_id": 2, "pad_token_id": 1},
    "vision_config": PLAIN | {"num_attention_heads": 3, "image_size": 8, "patch_size": 4},
}


@pytest.mark.parametrize("name", ["CLIPModel", "SiglipModel"])
def test_heads_in_nested_configs_are_read(name: str, tmp_path: Path) -> None:
    make(name, **TOWERS).save_pretrained(tmp_path)
    model = open_model(tmp_path)
    assert [(layer.stack, layer.attention.heads) for layer in model.layers] == [
        ("text", 4),
        ("text", 4),
        ("vision", 3),
        ("vision", 3),
    ]
    config = json.loads((tmp_path / "config.json").read_text())
    config["vision_config"]["num_attention_heads"] = None
    (tmp_path / "config.json").write_text(json.dumps(config))
    refusal(tmp_path, f"{tmp_path / 'config.json'}: vision_config has no num_attention_heads")


@pytest.fixture
def shards(tmp_path: Path) -> Path:
    """A checkpoint in three files with their index."""
    state = bert_state()
    names = sorted(state)
    places = {name: f"model-0000{1 + number % 3}-of-00003.safetensors" for number, name in enumerate(names)}
    for file in sorted(set(places.values())):
        save_file({name: state[name] for name in names if places[name] == file}, tmp_path / file)
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps({"weight_map": places}))
    (tmp_path / "config.json").write_text(json.dumps(CONFIG))
    return tmp_path


def test_one_shard_alone(shards: Path) -> None:
    index, shard = shards / "model.safetensors.index.json", shards / "model-00002-of-00003.safetensors"
    assert len(open_model(shards).layers) == len(open_model(index).layers) == 3
    refusal(
        shard,
        f"{shard}: this is one of 3 shards of a model and not the whole model; give {index}, "
        "or its directory",
    )


def test_one_shard_without_the_others(shards: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    alone = tmp_path_factory.mktemp("alone")
    shutil.copy(shards / "model-00001-of-00003.safetensors", alone)
    shutil.copy(shards / "config.json", alone)
    refusal(alone, "one of 3 shards", "download the others and their index", "give the directory")
    (alone / "model-00001-of-00003.safetensors").rename(alone / "model-00001-of-00001.safetensors")
    refusal(alone, "is missing", "incomplete")  # one of one is judged by its tensors
