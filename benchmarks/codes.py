"""Decode quantised matrices of 4096 x 4096 on one thread, in million weights per CPU second.

    python benchmarks/codes.py [CODE ...]     (default: all)

The parts have random bits, which take as long as real ones. The claim is a ratio to a float32 copy of the
same size in the same run, so that it means the same on every machine. Exits with status 1 if a claim does
not hold.
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
from claims import Claims

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))
from checkpoints.decode_memory import CONFIGS, measure

from attnlaw.checkpoints.config import Config
from attnlaw.checkpoints.quantization import decoded
from attnlaw.checkpoints.tensors import InMemoryTensors

SIZE, GROUP = 4096, 128
GROUPS = SIZE // GROUP
NAME = "layer.weight"
REPEATS = 5
MOST_MEGABYTES = 16.0
MOST_COPIES = 30.0  # of float32 that may be made in the time of decoding, for the slowest code
Case = tuple[dict[str, np.ndarray], dict[str, Any]]
RNG = np.random.default_rng(0)


def words(*shape: int, dtype: Any = np.int32) -> np.ndarray:
    information = np.iinfo(dtype)
    return RNG.integers(information.min, information.max, shape, dtype, endpoint=True)


def numbers(*shape: int, dtype: Any = np.float16) -> np.ndarray:
    return RNG.uniform(0.01, 0.1, shape).astype(dtype)


def float8(*shape: int) -> np.ndarray:
    return RNG.integers(0, 120, shape, np.uint8).view(ml_dtypes.float8_e4m3fn)


def powers(*shape: int) -> np.ndarray:
    return RNG.integers(110, 130, shape, np.uint8)


def quantization(method: str, **values: Any) -> dict[str, Any]:
    return {"quantization_config": {"quant_method": method, **values}}


def gptq(bits: int, ordered: bool = False) -> Case:
    tensors = {
        "layer.qweight": words(SIZE * bits // 32, SIZE),
        "layer.qzeros": np.zeros((GROUPS, SIZE * bits // 32), np.uint32),
        "layer.scales": numbers(GROUPS, SIZE),
    }
    middle = sum(
        (2 ** (bits - 1) - 1) << (bits * field) for field in range(32)
    )  # of a stream of 32 bits each
    data = np.frombuffer(middle.to_bytes(4 * bits, "little"), np.uint32)
    tensors["layer.qzeros"] = np.tile(data, (GROUPS, SIZE // 32)).view(np.int32)
    if ordered:
        tensors["layer.g_idx"] = RNG.permutation(np.repeat(np.arange(GROUPS), GROUP)).astype(np.int32)
    return tensors, quantization("gptq", bits=bits, group_size=GROUP, sym=True)


def awq() -> Case:
    tensors = {
        "qweight": words(SIZE, SIZE // 8),
        "qzeros": words(GROUPS, SIZE // 8),
        "scales": numbers(GROUPS, SIZE),
    }
    return {f"layer.{name}": part for name, part in tensors.items()}, quantization("awq", group_size=GROUP)


def packed(bits: int) -> Case:
    tensors = {
        f"{NAME}_packed": words(SIZE, SIZE * bits // 32),
        f"{NAME}_scale": numbers(SIZE, GROUPS, dtype=ml_dtypes.bfloat16),
        f"{NAME}_shape": np.array([SIZE, SIZE]),
    }
    weights = {"num_bits": bits, "type": "int", "symmetric": True, "group_size": GROUP, "strategy": "group"}
    groups = {"group_0": {"weights": weights}}
    return tensors, quantization("compressed-tensors", config_groups=groups, version="0.20.0")


def nf4() -> Case:
    state = f'{{"quant_type": "nf4", "blocksize": 64, "shape": [{SIZE}, {SIZE}]}}'
    tensors = {
        NAME: words(SIZE * SIZE // 2, 1, dtype=np.uint8),
        f"{NAME}.absmax": numbers(SIZE * SIZE // 64, dtype=np.float32),
        f"{NAME}.quant_map": np.sort(RNG.uniform(-1, 1, 16)).astype(np.float32),
        f"{NAME}.quant_state.bitsandbytes__nf4": np.frombuffer(state.encode(), np.uint8),
    }
    return tensors, quantization("bitsandbytes")


def int8() -> Case:
    return {NAME: words(SIZE, SIZE, dtype=np.int8), "layer.SCB": numbers(SIZE)}, quantization("bitsandbytes")


def nvfp4() -> Case:
    tensors = {
        f"{NAME}_packed": words(SIZE, SIZE // 2, dtype=np.uint8),
        f"{NAME}_scale": float8(SIZE, SIZE // 16),
        f"{NAME}_global_scale": np.array([100.0], np.float32),
    }
    return tensors, quantization("compressed-tensors")


def mxfp4() -> Case:
    tensors = {NAME: words(SIZE, SIZE // 2, dtype=np.uint8), f"{NAME}_scale": powers(SIZE, SIZE // 32)}
    return tensors, quantization("quark")


def blocks() -> Case:
    scale = numbers(SIZE // 128, SIZE // 128, dtype=np.float32)
    return {NAME: float8(SIZE, SIZE), f"{NAME}_scale_inv": scale}, quantization("fp8")


def mlx(bits: int) -> Case:
    tensors = {
        NAME: words(SIZE, SIZE * bits // 32, dtype=np.uint32),
        "layer.scales": numbers(SIZE, SIZE // 64),
        "layer.biases": numbers(SIZE, SIZE // 64),
    }
    return tensors, {"quantization": {"bits": bits, "group_size": 64}}


def modelopt() -> Case:
    tensors = {NAME: words(SIZE // 2, SIZE, dtype=np.uint8), f"{NAME}_scale": numbers(SIZE, GROUPS)}
    return tensors, quantization("modelopt")


CASES: dict[str, Callable[[], Case]] = {
    **{f"GPTQ, {bits} bits": lambda bits=bits: gptq(bits) for bits in (2, 3, 4, 8)},
    "GPTQ, 4 bits, act-order": lambda: gptq(4, ordered=True),
    "AWQ": awq,
    **{f"compressed-tensors, {bits} bits": lambda bits=bits: packed(bits) for bits in (3, 4, 5, 6, 8)},
    "bitsandbytes NF4": nf4,
    "bitsandbytes int8": int8,
    "NVFP4": nvfp4,
    "MXFP4": mxfp4,
    "float8 in blocks": blocks,
    **{f"MLX, {bits} bits": lambda bits=bits: mlx(bits) for bits in (2, 3, 4, 6, 8)},
    "ModelOpt int4": modelopt,
}


def seconds(run: Callable[[], object]) -> float:
    """The least CPU time of a few runs."""
    times = []
    for _ in range(REPEATS):
        begin = time.thread_time()
        run()
        times.append(time.thread_time() - begin)
    return min(times)


def main(names: list[str]) -> int:
    plain = RNG.standard_normal((SIZE, SIZE)).astype(np.float32)
    rate = plain.size / 1e6
    slowest, ratio = "", 0.0
    for name in names or CASES:
        tensors, config = CASES[name]()
        model = decoded(InMemoryTensors(tensors), Config(config))
        assert model.shapes[NAME] == (SIZE, SIZE), name
        copy, decode = seconds(plain.copy), seconds(lambda model=model: model.read(NAME))
        print(f"{name:<30}{rate / decode:8.0f} million weights per CPU second, {decode / copy:5.1f} copies")
        if decode / copy > ratio:
            slowest, ratio = name, decode / copy
    claims = Claims()
    claims.add(
        f"decode a matrix of {SIZE} x {SIZE} from each of {len(names or CASES)} codes",
        f"slowest: {slowest}",
        "a float32 copy",
        ratio,
        MOST_COPIES,
        least=False,
    )
    with tempfile.TemporaryDirectory() as folder:
        beyond = max(measure(code, Path(folder)) for code in CONFIGS) / 1e6
    task = f"memory of decoding 8192 x 28672, beyond the matrix and its parts ({', '.join(CONFIGS)})"
    claims.add(task, f"{beyond:.1f} MB", "no peer", beyond, MOST_MEGABYTES, least=False)
    return claims.finish()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
