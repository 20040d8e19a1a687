"""The conclusions of a comparison: verdicts on the model, counts, and a sentence that sums them up."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from attnlaw.analysis.diff.columns import MODEL_VERDICTS, TENSOR_VERDICTS
from attnlaw.analysis.diff.compare import ModelComparison
from attnlaw.analysis.diff.map_changes import MapChange
from attnlaw.analysis.diff.matching import TensorPair
from attnlaw.analysis.diff.places import Place, join_words, layer_of, layers_text, stack_names
from attnlaw.analysis.diff.tensors import TensorChange
from attnlaw.analysis.diff.update import SIDES
from attnlaw.checkpoints.network import KINDS, MatrixLocation
from attnlaw.core.answer import AnswerStatus
from attnlaw.core.errors import printable
from attnlaw.core.words import short_number

# The singular values of a rotated model differ from the base by at most this many times the floor.
MAX_ROTATED_GAP = 10.0
# Neither do they differ by more than this share of the largest one, however coarse the floor of a code is.
MAX_ROTATED_SHIFT = 0.01
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
# A factor of a tensor beyond this, or below its inverse, is hardly the effect of training.
MISSCALING = 2.0
MOST_COUNTED = 1000  # changes that are larger than rounding by more than this are all the same
HIDDEN = ("partly-hidden", "below-floor")
DAMAGES = ("non-finite", "zeroed", "reinitialised", "unrelated", "transposed", "moved", "permuted")


def model_verdicts(comparison: ModelComparison) -> list[str]:
    """Return the names of the verdicts on the model, followed by those on its tensors."""
    maps = [map_change for _, map_change in comparison.maps]
    cosines = [cosine for change in maps if (cosine := change.numbers.get("cosine")) is not None]
    has_rank = any(map_change.numbers.get("rank") for map_change in maps)
    folded = [unit.folded for unit in comparison.units if unit.folded is not None]
    holds = {
        "rearranged": bool(comparison.rearrangement.sentences),
        "reordered": any(unit.permuted for unit in comparison.units),
        "regauged": any(unit.regauged for unit in comparison.units) and not has_rank,
        "rotated": bool(cosines)
        and float(np.median(cosines)) < TURNED
        and all(map(_keeps_singular_values, maps)),
        "folded": bool(folded) and all(folded),
    }
    tensor_verdicts = {change.verdict for _, change in comparison.tensors}
    return [
        *(name for name in MODEL_VERDICTS if holds[name]),
        *(name for name in TENSOR_VERDICTS if name in tensor_verdicts),
    ]


def _keeps_singular_values(change: MapChange) -> bool:
    if change.max_gap is None:
        return False
    shift = change.max_gap * (change.numbers.get("floor") or 0.0)
    return change.max_gap <= MAX_ROTATED_GAP and shift <= MAX_ROTATED_SHIFT


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
            for name in ("size", "scale"):
                values[f"{name}_{kind.name}"] = float(np.median([numbers[name] for numbers in updates]))
    return values


def location_name(location: MatrixLocation) -> str:
    layer, head, expert = (
        "" if (number := getattr(location, name)) is None else f"{name} {number}"
        for name in ("layer", "head", "expert")
    )
    words = (location.stack, layer, KINDS[location.kind].label, head, expert)
    return " ".join(word for word in words if word)


def sentence(comparison: ModelComparison, verdicts: Sequence[str]) -> str:
    """Summarise a comparison: whole blocks first, then the tensors of each verdict, then equal tensors."""
    changed = [pair for pair in comparison.tensors if pair[1].verdict != "identical"]
    if not changed:
        count, which = len(comparison.pairs), "the" if comparison.left_out else "all"
        return f"Identical: {which} {count} compared {_plural('tensor', count)} {_plural('is', count)} equal."
    described = ("rearranged", "reordered") if comparison.rearrangement.sentences else ()
    general = [name for name in verdicts if name in MODEL_VERDICTS and name not in described]
    texts = (MODEL_VERDICTS[name].says for name in general)
    parts = [*comparison.rearrangement.sentences, *(f"{text[0].upper()}{text[1:]}." for text in texts)]
    left = [pair for pair in changed if pair[0].name not in comparison.rearrangement.covered]
    writers = dict.fromkeys(DAMAGES, _describe_damage) | {
        "rescaled": _describe_rescaled,
        "low-rank": _describe_low_rank,
        "dense": _describe_dense,
        "noise": _describe_plain("A random change, in which no direction is stronger than the others"),
        "sparse": _describe_plain("A few single entries changed"),
        "changed": _describe_plain("Other values"),
        "coded": _describe_coded,
        HIDDEN: _describe_hidden,
        "rounded": _describe_rounded,
        "reshaped": _describe_reshaped,
        "added": _describe_lone("Only the model has"),
        "removed": _describe_lone("Only the base has"),
    }
    for names, describe in writers.items():
        known = (names,) if isinstance(names, str) else names
        those = [pair for pair in left if pair[1].verdict in known]
        parts += describe(comparison, those) if those else []
    if len(changed) < len(comparison.tensors):
        whole = not comparison.left_out
        parts.append(f"Everything else{'' if whole else ' that was compared'} is identical.")
    return " ".join(parts)


Changed = Sequence[tuple[TensorPair, TensorChange]]
Describe = Callable[[ModelComparison, Changed], list[str]]


def coverage(comparison: ModelComparison) -> str:
    """Say which tensors of both files were compared, and which were not."""
    both = [pair for pair in comparison.pairs if pair.base is not None and pair.model is not None]
    counts = Counter(comparison.kind_of(pair) for pair in both)
    listed = ", ".join(f"{counts[kind]} {_kind(kind, counts[kind])}" for kind in TENSOR_KINDS if counts[kind])
    compared, lone, others = len(both), len(comparison.pairs) - len(both), len(comparison.left_out)
    if not lone + others:
        text = f"Compared: all {compared} {_plural('tensor', compared)} ({listed})."
    else:
        text = f"Compared: {compared} of {compared + lone + others} tensors ({listed})."
    if lone:
        text += f" Only in one of the files: {lone}."
    if others:
        text += f" Not selected: {others}." if lone else f" Not selected: the other {others}."
    if comparison.not_weights:
        count = len(comparison.not_weights)
        names = ", ".join(printable(name) for name in comparison.not_weights[:MOST_NAMED])
        more = f" and {count - MOST_NAMED} more" if count > MOST_NAMED else ""
        text += f" Not compared: {count} {_plural('tensor', count)} without weights ({names}{more})."
    return text


# What changes look like, and what to do then. Each is a warning.
NOT_FINITE = "Do not use this file. Find the step at which its numbers became infinite or NaN."
ANOTHER_BASE = (
    "This looks like another model, or like weights that were never loaded. Check first that the base is the "
    "right one."
)
ERASED = (
    "These weights are lost. Find out whether training, a conversion or a merge set these tensors to zero."
)
REPLACED = (
    "These tensors have nothing in common with the base. Find out whether they were meant to be new, such as "
    "a new output layer, or were never loaded."
)
MISPLACED = "This looks like a mistake in a conversion or a merge: weights are in the wrong place."
MISSCALED = "This looks like a mistake: look for a scale that was applied twice, or not at all."
LAYERS_GONE = (
    "Whole layers of the base are missing from the model. If you did not remove them on purpose, save or "
    "download the model again."
)
LAYERS_NEW = (
    "The base lacks whole layers of the model. If you did not add them on purpose, check first that the base "
    "is complete and the right one."
)
WARNINGS = (NOT_FINITE, ANOTHER_BASE, LAYERS_GONE, LAYERS_NEW, ERASED, REPLACED, MISPLACED, MISSCALED)
# What needs no action.
SAME_FUNCTION = "This looks like the same model, written in another way: nothing is broken."
EXPORTED = "This looks like the same model in another number format. Nothing else changed."
CODED = (
    "This looks like the same model in another number format. A small fine-tune would look the same: compare "
    "the files from before quantization."
)
HARMLESS_STEPS = (SAME_FUNCTION, EXPORTED, CODED)


def next_step(comparison: ModelComparison) -> str | None:
    """Describe the changes and the next step, or return None if nothing changed."""
    harmless = comparison.rearrangement.harmless
    by: dict[str, list[TensorChange]] = {name: [] for name in TENSOR_VERDICTS}
    matrices: Counter[str] = Counter()
    for pair, change in comparison.tensors:
        if pair.name not in harmless:
            by[change.verdict].append(change)
            matrices[change.verdict] += comparison.kind_of(pair) == "matrix"
    present = {name for name, changes in by.items() if changes} - {"identical"}
    most = matrices.total() / 2
    if by["non-finite"]:
        return NOT_FINITE
    if matrices["reinitialised"] + matrices["unrelated"] > most:
        return ANOTHER_BASE
    for verdict, warning in (("removed", LAYERS_GONE), ("added", LAYERS_NEW)):
        if verdict in present and _has_lone_layer(comparison, verdict):
            return warning
    if present & {"moved", "transposed", "permuted"}:
        return MISPLACED
    if "zeroed" in present:
        return ERASED
    if present & {"reinitialised", "unrelated"}:
        return REPLACED
    if any(_is_misscaled(change) for change in by["rescaled"]):
        return MISSCALED
    if not present:
        return SAME_FUNCTION if harmless else None
    if by["low-rank"] and not present & {"dense", "noise", "partly-hidden", "changed"}:
        return _describe_adapter(by["low-rank"])
    if present & set(HIDDEN):
        return (
            "The rounding of this file hides the rest. Next: compare the checkpoint from which this file "
            "was rounded."
        )
    if matrices["dense"] > most:
        above = _above_rounding(by["dense"])
        return f"This looks like full fine-tuning: most matrices changed in many directions{above}."
    if by["dense"]:
        return "This looks like training of these tensors alone, or like damage to them."
    if matrices["noise"] > most:
        return (
            "This looks like added noise or like a quantised code that attnlaw does not recognise, "
            "not like training."
        )
    if by["rescaled"]:
        return "Rows or columns were scaled. Look for a norm that was folded into the matrices after it."
    if by["reshaped"]:
        return "This looks like a model with another vocabulary or other sizes."
    if present == {"changed"} and not matrices["changed"]:
        return "This looks like training of norms, biases or embeddings alone: no matrix of a layer changed."
    if present <= {"rounded", "coded"}:
        return CODED if "coded" in present else EXPORTED
    return None


def _has_lone_layer(comparison: ModelComparison, verdict: str) -> bool:
    """Return whether all matrices of some layer have a verdict: "removed" or "added"."""
    verdicts: dict[Place, set[str]] = {}
    for pair, change in comparison.tensors:
        place = layer_of(pair.name)
        if place is not None and comparison.kind_of(pair) == "matrix":
            verdicts.setdefault(place, set()).add(change.verdict)
    return {verdict} in verdicts.values()


def _above_rounding(changes: Sequence[TensorChange]) -> str:
    """Return how far changes are above the rounding of the file, if they clearly are."""
    ratios = [
        change.size / change.rounding_size for change in changes if change.size and change.rounding_size
    ]
    least = min(ratios, default=0.0)
    times = f"at least {least:.0f}" if least < MOST_COUNTED else f"more than {MOST_COUNTED}"
    return f", by {times} times the rounding of the file" if least >= MISSCALING else ""


def _is_misscaled(change: TensorChange) -> bool:
    factors = [factor for factor in (change.factor_low, change.factor_high) if factor is not None]
    return change.along == "tensor" and any(not 1 / MISSCALING < factor < MISSCALING for factor in factors)


def _describe_adapter(changes: Sequence[TensorChange]) -> str | None:
    if any((change.unchanged or 0.0) > MOST_UNCHANGED for change in changes):
        return None
    noise = [(change.roundings or 0.0, change.grid) for change in changes]
    roundings, grid = max(noise, key=lambda pair: pair[0])
    if grid is None:
        return "This looks like a merged LoRA adapter."
    if roundings < SEVERAL_STEPS:
        return "This looks like a merged LoRA adapter: the rest of the change is not larger than rounding."
    times = float(np.sqrt(roundings))
    often = "twice" if round(times) == 2 else f"{times:.0f} times"
    return (
        f"This looks like a LoRA adapter that was merged about {often} "
        f"(its noise is {short_number(roundings)} times that of one {grid.name} rounding)."
    )


def status_of(row: Mapping[str, Any]) -> AnswerStatus | None:
    """Rate how good the news of a comparison's row is; None for a change that may be intended."""
    if row["tensors_non_finite"]:
        return AnswerStatus.ERROR
    if row["next_step"] in WARNINGS:
        return AnswerStatus.WARNING
    if row["next_step"] in HARMLESS_STEPS or set(row["verdicts"]) <= {"identical", "rounded"}:
        return AnswerStatus.OK
    return None


