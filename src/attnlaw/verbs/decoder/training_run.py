"""A short training run of the small decoder: spectra of its heads over steps, and the theory's picture.

Singular values are over the edge of the bulk of each head's null, eigenvalues of the theory's student over
the edge of its bulk: beyond 1 a direction stands out. An analogy, not a fit: the theory has one tied head,
Gaussian tokens and a known target, the run has sixteen heads, Adam and text.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from attnlaw.analysis.fit.null import null_of_shape, null_of_spectrum
from attnlaw.analysis.fit.values import without_round_off
from attnlaw.checkpoints.settings import ModelSettings
from attnlaw.core.errors import require_extra
from attnlaw.core.estimate import Outcome
from attnlaw.core.progress import Progress
from attnlaw.spectra.measure import Selection, measure
from attnlaw.theory.dynamics.rows import SHOWN, snapshot_indices
from attnlaw.theory.dynamics.schedule import Schedule
from attnlaw.theory.dynamics.trajectory import Trajectory, trajectory
from attnlaw.theory.learn.problem import Problem, Target
from attnlaw.training.monitor.spectral_monitor import SpectralMonitor
from attnlaw.verbs.decoder import corpus as byte_corpus
from attnlaw.verbs.decoder.model import CONTEXT, build_decoder, held_out_loss, train_decoder

QUANTITIES = ("outliers", "factor_imbalance", "means", "modes")
LAST_STEP = ("stronger_first", "stronger_first_p", "factor_difference_kept", "factor_imbalance_kept")
PROBE = 64  # held-out windows of the loss
# The theory beside it: linear scores, kappa0 = 0.5, kappa = 1, s = 0.7; the spikes of its target, its times.
SPIKES = (4.5, 5.0, 6.0, 7.0, 8.0, 9.0, 10.0, 12.0)
TIMES = np.geomspace(0.003, 0.048, 13)
POINTS = 160  # of a density

Rows = list[dict[str, Any]]


@dataclass(frozen=True)
class DecoderRun:
    """What a run tells: `quantities` at its last step, and rows of tables."""

    quantities: dict[str, Any]
    steps: pl.DataFrame = field(repr=False)
    singular_values: Rows = field(repr=False)
    modes: Rows = field(repr=False)
    bulk: Rows = field(repr=False)
    theory: Rows = field(repr=False)
    theory_modes: Rows = field(repr=False)
    outcome: Outcome = Outcome.DONE
    remark: str | None = None


def run_decoder(steps: int, every: int, seed: int, progress: Progress) -> DecoderRun:
    """Train the decoder for some steps on one thread, measuring its heads at every k-th and at the last."""
    model = build_seeded_decoder(seed)
    text, held_out = (
        byte_corpus.read_bytes(byte_corpus.source_files(held_out=is_held_out))
        for is_held_out in (False, True)
    )
    windows = byte_corpus.windows(held_out, CONTEXT)
    probe = windows[np.linspace(0, len(windows) - 1, PROBE, dtype=int)]
    due = [*range(0, steps, every), steps]
    looked = {due[i] for i in np.linspace(0, len(due) - 1, SHOWN).round().astype(int)}
    values: Rows = []
    with tempfile.TemporaryDirectory() as folder:
        options: dict[str, Any] = {"quantities": QUANTITIES, "only": "qk,vo", "name": "decoder"}
        monitor = SpectralMonitor(model, folder, every=every, max_overhead=1e9, **options)

        def after(step: int, loss: float) -> None:
            progress(step, steps)
            if step % every == 0 or step == steps:
                monitor.measure(step)
            if step in looked:
                values.extend(_values(model, step))

        after(0, float("nan"))
        train_decoder(model, text, steps, seed, after)
        rows, modes = (pl.read_parquet(Path(folder) / f"{name}.parquet") for name in ("steps", "step_modes"))
    last = rows.row(-1, named=True)
    ended = modes.filter(pl.col("step") == steps).with_columns(strength=pl.col("value") / pl.col("edge"))
    return DecoderRun(
        {"held_out_loss": held_out_loss(model, probe)}
        | {f"{name}_{kind}": last[f"{name}_{kind}"] for name in LAST_STEP for kind in ("qk", "vo")}
        | {f"modes_{kind}": ended.filter(pl.col("kind") == kind).height for kind in ("qk", "vo")},
        rows,
        values,
        ended.select("layer", "head", "kind", "mode", "left_step", "strength").to_dicts(),
        _bulk(model),
        *theory_rows(),
    )


def build_seeded_decoder(seed: int) -> Any:
    """The decoder drawn from a seed, without a trace in torch's own generator."""
    with require_extra("training the decoder", "lens"):
        import torch
        import transformers  # noqa: F401

    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return build_decoder()


def _values(model: Any, step: int) -> Iterator[dict[str, Any]]:
    """All singular values of every head over the edge of its bulk."""
    settings = ModelSettings.parse({"model": model, "only": "qk,vo"}, "decoder")
    opened = settings.open()
    for place, spectrum in measure(opened, Selection.from_settings(settings, opened.network)).leaves():
        null = None if spectrum is None else null_of_spectrum(spectrum)
        if spectrum is None or null is None:
            continue
        values = without_round_off(spectrum)
        edge = null.compare(values).edge
        for value in values if edge else ():
            where = {"layer": place.layer, "head": place.head, "kind": place.kind}
            yield {"step": step, **where, "strength": float(value / edge)}


def _bulk(model: Any) -> Rows:
    """The density of the null of the decoder's heads, in units of its edge."""
    config = model.config
    null = null_of_shape(config.n_embd, config.n_embd, config.n_embd // config.n_head)
    x, density = null.curve
    edge = null.compare(null.mean).edge or 1.0
    return [
        {"strength": float(place / edge), "density": float(height * edge)}
        for place, height in zip(x, density, strict=True)
    ]


@lru_cache(maxsize=1)
def theory_rows() -> tuple[Rows, Rows]:
    """The theory beside the run, a target with a bulk and spikes: densities at five times, and the spikes."""
    target = Target.marchenko_pastur(0.5).with_spikes(*SPIKES)
    path = trajectory(Problem(target=target), Schedule(TIMES.tolist()))
    densities = [
        row for i in snapshot_indices(path.time.size) for row in _densities(path, float(path.time[i]))
    ]
    return densities, list(_theory_mode_rows(path))


def _densities(path: Trajectory, time: float) -> Iterator[dict[str, Any]]:
    law = path.spectrum(time)
    edge = law.support[1]
    angles = np.linspace(0.0, np.pi, POINTS + 2)[1:-1]
    x = np.sort(np.concatenate([piece.at(angles)[0] for piece in law.pieces]))
    for place, height in zip(x.tolist(), law.density(x).tolist(), strict=True):
        yield {"time": time, "strength": place / edge, "density": height * edge}


def _theory_mode_rows(path: Trajectory) -> Iterator[dict[str, Any]]:
    """Each spike at each time: where it stands, over the edge of the bulk, once it has left it."""
    left: dict[float, float] = {}
    for time in path.time[1:].tolist():
        edge = path.edge(time)
        for outlier in path.outliers(time):
            left.setdefault(outlier.target, time)
            row = {
                "target": outlier.target,
                "left_time": left[outlier.target],
                "strength": outlier.location / edge,
            }
            yield {"time": time, **row}
