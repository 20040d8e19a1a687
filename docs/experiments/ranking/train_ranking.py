"""Training of the families whose generalization gaps are to be ranked (ranking_tasks.py): one run, and all.

Each run is one file of weights with its outcome in the file's metadata. A run that is there already is
skipped, so an interrupted training is resumed by the same command, `ranking_study.py --train`.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import platform
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from ranking_model import Transformer, new_model
from ranking_tasks import FAMILIES, Data, Family, Run, data_of, runs_of
from safetensors.torch import save_file
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

import attnlaw
from attnlaw.training import decoder as byte_corpus

BETAS = (0.9, 0.98)
WARMUP_STEPS = 50
GRADIENT_NORM = 1.0
CHECK_EVERY = 10
EVALUATION_BATCH = 100
QUICK = 100  # examples of digits in the quick study


@dataclass(frozen=True)
class Outcome:
    """How a run ended; errors are shares of wrong predictions, those of training against its noisy labels."""

    steps: int
    loss: float
    training_error: float
    test_error: float
    cpu_seconds: float


def train(run: Run, steps: int | None = None) -> tuple[Transformer, Outcome]:
    """Train one run until the loss of its whole training set falls below the family's, or for its steps."""
    start = time.process_time()
    family = FAMILIES[run.family]
    torch.manual_seed(1_000_000 * list(FAMILIES).index(run.family) + 1000 * run.seed + run.number)
    data, model = data_of(run), new_model(run)
    optimizer = adamw(model, run)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: min(1, (step + 1) / WARMUP_STEPS))
    step, most = 0, steps or family.steps
    while step < most and not (step % CHECK_EVERY == 0 and reached(model, data, family)):
        inputs, labels = batch_of(data, family)
        cross_entropy(flat(model(inputs)), labels.flatten()).backward()
        nn.utils.clip_grad_norm_(model.parameters(), GRADIENT_NORM)
        optimizer.step()
        schedule.step()
        optimizer.zero_grad()
        step += 1
    outcome = Outcome(
        steps=step,
        loss=sum(losses(model, data)) / data.labels.numel(),
        training_error=error(model, data.inputs, data.labels),
        test_error=error(model, data.test_inputs, data.test_labels),
        cpu_seconds=round(time.process_time() - start, 2),
    )
    return model, outcome


def adamw(model: Transformer, run: Run) -> torch.optim.AdamW:
    """AdamW with weight decay on all matrices but the positions."""
    decayed = [p for p in model.parameters() if p.ndim == 2 and p is not model.positions]
    rest = [p for p in model.parameters() if p.ndim == 1 or p is model.positions]
    groups = [{"params": decayed, "weight_decay": run.decay}, {"params": rest, "weight_decay": 0.0}]
    return torch.optim.AdamW(groups, lr=run.rate, betas=BETAS, fused=True)


def batch_of(data: Data, family: Family) -> tuple[Tensor, Tensor]:
    """Examples drawn with replacement, or all."""
    if family.batch is None:
        return data.inputs, data.labels
    chosen = torch.randint(len(data.inputs), (family.batch,))
    return data.inputs[chosen], data.labels[chosen]


def flat(logits: Tensor) -> Tensor:
    """One row for each label: of a causal model also one for each token."""
    return logits.flatten(0, -2)


@torch.no_grad()
def losses(model: Transformer, data: Data) -> Iterator[float]:
    """Summed losses of the training set, one part of it after the other, without dropout."""
    for i in range(0, len(data.inputs), EVALUATION_BATCH):
        model.eval()
        logits = model(data.inputs[i : i + EVALUATION_BATCH])
        model.train()
        yield cross_entropy(
            flat(logits), data.labels[i : i + EVALUATION_BATCH].flatten(), reduction="sum"
        ).item()


def reached(model: Transformer, data: Data, family: Family) -> bool:
    """Whether the mean loss of the training set is below the family's.

    Losses are positive: as soon as the parts seen so far sum to too much, the rest need not be looked at.
    """
    if family.loss is None:
        return False
    allowed, total = family.loss * data.labels.numel(), 0.0
    for part in losses(model, data):
        total += part
        if total >= allowed:
            return False
    return True


@torch.no_grad()
def error(model: Transformer, inputs: Tensor, labels: Tensor) -> float:
    """The share of wrong predictions; of a causal model at the positions of the second half."""
    model.eval()
    wrong = torch.cat([model(part).argmax(dim=-1) for part in inputs.split(500)]) != labels
    model.train()
    return float((wrong[:, wrong.shape[1] // 2 :] if model.causal else wrong).double().mean())


def train_and_save(run: Run, out: Path) -> tuple[Run, Outcome]:
    """Train one run and rename its finished file into place."""
    torch.set_num_threads(1)
    model, outcome = train(run)
    draft = out / f".{run.name}.draft"
    words = {"run": json.dumps(asdict(run)), "outcome": json.dumps(asdict(outcome))}
    save_file(dict(model.state_dict()), draft, metadata=words)
    draft.replace(file_of(run, out))
    return run, outcome


def file_of(run: Run, folder: Path) -> Path:
    return folder / f"{run.name}.safetensors"


def all_runs() -> list[Run]:
    """All runs, seed after seed, in each the longest last."""
    runs = [run for family in FAMILIES.values() for seed in family.seeds for run in runs_of(family, seed)]
    return sorted(runs, key=lambda run: (run.seed, run.family == "digits" and run.n > QUICK))


def is_quick(run: Run) -> bool:
    return run.family == "digits" and run.n == QUICK and run.seed == 0


def train_all(runs: Sequence[Run], out: Path, workers: int) -> None:
    """Train those of the runs that have no file under `out`."""
    out.mkdir(parents=True, exist_ok=True)
    wanted = [run for run in runs if not file_of(run, out).exists()]
    print(f"{len(wanted)} of {len(runs)} runs to train", flush=True)
    jobs = in_workers(train_and_save, [(run, out) for run in wanted], workers)
    for count, (run, outcome) in enumerate(jobs, start=1):
        print(
            f"{count}/{len(wanted)} {run.name}: {outcome.steps} steps, loss {outcome.loss:.3f}, "
            f"errors {outcome.training_error:.3f}, {outcome.test_error:.3f}, {outcome.cpu_seconds:.1f} s",
            flush=True,
        )


def in_workers(task: Callable[..., Any], jobs: Iterable[tuple[Any, ...]], workers: int) -> Iterator[Any]:
    """The results of a task in processes of one thread each, as they come."""
    os.environ["OMP_NUM_THREADS"] = "1"  # inherited by the workers
    spawn = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(workers, mp_context=spawn) as pool:
        for job in as_completed([pool.submit(task, *words) for words in jobs]):
            yield job.result()


def recipe() -> dict[str, Any]:
    """What all runs were trained with, beside their own factors."""
    return {
        "families": {name: asdict(family) for name, family in FAMILIES.items()},
        "betas": BETAS,
        "warmup_steps": WARMUP_STEPS,
        "gradient_norm": GRADIENT_NORM,
        "loss_checked_every": CHECK_EVERY,
        "corpus": byte_corpus.DESCRIPTION,
        "python_version": platform.python_version(),
        "versions": {"torch": torch.__version__, "attnlaw": attnlaw.__version__},
    }
