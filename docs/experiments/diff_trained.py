"""Train one layer of a real model in several ways, then ask `attnlaw diff` what happened to each matrix.

    python -m pip install --target SITE --no-deps --constraint constraints.txt peft
    PYTHONPATH=SITE python docs/experiments/diff_trained.py OUT [CASE ...]

The base is SmolLM2-135M-Instruct. tests/real_checkpoints.py fetches its Q4_1 file, and this script decodes it
to float32. Each case trains matrices of layer 3 on the CPU and leaves the rest of the model as it is.

OUT gets the base and one directory for each case, with truth.json next to the weights (5 GB in all). A case
that is there is not trained again: the same command resumes an interrupted run and prints the table of a
finished one. Name cases to run only these. `--train` skips the comparison.

The text is the Python language reference that every interpreter has (pydoc_data.topics). Runs with the same
machine and the same versions of Python, torch, transformers and peft make the same weights.
Needs torch, transformers, gguf, peft and pytest.
"""

from __future__ import annotations

import argparse
import copy
import json
import platform
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from pydoc_data.topics import topics
from typing import Any

import peft
import torch
import transformers
from torch import Tensor
from torch.nn.functional import cross_entropy, logsigmoid
from transformers import AutoModelForCausalLM, AutoTokenizer

import attnlaw

LAYER = 3
PREFIX = f"model.layers.{LAYER}."
MATRICES = (
    "self_attn.q_proj",
    "self_attn.k_proj",
    "self_attn.v_proj",
    "self_attn.o_proj",
    "mlp.gate_proj",
    "mlp.up_proj",
    "mlp.down_proj",
)
GGUF = "SmolLM2-135M-Instruct.Q4_1.gguf"
SEED = 0
BATCH, CONTEXT = 4, 64  # sequences of a step, tokens of a sequence
PROMPT = 32  # tokens of a sequence that DPO takes as the prompt
ADAPTER_STEPS, ADAPTER_RATE = 20, 1e-3
TUNE_STEPS, TUNE_RATE = 10, 2.6e-5
DPO_STEPS, DPO_BETA = 3, 0.1  # the rate is that of the tune; beta weighs the reference
COLUMNS = ("verdict", "rank", "rank_low", "size", "update_size", "roundings")  # of attnlaw.diff


@dataclass(frozen=True)
class Update:
    """What training did to one matrix.

    Attributes:
        weight: the trained or merged matrix, float32.
        change: what was added to the base, float64. Adapters: the product of the factors, without the
            rounding of the merge.
        rank: the adapter's rank; None if the update is not a product of factors.
    """

    weight: Tensor
    change: Tensor
    rank: int | None = None


Updates = dict[str, Update]


@dataclass(frozen=True)
class Case:
    """A directory of weights: the training that makes them, and the type of the file."""

    name: str
    train: Callable[[Path], Updates]
    dtype: torch.dtype = torch.float32


def make_base(out: Path) -> Path:
    """Decode the Q4_1 file to a Hugging Face directory with float32 weights, unless it is there."""
    if not (out / "base").is_dir():
        sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tests"))
        from real_checkpoints import fetch

        source = fetch("smollm2")
        decoded = AutoModelForCausalLM.from_pretrained(source, gguf_file=GGUF, dtype=torch.float32)
        # The loaded config says that the weights are in a GGUF file. Here they are float32 numbers.
        words = decoded.config.to_dict()
        words.pop("quantization_config", None)
        plain = AutoModelForCausalLM.from_config(type(decoded.config).from_dict(words), dtype=torch.float32)
        plain.load_state_dict(decoded.state_dict())
        with draft_directory(out / "base") as draft:
            plain.save_pretrained(draft)
            AutoTokenizer.from_pretrained(source, gguf_file=GGUF).save_pretrained(draft)
    return out / "base"