def verdict_text(row: Mapping[str, Any]) -> str:
    """Return the verdict on a tensor in words, from its row of `DIFF_TENSORS`.

    >>> verdict_text({"verdict": "low-rank", "rank_low": 4, "rank_high": 5})
    'low-rank, rank 4 to 5'
    >>> verdict_text({"verdict": "rescaled", "factor": 10.0, "along": "tensor"})
    'rescaled: 10 times the base'
    """
    verdict, low, high, then = row["verdict"], row.get("rank_low") or 1, row.get("rank_high"), row.get("then")
    after = f", then {then}" if then and then != "identical" else ""
    match verdict:
        case "low-rank":
            return f"low-rank, rank {f'{low} or more' if high is None else _span([low, high], 'd')}"
        case "partly-hidden":
            return f"partly-hidden, at least {low} {_plural('direction', low)}"
        case "rounded":
            return f"rounded to {row['format']}"
        case "coded":
            return f"coded: {row['format']}, {percent(row['size'])} from the base"
        case "rescaled" if row["along"] == "tensor":
            return f"rescaled: {row['factor']:.4g} times the base"
        case "rescaled":
            return f"rescaled: {row['along']} times {_span([row['factor_low'], row['factor_high']], '.3g')}"
        case "moved":
            return f"moved: it is the base's {row['source']}{after}"
        case "permuted":
            return f"permuted {row['along']}{after}"
    return f"{verdict}{after}"


