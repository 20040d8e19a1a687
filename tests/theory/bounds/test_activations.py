"""Each activation's constant against the largest slope of the function itself, found on a fine grid."""

import math

import numpy as np
import pytest
from scipy.special import erf

from attnlaw.core.errors import InputError
from attnlaw.theory.bounds.factors import LIPSCHITZ, lipschitz


def gelu(x):
    return 0.5 * x * (1 + erf(x / math.sqrt(2)))


def tanh_gelu(x):
    return 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))


def silu(x):
    return x / (1 + np.exp(-x))


def relu(x):
    return np.where(x.real > 0, x, 0)


FUNCTIONS = {
    "gelu": gelu,
    "gelu_python": gelu,
    "gelu_new": tanh_gelu,
    "gelu_pytorch_tanh": tanh_gelu,
    "gelu_fast": lambda x: 0.5 * x * (1 + np.tanh(x * 0.7978845608 * (1 + 0.044715 * x * x))),
    "silu": silu,
    "swish": silu,
    "quick_gelu": lambda x: x / (1 + np.exp(-1.702 * x)),
    "mish": lambda x: x * np.tanh(np.log1p(np.exp(x))),
    "relu": relu,
    "tanh": np.tanh,
    "identity": lambda x: x,
    "linear": lambda x: x,
}


def test_every_constant_has_its_function_here():
    assert set(FUNCTIONS) == set(LIPSCHITZ)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_the_constant_is_the_largest_slope_rounded_up_to_two_decimals(name):
    """The slope is the complex-step derivative, exact to round-off; beyond |x| = 12 all slopes are flat."""
    step = 1e-30
    x = np.linspace(-12, 12, 240_001)
    slope = np.max(np.abs(FUNCTIONS[name](x + 1j * step).imag / step))
    # The grid's spacing is 1e-4 and second derivatives of the slope are below 3: 4e-9 is missed at most.
    assert slope <= lipschitz(name)
    assert math.ceil(round(slope + 4e-9, 8) * 100 - 1e-5) / 100 == lipschitz(name)


def test_the_slopes_that_the_module_quotes():
    step, x = 1e-30, np.linspace(-12, 12, 240_001)
    quoted = {"gelu": 1.12890, "gelu_new": 1.12899, "silu": 1.09984, "quick_gelu": 1.09984, "mish": 1.08850}
    for name, value in quoted.items():
        slope = np.max(FUNCTIONS[name](x + 1j * step).imag / step)
        assert slope == pytest.approx(value, abs=5e-6), name


def test_an_unknown_activation_is_named_in_one_line():
    with pytest.raises(
        InputError, match="activation 'wobble' has no known Lipschitz constant; choose one of gelu,"
    ):
        lipschitz("wobble")