@contextmanager
def draft_directory(target: Path) -> Iterator[Path]:
    """Yield a directory that is renamed to the target when the block ends without an error."""
    with tempfile.TemporaryDirectory(prefix=".draft-", dir=target.parent) as folder:
        draft = Path(folder) / target.name
        draft.mkdir()
        yield draft
        draft.rename(target)


def load_frozen(base: Path) -> Any:
    """Load the base with no parameter to train. Seed torch, so that each case starts in the same state."""
    torch.manual_seed(SEED)
    return AutoModelForCausalLM.from_pretrained(base, dtype=torch.float32).requires_grad_(False)


@cache
def text_tokens(base: Path) -> Tensor:
    """Return the tokens of the Python language reference, in the order of its topics."""
    text = "\n".join(topics[name] for name in sorted(topics))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the text is longer than the model's context
        return torch.tensor(AutoTokenizer.from_pretrained(base)(text, verbose=False)["input_ids"])


def random_sequences(base: Path, generator: torch.Generator) -> Tensor:
    """Draw the sequences of one step from the text (BATCH x CONTEXT)."""
    tokens = text_tokens(base)
    starts = torch.randint(len(tokens) - CONTEXT, (BATCH,), generator=generator)
    return torch.stack([tokens[start : start + CONTEXT] for start in starts.tolist()])


def matrix_of(model: Any, name: str) -> Any:
    """Return the module of a matrix of the trained layer."""
    return model.get_submodule(PREFIX + name)


def train_steps(model: Any, base: Path, steps: int, rate: float, loss_of: Callable[[Tensor], Tensor]) -> None:
    """Minimise a loss over the parameters that are not frozen, by AdamW with a constant learning rate."""
    generator = torch.Generator().manual_seed(SEED)
    batches = [random_sequences(base, generator) for _ in range(steps)]
    optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=rate)
    losses = []
    for batch in batches:
        loss = loss_of(batch)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    with torch.no_grad():
        after = loss_of(batches[0]).item()
    print(f"  {steps} steps; loss of the first batch {losses[0]:.4f}, afterwards {after:.4f}", flush=True)


def next_token_loss(model: Any, sequences: Tensor) -> Tensor:
    """Return the mean loss of the next token, in nats."""
    logits = model(input_ids=sequences).logits[:, :-1]
    return cross_entropy(logits.flatten(0, 1), sequences[:, 1:].flatten())


@cache
def train_adapter(base: Path, kind: str) -> Any:
    """Train an adapter of peft on the next token; return the model with the adapter still separate."""
    shapes = {
        "lora": {"target_modules": ["q_proj", "v_proj"], "r": 8, "lora_alpha": 16},
        "dora": {"target_modules": ["q_proj", "v_proj"], "r": 8, "lora_alpha": 16, "use_dora": True},
        # rsLoRA divides by the root of the rank; one matrix has rank 4, the other rank 2.
        "rslora": {
            "target_modules": ["q_proj", "down_proj"],
            "r": 4,
            "rank_pattern": {"down_proj": 2},
            "lora_alpha": 8,
            "use_rslora": True,
        },
    }
    config = peft.LoraConfig(layers_to_transform=[LAYER], **shapes[kind])
    model = peft.get_peft_model(load_frozen(base), config)
    train_steps(model, base, ADAPTER_STEPS, ADAPTER_RATE, lambda batch: next_token_loss(model, batch))
    return model.requires_grad_(False)


def exact_products(adapted: Any) -> dict[str, tuple[Tensor, int]]:
    """Return the update (float64) and the rank of each matrix that has an adapter."""
    products = {}
    for name in MATRICES:
        module = matrix_of(adapted.base_model.model, name)
        if hasattr(module, "lora_A"):
            down, up = (part["default"].weight.double() for part in (module.lora_A, module.lora_B))
            products[name] = (module.scaling["default"] * up @ down, down.shape[0])
    return products


def merge_once(base: Path, kind: str) -> Updates:
    """Merge an adapter by peft."""
    adapted = train_adapter(base, kind)
    products = exact_products(adapted)
    merged = copy.deepcopy(adapted).merge_and_unload()
    return {
        name: Update(matrix_of(merged, name).weight, change, rank)
        for name, (change, rank) in products.items()
    }


