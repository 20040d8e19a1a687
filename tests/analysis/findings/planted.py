"""47 kinds of damage, planted in a trained BERT (rxnfp): what the gate finds, and what `diff` finds.

    python tests/analysis/findings/planted.py [KIND ...]

prints a table in Markdown. It judges each damaged copy by `attnlaw check` without rules, and compares it with
the sound model. docs/theory/trust.md has the table of all kinds.
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from zlib import crc32

import ml_dtypes
import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import save_file

TESTS = Path(__file__).resolve().parents[2]
sys.path.append(str(TESTS))

from real_checkpoints import fetch  # noqa: E402

import attnlaw  # noqa: E402
from attnlaw.checkpoints.open import find_checkpoint, open_file  # noqa: E402

BASE, SIBLING = "rxnfp-pretrained", "rxnfp-finetuned"
LAYERS, HEADS, WIDTH = 12, 4, 256
LAYER, OTHER = 5, 8  # the damaged layer, and one that it is exchanged with
Q, K, V = (f"attention.self.{name}" for name in ("query", "key", "value"))
O, IN, OUT = "attention.output.dense", "intermediate.dense", "output.dense"
MATRICES = (Q, K, V, O, IN, OUT)
TOKENS = "bert.embeddings.word_embeddings.weight"

Array = NDArray[np.float32]
Tensors = dict[str, Array]
Config = dict[str, Any]
Change = Callable[[Tensors, Config], None]


@dataclass(frozen=True)
class Planted:
    """A kind of damage.

    Args:
        rules: the findings of the gate, by name; empty if the weights do not show the damage.
    """

    name: str
    change: Change
    rules: tuple[str, ...] = ()

    def write(self, folder: Path) -> Path:
        """Write a damaged copy of the base to a directory."""
        tensors, config = base()
        self.change(tensors, config)
        folder.mkdir(parents=True, exist_ok=True)
        save_file(
            {name: np.ascontiguousarray(array) for name, array in tensors.items()},
            folder / "model.safetensors",
        )
        (folder / "config.json").write_text(json.dumps(config))
        return folder


def _read(name: str) -> Tensors:
    tensors = open_file(find_checkpoint(fetch(name)))
    return {name: np.array(tensors.read(name)) for name in tensors.shapes}


def base() -> tuple[Tensors, Config]:
    return _read(BASE), json.loads((fetch(BASE) / "config.json").read_text())


def layer_name(layer: int, module: str, part: str = "weight") -> str:
    return f"bert.encoder.layer.{layer}.{module}.{part}"


def layer_tensors(tensors: Mapping[str, Array], layer: int) -> Tensors:
    """The tensors of a layer by the part of their name after the layer's number."""
    prefix = f"bert.encoder.layer.{layer}."
    return {name.removeprefix(prefix): array for name, array in tensors.items() if name.startswith(prefix)}


def reorder(order: Mapping[int, int]) -> Change:
    """Layer i gets the tensors of layer order[i]."""

    def change(tensors: Tensors, config: Config) -> None:
        sources = {layer: layer_tensors(tensors, source) for layer, source in order.items()}
        for layer, parts in sources.items():
            tensors.update(
                {f"bert.encoder.layer.{layer}.{part}": array.copy() for part, array in parts.items()}
            )

    return change


def edit(
    function: Callable[[Array], Array],
    *modules: str,
    layers: range = range(LAYER, LAYER + 1),
    bias: bool = False,
) -> Change:
    """Change the weights of some modules, and their biases."""

    def change(tensors: Tensors, config: Config) -> None:
        for layer in layers:
            for module in modules:
                for part in ("weight", "bias") if bias else ("weight",):
                    name = layer_name(layer, module, part)
                    tensors[name] = np.ascontiguousarray(function(tensors[name]), dtype=np.float32)

    return change


EVERY = range(LAYERS)


def exchange(first: str, second: str, layers: range = range(LAYER, LAYER + 1)) -> Change:
    def change(tensors: Tensors, config: Config) -> None:
        for layer in layers:
            for part in ("weight", "bias"):
                names = layer_name(layer, first, part), layer_name(layer, second, part)
                tensors[names[0]], tensors[names[1]] = tensors[names[1]], tensors[names[0]]

    return change


def by_name(function: Callable[[Array], Array], wanted: Callable[[str], bool]) -> Change:
    def change(tensors: Tensors, config: Config) -> None:
        for name in filter(wanted, list(tensors)):
            tensors[name] = np.ascontiguousarray(function(tensors[name]), dtype=np.float32)

    return change


def configured(**values: Any) -> Change:
    return lambda tensors, config: config.update(values)