def verdict_detail(rows: Sequence[Mapping[str, Any]]) -> str:
    """Return the numbers that belong to a verdict, from tensors that all have this verdict.

    Most verdicts have no such numbers.

    >>> verdict_detail([{"verdict": "low-rank", "rank": 2, "rank_low": 2, "rank_high": 4}])
    'rank 2 to 4'
    """
    verdict = rows[0]["verdict"]

    def values(*names: str) -> list[Any]:
        return [row[name] for row in rows for name in names if row.get(name) is not None]

    if verdict == "low-rank":
        more = " or more" if any(row.get("rank_high") is None for row in rows) else ""
        return f"rank {_span(values('rank_low', 'rank_high') or values('rank'), 'd')}{more}"
    if verdict == "partly-hidden":
        least = min(values("rank_low") or [1])
        return f"at least {least} {_plural('direction', least)}"
    if verdict in ("rounded", "coded"):
        return join_words(dict.fromkeys(values("format")))
    if verdict == "rescaled":
        return f"times {_span(values('factor_low', 'factor_high') or values('factor'), '.3g')}"
    if verdict == "moved":
        sources = list(dict.fromkeys(values("source")))
        return f"from {sources[0]}" if len(sources) == 1 else ""
    return ""


def _tensors_text(
    comparison: ModelComparison, those: Changed, of: bool = True, most_named: int = MOST_NAMED
) -> str:
    """Return the names of a few tensors, or else how many of which kind changed in which layers."""
    if len(those) <= most_named:
        return join_words(printable(pair.name) for pair, _ in those)
    counts = Counter(comparison.kind_of(pair) for pair, _ in those)
    totals = Counter(comparison.kind_of(pair) for pair, _ in comparison.tensors)
    words = []
    for kind in TENSOR_KINDS:
        count, total = counts[kind], totals[kind]
        if count and (count == total or not of):
            every = "all " if of and count > 1 else ""
            words.append(f"{every}{count} {_kind(kind, count)}")
        elif count:
            words.append(f"{count} of {total} {_kind(kind, total)}")
    return join_words(words) + _layers_of(comparison, those)