def merge_twice(base: Path, kind: str) -> Updates:
    """Add half of the same update twice, each time in float32."""
    adapted = train_adapter(base, kind)
    updates = {}
    for name, (change, rank) in exact_products(adapted).items():
        module = matrix_of(adapted.base_model.model, name)
        half = module.get_delta_weight("default") / 2
        updates[name] = Update(module.base_layer.weight + half + half, change, rank)
    return updates


def merge_dora(base: Path) -> Updates:
    """Merge DoRA by peft. It also rescales each row, so the change is not the product of the factors."""
    merged = copy.deepcopy(train_adapter(base, "dora")).merge_and_unload()
    return updates_from(base, merged, ("self_attn.q_proj", "self_attn.v_proj"))


def updates_from(base: Path, model: Any, names: tuple[str, ...] = MATRICES) -> Updates:
    """Compare trained matrices with those of the base."""
    before = load_frozen(base)
    updates = {}
    for name in names:
        weight = matrix_of(model, name).weight.detach()
        updates[name] = Update(weight, weight.double() - matrix_of(before, name).weight.double())
    return updates


def load_trainable(base: Path) -> Any:
    """Load the base with the seven matrices of the layer to train."""
    model = load_frozen(base)
    for name in MATRICES:
        matrix_of(model, name).weight.requires_grad_(True)
    return model


@cache
def tune(base: Path) -> Updates:
    """Train the seven matrices on the next token."""
    model = load_trainable(base)
    train_steps(model, base, TUNE_STEPS, TUNE_RATE, lambda batch: next_token_loss(model, batch))
    return updates_from(base, model)


@cache
def prefer(base: Path) -> Updates:
    """Train the seven matrices by direct preference optimisation (DPO).

    The chosen answer is how the text goes on. The rejected one has the same tokens in the opposite
    order. The reference is a frozen copy of the base.
    """
    model, reference = load_trainable(base), load_frozen(base)

    def log_likelihood(of: Any, sequences: Tensor) -> Tensor:
        logits = of(input_ids=sequences).logits[:, PROMPT - 1 : -1].log_softmax(dim=-1)
        return logits.gather(2, sequences[:, PROMPT:, None]).sum(dim=(1, 2))

    def preference_loss(chosen: Tensor) -> Tensor:
        rejected = torch.cat([chosen[:, :PROMPT], chosen[:, PROMPT:].flip(1)], dim=1)
        both = torch.cat([chosen, rejected])
        with torch.no_grad():
            expected = log_likelihood(reference, both)
        gain = log_likelihood(model, both) - expected
        return -logsigmoid(DPO_BETA * (gain[:BATCH] - gain[BATCH:])).mean()

    train_steps(model, base, DPO_STEPS, TUNE_RATE, preference_loss)
    return updates_from(base, model)


CASES = (
    Case("lora-once", lambda base: merge_once(base, "lora")),
    Case("lora-once-bf16", lambda base: merge_once(base, "lora"), torch.bfloat16),
    Case("lora-twice", lambda base: merge_twice(base, "lora")),
    Case("lora-twice-bf16", lambda base: merge_twice(base, "lora"), torch.bfloat16),
    Case("rslora", lambda base: merge_once(base, "rslora")),
    Case("dora", merge_dora),
    Case("adamw", tune),
    Case("adamw-bf16", tune, torch.bfloat16),
    Case("dpo", prefer),
    Case("dpo-bf16", prefer, torch.bfloat16),
)


def save_case(case: Case, base: Path, out: Path) -> None:
    """Train a case; write the whole model in the type of the case, with the truth next to it."""
    print(f"{case.name}:", flush=True)
    start = time.monotonic()
    updates = case.train(base)
    model = load_frozen(base)
    truth = {}
    for name, update in updates.items():
        weight = matrix_of(model, name).weight
        truth[PREFIX + name + ".weight"] = describe(update, weight)
        weight.copy_(update.weight)
    with draft_directory(out / case.name) as draft:
        model.to(case.dtype).save_pretrained(draft)
        (draft / "truth.json").write_text(json.dumps(truth, indent=2) + "\n")
    print(f"  saved after {time.monotonic() - start:.0f} s", flush=True)


