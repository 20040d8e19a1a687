"""What a reader must know about the proxies in a summary, in the same words on screen and on the page."""

from __future__ import annotations

from typing import Any

PROXY_NAMES = {
    "spectrum_adaptive": "spectrum-adaptive (post hoc p per matrix)",
    "spectrum_adaptive_continuous": "spectrum-adaptive, continuous p (ours)",
    "edelman": "norm-based, Edelman (2,1)",
    "trauger_tewari": "norm-based, Trauger-Tewari (1,1)",
}

ADAPTIVE = ("spectrum_adaptive", "spectrum_adaptive_continuous")
# Errors of numbers that are exact but for the order of their sums; they are not shown.
ROUND_OFF = 1e-9


def proxy_entries(proxies: dict[str, Any]) -> list[tuple[str, float, float | None]]:
    """(name, log10, error or None) of every proxy: post hoc, one index for all, norm-based.

    An error of round-off is none. A summary of an older version may lack a norm-based one.
    """
    adaptive = [(PROXY_NAMES[key], proxies[key]) for key in ADAPTIVE]
    fixed = [(f"one index for all, p = {p}", entry) for p, entry in proxies["fixed_p"].items()]
    norms = [
        (name, proxies[key]) for key, name in PROXY_NAMES.items() if key not in ADAPTIVE and key in proxies
    ]
    return [
        (name, entry["log10"], _beyond_round_off(entry.get("error")))
        for name, entry in adaptive + fixed + norms
    ]


def remarks(summary: dict[str, Any]) -> list[str]:
    """One sentence each: what proxies are, the sample size, the value of adaptivity, the extensions."""
    lines = []
    if summary["proxies"]:
        lines.append(summary["meaning"])
    if summary["proxies"] and "samples" in summary:
        value, error = (summary["proxy_over_sqrt_samples"].get(key) for key in ("log10", "error"))
        lines.append(
            f"spectrum-adaptive proxy / sqrt(n) at n = {summary['samples']}: "
            f"{_power(value, error)}, {'above 1: vacuous' if value > 0 else 'below 1'} (still a proxy)."
        )
    if summary["rank_count"]:
        lines.append(
            "p = 0 won for every matrix: the spectrum-adaptive proxy counts ranks here, "
            "the rest of the spectrum played no part."
        )
    elif summary["value_of_adaptivity"] is not None:
        gain, error = summary["value_of_adaptivity"], summary.get("value_of_adaptivity_error")
        lines.append(
            f"Value of adaptivity: the best single p costs {gain:.4g}{_given(error)} "
            "times the post hoc choice."
        )
    if summary["extensions"]:
        lines.append(f"Extension beyond the paper's setting: {', '.join(summary['extensions'])}.")
    return lines


def _power(log10: float, error: float | None) -> str:
    """A number by its logarithm, and as it is where that is exact and short.

    >>> _power(0.5, None), _power(0.5, 0.01), _power(400.0, None)
    ('10^0.5000 = 3.16', '10^(0.5000 ± 0.01)', '10^400.0000')
    """
    if given := _given(error):
        return f"10^({log10:.4f}{given})"
    return f"10^{log10:.4f}" + (f" = {10**log10:.3g}" if -4 < log10 < 3 else "")


def _given(error: float | None) -> str:
    """The error of a number in a sentence, nothing where it has none but round-off."""
    known = _beyond_round_off(error)
    return "" if known is None else f" ± {known:.1g}"


def _beyond_round_off(error: float | None) -> float | None:
    return error if error and error > ROUND_OFF else None
