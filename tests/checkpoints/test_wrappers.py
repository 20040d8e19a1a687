"""Names that wrappers of torch lengthen: compiled, recomputed and sharded modules read as without them."""

from __future__ import annotations

from pathlib import Path

import pytest
from polars.testing import assert_frame_equal
from safetensors.numpy import load_file

from attnlaw import InputError, audit

TINY = Path("examples/tiny-decoder/model.safetensors")


@pytest.mark.parametrize(
    ("before", "wrapper"),
    [
        (".attn.", "_orig_mod"),
        (".mlp.", "_checkpoint_wrapped_module"),
        (".ln_1.", "_fsdp_wrapped_module"),
        (".c_attn.", "_fsdp_wrapped_module._checkpoint_wrapped_module._orig_mod"),
    ],
)
def test_wrapped_modules_are_read_as_the_plain_model(before: str, wrapper: str) -> None:
    plain = load_file(TINY)
    wrapped = {name.replace(before, f".{wrapper}{before}"): array for name, array in plain.items()}
    assert wrapped.keys() != plain.keys()
    tables = [audit(tensors, heads=4, name="m", jobs=1).matrices for tensors in (plain, wrapped)]
    assert_frame_equal(*tables)


def test_two_tensors_of_one_plain_name_are_refused() -> None:
    plain = load_file(TINY)
    name = "transformer.h.1.attn.c_attn.weight"
    with pytest.raises(InputError, match=r"_orig_mod.* have the same name once"):
        audit({**plain, name.replace(".attn.", "._orig_mod.attn."): plain[name]}, heads=4)
