"""The summary of one model: plain values, the contract of `summary.json` and `--json`."""

from __future__ import annotations

from math import log
from typing import Any

from attnlaw import __version__
from attnlaw.auditing.rows import log10_error, log10_or_none
from attnlaw.bounds import Proxies
from attnlaw.models import Model
from attnlaw.spectra.measure import Measured

MEANING = (
    "Proxies are leading complexity factors (no constants, no logarithms): compare them between models; "
    "they are not probabilities and not guarantees."
)


def summarize(
    model: Model,
    measured: list[Measured],
    bounds: Proxies | None,
    per_application: Proxies | None,
    samples: int | None,
    reason: str | None,
) -> dict[str, Any]:
    """Sizes, proxies (as log10), amplification per depth, and what to know about them."""
    errors = None if bounds is None else bounds.errors
    summary: dict[str, Any] = {
        "model": model.name,
        "family": model.family,
        "layers": len(model.applications),
        "distinct_layers": len(model.layers),
        "hidden_size": model.hidden_size,
        "heads": model.heads,
        "matrices": len(measured),
        "activation": model.activation,
        "proxies": None if bounds is None else _proxies(bounds),
        "per_application": None if per_application is None else _proxies(per_application),
        "log10_alpha": None if bounds is None else [log10_or_none(value) for value in bounds.log_alpha],
        "log10_alpha_error": errors and [log10_error(error) for error in errors.log_alpha],
        "value_of_adaptivity": None if bounds is None else bounds.adaptivity,
        "value_of_adaptivity_error": errors and errors.adaptivity,
        "rank_count": None if bounds is None else bounds.rank_count,
        "extensions": list(model.extensions),
        "warnings": [*model.warnings, *([reason] if reason else [])],
        "meaning": MEANING,
        "attnlaw_version": __version__,
    }
    if samples is not None and bounds is not None:
        summary["samples"] = samples
        summary["proxy_over_sqrt_samples"] = _entry(
            bounds.spectrum_adaptive - log(samples) / 2, None if errors is None else errors.spectrum_adaptive
        )
    return summary


def _proxies(bounds: Proxies) -> dict[str, Any]:
    errors = bounds.errors
    return {
        "spectrum_adaptive": _entry(
            bounds.spectrum_adaptive, None if errors is None else errors.spectrum_adaptive
        ),
        "spectrum_adaptive_continuous": _entry(
            bounds.continuous, None if errors is None else errors.continuous
        ),
        **{
            name: _entry(value, None if errors is None else errors.norm_based[name])
            for name, value in bounds.norm_based.items()
        },
        "fixed_p": {
            str(p): _entry(value, None if errors is None else errors.fixed[p])
            for p, value in bounds.fixed.items()
        },
    }


def _entry(log: float, error: float | None) -> dict[str, float | None]:
    """A value as log10, and its error where there is one."""
    return {"log10": log10_or_none(log)} | ({} if error is None else {"error": log10_error(error)})
