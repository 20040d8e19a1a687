"""Random matrices that the libraries encode and decode themselves, against our decoders.

The extra `test` installs gguf, compressed-tensors, torchao and mlx. The other tests run if their library is
installed. Most are slow because importing the library takes seconds.
"""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import torch
from checkpoints.quantization.encoders import BASE, NAME, Coded, scheme
from checkpoints.quantization.opening import opened

from attnlaw.checkpoints.formats.gguf_file import GgufFile
from attnlaw.checkpoints.tensors import as_numpy

OUTPUTS, INPUTS = 96, 256
LENGTHS = {"float32": np.float32, "float16": np.float16, "bfloat16": ml_dtypes.bfloat16}


def matrix(seed: int = 0, outputs: int = OUTPUTS, inputs: int = INPUTS) -> torch.Tensor:
    """A matrix whose rows and columns have different sizes, with outliers."""
    draw = torch.Generator().manual_seed(seed)
    values = 0.05 * torch.randn(outputs, inputs, generator=draw)
    values *= torch.exp(0.5 * torch.randn(outputs, 1, generator=draw))
    values *= torch.exp(0.3 * torch.randn(inputs, generator=draw))
    return torch.where(torch.rand(outputs, inputs, generator=draw) < 0.002, 12 * values, values)


def numbers(tensor: Any) -> np.ndarray:
    return as_numpy(tensor.detach(), "library", "tensor")


def same(stored: dict[str, Any], theirs: Any, **checkpoint: Any) -> str:
    """Assert that we decode what a library decodes, up to its own rounding; return the label."""
    tensors = {name: numbers(value) for name, value in stored.items() if isinstance(value, torch.Tensor)}
    decoded = opened(Coded(tensors, {}, **checkpoint))
    ours, expected = decoded.read(NAME), numbers(theirs)
    assert ours.shape == expected.shape
    assert np.array_equal(ours.astype(expected.dtype).astype(np.float32), expected.astype(np.float32))
    return decoded.dtype(NAME)


# compressed-tensors

