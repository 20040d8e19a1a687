"""One test for each way in which other readers have gone wrong."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import gguf
import ml_dtypes
import numpy as np
import pytest
from checkpoints.quantization import encoders
from checkpoints.quantization.encoders import BASE, NAME, Coded, Draw, stream
from checkpoints.quantization.fixtures import FOLDER, difference, expected
from checkpoints.quantization.opening import opened, reads_right, refused

from attnlaw.checkpoints.open import open_model
from attnlaw.core.errors import InputError


def draw(seed: int = 0) -> Draw:
    return Draw(np.random.default_rng(seed))


def stated(coded: Coded, **values: Any) -> Coded:
    """The same checkpoint with other values in `quantization_config`. None removes a value."""
    config = {**(coded.quantization or {}), **values}
    return replace(coded, quantization={key: value for key, value in config.items() if value is not None})


def without(coded: Coded, *names: str) -> Coded:
    return replace(coded, tensors={name: part for name, part in coded.tensors.items() if name not in names})


def remark_of(coded: Coded) -> str:
    return " ".join(getattr(opened(coded), "remarks", ()))


# 1. GPTQ's zero points


def symmetric_gptq(stored: int, bits: int = 4, **config: Any) -> Coded:
    """GPTQ with all zero points in the middle, which the file stores as `stored`."""
    rng, size, middle = np.random.default_rng(1), 32, 2 ** (bits - 1)
    codes = rng.integers(0, 2**bits, (64, 32))
    scales = rng.uniform(0.1, 1, (2, 32)).astype(np.float32)
    tensors = {
        f"{BASE}qweight": stream(codes.T, bits).T.view(np.int32),
        f"{BASE}qzeros": stream(np.full((2, 32), stored), bits).view(np.int32),
        f"{BASE}scales": scales,
    }
    weight = (codes - middle).astype(np.float32) * scales.repeat(size, 0)
    quantization = {"quant_method": "gptq", "bits": bits, "group_size": size, "sym": True, **config}
    return Coded(tensors, {NAME: weight.T}, quantization)


@pytest.mark.parametrize("bits", [2, 3, 4, 8])
@pytest.mark.parametrize("form", ["gptq", "gptq_v2"])
def test_zero_points_in_the_middle_are_believed_and_not_the_config(bits: int, form: str) -> None:
    """Qwen3.5-27B-GPTQ-Int4 says `gptq` and stores z, as `gptq_v2` does."""
    middle = 2 ** (bits - 1)
    as_stated = symmetric_gptq(middle - (form == "gptq"), bits, checkpoint_format=form)
    reads_right(as_stated)
    assert remark_of(as_stated) == ""
    other = symmetric_gptq(middle - (form != "gptq"), bits, checkpoint_format=form)
    reads_right(other)
    assert form in remark_of(other)
    assert "zero points" in remark_of(other)


def test_other_zero_points_of_a_symmetric_file_are_an_error() -> None:
    refused(symmetric_gptq(5), "qzeros", "sym is true")


def test_zero_points_that_need_a_config_are_an_error_without_one() -> None:
    coded = encoders.gptq(draw(), form="gptq_v2")
    refused(replace(coded, quantization=None), "qzeros", "no config.json")
    reads_right(replace(symmetric_gptq(7), quantization=None))


@pytest.mark.parametrize("form", ["gptq", "gptq_v2"])
def test_the_wrong_format_shows_in_the_mean_of_the_codes(form: str) -> None:
    coded = encoders.gptq(draw(3), form="gptq_v2")  # without the zero points that wrap around
    if form == "gptq":
        coded.tensors[f"{BASE}qzeros"] -= 0x11111111
    coded = stated(coded, checkpoint_format=form)
    reads_right(coded)
    other = "gptq_v2" if form == "gptq" else "gptq"
    refused(stated(coded, checkpoint_format=other), "qzeros", f"if the file is {form}")


def test_an_unknown_format_is_an_error() -> None:
    refused(stated(encoders.gptq(draw()), checkpoint_format="gptq_v9"), "gptq_v9", "gptq_v2")


@pytest.mark.parametrize(
    ("packing", "form"),
    [
        ("auto_round", "gptq_v2"),
        ("auto_round:auto_gptq", "gptq"),
        ("auto_round:gptq", "gptq"),
        (None, "gptq"),
    ],
)
def test_autoround_names_the_format_in_its_own_words(packing: str | None, form: str) -> None:
    coded = encoders.gptq(draw(4), form=form)
    config = {"quant_method": "auto-round", "autoround_version": "0.16.1", "packing_format": packing}
    reads_right(stated(coded, checkpoint_format=None, **config))


# 2. g_idx


def test_a_g_idx_of_zeros_was_not_filled() -> None:
    coded = encoders.gptq(draw(5))
    coded.tensors[f"{BASE}g_idx"] = np.zeros(coded.weights[NAME].shape[1], np.int32)
    reads_right(coded)


def test_act_order_without_g_idx_is_an_error() -> None:
    coded = encoders.gptq(draw(6), ordered=True)
    refused(without(coded, f"{BASE}g_idx"), "g_idx", "desc_act")


def test_a_group_that_is_not_there_is_an_error() -> None:
    coded = encoders.gptq(draw(6), ordered=True)
    coded.tensors[f"{BASE}g_idx"][3] = 99
    refused(coded, "g_idx", "99")


# 3 and 4. bitsandbytes


def test_blocks_of_bitsandbytes_run_over_row_ends() -> None:
    """Rows of 96 and blocks of 64: the kernel of bitsandbytes 0.50.2 for CPUs starts each row anew."""
    rng = np.random.default_rng(7)
    codes, absmax = rng.integers(0, 16, 3 * 96), rng.uniform(0.5, 2, 5).astype(np.float32)
    table = np.linspace(-1, 1, 16).astype(np.float32)
    state = {"quant_type": "nf4", "blocksize": 64, "dtype": "bfloat16", "shape": [3, 96]}
    tensors = {
        NAME: (codes[0::2] << 4 | codes[1::2]).astype(np.uint8).reshape(-1, 1),
        f"{NAME}.absmax": absmax,
        f"{NAME}.quant_map": table,
        f"{NAME}.quant_state.bitsandbytes__nf4": np.frombuffer(json.dumps(state).encode(), np.uint8),
    }
    weight = np.array(
        [[table[codes[96 * i + j]] * absmax[(96 * i + j) // 64] for j in range(96)] for i in range(3)]
    )
    reads_right(Coded(tensors, {NAME: weight.astype(np.float32)}, {"quant_method": "bitsandbytes"}))


@pytest.mark.parametrize("storage", [ml_dtypes.bfloat16, np.float16, np.float32, np.int8])
def test_codes_of_bitsandbytes_may_be_stored_as_any_type(storage: Any) -> None:
    coded = bitsandbytes_of_even_size()
    coded.tensors[NAME] = coded.tensors[NAME].view(np.uint8).reshape(-1).view(storage).reshape(-1, 1)
    reads_right(coded)


def bitsandbytes_of_even_size() -> Coded:
    """A matrix whose bytes also are whole float32 numbers."""
    for seed in range(99):
        coded = encoders.bitsandbytes_4bit(draw(seed))
        if coded.tensors[NAME].nbytes % 4 == 0:
            return coded
    raise AssertionError


# 5 and 6. Scales that divide, and 4-bit floats under another name


def test_the_second_scale_of_nvfp4_divides_or_multiplies() -> None:
    """The same three tensors under the names of two writers."""
    coded = encoders.float4(draw(8))
    packed, scale, whole = (coded.tensors[f"{NAME}{end}"] for end in ("_packed", "_scale", "_global_scale"))
    reads_right(coded)
    factor = scale.astype(np.float32) * whole.reshape((*whole.shape[:-1], 1, 1))
    values = coded.weights[NAME] / np.repeat(
        scale.astype(np.float32) / whole.reshape((*whole.shape[:-1], 1, 1)), 16, -1
    )
    weight = np.rint(2 * values) / 2 * np.repeat(factor, 16, -1)
    other = whole.reshape(whole.shape[:-1])
    tensors = {NAME: packed, f"{NAME}_scale": scale, f"{NAME}_scale_2": other}
    reads_right(Coded(tensors, {NAME: weight}, {"quant_method": "modelopt"}))


def test_a_scale_called_inv_divides_only_if_the_config_says_so() -> None:
    codes = np.arange(-12, 12).reshape(4, 6).astype(ml_dtypes.float8_e4m3fn)
    scale = np.array([0.5, 2, 3, 7], np.float32)[:, None]
    coded = Coded({NAME: codes, f"{NAME}_scale_inv": scale}, {NAME: codes.astype(np.float32) * scale})
    reads_right(replace(coded, quantization={"quant_method": "fp8"}))
    divided = replace(coded, weights={NAME: codes.astype(np.float32) / scale})
    reads_right(replace(divided, quantization={"quant_method": "fp8", "weight_scale_semantics": "inverse"}))


def test_deepseek_v4_has_4_bit_experts_under_the_flag_fp8() -> None:
    """0.2.0 read the float8 weights of this file without their scales, which are called `X.scale`."""
    model = open_model(FOLDER / "fp8-v4-experts")
    experts = [name for name in expected("fp8-v4-experts") if ".experts." in name]
    assert len(experts) == 12
    for name in expected("fp8-v4-experts"):
        label = model.tensors.dtype(name)
        assert ("MXFP4" if name in experts else "float8") in label
        assert difference("fp8-v4-experts", name, model.tensors.read(name)) == 0


# 7. Lists of modules


@pytest.mark.parametrize(
    ("name", "key"),
    [
        ("bnb-nf4", "llm_int8_skip_modules"),
        ("fp8-block", "modules_to_not_convert"),
        ("ct-int4-sym", "ignore"),
        ("hqq-4-axis1", "skip_modules"),
        ("quark-uint4", "exclude"),
    ],
)
def test_lists_of_plain_modules_do_not_count(name: str, key: str, tmp_path: Path) -> None:
    shutil.copytree(FOLDER / name, tmp_path, dirs_exist_ok=True)
    config = json.loads((tmp_path / "config.json").read_text())
    for wrong in (["q_proj", "model.layers.0.self_attn.q_proj"], []):
        config["quantization_config"][key] = wrong
        (tmp_path / "config.json").write_text(json.dumps(config))
        tensors = open_model(tmp_path).tensors
        assert all(difference(name, weight, tensors.read(weight)) == 0 for weight in expected(name))


# 8. Old packing


@pytest.mark.parametrize(
    ("version", "old"), [("0.9.1", True), ("0.17.9", True), ("0.18.0", False), ("1.0", False)]
)
def test_few_inputs_fit_both_packings_and_the_version_tells(version: str, old: bool) -> None:
    """60 codes of 3 bits take six words with either packing."""
    codes = np.random.default_rng(9).integers(0, 8, (4, 60))
    packed = (encoders.whole_fields if old else stream)(codes, 3)
    assert packed.shape == (4, 6)
    tensors = {
        f"{NAME}_packed": packed.view(np.int32),
        f"{NAME}_scale": np.ones((4, 1), np.float32),
        f"{NAME}_shape": np.array([4, 60]),
    }
    config = encoders.scheme(num_bits=3, type="int", symmetric=True, strategy="channel", version=version)
    coded = Coded(tensors, {NAME: (codes - 4).astype(np.float32)}, config)
    reads_right(coded)
    refused(stated(coded, version=None), f"{NAME}_packed", "config_groups")


# 9. AWQ and GPTQ


@pytest.mark.parametrize("encode", [encoders.gptq, encoders.awq_gemm])
def test_shapes_distinguish_awq_and_gptq(encode: Any) -> None:
    coded = encode(draw(10))
    reads_right(stated(coded, quant_method="auto-round", packing_format="auto_round:auto_gptq"))
    other = "awq" if encode is encoders.gptq else "gptq"
    refused(stated(coded, quant_method=other), "qweight", other)


def test_awq_needs_no_config() -> None:
    reads_right(replace(encoders.awq_gemm(draw(11)), quantization=None))


# 10. Scales of activations


@pytest.mark.parametrize(
    "name", ["input_scale", "k_scale", "v_scale", "input_global_scale", "input_zero_point", "output_scale"]
)
def test_scales_of_activations_do_not_count(name: str) -> None:
    coded = encoders.entries(draw(12))
    coded.tensors[BASE + name] = np.array([3], np.float32)
    reads_right(coded)


def test_factors_of_columns_do_count() -> None:
    coded = encoders.modelopt_int4(draw(13))
    coded.tensors.pop(f"{BASE}pre_quant_scale", None)
    plain = opened(coded).read(NAME)
    coded.tensors[f"{BASE}pre_quant_scale"] = np.arange(1, plain.shape[1] + 1).astype(np.float32)
    assert np.array_equal(
        opened(coded).read(NAME), plain * np.arange(1, plain.shape[1] + 1, dtype=np.float32)
    )


# 11. config.json and the file disagree


@pytest.mark.parametrize("encode", [encoders.gptq, encoders.awq_gemm, encoders.modelopt_int4])
def test_shapes_win_and_the_screen_says_so(encode: Any) -> None:
    coded = encode(draw(14))
    size = coded.quantization["group_size"]
    reads_right(coded)
    assert remark_of(coded) == ""
    other = stated(coded, group_size=2 * size)
    reads_right(other)
    assert f"group_size {2 * size}" in remark_of(other)
    assert f"{size}; attnlaw uses what the shapes show" in remark_of(other)


@pytest.mark.parametrize(
    ("encode", "change"),
    [
        (
            encoders.ct_integers,
            {"config_groups": {"group_0": {"weights": {"num_bits": 6, "group_size": 16}}}},
        ),
        (encoders.aqlm, {"num_codebooks": 7}),
        (encoders.aqlm, {"nbits_per_codebook": 3}),
        (encoders.aqlm, {"in_group_size": 4}),
        (encoders.aqlm, {"out_group_size": 9}),
    ],
)
def test_elsewhere_the_error_names_both(encode: Any, change: dict[str, Any]) -> None:
    refused(stated(encode(draw(15)), **change), BASE, "config.json states")


def test_mlx_always_needs_its_config() -> None:
    coded = encoders.mlx(draw(16))
    refused(replace(coded, values={}), NAME, "quantization")
    table = {"quantization": {"group_size": 32, "bits": 3}}
    refused(replace(coded, values=table), NAME, "3 bits", "groups of 32")


@pytest.mark.parametrize("entry", [{"group_size": 64}, {"bits": 4}, {"mode": "affine"}])
def test_an_entry_of_mlx_inherits_nothing(entry: dict[str, Any]) -> None:
    """Left out means affine, 4 bits and groups of 64, and not what the other modules have."""
    codes = np.random.default_rng(17).integers(0, 16, (4, 64))
    tensors = {NAME: stream(codes, 4), f"{BASE}scales": np.ones((4, 1), np.float32)}
    tensors[f"{BASE}biases"] = np.full((4, 1), -8, np.float32)
    table = {"group_size": 32, "bits": 8, "mode": "mxfp8", BASE[:-1]: entry}
    weight = (codes - 8).astype(np.float32)
    reads_right(Coded(tensors, {NAME: weight}, None, {"quantization": table}))


# 13. quanto


def test_quanto_needs_the_sizes_of_the_model() -> None:
    config = json.loads((FOLDER / "quanto-int4" / "config.json").read_text())
    assert "quantization_config" not in config
    coded = encoders.quanto(draw(18))
    reads_right(coded)
    refused(replace(coded, values={}), NAME, "shape", "config.json")


# 14. Missing parts


@pytest.mark.parametrize(
    ("part", "config"), [("zero_point", {"symmetric": False}), ("g_idx", {"actorder": "group"})]
)
def test_parts_that_the_config_promises(part: str, config: dict[str, Any]) -> None:
    for seed in range(99):
        coded = encoders.ct_integers(draw(seed))
        if f"{NAME}_{part}" in coded.tensors:
            refused(without(coded, f"{NAME}_{part}"), f"{NAME}_{part}", next(iter(config)))
            return
    raise AssertionError


def test_column_factors_that_other_layers_have(tmp_path: Path) -> None:
    from safetensors.numpy import load_file, save_file

    source = FOLDER / "modelopt-int4-awq"
    shutil.copytree(source, tmp_path, dirs_exist_ok=True)
    tensors = load_file(tmp_path / "model.safetensors")
    factors = sorted(name for name in tensors if name.endswith("pre_quant_scale"))
    assert factors
    for name in factors:
        save_file(
            {key: value for key, value in tensors.items() if key != name}, tmp_path / "model.safetensors"
        )
        with pytest.raises(InputError, match=name.removesuffix("pre_quant_scale").replace(".", r"\.")):
            open_model(tmp_path)


NVFP4_NAMES = ("attn_q", "attn_k", "attn_v", "attn_output", "ffn_gate", "ffn_up", "ffn_down")


def write_nvfp4(path: Path, scales: dict[str, np.ndarray], experts: int = 0) -> dict[str, np.ndarray]:
    """A GGUF file whose matrices are NVFP4, with some second scales; the matrices without them."""
    rng, decoded, kind = np.random.default_rng(19), {}, gguf.GGMLQuantizationType.NVFP4
    writer = gguf.GGUFWriter(path, "llama")
    for key, value in (("block_count", 1), ("embedding_length", 64), ("attention.head_count", 1)):
        writer.add_uint32(f"llama.{key}", value)
    for name in NVFP4_NAMES:
        shape = (experts, 64) if experts and "ffn" in name else (64,)
        first = rng.integers(30, 90, (*shape, 4)).astype(np.uint8)  # e4m3, one for 16 weights
        codes = rng.integers(0, 16, (*shape, 4, 16))
        stored = np.concatenate([first, (codes[..., :8] | codes[..., 8:] << 4).reshape(*shape, 32)], -1)
        key = f"blk.0.{name}{'_exps' if len(shape) == 2 else ''}.weight"
        values = encoders.floats4(codes) * first.view(ml_dtypes.float8_e4m3fn).astype(np.float32)[..., None]
        decoded[key] = values.reshape(*shape, 64)
        writer.add_tensor(key, stored.astype(np.uint8), raw_dtype=kind)
        if name in scales:
            writer.add_tensor(key.replace("weight", "scale"), scales[name])
    if experts:
        writer.add_tensor("blk.0.ffn_gate_inp.weight", np.ones((experts, 64), np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return decoded


def test_nvfp4_of_gguf_has_a_second_scale(tmp_path: Path) -> None:
    path = tmp_path / "m.gguf"
    scales = {name: np.array([0.25 * (i + 1)], np.float32) for i, name in enumerate(NVFP4_NAMES)}
    decoded = write_nvfp4(path, scales)
    tensors = open_model(path).tensors
    for name, scale in scales.items():
        key = f"blk.0.{name}.weight"
        assert np.array_equal(tensors.read(key), decoded[key] * scale)
    assert not [name for name in tensors.shapes if name.endswith("scale")]
    plain = write_nvfp4(path, {})
    assert np.array_equal(open_model(path).tensors.read("blk.0.attn_k.weight"), plain["blk.0.attn_k.weight"])
    del scales["attn_v"]
    write_nvfp4(path, scales)
    with pytest.raises(InputError, match=r"blk\.0\.attn_v\.weight.*blk\.0\.attn_k\.weight"):
        open_model(path)
    stacked = {name: np.arange(1, 4, dtype=np.float32) for name in NVFP4_NAMES if "ffn" in name} | {
        name: np.ones(1, np.float32) for name in NVFP4_NAMES if "attn" in name
    }
    decoded = write_nvfp4(path, stacked, experts=3)
    tensors = open_model(path).tensors
    for member in range(3):
        ours = tensors.read("blk.0.ffn_up_exps.weight", member)
        assert np.array_equal(ours, decoded["blk.0.ffn_up_exps.weight"][member] * (member + 1))
    scales["attn_v"] = np.ones(3, np.float32)
    write_nvfp4(path, scales)
    with pytest.raises(InputError, match=r"blk\.0\.attn_v\.scale.*\[3\].*\[1\]"):
        open_model(path)


# 15. What no check can see is in the label


def test_labels_name_what_no_check_can_see() -> None:
    for linear in ("bitlinear", "autobitlinear"):
        label = opened(encoders.bitnet(draw(), linear)).dtype(NAME)
        assert f"({linear})" in label
    for seed in range(6):
        coded = encoders.quark_int4(draw(seed))
        config = dict(coded.quantization or {})
        label = opened(coded).dtype(NAME)
        spec = config["global_quant_config"]["weight"]
        kind = (spec[0] if isinstance(spec, list) else spec)["dtype"]
        assert f"({kind}, {config['export']['pack_method']})" in label
    for form in ("gptq", "gptq_v2"):
        label = opened(encoders.gptq(draw(2), bits=8, form=form)).dtype(NAME)
        assert f"zero points as {form}" in label
        assert "zero points" not in opened(encoders.gptq(draw(2), bits=4, form=form)).dtype(NAME)
    refused(
        stated(encoders.bitnet(draw()), linear_class="other"), "linear_class", "bitlinear or autobitlinear"
    )
    refused(stated(encoders.quark_int4(draw()), export={}), "pack_method", "reorder or order")
