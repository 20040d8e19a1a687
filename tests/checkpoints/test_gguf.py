"""GGUF: SmolLM2 as published against a decoder of our own, and files written by the `gguf` package."""

from __future__ import annotations

import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
from checkpoints.small import TO_HUGGING_FACE
from checkpoints.spoiled import refusal
from real_checkpoints import real_checkpoint
from safetensors.numpy import save_file
from scipy.linalg import svdvals

from attnlaw import Result, audit
from attnlaw.checkpoints.model import Model
from attnlaw.checkpoints.open import open_model
from attnlaw.core.errors import InputError

Arrays = dict[str, np.ndarray]
HEADS, KV_HEADS, SIZE = 9, 3, 64


def write_gguf(path: Path, tensors: Arrays, sizes: dict[str, int], architecture: str = "llama") -> Path:
    writer = gguf.GGUFWriter(path, architecture)
    for key, value in sizes.items():
        writer.add_uint32(f"{architecture}.{key}", value)
    writer.add_array("tokenizer.ggml.tokens", ["a", "b", "é"])
    writer.add_array("tokenizer.ggml.scores", [0.5] * 5000)
    for name, tensor in tensors.items():
        writer.add_tensor(name, tensor)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def q4_1(model: Model, name: str) -> np.ndarray:
    """A Q4_1 tensor from the bytes of the file: blocks of 32, scale d, least value m, low nibbles first."""
    entry = model.tensors._entries[name]  # type: ignore[attr-defined]
    rows, cols = entry.shape
    with Path(model.tensors.source).open("rb") as file:
        file.seek(entry.offset)
        stored = np.frombuffer(file.read(rows * cols // 32 * 20), dtype=np.uint8).reshape(-1, 20)
    d, m = (stored[:, at : at + 2].copy().view(np.float16).astype(np.float64) for at in (0, 2))
    codes = np.concatenate([stored[:, 4:] & 15, stored[:, 4:] >> 4], axis=1)
    return (codes * d + m).reshape(rows, cols)


@pytest.fixture(scope="module")
def smollm2() -> Model:
    return open_model(real_checkpoint("smollm2"))


@pytest.mark.slow
@pytest.mark.parametrize("layer", [0, 17, 29])
def test_scores_and_head_outputs_of_smollm2(smollm2: Model, layer: int) -> None:
    """Query head h reads key/value head h // 3, from tensors decoded here, within float32 of the decoder."""
    names = {role: f"blk.{layer}.attn_{role}.weight" for role in ("q", "k", "v", "output")}
    w = {role: q4_1(smollm2, name) for role, name in names.items()}
    x = np.random.default_rng(layer).standard_normal((5, 576))
    block = smollm2.layers[layer].attention
    assert (block.heads, block.kv_heads, block.head_size) == (HEADS, KV_HEADS, SIZE)
    qk, vo = (list(block.factors(smollm2, kind)) for kind in ("qk", "vo"))
    for head in range(HEADS):
        indices = np.arange(SIZE) + SIZE * head
        shared = np.arange(SIZE) + SIZE * (head // 3)
        scores = (x @ w["q"][indices].T) @ (x @ w["k"][shared].T).T
        outputs = (x @ w["v"][shared].T) @ w["output"][:, indices].T
        ours = (x @ qk[head][0] @ qk[head][1] @ x.T, x @ vo[head][0] @ vo[head][1])
        for actual, expected in zip(ours, (scores, outputs), strict=True):
            assert np.max(np.abs(actual - expected)) <= 2.0**-22 * np.abs(expected).max()


def finite(audit_result: Result) -> bool:
    """Whether every number of the rows of an audit is there and finite."""
    numbers = audit_result.matrices.select("spectral_norm", "norm_21", "effective_rank")
    values = audit_result.spectra["singular_values"].to_list()
    return all(np.isfinite(column).all() for column in (*numbers.to_numpy().T, *values))


@pytest.mark.slow
def test_smollm2_is_audited(smollm2: Model) -> None:
    """Two layers of it: the others have the same names, sizes and codes."""
    audit_result = audit(real_checkpoint("smollm2"), layers="3:5", jobs=1)
    assert audit_result.matrices.height == 2 * (2 * HEADS + 3) == audit_result.summary["matrices"]
    assert finite(audit_result)
    w = {role: q4_1(smollm2, f"blk.3.attn_{role}.weight") for role in ("q", "k")}
    formed = w["q"][5 * SIZE : 6 * SIZE].T @ w["k"][SIZE : 2 * SIZE]
    row = audit_result.spectra.filter(layer=3, kind="qk", head=5)["singular_values"][0].to_numpy()
    # Decoding rounds each weight to float32: 2^-24 relative, so at most that times |Q|_F |K|_2 + |Q|_2 |K|_F.
    error = 2.0**-24 * 2 * np.linalg.norm(w["q"]) * np.linalg.norm(w["k"])
    assert np.max(np.abs(row - svdvals(formed)[:SIZE])) <= error


@pytest.mark.long
def test_smollm2_is_audited_whole() -> None:
    audit_result = audit(real_checkpoint("smollm2"), jobs=1)
    assert audit_result.matrices.height == 30 * (2 * HEADS + 3) == audit_result.summary["matrices"]
    assert finite(audit_result)
    assert np.isfinite(audit_result.matrices["log10_contribution"].to_numpy()).all()
    assert np.isfinite(audit_result.summary["proxies"]["spectrum_adaptive"]["log10"])


def two_layers(model: Model) -> tuple[Arrays, dict[str, int]]:
    """The first layers of SmolLM2 as float32."""
    names = [f"blk.{layer}.{name}.weight" for layer in range(2) for name in TO_HUGGING_FACE]
    sizes = {
        "block_count": 2,
        "embedding_length": 576,
        "feed_forward_length": 1536,
        "attention.head_count": HEADS,
        "attention.head_count_kv": KV_HEADS,
    }
    return {name: model.tensors.read(name) for name in names}, sizes


def interleaved(weight: np.ndarray, heads: int) -> np.ndarray:
    """The order of rows that Hugging Face has; the converter of llama.cpp pairs row i with row i + d/2."""
    halves = weight.reshape(heads, -1, 2, weight.shape[1])
    return np.ascontiguousarray(halves.swapaxes(1, 2).reshape(weight.shape))


def as_hugging_face(tensors: Arrays, permuted: bool) -> Arrays:
    renamed = {}
    for name, tensor in tensors.items():
        _, layer, part, _ = name.split(".")
        if permuted and part in ("attn_q", "attn_k"):
            tensor = interleaved(tensor, HEADS if part == "attn_q" else KV_HEADS)
        renamed[f"model.layers.{layer}.{TO_HUGGING_FACE[part]}.weight"] = tensor
    return renamed


PLANES = ("factor_excess", "factor_excess_weights", "factor_imbalance")


@pytest.mark.slow
@pytest.mark.parametrize("permuted", [False, True])
def test_the_same_model_as_gguf_and_as_safetensors_gives_the_same_rows(
    smollm2: Model, tmp_path: Path, permuted: bool
) -> None:
    """Bit by bit; or, with Hugging Face's order of rows within a head, to the last digits of a sum."""
    tensors, sizes = two_layers(smollm2)
    write_gguf(tmp_path / "a.gguf", tensors, sizes)
    (tmp_path / "b").mkdir()
    save_file(as_hugging_face(tensors, permuted), tmp_path / "b" / "model.safetensors")
    (tmp_path / "b" / "config.json").write_text(
        '{"model_type": "llama", "num_attention_heads": 9, "num_key_value_heads": 3, "hidden_act": "silu"}'
    )
    ours, twin = audit(tmp_path / "a.gguf", name="m", jobs=1), audit(tmp_path / "b", name="m", jobs=1)
    assert ours.summary["warnings"] == twin.summary["warnings"] == []
    assert np.isfinite(ours.summary["proxies"]["spectrum_adaptive"]["log10"])
    assert np.isfinite(ours.matrices["log10_contribution"].to_numpy()).all()
    if not permuted:
        # Without the order of Hugging Face its rotary planes are others: what belongs to them differs.
        ignored_columns = ["tensors", *PLANES]
        assert ours.matrices.drop(ignored_columns).equals(twin.matrices.drop(ignored_columns))
        assert ours.spectra.equals(twin.spectra)
        assert {**ours.summary, "tables": None} == {**twin.summary, "tables": None}  # findings name tensors
        return
    place = ["layer", "kind", "head"]
    assert ours.spectra.select(place).equals(twin.spectra.select(place))
    for column in PLANES:
        first, second = (audit_result.matrices[column].to_numpy() for audit_result in (ours, twin))
        np.testing.assert_allclose(first, second, rtol=1e-12, err_msg=column)
    columns = (audit_result.spectra["singular_values"].to_list() for audit_result in (ours, twin))
    for first, second in zip(*columns, strict=True):
        assert np.max(np.abs(np.subtract(first, second))) <= 1e-12 * first[0]
    log10 = [audit_result.summary["proxies"]["edelman"]["log10"] for audit_result in (ours, twin)]
    assert log10[0] == pytest.approx(log10[1], abs=1e-10)


def tiny(rng: np.random.Generator, experts: int = 0) -> Arrays:
    shapes: dict[str, tuple[int, ...]] = {
        "attn_q": (32, 32),
        "attn_k": (16, 32),
        "attn_v": (16, 32),
        "attn_output": (32, 32),
        "ffn_gate": (64, 32),
        "ffn_up": (64, 32),
        "ffn_down": (32, 64),
    }
    if experts:
        for name in ("ffn_gate", "ffn_up", "ffn_down"):
            shapes[f"{name}_exps"] = (experts, *shapes.pop(name))
        shapes["ffn_gate_inp"] = (experts, 32)
    return {
        f"blk.{layer}.{name}.weight": rng.standard_normal(shape).astype(np.float32)
        for layer in range(2)
        for name, shape in shapes.items()
    }


SIZES = {
    "block_count": 2,
    "embedding_length": 32,
    "feed_forward_length": 64,
    "attention.head_count": 4,
    "attention.head_count_kv": 2,
}


def test_stacked_experts_are_read_one_by_one(tmp_path: Path) -> None:
    tensors = tiny(np.random.default_rng(0), experts=3)
    model = open_model(write_gguf(tmp_path / "m.gguf", tensors, SIZES | {"expert_count": 3}))
    assert "mixture of experts" in model.extensions
    assert model.warnings == ()
    for number, expert in enumerate(model.layers[1].experts):
        assert np.array_equal(model.read(expert.outer), tensors["blk.1.ffn_down_exps.weight"][number].T)


@pytest.mark.parametrize("kind", ["Q8_0", "Q5_1", "F16", "BF16"])
def test_codes_are_decoded_as_the_package_decodes_them(tmp_path: Path, kind: str) -> None:
    code = gguf.GGMLQuantizationType[kind]
    tensors = tiny(np.random.default_rng(1))
    writer = gguf.GGUFWriter(tmp_path / "m.gguf", "llama")
    for key, value in SIZES.items():
        writer.add_uint32(f"llama.{key}", value)
    for name, tensor in tensors.items():
        writer.add_tensor(name, gguf.quants.quantize(tensor, code), raw_dtype=code)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    model = open_model(tmp_path)
    for name, tensor in tensors.items():
        decoded = gguf.quants.dequantize(gguf.quants.quantize(tensor, code), code)
        assert np.array_equal(model.tensors.read(name).astype(np.float32), decoded)
    assert any(kind in text for text in model.warnings) == kind.startswith("Q")


def test_a_config_beside_it_does_not_overrule_the_file(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"model_type": "bert", "num_attention_heads": 16}')
    write_gguf(tmp_path / "m.gguf", tiny(np.random.default_rng(0)), SIZES)
    assert open_model(tmp_path).heads == 4


@pytest.mark.parametrize("architecture", ["olmo2", "phi3", "newcomer"])
def test_an_architecture_that_is_known_by_other_names(tmp_path: Path, architecture: str) -> None:
    """The file names it itself, so nothing contradicts anything; which norms feed the blocks is not known."""
    path = write_gguf(tmp_path / "m.gguf", tiny(np.random.default_rng(0)), SIZES, architecture)
    model = open_model(path)
    assert model.family == architecture
    assert f"attnlaw does not know model type {architecture}; it treats the model as llama.cpp" in str(
        model.warnings
    )
    assert {layer.attention.norm for layer in model.layers} == {None}


def test_sizes_that_contradict_the_tensors(tmp_path: Path) -> None:
    path = write_gguf(tmp_path / "m.gguf", tiny(np.random.default_rng(0)), SIZES | {"block_count": 3})
    refusal(path, str(path), "expected 3 layers")


SPOILED: dict[str, tuple[Callable[[bytes], bytes], str]] = {
    "empty": (lambda _whole: b"", "empty"),
    "text": (lambda _whole: b"hello, this is no model at all", "does not begin with GGUF"),
    "cut header": (lambda whole: whole[:300], "not a complete GGUF file"),
    "cut data": (lambda whole: whole[:-100], "past the end"),
    "version": (lambda whole: whole[:4] + struct.pack("<I", 77) + whole[8:], "version 77"),
    "count": (lambda whole: whole[:16] + struct.pack("<Q", 2**60) + whole[24:], "not a complete GGUF file"),
}


@pytest.mark.parametrize("case", SPOILED)
def test_damaged_files(tmp_path: Path, case: str) -> None:
    spoil, said = SPOILED[case]
    path = write_gguf(tmp_path / "m.gguf", tiny(np.random.default_rng(0)), SIZES)
    path.write_bytes(spoil(path.read_bytes()))
    refusal(path, str(path), said)


def test_damaged_headers_never_hang_or_end_in_a_traceback(tmp_path: Path) -> None:
    path = write_gguf(tmp_path / "m.gguf", tiny(np.random.default_rng(0)), SIZES)
    whole, random = path.read_bytes(), np.random.default_rng(2)
    end = whole.rindex(b"blk.1.") + 50
    places = [*range(400), *range(end - 1000, end)]  # sizes and tensors; between them lies the tokenizer
    refused = 0
    for _ in range(300):
        damaged = bytearray(whole)
        for _ in range(random.integers(1, 6)):
            damaged[random.choice(places)] = random.integers(256)
        path.write_bytes(damaged)
        try:
            open_model(path)
        except InputError as error:
            refused += "\n" not in str(error)
    assert refused > 150


def test_without_the_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write_gguf(tmp_path / "m.gguf", tiny(np.random.default_rng(0)), SIZES)
    modules: Any = __import__("sys").modules
    monkeypatch.setitem(modules, "gguf", None)
    refusal(path, str(path), "pip install 'attnlaw[gguf]'")
