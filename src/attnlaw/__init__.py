"""attnlaw: the spectral theory of attention, executable on real models.

The public names below are imported when first used, so that `attnlaw --help` answers at once.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

__version__ = "0.1.0"

_PUBLIC: dict[str, str] = {
    "Audit": "attnlaw.auditing",
    "Fit": "attnlaw.fits.fit",
    "Fits": "attnlaw.auditing.fits",
    "GivenInputs": "attnlaw.limits",
    "InputError": "attnlaw.errors",
    "Layer": "attnlaw.limits",
    "Lens": "attnlaw.lens",
    "Problem": "attnlaw.aim.problem",
    "RandomInputs": "attnlaw.limits",
    "Stack": "attnlaw.limits",
    "Target": "attnlaw.aim.target",
    "agreement": "attnlaw.aim.agreement",
    "audit": "attnlaw.auditing",
    "compare_widths": "attnlaw.limits",
    "curve": "attnlaw.aim.sweep",
    "fit": "attnlaw.fits.fit",
    "fit_model": "attnlaw.auditing.fitting",
    "fit_spectra": "attnlaw.auditing.fitting",
    "linearise": "attnlaw.lens",
    "open_model": "attnlaw.checkpoints",
    "simulate": "attnlaw.aim.simulate",
    "state_evolution": "attnlaw.aim.state_evolution",
    "thresholds": "attnlaw.aim.thresholds",
}

__all__ = ["__version__", *sorted(_PUBLIC)]


def __getattr__(name: str) -> Any:
    if name in _PUBLIC:
        return getattr(import_module(_PUBLIC[name]), name)
    raise AttributeError(f"module 'attnlaw' has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
