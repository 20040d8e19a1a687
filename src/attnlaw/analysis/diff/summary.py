"""The conclusions of a comparison: verdicts on the model, counts, and a sentence that sums them up."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from attnlaw.analysis.diff.columns import MODEL_VERDICTS, TENSOR_VERDICTS
from attnlaw.analysis.diff.compare import ModelComparison
from attnlaw.analysis.diff.matching import TensorPair
from attnlaw.analysis.diff.tensors import TensorChange
from attnlaw.analysis.diff.update import SIDES
from attnlaw.checkpoints.network import KINDS, MatrixLocation
from attnlaw.core.errors import printable

# The singular values of a rotated model differ from the base by at most this many times the floor.
MAX_ROTATED_GAP = 10.0
# If the median cosine of the maps is below this, they may be rotated.
TURNED = 0.5
# A kind of map whose scale differs from 1 by more than this has shrunk or grown.
SCALED = 0.02
# Kinds of stored tensors, in the order in which they are counted.
TENSOR_KINDS = {
    "matrix": "matrices",
    "embedding": "embeddings",
    "vector": "vectors",
    "tensor": "other tensors",
}
# Groups of at most this many tensors are named, larger ones are counted.
MOST_NAMED = 3
# Noise of this many roundings and more comes from adding an update in several steps.
SEVERAL_STEPS = 3.0
# An adapter changes most entries of a matrix, also in a narrow file.
MOST_UNCHANGED = 0.9
HIDDEN = ("partly-hidden", "below-floor")
DAMAGES = ("non-finite", "zeroed", "reinitialised", "unrelated", "transposed", "moved", "permuted")


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
        "rearranged": bool(comparison.rearrangement.sentences),
        "reordered": any(unit.permuted for unit in comparison.units),
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
        "compared": coverage(comparison),
        "next_step": next_step(comparison),
        "verdicts": verdicts,
        "map_count": len(comparison.maps),
        "tensor_count": len(comparison.pairs),
        "not_compared": [printable(name) for name in (*comparison.left_out, *comparison.not_weights)],
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
    """Summarise a comparison: whole blocks first, then each verdict with its tensors, then what is equal."""
    changed = [pair for pair in comparison.tensors if pair[1].verdict != "identical"]
    if not changed:
        return f"Identical: {_count_all(comparison)} {_plural('is', len(comparison.pairs))} equal."
    described = ("rearranged", "reordered") if comparison.rearrangement.sentences else ()
    general = [
        MODEL_VERDICTS[name].says for name in verdicts if name in MODEL_VERDICTS and name not in described
    ]
    parts = [*comparison.rearrangement.sentences, *(f"{text[0].upper()}{text[1:]}." for text in general)]
    left = [pair for pair in changed if pair[0].name not in comparison.rearrangement.covered]
    writers = dict.fromkeys(DAMAGES, _say_damage) | {
        "rescaled": _say_rescaled,
        "low-rank": _say_low_rank,
        "dense": _say_dense,
        "noise": _say_plain("Noise without a direction"),
        "sparse": _say_plain("Single entries changed"),
        "changed": _say_plain("Other values"),
    }
    for name, write in writers.items():
        parts += write(comparison, [pair for pair in left if pair[1].verdict == name])
    parts += _say_coded(comparison, [pair for pair in left if pair[1].verdict == "coded"])
    parts += _say_hidden(comparison, [pair for pair in left if pair[1].verdict in HIDDEN])
    parts += _say_rounded(comparison, [pair for pair in left if pair[1].verdict == "rounded"])
    for name in ("reshaped", "added", "removed"):
        those = [pair for pair in left if pair[1].verdict == name]
        if those:
            parts.append(f"{name.capitalize()}: {_tensors_text(comparison, those, of=False)}.")
    if len(changed) < len(comparison.tensors):
        parts.append("Everything else is identical.")
    return " ".join(parts)


Changed = Sequence[tuple[TensorPair, TensorChange]]


def coverage(comparison: ModelComparison) -> str:
    """Say which tensors of both files were compared, and which were not."""
    counts = Counter(comparison.kind_of(pair) for pair in comparison.pairs)
    listed = ", ".join(f"{counts[kind]} {_kind(kind, counts[kind])}" for kind in TENSOR_KINDS if counts[kind])
    total = len(comparison.pairs)
    if not comparison.left_out:
        text = f"Compared: all {total} {_plural('tensor', total)} ({listed})."
    else:
        others = len(comparison.left_out)
        text = f"Compared: {total} of {total + others} tensors ({listed}). Not looked at: {others} others."
    if comparison.not_weights:
        count = len(comparison.not_weights)
        names = ", ".join(printable(name) for name in comparison.not_weights[:MOST_NAMED])
        more = f" and {count - MOST_NAMED} more" if count > MOST_NAMED else ""
        text += f" Not compared: {count} {_plural('tensor', count)} without weights ({names}{more})."
    return text


def next_step(comparison: ModelComparison) -> str | None:
    """Say what the changes look like and what to do next; None if there is nothing to do."""
    harmless = comparison.rearrangement.harmless
    by = {
        name: [
            change
            for pair, change in comparison.tensors
            if change.verdict == name and pair.name not in harmless
        ]
        for name in TENSOR_VERDICTS
    }
    if any(by[name] for name in DAMAGES):
        return "Look at these tensors first: a conversion or a merge may have put weights in the wrong place."
    if by["low-rank"] and not any(by[name] for name in ("dense", "noise", "partly-hidden", "changed")):
        if any((change.unchanged or 0.0) > MOST_UNCHANGED for change in by["low-rank"]):
            return None
        noise = [(change.roundings or 0.0, change.grid) for change in by["low-rank"]]
        roundings, grid = max(noise, key=lambda pair: pair[0])
        if roundings < SEVERAL_STEPS or grid is None:
            return "This looks like a merged LoRA adapter."
        return (
            f"This looks like a LoRA adapter, merged in about {np.sqrt(roundings):.0f} steps "
            f"(noise: {roundings:.3g} {grid.name} roundings)."
        )
    if any(by[name] for name in HIDDEN):
        return "The file's rounding hides the rest. Next: compare the checkpoint before it was rounded."
    return None


def verdict_text(row: Mapping[str, Any]) -> str:
    """Return the verdict on a tensor in words, from its row of `DIFF_TENSORS`.

    >>> verdict_text({"verdict": "low-rank", "rank_low": 4, "rank_high": 5})
    'low-rank, rank 4 to 5'
    >>> verdict_text({"verdict": "rescaled", "factor": 10.0, "along": "tensor"})
    'rescaled by 10'
    """
    verdict, low, high, then = row["verdict"], row.get("rank_low") or 1, row.get("rank_high"), row.get("then")
    after = f", then {then}" if then and then != "identical" else ""
    if verdict == "low-rank":
        rank = f"{low} or more" if high is None else _span([low, high], "d")
        return f"low-rank, rank {rank}"
    if verdict == "partly-hidden":
        return f"partly-hidden, at least {low} {_plural('direction', low)}"
    if verdict == "rounded":
        return f"rounded to {row['format']}"
    if verdict == "coded":
        return f"coded: {row['format']}, {percent(row['size'])} from the base"
    if verdict == "rescaled":
        if row["along"] == "tensor":
            return f"rescaled by {row['factor']:.4g}"
        return f"rescaled {row['along']} by {_span([row['factor_low'], row['factor_high']], '.3g')}"
    if verdict == "moved":
        return f"moved: it is the base's {row['source']}{after}"
    if verdict == "permuted":
        return f"permuted {row['along']}{after}"
    return f"{verdict}{after}"


def _count_all(comparison: ModelComparison) -> str:
    count = len(comparison.pairs)
    return f"{'all' if not comparison.left_out else 'the'} {count} compared {_plural('tensor', count)}"


def _tensors_text(comparison: ModelComparison, those: Changed, of: bool = True) -> str:
    """Return tensors in words: their names if they are few, otherwise how many of which kind.

    Args:
        of: whether to say how many there are of each kind.
    """
    if len(those) <= MOST_NAMED:
        return _join_words([printable(pair.name) for pair, _ in those])
    counts = Counter(comparison.kind_of(pair) for pair, _ in those)
    totals = Counter(comparison.kind_of(pair) for pair, _ in comparison.tensors)
    words = []
    for kind in TENSOR_KINDS:
        if counts[kind] and counts[kind] == totals[kind]:
            every = "all " if of and counts[kind] > 1 else ""
            words.append(f"{every}{counts[kind]} {_kind(kind, totals[kind])}")
        elif counts[kind]:
            total = totals[kind] if of else counts[kind]
            words.append(f"{counts[kind]}{f' of {total}' if of else ''} {_kind(kind, total)}")
    return _join_words(words)


def _say_damage(comparison: ModelComparison, those: Changed) -> list[str]:
    if not those:
        return []
    where, verb = _tensors_text(comparison, those), _plural("is", len(those))
    verdict = those[0][1].verdict
    if verdict == "moved" and len(those) <= MOST_NAMED:
        return [
            f"{printable(pair.name)} is the base's {printable(change.source or '')}{_then(change)}."
            for pair, change in those
        ]
    if verdict in ("permuted", "transposed") and len(those) <= MOST_NAMED:
        along = {"rows": "rows in another order", "columns": "columns in another order"}
        return [
            f"{printable(pair.name)} has {along[change.along or 'rows']}{_then(change)}."
            if verdict == "permuted"
            else f"{printable(pair.name)} is transposed{_then(change)}."
            for pair, change in those
        ]
    texts = {
        "non-finite": f"NaN or infinite entries in {where}.",
        "zeroed": f"All zero: {where}.",
        "reinitialised": f"Random weights that do not resemble the base in {where}.",
        "unrelated": f"Weights that do not resemble the base in {where}.",
        "moved": f"Weights of other tensors of the base in {where}.",
        "transposed": f"{where[0].upper()}{where[1:]} {verb} transposed.",
        "permuted": f"Rows or columns in another order in {where}.",
    }
    return [texts[verdict]]


def _then(change: TensorChange) -> str:
    return "" if change.then in (None, "identical") else f", then {change.then}"


def _say_rescaled(comparison: ModelComparison, those: Changed) -> list[str]:
    if not those:
        return []
    if len(those) > MOST_NAMED:
        factors = [
            factor
            for _, each in those
            for factor in (each.factor_low, each.factor_high)
            if factor is not None
        ]
        where = _tensors_text(comparison, those)
        return [f"Rescaled: {where} (factors {_span(factors, '.4g')})."]
    texts = []
    for pair, change in those:
        factors = [change.factor_low or 0.0, change.factor_high or 0.0]
        if change.along != "tensor" and factors == [0.0, 1.0]:
            texts.append(f"{printable(pair.name)}: some of its {change.along} are 0 now.")
            continue
        each = "" if change.along == "tensor" else f", each of its {change.along} by its own factor:"
        by = f"{change.factor:.4g}" if change.along == "tensor" else _span(factors, ".4g")
        texts.append(
            f"{printable(pair.name)} is the base's times{each} {by}.".replace("times,", "times a factor,")
        )
    return texts


def _say_low_rank(comparison: ModelComparison, those: Changed) -> list[str]:
    if not those:
        return []
    ranks = [
        rank for _, change in those for rank in (change.rank_low, change.rank_high or change.rank) if rank
    ]
    more = " or more" if any(change.rank_high is None for _, change in those) else ""
    sizes = _sizes([change.update_size or change.size for _, change in those])
    return [f"Low-rank update, rank {_span(ranks, 'd')}{more}, in {_of_text(comparison, those)}{sizes}."]


def _say_dense(comparison: ModelComparison, those: Changed) -> list[str]:
    if not those:
        return []
    counts = [change.directions for _, change in those if change.directions]
    sizes = _sizes([change.size for _, change in those])
    text = f"Dense update in {_of_text(comparison, those)}{sizes}"
    text += f": 90% of it is in {_span(counts, 'd')} directions." if counts else "."
    inside = [pair for pair, _ in comparison.tensors if comparison.kind_of(pair) == "matrix"]
    if sum(comparison.kind_of(pair) == "matrix" for pair, _ in those) <= len(inside) / 2:
        return [text]
    extra = [*_describe_heads(comparison), *_most_changed_layer(comparison)]
    return [
        text,
        *([f"{_join_words(extra).capitalize()}."] if extra else []),
        *_describe_scale_change(comparison),
    ]


def _say_plain(noun: str) -> Any:
    def say(comparison: ModelComparison, those: Changed) -> list[str]:
        if not those:
            return []
        if len(those) <= MOST_NAMED:
            named = [f"{printable(pair.name)}{_sizes([change.size])}" for pair, change in those]
            return [f"{noun} in {_join_words(named)}."]
        return [f"{noun} in {_of_text(comparison, those)}{_sizes([change.size for _, change in those])}."]

    return say


def _say_hidden(comparison: ModelComparison, those: Changed) -> list[str]:
    """Say what can be seen of updates that the rounding of the file hides, and what cannot."""
    if not those:
        return []
    grids = sorted({change.grid.name for _, change in those if change.grid is not None})
    rounding = f"{_join_words(grids)} rounding" if grids else "the rounding of the file"
    seen = [change.rank_low or 1 for _, change in those if change.verdict == "partly-hidden"]
    sizes = [change.update_size for _, change in those if change.update_size]
    limits = [change.update_size_most for _, change in those if change.update_size_most]
    floors = [change.rounding_size for _, change in those if change.rounding_size]
    where = _of_text(comparison, those)
    if not seen:
        text = f"Changes below {rounding} in {where}: no direction of them can be seen."
    else:
        largest = max([each.update_size or 0.0 for _, each in those])
        hides = "mostly hidden" if not floors or largest < 2 * max(floors) else "partly hidden"
        text = f"An update that is {hides} by {rounding} in {where}."
        some = f"in {len(seen)} of them, " if len(seen) < len(those) else ""
        text += (
            f" {some}{_directions_text(seen)} above {rounding}; the rest cannot be seen below it."
        ).replace("  ", " ")
    texts = [_capitalize_after_stop(text)]
    if sizes and floors:
        texts.append(f"The update's size is about {_percents(sizes)}; rounding alone is {_percents(floors)}.")
    elif limits:
        texts.append(f"The update's size is at most {_percents([max(limits)])}.")
    return texts


def _directions_text(counts: Sequence[int]) -> str:
    low, high = min(counts), max(counts)
    span = str(low) if low == high else (f"{low} or {high}" if high == low + 1 else f"{low} to {high}")
    return f"at least {span} {'direction rises' if high == 1 else 'directions rise'}"


def _capitalize_after_stop(text: str) -> str:
    first, stop, rest = text.partition(". ")
    return first + stop + (rest[:1].upper() + rest[1:])


def _say_rounded(comparison: ModelComparison, those: Changed) -> list[str]:
    if not those:
        return []
    texts = []
    for name in dict.fromkeys(change.format.name for _, change in those if change.format is not None):
        group = [pair for pair in those if pair[1].format is not None and pair[1].format.name == name]
        decibels = [change.sqnr_db for _, change in group if change.sqnr_db is not None]
        ratio = f" (signal to noise {_span(decibels, '.1f')} dB)" if decibels else ""
        texts.append(f"Rounded to {name}: {_of_text(comparison, group)}{ratio}.")
    return texts


def _say_coded(comparison: ModelComparison, those: Changed) -> list[str]:
    """Name each code, its matrices and their distance from the base, and say what it hides."""
    if not those:
        return []
    texts = []
    for code in dict.fromkeys(str(change.code) for _, change in those):
        group = [pair for pair in those if pair[1].code == code]
        sizes = _percents([change.size for _, change in group if change.size is not None])
        texts.append(f"{code}: {_of_text(comparison, group)}, {sizes} from the base.")
    if fitted := [change for _, change in those if change.along == "columns"]:
        factors = [factor for each in fitted for factor in (each.factor_low, each.factor_high) if factor]
        texts.append(
            f"Each column of {len(fitted)} of them has its own factor ({_span(factors, '.3g')}), as AWQ "
            "takes from the norm before; the errors are without it."
        )
    return [*texts, "A change smaller than the code's own error cannot be seen in this file."]


def _of_text(comparison: ModelComparison, those: Changed) -> str:
    """Return how many tensors of each kind, or "all tensors"; a single tensor is named."""
    if len(those) == 1:
        return printable(those[0][0].name)
    if len(those) == len(comparison.tensors):
        return f"all {len(those)} tensors"
    counts = Counter(comparison.kind_of(pair) for pair, _ in those)
    totals = Counter(comparison.kind_of(pair) for pair, _ in comparison.tensors)
    words = [
        f"{counts[kind]} of {totals[kind]} {_kind(kind, totals[kind])}"
        for kind in TENSOR_KINDS
        if counts[kind]
    ]
    return _join_words(words)


def _describe_heads(comparison: ModelComparison) -> list[str]:
    sizes = [
        map_change.numbers.get("size") or 0.0
        for location, map_change in comparison.maps
        if location.head is not None
    ]
    return [f"heads changed by up to {_percents([max(sizes)])}"] if sizes else []


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
    return [f"most of it is in {max(medians, key=lambda layer: medians[layer])}"]


def _describe_scale_change(comparison: ModelComparison) -> list[str]:
    """Return a list with a sentence if matrices of every kind shrank, or if those of every kind grew."""
    scales: dict[str, list[float]] = {}
    for location, map_change in comparison.maps:
        if map_change.numbers.get("scale") is not None:
            scales.setdefault(location.kind, []).append(map_change.numbers["scale"])
    changes = [float(np.median(kind_scales)) - 1 for kind_scales in scales.values()]
    if changes and max(changes) < -SCALED:
        return [
            f"Every kind of matrix shrank by {_percents([-change for change in changes])}, "
            "as weight decay or pruning does."
        ]
    if changes and min(changes) > SCALED:
        return [f"Every kind of matrix grew by {_percents(changes)}."]
    return []


def _total(comparison: ModelComparison, name: str) -> int:
    """Return the sum over all maps and both sides of a count such as "new"."""
    return sum(
        map_change.numbers.get(f"{name}_{side}") or 0 for _, map_change in comparison.maps for side in SIDES
    )


def percent(value: float) -> str:
    """Format a share as a percentage, or as a multiple if it is large.

    >>> percent(0.2345), percent(0.00166), percent(9.0), percent(25.0), percent(1e-9), percent(0.0)
    ('23.4%', '0.166%', '900%', '25 times', 'under 0.0001%', '0%')
    """
    if value >= 10:
        return f"{value:.3g} times"
    return f"{100 * value:.3g}%" if value >= 1e-6 or not value else "under 0.0001%"


def _percents(values: Sequence[float]) -> str:
    """Format a range of shares.

    >>> _percents([0.118, 0.63]), _percents([0.0017])
    ('11.8% to 63%', '0.17%')
    """
    low, high = percent(min(values)), percent(max(values))
    return low if low == high else f"{low} to {high}"


def _sizes(values: Sequence[float | None]) -> str:
    """Return sizes in brackets: both of two, the range of more."""
    known = [value for value in values if value]
    if not known:
        return ""
    return f" ({' and '.join(map(percent, known)) if len(known) == 2 else _percents(known)})"


def _span(values: Sequence[float], form: str) -> str:
    low, high = format(min(values), form), format(max(values), form)
    return low if low == high else f"{low} to {high}"


def _join_words(words: Sequence[str]) -> str:
    return " and ".join([", ".join(words[:-1]), words[-1]] if len(words) > 1 else words)


def _kind(kind: str, count: int) -> str:
    return (kind if kind != "tensor" else "other tensor") if count == 1 else TENSOR_KINDS[kind]


def _plural(word: str, count: int) -> str:
    plurals = {"is": "are"}
    return word if count == 1 else plurals.get(word, f"{word}s")
