"""Compute the numbers of a whole model, and build the content of `summary.json`.

If a model has several towers (text and image), each tower is a separate network and has separate proxies.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from math import log
from typing import Any

import polars as pl

from attnlaw.analysis.atlas.compare import atlas_entry
from attnlaw.analysis.audit.rows import log10, measured_leaves
from attnlaw.analysis.columns import LEVELS, TOWERS
from attnlaw.analysis.findings.detectors import DETECTORS, Finding
from attnlaw.analysis.findings.evidence import EXPERTS, Subject
from attnlaw.analysis.fit.null import Rejections
from attnlaw.checkpoints.blocks import NO_NORM, Attention
from attnlaw.checkpoints.model import Model
from attnlaw.checkpoints.network import KINDS, MatrixLocation, Network
from attnlaw.core.estimate import Estimate
from attnlaw.core.quantity import cells_to_values
from attnlaw.core.result import Result
from attnlaw.core.tables import quantity_frame
from attnlaw.spectra.spectrum import Spectrum
from attnlaw.theory.bounds import BOUNDS
from attnlaw.theory.bounds.logits import FLOAT8_E4M3, FLOAT16, why_no_bound
from attnlaw.theory.bounds.proxies import Proxies, proxies, why_no_proxies

# Columns with the amplification by all layers above the first. The first column that has a value is used.
ALPHAS = ("log10_alpha_applied", "log10_alpha")
MOST_BLOCKS = 3  # number of blocks that a sentence names
COMPARABLE = ("rejected_share", "median_outliers", "median_effective_rank_qk", "log10_amplification")
MEANING = (
    "Proxies are leading complexity factors (no constants, no logarithms): they describe weights and do not "
    "rank models by how they generalize; they are not probabilities and not guarantees."
)


def case_values(
    model: Model,
    matrices: int,
    bounds: Proxies | None,
    per_application: Proxies | None,
    not_random: Rejections,
    samples: int | None,
    reason: str | None,
) -> dict[str, Any]:
    """Return sizes, null test, proxies (also by application) and warnings of one model by name."""
    network = model.network
    layers = {location.layer for location, _ in network.leaves() if location.layer is not None}
    values: dict[str, Any] = {
        "family": model.family,
        "codes": model.codes,
        "depth": None if network.towers else (network.depth or len(layers)) + len(network.other_layers),
        "distinct_layers": len(layers) + len(network.other_layers),
        "hidden_size": network.hidden_size,
        "head_count": model.heads,
        "matrix_count": matrices,
        "activation": network.activation,
        **{f"not_random_{name}": value for name, value in vars(not_random).items()},
        "extensions": list(model.extensions),
        "warnings": [*model.warnings, *([] if reason is None else [f"no proxies: {reason}"])],
        "meaning": MEANING,
        "remark": None if reason is None else f"no proxies: {reason}",
    }
    for prefix, known in (("", bounds), ("per_application_", per_application)):
        if known is not None:
            values |= {f"{prefix}log10_{name}": log10(value) for name, value in known.values.items()}
    if bounds is None:
        return values
    if samples is not None:
        whole = bounds.values["spectrum_adaptive"]
        divided = Estimate(whole.value - log(samples) / 2, whole.error)
        values["proxy_over_sqrt_samples_log10"] = log10(divided)
    return values | {"value_of_adaptivity": bounds.adaptivity, "rank_count": bounds.rank_count}


def experts_sentence(measured: int, experts: int) -> str:
    """Return a sentence that says how many experts were measured, and which checks were skipped.

    >>> experts_sentence(8, 64).split(":")[0]
    '8 of 64 experts measured (--experts 8)'
    """
    *names, last = (detector.name for detector in DETECTORS.values() if EXPERTS in detector.needs)
    return (
        f"{measured} of {experts} experts measured (--experts {measured}): the checks {', '.join(names)} "
        f"and {last} need every expert and were skipped; other checks did not see {experts - measured} "
        "experts"
    )


def finding_values(findings: Sequence[Finding], subject: Subject) -> dict[str, Any]:
    """Count the findings of each level, and the rules that were checked."""
    return {
        **{f"findings_{level}": sum(finding.level == level for finding in findings) for level in LEVELS},
        "finding_rules": sum(subject.allows(detector.needs) for detector in DETECTORS.values()),
    }


def comparable_values(matrices: pl.DataFrame, layers: pl.DataFrame, not_random: Rejections) -> dict[str, Any]:
    """Return the numbers that differ most between trained models, for a table of several models."""
    qk = matrices.filter(pl.col("kind") == "qk")["effective_rank"]
    alpha = next((column for column in ALPHAS if layers.height and layers[column][0] is not None), None)
    return {
        "rejected_share": not_random.rejected / not_random.tested if not_random.tested else None,
        "median_outliers": matrices["outliers"].median(),
        "median_effective_rank_qk": qk.median(),
        "log10_amplification": None if alpha is None else layers[alpha][0],
    }


def norm_values(model: Model, spectra: Network[Spectrum | None], as_stored: bool) -> dict[str, Any]:
    """Return `norms` ("applied" or "stored") and the kinds of matrix whose norm layer is not known."""
    unknown: dict[str, None] = {}
    folded = False
    for location, product, spectrum in measured_leaves(model.network, spectra):
        if spectrum.applied is None:
            unknown[location.kind] = None
        else:
            folded |= product.norm != NO_NORM
    return {"norms": "applied" if folded and not as_stored else "stored", "norms_unknown": list(unknown)}


def logit_values(model: Model, spectra: Network[Spectrum | None], matrices: pl.DataFrame) -> dict[str, Any]:
    """Count the heads whose logits may exceed float8 or float16, and name the blocks without a bound."""
    bounds = matrices.filter(pl.col("kind").is_in([kind.name for kind in KINDS.values() if kind.scores]))
    reasons: dict[str, dict[MatrixLocation, None]] = {}
    for location, product, _ in measured_leaves(model.network, spectra):
        if KINDS[location.kind].scores and isinstance(product.block, Attention):
            reason = why_no_bound(model, location, product.block)
            if reason is not None:
                reasons.setdefault(reason, {})[replace(location, head=None)] = None
    phrases = (f"{_locations(locations)} ({reason})" for reason, locations in reasons.items())
    known = bounds["logit_bound"]
    return {
        "logit_heads": bounds.height,
        "logit_heads_bounded": known.count(),
        "logit_heads_beyond_float8": int((known > FLOAT8_E4M3).sum()),
        "logit_heads_beyond_float16": int((known > FLOAT16).sum()),
        "logit_unbounded": "; ".join(phrases) or None,
    }


def _locations(locations: Iterable[MatrixLocation]) -> str:
    """Name the first three blocks, and count the others."""
    named = [
        f"{location.stack or ''} layer {location.layer} {location.kind}".lstrip() for location in locations
    ]
    more = len(named) - MOST_BLOCKS
    return ", ".join(named[:MOST_BLOCKS]) + (f" and {more} more" if more > 0 else "")


def build_summary(result: Result) -> dict[str, Any]:
    """Return the content of summary.json for one model. docs/commands/audit.md documents its keys."""
    row, values = result.row(), result.values()
    # A shared layer has one alpha in `layers` and one for each application in `applications`.
    alphas = result.tables.get("applications")
    alphas = result.tables.get("layers") if alphas is None or not alphas.height else alphas
    names = result.tables["matrices"]["model"] if "matrices" in result.tables else [row["model"]]
    adaptivity = values["value_of_adaptivity"]
    summary: dict[str, Any] = {
        "model": next(iter(names), row["model"]),
        "family": values["family"],
        "codes": values["codes"],
        "layers": values["depth"],
        "distinct_layers": values["distinct_layers"],
        "hidden_size": values["hidden_size"],
        "heads": values["head_count"],
        "matrices": values["matrix_count"],
        "activation": values["activation"],
        "not_random": {
            name: values[f"not_random_{name}"] for name in ("tested", "rejected", "expected", "p_value")
        },
        "findings": {
            "rules": values["finding_rules"],
            **{level: values[f"findings_{level}"] for level in LEVELS},
        },
        **{name: values[name] for name in COMPARABLE},
        "proxies": proxy_summary(values, "log10_"),
        "per_application": proxy_summary(values, "per_application_log10_"),
        **{
            name: None if alphas is None or not alphas[name].count() else alphas[name].to_list()
            for name in ("log10_alpha", "log10_alpha_error", "log10_alpha_applied")
        },
        "logits": {
            "heads": values["logit_heads"],
            **{
                name: values[f"logit_heads_{name}"] for name in ("bounded", "beyond_float8", "beyond_float16")
            },
            "unbounded": values["logit_unbounded"],
        },
        "norms": values["norms"],
        "norms_unknown": values["norms_unknown"] or [],
        "value_of_adaptivity": adaptivity and adaptivity.value,
        "value_of_adaptivity_error": adaptivity and adaptivity.error,
        "rank_count": values["rank_count"],
        "extensions": values["extensions"] or [],
        "warnings": values["warnings"] or [],
        "meaning": values["meaning"],
        "attnlaw_version": row["attnlaw_version"],
    }
    if values["proxy_over_sqrt_samples_log10"] is not None:
        summary["samples"] = row["samples"]
        summary["proxy_over_sqrt_samples"] = _entry(values["proxy_over_sqrt_samples_log10"])
    towers = result.tables.get("towers")
    if towers is not None and towers.height:
        summary["towers"] = tower_summaries(towers)
    return summary | {"atlas": atlas_entry(result.tables.get("atlas"))}


def tower_summaries(towers: pl.DataFrame) -> list[dict[str, Any]]:
    return [
        {name: row[name] for name in ("tower", "layers", "hidden_size", "heads", "activation")}
        | {"proxies": proxy_summary(cells_to_values(TOWERS, row), "log10_")}
        for row in towers.iter_rows(named=True)
    ]


def proxy_summary(values: dict[str, Any], prefix: str) -> dict[str, Any] | None:
    """Return the proxies of `values` whose names start with `prefix`, or None if there are none."""
    if values[f"{prefix}spectrum_adaptive"] is None:
        return None
    entries = {name: _entry(values[f"{prefix}{name}"]) for name in BOUNDS}
    indexed = [bound for bound in BOUNDS.values() if bound.index is not None]
    fixed = {str(bound.index): entries.pop(bound.name) for bound in indexed}
    return entries | {"fixed_p": fixed}


def _entry(log10: Estimate | None) -> dict[str, float | None]:
    """Return an entry of summary.json for a logarithm. It has the key "error" only if there is an error."""
    entry = {"log10": None if log10 is None else log10.value}
    return entry if log10 is None or log10.error is None else entry | {"error": log10.error}


def tower_proxies(spectra: Network[Spectrum | None]) -> dict[str, Proxies]:
    """Return the proxies of every tower by its name. Towers without proxies are left out."""
    towers = {tower.name: spectra.tower(tower) for tower in spectra.towers}
    return {name: proxies(tower) for name, tower in towers.items() if why_no_proxies(tower) is None}


def tower_table(model: Model, proxies_by_tower: dict[str, Proxies]) -> pl.DataFrame | None:
    """Return a table with the sizes and proxies of each tower, or None for a model without towers."""
    rows = []
    for tower in model.network.towers:
        bounds, network = proxies_by_tower.get(tower.name), model.network.tower(tower)
        values = {} if bounds is None else bounds.values
        rows.append(
            {
                "tower": tower.name,
                "layers": network.depth,
                "hidden_size": network.hidden_size,
                "heads": model.layers[tower.layers[0]].attention.heads,
                "activation": tower.activation,
                **{f"log10_{name}": log10(value) for name, value in values.items()},
            }
        )
    return quantity_frame(TOWERS, rows) if rows else None


def format_tower_proxies(proxies_by_tower: dict[str, Proxies]) -> str:
    shown = {name: log10(bounds.values["spectrum_adaptive"]) for name, bounds in proxies_by_tower.items()}
    return ", ".join(f"{name} 10^{value.value:.4g}" for name, value in shown.items() if value is not None)
