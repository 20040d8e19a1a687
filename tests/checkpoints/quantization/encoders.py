"""Encoders of every code, written from the published layouts: slow, plain, and independent of the decoders.

Each takes a `Draw`, chooses sizes, codes and scales with it, and returns the stored tensors, the config, and
the weights that they must decode to. A decoded entry is one product (and one difference) of float32 numbers,
so the decoders must reach it exactly.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import ml_dtypes
import numpy as np

Arrays = dict[str, np.ndarray]
E2M1, E4M3, E5M2, E8M0 = (
    getattr(ml_dtypes, name) for name in ("float4_e2m1fn", "float8_e4m3fn", "float8_e5m2", "float8_e8m0fnu")
)
NAME = "model.layers.0.self_attn.q_proj.weight"
BASE = NAME.removesuffix("weight")


class Draw:
    """Choices of sizes and of numbers."""

    def __init__(self, rng: np.random.Generator) -> None:
        self.rng = rng

    def integer(self, low: int, high: int) -> int:
        """An integer from `low` to `high`, both included."""
        return int(self.rng.integers(low, high + 1))

    def choice(self, options: Any) -> Any:
        options = list(options)
        return options[self.integer(0, len(options) - 1)]

    def codes(self, shape: tuple[int, ...], bits: int) -> np.ndarray:
        return self.rng.integers(0, 2**bits, shape).astype(np.int64)

    def scales(self, shape: tuple[int, ...]) -> np.ndarray:
        """Numbers of either sign in a type that checkpoints use."""
        dtype = self.choice((np.float32, np.float16, ml_dtypes.bfloat16))
        numbers = self.rng.uniform(0.01, 1, shape) * self.rng.choice([1, 1, 1, -1], shape)
        return np.asarray(numbers, np.float32).astype(dtype)

    def exponents(self, shape: tuple[int, ...]) -> np.ndarray:
        bytes_ = self.rng.integers(110, 140, shape).astype(np.uint8)
        return bytes_ if self.integer(0, 1) else bytes_.view(E8M0)


@dataclass
class Coded:
    """A checkpoint in a code, and the weights by name that it must decode to."""

    tensors: Arrays
    weights: Arrays
    quantization: Mapping[str, Any] | None = None
    values: Mapping[str, Any] = field(default_factory=dict)
    texts: Mapping[str, str] = field(default_factory=dict)


def f32(array: np.ndarray) -> np.ndarray:
    return np.asarray(array).astype(np.float32)


def e8m0(stored: np.ndarray) -> np.ndarray:
    return f32(stored.view(E8M0))


def stream(codes: np.ndarray, bits: int, word: Any = np.uint32) -> np.ndarray:
    """Codes one after another, bit by bit from the lowest, along the last axis."""
    digits = (codes[..., None] >> np.arange(bits)) & 1
    row = digits.reshape(*codes.shape[:-1], -1).astype(np.uint8)
    size = np.dtype(word).itemsize
    packed = np.packbits(row, axis=-1, bitorder="little")
    short = -packed.shape[-1] % size
    packed = np.concatenate([packed, np.zeros((*packed.shape[:-1], short), np.uint8)], axis=-1)
    return np.ascontiguousarray(packed).view(word)


def whole_fields(codes: np.ndarray, bits: int) -> np.ndarray:
    """As many whole codes in a 32-bit word as fit, along the last axis."""
    count = 32 // bits
    short = -codes.shape[-1] % count
    codes = np.concatenate([codes, np.zeros((*codes.shape[:-1], short), codes.dtype)], axis=-1)
    fields = codes.reshape(*codes.shape[:-1], -1, count).astype(np.uint64)
    words = np.zeros(fields.shape[:-1], np.uint64)
    for number in range(count):
        words |= fields[..., number] << np.uint64(bits * number)
    return words.astype(np.uint32)


def planes(codes: np.ndarray, bits: int) -> np.ndarray:
    """32 codes in `bits` words: the lowest bits of all, then the next, each plane a stream (gptqmodel)."""
    blocks = codes.reshape(*codes.shape[:-1], -1, 32)
    parts, low = [], 0
    for width in {2: [2], 3: [2, 1], 4: [4], 5: [4, 1], 6: [4, 2], 7: [4, 2, 1], 8: [8]}[bits]:
        parts.append(stream((blocks >> low) & (2**width - 1), width))
        low += width
    words = np.concatenate(parts, axis=-1)
    return words.reshape(*codes.shape[:-1], -1)


def nibbles(codes: np.ndarray) -> np.ndarray:
    """Two 4-bit codes a byte, low first, along the last axis."""
    return (codes[..., 0::2] | codes[..., 1::2] << 4).astype(np.uint8)


def spread(numbers: np.ndarray, size: int, count: int, axis: int = -1) -> np.ndarray:
    """Repeat the number of each group for all of its members, in float32."""
    return np.repeat(f32(numbers), size, axis=axis).take(range(count), axis=axis)


def floats4(codes: np.ndarray) -> np.ndarray:
    return f32(codes.astype(np.uint8).view(E2M1))


# ---------------------------------------------------------------------------------------------------- GPTQ


def gptq(draw: Draw, bits: int = 4, form: str = "gptq", ordered: bool = False) -> Coded:
    outputs, inputs = 32 * draw.integer(1, 3), 32 * draw.integer(1, 5)
    size = draw.choice([size for size in (8, 16, 32, inputs) if inputs % size == 0])
    groups = inputs // size
    order = np.arange(inputs) // size
    if ordered:
        order = draw.rng.permutation(order)
    low, high = (0, 2**bits - 1) if form == "gptq" and bits != 3 else (1, 2**bits - 2)
    zeros = draw.rng.integers(low, high + 1, (groups, outputs))
    # Codes on both sides of their zero points: writers choose zero points so, and the reader checks it.
    room = np.minimum(zeros, 2**bits - 1 - zeros)[order]
    codes = zeros[order] + np.rint(draw.rng.uniform(-1, 1, (inputs, outputs)) * room).astype(np.int64)
    scales = draw.scales((groups, outputs))
    layout = planes if form == "gptq_p" or bits in (5, 6, 7) else stream
    stored_zeros = layout(zeros, bits)
    if form == "gptq" and layout is stream and bits != 3:
        unit = sum(1 << (bits * field) for field in range(32 // bits))
        stored_zeros = ((stored_zeros.astype(np.int64) - unit) % 2**32).astype(np.uint32)
    elif form == "gptq":
        stored_zeros = layout((zeros - 1) % 2**bits, bits)
    tensors = {
        f"{BASE}qweight": layout(codes.T, bits).T.view(np.int32),
        f"{BASE}qzeros": stored_zeros.view(np.int32),
        f"{BASE}scales": scales,
    }
    if ordered or draw.integer(0, 1):
        tensors[f"{BASE}g_idx"] = order.astype(np.int32)
    weight = (codes - zeros[order]).astype(np.float32) * f32(scales)[order]
    config = {
        "quant_method": "gptq",
        "bits": bits,
        "group_size": size,
        "checkpoint_format": form,
        "sym": False,
    }
    return Coded(tensors, {NAME: weight.T}, config | {"desc_act": ordered})


# ----------------------------------------------------------------------------------------------------- AWQ


def awq_gemm(draw: Draw) -> Coded:
    outputs, size, groups = 8 * draw.integer(1, 9), draw.choice((8, 32, 128)), draw.integer(1, 4)
    inputs = size * groups
    codes, zeros = draw.codes((inputs, outputs), 4), draw.codes((groups, outputs), 4)
    scales = draw.scales((groups, outputs))
    place = np.argsort([0, 4, 1, 5, 2, 6, 3, 7])  # nibble -> column of the eight

    def pack(values: np.ndarray) -> np.ndarray:
        return stream(values.reshape(len(values), -1, 8)[..., place].reshape(values.shape), 4).view(np.int32)

    weight = (codes - np.repeat(zeros, size, 0)).astype(np.float32) * spread(scales, size, inputs, 0)
    tensors = {f"{BASE}qweight": pack(codes), f"{BASE}qzeros": pack(zeros), f"{BASE}scales": scales}
    config = {"quant_method": "awq", "bits": 4, "group_size": size, "version": "gemm"}
    return Coded(tensors, {NAME: weight.T}, config)


def awq_gemv(draw: Draw) -> Coded:
    outputs, size, groups = draw.integer(2, 20), draw.choice((32, 64, 128)), draw.integer(1, 9)
    inputs, padded = size * groups, 8 * -(-groups // 8)
    codes, zeros = draw.codes((outputs, inputs), 4), draw.codes((outputs, groups), 4)
    scales = np.zeros((outputs, padded), np.float16)
    scales[:, :groups] = draw.scales((outputs, groups)).astype(np.float16)
    full = np.zeros((outputs, padded), np.int64)
    full[:, :groups] = zeros
    weight = (codes - np.repeat(zeros, size, 1)).astype(np.float32) * spread(scales[:, :groups], size, inputs)
    tensors = {
        f"{BASE}qweight": stream(codes, 4).view(np.int32),
        f"{BASE}qzeros": stream(full, 4).view(np.int32),
        f"{BASE}scales": scales,
    }
    config = {"quant_method": "awq", "bits": 4, "group_size": size, "version": "gemv"}
    return Coded(tensors, {NAME: weight}, config)


def awq_gemv_fast(draw: Draw) -> Coded:
    outputs, size, groups = 4 * draw.integer(1, 6), draw.choice((64, 128)), draw.integer(1, 9)
    inputs, padded = size * groups, 8 * -(-groups // 8)
    codes = draw.codes((outputs, inputs), 4)
    scales, offsets = np.zeros((2, padded, outputs), np.float16)
    scales[:groups] = draw.scales((groups, outputs)).astype(np.float16)
    offsets[:groups] = draw.scales((groups, outputs)).astype(np.float16)
    # AutoAWQ's pack_intweight, with interleave 4 and stride 64.
    packed = codes.reshape(outputs, inputs // 32, 32)
    packed = packed.reshape(outputs, inputs // 32, 4, 4, 2).transpose(0, 1, 3, 2, 4)
    packed = packed.reshape(outputs, inputs // 32, 32)
    packed = packed.reshape(outputs, inputs // 32, 4, 8)
    packed = packed.reshape(outputs, inputs // 32, 4, 4, 2).transpose(0, 1, 2, 4, 3)
    packed = packed.reshape(outputs, inputs)
    packed = packed.reshape(outputs // 4, 4, inputs // 64, 64).transpose(0, 2, 1, 3)
    packed = packed.reshape(outputs // 4, inputs // 64, 64, 4)
    words = sum(packed[..., number] << 4 * number for number in range(4))
    words = np.asarray(words).astype(np.uint16).view(np.int16).reshape(outputs // 4, inputs)
    weight = codes.astype(np.float32) * spread(scales[:groups], size, inputs, 0).T
    weight = weight + spread(offsets[:groups], size, inputs, 0).T
    tensors = {f"{BASE}qweight": words, f"{BASE}qzeros": offsets, f"{BASE}scales": scales}
    config = {"quant_method": "awq", "bits": 4, "group_size": size, "version": "gemv_fast"}
    return Coded(tensors, {NAME: weight}, config)


# -------------------------------------------------------------------------------------- compressed-tensors


def scheme(**weights: Any) -> dict[str, Any]:
    version = weights.pop("version", "0.20.0")
    groups = {"group_0": {"targets": ["Linear"], "weights": weights}}
    return {"quant_method": "compressed-tensors", "config_groups": groups, "version": version}


def ct_integers(draw: Draw, bits: int = 4, old: bool = False, stacked: bool = False) -> Coded:
    stack = (draw.integer(2, 3),) if stacked else ()
    outputs, size = draw.integer(2, 40), draw.choice((4, 16, 32))
    inputs = size * draw.integer(1, 12)
    if old:  # the numbers of words must differ
        inputs = size * -(-draw.integer(161, 400) // size)
    groups = inputs // size
    kind = draw.choice(("none", "int8") if old else ("none", "int8", "int32"))
    ordered = not stacked and bool(draw.integer(0, 1))
    order = np.arange(inputs) // size
    if ordered:
        order = draw.rng.permutation(order)
    half = 2 ** (bits - 1)
    codes = draw.codes((*stack, outputs, inputs), bits)
    zeros = (
        draw.codes((*stack, outputs, groups), bits)
        if kind != "none"
        else np.full((*stack, outputs, groups), half)
    )
    scales = draw.scales((*stack, outputs, groups))
    pack = whole_fields if old else stream
    tensors = {
        f"{NAME}_packed": pack(codes, bits).view(np.int32),
        f"{NAME}_scale": scales,
        f"{NAME}_shape": np.array([*stack, outputs, inputs], np.int64),
    }
    if kind == "int8":
        tensors[f"{NAME}_zero_point"] = (zeros - half).astype(np.int8)
    elif kind == "int32":
        down = np.swapaxes(stream(np.swapaxes(zeros, -1, -2), bits), -1, -2)
        tensors[f"{NAME}_zero_point"] = np.ascontiguousarray(down).view(np.int32)
    if ordered:
        tensors[f"{NAME}_g_idx"] = order.astype(np.int32)
    weight = (codes - zeros[..., order]).astype(np.float32) * f32(scales)[..., order]
    config = scheme(
        num_bits=bits,
        type="int",
        group_size=size,
        strategy="group",
        symmetric=kind == "none",
        actorder="group" if ordered else None,
        version="0.9.1" if old else "0.20.0",
    )
    return Coded(tensors, {NAME: weight}, config)


# ------------------------------------------------------------------------------------------ one code an entry


def entries(draw: Draw, kind: str = "float8") -> Coded:
    outputs, inputs = draw.integer(2, 40), draw.integer(3, 40)
    stored = draw.choice((E4M3, E5M2)) if kind == "float8" else np.int8
    codes = draw.rng.standard_normal((outputs, inputs)).astype(np.float32)
    codes = (
        codes.astype(stored)
        if kind == "float8"
        else draw.rng.integers(-128, 128, codes.shape).astype(np.int8)
    )
    name = draw.choice(("{n}_scale", "{n}_scale_inv", "{b}scale", "{b}qscale_weight", "{b}scale_weight"))
    block = draw.choice((2, 4, 8)), draw.choice((2, 4, 8))
    grid = -(-outputs // block[0]), -(-inputs // block[1])
    shapes = [(), (1,), (outputs,), (outputs, 1), (1, inputs), grid]
    ambiguous = grid in {(outputs, 1), (1, inputs), (1, 1)}
    shape = draw.choice(shapes[:-1] if ambiguous else shapes)
    scales = draw.scales(shape) if shape else draw.scales((1,)).reshape(())
    if shape == grid and not ambiguous:
        factor = np.repeat(np.repeat(f32(scales), block[0], 0), block[1], 1)[:outputs, :inputs]
    else:
        factor = f32(scales).reshape((-1, 1) if shape in ((outputs,), (1,)) else shape)
    tensors = {NAME: codes, name.format(n=NAME, b=BASE): scales}
    config = {"quant_method": "fp8", "weight_block_size": list(block)}
    return Coded(tensors, {NAME: f32(codes) * factor}, config)


def mxfp8(draw: Draw) -> Coded:
    outputs, groups = draw.integer(2, 20), draw.integer(1, 6)
    inputs = 32 * groups
    codes = draw.rng.standard_normal((outputs, inputs)).astype(np.float32).astype(E4M3)
    scales = draw.exponents((outputs, groups))
    weight = f32(codes) * spread(e8m0(scales), 32, inputs)
    config = scheme(num_bits=8, type="float", group_size=32, strategy="group", symmetric=True)
    return Coded({NAME: codes, f"{NAME}_scale": scales}, {NAME: weight}, config)


# -------------------------------------------------------------------------------------------- 4-bit floats


def float4(draw: Draw, writer: str = "compressed-tensors", size: int = 16) -> Coded:
    stack = (draw.integer(2, 3),) if draw.integer(0, 1) else ()
    outputs, groups = draw.integer(3, 20), draw.integer(1, 5)
    codes = draw.codes((*stack, outputs, size * groups), 4)
    bytes_, values = nibbles(codes), floats4(codes)
    shape = (*stack, outputs, groups)
    quantization: dict[str, Any] = {"quant_method": writer}
    if size == 32:
        scales = draw.exponents(shape)
        factor = e8m0(scales)
        names = {
            "compressed-tensors": ("_packed", "_scale"),
            "modelopt": ("", "_scale"),
            "fp8": ("", ".scale"),
        }
        packed, scale = names[writer]
        scale_name = f"{BASE}scale" if scale == ".scale" else f"{NAME}{scale}"
        tensors = {f"{NAME}{packed}": bytes_.view(np.int8) if writer == "fp8" else bytes_, scale_name: scales}
    else:
        scales = draw.rng.uniform(0.5, 400, shape).astype(np.float32).astype(E4M3)
        whole = draw.rng.uniform(1, 900, (*stack, 1)).astype(np.float32)
        divides = writer == "compressed-tensors"
        if not divides:
            whole = (1 / whole).astype(np.float32).reshape(stack)
        each = whole.reshape((*stack, 1, 1))
        factor = f32(scales) / each if divides else f32(scales) * each
        names16 = ("_packed", "_global_scale") if divides else ("", "_scale_2")
        tensors = {f"{NAME}{names16[0]}": bytes_, f"{NAME}_scale": scales, f"{NAME}{names16[1]}": whole}
    weight = values * np.repeat(factor, size, -1)
    return Coded(tensors, {NAME: weight}, quantization)


def gpt_oss(draw: Draw) -> Coded:
    name = "model.layers.0.mlp.experts.down_proj"
    experts, outputs, groups = draw.integer(1, 4), draw.integer(2, 9), draw.integer(1, 4)
    codes = draw.codes((experts, outputs, groups, 32), 4)
    scales = draw.rng.integers(110, 140, (experts, outputs, groups)).astype(np.uint8)
    weight = (floats4(codes) * e8m0(scales)[..., None]).reshape(experts, outputs, 32 * groups).swapaxes(1, 2)
    tensors = {f"{name}_blocks": nibbles(codes), f"{name}_scales": scales}
    return Coded(tensors, {name: weight}, {"quant_method": "mxfp4"})


# -------------------------------------------------------------------------------------------- bitsandbytes


def bitsandbytes_4bit(draw: Draw, kind: str = "nf4", nested: bool = False) -> Coded:
    outputs, inputs, size = 2 * draw.integer(1, 20), draw.integer(3, 60), draw.choice((64, 128, 256))
    total = outputs * inputs
    codes, blocks = draw.codes((total,), 4), -(-total // size)
    table = np.sort(draw.rng.uniform(-1, 1, 16)).astype(np.float32)
    state: dict[str, Any] = {
        "quant_type": kind,
        "blocksize": size,
        "dtype": "bfloat16",
        "shape": [outputs, inputs],
    }
    bytes_ = (codes[0::2] << 4 | codes[1::2]).astype(np.uint8)
    tensors: Arrays = {f"{NAME}.quant_map": table}
    if nested:
        small = 256
        absmax = draw.rng.integers(0, 256, blocks).astype(np.uint8)
        outer = draw.rng.uniform(0.1, 1, -(-blocks // small)).astype(np.float32)
        nested_table = draw.rng.uniform(-1, 1, 256).astype(np.float32)
        offset = float(np.float32(draw.rng.uniform(0.1, 1)))
        state |= {"nested_blocksize": small, "nested_offset": offset, "nested_dtype": "float32"}
        factor = nested_table[absmax] * np.repeat(outer, small)[:blocks] + np.float32(offset)
        tensors |= {f"{NAME}.nested_absmax": outer, f"{NAME}.nested_quant_map": nested_table}
    else:
        absmax = factor = draw.rng.uniform(0.1, 1, blocks).astype(np.float32)
    storage = draw.choice(("uint8", "bfloat16", "float32"))
    view = {"uint8": np.uint8, "bfloat16": ml_dtypes.bfloat16, "float32": np.float32}[storage]
    if len(bytes_) % np.dtype(view).itemsize:
        view = np.uint8
    tensors[NAME] = bytes_.view(view).reshape(-1, 1)
    tensors[f"{NAME}.absmax"] = absmax
    text = np.frombuffer(json.dumps(state).encode(), np.uint8)
    tensors[f"{NAME}.quant_state.bitsandbytes__{kind}"] = text
    weight = (table[codes] * np.repeat(factor, size)[:total]).reshape(outputs, inputs)
    return Coded(tensors, {NAME: weight}, {"quant_method": "bitsandbytes", "load_in_4bit": True})


def bitsandbytes_int8(draw: Draw) -> Coded:
    codes = draw.rng.integers(-127, 128, (draw.integer(2, 30), draw.integer(2, 30))).astype(np.int8)
    largest = draw.rng.uniform(0.1, 9, len(codes)).astype(np.float32)
    weight = f32(codes) * largest[:, None] * np.float32(1 / 127)
    tensors = {NAME: codes, f"{BASE}SCB": largest, f"{BASE}weight_format": np.array(0, np.uint8)}
    return Coded(tensors, {NAME: weight}, {"quant_method": "bitsandbytes", "load_in_8bit": True})


# ----------------------------------------------------------------------------------------------------- MLX


def mlx(draw: Draw, mode: str = "affine", bits: int = 4) -> Coded:
    stack = (draw.integer(2, 3),) if draw.integer(0, 1) else ()
    size = draw.choice((32, 64, 128)) if mode == "affine" else 16 if mode == "nvfp4" else 32
    outputs, groups = draw.integer(2, 12), draw.integer(1, 5)
    shape, inputs = (*stack, outputs, groups), size * groups
    codes = draw.codes((*stack, outputs, inputs), bits)
    tensors: Arrays = {NAME: stream(codes, bits)}
    if mode == "affine":
        tensors |= {f"{BASE}scales": draw.scales(shape), f"{BASE}biases": draw.scales(shape)}
        weight = f32(codes) * spread(tensors[f"{BASE}scales"], size, inputs)
        weight = weight + spread(tensors[f"{BASE}biases"], size, inputs)
    else:
        scales = draw.rng.integers(110, 120 if mode == "nvfp4" else 140, shape).astype(np.uint8)
        tensors[f"{BASE}scales"] = scales
        factor = f32(scales.view(E4M3)) if mode == "nvfp4" else e8m0(scales)
        codes &= 0x77 if mode == "mxfp8" else 15  # 127 and 255 are no numbers
        tensors[NAME] = stream(codes, bits)
        values = f32(codes.astype(np.uint8).view(E4M3)) if mode == "mxfp8" else floats4(codes)
        weight = values * spread(factor, size, inputs)
    table: dict[str, Any] = {"group_size": size, "bits": bits, "mode": mode}
    if draw.integer(0, 1):  # this module differs from the others, and may leave out what MLX assumes
        own_values = dict(table)
        defaults = {"affine": (64, 4), "mxfp4": (32, 4), "nvfp4": (16, 4), "mxfp8": (32, 8)}[mode]
        if mode == "affine":
            own_values.pop("mode")
        if (size, bits) == defaults:
            own_values = {"mode": mode}
        table = {"group_size": 32, "bits": 2 if bits != 2 else 3, "mode": "affine", BASE[:-1]: own_values}
    return Coded(tensors, {NAME: weight}, None, {"quantization": table})


# ------------------------------------------------------------------------------------------------ ModelOpt


def modelopt_int4(draw: Draw) -> Coded:
    outputs, size = 2 * draw.integer(1, 20), draw.choice((16, 128))
    inputs = size * draw.integer(1, 4)
    codes = draw.rng.integers(-8, 8, (outputs, inputs))
    scales = draw.scales((outputs, inputs // size))
    bytes_ = ((codes[0::2] & 15) | (codes[1::2] & 15) << 4).astype(np.uint8)
    weight = f32(codes) * spread(scales, size, inputs)
    tensors = {NAME: bytes_, f"{NAME}_scale": scales}
    if draw.integer(0, 1):
        tensors[f"{BASE}pre_quant_scale"] = draw.scales((inputs,))
        weight = weight * f32(tensors[f"{BASE}pre_quant_scale"])
    config = {"quant_method": "modelopt", "quant_algo": "W4A16_AWQ", "group_size": size}
    return Coded(tensors, {NAME: weight}, config)


# ------------------------------------------------------------------------------------------------- torchao


def torchao(draw: Draw, kind: str = "IntxUnpackedToInt8Tensor") -> Coded:
    start = f"{BASE}_weight_"
    outputs, groups = 4 * draw.integer(1, 40), draw.integer(1, 9)
    data: dict[str, Any] = {}
    if kind in ("IntxUnpackedToInt8Tensor", "Int8Tensor", "Float8Tensor"):
        size = draw.choice((8, 32))
        inputs = size * groups
        block = draw.choice(((1, size), (1, inputs), (outputs, inputs), (4, size)))
        shape = outputs // block[0], inputs // block[1]
        data = {"block_size": list(block), "target_dtype": {"_type": "torch.dtype", "_data": "int4"}}
        if kind == "Float8Tensor":
            codes = draw.rng.standard_normal((outputs, inputs)).astype(np.float32).astype(E4M3)
        else:
            codes = draw.rng.integers(-8, 8, (outputs, inputs)).astype(np.int8)
        parts = {"qdata": codes, "scale": draw.scales(shape)}
        weight = f32(codes)
        if kind != "Float8Tensor":
            parts["zero_point"] = draw.rng.integers(-8, 8, shape).astype(np.int8)
            weight = weight - np.kron(f32(parts["zero_point"]), np.ones(block, np.float32))
        weight = weight * np.kron(f32(parts["scale"]), np.ones(block, np.float32))
    elif kind == "Int4Tensor":
        size = draw.choice((32, 64))
        inputs = size * groups
        codes = draw.rng.integers(-8, 8, (outputs, inputs))
        data = {"block_size": [1, size], "shape": [outputs, inputs]}
        parts = {
            "qdata": nibbles(codes & 15).view(np.int8),
            "scale": draw.scales((groups, outputs)),
            "zero_point": draw.scales((groups, outputs)),
        }
        weight = f32(codes) * spread(parts["scale"], size, inputs, 0).T
        weight = weight + spread(parts["zero_point"], size, inputs, 0).T
        if draw.integer(0, 1):
            parts["act_pre_scale"] = draw.scales((inputs,))
            weight = weight * f32(parts["act_pre_scale"])
    else:
        size = 16 if kind == "NVFP4Tensor" else 32
        shape = (*((draw.integer(2, 3),) if draw.integer(0, 1) else ()), outputs, size * groups)
        element = draw.choice(("float8_e4m3fn", "float4_e2m1fn_x2")) if kind == "MXTensor" else ""
        data = {"block_size": size, "elem_dtype": {"_type": "torch.dtype", "_data": element}}
        if element == "float8_e4m3fn":
            codes = draw.rng.standard_normal(shape).astype(np.float32).astype(E4M3)
            parts, values = {"qdata": codes}, f32(codes)
        else:
            codes = draw.codes(shape, 4)
            parts, values = {"qdata": nibbles(codes)}, floats4(codes)
        grid = (*shape[:-1], groups)
        if kind == "NVFP4Tensor":
            scales = draw.rng.uniform(0.5, 400, grid).astype(np.float32).astype(E4M3)
            factor = f32(scales)
            if draw.integer(0, 1):
                parts["per_tensor_scale"] = np.array(draw.rng.uniform(1e-4, 1), np.float32)
                factor = factor * parts["per_tensor_scale"]
        else:
            scales = draw.rng.integers(110, 140, grid).astype(np.uint8).view(E8M0)
            factor = f32(scales)
        data["is_swizzled_scales"] = bool(draw.integer(0, 1))
        parts["scale"] = swizzled(scales.reshape(-1, groups)) if data["is_swizzled_scales"] else scales
        weight = values * spread(factor, size, size * groups)
    text = json.dumps({"_type": kind, "_data": data, "_tensor_data_names": sorted(parts)})
    texts = {NAME: text, "tensor_names": json.dumps([NAME]), "format": "pt"}
    tensors = {start + part: value for part, value in parts.items()}
    return Coded(tensors, {NAME: weight}, {"quant_method": "torchao"}, texts=texts)


def swizzled(scales: np.ndarray) -> np.ndarray:
    """torchao's to_blocked: tiles of 128 x 4, each as 32 x 16, shaped (32 R, 16 C)."""
    rows, columns = -(-scales.shape[0] // 128), -(-scales.shape[1] // 4)
    padded = np.zeros((128 * rows, 4 * columns), np.uint8)
    padded[: scales.shape[0], : scales.shape[1]] = scales.view(np.uint8)
    out = np.zeros(padded.size, np.uint8)
    for row in range(128 * rows):
        for column in range(4 * columns):
            tile = (row // 128) * columns + column // 4
            place = (row % 32) * 16 + (row % 128) // 32 * 4 + column % 4
            out[512 * tile + place] = padded[row, column]
    return out.reshape(32 * rows, 16 * columns).view(scales.dtype)


# ----------------------------------------------------------------------------------------------------- HQQ


def hqq(draw: Draw, packing: str = "4bit_u8") -> Coded:
    bits, count, word = {
        "8bit_u8": (8, 1, np.uint8),
        "4bit_u8": (4, 2, np.uint8),
        "3bit_32": (3, 10, np.int32),
        "2bit_u8": (2, 4, np.uint8),
        "1bit_u8": (1, 8, np.uint8),
    }[packing]
    axis, size = draw.integer(0, 1), 8 * draw.integer(1, 6)
    outputs, inputs = 8 * draw.integer(1, 5), size * draw.integer(1, 4)
    groups = outputs * inputs // size
    shape = (groups, size) if axis else (size, groups)
    codes = draw.codes(shape, bits)
    scale, zero = (draw.scales((groups, 1) if axis else (1, groups)) for _ in range(2))
    rows = -(-shape[0] // count)
    padded = np.zeros((rows * count, shape[1]), np.int64)
    padded[: shape[0]] = codes
    words = np.zeros((rows, shape[1]), np.int64)
    for number in range(count):  # the first rows in the highest bits
        words |= padded[number * rows : (number + 1) * rows] << bits * (count - 1 - number)
    stored = words.astype(word)
    floats = bool(draw.integer(0, 1)) and shape[1] * np.dtype(word).itemsize % 2 == 0
    if floats:
        stored = stored.view(np.float16)
    weight = ((f32(codes) - f32(zero)) * f32(scale)).reshape(outputs, inputs)
    nbits = draw.choice({"8bit_u8": (8, 6, 5), "2bit_u8": (2, 1.58)}.get(packing, (bits,)))
    tensors = {
        f"{BASE}W_q": stored,
        f"{BASE}scale": scale,
        f"{BASE}zero": zero,
        f"{BASE}shape": np.array([outputs, inputs], np.int64),
        f"{BASE}axis": np.array(axis, np.int32),
        f"{BASE}group_size": np.array(size, np.int32),
        f"{BASE}nbits": np.array(nbits, np.float32 if nbits == 1.58 else np.int32),
        f"{BASE}packing": np.frombuffer(packing.encode(), np.uint8),
        f"{BASE}view_as_float": np.array(floats, np.uint8),
    }
    return Coded(tensors, {NAME: weight}, {"quant_method": "hqq"})


# --------------------------------------------------------------------------------------------------- Quark


def quark_int4(draw: Draw) -> Coded:
    outputs, size, groups = 8 * draw.integer(1, 9), draw.choice((8, 32)), draw.integer(1, 4)
    inputs = size * groups
    kind, method = draw.choice(("uint4", "int4")), draw.choice(("reorder", "order"))
    low = -8 if kind == "int4" else 0
    codes, zeros = (draw.rng.integers(low, low + 16, (rows, outputs)) for rows in (inputs, groups))
    scales = draw.scales((groups, outputs))
    place = np.argsort([0, 4, 1, 5, 2, 6, 3, 7]) if method == "reorder" else np.arange(8)

    def pack(values: np.ndarray) -> np.ndarray:
        shuffled = (values & 15).reshape(len(values), -1, 8)[..., place].reshape(values.shape)
        return stream(shuffled, 4).view(np.int32)

    weight = (codes - np.repeat(zeros, size, 0)).astype(np.float32) * spread(scales, size, inputs, 0)
    tensors = {NAME: pack(codes), f"{NAME}_scale": scales, f"{NAME}_zero_point": pack(zeros)}
    spec = {"dtype": kind, "group_size": size, "symmetric": False}
    config = {
        "quant_method": "quark",
        "export": {"pack_method": method},
        "global_quant_config": {"weight": [spec] if draw.integer(0, 1) else spec},
        "layer_quant_config": {"*k_proj": {"weight": {"dtype": "fp4"}}},
    }
    return Coded(tensors, {NAME: weight.T}, config)


# -------------------------------------------------------------------------------------------------- quanto


def quanto(draw: Draw, bits: int = 4) -> Coded:
    hidden, heads, head = 32 * draw.integer(1, 4), draw.integer(1, 4), 16
    outputs, inputs = heads * head, hidden
    sizes: dict[str, Any] = {
        "hidden_size": hidden,
        "num_attention_heads": heads,
        "head_dim": head,
        "num_key_value_heads": 1,
    }
    if bits == 8:
        codes: np.ndarray = draw.rng.integers(-128, 128, (outputs, inputs)).astype(np.int8)
        if draw.integer(0, 1):
            codes = draw.rng.standard_normal(codes.shape).astype(np.float32).astype(E4M3)
        scale = draw.scales(draw.choice(((outputs, 1), (1,))))
        weight = f32(codes) * f32(scale).reshape(-1, 1)
        return Coded({f"{NAME}._data": codes, f"{NAME}._scale": scale}, {NAME: weight}, None, sizes)
    size = draw.choice([size for size in (16, 32, inputs) if inputs % size == 0])
    rows = outputs * inputs // size
    codes = draw.codes((rows, size), bits)
    scale, shift = draw.scales((rows, 1)), draw.scales((rows, 1))
    weight = f32(codes) * f32(scale)
    if draw.integer(0, 1):
        shift = draw.rng.integers(0, 2**bits, (rows, 1)).astype(np.int8)
        weight = (f32(codes) - f32(shift)) * f32(scale)
    else:
        weight = weight - f32(shift)
    sizes["quanto_qmap"] = {BASE[:-1]: {"weights": f"qint{bits}", "activations": "none"}}
    count = 8 // bits
    packed_rows = rows // count
    words = np.zeros((packed_rows, size), np.int64)
    for number in range(count):  # the first rows in the lowest bits
        words |= codes[number * packed_rows : (number + 1) * packed_rows] << bits * number
    tensors = {
        f"{NAME}._data._data": words.astype(np.uint8),
        f"{NAME}._scale": scale,
        f"{NAME}._shift": shift,
        f"{BASE}input_scale": np.ones((), np.float32),
    }
    return Coded(tensors, {NAME: weight.reshape(outputs, inputs)}, None, sizes)


# --------------------------------------------------------------------------------------- BitNet and AQLM


def bitnet(draw: Draw, linear: str = "bitlinear") -> Coded:
    quarter, inputs = draw.integer(1, 9), draw.integer(2, 40)
    ternary = draw.rng.integers(-1, 2, (4 * quarter, inputs))
    scale = draw.scales((1,))
    bytes_ = np.zeros((quarter, inputs), np.int64)
    for number in range(4):
        bytes_ |= (ternary[number * quarter : (number + 1) * quarter] + 1) << 2 * number
    factor = f32(scale)[0]
    weight = f32(ternary) / factor if linear == "bitlinear" else f32(ternary) * factor
    config = {"quant_method": "bitnet", "linear_class": linear}
    return Coded({NAME: bytes_.astype(np.uint8), f"{NAME}_scale": scale}, {NAME: weight}, config)


def aqlm(draw: Draw) -> Coded:
    books, bits, height, width = draw.integer(1, 2), draw.choice((4, 8, 9)), draw.integer(1, 2), 8
    tiles, groups = draw.integer(1, 9), draw.integer(1, 5)
    codes = draw.codes((tiles, groups, books), bits)
    vectors = draw.rng.standard_normal((books, 2**bits, height, width)).astype(np.float16)
    scales = draw.scales((tiles, 1, 1, 1))
    weight = np.zeros((tiles * height, groups * width), np.float32)
    for tile in range(tiles):
        for group in range(groups):
            total = sum(f32(vectors[book, codes[tile, group, book]]) for book in range(books))
            rows = slice(tile * height, (tile + 1) * height)
            weight[rows, group * width : (group + 1) * width] = total * f32(scales)[tile, 0, 0]
    signed = np.where(codes >= 2 ** (bits - 1), codes - 2**bits, codes)
    tensors = {
        f"{BASE}codes": signed.astype(np.int8 if bits <= 8 else np.int16),
        f"{BASE}codebooks": vectors,
        f"{BASE}scales": scales,
    }
    config = {
        "quant_method": "aqlm",
        "num_codebooks": books,
        "nbits_per_codebook": bits,
        "out_group_size": height,
        "in_group_size": width,
    }
    return Coded(tensors, {NAME: weight}, config)