def _layers_of(comparison: ModelComparison, those: Changed) -> str:
    """Return the layers of tensors in brackets; nothing if these are all layers, or if there is none."""
    places = {place for pair, _ in those if (place := layer_of(pair.name)) is not None}
    every = {place for pair, _ in comparison.tensors if (place := layer_of(pair.name)) is not None}
    if not places or places == every:
        return ""
    names = stack_names((prefix for prefix, _ in every), [location.stack for location, _ in comparison.maps])
    texts = [
        layers_text(names[stack] or None, [number for prefix, number in places if prefix == stack])
        for stack in sorted({prefix for prefix, _ in places})
    ]
    return f" ({', '.join(text[0].lower() + text[1:] for text in texts)})"


def _describe_damage(comparison: ModelComparison, those: Changed) -> list[str]:
    where, verdict = _tensors_text(comparison, those), those[0][1].verdict
    few = len(those) <= MOST_NAMED
    if few and verdict in ("moved", "permuted", "transposed"):
        named = {
            "moved": "has the weights of the base's {source}{then}.",
            "permuted": "has its {along} in another order{then}.",
            "transposed": "is transposed{then}.",
        }
        sentences = []
        for pair, change in those:
            then = "" if change.then in (None, "identical") else f", then {change.then}"
            source, along = printable(change.source or ""), change.along or "rows"
            text = named[verdict].format(source=source, along=along, then=then)
            sentences.append(f"{printable(pair.name)} {text}")
        return sentences
    texts = {
        "non-finite": f"The model or the base has NaN or infinite entries in {where}.",
        "zeroed": f"All entries are now zero in {where}.",
        "reinitialised": f"The weights are random and do not resemble the base in {where}.",
        "unrelated": f"The weights are trained but do not resemble the base in {where}.",
        "moved": f"The weights come from other tensors of the base in {where}.",
        "transposed": f"Transposed: {where}.",
        "permuted": f"Rows or columns are in another order in {where}.",
    }
    return [texts[verdict]]


