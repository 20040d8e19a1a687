"""Train a small byte-level decoder (a GPT-2 of 4 layers) on the source of Python's standard library, split by
a hash of file names, and compare its spectra with the theory of one head: singular values over the edge of
random weights, and eigenvalues over that of the student's bulk. This is an analogy, not a fit."""

from __future__ import annotations

import hashlib
import math
import sysconfig
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from attnlaw.analysis.fit.null import null_of_shape, null_of_spectrum, without_round_off
from attnlaw.checkpoints.formats.torch_file import import_torch
from attnlaw.checkpoints.settings import ModelSettings
from attnlaw.core.errors import require_extra
from attnlaw.core.estimate import Outcome
from attnlaw.core.library_messages import quiet_import
from attnlaw.core.progress import Progress
from attnlaw.spectra.measure import Selection, measure
from attnlaw.theory.dynamics.rows import SHOWN, density_curve, snapshot_indices
from attnlaw.theory.dynamics.schedule import Schedule
from attnlaw.theory.dynamics.trajectory import Trajectory, trajectory
from attnlaw.theory.learn.problem import Problem, Target
from attnlaw.training.monitor.spectral_monitor import SpectralMonitor

Bytes = NDArray[np.integer[Any]]
VOCABULARY = 256
FILE_SEPARATOR = b"\0"  # a byte that no source file contains
HELD_OUT_ONE_IN = 20

# Tests and installed packages do not belong to the library. encodings and pydoc_data are generated tables.
EXCLUDED_FOLDERS = {"test", "tests", "idle_test", "site-packages", "dist-packages", "encodings", "pydoc_data"}
# The build of Python writes these files, with paths of the machine that built it.
EXCLUDED_PREFIXES = ("config-", "_sysconfigdata")

DESCRIPTION = (
    "Source files (*.py) of the Python standard library, without tests, installed packages, build "
    "configuration, encodings and pydoc_data; in order of their names, separated by a zero byte. Held out: "
    f"files whose name relative to the library has a SHA-256 divisible by {HELD_OUT_ONE_IN}."
)


def is_held_out(name: str) -> bool:
    """Return whether a file, given relative to the library, is held out from training."""
    return int(hashlib.sha256(name.encode()).hexdigest(), 16) % HELD_OUT_ONE_IN == 0


def source_files(*, held_out: bool) -> list[Path]:
    """Return the files that are held out, or those for training, sorted by name."""
    library = Path(sysconfig.get_path("stdlib"))
    names = sorted(path.relative_to(library).as_posix() for path in _python_files(library))
    return [library / name for name in names if is_held_out(name) == held_out]


def read_bytes(files: list[Path]) -> Bytes:
    """Return the bytes of all files as one array (uint8), with a zero byte after each file."""
    text = b"".join(path.read_bytes() + FILE_SEPARATOR for path in files)
    return np.frombuffer(text, dtype=np.uint8)


def windows(text: Bytes, length: int) -> Bytes:
    """Return consecutive windows of the text, of shape (count, length + 1).

    Each window starts with the last byte of the previous window. If a model predicts `window[1:]` from
    `window[:-1]`, it predicts each byte once, except the first byte of the text and a remainder at its end.
    """
    return np.lib.stride_tricks.sliding_window_view(text, length + 1)[::length]


def random_windows(text: Bytes, count: int, length: int, rng: np.random.Generator) -> Bytes:
    """Return windows that start at uniformly random places in the text, as int64 of shape (count, length)."""
    starts = rng.integers(0, len(text) - length + 1, size=count)
    return np.asarray(text[starts[:, None] + np.arange(length)], dtype=np.int64)


def bigram_losses(train: Bytes, held_out_windows: Bytes) -> NDArray[np.float64]:
    """Return the mean loss in nats per byte of a bigram model (counts plus one) on each held-out window."""
    counts = np.ones((VOCABULARY, VOCABULARY))
    np.add.at(counts, (train[:-1], train[1:]), 1)
    log_p = np.log(counts) - np.log(counts.sum(axis=1, keepdims=True))
    return np.asarray(-log_p[held_out_windows[:, :-1], held_out_windows[:, 1:]].mean(axis=1))


