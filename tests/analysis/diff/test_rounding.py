"""Formats of weights: casts, steps, and the errors that they leave, by recast and by variance."""

import ml_dtypes
import numpy as np
import pytest

from attnlaw.analysis.diff.rounding import (
    FLOATS,
    INTEGERS,
    IntegerFormat,
    detect_cast,
    detect_code,
    edge,
    effective_format,
    rank_above,
    rounding_null,
    stored_steps,
)

NARROW = [name for name in FLOATS if name not in ("float64", "float32")]


@pytest.mark.parametrize("name", NARROW)
def test_steps_are_the_distance_of_neighbours(name):
    form = FLOATS[name]
    stored = np.array([0.03, 0.5, 1.0, 1.5, 3.9, 100.0, -0.7]).astype(form.dtype)
    codes = stored.view(np.uint8 if stored.itemsize == 1 else np.uint16)
    above = (codes + 1).view(form.dtype).astype(float)
    assert form.steps(stored.astype(float)) == pytest.approx(np.abs(above - stored.astype(float)), rel=1e-15)


@pytest.mark.parametrize(
    ("name", "least", "most"), [("bfloat16", 0.001655, 0.001663), ("float16", 0.0002069, 0.0002078)]
)
def test_relative_errors_of_gaussian_weights(name, least, most):
    """They vary with the logarithm of the deviation, between published ends (0.1 percent of drawing)."""
    rng = np.random.default_rng(0)
    for deviation in (0.7, 1.0, 1.4):
        base = deviation * rng.standard_normal((512, 512))
        error = np.linalg.norm(FLOATS[name].round_weights(base) - base) / np.linalg.norm(base)
        assert 0.998 * least < error < 1.002 * most


@pytest.mark.parametrize(
    "name", [*NARROW, "int8/row absmax", "int4/32 absmax", "int4/32 min-max", "int3/64 absmax columns"]
)
def test_errors_by_recast_and_by_variance(name):
    form = FLOATS.get(name) or INTEGERS[name]
    base = np.random.default_rng(1).standard_normal((256, 256))
    null = rounding_null(base, form)
    error = np.sum((form.round_weights(base) - base) ** 2)
    allowed = 0.01 * null.value if name == "float8_e5m2" else 0.0  # two bits are not uniform
    assert error == pytest.approx(null.value, abs=4 * null.error + allowed)


def test_a_grid_is_a_fixed_point():
    base = np.random.default_rng(2).standard_normal((64, 128))
    for form in (
        IntegerFormat(4, 32),
        IntegerFormat(4, 32, min_max=True),
        IntegerFormat(8, None, columns=True),
    ):
        once = form.round_weights(base)
        assert form.round_weights(once) == pytest.approx(once, abs=1e-12)
        assert np.abs(once - base).max() <= form.steps(base).max() / 2 * (1 + 1e-12)


def test_blocks_that_do_not_divide_a_side_are_not_tried():
    assert not IntegerFormat(4, 32).fits((64, 48))
    assert IntegerFormat(4, 32, columns=True).fits((64, 48))


def test_formats_that_are_not_found():
    base = np.random.default_rng(3).standard_normal((64, 64)).astype(np.float32)
    grown = (base * 1.01).astype(float)
    assert detect_cast(base, grown) is None
    assert detect_code(base, grown, FLOATS["float64"]) is None
    clipped = np.abs(base).reshape(64, 2, 32).max(axis=2, keepdims=True) / 8  # absmax/8: another grid
    grid = (clipped * np.clip(np.rint(base.reshape(64, 2, 32) / clipped), -8, 7)).reshape(64, 64)
    assert detect_code(base, grid, FLOATS["float64"]) is None


def test_a_base_on_the_grid_is_not_rounded_to_it():
    """Three small steps of training and bfloat16, of a base that was decoded from 4 bits."""
    rng = np.random.default_rng(4)
    grid = IntegerFormat(4, 32)
    base = grid.round_weights(rng.standard_normal((64, 128))).astype(np.float32)
    model = (base + 1e-3 * rng.standard_normal(base.shape)).astype(ml_dtypes.bfloat16)
    assert detect_code(base, model, FLOATS["bfloat16"]) is None
    weights = rng.standard_normal((64, 128)).astype(np.float32)
    stored = grid.round_weights(weights).astype(ml_dtypes.bfloat16)
    assert detect_code(weights, stored, FLOATS["bfloat16"]) == grid


@pytest.mark.parametrize("name", NARROW)
def test_casts_to_nearest_and_toward_zero(name):
    form = FLOATS[name]
    base = np.random.default_rng(5).standard_normal((32, 32)).astype(np.float32)
    nearest = form.round_weights(base)
    truncated = form.round_weights(base, toward_zero=True)
    assert (np.abs(truncated) <= np.abs(base)).all()
    assert (np.abs(base) - np.abs(truncated) < form.steps(base.astype(float)) * (1 + 1e-12)).all()
    for model in (nearest, truncated):
        assert detect_cast(base, model).name == name
        assert effective_format(model, "float64").name == name


def test_the_effective_format_has_the_largest_errors():
    """Small float16 numbers are on the grid of bfloat16, too, where they would have smaller steps."""
    small = (np.arange(1, 65) * 2.0**-24).astype(np.float16).reshape(8, 8)
    assert effective_format(small.astype(np.float32), "float32").name == "float16"
    third = np.array([[1, 2], [3, 4]], np.float32) / 3
    assert effective_format(third, "float32").name == "float32"
    assert effective_format(third.astype(ml_dtypes.bfloat16).astype(np.float32), "float32").name == "bfloat16"


def test_the_edge_of_rounding():
    """The largest singular value of uniform errors lies near the edge, which no rank exceeds."""
    rng = np.random.default_rng(4)
    steps = np.full((200, 300), 0.5)
    values = np.linalg.svd(steps * rng.uniform(-0.5, 0.5, steps.shape), compute_uv=False)
    assert values[0] == pytest.approx(edge(steps), rel=0.03)
    assert rank_above(values, edge(steps)) == 0


def test_steps_of_a_file():
    array = np.array([[1.0, 2.0], [4.0, 8.0]], dtype=np.float32)
    assert stored_steps(array, "float32")[0, 0] == 2.0**-23
    assert stored_steps(array.astype(ml_dtypes.bfloat16), "bfloat16")[1, 1] == 2.0**-4
    # An adapter is added in float64 to what a file keeps in bfloat16.
    assert stored_steps(array.astype(float), "bfloat16")[0, 0] == FLOATS["float64"].steps(np.ones(1))[0]
    scaled = stored_steps(array.astype(float), "float8_e4m3fn with scales")
    assert scaled[0, 0] == 2.0**-3


def test_steps_of_decoded_codes_are_those_of_their_blocks():
    """Values of 4 bits in blocks of 32, each with its own step and start, decoded to float32."""
    rng = np.random.default_rng(5)
    codes = rng.integers(0, 16, (40, 4, 32))
    step = rng.uniform(0.5, 2.0, (40, 4, 1))
    decoded = (step * codes - 3.0).astype(np.float32).reshape(40, 128)
    steps = stored_steps(decoded, "Q4_1")
    assert steps.reshape(40, 4, 32)[..., :1] == pytest.approx(step, rel=1e-5)
