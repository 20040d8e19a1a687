"""Train a family of BERT encoders that differ in depth and width alone, to compare their spectra.

    python docs/experiments/family/train_family.py --out DIR

trains depth 2, 4, 8 by width 64, 128, 256 with two seeds each (18 models) by masked-byte prediction on the
Python standard library's source (attnlaw.training.decoder), all with one recipe, in two processes of one
thread: about 20 minutes on two free cores. Each model is one checkpoint directory under DIR with its loss
curve beside the weights; DIR/losses.csv holds all curves. A model that is there already is skipped, so an
interrupted run is resumed by the same command. Needs the packages torch and transformers.
"""

from __future__ import annotations

import argparse
import csv
import itertools
import json
import multiprocessing
import os
import platform
import sys
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
import transformers
from torch.nn.functional import cross_entropy
from transformers import BertConfig, BertForMaskedLM

from attnlaw.training import decoder as byte_corpus
from attnlaw.training.decoder import GRADIENT_NORM, adamw, warmup_then_cosine

DEPTHS = (2, 4, 8)
WIDTHS = (64, 128, 256)
SEEDS = (0, 1)
HEAD_SIZE = 32
CONTEXT = 32
BATCH = 32
LEARNING_RATE = 5e-4
MASKED_SHARE = 0.15
INITIAL_DEVIATION = 0.68  # of a weight, times the root of the width
POSITION_AMPLITUDE = 0.3  # of the sinusoids that position embeddings start from
MASK = 255  # occurs in no UTF-8 text
LOG_EVERY = 100
PROBE_WINDOWS = 512
COLUMNS = ("depth", "width", "seed", "step", "loss", "training_loss")


@dataclass(frozen=True)
class Member:
    """One model of the family."""

    depth: int
    width: int
    seed: int

    @property
    def name(self) -> str:
        return f"depth-{self.depth}-width-{self.width}-seed-{self.seed}"

    @property
    def cost(self) -> int:
        """Proportional to the parameters of the encoder's matrices, hence to the time of a step."""
        return self.depth * self.width**2


def family() -> list[Member]:
    """All members, the longest to train first (so that two workers end at about the same time)."""
    members = itertools.starmap(Member, itertools.product(DEPTHS, WIDTHS, SEEDS))
    return sorted(members, key=lambda member: -member.cost)


def build_model(member: Member) -> BertForMaskedLM:
    """The encoder: BERT's architecture, started so that small and deep members leave the unigram plateau.

    BERT's deviation 0.02 of a weight is for width 768; here it is `INITIAL_DEVIATION / sqrt(width)`. Position
    embeddings are trained like all others and start from sinusoids.
    """
    model = BertForMaskedLM(
        BertConfig(
            vocab_size=byte_corpus.VOCABULARY,
            max_position_embeddings=CONTEXT,
            type_vocab_size=1,
            hidden_size=member.width,
            num_hidden_layers=member.depth,
            num_attention_heads=member.width // HEAD_SIZE,
            intermediate_size=4 * member.width,
            hidden_dropout_prob=0.0,
            attention_probs_dropout_prob=0.0,
            pad_token_id=0,
            initializer_range=INITIAL_DEVIATION / member.width**0.5,
        )
    )
    frequencies = 10000.0 ** -(torch.arange(0, member.width, 2) / member.width)
    angles = torch.arange(CONTEXT)[:, None] * frequencies
    with torch.no_grad():
        waves = torch.stack([angles.sin(), angles.cos()], dim=-1).flatten(1)
        model.bert.embeddings.position_embeddings.weight.copy_(POSITION_AMPLITUDE * waves)
    return model


def masked_loss(model: BertForMaskedLM, windows: np.ndarray, masked: np.ndarray) -> torch.Tensor:
    """Mean loss in nats per masked byte; `masked` is a boolean array of the windows' shape."""
    tokens, hidden = torch.from_numpy(windows), torch.from_numpy(masked)
    logits = model(input_ids=tokens.masked_fill(hidden, MASK)).logits
    return cross_entropy(logits[hidden], tokens[hidden])