def random(array: Array) -> np.random.Generator:
    """Return a generator that differs from matrix to matrix, and not from run to run."""
    return np.random.default_rng(crc32(array.tobytes()))


def times(factor: float) -> Callable[[Array], Array]:
    return lambda array: array * np.float32(factor)


def noise(share: float) -> Callable[[Array], Array]:
    return lambda array: array + share * array.std() * random(array).standard_normal(array.shape)


def redrawn(array: Array) -> Array:
    return array.std() * random(array).standard_normal(array.shape)


def entry(value: float) -> Callable[[Array], Array]:
    def change(array: Array) -> Array:
        array[3, 7] = value
        return array

    return change


def rows_zero(count: int) -> Callable[[Array], Array]:
    def change(array: Array) -> Array:
        array[random(array).choice(len(array), count, replace=False)] = 0
        return array

    return change


def columns_zero(count: int) -> Callable[[Array], Array]:
    return lambda array: rows_zero(count)(array.T.copy()).T


def int4(array: Array) -> Array:
    """Blocks of 32 along the rows, rounded to 4 bits by their largest magnitude."""
    blocks = array.reshape(-1, 32)
    step = np.abs(blocks).max(axis=1, keepdims=True) / 7
    return (np.round(blocks / step) * step).reshape(array.shape)


def float8(array: Array) -> Array:
    return array.astype(ml_dtypes.float8_e4m3fn).astype(np.float32)


def heads_reversed(array: Array) -> Array:
    return array.reshape(HEADS, -1, *array.shape[1:])[::-1].reshape(array.shape)


def interleaved(array: Array) -> Array:
    """Rows of each head in the order that rotary positions in adjacent pairs would need."""
    halves = array.reshape(HEADS, 2, -1, *array.shape[1:])
    return halves.swapaxes(1, 2).reshape(array.shape)


def first_head_copied(array: Array) -> Array:
    size = len(array) // HEADS
    array[size : 2 * size] = array[:size]
    return array


def second_head_redrawn(array: Array) -> Array:
    size = len(array) // HEADS
    array[size : 2 * size] = redrawn(array[size : 2 * size])
    return array


def rows_shuffled(array: Array) -> Array:
    return array[random(array).permutation(len(array))]


def signs_flipped(array: Array) -> Array:
    return np.where(random(array).random(array.shape) < 0.05, -array, array)


def from_sibling(tensors: Tensors, config: Config) -> None:
    prefix = f"encoder.layer.{LAYER}."
    tensors.update(
        {f"bert.{name}": array for name, array in _read(SIBLING).items() if name.startswith(prefix)}
    )


def together(*changes: Change) -> Change:
    def change(tensors: Tensors, config: Config) -> None:
        for part in changes:
            part(tensors, config)

    return change


def on_columns(function: Callable[[Array], Array]) -> Callable[[Array], Array]:
    return lambda array: function(array.T.copy()).T


def is_gain(name: str) -> bool:
    return name.endswith("LayerNorm.weight")


def is_bias(name: str) -> bool:
    return name.endswith(".bias") and "LayerNorm" not in name


