"""The Transformer modules of torch against themselves, as modules and as saved state dicts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from checkpoints.forward_pass import Names, check_norm, close, draw, heads_of, recording

from attnlaw import audit
from attnlaw.checkpoints.blocks import Attention
from attnlaw.checkpoints.model import Model
from attnlaw.checkpoints.open import open_model

TORCH_SIZES: dict[str, Any] = {"dim_feedforward": 30, "dropout": 0.0, "batch_first": True}


def torch_modules() -> dict[str, torch.nn.Module]:
    torch.manual_seed(11)
    encoder_layer = torch.nn.TransformerEncoderLayer(24, 4, **TORCH_SIZES)
    decoder_layer = torch.nn.TransformerDecoderLayer(24, 4, activation="gelu", **TORCH_SIZES)
    return {
        "TransformerEncoder": torch.nn.TransformerEncoder(encoder_layer, 2, enable_nested_tensor=False),
        "TransformerEncoderLayer": encoder_layer,
        "TransformerDecoder": torch.nn.TransformerDecoder(decoder_layer, 2),
        "Transformer": torch.nn.Transformer(24, 4, 2, 3, **TORCH_SIZES),
        "MultiheadAttention": torch.nn.MultiheadAttention(24, 4, batch_first=True),
    }


@pytest.mark.parametrize("source", ["module", "file"])
@pytest.mark.parametrize("kind", torch_modules())
def test_torch_modules(kind: str, source: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    module = torch_modules()[kind].double()
    draw(module)
    if source == "module":
        model = open_model(module)
    else:
        torch.save(module.state_dict(), tmp_path / "weights.pt")
        model = open_model(tmp_path / "weights.pt", heads=4)

    blocks = {
        block.output.tensor.removesuffix("out_proj.weight").removesuffix("."): block
        for layer in model.layers
        for block in (layer.attention, layer.cross)
        if block
    }
    attentions = {
        name: part for name, part in module.named_modules() if isinstance(part, torch.nn.MultiheadAttention)
    }
    assert list(blocks) == list(attentions)
    for name, attention in attentions.items():
        check_torch_attention(model, blocks[name], attention, monkeypatch)
        assert blocks[name].cross == name.endswith("multihead_attn")
    for layer in model.layers:
        assert (layer.feed_forward is None) == (kind == "MultiheadAttention")
        if layer.feed_forward:
            for view in (layer.feed_forward.inner, layer.feed_forward.outer):
                stored = module.get_parameter(view.tensor).detach().numpy()
                assert np.array_equal(model.read(view), stored.T)


@pytest.mark.parametrize("norm_first", [True, False])
@pytest.mark.parametrize("activation", ["relu", "gelu"])
def test_a_module_tells_its_activation_and_norm(activation: str, norm_first: bool) -> None:
    layer = torch.nn.TransformerEncoderLayer(24, 4, activation=activation, norm_first=norm_first)
    model = open_model(torch.nn.TransformerEncoder(layer, 2, enable_nested_tensor=False))
    assert model.network.activation == activation
    assert ("pre-norm" in model.extensions) == norm_first


@pytest.mark.parametrize("norm_first", [True, False])
def test_every_block_reads_its_norm(norm_first: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    module = torch.nn.Transformer(24, 4, 2, 2, norm_first=norm_first, **TORCH_SIZES).double()
    draw(module)
    streams = (torch.randn(1, count, 24, dtype=torch.float64) for count in (6, 5))
    with recording(module, monkeypatch) as run:
        module(*streams)
    model = open_model(module)
    names = Names(model, module)
    for layer, at in zip(model.layers, ("encoder.0", "encoder.1", "decoder.0", "decoder.1"), strict=True):
        prefix = at.replace(".", ".layers.")
        (x,) = run.inputs[f"{prefix}.self_attn"]
        check_norm(model, layer.attention.norm, x[0].numpy(), run, names)
        (x,) = run.inputs[f"{prefix}.linear1"]
        assert layer.feed_forward
        check_norm(model, layer.feed_forward.norm, x[0].numpy(), run, names)
        if layer.cross is not None:
            (x,) = run.inputs[f"{prefix}.multihead_attn"]
            check_norm(model, layer.cross.norm, x[0].numpy(), run, names)
            (memory,) = [output for _, output in run.norms["encoder.norm"]]
            check_norm(model, layer.cross.memory_norm, memory[0], run, names)


def test_layers_under_names_of_the_users_own() -> None:
    blocks = torch.nn.ModuleList(torch.nn.TransformerEncoderLayer(24, 4, **TORCH_SIZES) for _ in range(11))
    model = open_model(torch.nn.ModuleDict({"embed": torch.nn.Embedding(9, 24), "blocks": blocks}))
    assert [layer.stack for layer in model.layers] == [f"blocks.{number}" for number in range(11)]
    assert all(layer.feed_forward for layer in model.layers)
    assert model.warnings == ()


def towers(**widths: int) -> torch.nn.ModuleDict:
    def tower(width: int) -> torch.nn.Module:
        layer = torch.nn.TransformerEncoderLayer(width, 4, 2 * width, batch_first=True)
        return torch.nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)

    torch.manual_seed(12)
    return torch.nn.ModuleDict({name: tower(width) for name, width in widths.items()})


@pytest.mark.slow
def test_towers_of_different_width_have_no_proxies() -> None:
    """Whatever they are called, each keeps its own spectra, and no hidden size is made up for both."""
    alone = {width: audit(towers(text=width), heads=4, jobs=1) for width in (32, 64)}
    assert alone[32].summary["proxies"] is not None
    for names in (("text", "image"), ("text", "vision")):
        both = towers(**dict(zip(names, (64, 32), strict=True)))
        audit_result = audit(both, heads=4, jobs=1)
        assert (
            audit_result.summary["proxies"]
            is audit_result.summary["hidden_size"]
            is audit_result.summary["log10_alpha"]
            is None
        )
        assert (
            "no proxies: the proxies need one hidden size, but the layers have 32, 64"
            in audit_result.summary["warnings"]
        )
        assert audit_result.layers["log10_alpha"].null_count() == 4
        for name, width in zip(names, (64, 32), strict=True):
            tower_rows = audit_result.matrices.filter(stack=name)
            values = audit(both[name], heads=4, jobs=1).matrices["spectral_norm"].to_list()
            assert tower_rows["spectral_norm"].to_list() == values
            assert set(tower_rows.filter(kind="qk")["rows"]) == {width}


def test_towers_in_a_row_are_announced() -> None:
    said = "attnlaw reads one network in this order: {}; if these are several networks, save each in a"
    for first, second in (("text", "image"), ("a", "b")):
        summary = audit(towers(**{first: 32, second: 32}), heads=4, jobs=1).summary
        assert summary["proxies"] is not None
        (warning,) = summary["warnings"]
        assert warning.startswith(said.format(", ".join(sorted((first, second)))))
    many = {f"tower{letter}": 8 for letter in "abcdefghij"}
    (warning,) = open_model(towers(**many), heads=4).warnings
    assert warning.startswith(said.format(", ".join([*list(many)[:8], "..."])))
    numbered = torch.nn.ModuleDict({"towers": torch.nn.ModuleList(towers(a=8, b=8).values())})
    assert open_model(numbered, heads=4).warnings == ()
    assert open_model(torch.nn.Transformer(8, 4, 2, 2, 16, batch_first=True)).warnings == ()
    second = torch.nn.ModuleDict(
        {"tower": towers(a=8)["a"], "whole": torch.nn.Transformer(8, 4, 2, 2, 16, batch_first=True)}
    )
    assert said.format("tower, whole.encoder, whole.decoder") in open_model(second, heads=4).warnings[0]


def check_torch_attention(
    model: Model, block: Attention, attention: torch.nn.MultiheadAttention, monkeypatch: pytest.MonkeyPatch
) -> None:
    seeded = torch.manual_seed(13)
    queries, keys, values = (
        torch.randn(1, count, 24, dtype=torch.float64, generator=seeded) for count in (5, 7, 7)
    )
    whole = attention.out_proj.weight.detach().clone()
    with recording(attention, monkeypatch) as run:
        for head in range(4):  # one head at a time: the other heads' columns of the output map are zero
            attention.out_proj.weight.zero_()
            columns = slice(6 * head, 6 * head + 6)
            attention.out_proj.weight[:, columns] = whole[:, columns]
            contribution = attention(queries, keys, values, average_attn_weights=False)[0][0].numpy()
            scores = run.scores[-1].reshape(4, 5, 7)[head].numpy()
            query, key, value = (
                heads_of(model, view, tensor[0].numpy(), 4, None)[head]
                for view, tensor in ((block.query, queries), (block.key, keys), (block.value, values))
            )
            close(block.scores.scale * query @ key.T, scores)
            weights = torch.from_numpy(scores).softmax(-1).numpy()
            attention.out_proj.weight.copy_(whole)
            ours = weights @ value @ model.read(block.output)[columns] + model.bias(block.output)
            close(ours, contribution)
