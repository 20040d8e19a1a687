"""Random weights in every code, encoded by the plain encoders of `encoders.py`, decode exactly."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from unittest import mock

import numpy as np
import pytest
from checkpoints.quantization import encoders
from checkpoints.quantization.encoders import Coded, Draw
from checkpoints.quantization.opening import reads_right
from hypothesis import given, settings
from hypothesis import strategies as st

from attnlaw.checkpoints.quantization import packing

ENCODERS: dict[str, Callable[[Draw], Coded]] = {
    **{
        f"{form} {bits} bits{', act-order' if ordered else ''}": partial(
            encoders.gptq, bits=bits, form=form, ordered=ordered
        )
        for form in ("gptq", "gptq_v2", "gptq_p")
        for bits in range(2, 9)
        for ordered in (False, True)
        if ordered <= (bits in (3, 4))
    },
    "awq gemm": encoders.awq_gemm,
    "awq gemv": encoders.awq_gemv,
    "awq gemv_fast": encoders.awq_gemv_fast,
    **{f"compressed-tensors int{bits}": partial(encoders.ct_integers, bits=bits) for bits in range(2, 9)},
    **{
        f"compressed-tensors int{bits}, old packing": partial(encoders.ct_integers, bits=bits, old=True)
        for bits in (3, 5, 6, 7)
    },
    "compressed-tensors int4, stacked": partial(encoders.ct_integers, stacked=True),
    "float8": encoders.entries,
    "int8": partial(encoders.entries, kind="int8"),
    "MXFP8": encoders.mxfp8,
    "NVFP4, compressed-tensors": encoders.float4,
    "NVFP4, ModelOpt": partial(encoders.float4, writer="modelopt"),
    **{
        f"MXFP4, {writer}": partial(encoders.float4, writer=writer, size=32)
        for writer in ("compressed-tensors", "modelopt", "fp8")
    },
    "gpt-oss": encoders.gpt_oss,
    **{
        f"bitsandbytes {kind}{', double' if nested else ''}": partial(
            encoders.bitsandbytes_4bit, kind=kind, nested=nested
        )
        for kind in ("nf4", "fp4")
        for nested in (False, True)
    },
    "bitsandbytes int8": encoders.bitsandbytes_int8,
    **{f"MLX {bits} bits": partial(encoders.mlx, bits=bits) for bits in (2, 3, 4, 5, 6, 8)},
    **{
        f"MLX {mode}": partial(encoders.mlx, mode=mode, bits=8 if mode == "mxfp8" else 4)
        for mode in ("mxfp4", "nvfp4", "mxfp8")
    },
    "ModelOpt int4": encoders.modelopt_int4,
    **{
        f"torchao {kind}": partial(encoders.torchao, kind=kind)
        for kind in (
            *("IntxUnpackedToInt8Tensor", "Int8Tensor", "Float8Tensor"),
            *("Int4Tensor", "NVFP4Tensor", "MXTensor"),
        )
    },
    **{
        f"HQQ {packing}": partial(encoders.hqq, packing=packing)
        for packing in ("8bit_u8", "4bit_u8", "3bit_32", "2bit_u8", "1bit_u8")
    },
    "Quark int4": encoders.quark_int4,
    **{f"quanto {bits} bits": partial(encoders.quanto, bits=bits) for bits in (8, 4, 2)},
    "BitNet, divided": encoders.bitnet,
    "BitNet, multiplied": partial(encoders.bitnet, linear="autobitlinear"),
    "AQLM": encoders.aqlm,
}


@pytest.mark.parametrize("code", ENCODERS)
@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 2**32 - 1))
def test_an_encoded_weight_is_decoded_exactly(code: str, seed: int) -> None:
    draw = Draw(np.random.default_rng(seed))
    coded = ENCODERS[code](draw)
    few = 1024 if code.startswith("gptq") else 64  # GPTQ judges zero points by the codes of the first block
    with mock.patch.object(packing, "BLOCK", draw.choice((packing.BLOCK, few))):
        reads_right(coded)
