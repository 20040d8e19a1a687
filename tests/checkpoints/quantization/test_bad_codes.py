"""Parts that lie about themselves: one line each, and no memory by a number that was not checked."""

from __future__ import annotations

import json
import struct
import tracemalloc
from dataclasses import replace
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from checkpoints.quantization import encoders
from checkpoints.quantization.encoders import BASE, NAME, Coded, Draw
from checkpoints.quantization.fixtures import FOLDER
from checkpoints.quantization.opening import opened, refused
from checkpoints.quantization.test_encoders import ENCODERS
from checkpoints.spoiled import refusal

from attnlaw.core.errors import InputError

LITTLE = 2**22  # bytes that refusing a small file may take
FLOATS = ("float64", "float32", "float16", "bfloat16", "float8_e4m3fn")


def draw(seed: int = 0) -> Draw:
    return Draw(np.random.default_rng(seed))


def with_part(coded: Coded, name: str, part: np.ndarray) -> Coded:
    return replace(coded, tensors={**coded.tensors, name: part})


def refused_cheaply(coded: Coded, *parts: str) -> None:
    tracemalloc.start()
    try:
        refused(coded, *parts)
        assert tracemalloc.get_traced_memory()[1] < LITTLE
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("code", ENCODERS)
def test_a_part_without_numbers_is_never_read(code: str) -> None:
    coded = ENCODERS[code](draw(1))
    for name, part in coded.tensors.items():
        if part.dtype.name in FLOATS and not name.endswith(("W_q", "input_scale")) and name != NAME:
            wrong = np.full(part.shape, np.nan, np.float32).astype(part.dtype)
        elif part.dtype.name == "float8_e8m0fnu":
            wrong = np.full(part.shape, 255, np.uint8).view(part.dtype)
        else:
            continue
        weight = next(iter(coded.weights))
        try:
            ours = opened(with_part(coded, name, wrong)).read(weight)
        except InputError as error:
            message = str(error)
        else:
            message = name if np.isnan(ours).any() else ""  # `Model.read` raises an error
        assert name in message


@pytest.mark.parametrize("code", ENCODERS)
@pytest.mark.parametrize("seed", range(3))
def test_a_part_of_another_shape_never_gives_wrong_numbers(code: str, seed: int) -> None:
    """Nothing is broadcast, cut or padded. A weight of another shape does not fit to its neighbours."""
    coded = ENCODERS[code](draw(seed))
    tried = 0
    for name, part in coded.tensors.items():
        if "quant_state" in name or name.endswith("scale_2"):
            continue
        for axis in range(part.ndim):
            for other in (part.take(range(part.shape[axis] - 1), axis), np.concatenate([part, part], axis)):
                tried += 1
                try:
                    decoded = opened(with_part(coded, name, np.ascontiguousarray(other)))
                    weights = {weight: decoded.read(weight) for weight in coded.weights}
                except (InputError, KeyError):
                    continue
                same = all(weights[weight].shape == coded.weights[weight].shape for weight in weights)
                right = same and all(np.array_equal(weights[key], coded.weights[key]) for key in weights)
                assert right or not same or decides(code, name), (name, part.shape, other.shape)
    assert tried


def decides(code: str, name: str) -> bool:
    """Whether another shape of this part is another checkpoint, or padding without a meaning."""
    grouped = "ModelOpt" in code and name.endswith("weight_scale")  # its shape is the group size
    words = "old packing" in code and name.endswith("_packed")  # fewer words mean the new packing
    return grouped or words


# Two codes


def test_two_codes_that_claim_one_weight() -> None:
    first, second = encoders.gptq(draw(2)), encoders.hqq(draw(2))
    tensors = {
        **first.tensors,
        **{name: part for name, part in second.tensors.items() if "scale" not in name},
    }
    tensors[f"{BASE}scale"] = second.tensors[f"{BASE}scale"]
    refused(replace(first, tensors=tensors), NAME, "GPTQ", "HQQ", "expected one code")


def test_a_weight_that_is_stored_in_a_code_and_plain() -> None:
    coded = encoders.gptq(draw(3))
    refused(with_part(coded, NAME, coded.weights[NAME]), NAME, "GPTQ", "both store")


# bitsandbytes

STATE = f"{NAME}.quant_state.bitsandbytes__nf4"


def with_state(text: str, nested: bool = False) -> Coded:
    coded = encoders.bitsandbytes_4bit(draw(4), nested=nested)
    return with_part(coded, STATE, np.frombuffer(text.encode(), np.uint8))


def state_of(nested: bool = False) -> dict[str, Any]:
    coded = encoders.bitsandbytes_4bit(draw(4), nested=nested)
    return dict(json.loads(coded.tensors[STATE].tobytes()))


@pytest.mark.parametrize("text", ["", "{", "[]", "7", '{"shape": [4, 4]}', "[" * 3000, "\x00\xff"])
def test_a_quant_state_that_is_no_json_of_sizes(text: str) -> None:
    refused_cheaply(with_state(text), STATE)


