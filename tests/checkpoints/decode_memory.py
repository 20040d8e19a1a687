"""Peak memory of decoding one matrix of 8192 x 28672 from a file, in a process of its own.

    python tests/checkpoints/decode_memory.py FOLDER

`measure` writes the file into FOLDER, and this program prints the bytes that decoding takes beyond the
decoded matrix and its parts. Linux only: /proc/self/clear_refs resets the peak.
"""

from __future__ import annotations

import re
import subprocess
import sys
from math import prod
from pathlib import Path

import numpy as np
from safetensors.numpy import save_file

ROWS, COLUMNS, SIZE = 8192, 28672, 128
NAME = "layer.weight"
CONFIGS = {
    "GPTQ": '{"quant_method": "gptq", "bits": 4, "group_size": 128, "sym": true}',
    "NVFP4": '{"quant_method": "compressed-tensors"}',
    "NF4": '{"quant_method": "bitsandbytes"}',
}


def write(code: str, folder: Path) -> None:
    """Write the parts of one matrix with constant codes. Their values do not matter for memory."""
    groups = COLUMNS // SIZE
    state = f'{{"blocksize": 64, "shape": [{ROWS}, {COLUMNS}]}}'.encode()
    tensors = {
        "GPTQ": {
            "layer.qweight": np.full((COLUMNS // 8, ROWS), 0x12345678, np.int32),
            "layer.qzeros": np.full((groups, ROWS // 8), 0x77777777, np.int32),
            "layer.scales": np.full((groups, ROWS), 0.01, np.float16),
        },
        "NVFP4": {
            f"{NAME}_packed": np.full((ROWS, COLUMNS // 2), 0x21, np.uint8),
            f"{NAME}_scale": np.full((ROWS, COLUMNS // 16), 1.0, np.float16),
            f"{NAME}_global_scale": np.array([100.0], np.float32),
        },
        "NF4": {
            NAME: np.full((ROWS * COLUMNS // 2, 1), 0x21, np.uint8),
            f"{NAME}.absmax": np.full(ROWS * COLUMNS // 64, 0.1, np.float32),
            f"{NAME}.quant_map": np.linspace(-1, 1, 16, dtype=np.float32),
            f"{NAME}.quant_state.bitsandbytes__nf4": np.frombuffer(state, np.uint8),
        },
    }[code]
    if code == "NVFP4":
        import ml_dtypes

        scale = tensors[f"{NAME}_scale"]
        tensors[f"{NAME}_scale"] = scale.astype(ml_dtypes.float8_e4m3fn)
    save_file(tensors, folder / "model.safetensors")
    (folder / "config.json").write_text(f'{{"quantization_config": {CONFIGS[code]}}}')


def memory(key: str) -> int:
    """A line of /proc/self/status in bytes."""
    found = re.search(rf"{key}:\s+(\d+) kB", Path("/proc/self/status").read_text())
    assert found
    return 1024 * int(found[1])


def extra(folder: Path) -> int:
    """The bytes that reading the matrix takes beyond it and its parts."""
    from attnlaw.checkpoints.config import read_config
    from attnlaw.checkpoints.open import open_file
    from attnlaw.checkpoints.quantization import decoded

    stored = open_file(folder / "model.safetensors")
    model = decoded(stored, read_config(folder / "config.json"))
    small = np.ones((64, 64), np.float32)
    small @ small  # starts what starts late
    before = memory("VmRSS")
    Path("/proc/self/clear_refs").write_text("5")
    matrix = model.read(NAME)
    assert matrix.shape == (ROWS, COLUMNS)
    parts = (folder / "model.safetensors").stat().st_size
    return memory("VmHWM") - before - 4 * prod(matrix.shape) - parts


def measure(code: str, folder: Path) -> int:
    """Write the file here, and decode it in a process of its own."""
    write(code, folder)
    command = [sys.executable, __file__, str(folder)]
    return int(subprocess.run(command, capture_output=True, text=True, check=True).stdout)


if __name__ == "__main__":
    sys.stdout.write(str(extra(Path(sys.argv[1]))))