INTEGERS = [(bits, symmetric) for bits in range(2, 9) for symmetric in (True, False)]
FORMATS: dict[str, tuple[str, dict[str, Any]]] = {
    **{
        f"int{bits}{'' if symmetric else ' asymmetric'}": (
            "pack-quantized",
            {"num_bits": bits, "type": "int", "symmetric": symmetric, "strategy": "group", "group_size": 32},
        )
        for bits, symmetric in INTEGERS
    },
    "int4 rows": ("pack-quantized", {"num_bits": 4, "type": "int", "symmetric": True, "strategy": "channel"}),
    "int8 rows": ("int-quantized", {"num_bits": 8, "type": "int", "symmetric": True, "strategy": "channel"}),
    "float8 rows": (
        "float-quantized",
        {"num_bits": 8, "type": "float", "symmetric": True, "strategy": "channel"},
    ),
    "float8": ("float-quantized", {"num_bits": 8, "type": "float", "symmetric": True, "strategy": "tensor"}),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", FORMATS)
def test_compressed_tensors(name: str) -> None:
    library = pytest.importorskip("compressed_tensors")
    from compressed_tensors.compressors import BaseCompressor
    from compressed_tensors.quantization import QuantizationArgs, QuantizationScheme
    from compressed_tensors.quantization.utils import calculate_qparams

    form, options = FORMATS[name]
    weight, args = matrix(), QuantizationArgs(**options)
    groups = {"group": (OUTPUTS, -1, 32), "channel": (OUTPUTS, 1, INPUTS), "tensor": (1, 1, OUTPUTS * INPUTS)}
    grouped = weight.reshape(groups[options["strategy"]])
    scale, zero = calculate_qparams(grouped.amin(-1), grouped.amax(-1), args)
    if options["strategy"] == "tensor":
        scale, zero = scale.reshape(1), zero.reshape(1)
    state = {"weight": weight, "weight_scale": scale, "weight_zero_point": zero}
    how = QuantizationScheme(targets=["Linear"], weights=args, format=form)
    compressor = BaseCompressor.get_value_from_registry(form)
    stored = compressor.compress(state, how)
    theirs = compressor.decompress(stored, how)["weight"]
    label = same(
        {BASE + key: value for key, value in stored.items()},
        theirs,
        quantization=scheme(**options, version=library.__version__),
    )
    assert ("int" if options["type"] == "int" else "float8") in label


# MLX


@pytest.mark.parametrize(
    ("mode", "bits", "size"),
    [("affine", bits, size) for bits in (2, 3, 4, 5, 6, 8) for size in (32, 64, 128)]
    + [("mxfp4", 4, 32), ("nvfp4", 4, 16), ("mxfp8", 8, 32)],
)
def test_mlx(mode: str, bits: int, size: int) -> None:
    mlx = pytest.importorskip("mlx.core")
    mlx.set_default_device(mlx.cpu)
    table = {"group_size": size, "bits": bits, "mode": mode}
    weight = mlx.array(matrix(bits).numpy())
    parts = mlx.quantize(weight, **table)
    theirs = mlx.dequantize(*parts, **table, **({} if mode == "affine" else {"dtype": mlx.float32}))
    names = (NAME, f"{BASE}scales", f"{BASE}biases")
    stored = {name: np.array(part) for name, part in zip(names, parts, strict=False)}
    ours = opened(Coded(stored, {}, values={"quantization": table})).read(NAME)
    assert np.array_equal(ours, np.array(theirs))
    assert np.corrcoef(ours.ravel(), matrix(bits).numpy().ravel())[0, 1] > (0.8 if bits == 2 else 0.95)


# torchao


@pytest.mark.slow
@pytest.mark.parametrize(
    "kind", ["int8", "int8 tensor", "float8", "int4 unpacked", "int3 unpacked", "nvfp4", "mxfp8", "mxfp4"]
)
def test_torchao(kind: str) -> None:
    pytest.importorskip("torchao")
    from torchao.prototype.mx_formats import NVFP4WeightOnlyConfig
    from torchao.prototype.mx_formats.mx_tensor import MXTensor
    from torchao.prototype.safetensors.safetensors_support import flatten_tensor_state_dict
    from torchao.quantization import (
        Float8WeightOnlyConfig,
        Int8WeightOnlyConfig,
        IntxWeightOnlyConfig,
        PerGroup,
        PerTensor,
        quantize_,
    )

    layer = torch.nn.Sequential(torch.nn.Linear(INPUTS, OUTPUTS, bias=False))
    layer[0].weight.data = matrix(5)
    configs = {
        "int8": lambda: Int8WeightOnlyConfig(version=2),
        "int8 tensor": lambda: Int8WeightOnlyConfig(version=2, granularity=PerTensor()),
        "float8": Float8WeightOnlyConfig,
        "int4 unpacked": lambda: IntxWeightOnlyConfig(weight_dtype=torch.int4, granularity=PerGroup(32)),
        "int3 unpacked": lambda: IntxWeightOnlyConfig(weight_dtype=torch.int3, granularity=PerGroup(64)),
        "nvfp4": NVFP4WeightOnlyConfig,
    }
    if kind in configs:
        quantize_(layer, configs[kind]())
        tensor = layer[0].weight.data
        theirs = tensor.dequantize()
    else:
        element = torch.float8_e4m3fn if kind == "mxfp8" else torch.float4_e2m1fn_x2
        tensor = MXTensor.to_mx(matrix(5), element, 32)
        theirs = tensor.dequantize(torch.float32)
    data, texts = flatten_tensor_state_dict({NAME: tensor})
    label = same(data, theirs, quantization={"quant_method": "torchao"}, texts=texts)
    assert label.startswith("torchao")


# gguf

ENCODED = ("Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "TQ1_0", "TQ2_0", "MXFP4")


@pytest.mark.parametrize("kind", ENCODED)
def test_gguf(kind: str, tmp_path: Path) -> None:
    """Many blocks of one row, one block of many rows, and a member of a stack."""
    gguf = pytest.importorskip("gguf")
    code = gguf.GGMLQuantizationType[kind]
    for name, shape in (("wide", (3, 2**18 + 256)), ("tall", (700, 256)), ("stack", (3, 5, 512))):
        stored = gguf.quants.quantize(
            np.random.default_rng(0).standard_normal(shape).astype(np.float32), code
        )
        writer = gguf.GGUFWriter(tmp_path / name, "llama")
        writer.add_tensor("a", stored, raw_dtype=code)
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()
        file, expected = GgufFile(tmp_path / name), gguf.quants.dequantize(stored, code)
        assert np.array_equal(file.read("a"), expected)
        assert np.array_equal(file.read("a", 2), expected[2])


# bitsandbytes


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["nf4", "fp4"])
@pytest.mark.parametrize("nested", [False, True])
@pytest.mark.parametrize("inputs", [256, 96])
def test_bitsandbytes_4bit(kind: str, nested: bool, inputs: int) -> None:
    """Decoded as rows of one block: the kernel for CPUs starts a block anew in each row."""
    pytest.importorskip("bitsandbytes")
    from bitsandbytes.functional import dequantize_4bit, quantize_4bit

    weight = matrix(6, inputs=inputs)
    codes, state = quantize_4bit(weight, quant_type=kind, compress_statistics=nested, blocksize=64)
    parts = {f"{NAME}.{key}": value for key, value in state.as_dict(packed=True).items()}
    flat = copy.copy(state)
    flat.shape, flat.dtype = torch.Size([weight.numel() // 64, 64]), torch.float32
    theirs = dequantize_4bit(codes, flat).reshape(weight.shape)
    label = same({NAME: codes, **parts}, theirs, quantization={"quant_method": "bitsandbytes"})
    assert kind.upper() in label


@pytest.mark.slow
def test_bitsandbytes_int8() -> None:
    pytest.importorskip("bitsandbytes")
    from bitsandbytes.functional import int8_vectorwise_dequant, int8_vectorwise_quant

    codes, largest, _ = int8_vectorwise_quant(matrix(7).half())
    stored = {NAME: codes, f"{BASE}SCB": largest, f"{BASE}weight_format": torch.tensor(0, dtype=torch.uint8)}
    same(stored, int8_vectorwise_dequant(codes, largest), quantization={"quant_method": "bitsandbytes"})


# HQQ, quanto, AQLM


@pytest.mark.slow
@pytest.mark.parametrize("bits", [8, 6, 5, 4, 3, 2, 1.58, 1])
@pytest.mark.parametrize("axis", [0, 1])
def test_hqq(bits: float, axis: int) -> None:
    pytest.importorskip("hqq")
    from hqq.core.quantize import Quantizer
    from hqq.core.utils import encode_safetensor_type

    for as_float in (False, True):
        codes, meta = Quantizer.quantize(
            *(matrix(8), bits),
            group_size=64,
            axis=axis,
            optimize=False,
            device="cpu",
            view_as_float=as_float,
            compute_dtype=torch.float16,
        )
        meta["compute_dtype"] = torch.float32
        theirs = Quantizer.dequantize(codes, meta)
        stored = {
            f"{BASE}W_q": codes,
            **{BASE + key: encode_safetensor_type(value) for key, value in meta.items()},
        }
        assert f"{bits}-bit" in same(stored, theirs, quantization={"quant_method": "hqq"})


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["qint8", "qint4", "qint2", "qfloat8_e4m3fn"])
def test_quanto(kind: str) -> None:
    quanto = pytest.importorskip("optimum.quanto")
    layer = torch.nn.ModuleDict({"q_proj": torch.nn.Linear(256, 128, bias=False)})
    layer["q_proj"].weight.data = matrix(9, 128, 256)
    quanto.quantize(layer, weights=getattr(quanto, kind))
    quanto.freeze(layer)
    theirs = layer["q_proj"].weight.dequantize()
    start = BASE.removesuffix("q_proj.")
    stored = {start + key: value for key, value in layer.state_dict().items()}
    sizes = {"hidden_size": 256, "num_attention_heads": 4, "head_dim": 32}
    same(stored, theirs, values=sizes)


@pytest.mark.slow
@pytest.mark.parametrize(("books", "bits", "height"), [(1, 9, 1), (2, 8, 1), (1, 16, 1), (3, 4, 2)])
def test_aqlm(books: int, bits: int, height: int) -> None:
    pytest.importorskip("aqlm")
    from aqlm.utils import _dequantize_weight, pack_int_data, unpack_int_data

    draw = torch.Generator().manual_seed(10)
    codes = pack_int_data(torch.randint(0, 2**bits, (24, 16, books), generator=draw), bits)
    vectors = torch.randn(books, 2**bits, height, 8, generator=draw).half()
    scales = torch.rand(24, 1, 1, 1, generator=draw).half()
    theirs = _dequantize_weight(unpack_int_data(codes, bits), vectors.float(), scales.float())
    stored = {f"{BASE}codes": codes, f"{BASE}codebooks": vectors, f"{BASE}scales": scales}
    same(stored, theirs, quantization={"quant_method": "aqlm"})


# gptqmodel


@pytest.mark.slow
@pytest.mark.parametrize(
    ("bits", "form"),
    [(bits, form) for bits in (2, 3, 4, 8) for form in ("gptq", "gptq_v2")]
    + [(bits, "gptq_p") for bits in range(3, 9)],
)
@pytest.mark.parametrize("ordered", [False, True])
def test_gptqmodel(bits: int, form: str, ordered: bool) -> None:
    """What gptqmodel packs, and what it decodes in float16."""
    pytest.importorskip("gptqmodel")
    from gptqmodel.nn_modules.qlinear.torch import TorchLinear
    from gptqmodel.quantization import FORMAT, QuantizeConfig
    from gptqmodel.utils.model import (
        convert_gptq_v1_to_v2_format_module,
        convert_gptq_v2_to_v1_format_module,
    )

    size, rng = 32, np.random.default_rng(bits)
    order = np.arange(INPUTS) // size
    order = rng.permutation(order) if ordered else order
    low = 0 if form == "gptq" and bits != 3 else 1  # v1 stores 0 as a field that wraps around
    zeros = torch.tensor(rng.integers(low, 2**bits - 1, (OUTPUTS, INPUTS // size))).float()
    room = np.minimum(zeros.numpy(), 2**bits - 1 - zeros.numpy())[:, order]
    codes = zeros[:, order] + torch.tensor(np.rint(rng.uniform(-1, 1, room.shape) * room))
    scales = (2.0 ** torch.tensor(rng.integers(-8, -3, zeros.shape))).float()  # exact in float16
    weight = ((codes - zeros[:, order]) * scales[:, order]).float()
    linear = torch.nn.Linear(INPUTS, OUTPUTS, bias=False)
    linear.weight.data = weight
    sizes = {"in_features": INPUTS, "out_features": OUTPUTS, "group_size": size}
    layer = TorchLinear(bits, **sizes, sym=False, desc_act=ordered, bias=False, format=FORMAT(form))
    layer.pack(linear, scales, zeros, torch.tensor(order, dtype=torch.int32))
    if form == "gptq":
        convert_gptq_v2_to_v1_format_module(layer, QuantizeConfig(bits=bits, group_size=size))
    stored = {BASE + part: getattr(layer, part).clone() for part in ("qweight", "qzeros", "scales", "g_idx")}
    if form == "gptq":
        convert_gptq_v1_to_v2_format_module(layer, bits, torch.int32)
    layer.post_init()
    theirs = layer.dequantize_weight().T.contiguous()
    config = {
        "quant_method": "gptq",
        "bits": bits,
        "group_size": size,
        "sym": False,
        "checkpoint_format": form,
    }
    same(stored, theirs, quantization=config)
    same(stored, weight, quantization=config)


# AutoAWQ, ModelOpt, Quark


def awq_layers() -> dict[str, Any]:
    pytest.importorskip("awq")
    from awq.modules.linear.gemm import WQLinear_GEMM
    from awq.modules.linear.gemv import WQLinear_GEMV
    from awq.modules.linear.gemv_fast import WQLinear_GEMVFast

    return {"gemm": WQLinear_GEMM, "gemv": WQLinear_GEMV, "gemv_fast": WQLinear_GEMVFast}


@pytest.mark.slow
@pytest.mark.parametrize("version", ["gemm", "gemv", "gemv_fast"])
def test_awq(version: str) -> None:
    """The gemv layouts can only be packed without a GPU: what went in must come out."""
    kind, size, rng = awq_layers()[version], 64, np.random.default_rng(11)
    codes = torch.tensor(rng.integers(0, 16, (OUTPUTS, INPUTS)))
    zeros = torch.tensor(rng.integers(0, 16, (OUTPUTS, INPUTS // size))).float()
    scales = (2.0 ** torch.tensor(rng.integers(-6, 0, zeros.shape))).half().float()  # exact in float16
    weight = (codes - zeros.repeat_interleave(size, 1)) * scales.repeat_interleave(size, 1)
    layer = torch.nn.Linear(INPUTS, OUTPUTS, bias=False)
    layer.weight.data = weight.half()
    turned = (scales.T.contiguous(), zeros.T.contiguous()) if version == "gemm" else (scales, zeros)
    coded = kind.from_linear(layer, 4, size, False, *turned)
    stored = {BASE + part: value for part, value in coded.named_buffers()}
    config = {"quant_method": "awq", "bits": 4, "group_size": size, "version": version}
    same(stored, weight, quantization=config)
    if version == "gemm":
        from awq.utils.packing_utils import dequantize_gemm

        theirs = dequantize_gemm(coded.qweight, coded.qzeros, coded.scales, 4, size).T.contiguous()
        same(stored, theirs, quantization=config)


@pytest.mark.slow
def test_modelopt_nvfp4() -> None:
    pytest.importorskip("modelopt")
    from modelopt.torch.quantization.qtensor import NVFP4QTensor

    tensor, scale, second = NVFP4QTensor.quantize(matrix(12), 16)
    theirs = tensor.dequantize(dtype=torch.float32, scale=scale, double_scale=second, block_sizes={-1: 16})
    stored = {NAME: tensor._quantized_data, f"{NAME}_scale": scale, f"{NAME}_scale_2": second}
    assert "NVFP4" in same(stored, theirs, quantization={"quant_method": "modelopt"})


@pytest.mark.slow
def test_modelopt_int4() -> None:
    pytest.importorskip("modelopt")
    from modelopt.torch.export.quant_utils import pack_int4_in_uint8

    weight, size = matrix(13), 128
    scale = weight.reshape(OUTPUTS, -1, size).abs().amax(-1) / 7
    theirs = (weight / scale.repeat_interleave(size, 1)).round().clamp(-8, 7) * scale.repeat_interleave(
        size, 1
    )
    stored = {NAME: pack_int4_in_uint8(weight, scale, size), f"{NAME}_scale": scale}
    config = {"quant_method": "modelopt", "quant_algo": "W4A16_AWQ", "group_size": size}
    assert "ModelOpt" in same(stored, theirs, quantization=config)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["uint4", "int4"])
@pytest.mark.parametrize("method", ["reorder", "order"])
def test_quark(kind: str, method: str) -> None:
    pytest.importorskip("quark")
    from quark.torch.utils.pack import create_pack_method

    low, size, draw = -8 if kind == "int4" else 0, 32, np.random.default_rng(14)
    codes = torch.tensor(draw.integers(low, low + 16, (OUTPUTS, INPUTS)), dtype=torch.int32)
    zeros = torch.tensor(draw.integers(low, low + 16, (OUTPUTS, INPUTS // size)), dtype=torch.int32)
    scale = torch.tensor(draw.uniform(0.1, 1, zeros.shape), dtype=torch.float32)
    packing = create_pack_method("per_group", kind)
    packed, packed_zeros = (packing.pack(values, method == "reorder") for values in (codes, zeros))
    assert torch.equal(packing.unpack(packed, method == "reorder").int(), codes)
    theirs = (codes - zeros.repeat_interleave(size, 1)) * scale.repeat_interleave(size, 1)
    stored = {NAME: packed, f"{NAME}_zero_point": packed_zeros, f"{NAME}_scale": scale.T.contiguous()}
    weights = {"dtype": kind, "group_size": size, "symmetric": False}
    config = {
        "quant_method": "quark",
        "export": {"pack_method": method},
        "global_quant_config": {"weight": weights},
    }
    assert method in same(stored, theirs, quantization=config)


def test_the_versions_in_the_note_of_the_fixtures_are_those_of_their_files() -> None:
    """The table of `codes/README.md` names the library that each `fixture.json` names."""
    folder = Path(__file__).parent / "codes"
    table = (folder / "README.md").read_text()
    for path in folder.glob("*/fixture.json"):
        library = json.loads(path.read_text())["library"]
        assert f"| {path.parent.name} | {library} |" in table
