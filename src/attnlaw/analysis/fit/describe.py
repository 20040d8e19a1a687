"""Decide which law a matrix follows, after fitting all laws to its spectrum.

The decision, in this order:

1. "random": the finite-size null is not rejected, `random_p_value > 0.01`.
2. "learned" or "heavy-tailed": a law of the whole spectrum fits. If both fit, the one with the smaller
   Kolmogorov-Smirnov distance (KS) counts. "learned" fits if the spectrum is as close to the law as spectra
   drawn from it. "heavy-tailed" fits if KS is at most `1.36/sqrt(n)`, the 5% point for n independent values,
   and kappa is so small that at most one in a hundred draws of the null has a smaller one. Rows also show the
   untied form of the learned law. It does not enter the decision, because singular values hardly distinguish
   the two forms.
3. "power-law tail": a power law covers at least 10 values and a tenth of all of them, is not rejected at 0.1,
   and no lognormal is significantly better. If it covers more than half of the values, it is not a tail, and
   the same fit is called "power-law spectrum".
4. "neither".

If the null cannot be tested (one value, all zero, latent attention), there is no decision: the law is None.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from attnlaw.analysis.fit.fit import FITTERS, Curve, Fit, fit_law
from attnlaw.analysis.fit.null import LEVEL, null_shape
from attnlaw.core.estimate import Estimate, Outcome, Range
from attnlaw.spectra.spectrum import Spectrum

KS_LEVEL = 1.36
TAIL_LEVEL, LEAST_TAIL, LEAST_SHARE = 0.1, 10, 0.1
MOST_OF_TAIL = 0.5  # a power law that covers a larger share of the values is not called a tail


@dataclass(frozen=True, eq=False)
class Description:
    """The law of a matrix, and the numbers behind the decision."""

    law: str | None  # the decision; None if the matrix cannot be tested
    numbers: dict[str, Any]  # all numbers, by column of `FITS`
    null_shape: str | None  # name of the null's row among the curves
    curve_law: str | None  # the law that is drawn, for "neither" the nearest law of the whole spectrum
    curve: Curve | None  # the density of `curve_law`; None for "random", where the null is drawn


def describe(spectrum: Spectrum, seed: int = 0) -> Description:
    """Fit every law to one spectrum, and decide which law the spectrum follows."""
    fits = {law: fit_law(spectrum, law, seed) for law in FITTERS}
    law, drawn = _decide(fits)
    status = Outcome.NOT_FITTED if law is None else Outcome.DONE
    return Description(
        law=law,
        numbers=_numbers(fits) | {"law": law, "status": status, "remark": _remark(fits)},
        null_shape=None if spectrum.latent else null_shape(spectrum),
        curve_law=drawn,
        curve=None if drawn is None else fits[drawn].curve,
    )


def _decide(fits: dict[str, Fit]) -> tuple[str | None, str | None]:
    """Return the law that the matrix follows (None without a test), and the law that is drawn, if any."""
    random = fits["random"].p_value
    if random is None or random > LEVEL:
        return (None if random is None else "random"), None
    whole = {law: fits[law].ks for law in ("learned", "heavy-tailed")}
    nearest = sorted((ks, law) for law, ks in whole.items() if ks is not None)
    fitting = [law for _, law in nearest if _is_good_fit(fits[law])]
    if fitting:
        return fitting[0], fitting[0]
    if _has_tail(fits):
        return ("power-law tail" if _tail_share(fits) <= MOST_OF_TAIL else "power-law spectrum"), "power-law"
    return "neither", nearest[0][1] if nearest else None


def _is_good_fit(fit: Fit) -> bool:
    if fit.law == "learned":
        return bool(fit.statistics["plausible"])
    near = fit.ks is not None and fit.ks <= KS_LEVEL / np.sqrt(fit.size)
    return bool(near and fit.statistics["heavier"])


def _has_tail(fits: dict[str, Fit]) -> bool:
    tail, all_values = fits["power-law"], fits["random"].size
    return bool(
        tail.p_value is not None
        and tail.p_value >= TAIL_LEVEL
        and tail.size >= max(LEAST_TAIL, LEAST_SHARE * all_values)
        and not fits["lognormal"].statistics["better"]
    )


def _tail_share(fits: dict[str, Fit]) -> float:
    return fits["power-law"].size / fits["random"].size


def _numbers(fits: dict[str, Fit]) -> dict[str, Any]:
    random, tail, heavy, learned, untied = (
        fits[law] for law in ("random", "power-law", "heavy-tailed", "learned", "learned-untied")
    )
    alpha, whole = tail.parameters.get("alpha"), {"random": random, "heavy_tailed": heavy, "learned": learned}
    return {
        "values": random.size,
        "random_p_value": random.p_value,
        **{name: random.statistics.get(name) for name in ("wasserstein", "outliers", "edge_scale")},
        **{f"null_{name}": random.statistics.get(name) for name in ("draws", "edge")},
        "null_scale": random.parameters.get("scale"),
        "alpha": None if alpha is None else Estimate(alpha, tail.errors["alpha"]),
        "alpha_p_value": tail.p_value,
        "x_min": tail.parameters.get("x_min"),
        "tail_size": None if alpha is None else tail.size,
        "tail_share": None if alpha is None else _tail_share(fits),
        "lognormal_better": fits["lognormal"].statistics.get("better"),
        "hill": tail.statistics.get("hill"),
        "kappa": _range(heavy, "kappa"),
        "noise_level": learned.parameters.get("noise_level"),
        **{name: learned.statistics.get(name) for name in ("noise_low", "noise_high", "rank_fraction")},
        **{name: _range(learned, name) for name in ("threshold", "target_rank", "cut_ratio")},
        "learned_distance": learned.statistics.get("distance"),
        "untied_distance": untied.statistics.get("distance"),
        "untied_fits": untied.statistics.get("plausible"),
        "untied_cut_ratio": _range(untied, "cut_ratio"),
        "ks_tail": tail.ks,
        "ks_untied": untied.ks,
        **{f"ks_{name}": fit.ks for name, fit in whole.items()},
        **{f"log_likelihood_{name}": fit.log_likelihood for name, fit in whole.items()},
    }


def _range(fit: Fit, name: str) -> Range:
    low, high = (fit.statistics.get(f"{name}_{end}") for end in ("low", "high"))
    return Range(fit.parameters.get(name), low, high)


def _remark(fits: dict[str, Fit]) -> str | None:
    """Return a text that says for each law which numbers are missing and why; None if nothing is missing."""
    ends = {
        law: [None if fit.outcome is Outcome.DONE else fit.outcome, fit.remark] for law, fit in fits.items()
    }
    remarks = {law: ": ".join(filter(None, words)) for law, words in ends.items()}
    return "; ".join(f"{law}: {words}" for law, words in remarks.items() if words) or None