@pytest.mark.parametrize(
    ("key", "value"),
    [("shape", value) for value in ([], [4], [10**12, 10**12], [-4, -4], [2.0, 8], "ab", None, [0, 0])]
    + [("blocksize", value) for value in (0, -64, 10**30, 1.5, "64", None, True)],
)
def test_a_quant_state_that_lies(key: str, value: Any) -> None:
    refused_cheaply(with_state(json.dumps(state_of() | {key: value})), NAME)


@pytest.mark.parametrize(
    ("key", "value"), [("nested_blocksize", 0), ("nested_blocksize", -1), ("nested_offset", "x")]
)
def test_a_nested_quant_state_that_lies(key: str, value: Any) -> None:
    refused_cheaply(with_state(json.dumps(state_of(True) | {key: value}), nested=True), NAME)


def test_a_quant_state_without_end() -> None:
    refused_cheaply(with_state(json.dumps(state_of() | {"more": "x" * 10**5})), STATE)


def test_the_order_of_a_gpu() -> None:
    coded = encoders.bitsandbytes_int8(draw(5))
    refused(with_part(coded, f"{BASE}weight_format", np.array(2, np.uint8)), "weight_format")


# Sizes


@pytest.mark.parametrize("shape", [[10**12, 10**6], [-1, 5], [0, 0], [2**62, 2**62]])
def test_shapes_that_no_codes_have(shape: list[int]) -> None:
    coded = encoders.ct_integers(draw(6))
    refused_cheaply(with_part(coded, f"{NAME}_shape", np.array(shape, np.int64)), f"{NAME}_shape")
    coded = encoders.hqq(draw(6))
    refused_cheaply(with_part(coded, f"{BASE}shape", np.array(shape, np.int64)), BASE)


@pytest.mark.parametrize(
    ("part", "value"),
    [
        ("group_size", np.array(0, np.int32)),
        ("group_size", np.array(-8, np.int32)),
        ("group_size", np.array([8, 8], np.int32)),
        ("group_size", np.array(np.nan, np.float32)),
        ("axis", np.array(7, np.int32)),
        ("nbits", np.array(3, np.int32)),
        ("nbits", np.array(np.inf, np.float32)),
        ("packing", np.frombuffer(b"5bit_u8", np.uint8)),
        ("packing", np.frombuffer(b"\xff\xfe", np.uint8)),
        ("packing", np.zeros(10**4, np.uint8)),
        ("shape", np.zeros(10**4, np.int64)),
    ],
)
def test_descriptions_of_hqq_that_lie(part: str, value: np.ndarray) -> None:
    refused_cheaply(with_part(encoders.hqq(draw(7)), BASE + part, value), BASE)


@pytest.mark.parametrize("size", [0, -32, 2**70, 1.5, "32", True, None, [32]])
@pytest.mark.parametrize("key", ["group_size", "bits"])
def test_sizes_of_mlx_that_lie(key: str, size: Any) -> None:
    coded = encoders.mlx(draw(8))
    table = {"group_size": 32, "bits": 4, key: size}
    refused_cheaply(replace(coded, values={"quantization": table}), "config.json")


@pytest.mark.parametrize("block", [[0, 0], [-4, 4], [10**30, 1], [4], "8x", [0.5, 2]])
def test_blocks_of_float8_that_lie(block: Any) -> None:
    codes = np.ones((8, 8), ml_dtypes.float8_e4m3fn)
    tensors = {NAME: codes, f"{NAME}_scale_inv": np.ones((2, 4), np.float32)}
    config = {"quant_method": "fp8", "weight_block_size": block}
    refused_cheaply(Coded(tensors, {}, config), f"{NAME}_scale_inv")


def test_codes_of_aqlm_that_no_codebook_has() -> None:
    coded = encoders.aqlm(draw(9))
    codes = coded.tensors[f"{BASE}codes"].astype(np.int16)
    codes.flat[0] = 2**14
    refused(with_part(coded, f"{BASE}codes", codes), f"{BASE}codes", "16384")


def test_codes_of_bitnet_that_are_no_weights() -> None:
    coded = encoders.bitnet(draw(10))
    refused(with_part(coded, NAME, coded.tensors[NAME] | 3), NAME, "code 3")
    refused(with_part(coded, f"{NAME}_scale", np.zeros(1, np.float32)), f"{NAME}_scale", "0")


def test_a_gguf_header_that_promises_more_tensors(tmp_path: Path) -> None:
    data = bytearray((FOLDER / "gguf-types" / "model.gguf").read_bytes())
    (count,) = struct.unpack_from("<Q", data, 8)
    for promised in (count + 1, count + 1000, 2**40, 2**64 - 1):
        struct.pack_into("<Q", data, 8, promised)
        (tmp_path / "model.gguf").write_bytes(data)
        refusal(tmp_path, "model.gguf", "not a complete GGUF file")
