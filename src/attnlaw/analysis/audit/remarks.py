"""Sentences about an audited model. The terminal, the page and the notebook show the same sentences.

They are made from the summary of the model, which `attnlaw.analysis.audit.summary` builds from rows.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from attnlaw import __version__
from attnlaw.analysis.atlas.compare import unusual_numbers
from attnlaw.analysis.findings.apply import checks_text, count_by_level
from attnlaw.analysis.findings.detectors import DETECTORS
from attnlaw.analysis.fit.summary import null_test_line
from attnlaw.checkpoints.network import KINDS
from attnlaw.core.answer import AnswerStatus, Line
from attnlaw.core.words import count_of
from attnlaw.theory.bounds import BOUNDS

ROUND_OFF = 1e-9  # smaller errors come only from the order of sums and are not shown
MOST_UNUSUAL = 4  # unusual numbers that an answer lists
NO_PROXIES = "no proxies: "  # how the remark starts that says why there are no proxies


def model_facts(
    summary: Mapping[str, Any],
    stacks: Mapping[str | None, int],
    experts: int = 0,
    some_experts: bool = False,
) -> str:
    """Return a description of the model: family, layers by stack, heads, width, codes, measured experts.

    If `some_experts` is true, the user asked for that many experts and the model may have more.

    >>> summary = {"family": "gpt2", "layers": 4, "distinct_layers": 4, "heads": 4, "hidden_size": 128}
    >>> model_facts(summary | {"matrices": 40, "codes": None}, {None: 4})
    'gpt2 · 4 layers × 4 heads · width 128 · 40 matrices'
    """
    facts = [str(summary["family"])]
    if towers := summary.get("towers"):
        facts += [f"{tower['tower']} {_size(tower, tower['layers'])}" for tower in towers]
    elif summary["heads"] is None:  # an adapter has none
        facts.append(count_of(summary["layers"], "layer"))
    else:
        facts.append(_size(summary, summary["layers"], stacks))
    if experts:
        facts.append(f"{count_of(experts, 'measured expert' if some_experts else 'expert')} per layer")
    facts.append(count_of(summary["matrices"], "matrix", "matrices"))
    return " · ".join([*facts, *filter(None, [summary.get("codes")])])


def _size(sizes: Mapping[str, Any], layers: int, stacks: Mapping[str | None, int] = {}) -> str:
    named = {name: count for name, count in stacks.items() if name}
    shared = sizes.get("distinct_layers")
    words = count_of(layers, "layer")
    if len(named) > 1 and sum(named.values()) == layers:
        words = " + ".join(f"{count} {name}" for name, count in named.items()) + " layers"
    elif shared is not None and shared < layers:
        words += f" ({shared} distinct)"
    width = sizes["hidden_size"] or "varies"
    return f"{words} × {count_of(sizes['heads'], 'head')} · width {width}"


def findings_sentence(summary: Mapping[str, Any]) -> str | None:
    """Return a sentence that counts the findings, or None for a study.

    >>> findings_sentence({"findings": {"rules": 20, "note": 0, "warning": 0, "error": 0}})
    'No problems found (20 checks).'
    >>> findings_sentence({"findings": {"rules": 20, "note": 1, "warning": 0, "error": 2}})
    'Found 2 errors, 1 note (20 checks).'
    """
    counts = summary["findings"]
    if counts["rules"] is None:
        return None
    checks = checks_text(counts["rules"], skipped_checks(summary))
    if counts["error"] or counts["warning"]:
        return f"Found {count_by_level(counts)} ({checks})."
    notes = f", {count_of(counts['note'], 'note')}" if counts["note"] else ""
    return f"No problems found ({checks}{notes})."


def skipped_checks(summary: Mapping[str, Any]) -> int:
    """Return how many checks did not run on parts of a model (0 for the result of another version)."""
    ours = summary.get("attnlaw_version") == __version__
    return len(DETECTORS) - summary["findings"]["rules"] if ours else 0


def training_line(summary: Mapping[str, Any]) -> Line | None:
    """Return a line that says whether the weights look trained, or None if no matrix was tested."""
    return null_test_line(summary["not_random"])


def is_comparable(summary: Mapping[str, Any]) -> bool:
    """Return whether the model can be compared with the atlas. An adapter is not a whole model."""
    return bool(summary.get("atlas")) and (summary["heads"] is not None or bool(summary.get("towers")))


def comparison_line(summary: Mapping[str, Any], head_size: int | None = None) -> Line | None:
    """Return a line that compares the model with the atlas, or None. Ranks depend on `head_size`."""
    if not is_comparable(summary):
        return None
    unusual = unusual_numbers(summary["atlas"])
    if not unusual.is_unusual:
        return Line(unusual.sentence, AnswerStatus.OK)
    size = f" ({head_size} here)" if head_size else ""
    ranks = f"; ranks depend on the head size{size}" if unusual.has_ranks else ""
    shown = unusual.lines[:MOST_UNUSUAL]
    widths = [max(len(line[part]) for line in shown) for part in range(2)]
    details = [
        f"{label:<{widths[0]}}  {value:<{widths[1]}}  (others: {others})" for label, value, others in shown
    ]
    more = len(unusual.lines) - len(shown)
    details += [f"and {more} more (--details)"] if more else []
    return Line(
        unusual.sentence,
        AnswerStatus.UNUSUAL,
        (
            "Compared: median ranks, norms and numbers of strong directions (--details names the models).",
            f"Unusual does not mean wrong{ranks}.",
            *details,
        ),
    )


def note_lines(summary: Mapping[str, Any]) -> list[Line]:
    return [Line(f"Note: {text}.") for text in summary["warnings"] if not text.startswith(NO_PROXIES)]


def remarks(summary: Mapping[str, Any]) -> list[str]:
    """Return the sentences about norms, logits, proxies and extensions that `--details` shows."""
    logits = logit_sentence(summary)
    return [
        norm_basis_sentence(summary),
        *([] if logits is None else [logits]),
        *([summary["meaning"]] if summary["proxies"] else []),
        *proxy_remarks(summary),
        *missing_proxies(summary),
        *extension_remarks(summary),
    ]


def missing_proxies(summary: Mapping[str, Any]) -> list[str]:
    """Return a sentence that says why there are no proxies, or an empty result if there are proxies."""
    reasons = [text for text in summary["warnings"] if text.startswith(NO_PROXIES)]
    return [f"{reason[:1].upper()}{reason[1:]}." for reason in reasons]


def proxy_entries(proxies: Mapping[str, Any]) -> list[tuple[str, float, float | None]]:
    """Return tuples (label, log10, error beyond round-off) of the proxies, in the order of `BOUNDS`."""
    fixed = {f"fixed_p_{p}": entry for p, entry in proxies["fixed_p"].items()}
    known = {**proxies, **fixed}
    return [
        (bound.label, known[name]["log10"], _beyond_round_off(known[name].get("error")))
        for name, bound in BOUNDS.items()
        if name in known
    ]


def proxy_remarks(summary: Mapping[str, Any]) -> list[str]:
    """Return sentences on the proxy at the given sample size, and on the gain from choosing p, if known."""
    lines = []
    if summary["proxies"] and "samples" in summary:
        value, error = (summary["proxy_over_sqrt_samples"].get(key) for key in ("log10", "error"))
        verdict = (
            "A bound above 1 would say nothing about test error" if value > 0 else "The value is below 1"
        )
        lines.append(
            f"Spectrum-adaptive proxy / sqrt(n) at n = {summary['samples']}: {_power(value, error)}. "
            f"{verdict}; this is a proxy, not a bound."
        )
    if summary["rank_count"]:
        lines.append(
            "Here the spectrum-adaptive proxy only counts ranks (p = 0 for every matrix), so it does not "
            "show what the model learned. For a classifier, this command measures the scale that the "
            "proxy lacks: attnlaw margins MODEL --file INPUTS.txt --amplification"
        )
    elif summary["value_of_adaptivity"] is not None:
        gain, error = summary["value_of_adaptivity"], summary["value_of_adaptivity_error"]
        size = f"{gain:.3g}{_format_error(error)} times as large as"
        same = "as large as" if f"{gain:.3g}" == "1" and not error else size
        lines.append(
            f"If all matrices share the best single p, the proxy is {same} if each matrix has its own p."
        )
    return lines


def extension_remarks(summary: Mapping[str, Any]) -> list[str]:
    """Return a sentence on the parts of the model that the paper does not cover, if there are any."""
    named = ", ".join(summary["extensions"])
    return [f"The paper does not cover {named}; attnlaw extends its formula."] if named else []


def norm_basis_sentence(summary: Mapping[str, Any]) -> str:
    """Return a sentence that says whether norms include the gain of the norm layer before a matrix."""
    unknown = ", ".join(KINDS[kind].label for kind in summary["norms_unknown"])
    if summary["norms"] == "stored":
        stored = (
            "Norms and stable ranks come from the stored matrices, without the gain of the norm layer before"
        )
        return f"{stored} them (not known for {unknown})." if unknown else f"{stored} them."
    applied = "Norms and stable ranks include the gain of the LayerNorm or RMSNorm before the matrix."
    left_out = f" attnlaw does not know this gain for {unknown} and leaves it out." if unknown else ""
    return f"{applied}{left_out}"


def logit_sentence(summary: Mapping[str, Any]) -> str | None:
    """Return a sentence that says which types can hold the logits of any input, or None without heads.

    >>> found = {"heads": 72, "bounded": 72, "beyond_float8": 2, "beyond_float16": 0, "unbounded": None}
    >>> logit_sentence({"logits": found})
    'No input can overflow float16 logits in 72 of 72 heads, or float8 (E4M3) logits in 70 of 72.'
    >>> logit_sentence({"logits": found | {"beyond_float8": 0}})
    'No input can overflow the logits of any of the 72 heads in float16 or float8 (E4M3).'
    """
    logits = summary["logits"]
    heads = logits["heads"]
    if not heads:
        return None
    missing = f" attnlaw knows no bound for {logits['unbounded']}." if logits["unbounded"] else ""
    if not logits["bounded"]:
        return f"attnlaw knows no bound for the logits of any head.{missing}"
    halves, eighths = (logits["bounded"] - logits[f"beyond_float{bits}"] for bits in (16, 8))
    if halves == eighths == heads:
        every = "the only head" if heads == 1 else f"any of the {heads} heads"
        return f"No input can overflow the logits of {every} in float16 or float8 (E4M3).{missing}"
    return (
        f"No input can overflow float16 logits in {halves} of {heads} heads, "
        f"or float8 (E4M3) logits in {eighths} of {heads}.{missing}"
    )


def _power(log10: float, error: float | None) -> str:
    """Format a number, given its logarithm, as a power of 10, and written out if its size is ordinary."""
    if given := _format_error(error):
        return f"10^({log10:.4f}{given})"
    return f"10^{log10:.4f}" + (f" = {10**log10:.3g}" if -4 < log10 < 3 else "")


def _format_error(error: float | None) -> str:
    """Format an error as " ± 0.01"; empty if there is none, or only round-off."""
    known = _beyond_round_off(error)
    return "" if known is None else f" ± {known:.1g}"


def _beyond_round_off(error: float | None) -> float | None:
    return error if error and error > ROUND_OFF else None
