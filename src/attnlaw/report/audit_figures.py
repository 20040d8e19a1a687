"""The figures of an audit, one model or several side by side: for its page and for a paper."""

from __future__ import annotations

import re
from functools import partial
from itertools import chain, count

import polars as pl

from attnlaw.report.audit_charts import amplification, head_map, proxy_chart, shares
from attnlaw.report.bounds_charts import MOST_LINES, compare, contribution_curves, spectrum_decay
from attnlaw.report.figure import Figure
from attnlaw.report.fit_charts import law_map
from attnlaw.report.saved import AuditRows, short_names

# Letters of a model's name in the name of a file.
LONGEST = 80


def audit_figures(audit: AuditRows) -> list[Figure]:
    """Whatever the rows allow: a figure without data is left out."""
    labels = short_names(audit.names)
    endings = _endings(labels)
    figures = [*_comparisons(audit, labels), *_decay(audit, labels)]
    for model, label in labels.items():
        own = audit.matrices.filter(pl.col("model") == model)
        ending, of, one = (endings[model], f": {label}", label) if endings else ("", "", None)
        if own["log10_contribution"].count():
            caption = (
                "Lines: what the matrices of a layer add to the proxy (median), by Schatten index p. "
                "Dots: each matrix at the p where it adds least. Dots at p = 0 count ranks; further right "
                "lie matrices whose singular values, times their scale γαL, are small: they decay, or the "
                "scale is small."
            )
            layered = own.filter(pl.col("layer").is_not_null())
            layers = layered["layer"].n_unique()
            if layers > MOST_LINES:
                caption += f" Of the {layers} layers {MOST_LINES} have a line; every matrix has a dot."
            chart = partial(contribution_curves, layered)
            title = f"Contribution curves C(p){of}"
            figures.append(Figure(f"contributions{ending}", title, caption, chart, model=one))
        if own["head"].count():
            caption = (
                "Each cell is a head; brighter means a larger spectral norm, on a logarithmic scale per kind."
            )
            chart = partial(head_map, own)
            figures.append(Figure(f"heads{ending}", f"Heads{of}", caption, chart, on_page=False, model=one))
    if audit.fits is not None and audit.fits["law"].count():
        caption = "Each cell is a matrix, coloured by the law that describes its spectrum."
        laws = partial(law_map, audit.fits.filter(pl.col("law").is_not_null()))
        figures.append(Figure("laws", "Fitted laws", caption, laws, on_page=False))
    return figures


def _endings(labels: dict[str, str]) -> dict[str, str]:
    """What the names of figures of one model end with, where there are several: fit for a file, no two alike.

    >>> _endings({"a/b": "b", "a/B": "B", "c: d": "c: d"})
    {'a/b': '_b', 'a/B': '_B-2', 'c: d': '_c-d'}
    """
    found: dict[str, str] = {}
    for model, label in labels.items() if len(labels) > 1 else ():
        plain = re.sub(r"[^A-Za-z0-9.]+", "-", label)[-LONGEST:].strip("-.") or "model"
        taken = {ending.lower() for ending in found.values()}
        numbered = (f"_{plain}-{number}" for number in count(2))
        found[model] = next(name for name in chain([f"_{plain}"], numbered) if name.lower() not in taken)
    return found


def _comparisons(audit: AuditRows, labels: dict[str, str]) -> list[Figure]:
    figures = []
    bounded = [summary for summary in audit.summaries if summary["proxies"]]
    if bounded:
        caption = "Proxies on a logarithmic axis: leading factors of bounds, to be compared, not guarantees."
        figures.append(
            Figure("proxies", "Proxies", caption, partial(proxy_chart, bounded, labels), on_page=False)
        )
    known = audit.layers.filter(pl.col("log10_alpha").is_not_null())
    if known.height:
        caption = "How much the layers above a layer can stretch an error made there; 0 at the last layer."
        chart = partial(amplification, known, labels)
        figures.append(Figure("amplification", "Amplification by layer", caption, chart, on_page=False))
        caption = "What one layer adds to the proxy, divided among its kinds of matrix."
        figures.append(
            Figure("shares", "Shares by layer", caption, partial(shares, known, labels), on_page=False)
        )
    if len(labels) > 1:
        caption = (
            "Medians over the heads of a layer, one row per kind of matrix; γαL is the scale of its "
            "contribution C(p*). Where lines part, the models differ in that kind of matrix at that depth; "
            "where they coincide, they do not."
        )
        figures.append(
            Figure("comparison", "Models layer by layer", caption, partial(compare, audit.matrices, labels))
        )
    return figures


def _decay(audit: AuditRows, labels: dict[str, str]) -> list[Figure]:
    living = audit.spectra.filter(pl.col("singular_values").list.max() > 0)
    if not living.filter(pl.col("layer").is_not_null()).height:
        return []
    caption = (
        "Singular values over the largest, the median over a model's matrices at each rank. A steep fall at "
        "the left is a matrix that a few directions carry; a flat line uses all its dimensions alike."
    )
    return [Figure("decay", "Decay of singular values", caption, partial(spectrum_decay, living, labels))]
