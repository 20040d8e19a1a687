"""Decode quantized weights. attnlaw supports the schemes in `SCHEMES` and raises an error for all others."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

from attnlaw.checkpoints.config import Config
from attnlaw.checkpoints.quantization.float8 import with_scales
from attnlaw.checkpoints.tensors import Tensors
from attnlaw.core.errors import InputError


@dataclass(frozen=True)
class Scheme:
    """A way to store weights in few bits.

    Args:
        methods: values of `quant_method` in the `quantization_config` of config.json that mean this scheme.
        decode: a function that replaces the codes of this scheme by the weights they encode. It takes and
            returns all tensors of a checkpoint.
    """

    methods: tuple[str, ...]
    decode: Callable[[Tensors, Config], Tensors]


SCHEMES = (Scheme(("fp8", "fbgemm_fp8", "compressed-tensors"), with_scales),)
# Tensors that only quantized checkpoints have. Decoding hides those of the schemes above.
CODES = re.compile(
    r"\.(qweight|qzeros|g_idx|SCB|weight_packed|weight_scale|weight_scale_inv)$"
    r"|weight\.(absmax|quant_map|quant_state)"
)


def decode(tensors: Tensors, config: Config) -> Tensors:
    """Return the tensors with the codes of all known schemes read as weights."""
    for scheme in SCHEMES:
        tensors = scheme.decode(tensors, config)
    return tensors


def require_decoded(tensors: Tensors, config: Config) -> None:
    """Raise an `InputError` if tensors are still codes, because spectra of codes mean nothing."""
    code = next((name for name in tensors.shapes if CODES.search(name)), None)
    declared = config.values.get("quantization_config")
    method = declared.get("quant_method") if isinstance(declared, dict) else declared
    known = any(method in scheme.methods for scheme in SCHEMES)
    if code or (declared is not None and not known):
        what = f"tensor {code}" if code else f"quantization_config in {config.source}"
        raise InputError(
            f"{tensors.source}: a quantised checkpoint ({what}); dequantise it, or use the original weights"
        )
