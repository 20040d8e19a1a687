"""Loading: local files only, no code run, and one clear line where a model cannot be read."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from analysis.forward.tiny_models import KINDS, save_tiny, tiny_model
from safetensors.torch import load_file, save_file

from attnlaw.analysis.forward.load import load_base_model
from attnlaw.core.errors import InputError


def change_config(folder: Path, **changes: Any) -> Path:
    """Write keys into config.json; None takes a key out."""
    path = folder / "config.json"
    values = json.loads(path.read_text()) | changes
    path.write_text(json.dumps({key: value for key, value in values.items() if value is not None}))
    return folder


def change_weights(folder: Path, **changes: torch.Tensor | None) -> Path:
    """Replace or take out tensors; __ stands for a dot."""
    path = folder / "model.safetensors"
    tensors = load_file(path) | {name.replace("__", "."): value for name, value in changes.items()}
    save_file({name: value for name, value in tensors.items() if value is not None}, path)
    return folder


def refusal(folder: Path) -> str:
    with pytest.raises(InputError) as caught:
        load_base_model(folder)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def assert_same_weights(model: Any, expected: Any) -> None:
    wanted = expected.base_model.state_dict()
    for name, value in model.state_dict().items():
        assert value.dtype == torch.float64
        assert torch.equal(value, wanted[name].double())


@pytest.mark.parametrize("kind", ["bert", "gpt2", "llama"])
def test_weights_are_the_stored_ones_in_float64(tmp_path, kind):
    family, model = load_base_model(save_tiny(kind, tmp_path))
    assert family == kind
    assert not model.training
    assert model.config._attn_implementation == "eager"
    assert_same_weights(model, tiny_model(kind))


def test_pickled_weights_and_a_config_without_its_type(tmp_path):
    """The layout of old checkpoints, as rxnfp's."""
    folder = change_config(save_tiny("bert", tmp_path), model_type=None, architectures=None)
    model = tiny_model("bert")
    torch.save(
        {f"bert.{name}": value for name, value in model.state_dict().items()}, folder / "pytorch_model.bin"
    )
    (folder / "model.safetensors").unlink()
    kind, loaded = load_base_model(folder)
    assert kind == "bert"
    assert_same_weights(loaded, model)


def test_config_can_not_choose_code(tmp_path):
    folder = change_config(
        save_tiny("gpt2", tmp_path),
        auto_map={"AutoModel": "evil.Model"},
        attn_implementation="kernels-community/evil",
        _attn_implementation="kernels-community/evil",
    )
    (folder / "evil.py").write_text("raise SystemExit")
    _, model = load_base_model(folder)
    assert type(model).__module__ == "transformers.models.gpt2.modeling_gpt2"
    assert model.config._attn_implementation == "eager"


RENAMED = {  # transformers reads attributes under the names that `attribute_map` gives them
    "kernels": ({"x": "_attn_implementation_internal"}, {"x": "kernels-community/evil"}),
    "sdpa": ({"x": "_attn_implementation_internal"}, {"x": "sdpa"}),
    "activation": ({"activation_function": "x"}, {"x": "relu"}),
}


@pytest.mark.parametrize("case", RENAMED)
def test_config_can_not_rename_attributes(tmp_path, case):
    renames, values = RENAMED[case]
    attribute_map = transformers.GPT2Config.attribute_map
    folder = change_config(save_tiny("gpt2", tmp_path), attribute_map=attribute_map | renames, **values)
    _, model = load_base_model(folder)
    assert model.config._attn_implementation == "eager"
    assert model.config.activation_function == "gelu"
    assert type(model.h[0].mlp.act) is type(tiny_model("gpt2").transformer.h[0].mlp.act)


def test_another_attention_is_refused_before_a_model_is_built(tmp_path, monkeypatch):
    folder = change_config(
        save_tiny("bert", tmp_path),
        attribute_map={"x": "_attn_implementation_internal"},
        x="kernels-community/evil",
    )
    monkeypatch.setattr("attnlaw.analysis.forward.load.EXTRA_CONFIG_KEYS", ("attribute_map", "x"))
    assert "the attention implementation is kernels-community/evil, expected eager" in refusal(folder)


def test_layers_with_configs_of_their_own_are_refused(tmp_path):
    folder = change_config(
        save_tiny("gpt2", tmp_path), per_layer_config={"0": {"activation_function": "relu"}}
    )
    assert (
        "its layers have different configs (per_layer_config), which attnlaw cannot run; give a model"
        in refusal(folder)
    )


NO_NETWORK = ("architectures", "dtype", "transformers_version")


@pytest.mark.parametrize("kind", KINDS)
def test_every_size_in_a_config_reaches_the_model(tmp_path, kind):
    _, model = load_base_model(save_tiny(kind, tmp_path))
    expected = tiny_model(kind).config.to_dict()
    config = model.config.to_dict()
    assert {key for key in expected if config.get(key) != expected[key]} <= set(NO_NETWORK)