def describe(update: Update, weight: Tensor) -> dict[str, Any]:
    """Return the true size, rank and falling off of an update, before the file rounds it.

    `last_value` is the smallest singular value that belongs to the rank, divided by the largest. `directions`
    is the number of singular values with 90% of the energy (the sum of their squares).
    """
    values = torch.linalg.svdvals(update.change)
    rank = update.rank or int((values > 1e-6 * values[0]).sum())
    energy = values.square().cumsum(0) / values.square().sum()
    return {
        "size": float(update.change.norm() / weight.double().norm()),
        "rank": rank,
        "full_rank": min(weight.shape),
        "last_value": float(values[rank - 1] / values[0]),
        "directions": int((energy < 0.9).sum()) + 1,
    }


def print_table(cases: tuple[Case, ...], base: Path, out: Path) -> None:
    """Compare each case with the base by attnlaw, and print the truth next to what attnlaw reports."""
    titles = ["case", "matrix", "true size", "true rank", "last value", "90% of energy", *COLUMNS]
    print("\n| " + " | ".join(titles) + " |\n|" + "---|" * len(titles), flush=True)
    for case in cases:
        truth = json.loads((out / case.name / "truth.json").read_text())
        result = attnlaw.diff(base, out / case.name, layers=f"{LAYER}:{LAYER + 1}", jobs=1)
        rows = {row["tensor"]: row for row in result.diff_tensors.iter_rows(named=True)}
        for name in MATRICES:
            tensor = PREFIX + name + ".weight"
            reported = [format_cell(column, rows.get(tensor, {}).get(column)) for column in COLUMNS]
            expected = format_truth(truth.get(tensor))
            print("| " + " | ".join([case.name, name, *expected, *reported]) + " |", flush=True)


def format_truth(truth: dict[str, Any] | None) -> list[str]:
    """Return the cells of the truth on one matrix; None is a matrix that was not trained."""
    if truth is None:
        return ["0", "-", "-", "-"]
    rank = "full" if truth["rank"] == truth["full_rank"] else str(truth["rank"])
    return [f"{truth['size']:.3%}", rank, f"{truth['last_value']:.2g}", str(truth["directions"])]


def format_cell(column: str, value: Any) -> str:
    """Return a cell of what attnlaw reports; a missing value or column is a dash."""
    if value is None:
        return "-"
    if column in ("size", "update_size"):
        return f"{value:.3%}"
    return f"{value:.3g}" if isinstance(value, float) else str(value)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("out", type=Path, help="directory of the base and the cases")
    parser.add_argument("cases", nargs="*", metavar="CASE", help=", ".join(case.name for case in CASES))
    parser.add_argument("--train", action="store_true", help="make the checkpoints, do not compare them")
    given = parser.parse_args()
    if unknown := set(given.cases) - {case.name for case in CASES}:
        parser.error(f"no case {', '.join(sorted(unknown))}; choose from {', '.join(c.name for c in CASES)}")
    cases = tuple(case for case in CASES if not given.cases or case.name in given.cases)
    torch.set_num_threads(1)
    transformers.utils.logging.disable_progress_bar()
    given.out.mkdir(parents=True, exist_ok=True)
    versions = (f"{module.__name__} {module.__version__}" for module in (torch, transformers, peft, attnlaw))
    print(f"Python {platform.python_version()}, {', '.join(versions)}", flush=True)
    base = make_base(given.out)
    for case in cases:
        if not (given.out / case.name).is_dir():
            save_case(case, base, given.out)
    if not given.train:
        print_table(cases, base, given.out)


if __name__ == "__main__":
    main()
