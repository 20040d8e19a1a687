"""Routines of the OpenBLAS that scipy's wheels bring, by ctypes, which lets Python's lock go meanwhile.

scipy's wrappers of `?syrk`, `?sytrd` and `dsterf` keep the lock, so that every other thread waits for them;
the two stages of a tridiagonalisation have no wrapper at all. Where the library is not there (other builds,
other platforms), `library` is None, and who calls takes another way to the same numbers.
"""

from __future__ import annotations

import ctypes
from functools import cache
from typing import Any

import numpy as np
from threadpoolctl import threadpool_info

LETTERS = {"float32": "s", "float64": "d"}

# Of Fortran's arguments: a letter, an integer, an array.
Argument = bytes | int | np.ndarray


@cache
def library() -> ctypes.CDLL | None:
    """scipy's own OpenBLAS, where it exports what is called here, with 32-bit integers."""
    import scipy.linalg  # noqa: F401  (loads it)

    for pool in threadpool_info():
        shared_library = ctypes.CDLL(pool["filepath"])
        if hasattr(shared_library, "scipy_dsytrd_sb2st_"):
            return shared_library
    return None


def blas(dll: ctypes.CDLL, name: str, *arguments: Argument) -> None:
    """Call a routine; arrays are those that Fortran expects, and may be overwritten."""
    _routine(dll, name)(*map(_by_reference, arguments), *_lengths(arguments))


def lapack(dll: ctypes.CDLL, name: str, *arguments: Argument) -> None:
    """Call a routine that ends with a status; a `LinAlgError` where that is not zero."""
    status = ctypes.c_int(0)
    _routine(dll, name)(*map(_by_reference, arguments), ctypes.byref(status), *_lengths(arguments))
    if status.value:
        raise np.linalg.LinAlgError(f"LAPACK's {name} returned {status.value}")


def _routine(dll: ctypes.CDLL, name: str) -> Any:
    return getattr(dll, f"scipy_{name}_")


def _by_reference(argument: Argument) -> Any:
    """By reference, as Fortran takes everything."""
    if isinstance(argument, bytes):
        return argument
    if isinstance(argument, int):
        return ctypes.byref(ctypes.c_int(argument))
    return argument.ctypes.data_as(ctypes.c_void_p)


def _lengths(arguments: tuple[Argument, ...]) -> list[Any]:
    """Fortran's hidden lengths of its letters."""
    return [ctypes.c_size_t(1) for argument in arguments if isinstance(argument, bytes)]
