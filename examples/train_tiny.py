"""Train the small decoder that ships as examples/tiny-decoder: GPT-2 of 4 layers, one token per byte.

    python examples/train_tiny.py

reads the running interpreter's standard library (attnlaw.training.decoder), trains on one thread for
about a quarter of an hour, and writes model.safetensors, config.json, training.json and README.md. Needs
the packages torch and transformers;
`AutoModelForCausalLM.from_pretrained("examples/tiny-decoder")` loads the result.

    python examples/train_tiny.py --steps 200 --out run
    attnlaw report run/spectra

is a short run; in both a monitor follows the spectra, for at most 2% of the time, into OUT/spectra.
"""

from __future__ import annotations

import argparse
import json
import platform
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
import transformers

from attnlaw.training import SpectralMonitor
from attnlaw.training import decoder as byte_corpus
from attnlaw.training.decoder import (
    BATCH,
    CONTEXT,
    GRADIENT_NORM,
    LEARNING_RATE,
    WARMUP_STEPS,
    WEIGHT_DECAY,
    build_decoder,
    held_out_loss,
    train_decoder,
)

LOG_EVERY = 250
MEASURE_EVERY = 10  # where the monitor can afford it
PROGRESS_WINDOWS = 64  # held-out windows of the loss curve; the final loss is over all of them

MODEL_CARD = """# tiny-decoder

A byte-level GPT-2 decoder ({parameters:,} parameters: {layers} layers, hidden size {hidden}, {heads} heads,
context {context} bytes, vocabulary 256), trained from scratch by `examples/train_tiny.py` with seed {seed}.
It is small on purpose: a trained model to try attnlaw on, not one to write text with.

- **Training data**: the source of the Python {python} standard library, {train_bytes:,} bytes, without tests
  and generated tables; {held_out_files} files ({held_out_bytes:,} bytes) were held out.
- **Training**: {steps:,} steps of AdamW, batches of {batch} x {context} bytes, one CPU thread.
- **Held-out loss**: {loss:.3f} nats per byte; a smoothed bigram model has {bigram:.3f} on the same bytes.
- **Files**: `training.json` has the recipe, the loss curve and the versions used.

    from transformers import AutoModelForCausalLM
    model = AutoModelForCausalLM.from_pretrained("examples/tiny-decoder")

A token is a byte: `input_ids = torch.tensor([list(b"def main():")])`. The training text is under the Python
Software Foundation License; the weights are under this repository's licence.
"""


def train(
    model: torch.nn.Module,
    text: np.ndarray,
    probe: np.ndarray,
    steps: int,
    seed: int,
    monitor: SpectralMonitor,
) -> list[dict]:
    """Train in place; the loss curve as rows (training losses are means since the row before)."""
    curve, losses, start = [], [], time.monotonic()
    monitor.step(0)

    def after(step: int, loss: float) -> None:
        losses.append(loss)
        measured = monitor.step(step)
        if step == steps and measured is None:
            monitor.measure(steps)
        if step % LOG_EVERY == 0 or step == steps:
            row = {
                "step": step,
                "training_loss": round(float(np.mean(losses)), 4),
                "held_out_loss": round(held_out_loss(model, probe), 4),
            }
            curve.append(row)
            losses.clear()
            print(
                f"step {step}/{steps}: training {row['training_loss']:.3f}, held out "
                f"{row['held_out_loss']:.3f} nats per byte, {time.monotonic() - start:.0f} s",
                flush=True,
            )

    train_decoder(model, text, steps, seed, after)
    return curve


def model_card(model: torch.nn.Module, record: dict) -> str:
    """README.md of the model, its figures taken from the training record."""
    return MODEL_CARD.format(
        parameters=sum(p.numel() for p in model.parameters()),
        layers=model.config.n_layer,
        hidden=model.config.n_embd,
        heads=model.config.n_head,
        context=record["context"],
        seed=record["seed"],
        steps=record["steps"],
        batch=record["batch"],
        python=record["corpus"]["python_version"],
        train_bytes=record["corpus"]["training_bytes"],
        held_out_files=record["corpus"]["held_out_files"],
        held_out_bytes=record["corpus"]["held_out_bytes"],
        loss=record["held_out_loss"],
        bigram=record["bigram_held_out_loss"],
    )


def save(model: torch.nn.Module, record: dict, out: Path) -> None:
    """Write the four files under a temporary directory inside `out`, then rename them into place."""
    out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".draft-", dir=out) as folder:
        draft = Path(folder)
        model.save_pretrained(draft)
        (draft / "training.json").write_text(json.dumps(record, indent=2) + "\n")
        (draft / "README.md").write_text(model_card(model, record))
        for name in ("model.safetensors", "config.json", "training.json", "README.md"):
            (draft / name).replace(out / name)


def main() -> None:
    parser = argparse.ArgumentParser(
        description="Train the small byte-level decoder of examples/tiny-decoder."
    )
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "tiny-decoder")
    parser.add_argument("--steps", type=int, default=4500)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()

    torch.set_num_threads(1)
    torch.manual_seed(options.seed)
    train_files = byte_corpus.source_files(held_out=False)
    held_out_files = byte_corpus.source_files(held_out=True)
    text, held_out_text = byte_corpus.read_bytes(train_files), byte_corpus.read_bytes(held_out_files)
    held_out = byte_corpus.windows(held_out_text, CONTEXT)
    probe = held_out[np.linspace(0, len(held_out) - 1, PROGRESS_WINDOWS, dtype=int)]
    bigram = float(byte_corpus.bigram_losses(text, held_out).mean())
    print(
        f"{len(text):,} bytes to train on, {held_out_text.size:,} held out; bigram {bigram:.3f} nats per byte"
    )

    model = build_decoder()
    monitor = SpectralMonitor(model, options.out / "spectra", every=MEASURE_EVERY, name="tiny-decoder")
    curve = train(model, text, probe, options.steps, options.seed, monitor)
    loss = held_out_loss(model, held_out)
    record = {
        "seed": options.seed,
        "corpus": {
            "description": byte_corpus.DESCRIPTION,
            "python_version": platform.python_version(),
            "training_files": len(train_files),
            "training_bytes": len(text),
            "held_out_files": len(held_out_files),
            "held_out_bytes": len(held_out_text),
        },
        "steps": options.steps,
        "batch": BATCH,
        "context": CONTEXT,
        "learning_rate": LEARNING_RATE,
        "schedule": f"{WARMUP_STEPS} steps of linear warm-up, cosine to a tenth",
        "optimizer": {"name": "AdamW", "betas": [0.9, 0.95], "weight_decay": WEIGHT_DECAY},
        "gradient_norm": GRADIENT_NORM,
        "loss_unit": "nats per byte",
        "held_out_loss": round(loss, 4),
        "bigram_held_out_loss": round(bigram, 4),
        "predicted_bytes": int(held_out[:, 1:].size),
        "loss_curve": curve,
        "versions": {"torch": torch.__version__, "transformers": transformers.__version__},
    }
    save(model, record, options.out)
    print(f"held-out loss {loss:.4f}, bigram {bigram:.4f} nats per byte")


if __name__ == "__main__":
    main()
