"""Calls of the OpenBLAS library in SciPy's wheels by ctypes, which releases Python's lock during a call.

The two stages of a tridiagonalisation have no wrapper in SciPy at all. If the library is missing, `library`
returns None, and callers compute the same numbers in another way.
"""

from __future__ import annotations

import ctypes
from contextlib import suppress
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import scipy
from threadpoolctl import threadpool_info

LETTERS = {"float32": "s", "float64": "d"}

# An argument of a Fortran routine: a letter, an integer or an array.
Argument = bytes | int | np.ndarray


@cache
def library() -> ctypes.CDLL | None:
    """Return SciPy's OpenBLAS library, or None if it does not have the functions used here."""
    # Wheels have the library next to the package, so it need not be loaded by importing scipy.linalg.
    for file in Path(scipy.__file__).parent.with_name("scipy.libs").glob("libscipy_openblas*"):
        with suppress(OSError):
            shared_library = ctypes.CDLL(str(file))
            if _has_routines(shared_library):
                return shared_library
    import_module("scipy.linalg")  # loads the library if it is elsewhere
    for pool in threadpool_info():
        shared_library = ctypes.CDLL(pool["filepath"])
        if _has_routines(shared_library):
            return shared_library
    return None


def _has_routines(shared_library: ctypes.CDLL) -> bool:
    return hasattr(shared_library, "scipy_dsytrd_sb2st_")


def blas(dll: ctypes.CDLL, name: str, *arguments: Argument) -> None:
    """Call a BLAS routine. Arrays need the layout of Fortran, and may be overwritten."""
    # Fortran expects the hidden lengths of its letters at the end.
    lengths = [ctypes.c_size_t(1) for argument in arguments if isinstance(argument, bytes)]
    getattr(dll, f"scipy_{name}_")(*map(_by_reference, arguments), *lengths)


def lapack(dll: ctypes.CDLL, name: str, *arguments: Argument) -> None:
    """Call a LAPACK routine, and raise a `LinAlgError` if its last argument reports an error."""
    status = np.zeros(1, dtype=np.intc)
    blas(dll, name, *arguments, status)
    if status[0]:
        raise np.linalg.LinAlgError(f"LAPACK's {name} returned {status[0]}")


def _by_reference(argument: Argument) -> Any:
    if isinstance(argument, bytes):
        return argument
    if isinstance(argument, int):
        return ctypes.byref(ctypes.c_int(argument))
    return argument.ctypes.data_as(ctypes.c_void_p)