def _describe_rescaled(comparison: ModelComparison, those: Changed) -> list[str]:
    if len(those) > MOST_NAMED:
        factors = _known(those, "factor_low", "factor_high")
        return [f"Multiplied by {_factors_text(factors)}: {_tensors_text(comparison, those)}."]
    texts = []
    for pair, change in those:
        name, factors = printable(pair.name), [change.factor_low or 0.0, change.factor_high or 0.0]
        if change.along == "tensor":
            texts.append(f"{name} is {change.factor:.4g} times the base.")
        elif factors == [0.0, 1.0]:
            texts.append(f"{name}: some of its {change.along} are 0 now.")
        else:
            texts.append(f"{name}: its {change.along} are multiplied by {_factors_text(factors)}.")
    return texts


def _factors_text(factors: Sequence[float]) -> str:
    low, high = short_number(min(factors), 4), short_number(max(factors), 4)
    return low if low == high else f"factors from {low} to {high}"


def _describe_low_rank(comparison: ModelComparison, those: Changed) -> list[str]:
    ranks = [
        each for _, change in those for each in (change.rank_low, change.rank_high or change.rank) if each
    ]
    more = " or more" if any(change.rank_high is None for _, change in those) else ""
    sizes = _sizes([change.update_size or change.size for _, change in those])
    return [f"Low-rank update of rank {_span(ranks, 'd')}{more}, in {_of_text(comparison, those)}{sizes}."]


