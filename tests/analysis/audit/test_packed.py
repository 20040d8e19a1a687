"""Records as bytes: the same to the bit, in the same order in memory, and of known classes alone."""

from __future__ import annotations

from dataclasses import dataclass, fields, is_dataclass
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from attnlaw.analysis.audit.units import RECORDS, pack, unpack
from attnlaw.checkpoints.blocks import NormFold
from attnlaw.core.errors import InputError
from attnlaw.core.estimate import Estimate
from attnlaw.spectra.approximate import approximate_spectrum
from attnlaw.spectra.exact import matrix_spectrum
from attnlaw.spectra.factored import product_spectrum


def same(value: Any, other: Any) -> bool:
    if isinstance(value, np.ndarray):
        alike = value.dtype == other.dtype and value.shape == other.shape and value.strides == other.strides
        return alike and value.tobytes() == other.tobytes()
    if is_dataclass(value) and not isinstance(value, type):
        names = [field.name for field in fields(value)]
        return type(value) is type(other) and all(
            same(getattr(value, name), getattr(other, name)) for name in names
        )
    return bool(value == other) and type(value) is type(other)


def test_spectra_of_every_route_are_the_same_to_the_bit() -> None:
    rng = np.random.default_rng(0)
    wide = rng.standard_normal((300, 400))
    fold = NormFold(rng.standard_normal(300), centred=True)
    thin = rng.standard_normal((40, 5)), rng.standard_normal((5, 30))
    spectra = [
        matrix_spectrum(wide, fold),
        approximate_spectrum(wide, 3, fold),
        product_spectrum(*thin, (2 * thin[0], thin[1])),
        matrix_spectrum(np.zeros((2, 3))),
    ]
    assert [spectrum.route for spectrum in spectra] == ["gram", "lanczos", "qr", "svd"]
    for spectrum in spectra:
        assert same(unpack(pack(spectrum), RECORDS), spectrum)


def test_values_that_are_not_finite_bytes_and_nested_tuples() -> None:
    @dataclass(frozen=True)
    class Odd:
        numbers: tuple[Any, ...]
        text: str
        data: bytes
        known: Estimate | None = None

    odd = Odd((float("inf"), -0.0, 5e-324, (True, None, 2**70)), 'a\n"b"', b"\x00\xff", Estimate(0.1))
    assert same(unpack(pack(odd), [Odd, Estimate]), odd)
    assert np.isnan(unpack(pack((float("nan"),)), [])[0])


def test_only_known_classes_are_made_and_only_plain_values_packed() -> None:
    data = pack(Estimate(1.0))
    with pytest.raises(InputError, match="Estimate"):
        unpack(data, [])
    for value in ({"a": 1}, np.float32(1), [1]):
        with pytest.raises(TypeError, match="attnlaw cannot store a value"):
            pack((value,))
    with pytest.raises(ValueError, match="allow_pickle=False"):
        pack((np.array([object()]),))
    assert unpack(pack((np.zeros(2, ml_dtypes.bfloat16).view(np.uint16),)), [])[0].dtype == np.uint16


@dataclass(frozen=True)
class Renamed:
    value: float


def test_a_record_of_another_version_is_one_line():
    for kinds in ([Estimate], []):  # a field of another name, and a class of another name
        data = pack(Renamed(1.0)).replace(b"Renamed", b"Estimate") if kinds else pack(Renamed(1.0))
        with pytest.raises(
            InputError, match="from another version of attnlaw; compute it again with --force"
        ):
            unpack(data, kinds)
