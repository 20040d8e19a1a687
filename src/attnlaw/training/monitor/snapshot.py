"""Measure the spectra of a model at one step of its training. The rows of matrices have the numbers of
`attnlaw.audit` and its fits, without the tests of the fits (bootstraps). The row of the step has the medians
or sums of groups of matrices, each proxy, and of the logits the median spread and the largest bound."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

import polars as pl

from attnlaw import __version__
from attnlaw.analysis.audit.rows import log10
from attnlaw.analysis.check.verdicts import Verdicts
from attnlaw.analysis.columns import location_row
from attnlaw.analysis.fit.null import eigenvalues, null_of_spectrum, without_round_off
from attnlaw.analysis.fit.tail import power_law_tails
from attnlaw.checkpoints.blocks import Attention
from attnlaw.checkpoints.model import Model
from attnlaw.checkpoints.network import LAYER_GROUPS, MatrixLocation, Network
from attnlaw.checkpoints.settings import Arithmetic, ModelSettings
from attnlaw.core.errors import InputError
from attnlaw.core.estimate import Estimate, Outcome
from attnlaw.core.quantity import column_kinds
from attnlaw.core.tables import quantity_frame, to_frame, to_schema
from attnlaw.spectra.measure import Selection, measure
from attnlaw.spectra.spectrum import Spectrum
from attnlaw.theory.bounds import BOUNDS
from attnlaw.theory.bounds.logits import Logits, head_logits
from attnlaw.theory.bounds.proxies import Proxies, proxies, why_no_proxies
from attnlaw.theory.implicit_bias.balance import balance_of
from attnlaw.training.monitor.columns import HEAD_KINDS, STEP_MATRICES, STEP_MODES, STEPS
from attnlaw.training.monitor.history import FACTOR_SIZES, History, stronger_first_columns


@dataclass(frozen=True, eq=False)
class Snapshot:
    """The numbers of one step. `columns` describes the columns of `row`, `matrices` and `modes`.

    `verdicts` is None if the monitor has no rules.
    """

    step: int
    row: dict[str, Any]
    matrices: pl.DataFrame
    modes: pl.DataFrame
    verdicts: Verdicts | None = None

    @property
    def scalars(self) -> dict[str, float]:
        """The numbers of the row that are not null, under names `spectra/...` for loggers."""
        kinds = column_kinds(STEPS)
        numeric = [name for name, kind in kinds.items() if kind in ("float", "int") and name != "step"]
        known = {name: self.row.get(name) for name in numeric}
        return {f"spectra/{name}": float(value) for name, value in known.items() if value is not None}


def step_frame(snapshots: Iterable[Snapshot]) -> pl.DataFrame:
    return to_frame([snapshot.row for snapshot in snapshots], to_schema(column_kinds(STEPS)))


def take_snapshot(
    settings: ModelSettings, step: int, quantities: Sequence[str], history: History, approximate: bool = False
) -> Snapshot:
    """Measure the module matrix by matrix and update the `history`, without gradients or random numbers."""
    require_unsharded(settings.model)
    model = settings.open()
    selection = Selection.from_settings(settings, model.network, Arithmetic(approximate))
    tree = measure(model, selection, settings.jobs)
    reason = why_no_proxies(tree)
    bounds = proxies(tree) if reason is None and "proxies" in quantities else None
    measured = [(location, spectrum) for location, spectrum in tree.leaves() if spectrum is not None]
    spectra = [spectrum for _, spectrum in measured]
    columns: dict[str, Sequence[float | None]] = {
        "spectral_norm": [spectrum.spectral for spectrum in spectra],
        "log10_contribution": _contributions(bounds, len(spectra)),
    }
    for name, compute in SPECTRUM_QUANTITIES.items():
        if name in quantities:
            columns[name] = compute(spectra)
    if "factor_imbalance" in quantities:
        # |A^T A - B^T B|_F of the stored factors.
        columns["factor_difference"] = [
            None if spectrum.factors is None else spectrum.factors.difference * spectrum.factors.scale
            for spectrum in spectra
        ]
        keys = [tuple(location_row(model.name, location).values()) for location, _ in measured]
        columns |= history.relative_sizes(keys, {name: columns[name] for name in FACTOR_SIZES})
    means, modes = history.read_heads(model, tree, step, quantities)
    if "means" in quantities:
        columns["mean"] = [means.get(location) for location, _ in measured]
        columns["frobenius"] = [
            None if location.head is None else spectrum.frobenius / spectrum.shape[0] ** 0.5
            for location, spectrum in measured
        ]
    rows = [
        {"step": step, **location_row(model.name, location)}
        | {name: column[number] for name, column in columns.items()}
        for number, (location, _) in enumerate(measured)
    ]
    matrices = quantity_frame(STEP_MATRICES, rows)
    logits = _logits_by_head(model, tree) if "scores" in quantities else {}
    no_proxies = [] if reason is None else [f"no proxies: {reason}"]
    warnings = [*model.warnings, *no_proxies, *_unbounded_remarks(logits)]
    row = {
        "step": step,
        "model": model.name,
        **_proxy_columns(bounds),
        **_group_columns(matrices),
        **stronger_first_columns(modes),
        **_score_columns([*logits.values()]),
        "status": Outcome.DONE,
        "remark": "; ".join(warnings) or None,
        "attnlaw_version": __version__,
    }
    return Snapshot(step, row, matrices, modes)


def failed_snapshot(name: str, step: int, reason: str) -> Snapshot:
    """Return the snapshot of a step at which the weights could not be measured, with the reason."""
    failure = {"status": Outcome.FAILED, "remark": reason}
    row = {"step": step, "model": name, **failure, "attnlaw_version": __version__}
    return Snapshot(step, row, quantity_frame(STEP_MATRICES, []), quantity_frame(STEP_MODES, []))


# Every process must run the first two lines, because `full_tensor` gathers a matrix from all processes. The
# process of rank 0 keeps the matrices, on the CPU.
GATHER = """
matrices = ((name, getattr(w, "full_tensor", lambda w=w: w)()) for name, w in model.state_dict().items())
whole = {name: w.cpu() for name, w in matrices if torch.distributed.get_rank() == 0}
if whole: attnlaw.audit(whole, heads=HEADS).save(f"step-{step}")
"""


def require_unsharded(model: Any) -> None:
    """Raise an `InputError` if the weights are split among processes, so that none has a whole matrix.

    For distributed tensors (FSDP2), a note on the error has code that gathers them.
    """
    what = f"{type(model).__name__}: the weights of this model are split among several processes"
    if any(hasattr(weight, "device_mesh") for weight in model.parameters()):
        error = InputError(
            f"{what} (FSDP2), expected whole matrices; in every process, gather one matrix at a time with "
            "full_tensor(), and audit them in the first one (docs/how-to/watch-training.md#sharded-models)"
        )
        error.add_note(f"In every process:\n{GATHER}")
        raise error
    wrapped = any(type(part).__name__ == "FullyShardedDataParallel" for part in model.modules())
    if wrapped or any(hasattr(weight, "ds_id") for weight in model.parameters()):
        raise InputError(f"{what} (FSDP or ZeRO-3), expected whole matrices; audit saved checkpoints instead")


def _contributions(bounds: Proxies | None, count: int) -> list[float | None]:
    parts = [] if bounds is None else bounds.parts
    return [_value(log10(Estimate(part.log_value))) for part in parts] + [None] * (count - len(parts))


def _value(estimate: Estimate | None) -> float | None:
    return None if estimate is None else estimate.value


def _outliers(spectra: Sequence[Spectrum]) -> list[int | None]:
    nulls = [null_of_spectrum(spectrum) if spectrum.multiplicities is None else None for spectrum in spectra]
    return [
        None if null is None else null.compare(without_round_off(spectrum)).outliers
        for spectrum, null in zip(spectra, nulls, strict=True)
    ]


def _alphas(spectra: Sequence[Spectrum]) -> list[float | None]:
    values = [eigenvalues(spectrum) if spectrum.multiplicities is None else () for spectrum in spectra]
    return [None if tail is None else tail.alpha for tail in power_law_tails(values)]


# Quantities computed from the spectra. If a spectrum is approximate, all but the stable rank are null.
SPECTRUM_QUANTITIES: dict[str, Callable[[Sequence[Spectrum]], Sequence[float | None]]] = {
    "stable_rank": lambda spectra: [spectrum.stable_rank for spectrum in spectra],
    "outliers": _outliers,
    "alpha": _alphas,
    "factor_excess": lambda spectra: [balance_of(spectrum.factors).excess for spectrum in spectra],
    "factor_imbalance": lambda spectra: [balance_of(spectrum.factors).imbalance for spectrum in spectra],
}


def _proxy_columns(bounds: Proxies | None) -> dict[str, float | None]:
    if bounds is None:
        return {}
    monitored = [name for name, bound in BOUNDS.items() if bound.monitored]
    return {f"log10_{name}": _value(log10(bounds.values[name])) for name in monitored}


def _logits_by_head(model: Model, tree: Network[Spectrum | None]) -> dict[MatrixLocation, Logits]:
    logits = {}
    for (location, product), (_, spectrum) in zip(model.network.leaves(), tree.leaves(), strict=True):
        if spectrum is not None and location.kind == "qk" and isinstance(product.block, Attention):
            logits[location] = head_logits(model, location, product.block, spectrum.scores)
    return logits


def _score_columns(logits: Sequence[Logits]) -> dict[str, float | None]:
    spreads = [head.typical for head in logits if head.typical is not None]
    bounds = [head.bound for head in logits if head.bound is not None]
    return {"score_spread_qk": median(spreads) if spreads else None, "logit_bound": max(bounds, default=None)}


def _unbounded_remarks(logits: Mapping[MatrixLocation, Logits]) -> list[str]:
    """Return a remark for each reason why there is no logit bound, with the layers it applies to."""
    layers: dict[str, dict[int | None, None]] = {}
    for location, head in logits.items():
        if head.reason is not None:
            layers.setdefault(head.reason, {})[location.layer] = None
    numbers = {reason: ", ".join(map(str, chosen)) for reason, chosen in layers.items()}
    return [
        f"attnlaw has no bound for the logits of layer {which}: {reason}" for reason, which in numbers.items()
    ]


def _group_columns(matrices: pl.DataFrame) -> dict[str, Any]:
    row: dict[str, Any] = {}
    for group, kinds in LAYER_GROUPS.items():
        group_rows = matrices.filter(pl.col("kind").is_in(kinds))
        outliers = group_rows["outliers"].drop_nulls()
        row[f"stable_rank_{group}"] = group_rows["stable_rank"].median()
        row[f"outliers_{group}"] = outliers.sum() if outliers.len() else None
        row[f"alpha_{group}"] = group_rows["alpha"].median()
    for group in HEAD_KINDS:
        group_rows = matrices.filter(pl.col("kind") == group)
        for name in ("factor_excess", "factor_imbalance_kept", "factor_difference_kept", "mean", "frobenius"):
            row[f"{name}_{group}"] = group_rows[name].abs().median()
    return row
