"""No half model: both stacks and both towers are read, and what is left unread is counted and named."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from checkpoints.forward_pass import check, make, recording, tokens
from checkpoints.small import BART, T5, VOCABULARY
from checkpoints.test_families import GEMMA
from checkpoints.test_reasons import TOWERS
from safetensors.torch import load_file, save_file

from attnlaw import audit
from attnlaw.checkpoints.open import open_model


def test_led_is_read_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both stacks against the model, Longformer's band of scores in the encoder."""
    module = make("LEDForConditionalGeneration", **BART | {"attention_window": 4})
    ids = tokens()["input_ids"]
    with recording(module, monkeypatch) as run:
        module(input_ids=ids[:, :4].repeat(1, 2), decoder_input_ids=ids[:, :5])
    module.save_pretrained(tmp_path)
    model = open_model(tmp_path)
    check(model, run)
    assert [layer.stack for layer in model.layers] == ["encoder"] * 2 + ["decoder"] * 3
    (said,) = model.warnings
    assert said.startswith("attnlaw leaves out 6 matrices inside the layers, such as ")
    assert said.endswith("_global.weight")
    assert model.network.unread is None


def renamed(folder: Path, old: str, new: str) -> Path:
    """A checkpoint with other names for some tensors."""
    state = load_file(folder / "model.safetensors")
    save_file({name.replace(old, new): value for name, value in state.items()}, folder / "model.safetensors")
    return folder


@pytest.mark.slow
def test_a_stack_that_no_table_names_is_counted_and_there_are_no_proxies(tmp_path: Path) -> None:
    make("BartForConditionalGeneration", **BART).save_pretrained(tmp_path)
    whole = audit(tmp_path, jobs=1).summary
    renamed(tmp_path, "encoder.layers.", "encoder.storeys.")
    audit_result = audit(tmp_path, jobs=1)
    assert whole["proxies"]
    assert whole["warnings"] == []
    # Four maps of attention and two of feed-forward in each of two layers.
    assert (
        "attnlaw did not read the layers model.encoder.storeys (12 matrices)"
        in audit_result.summary["warnings"]
    )
    assert audit_result.summary["proxies"] is None
    assert "could not read some layers" in audit_result.remark


def test_layers_that_predict_further_tokens_are_no_part_of_the_network(tmp_path: Path) -> None:
    """Under names of their own; what data pass is read whole."""
    make("BartForConditionalGeneration", **BART).save_pretrained(tmp_path)
    state = load_file(tmp_path / "model.safetensors")
    query_name = "model.encoder.layers.0.self_attn.q_proj.weight"
    save_file(
        state | {"mtp.layers.0.self_attn.q_proj.weight": state[query_name].clone()},
        tmp_path / "model.safetensors",
    )
    model = open_model(tmp_path)
    assert model.warnings == ("attnlaw did not read the layers mtp.layers (1 matrix)",)
    assert model.network.unread is None


def test_part_of_a_model_says_so(tmp_path: Path) -> None:
    make("T5EncoderModel", **T5).save_pretrained(tmp_path)
    model = open_model(tmp_path)
    assert model.warnings == (
        "the checkpoint has no decoder; attnlaw audits the rest as if it were the whole model",
    )
    assert model.network.unread is None


def test_the_tower_beside_a_language_model_is_counted_and_its_proxies_stay(tmp_path: Path) -> None:
    vision = {"hidden_size": 16, "num_attention_heads": 2, "num_hidden_layers": 1, "intermediate_size": 20}
    vision |= {"image_size": 28, "patch_size": 14}
    sizes = GEMMA | {"attn_logit_softcapping": None}
    make("Gemma3ForConditionalGeneration", text_config=sizes, vision_config=vision).save_pretrained(tmp_path)
    model = open_model(tmp_path)
    assert any("leaves out the vision tower" in text for text in model.warnings)
    (unread,) = (text for text in model.warnings if text.startswith("attnlaw did not read the layers"))
    unread = unread.replace("vision_tower.vision_model.", "vision_tower.")  # transformers 5.6 calls it so
    assert unread.endswith("vision_tower.encoder.layers (6 matrices)")
    assert model.network.unread is None


@pytest.mark.slow
@pytest.mark.parametrize("name", ["CLIPModel", "SiglipModel"])
def test_towers_have_the_proxies_that_each_has_alone(name: str, tmp_path: Path) -> None:
    make(name, **TOWERS).save_pretrained(tmp_path)
    audit_result = audit(tmp_path, jobs=1)
    summary = audit_result.summary
    assert [summary[key] for key in ("layers", "hidden_size", "heads", "proxies")] == [None] * 4
    assert "text and vision are separate networks" in summary["warnings"][0]
    state = load_file(tmp_path / "model.safetensors")
    config = json.loads((tmp_path / "config.json").read_text())
    for tower in summary["towers"]:
        at = f"{tower['tower']}_model."
        alone = tmp_path / tower["tower"]
        alone.mkdir()
        tower_state = {name.removeprefix(at): value for name, value in state.items() if name.startswith(at)}
        save_file(tower_state, alone / "model.safetensors")
        (alone / "config.json").write_text(json.dumps(config[f"{tower['tower']}_config"]))
        expected = audit(alone, jobs=1).summary
        assert tower["proxies"] == expected["proxies"]
        for key in ("layers", "hidden_size", "heads", "activation"):
            assert tower[key] == expected[key]
    assert summary["towers"][0]["heads"] == 4
    assert summary["towers"][1]["heads"] == 3


def test_a_tower_without_all_its_matrices_has_no_proxies(tmp_path: Path) -> None:
    make("CLIPModel", **TOWERS).save_pretrained(tmp_path)
    audit_result = audit(tmp_path, layers="0:3", jobs=1)
    assert [tower["proxies"] is None for tower in audit_result.summary["towers"]] == [False, True]


def test_names_that_are_hardly_names() -> None:
    """What strangers send may have any name; few of many unread stacks are named."""
    names = [
        "",
        ".",
        ".weight",
        "0.weight",
        "norm.weight",
        "0.norm",
        "layers.0.",
        "layers.0..weight",
        "\n.0.attn",
    ]
    state = {f"layers.0.self_attn.{part}_proj.weight": torch.ones(4, 4) for part in "qkvo"}
    state |= {name: torch.ones(4) for name in names}
    state |= {f"other{number}.0.attn.weight": torch.ones(4, 4) for number in range(100)}
    model = open_model(state, heads=2)
    assert sum(text.startswith("attnlaw did not read the layers") for text in model.warnings) == 8
    assert model.network.unread is not None


def test_norms_that_no_table_names_are_counted(tmp_path: Path) -> None:
    sizes = {"vocab_size": VOCABULARY, "hidden_size": 32, "num_attention_heads": 4, "num_hidden_layers": 2}
    sizes |= {"intermediate_size": 36, "num_key_value_heads": 2, "qk_layernorm": True}
    make("StableLmForCausalLM", **sizes).save_pretrained(tmp_path)
    (said,) = open_model(tmp_path).warnings
    assert said.startswith("attnlaw leaves out 12 norms inside the layers, such as ")  # 4 + 2 heads, 2 layers