def _describe_dense(comparison: ModelComparison, those: Changed) -> list[str]:
    counts, sizes = _known(those, "directions"), _sizes(_known(those, "size"))
    text = f"Dense update in {_of_text(comparison, those)}{sizes}"
    each = "of it" if len(those) == 1 else "of each"
    text += f": 90% {each} is in {_span(counts, 'd')} {_plural('direction', max(counts))}." if counts else "."
    inside = [pair for pair, _ in comparison.tensors if comparison.kind_of(pair) == "matrix"]
    if sum(comparison.kind_of(pair) == "matrix" for pair, _ in those) <= len(inside) / 2:
        return [text]
    return [text, *_describe_largest_head(comparison), *_describe_scale_change(comparison)]


def _describe_plain(noun: str) -> Describe:
    def describe(comparison: ModelComparison, those: Changed) -> list[str]:
        if len(those) <= MOST_NAMED:
            named = [f"{printable(pair.name)}{_sizes([change.size])}" for pair, change in those]
            return [f"{noun}: {join_words(named)}."]
        return [f"{noun}: {_of_text(comparison, those)}{_sizes(_known(those, 'size'))}."]

    return describe


def _describe_lone(noun: str) -> Describe:
    return lambda comparison, those: [f"{noun} {_tensors_text(comparison, those, of=False)}."]


def _describe_reshaped(comparison: ModelComparison, those: Changed) -> list[str]:
    """Name both shapes, and say whether the rows that both tensors have are equal."""
    if len(those) > MOST_NAMED:
        return [f"Other shapes: {_tensors_text(comparison, those)}."]
    texts = []
    for pair, change in those:
        shapes = [comparison.shapes.get(pair.name, ()), comparison.model_shapes.get(pair.name, ())]
        before, after = (" x ".join(map(str, shape)) for shape in shapes)
        equal = {None: "", 0.0: "; the rows that both have are equal"}.get(
            change.size, f"; the rows that both have changed{_sizes([change.size])}"
        )
        texts.append(f"{printable(pair.name)} has the shape {after} instead of {before}{equal}.")
    return texts


def _describe_hidden(comparison: ModelComparison, those: Changed) -> list[str]:
    grids = sorted({change.grid.name for _, change in those if change.grid is not None})
    rounding = f"{join_words(grids)} rounding" if grids else "the rounding of the file"
    seen = [change.rank_low or 1 for _, change in those if change.verdict == "partly-hidden"]
    sizes, limits, floors = (
        [value for value in _known(those, name) if value]
        for name in ("update_size", "update_size_most", "rounding_size")
    )
    where = _of_text(comparison, those)
    if not seen:
        texts = [f"Changes no larger than {rounding} in {where}: the rounding hides their directions."]
    else:
        hides = "mostly" if not floors or max(sizes, default=0.0) < 2 * max(floors) else "partly"
        some = f"In {len(seen)} of them, at least" if len(seen) < len(those) else "At least"
        each = " of each" if len(those) > 1 and len(seen) == len(those) else ""
        count, verb = min(seen), _plural("is", min(seen))
        texts = [
            f"An update that is {hides} hidden by {rounding} in {where}.",
            f"{some} {count} {_plural('direction', count)}{each} {verb} larger than {rounding}; the rounding "
            "hides the rest.",
        ]
    if sizes and floors:
        texts.append(
            f"The size of the update is about {_percents(sizes)}; rounding alone is {_percents(floors)}."
        )
    elif limits:
        texts.append(f"The size of the update is at most {_percents([max(limits)])}.")
    return texts


def _describe_rounded(comparison: ModelComparison, those: Changed) -> list[str]:
    texts = []
    for name in dict.fromkeys(change.format.name for _, change in those if change.format is not None):
        group = [pair for pair in those if pair[1].format is not None and pair[1].format.name == name]
        decibels = _known(group, "sqnr_db")
        ratio = f" (signal to noise {_span(decibels, '.1f')} dB)" if decibels else ""
        texts.append(f"Rounded to {name}: {_of_text(comparison, group)}{ratio}.")
    return texts


