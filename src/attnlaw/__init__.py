"""attnlaw: the spectral theory of attention, executable on real models.

The public names below are imported when first used, so that `attnlaw --help` answers at once.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

__version__ = "0.1.0"

_PUBLIC: dict[str, str] = {
    "AttentionLayer": "attnlaw.limits",
    "Audit": "attnlaw.auditing",
    "Depth": "attnlaw.limits",
    "Fit": "attnlaw.fits.fit",
    "Fits": "attnlaw.auditing.fits",
    "GivenInputs": "attnlaw.limits",
    "InputError": "attnlaw.base.errors",
    "Lens": "attnlaw.forward",
    "Problem": "attnlaw.learning.problem",
    "RandomInputs": "attnlaw.limits",
    "Target": "attnlaw.learning.target",
    "agreement": "attnlaw.learning.agreement",
    "audit": "attnlaw.auditing",
    "compare_widths": "attnlaw.limits",
    "curve": "attnlaw.learning.sweep",
    "fit": "attnlaw.fits.fit",
    "fit_model": "attnlaw.auditing.fitting",
    "fit_spectra": "attnlaw.auditing.fitting",
    "learn": "attnlaw.verbs.learn:VERB",
    "lens": "attnlaw.verbs.lens:VERB",
    "limit": "attnlaw.verbs.limit:VERB",
    "linearise": "attnlaw.forward",
    "open_model": "attnlaw.models",
    "simulate": "attnlaw.learning.simulate",
    "state_evolution": "attnlaw.learning.state_evolution",
    "thresholds": "attnlaw.learning.thresholds",
}

__all__ = ["__version__", *sorted(_PUBLIC)]


def __getattr__(name: str) -> Any:
    if name in _PUBLIC:
        module, _, attribute = _PUBLIC[name].partition(":")
        return getattr(import_module(module), attribute or name)
    raise AttributeError(f"module 'attnlaw' has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
