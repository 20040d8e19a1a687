"""Vision Transformers against their own implementations: Hugging Face's ViT (both namings) and timm's."""

from __future__ import annotations

import sys
from pathlib import Path
from unittest.mock import MagicMock

import pytest
import torch
from checkpoints.forward_pass import (
    check,
    close,
    draw,
    heads_of,
    inside,
    make,
    normalised,
    projected,
    recording,
)
from safetensors.torch import save_file

from attnlaw.checkpoints.open import open_model

SIZES = {
    "hidden_size": 24,
    "num_attention_heads": 4,
    "num_hidden_layers": 2,
    "intermediate_size": 36,
    "image_size": 8,
    "patch_size": 4,
}


def image() -> torch.Tensor:
    return torch.randn(1, 3, 8, 8, dtype=torch.float64, generator=torch.manual_seed(3))


def test_vit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    module = make("ViTForImageClassification", **SIZES)
    with recording(module, monkeypatch) as run:
        module(pixel_values=image())
    module.save_pretrained(tmp_path)
    saved, in_memory = open_model(tmp_path), open_model(module)
    for model in (saved, in_memory):
        check(model, run)
        assert (model.family, model.heads, model.hidden_size) == ("vit", 4, 24)
        assert (model.extensions, model.warnings, model.embedding_view) == (("pre-norm",), (), None)


@pytest.mark.slow
def test_timm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # timm's image transforms want torchvision, whose builds fit one build of torch only; its models do not.
    for name in ("", ".datasets", ".ops", ".ops.misc", ".transforms", ".transforms.functional"):
        monkeypatch.setitem(sys.modules, f"torchvision{name}", MagicMock())
    from timm.models.vision_transformer import VisionTransformer

    torch.manual_seed(7)
    module = VisionTransformer(
        img_size=8,
        patch_size=4,
        embed_dim=24,
        depth=2,
        num_heads=4,
        mlp_ratio=1.5,
        num_classes=3,
        qk_norm=True,
    )
    module = module.double().eval()
    draw(module)
    save_file(module.state_dict(), tmp_path / "model.safetensors")
    model = open_model(tmp_path / "model.safetensors", heads=4)
    assert open_model(module).heads == 4
    assert (model.family, model.extensions, len(model.layers)) == ("timm", ("pre-norm",), 2)
    with torch.no_grad():
        hidden = module.patch_embed(image())
        for layer, block in zip(model.layers, module.blocks, strict=True):
            attention, maps, z = layer.attention, layer.feed_forward, hidden[0].numpy()
            assert attention.norm
            assert maps
            assert maps.norm
            x = normalised(model, attention.norm, z)
            query = heads_of(model, attention.query, x, 4, attention.scores.query_norm)
            key = heads_of(model, attention.key, x, 4, attention.scores.key_norm)
            scores = torch.from_numpy(attention.scores.scale * query @ key.transpose(0, 2, 1))
            heads = scores.softmax(-1).numpy() @ heads_of(model, attention.value, x, 4, None)
            added = projected(model, attention.output, heads.transpose(1, 0, 2).reshape(x.shape))
            close(added, block.attn(block.norm1(hidden))[0].numpy())
            x = normalised(model, maps.norm, z)
            close(
                projected(model, maps.outer, inside(model, maps, x)),
                block.mlp(block.norm2(hidden))[0].numpy(),
            )
            hidden = block(hidden)
