"""A tensor that belongs to a weight is read, harmless or refused, in files, state dicts and modules."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from checkpoints.spoiled import CONFIG, QUERY, bert_state, config_with, refusal
from safetensors.torch import save_file
from torch import nn

from attnlaw import audit
from attnlaw.checkpoints.open import open_model
from attnlaw.core.errors import InputError
from attnlaw.training import SpectralMonitor

MODULE = QUERY.removesuffix(".weight")
# Names that programs give to the second tensor of a weight, and one that nobody gives it.
PARTS = {
    f"{MODULE}.scale": (),
    f"{MODULE}.scale_weight": (),
    f"{MODULE}.scales": (8, 2),
    f"{MODULE}.biases": (8, 2),
    f"{MODULE}.pre_quant_scale": (8,),
    f"{MODULE}.input_quantizer._pre_quant_scale": (8,),
    f"{MODULE}.weight_quantizer._amax": (),
    f"{MODULE}.ia3_l": (8, 1),
    f"{MODULE}.zebra": (3,),
    f"{MODULE}_scale": (),
    f"{MODULE}_zero_point": (8,),
    f"{QUERY}_scale": (),
    f"{QUERY}.scale": (),
    f"{QUERY}_amax": (),
    f"{QUERY}_dequant": (),
    f"{QUERY}_g": (8, 1),
    f"{QUERY}_mask": (8, 8),
    "embeddings.word_embeddings.scale": (10,),
}
FLOATS = {"float8": torch.float8_e4m3fn, "float16": torch.float16, "bfloat16": torch.bfloat16}


# Names of scales of a float8 weight: these are read.
SCALES = (f"{MODULE}.scale", f"{MODULE}.scale_weight", f"{QUERY}_scale", "embeddings.word_embeddings.scale")


def stored(dtype: torch.dtype, part: str) -> dict[str, torch.Tensor]:
    """The weight that the part belongs to in a type. With float8, the others would need scales, too."""
    owner = QUERY if "query" in part else "embeddings.word_embeddings.weight"
    weights = {
        name: value.to(dtype) if name == owner or dtype != FLOATS["float8"] else value
        for name, value in bert_state().items()
    }
    return weights | {part: torch.full(PARTS.get(part, ()), 0.5)}


@pytest.mark.parametrize("kind", FLOATS)
@pytest.mark.parametrize("part", PARTS)
def test_a_part_that_nothing_reads_is_refused(tmp_path: Path, part: str, kind: str) -> None:
    state = stored(FLOATS[kind], part)
    save_file(state, tmp_path / "model.safetensors")
    config_with(tmp_path)
    if kind == "float8" and part in SCALES:
        opened = open_model(tmp_path)
        name = QUERY if "query" in part else "embeddings.word_embeddings.weight"
        assert torch.equal(torch.from_numpy(opened.tensors.read(name).copy()), state[name].float() * 0.5)
        return
    message = refusal(tmp_path)
    refusal(state, heads=2)
    if kind == "float8" and "has no scale" in message:
        assert QUERY in message
        return
    assert part in message
    if "quantised checkpoint" not in message and "quant_method" not in message:
        assert QUERY in message or "word_embeddings.weight" in message


def test_a_norm_in_use_is_a_weight(tmp_path: Path) -> None:
    state = bert_state() | {
        f"encoder.layer.{layer}.{name}.LayerNorm.{kind}": torch.ones(8)
        for layer in range(3)
        for name in ("attention.output", "output")
        for kind in ("weight", "bias", "scale")
    }
    save_file(state, tmp_path / "model.safetensors")
    config_with(tmp_path)
    refusal(tmp_path, "LayerNorm.scale", "LayerNorm.weight")


@pytest.mark.parametrize(
    "part", ["bias", "input_scale", "k_scale", "input_quantizer._amax", "_extra_state", "weight.note.bias"]
)
def test_parts_that_leave_the_weight_as_it_is(part: str) -> None:
    """They stand in a warning; a bias is no part of a matrix anywhere and needs none."""
    name = f"{MODULE}.{part}" if "note" not in part else "note.bias"
    model = open_model(bert_state() | {name: torch.ones(8)}, heads=2)
    warned = any("do not change the weights" in text and name in text for text in model.warnings)
    assert warned == (not part.endswith("bias"))


def test_tensors_that_belong_to_no_weight_are_not_concerned() -> None:
    names = (
        "logit_scale",
        "encoder.layer.0.layer_scale1.lambda1",
        "encoder.layer.0.attention.self.query_norm.x",
    )
    state = bert_state() | {name: torch.ones(8) for name in names}
    assert open_model(state, heads=2).warnings == open_model(bert_state(), heads=2).warnings


def test_experts_and_fused_weights_without_a_module() -> None:
    """Weights that are bare parameters share a module: only what looks like their parts is refused."""
    torch.manual_seed(2)
    state = nn.MultiheadAttention(8, 2, add_bias_kv=True).state_dict() | {"temperature": torch.ones(2, 1)}
    (warning,) = (text for text in open_model(state, heads=2).warnings if "leaves out" in text)
    assert "attnlaw leaves out 3 matrices inside the layers, such as bias_k" in warning
    for part in ("in_proj_weight_scale", "in_proj_weight_orig", "in_proj_scale", "scales"):
        refusal({**state, part: torch.ones(())}, part, "in_proj_weight", heads=2)


class Block(nn.Module):
    """An encoder whose first layer keeps a buffer next to a weight, as quantised layers in memory do."""

    def __init__(self, part: str | None) -> None:
        super().__init__()
        layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        if part is not None:
            self.encoder.layers[1].linear1.register_buffer(part, torch.ones(()))


def test_modules_and_monitors_go_the_same_way(tmp_path: Path) -> None:
    torch.manual_seed(3)
    assert audit(Block(None), jobs=1).summary["matrices"] == 12
    for refused in (
        lambda: audit(Block("scale"), jobs=1),
        lambda: SpectralMonitor(Block("scale"), tmp_path),
    ):
        with pytest.raises(InputError, match=r"layers\.1\.linear1\.scale belongs to .*linear1\.weight"):
            refused()


def test_gguf_files_with_scales_next_to_weights(tmp_path: Path) -> None:
    """llama.cpp multiplies its NVFP4 weights by such a tensor."""
    gguf = pytest.importorskip("gguf")
    shapes = {"attn_q": (8, 8), "attn_k": (8, 8), "attn_v": (8, 8), "attn_output": (8, 8)}
    shapes |= {"ffn_gate": (12, 8), "ffn_up": (12, 8), "ffn_down": (8, 12)}
    draw = torch.manual_seed(4)
    for part, expected in ((None, None), ("scale", "blk.1.attn_q.scale"), ("input_scale", None)):
        path = tmp_path / f"{part}.gguf"
        writer = gguf.GGUFWriter(path, "llama")
        writer.add_block_count(2)
        writer.add_head_count(2)
        for layer in range(2):
            for name, shape in shapes.items():
                weight = torch.randn(shape, generator=draw).numpy()
                writer.add_tensor(f"blk.{layer}.{name}.weight", weight)
        if part is not None:
            writer.add_tensor(f"blk.1.attn_q.{part}", torch.tensor([0.01]).numpy())
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()
        if expected is None:
            warnings = open_model(path).warnings
            assert any("blk.1.attn_q.input_scale" in text for text in warnings) == (part is not None)
        else:
            refusal(path, expected, "blk.1.attn_q.weight")


def test_ignored_names_of_a_map_are_known(tmp_path: Path) -> None:
    """Who describes an architecture can say that a tensor is not part of these matrices."""
    text = 'name = "mine"\nlike = "bert"\n[[stacks]]\n'
    state = bert_state() | {f"{MODULE}.zebra": torch.ones(3)}
    for extra in ("", 'ignored = ["attention.self.query.zebra"]'):
        (tmp_path / "mine.toml").write_text(text + extra)
        if extra:
            assert open_model(state, CONFIG["num_attention_heads"], map=tmp_path / "mine.toml").layers
        else:
            with pytest.raises(InputError, match="zebra belongs to"):
                open_model(state, CONFIG["num_attention_heads"], map=tmp_path / "mine.toml")
