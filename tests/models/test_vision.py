"""Vision Transformers against their own implementations: Hugging Face's ViT (both namings) and timm's."""

from __future__ import annotations

import sys
from pathlib import Path
from unittest.mock import MagicMock

import numpy as np
import pytest
import torch
from models.forward_pass import check, close, make, recording
from safetensors.torch import save_file

from attnlaw.models.open import open_model

SIZES = {
    "hidden_size": 24,
    "num_attention_heads": 4,
    "num_hidden_layers": 2,
    "intermediate_size": 36,
    "image_size": 8,
    "patch_size": 4,
}
TO_MODULE = (
    ("encoder.layer.", "layers."),
    ("attention.attention.query", "attention.q_proj"),
    ("attention.attention.key", "attention.k_proj"),
    ("attention.attention.value", "attention.v_proj"),
    ("attention.output.dense", "attention.o_proj"),
    ("intermediate.dense", "mlp.fc1"),
    ("output.dense", "mlp.fc2"),
)


def image() -> torch.Tensor:
    return torch.randn(1, 3, 8, 8, dtype=torch.float64, generator=torch.manual_seed(3))


def module_name(tensor: str) -> str:
    for saved, in_memory in TO_MODULE:
        tensor = tensor.replace(saved, in_memory)
    return tensor


def test_vit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    module = make("ViTForImageClassification", **SIZES)
    with recording(module, monkeypatch) as run:
        module(pixel_values=image())
    module.save_pretrained(tmp_path)
    saved, in_memory = open_model(tmp_path), open_model(module)
    present = dict(module.named_parameters())
    check(saved, run, lambda name: name if name in present else module_name(name))
    check(in_memory, run)
    for model in (saved, in_memory):
        assert (model.family, model.heads, model.hidden_size) == ("vit", 4, 24)
        assert (model.extensions, model.warnings, model.embedding_view) == (("pre-norm",), (), None)


def test_timm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # timm's image transforms want torchvision, whose builds fit one build of torch only; its models do not.
    for name in ("", ".datasets", ".ops", ".ops.misc", ".transforms", ".transforms.functional"):
        monkeypatch.setitem(sys.modules, f"torchvision{name}", MagicMock())
    from timm.models.vision_transformer import VisionTransformer

    torch.manual_seed(7)
    module = VisionTransformer(
        img_size=8, patch_size=4, embed_dim=24, depth=2, num_heads=4, mlp_ratio=1.5, num_classes=3
    )
    module = module.double().eval()
    for name, parameter in module.named_parameters():
        parameter.data.zero_() if name.endswith("bias") else parameter.data.normal_(std=0.3)
    save_file(module.state_dict(), tmp_path / "model.safetensors")
    model = open_model(tmp_path / "model.safetensors", heads=4)
    assert open_model(module).heads == 4
    assert (model.family, model.extensions, len(model.layers)) == ("timm", ("pre-norm",), 2)
    with torch.no_grad():
        hidden = module.patch_embed(image())
        for layer, block in zip(model.layers, module.blocks, strict=True):
            x = block.norm1(hidden)[0]
            ours = np.zeros(x.shape)
            for qk, vo in zip(
                layer.attention.factors(model, "qk"),
                layer.attention.factors(model, "vo"),
                strict=True,
            ):
                scores = torch.from_numpy(x.numpy() @ qk[0] @ qk[1] @ x.numpy().T * 6**-0.5)
                ours += scores.softmax(-1).numpy() @ x.numpy() @ vo[0] @ vo[1]
            close(ours, block.attn(x[None])[0].numpy())
            assert layer.feed_forward
            inner, outer = model.read(layer.feed_forward.inner), model.read(layer.feed_forward.outer)
            hidden_units = torch.nn.functional.gelu(x @ torch.from_numpy(inner))
            close((hidden_units @ torch.from_numpy(outer)).numpy(), block.mlp(x[None])[0].numpy())
            hidden = block(hidden)