def _python_files(folder: Path) -> Iterator[Path]:
    for entry in folder.iterdir():
        if entry.name in EXCLUDED_FOLDERS or entry.name.startswith(EXCLUDED_PREFIXES):
            continue
        if entry.is_dir():
            yield from _python_files(entry)
        elif entry.suffix == ".py":
            yield entry


CONTEXT = 128
BATCH = 16
LEARNING_RATE = 3e-3
WARMUP_STEPS = 100
WEIGHT_DECAY = 0.1
GRADIENT_NORM = 1.0


def build_decoder() -> Any:
    """Return the untrained decoder. The weights come from torch's global random generator."""
    import_torch("training a decoder")
    with quiet_import():
        from transformers import GPT2Config, GPT2LMHeadModel

    sizes = {"vocab_size": VOCABULARY, "n_positions": CONTEXT, "n_embd": 128, "n_layer": 4, "n_head": 4}
    dropout = dict.fromkeys(("resid_pdrop", "embd_pdrop", "attn_pdrop"), 0.0)
    ends = {"bos_token_id": 0, "eos_token_id": 0}
    return GPT2LMHeadModel(GPT2Config(**sizes, **dropout, **ends, activation_function="gelu"))


def adamw(model: Any, learning_rate: float) -> Any:
    """Return an AdamW optimizer that decays matrices but not biases or gains of norms."""
    import torch

    parameters = list(model.parameters())
    groups = [
        {"params": [p for p in parameters if p.ndim >= 2], "weight_decay": WEIGHT_DECAY},
        {"params": [p for p in parameters if p.ndim < 2], "weight_decay": 0.0},
    ]
    return torch.optim.AdamW(groups, lr=learning_rate, betas=(0.9, 0.95), fused=True)


def warmup_then_cosine(optimizer: Any, steps: int) -> Any:
    """Return a learning-rate schedule with a linear warm-up, followed by a cosine down to a tenth."""
    import torch

    def factor(step: int) -> float:
        cosine = 0.5 * (1 + math.cos(math.pi * min(step / steps, 1)))
        return min((step + 1) / WARMUP_STEPS, 1) * (0.1 + 0.9 * cosine)

    return torch.optim.lr_scheduler.LambdaLR(optimizer, factor)


def decoder_loss(model: Any, windows: Bytes) -> Any:
    """Return the mean loss in nats per byte when the model predicts windows[:, 1:] from windows[:, :-1]."""
    import torch

    tokens = torch.from_numpy(windows.astype(np.int64))
    logits = model(input_ids=tokens[:, :-1], use_cache=False).logits
    return torch.nn.functional.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())


def held_out_loss(model: Any, windows: Bytes) -> float:
    """Return the mean loss of the decoder over all windows, in nats per byte."""
    import torch

    batches = [windows[i : i + 64] for i in range(0, len(windows), 64)]
    with torch.no_grad():
        total = sum(len(batch) * float(decoder_loss(model, batch).item()) for batch in batches)
    return total / len(windows)


def train_decoder(
    model: Any, text: Bytes, steps: int, seed: int, after: Callable[[int, float], object]
) -> None:
    """Train the decoder in place on random windows of `text`. Call `after(step, loss)` after every step."""
    import torch

    rng = np.random.default_rng(seed)
    optimizer = adamw(model, LEARNING_RATE)
    schedule = warmup_then_cosine(optimizer, steps)
    for step in range(1, steps + 1):
        loss = decoder_loss(model, random_windows(text, BATCH, CONTEXT + 1, rng))
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), GRADIENT_NORM)
        optimizer.step()
        schedule.step()
        optimizer.zero_grad()
        after(step, loss.item())