def masked_windows(text: np.ndarray, count: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Random windows and which of their bytes to mask."""
    windows = byte_corpus.random_windows(text, count, CONTEXT, rng)
    return windows, rng.random(windows.shape) < MASKED_SHARE


def train(member: Member, steps: int) -> tuple[BertForMaskedLM, list[dict]]:
    """Train one member; its loss curve as rows: held-out loss, and training loss since the row before."""
    torch.manual_seed(member.seed)
    rng = np.random.default_rng(member.seed)
    text = byte_corpus.read_bytes(byte_corpus.source_files(held_out=False))
    held_out = byte_corpus.read_bytes(byte_corpus.source_files(held_out=True))
    probe = masked_windows(held_out, PROBE_WINDOWS, np.random.default_rng(0))  # the same for every member
    model = build_model(member)
    optimizer = adamw(model, LEARNING_RATE)
    schedule = warmup_then_cosine(optimizer, steps)
    curve, losses = [], []
    for step in range(1, steps + 1):
        loss = masked_loss(model, *masked_windows(text, BATCH, rng))
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), GRADIENT_NORM)
        optimizer.step()
        schedule.step()
        optimizer.zero_grad()
        losses.append(loss.item())
        if step % LOG_EVERY == 0 or step == steps:
            with torch.no_grad():
                probe_loss = masked_loss(model, *probe).item()
            figures = (step, round(probe_loss, 4), round(float(np.mean(losses)), 4))
            curve.append(dict(zip(COLUMNS, (member.depth, member.width, member.seed, *figures), strict=True)))
            losses.clear()
            print(f"{member.name}: step {step}/{steps}, held-out loss {probe_loss:.3f}", flush=True)
    return model, curve


def train_and_save(member: Member, steps: int, out: Path) -> tuple[Member, float, float]:
    """Train one member and rename its finished directory into place; (member, held-out loss, seconds)."""
    torch.set_num_threads(1)
    start = time.monotonic()
    model, curve = train(member, steps)
    with tempfile.TemporaryDirectory(prefix=".draft-", dir=out) as folder:
        draft = Path(folder) / member.name
        model.save_pretrained(draft)
        write_curve(draft / "losses.csv", curve)
        draft.rename(out / member.name)
    return member, curve[-1]["loss"], time.monotonic() - start


def write_curve(path: Path, rows: list[dict]) -> None:
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, COLUMNS, lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


def collect_curves(out: Path) -> None:
    """Write the curves of all finished members to `out`/losses.csv, ordered by depth, width and seed."""
    rows = []
    for member in sorted(family(), key=lambda member: (member.depth, member.width, member.seed)):
        path = out / member.name / "losses.csv"
        if path.exists():
            with path.open(newline="") as file:
                rows += list(csv.DictReader(file))
    draft = out / ".losses.csv"
    write_curve(draft, rows)
    draft.replace(out / "losses.csv")


def check_recipe(out: Path, steps: int) -> None:
    """Record the recipe in `out`, or stop when the directory was begun with another one."""
    recipe = {
        "steps": steps,
        "batch": BATCH,
        "context": CONTEXT,
        "masked_share": MASKED_SHARE,
        "learning_rate": LEARNING_RATE,
        "initial_deviation_times_root_width": INITIAL_DEVIATION,
        "position_amplitude": POSITION_AMPLITUDE,
        "corpus": byte_corpus.DESCRIPTION,
        "python_version": platform.python_version(),
        "versions": {"torch": torch.__version__, "transformers": transformers.__version__},
    }
    path = out / "recipe.json"
    if not path.exists():
        draft = out / ".recipe.json"
        draft.write_text(json.dumps(recipe, indent=2) + "\n")
        draft.replace(path)
    elif json.loads(path.read_text()) != recipe:
        sys.exit(f"{path}: this family was begun with another recipe; choose another --out or remove it")


def main() -> None:
    parser = argparse.ArgumentParser(
        description="Train the family of BERT encoders (depth by width by seed)."
    )
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "weights")
    parser.add_argument("--steps", type=int, default=800)
    parser.add_argument("--workers", type=int, default=2)
    options = parser.parse_args()

    os.environ["OMP_NUM_THREADS"] = "1"  # inherited by the workers
    options.out.mkdir(parents=True, exist_ok=True)
    check_recipe(options.out, options.steps)
    missing = [member for member in family() if not (options.out / member.name).exists()]
    print(f"{len(missing)} of {len(family())} models to train, {options.steps} steps each", flush=True)
    spawn = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(options.workers, mp_context=spawn) as pool:
        jobs = [pool.submit(train_and_save, member, options.steps, options.out) for member in missing]
        for job in as_completed(jobs):
            member, loss, seconds = job.result()
            collect_curves(options.out)
            print(
                f"{member.name}: held-out loss {loss:.3f} nats per masked byte, {seconds:.0f} s", flush=True
            )


if __name__ == "__main__":
    main()