LEXICAL = dict(enumerate(sorted(EVERY, key=str)))
KINDS = {
    kind.name: kind
    for kind in (
        # The 28 kinds that version 0.2.0 missed.
        Planted("all norm gains 1", by_name(np.ones_like, is_gain), ("gains-one",)),
        Planted("all biases 0", by_name(np.zeros_like, is_bias), ("biases-zero",)),
        Planted("random embeddings", by_name(redrawn, TOKENS.__eq__), ("random-embedding",)),
        Planted(
            "200 of 591 embedding rows 0", by_name(rows_zero(200), TOKENS.__eq__), ("zero-embedding-rows",)
        ),
        Planted("a layer rounded to float8", edit(float8, *MATRICES), ("float8-trace",)),
        Planted("Q, K, V, O all transposed", edit(np.transpose, Q, K, V, O, layers=EVERY)),
        Planted("Q times 8 in every layer", edit(times(8), Q, layers=EVERY, bias=True)),
        Planted("Q times 1/8 in every layer", edit(times(1 / 8), Q, layers=EVERY, bias=True)),
        Planted("100% noise on a matrix", edit(noise(1.0), IN)),
        Planted("layers in lexical order", reorder(LEXICAL)),
        Planted("layers reversed", reorder({layer: LAYERS - 1 - layer for layer in EVERY})),
        Planted("two layers exchanged", reorder({LAYER: OTHER, OTHER: LAYER})),
        Planted("Q and K exchanged in a layer", exchange(Q, K)),
        Planted("Q and K exchanged in every layer", exchange(Q, K, EVERY)),
        Planted("Q and V exchanged in a layer", exchange(Q, V)),
        Planted("V heads reversed in a layer", edit(heads_reversed, V, bias=True)),
        Planted("V heads reversed in every layer", edit(heads_reversed, V, layers=EVERY, bias=True)),
        Planted("rows of Q interleaved", edit(interleaved, Q, bias=True)),
        Planted("8 heads in the config instead of 4", configured(num_attention_heads=8)),
        Planted("another activation in the config", configured(hidden_act="relu")),
        Planted("everything halved", by_name(times(0.5), lambda name: True)),
        Planted("Q doubled", edit(times(2), Q)),
        Planted("FFN-out doubled", edit(times(2), OUT)),
        Planted("FFN-out negated", edit(times(-1), OUT)),
        Planted("FFN rows shuffled", edit(rows_shuffled, IN)),
        Planted("5% of signs flipped", edit(signs_flipped, IN)),
        Planted("10% noise on a matrix", edit(noise(0.1), IN)),
        Planted("a layer of the fine-tuned sibling", from_sibling),
        # Kinds that it found.
        Planted("a NaN", edit(entry(np.nan), Q), ("non-finite",)),
        Planted("an infinity", edit(entry(np.inf), IN), ("non-finite",)),
        Planted("an entry of 70,000", edit(entry(7e4), V), ("beyond-float16",)),
        Planted("a matrix of zeros", edit(np.zeros_like, O), ("zero-tensor",)),
        Planted(
            "a matrix of one value", edit(lambda array: np.full_like(array, 0.02), O), ("constant-tensor",)
        ),
        Planted(
            "100 of 512 neurons pruned",
            together(edit(rows_zero(100), IN), edit(columns_zero(100), OUT)),
            ("zero-rows",),
        ),
        Planted("50 of 256 inputs cut off", edit(columns_zero(50), IN), ("zero-rows",)),
        Planted("V zeroed", edit(np.zeros_like, V), ("zero-tensor",)),
        Planted("Q zeroed", edit(np.zeros_like, Q), ("zero-tensor",)),
        Planted("a layer rounded to int4", edit(int4, *MATRICES), ("coarse-grid",)),
        Planted("a layer copied from another", reorder({LAYER: OTHER}), ("copied-layer",)),
        Planted(
            "a head copied over another",
            together(edit(first_head_copied, Q, K, V), edit(on_columns(first_head_copied), O)),
            ("duplicate-heads",),
        ),
        Planted(
            "a head drawn again",
            together(edit(second_head_redrawn, Q, K, V), edit(on_columns(second_head_redrawn), O)),
            ("random-head",),
        ),
        Planted("a layer drawn again", edit(redrawn, *MATRICES), ("untrained-layer",)),
        Planted("every layer drawn again", edit(redrawn, *MATRICES, layers=EVERY), ("untrained-model",)),
        Planted("Q times 10 in a layer", edit(times(10), Q), ("unbalanced",)),
        Planted("Q times 1000 in a layer", edit(times(1000), Q), ("unbalanced",)),
        Planted("FFN-in times 10 in a layer", edit(times(10), IN), ("unbalanced",)),
        Planted("Q transposed in a layer", edit(np.transpose, Q), ("transposed",)),
    )
}


def found_by_gate(model: Path) -> str:
    """Return the findings of the gate without rules, and say which are errors."""
    gate = attnlaw.check(model, jobs=1)
    levels = {row["rule"]: row["level"] for row in gate.findings.iter_rows(named=True)}
    marks = {"error": " (error)"}
    return ", ".join(f"`{rule}`{marks.get(level, '')}" for rule, level in levels.items()) or "not found"


def found_by_diff(model: Path) -> str:
    """Return the verdicts of the comparison with the base."""
    verdicts = attnlaw.diff(fetch(BASE), model, jobs=1).record.quantities["verdicts"]
    return ", ".join(f"`{verdict}`" for verdict in verdicts if verdict != "identical") or "not found"


def main(names: list[str]) -> None:
    sys.stdout.write("| damage | by the gate, from the weights | by `diff` with the base |\n|---|---|---|\n")
    for name in names or KINDS:
        with tempfile.TemporaryDirectory() as folder:
            model = KINDS[name].write(Path(folder) / "damaged")
            sys.stdout.write(f"| {name} | {found_by_gate(model)} | {found_by_diff(model)} |\n")
            sys.stdout.flush()


if __name__ == "__main__":
    main(sys.argv[1:])
