"""Train the small decoder that ships as examples/tiny-decoder: GPT-2 of 4 layers, one token per byte.

    python examples/train_tiny.py

reads the running interpreter's standard library (see byte_corpus.py), trains on one thread for about a
quarter of an hour, and writes model.safetensors, config.json, training.json and README.md. Needs the packages
torch and transformers; `AutoModelForCausalLM.from_pretrained("examples/tiny-decoder")` loads the result.

    python examples/train_tiny.py --steps 200 --out run
    attnlaw report run/spectra

is a short run; in both a monitor follows the spectra, for at most 2% of the time, into OUT/spectra.
"""

from __future__ import annotations

import argparse
import json
import math
import platform
import tempfile
import time
from pathlib import Path

import byte_corpus
import numpy as np
import torch
import transformers
from torch.nn.functional import cross_entropy
from transformers import GPT2Config, GPT2LMHeadModel

from attnlaw.training import SpectralMonitor

CONTEXT = 128
BATCH = 16
LEARNING_RATE = 3e-3
WARMUP_STEPS = 100
WEIGHT_DECAY = 0.1
GRADIENT_NORM = 1.0
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


def build_model() -> GPT2LMHeadModel:
    """The decoder, with GPT-2's initialisation."""
    return GPT2LMHeadModel(
        GPT2Config(
            vocab_size=byte_corpus.VOCABULARY,
            n_positions=CONTEXT,
            n_embd=128,
            n_layer=4,
            n_head=4,
            activation_function="gelu",
            resid_pdrop=0.0,
            embd_pdrop=0.0,
            attn_pdrop=0.0,
            bos_token_id=0,
            eos_token_id=0,
        )
    )


def adamw(model: torch.nn.Module, learning_rate: float) -> torch.optim.AdamW:
    """AdamW with weight decay on matrices and none on biases and normalisation gains."""
    parameters = list(model.parameters())
    groups = [
        {"params": [p for p in parameters if p.ndim >= 2], "weight_decay": WEIGHT_DECAY},
        {"params": [p for p in parameters if p.ndim < 2], "weight_decay": 0.0},
    ]
    return torch.optim.AdamW(groups, lr=learning_rate, betas=(0.9, 0.95), fused=True)


def warmup_then_cosine(optimizer: torch.optim.Optimizer, steps: int) -> torch.optim.lr_scheduler.LambdaLR:
    """A linear rise over WARMUP_STEPS, then half a cosine down to a tenth of the learning rate."""

    def factor(step: int) -> float:
        cosine = 0.5 * (1 + math.cos(math.pi * min(step / steps, 1)))
        return min((step + 1) / WARMUP_STEPS, 1) * (0.1 + 0.9 * cosine)

    return torch.optim.lr_scheduler.LambdaLR(optimizer, factor)


def decoder_loss(model: torch.nn.Module, windows: np.ndarray) -> torch.Tensor:
    """Mean loss in nats per byte of predicting windows[:, 1:] from windows[:, :-1]."""
    tokens = torch.from_numpy(windows.astype(np.int64))
    logits = model(input_ids=tokens[:, :-1], use_cache=False).logits
    return cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())


@torch.no_grad()
def held_out_loss(model: torch.nn.Module, windows: np.ndarray) -> float:
    """The decoder's mean loss over all windows, which are of equal length."""
    batches = [windows[i : i + 64] for i in range(0, len(windows), 64)]
    return sum(len(batch) * decoder_loss(model, batch).item() for batch in batches) / len(windows)


def train(
    model: GPT2LMHeadModel,
    text: np.ndarray,
    probe: np.ndarray,
    steps: int,
    seed: int,
    monitor: SpectralMonitor,
) -> list[dict]:
    """Train in place; the loss curve as rows (training losses are means since the row before)."""
    rng = np.random.default_rng(seed)
    optimizer = adamw(model, LEARNING_RATE)
    schedule = warmup_then_cosine(optimizer, steps)
    curve, losses, start = [], [], time.monotonic()
    monitor.step(0)
    for step in range(1, steps + 1):
        loss = decoder_loss(model, byte_corpus.random_windows(text, BATCH, CONTEXT + 1, rng))
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), GRADIENT_NORM)
        optimizer.step()
        schedule.step()
        optimizer.zero_grad()
        losses.append(loss.item())
        measured = monitor.step(step)
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
    if measured is None:
        monitor.measure(steps)
    return curve


def model_card(model: GPT2LMHeadModel, record: dict) -> str:
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


def save(model: GPT2LMHeadModel, record: dict, out: Path) -> None:
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

    model = build_model()
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
