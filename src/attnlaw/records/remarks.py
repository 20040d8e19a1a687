"""What a reader must know about the proxies in a summary, in the same words on screen and on the page."""

from __future__ import annotations

from typing import Any

PROXY_NAMES = {
    "spectrum_adaptive": "spectrum-adaptive (post hoc p per matrix)",
    "spectrum_adaptive_continuous": "spectrum-adaptive, continuous p (ours)",
    "edelman": "norm-based, Edelman (2,1)",
    "trauger_tewari": "norm-based, Trauger-Tewari (1,1)",
}


def proxy_rows(proxies: dict[str, Any]) -> list[tuple[str, float]]:
    """(name, log10) of every proxy: post hoc, one index for all, norm-based."""
    named = [(name, proxies[key]["log10"]) for key, name in PROXY_NAMES.items()]
    fixed = [(f"one index for all, p = {p}", value["log10"]) for p, value in proxies["fixed_p"].items()]
    return named[:2] + fixed + named[2:]


def remarks(summary: dict[str, Any]) -> list[str]:
    """One sentence each: what proxies are, the sample size, the value of adaptivity, the extensions."""
    lines = []
    if summary["proxies"]:
        lines.append(summary["meaning"])
    if summary["proxies"] and "samples" in summary:
        value = summary["proxy_over_sqrt_samples"]["log10"]
        lines.append(
            f"spectrum-adaptive proxy / sqrt(n) at n = {summary['samples']}: log10 = {value:.4f} "
            f"({'vacuous: above 1' if value > 0 else 'below 1'}; still a proxy)."
        )
    if summary["rank_count"]:
        lines.append(
            "p = 0 won for every matrix: the spectrum-adaptive proxy counts ranks here, "
            "the rest of the spectrum played no part."
        )
    elif summary["value_of_adaptivity"] is not None:
        gain = summary["value_of_adaptivity"]
        lines.append(f"Value of adaptivity: the best single p costs {gain:.4g} times the post hoc choice.")
    if summary["extensions"]:
        lines.append(f"Extension beyond the paper's setting: {', '.join(summary['extensions'])}.")
    return lines
