"""The answer of `limit`: whether a layer is like its infinite-width limit, and what that limit is like. Its
numbers compare distribution functions, so they hold for every probability P(y <= t) of the output."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import polars as pl

from attnlaw.core.answer import Answer, AnswerStatus, Line
from attnlaw.core.command_line import command
from attnlaw.core.estimate import Estimate, format_percent, format_with_error
from attnlaw.core.result import Result
from attnlaw.render.describe_rows import ValueLabels, format_setting, varying_settings
from attnlaw.theory.limit.layer import SCALINGS

CLOSE = 0.01  # largest difference of distribution functions at which a layer counts as like its limit
SAME_TAILS = 0.05  # largest difference of kurtosis at which tails count as equal
CLEAR = 0.05  # from here on, a histogram of a few hundred values shows the difference
SEEN = 2.0  # standard errors above which a difference is more than the noise of the draws
MORE_DRAWS = 16  # factor by which the next command raises the draws if their noise hides a difference
MOST_LINES = 4  # settings that get a sentence each
COLLAPSED, LEAST_RISE = 0.99, 0.05  # mean cosine of tokens that count as one, and a rise that counts


@dataclass(frozen=True)
class LayerNumbers:
    """One layer at all its widths, with means over repetitions."""

    name: str  # the settings that distinguish it, such as "heads 4"; empty for the only one
    finite: Mapping[float, Mapping[str, Estimate | None]]  # its numbers by width, in increasing order
    limit: Mapping[str, Estimate | None] | None
    row: Mapping[str, Any]  # settings, and lists by depth, of the limit or else of the largest width


# Settings that vary within a layer, or say what is computed about it.
NOT_THE_LAYER = ("width", "draws", "other_scaling", "gaussian", "kernel", "seed")
NUMBERS = ("ks_to_limit", "kl_to_limit", "kl_to_other_limit", "kurtosis")


def answer(result: Result) -> Answer:
    """Return the answer for one or several layers, each at one or several widths."""
    layers = _layers(result)
    lines = [*_closeness(layers), *_limit_lines(layers), *_other_limit(layers), *_depth(layers)]
    return Answer((*lines, *_missing(result)), _next_commands(result, layers))


def _layers(result: Result) -> list[LayerNumbers]:
    rows, labels = result.finished_rows, ValueLabels(result.verb, result.finished_rows)
    names = result.verb.setting_columns.values()
    by = varying_settings(rows, [name for name in names if name not in NOT_THE_LAYER])
    groups = rows.group_by(by, maintain_order=True) if by else [((), rows)]
    layers = []
    for key, group in groups:
        numbers = {
            width: {name: _mean(group.filter(pl.col("width") == width), name) for name in NUMBERS}
            for width in group["width"].unique().sort().to_list()
        }
        layer = LayerNumbers(
            labels.describe(dict(zip(by, key, strict=True))),
            {width: known for width, known in numbers.items() if width != math.inf},
            numbers.get(math.inf),
            group.sort("width").row(-1, named=True),
        )
        layers.append(layer)
    return layers


def _mean(rows: pl.DataFrame, name: str) -> Estimate | None:
    known = rows.drop_nulls(name)
    if not known.height:
        return None
    total = math.sqrt(sum(error**2 for error in known[f"{name}_error"].fill_null(0.0)))
    return Estimate(float(known[name].mean()), total / known.height)  # type: ignore[arg-type]


def _closeness(layers: list[LayerNumbers]) -> Iterator[Line]:
    compared = [layer for layer in layers if any(known["ks_to_limit"] for known in layer.finite.values())]
    if len(compared) <= MOST_LINES:
        for layer in compared:
            for line in filter(None, (_closeness_line(layer), _tails_line(layer))):
                yield Line(f"{layer.name}: {line.text}", line.status) if layer.name else line
        return
    near = sum(_first_close(layer) is not None for layer in compared)
    yield Line(
        f"At the largest width that was computed, the distribution functions of {near} of {len(compared)} "
        f"layers are within {CLOSE:.0%} of their infinite-width limits."
    )


def _closeness_line(layer: LayerNumbers) -> Line:
    differences = {width: row["ks_to_limit"] for width, row in layer.finite.items()}
    known = {width: difference for width, difference in differences.items() if difference is not None}
    first, widest = _first_close(layer), max(known)
    if first is None:
        at, most = known[widest], "clearly" if known[widest].value >= CLEAR else "visibly"
        if _is_noise(at):
            return Line(
                f"The difference between a layer of width {widest:g} and its infinite-width limit cannot be "
                f"distinguished from the noise of the draws ({format_percent(at)}). Use more draws (--draws)."
            )
        lead = "A layer" if len(known) == 1 else "Even a layer"
        return Line(
            f"{lead} of width {widest:g} {most} differs from its infinite-width limit: the distribution "
            f"functions of the two outputs differ by up to {format_percent(at)}."
        )
    at = known[first]
    lead, there = f"From width {first:g} on", f" at width {first:g}"
    if first == widest:
        lead, there = f"At width {first:g}", ""
    if _is_noise(at):
        size = f"No difference is seen{there} beyond the noise of the draws ({format_percent(at)})"
    else:
        size = f"It differs by at most {format_percent(at)}{there}"
    text = (
        f"{lead}, the distribution function of the output is within {CLOSE:.0%} of that of the "
        f"infinite-width limit. {size}"
    )
    before = [width for width in known if width < first]
    if before:
        text += f", and by up to {format_percent(known[max(before)])} at width {max(before):g}"
    return Line(f"{text}.", AnswerStatus.OK)


def _is_noise(difference: Estimate) -> bool:
    return bool(difference.error) and difference.value <= SEEN * (difference.error or 0.0)


def _first_close(layer: LayerNumbers) -> float | None:
    """Return the smallest width from which on the layer is close to its limit at all computed widths."""
    first = None
    for width in sorted(layer.finite, reverse=True):
        difference = layer.finite[width]["ks_to_limit"]
        if difference is None or difference.value >= CLOSE:
            break
        first = width
    return first


def _tails_line(layer: LayerNumbers) -> Line | None:
    """Return from which width on the tails agree with the limit, if this is later than for the rest."""
    first, limit = _first_close(layer), None if layer.limit is None else layer.limit["kurtosis"]
    here = None if first is None else layer.finite[first]["kurtosis"]
    if first is None or here is None or limit is None or _is_same_kurtosis(here, limit):
        return None
    agree = None
    for width in sorted(layer.finite, reverse=True):
        kurtosis = layer.finite[width]["kurtosis"]
        if kurtosis is None or not _is_same_kurtosis(kurtosis, limit):
            break
        agree = width
    lead = "The tails do not agree yet" if agree is None else f"The tails agree only from width {agree:g} on"
    return Line(f"{lead}: the kurtosis is {here} at width {first:g}, and {limit} in the limit.")


def _is_same_kurtosis(kurtosis: Estimate, limit: Estimate) -> bool:
    noise = math.hypot(kurtosis.error or 0.0, limit.error or 0.0)
    return abs(kurtosis.value - limit.value) <= max(3 * noise, SAME_TAILS)


def _limit_lines(layers: list[LayerNumbers]) -> Iterator[Line]:
    limits = [(layer, layer.limit["kurtosis"]) for layer in layers if layer.limit is not None]
    known = [(layer, kurtosis) for layer, kurtosis in limits if kurtosis is not None]
    # A saved result may lack a setting, or have a value that this version does not know.
    scalings = [SCALINGS.get(layer.row["scaling"]) for layer in layers]
    uniform = [scaling for scaling in scalings if scaling is not None and scaling.vanishing]
    if len(uniform) == len(layers):
        yield Line("In the limit of the scaling 1/n all scores are zero, so attention is uniform.")
    if len(known) == 1:
        yield Line(_kurtosis_sentence(known[0][1]))
    elif 1 < len(known) <= MOST_LINES:
        values = ", ".join(f"{kurtosis} ({layer.name})" for layer, kurtosis in known)
        yield Line(f"Kurtosis of the limit: {values}. A Gaussian has 3.")
    elif known:
        ends = [pick(known, key=lambda pair: pair[1].value) for pick in (min, max)]
        low, high = (f"{kurtosis} ({layer.name})" for layer, kurtosis in ends)
        yield Line(f"The kurtosis of the limit is between {low} and {high}. A Gaussian has 3.")


def is_gaussian(kurtosis: Estimate) -> bool:
    """Return whether the limit is Gaussian, which holds if its kurtosis is exactly 3."""
    return not kurtosis.error and looks_gaussian(kurtosis)


def looks_gaussian(kurtosis: Estimate) -> bool:
    return abs(kurtosis.value - 3) <= max(SEEN * (kurtosis.error or 0.0), 1e-9)


def _kurtosis_sentence(kurtosis: Estimate) -> str:
    if is_gaussian(kurtosis):
        return "The limit is Gaussian: its kurtosis is exactly 3."
    if looks_gaussian(kurtosis):
        return f"With these draws the limit looks Gaussian: kurtosis {kurtosis}, a Gaussian has 3."
    return f"The limit itself is not Gaussian: its kurtosis is {kurtosis}, and a Gaussian has 3."


def _other_limit(layers: list[LayerNumbers]) -> Iterator[Line]:
    for layer in layers[:MOST_LINES]:
        others = {width: row["kl_to_other_limit"] for width, row in layer.finite.items()}
        known = {width: kl for width, kl in others.items() if kl is not None}
        if known:
            widest = max(known)
            lead, to_limit = f"{layer.name}: at" if layer.name else "At", layer.finite[widest]["kl_to_limit"]
            compared = "" if to_limit is None else f", and {to_limit} from its limit"
            yield Line(
                f"{lead} width {widest:g} the layer has a KL divergence of {known[widest]} from the limit of "
                f"the scaling {layer.row['other_scaling']}{compared}."
            )


def _depth(layers: list[LayerNumbers]) -> Iterator[Line]:
    for layer in layers[:MOST_LINES]:
        cosines, errors = layer.row["path_cosine"], layer.row["path_cosine_error"]
        if not cosines or cosines[-1] is None:
            continue
        depth, first, last = len(cosines) - 1, cosines[0], cosines[-1]
        if last > COLLAPSED:
            words = "Tokens become identical (rank collapse)"
        else:
            words = "Tokens become alike with depth" if last > first + LEAST_RISE else "Tokens stay apart"
        yield Line(
            f"{f'{layer.name}: ' if layer.name else ''}{words}: their mean cosine goes from {first:.2g} to "
            f"{format_with_error(last, errors[-1])} over {depth} layer{'s' if depth > 1 else ''} (1 means "
            "that all are alike)."
        )


def _missing(result: Result) -> Iterator[Line]:
    rows = result.finished_rows.drop_nulls("remark")
    for (remark,), same in rows.group_by("remark", maintain_order=True):
        widths = ", ".join(format_setting(width) for width in same["width"].unique(maintain_order=True))
        yield Line(f"Width {widths}: {remark}.", AnswerStatus.WARNING)


def _next_commands(result: Result, layers: list[LayerNumbers]) -> dict[str, str]:
    commands: dict[str, str] = {}
    finite = [layer for layer in layers if layer.finite]
    kurtosis = next((layer.limit["kurtosis"] for layer in layers if layer.limit is not None), None)
    narrow = result.rows["head_width"].count() > 0
    far = [layer for layer in finite if _first_close(layer) is None]
    if not finite:
        commands[command(result, width=None)] = "how wide a layer must be to be close to this limit"
    elif far and (draws := _more_draws(result, far[0])):
        commands[command(result, draws=draws)] = "with less noise"
    elif far and not narrow and (wider := _enough(far[0])):
        commands[command(result, width=[wider, math.inf])] = f"a width that may be within {CLOSE:.0%}"
    elif all(layer.limit is None for layer in layers):
        widths = [*result.rows["width"].unique(maintain_order=True), math.inf]
        alone = command(result, width=math.inf if narrow else widths, head_width=None)
        commands[alone] = "the limit itself: is it Gaussian?"
    if kurtosis is not None and not looks_gaussian(kurtosis) and result.rows["heads"].n_unique() == 1:
        more: dict[str, Any] = {"width": math.inf, "heads": [1, 2, 4, 8, 16], "gaussian": True}
        commands[command(result, **more, other_scaling=None)] = "how many heads make the limit Gaussian"
    commands[command(result, "--out", "results")] = "a page with densities and distances"
    return commands


def _more_draws(result: Result, layer: LayerNumbers) -> int | None:
    """Return more draws if the difference at the largest width is not above their noise."""
    known = {width: row["ks_to_limit"] for width, row in layer.finite.items() if row["ks_to_limit"]}
    difference = known[max(known)] if known else None
    if difference is None or not _is_noise(difference):
        return None
    return MORE_DRAWS * int(result.rows["draws"].max())  # type: ignore[arg-type]


def _enough(layer: LayerNumbers) -> int | None:
    """Return a power of two at which the difference may be below `CLOSE`, if it falls like 1/width."""
    width = max(layer.finite)
    difference = layer.finite[width]["ks_to_limit"]
    if difference is None or difference.value >= 0.3:  # far from where it falls like 1/width
        return None
    return int(2 ** math.ceil(math.log2(1.1 * width * difference.value / CLOSE)))