def _describe_coded(comparison: ModelComparison, those: Changed) -> list[str]:
    texts = []
    for code in dict.fromkeys(str(change.code) for _, change in those):
        group = [pair for pair in those if pair[1].code == code]
        sizes = _percents(_known(group, "size"))
        texts.append(f"Stored as {code}: {_of_text(comparison, group)}, {sizes} from the base.")
    if fitted := [pair for pair in those if pair[1].along == "columns"]:
        factors = _known(fitted, "factor_low", "factor_high")
        texts.append(
            f"Each column of {len(fitted)} of them has its own factor ({_span(factors, '.3g')}), which "
            "AWQ takes from the norm before it; the distances here ignore these factors."
        )
    return [*texts, "This file cannot show changes that are smaller than its rounding error."]


def _known(those: Changed, *names: str) -> list[Any]:
    """Return the numbers of changes in some fields, without those that are None."""
    return [value for _, change in those for name in names if (value := getattr(change, name)) is not None]


def _of_text(comparison: ModelComparison, those: Changed) -> str:
    """Return the name of a single tensor, "all tensors", or how many of which kind in which layers."""
    if len(those) == len(comparison.tensors) > 1:
        return f"all {len(those)} tensors"
    return _tensors_text(comparison, those, most_named=1)


def _describe_largest_head(comparison: ModelComparison) -> list[str]:
    """Return a list with a sentence about the head that changed most; an empty list if no head changed."""
    sizes = [
        (map_change.numbers.get("size") or 0.0, location)
        for location, map_change in comparison.maps
        if location.head is not None
    ]
    size, location = max(sizes, key=lambda pair: pair[0], default=(0.0, None))
    if location is None or not size:
        return []
    if location.layer is not None:
        first = comparison.first_layers.get(location.stack, 0)
        location = replace(location, layer=location.layer - first)
    return [f"The head that changed most is {location_name(location)} ({percent(size)})."]


def _describe_scale_change(comparison: ModelComparison) -> list[str]:
    """Return a list with a sentence if matrices of every kind shrank, or if those of every kind grew."""
    scales: dict[str, list[float]] = {}
    for location, map_change in comparison.maps:
        if map_change.numbers.get("scale") is not None:
            scales.setdefault(location.kind, []).append(map_change.numbers["scale"])
    changes = [float(np.median(kind_scales)) - 1 for kind_scales in scales.values()]
    if changes and max(changes) < -SCALED:
        shrunk = _percents([-change for change in changes])
        return [f"Every kind of matrix shrank by {shrunk}, as weight decay or pruning does."]
    if changes and min(changes) > SCALED:
        return [f"Every kind of matrix grew by {_percents(changes)}."]
    return []


def _total(comparison: ModelComparison, name: str) -> int:
    return sum(
        map_change.numbers.get(f"{name}_{side}") or 0 for _, map_change in comparison.maps for side in SIDES
    )


def percent(value: float) -> str:
    """Format a share as a percentage, or as a multiple if it is large.

    >>> percent(0.2345), percent(0.00166), percent(9.0), percent(25.0), percent(1e-9), percent(0.0)
    ('23.4%', '0.166%', '900%', '25 times', 'under 0.0001%', '0%')
    """
    if value >= 10:
        return f"{short_number(value)} times"
    return f"{short_number(100 * value)}%" if value >= 1e-6 or not value else "under 0.0001%"


def _percents(values: Sequence[float]) -> str:
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


def _kind(kind: str, count: int) -> str:
    return (kind if kind != "tensor" else "other tensor") if count == 1 else TENSOR_KINDS[kind]


def _plural(word: str, count: int) -> str:
    plurals = {"is": "are"}
    return word if count == 1 else plurals.get(word, f"{word}s")