@pytest.mark.parametrize(
    "changes",
    [
        {"rope_theta": 500.0},
        {"rope_theta": 500.0, "rope_scaling": {"type": "linear", "factor": 2.0}},
        {"is_causal": False},
    ],
    ids=["theta", "scaling", "mask"],
)
def test_keys_of_old_configs_are_read_as_transformers_reads_them(tmp_path, changes):
    folder = change_config(save_tiny("llama", tmp_path), rope_parameters=None, **changes)
    _, model = load_base_model(folder)
    expected = transformers.LlamaModel(transformers.LlamaConfig.from_pretrained(folder)).double()
    expected.load_state_dict(model.state_dict())
    ids = torch.tensor([[1, 2, 3]])
    with torch.no_grad():
        ours, theirs = (each.eval()(ids).last_hidden_state for each in (model, expected))
    # RMSNorm is computed in float32 there.
    assert torch.allclose(ours, theirs, rtol=0, atol=100 * torch.finfo(torch.float32).eps)


class Harmful:
    def __init__(self, trap: Path) -> None:
        self.trap = trap

    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, (str(self.trap),)


def test_code_in_a_pickle_is_not_run(tmp_path):
    folder, trap = save_tiny("bert", tmp_path / "model"), tmp_path / "trap"
    (folder / "model.safetensors").unlink()
    torch.save({"encoder.layer.0.attention.self.query.weight": Harmful(trap)}, folder / "pytorch_model.bin")
    assert "but attnlaw only loads plain tensors" in refusal(folder)
    assert not trap.exists()


def test_missing_directories_and_configs(tmp_path):
    asked = "; give the local directory of a Hugging Face model, with config.json and weights"
    for path in (tmp_path / "nowhere", Path("google-bert/bert-base-uncased")):
        assert refusal(path) == f"{path}: no such directory{asked}"
    assert refusal(tmp_path) == f"{tmp_path}: holds no config.json{asked}"
    (tmp_path / "config.json").write_text("{")
    file = tmp_path / "config.json"
    assert refusal(file) == f"{file}: a file, not a directory{asked}"
    assert "not valid JSON" in refusal(tmp_path)


def test_other_families_are_named(tmp_path):
    folder = change_config(save_tiny("bert", tmp_path), model_type="deberta\n")
    assert "attnlaw cannot run models of type 'deberta\\n'; it runs bert, roberta, gpt2" in refusal(folder)


@pytest.mark.parametrize(
    "changes", [{"hidden_size": "wide"}, {"num_attention_heads": 3}, {"hidden_act": "x"}]
)
def test_configs_that_make_no_model(tmp_path, changes):
    folder = change_config(save_tiny("bert", tmp_path), **changes)
    assert "config.json" in refusal(folder)


def test_weights_that_do_not_belong_to_the_config(tmp_path):
    norm = "encoder__layer__1__output__LayerNorm__bias"
    folder = save_tiny("bert", tmp_path / "a")
    assert "tensor encoder.layer.1.output.LayerNorm.bias is missing" in refusal(
        change_weights(folder, **{norm: None})
    )
    folder = change_weights(save_tiny("bert", tmp_path / "b"), **{norm: torch.zeros(9)})
    assert "has shape (9,), expected (8,)" in refusal(folder)
    folder = change_config(save_tiny("bert", tmp_path / "c"), num_hidden_layers=1)
    assert "expected 1 layers, found layers 0-1" in refusal(folder)
    relative = {"encoder__layer__0__attention__self__distance_embedding__weight": torch.zeros(19, 2)}
    folder = change_weights(save_tiny("bert", tmp_path / "f"), **relative)
    assert "distance_embedding.weight does not exist in the model that" in refusal(folder)
    folder = change_weights(save_tiny("bert", tmp_path / "d"), **{norm: torch.full((8,), torch.nan)})
    assert "has NaN or infinite entries" in refusal(folder)
    folder = change_weights(save_tiny("bert", tmp_path / "e"), **{norm: torch.zeros(8, dtype=torch.int8)})
    assert "holds int8" in refusal(folder)


@pytest.mark.parametrize("size", ["vocab_size", "max_position_embeddings"])
def test_a_wrong_size_does_not_fill_the_memory(tmp_path, size):
    folder = change_config(save_tiny("bert", tmp_path), **{size: 10**9})
    assert "expected (1000000000, 8) from config.json" in refusal(folder)


@pytest.mark.parametrize("missing", ["torch", "transformers"])
def test_the_extra_is_named_where_it_is_missing(tmp_path, monkeypatch, missing):
    monkeypatch.setitem(sys.modules, missing, None)
    assert "pip install 'attnlaw[lens]'" in refusal(tmp_path)


def test_a_broken_installation_is_one_line(tmp_path, monkeypatch):
    """transformers imports a model's module when it is asked for, and fails then if a companion is broken."""
    folder = save_tiny("bert", tmp_path)

    class Broken:
        __version__ = transformers.__version__
        BertConfig = transformers.BertConfig

        def __getattr__(self, name: str) -> Any:
            raise ModuleNotFoundError(f"Could not import module {name!r}.\nmore") from RuntimeError("no nms")

    monkeypatch.setitem(sys.modules, "transformers", Broken())
    assert "cannot import BertModel (no nms)" in refusal(folder)
