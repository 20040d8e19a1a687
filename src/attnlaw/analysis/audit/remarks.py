"""What a reader must know about the proxies in a summary, in the same words on screen and on the page."""

from __future__ import annotations

from typing import Any

from attnlaw.analysis.findings.text import count_by_level
from attnlaw.checkpoints.network import KINDS
from attnlaw.theory.bounds import BOUNDS

# Errors of numbers that are exact but for the order of their sums; they are not shown.
ROUND_OFF = 1e-9


def proxy_entries(proxies: dict[str, Any]) -> list[tuple[str, float, float | None]]:
    """(label, log10, error or None) of every proxy, in the order of `BOUNDS`.

    An error of round-off is none. A proxy that the summary does not have is left out.
    """
    fixed = {f"fixed_p_{p}": entry for p, entry in proxies["fixed_p"].items()}
    known = proxies | fixed
    return [
        (bound.label, known[name]["log10"], _beyond_round_off(known[name].get("error")))
        for name, bound in BOUNDS.items()
        if name in known
    ]


def remarks(summary: dict[str, Any]) -> list[str]:
    """One sentence each: norms, what proxies are, sample size, adaptivity, extensions."""
    logits = logit_sentence(summary)
    meaning = [summary["meaning"]] if summary["proxies"] else []
    return [
        norm_basis_sentence(summary),
        *([] if logits is None else [logits]),
        *meaning,
        *proxy_remarks(summary),
        *extension_remarks(summary),
    ]


def proxy_remarks(summary: dict[str, Any]) -> list[str]:
    """What the proxies come to at a sample size, and what adapting to spectra was worth."""
    lines = []
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
        gain, error = summary["value_of_adaptivity"], summary["value_of_adaptivity_error"]
        lines.append(
            f"Value of adaptivity: the best single p costs {gain:.4g}{_format_error(error)} "
            "times the post hoc choice."
        )
    return lines


def extension_remarks(summary: dict[str, Any]) -> list[str]:
    named = ", ".join(summary["extensions"])
    return [f"Extension beyond the paper's setting: {named}."] if named else []


def norm_basis_sentence(summary: dict[str, Any]) -> str:
    """Whether norms are shown as applied or as stored."""
    unknown = ", ".join(KINDS[kind].label for kind in summary["norms_unknown"])
    if summary["norms"] == "stored":
        stored = "Norms and stable ranks as stored, without the gain of the norm before"
        return f"{stored} (not known of {unknown})." if unknown else f"{stored}."
    applied = (
        "Norms and stable ranks as applied: the gain of the norm before folded in, "
        "the mean projected out where that norm takes it off."
    )
    return f"{applied} As stored where it is not known: {unknown}." if unknown else applied


def logit_sentence(summary: dict[str, Any]) -> str | None:
    """Which types hold the logits of every input; None without heads.

    >>> found = {"heads": 72, "bounded": 72, "beyond_float8": 2, "beyond_float16": 0, "unbounded": None}
    >>> logit_sentence({"logits": found})
    'Logits of 72 of 72 heads stay within float16 whatever the input, of 70 within float8 (E4M3, 448).'
    """
    logits = summary["logits"]
    if not logits["heads"]:
        return None
    missing = f" No bound of {logits['unbounded']}." if logits["unbounded"] else ""
    if not logits["bounded"]:
        return f"Logits of no head are bounded:{missing.removeprefix(' No bound of')}"
    halves, eighths = (logits["bounded"] - logits[f"beyond_float{bits}"] for bits in (16, 8))
    return (
        f"Logits of {halves} of {logits['heads']} heads stay within float16 whatever the input, "
        f"of {eighths} within float8 (E4M3, 448).{missing}"
    )


def null_test_sentence(summary: dict[str, Any]) -> str | None:
    """How many matrices differ from noise; None if none could be tested.

    >>> null_test_sentence({"not_random": {"tested": 120, "rejected": 118, "expected": 1.19, "p_value": 0.0}})
    '118 of 120 matrices differ from noise; 1.2 expected of a fresh model'
    """
    counts = summary["not_random"]
    if not counts["tested"]:
        return None
    matrices = "matrix differs" if counts["tested"] == 1 else "matrices differ"
    return (
        f"{counts['rejected']} of {counts['tested']} {matrices} from noise; "
        f"{counts['expected']:.2g} expected of a fresh model"
    )


def findings_sentence(summary: dict[str, Any]) -> str | None:
    """How much was found by how many rules; None in a study, which keeps no findings.

    >>> findings_sentence({"findings": {"rules": 20, "note": 1, "warning": 0, "error": 2}})
    '2 errors, 1 note found by 20 rules'
    """
    counts = summary["findings"]
    if counts["rules"] is None:
        return None
    return f"{count_by_level(counts) or 'nothing'} found by {counts['rules']} rules"


def _power(log10: float, error: float | None) -> str:
    """A number by its logarithm, and as it is where that is exact and short.

    >>> _power(0.5, None), _power(0.5, 0.01), _power(400.0, None)
    ('10^0.5000 = 3.16', '10^(0.5000 ± 0.01)', '10^400.0000')
    """
    if given := _format_error(error):
        return f"10^({log10:.4f}{given})"
    return f"10^{log10:.4f}" + (f" = {10**log10:.3g}" if -4 < log10 < 3 else "")


def _format_error(error: float | None) -> str:
    """The error of a number in a sentence, nothing where it has none but round-off."""
    known = _beyond_round_off(error)
    return "" if known is None else f" ± {known:.1g}"


def _beyond_round_off(error: float | None) -> float | None:
    return error if error and error > ROUND_OFF else None