MONITORED = ("outliers", "factor_imbalance", "means", "modes")
LAST_STEP = ("stronger_first", "stronger_first_p", "factor_difference_kept", "factor_imbalance_kept")
PROBE = 64  # held-out windows on which the loss is measured
# The theory has linear scores, kappa0 = 0.5, kappa = 1 and s = 0.7. The spikes of its target, and its times:
SPIKES = (4.5, 5.0, 6.0, 7.0, 8.0, 9.0, 10.0, 12.0)
TIMES = np.geomspace(0.003, 0.048, 13)
POINTS = 160  # points of a density

Rows = list[dict[str, Any]]


@dataclass(frozen=True)
class DecoderRun:
    """The result of a training run: the quantities at its last step, and the rows of its tables."""

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
    """Train the decoder, and measure its heads at the start, after every `every` steps, and at the end."""
    model = build_seeded_decoder(seed)
    text, held_out = (read_bytes(source_files(held_out=is_held_out)) for is_held_out in (False, True))
    held_out_windows = windows(held_out, CONTEXT)
    probe = held_out_windows[np.linspace(0, len(held_out_windows) - 1, PROBE, dtype=int)]
    due = [*range(0, steps, every), steps]
    looked = {due[i] for i in np.linspace(0, len(due) - 1, SHOWN).round().astype(int)}
    values: Rows = []
    with tempfile.TemporaryDirectory() as folder:
        options: dict[str, Any] = {"quantities": MONITORED, "only": "qk,vo", "name": "decoder"}
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
    """Return the untrained decoder of this seed."""
    with require_extra("training the decoder", "lens"):
        import torch
        import transformers  # noqa: F401

    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return build_decoder()


def _values(model: Any, step: int) -> Iterator[dict[str, Any]]:
    settings = ModelSettings.parse({"model": model, "only": "qk,vo"}, "decoder")
    opened = settings.open()
    for location, spectrum in measure(opened, Selection.from_settings(settings, opened.network)).leaves():
        null = None if spectrum is None else null_of_spectrum(spectrum)
        if spectrum is None or null is None:
            continue
        values = without_round_off(spectrum)
        edge = null.compare(values).edge
        for value in values if edge else ():
            where = {"layer": location.layer, "head": location.head, "kind": location.kind}
            yield {"step": step, **where, "strength": float(value / edge)}


def _bulk(model: Any) -> Rows:
    config = model.config
    null = null_of_shape(config.n_embd, config.n_embd, config.n_embd // config.n_head)
    x, density = null.curve
    edge = null.compare(null.mean).edge or 1.0
    places, heights = (x / edge).tolist(), (density * edge).tolist()
    return [{"strength": place, "density": height} for place, height in zip(places, heights, strict=True)]


@lru_cache(maxsize=1)
def theory_rows() -> tuple[Rows, Rows]:
    """Return the bulk density of the student in theory at five times, and its spikes at all times."""
    target = Target.marchenko_pastur(0.5).with_spikes(*SPIKES)
    path = trajectory(Problem(target=target), Schedule(TIMES.tolist()))
    densities: Rows = []
    for time in (float(path.time[i]) for i in snapshot_indices(path.time.size)):
        law = path.spectrum(time)
        edge = law.support[1]
        curve = density_curve(law, POINTS)
        densities += ({"time": time, "strength": x / edge, "density": y * edge} for x, y in curve)
    return densities, list(_theory_mode_rows(path))


def _theory_mode_rows(path: Trajectory) -> Iterator[dict[str, Any]]:
    """Yield the spikes outside the bulk at each time, with strengths in units of the bulk's edge."""
    left: dict[float, float] = {}
    for time in path.time[1:].tolist():
        edge = path.edge(time)
        for outlier in path.outliers(time):
            left_time = left.setdefault(outlier.target, time)
            times = {"time": time, "target": outlier.target, "left_time": left_time}
            yield {**times, "strength": outlier.location / edge}
