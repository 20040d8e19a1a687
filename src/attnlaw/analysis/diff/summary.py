"""The conclusions of a comparison: verdicts on the model, counts, and a sentence that sums them up."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np

from attnlaw.analysis.diff.columns import MODEL_VERDICTS, TENSOR_VERDICTS
from attnlaw.analysis.diff.compare import ModelComparison
from attnlaw.analysis.diff.tensors import TensorChange
from attnlaw.analysis.diff.update import SIDES
from attnlaw.checkpoints.network import KINDS, MatrixLocation

# The singular values of a rotated model differ from the base by at most this many times the floor.
MAX_ROTATED_GAP = 10.0
# If the median cosine of the maps is below this, they may be rotated.
TURNED = 0.5
# A kind of map whose scale differs from 1 by more than this has shrunk or grown.
SCALED = 0.02
# How a sentence reports the verdicts on matrices of layers, in its order.
VERDICT_TEMPLATES = {
    "non-finite": "NaN or infinite entries in {of}",
    "low-rank": "low-rank updates in {of}",
    "dense": "dense updates in {of}",
    "noise": "noise in {of}",
    "unrelated": "{of} unrelated to the base",
    "rounded": "{of}",
    "below-floor": "changes below the rounding of the file in {of}",
    "reshaped": "{of} reshaped",
    "removed": "{of} removed",
    "identical": "{of} identical",
}
VERDICT_ORDER = tuple(VERDICT_TEMPLATES)
PLURALS = {"matrix": "matrices"}


def model_verdicts(comparison: ModelComparison) -> list[str]:
    """Return the names of the verdicts on the model, followed by those on its tensors."""
    maps = [map_change for _, map_change in comparison.maps]
    ranks = [map_change.numbers.get("rank") for map_change in maps]
    cosines = [
        map_change.numbers["cosine"] for map_change in maps if map_change.numbers.get("cosine") is not None
    ]
    apart = [map_change.max_gap for map_change in maps]
    folded = [unit.folded for unit in comparison.units if unit.folded is not None]
    holds = {
        "permuted": any(unit.permuted for unit in comparison.units),
        "regauged": any(unit.regauged for unit in comparison.units) and not any(ranks),
        "rotated": bool(cosines)
        and float(np.median(cosines)) < TURNED
        and all(gap is not None and gap <= MAX_ROTATED_GAP for gap in apart),
        "folded": bool(folded) and all(folded),
    }
    tensor_verdicts = {change.verdict for _, change in comparison.tensors}
    return [
        *(name for name in MODEL_VERDICTS if holds[name]),
        *(name for name in TENSOR_VERDICTS if name in tensor_verdicts),
    ]


def summarize(comparison: ModelComparison) -> dict[str, Any]:
    """Return the quantities of a comparison by name."""
    counts = Counter(change.verdict for _, change in comparison.tensors)
    maps = [
        (location, map_change.numbers)
        for location, map_change in comparison.maps
        if map_change.numbers.get("size") is not None
    ]
    sized = [(tensor, change) for tensor, change in comparison.tensors if change.size]
    worst_map = max(maps, key=lambda pair: pair[1]["size"], default=None)
    worst_tensor = max(sized, key=lambda pair: pair[1].size or 0.0, default=None)
    verdicts = model_verdicts(comparison)
    values: dict[str, Any] = {
        "verdict": sentence(comparison, verdicts),
        "verdicts": verdicts,
        "map_count": len(comparison.maps),
        "tensor_count": len(comparison.tensors),
        **{numbers.column: counts[numbers.name] for numbers in TENSOR_VERDICTS.values()},
        "largest_size": worst_map and worst_map[1]["size"],
        "worst_map": worst_map and location_name(worst_map[0]),
        "worst_tensor": worst_tensor and worst_tensor[0].name,
        "worst_tensor_size": worst_tensor and worst_tensor[1].size,
        "least_sqnr_db": worst_tensor and worst_tensor[1].sqnr_db,
        **{name: _total(comparison, name) for name in ("intruders", "new")},
    }
    for kind in KINDS.values():
        updates = [numbers for location, numbers in maps if location.kind == kind.name]
        if kind.group is not None and updates:
            values |= {
                f"size_{kind.name}": float(np.median([numbers["size"] for numbers in updates])),
                f"scale_{kind.name}": float(np.median([update["scale"] for update in updates])),
            }
    return values


def location_name(location: MatrixLocation) -> str:
    """Return the location of a map in words.

    >>> location_name(MatrixLocation(11, "vo", head=0))
    'layer 11 VO head 0'
    """
    words = [
        location.stack,
        None if location.layer is None else f"layer {location.layer}",
        KINDS[location.kind].label,
    ]
    words += [None if location.head is None else f"head {location.head}"]
    words += [None if location.expert is None else f"expert {location.expert}"]
    return " ".join(word for word in words if word)


def sentence(comparison: ModelComparison, verdicts: Sequence[str]) -> str:
    """Summarise a comparison in one line: verdicts, changes of matrices, changes of other tensors."""
    every = [change.verdict for _, change in comparison.tensors]
    if every and set(every) == {"identical"}:
        return f"identical: all {len(every)} tensors are equal"
    inside = [change for tensor, change in comparison.tensors if tensor.base in comparison.layer_tensors]
    by = {name: [change for change in inside if change.verdict == name] for name in VERDICT_ORDER}
    parts = [f"{name}: {MODEL_VERDICTS[name].says}" for name in verdicts if name in MODEL_VERDICTS]
    parts += [_describe_verdict(name, changes, len(inside)) for name, changes in by.items() if changes]
    if len(by["dense"]) > len(inside) / 2:
        more = "".join(
            f", {text}" for text in (*_describe_heads(comparison), *_most_changed_layer(comparison))
        )
        parts = [f"fine-tuned: {part}{more}" if part.startswith("dense") else part for part in parts]
        parts += _describe_scale_change(comparison)
    new = _total(comparison, "new")
    if new and not by["unrelated"]:
        parts.append(f"{new} new {_plural('direction', new)}")
    outside = [change for tensor, change in comparison.tensors if tensor.base not in comparison.layer_tensors]
    counts = Counter(change.verdict for change in outside if change.verdict != "identical")
    if counts:
        parts.append("other tensors: " + ", ".join(f"{count} {name}" for name, count in counts.items()))
    return "; ".join(parts)


def _describe_verdict(name: str, changes: Sequence[TensorChange], total: int) -> str:
    text = VERDICT_TEMPLATES[name].format(of=f"{len(changes)} of {total} {_plural('matrix', total)}")
    if name == "rounded":
        formats = sorted({change.format.name for change in changes if change.format is not None})
        text = f"rounded to {', '.join(formats)}: {text}"
    if name == "low-rank":
        text = f"{text}, rank {_span([change.rank or 0 for change in changes], 'd')}"
    decibels = [change.sqnr_db for change in changes if change.sqnr_db is not None]
    if name == "rounded" and decibels:
        return f"{text}, {_span(decibels, '.1f')} dB"
    sizes = [change.size for change in changes if change.size]
    return f"{text}, {_percent(sizes)}" if sizes and name != "unrelated" else text


def _describe_heads(comparison: ModelComparison) -> list[str]:
    sizes = [
        map_change.numbers.get("size") or 0.0
        for location, map_change in comparison.maps
        if location.head is not None
    ]
    return [f"heads up to {_percent([max(sizes)])}"] if sizes else []


def _most_changed_layer(comparison: ModelComparison) -> list[str]:
    sizes: dict[str, list[float]] = {}
    for location, map_change in comparison.maps:
        if location.layer is not None and map_change.numbers.get("size") is not None:
            sizes.setdefault(f"{location.stack or ''} layer {location.layer}".strip(), []).append(
                map_change.numbers["size"]
            )
    medians = {layer: float(np.median(layer_sizes)) for layer, layer_sizes in sizes.items()}
    if len(medians) < 2:
        return []
    return [f"most in {max(medians, key=lambda layer: medians[layer])}"]


def _describe_scale_change(comparison: ModelComparison) -> list[str]:
    """Return a list with a phrase if matrices of every kind shrank, or if those of every kind grew."""
    scales: dict[str, list[float]] = {}
    for location, map_change in comparison.maps:
        if map_change.numbers.get("scale") is not None:
            scales.setdefault(location.kind, []).append(map_change.numbers["scale"])
    changes = [float(np.median(kind_scales)) - 1 for kind_scales in scales.values()]
    if changes and max(changes) < -SCALED:
        return [f"weight decay: everything shrank by {_percent([-change for change in changes])}"]
    if changes and min(changes) > SCALED:
        return [f"everything grew by {_percent(changes)}"]
    return []


def _total(comparison: ModelComparison, name: str) -> int:
    """Return the sum over all maps and both sides of a count such as "new"."""
    return sum(
        map_change.numbers.get(f"{name}_{side}") or 0 for _, map_change in comparison.maps for side in SIDES
    )


def _percent(values: Sequence[float]) -> str:
    """Format a range of shares as percentages.

    >>> _percent([0.118, 0.63]), _percent([0.0017])
    ('12 to 63 percent', '0.17 percent')
    """
    return f"{_span([100 * value for value in values], '.2g')} percent"


def _span(values: Sequence[float], form: str) -> str:
    low, high = format(min(values), form), format(max(values), form)
    return low if low == high else f"{low} to {high}"


def _plural(word: str, count: int) -> str:
    return word if count == 1 else PLURALS.get(word, f"{word}s")
