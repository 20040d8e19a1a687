"""Networks with logits, and batches of inputs for them. Margins, condition and amplification use both.

| model | inputs | h0 |
|---|---|---|
| a directory, or a model of `transformers` | lists of token ids, or a tensor of them | what block 0 reads |
| a torch module | a tensor of floats, n x T x N | the tensor; with `blocks`, what `blocks[0]` reads |
| a torch module and its `blocks` | a tensor of ids, n x T | what `blocks[0]` reads |

Logits of shape (n, K) belong to a classifier. Logits of shape (n, T, K) belong to a causal language model,
which is read at one position of each input. Everything runs in float64, on a copy if the model has another
precision.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from copy import deepcopy
from dataclasses import dataclass
from inspect import signature
from math import ceil
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attnlaw.analysis.forward.families import FAMILIES
from attnlaw.analysis.forward.inputs import POSITIONS, RawInput, check_ids
from attnlaw.analysis.forward.load import load_classifier, normalise_in_float64
from attnlaw.analysis.forward.trace import max_input_tokens, temporary_hooks
from attnlaw.core.errors import BadSetting, InputError, require_extra
from attnlaw.core.progress import Progress, no_progress
from attnlaw.core.settings import check_value

BATCH_TOKENS = 2048  # in a batch, so that memory does not grow with the number of inputs
UNSUPPORTED_HEADS = {
    "ForMaskedLM": "a masked language model",
    "ForTokenClassification": "a classifier of tokens",
    "ForMultipleChoice": "a model for multiple choice",
    "ForQuestionAnswering": "a model for question answering",
}
# Takes the number of a block and what it reads; returns what it shall read instead.
BlockInputHook = Callable[[int, Any], Any]


@dataclass(frozen=True, eq=False)
class Batch:
    """A batch of inputs, padded on the right."""

    input_indices: list[int]  # the number of each input
    tensor: Any  # ids (B x T) or floats (B x T x N)
    mask: Any  # true for tokens that are not padding (B x T)
    visible: Any  # the tokens up to the position that is read; all tokens for a classifier
    positions: Any  # the position that is read in each input

    @property
    def tokens(self) -> Any:
        """Number of visible tokens of each input."""
        return self.visible.sum(dim=1)


@dataclass(frozen=True, eq=False)
class Classifier:
    """A network with logits in float64, in evaluation mode and with frozen parameters."""

    name: str
    module: Any
    blocks: tuple[Any, ...]  # the layers, first to last; empty if they are not known
    is_hugging_face: bool
    causal: bool  # whether it is a causal language model
    classes: int  # number of logits K

    def logits(self, batch: Batch, enter: BlockInputHook | None = None) -> Any:
        """Return the logits (B x K) at the position to read. `enter` may replace a block's input."""
        import torch

        if enter is not None and not self.blocks:
            return self._select_logits(batch, self.module(enter(0, batch.tensor)))
        with _hook_block_inputs(self.blocks, enter):
            if not self.is_hugging_face:
                return self._select_logits(batch, self.module(batch.tensor))
            given = {"input_ids": batch.tensor, "attention_mask": batch.mask.to(torch.int64)}
            if "use_cache" in signature(self.module.forward).parameters:
                given["use_cache"] = False
            return self._select_logits(batch, self.module(**given).logits)

    def _select_logits(self, batch: Batch, logits: Any) -> Any:
        import torch

        read = logits[torch.arange(len(logits)), batch.positions] if self.causal else logits
        lost = ~torch.isfinite(read).all(dim=1)
        if lost.any():
            number = batch.input_indices[int(lost.nonzero()[0, 0])]
            raise InputError(
                f"{self.name}: the logits of input {number} (from 0) are not finite; "
                "leave it out, or use an earlier checkpoint"
            )
        return read


@dataclass(frozen=True, eq=False)
class ModelInputs:
    """Inputs of a network. Each input is a tensor of token ids (T) or of floats (T x N)."""

    sequences: tuple[Any, ...]

    def __len__(self) -> int:
        return len(self.sequences)

    @property
    def sha256(self) -> str:
        """SHA-256 hash of the inputs. Ids are hashed as lines of decimal numbers, floats as bytes."""
        digest = hashlib.sha256()
        for tensor in self.sequences:
            if tensor.is_floating_point():
                digest.update(tensor.double().contiguous().numpy().tobytes())
            else:
                digest.update((",".join(map(str, tensor.tolist())) + "\n").encode())
        return digest.hexdigest()

    @property
    def duplicate_count(self) -> int:
        return len(self) - len({(tuple(tensor.shape), tensor.numpy().tobytes()) for tensor in self.sequences})


def open_classifier(
    model: str | os.PathLike[str] | Any, inputs: ModelInputs, blocks: Sequence[Any] | None = None
) -> Classifier:
    """Open a directory or a torch module, or take an open network, and try it on the first input.

    An `InputError` says that it has no logits of two classes or more, or does not fit the inputs.
    """
    import torch

    if isinstance(model, Classifier):
        return model
    if isinstance(model, str | os.PathLike):
        name, module = str(model), load_classifier(model)[1]
    else:
        name, (module, blocks) = type(model).__name__, _copy_in_float64(model, blocks)
    hugging = hasattr(module, "base_model_prefix")
    if hugging:
        _require_head(name, module)
    for parameter in module.parameters():
        parameter.requires_grad_(False)
    layers = _find_blocks(module) if blocks is None else tuple(blocks)
    if not layers and not inputs.sequences[0].is_floating_point():
        raise InputError(
            f"{name}: attnlaw does not know which modules are its blocks; pass them as blocks=, or pass "
            "inputs as a float tensor of shape n x T x N"
        )
    network = Classifier(name, module, layers, hugging, causal=False, classes=0)
    first = next(batches(inputs, network, "last", 0, token_limit=1))
    if hugging:
        _require_valid_ids(inputs, module.config)
    with torch.no_grad():
        logits = network.logits(first)
    if logits.ndim not in (2, 3) or len(logits) != 1 or logits.shape[-1] < 2:
        raise InputError(
            f"{name}: its output for one input has the shape {tuple(logits.shape)}, expected (1, K) of a "
            "classifier or (1, T, K) of a causal language model, with at least two classes"
        )
    return Classifier(name, module, layers, hugging, causal=logits.ndim == 3, classes=int(logits.shape[-1]))


def as_inputs(inputs: Any) -> ModelInputs:
    """Convert a tensor, lists of ids, or a dictionary with `input_ids` and `attention_mask` (no padding)."""
    with require_extra("a forward pass", "lens"):
        import torch
    if isinstance(inputs, ModelInputs):
        return inputs
    if isinstance(inputs, Mapping):
        ids = torch.as_tensor(inputs["input_ids"])
        mask = torch.as_tensor(inputs.get("attention_mask", torch.ones_like(ids))).bool()
        return ModelInputs(tuple(row[kept] for row, kept in zip(ids, mask, strict=True)))
    if isinstance(inputs, torch.Tensor):
        expected = 3 if inputs.is_floating_point() else 2
        if inputs.ndim != expected or 0 in inputs.shape:
            raise InputError(
                f"inputs: found the shape {tuple(inputs.shape)}, expected ids of shape n x T or floats of "
                "shape n x T x N"
            )
        return ModelInputs(tuple(inputs.detach().cpu()))
    rows = [check_ids(sequence) for sequence in inputs]
    if not rows or not all(rows):
        raise BadSetting(
            "inputs", "has no tokens; give at least one list of ids, with at least one id in each"
        )
    return ModelInputs(tuple(torch.tensor(row) for row in rows))


def batches(
    inputs: ModelInputs,
    network: Classifier,
    positions: str | Sequence[int],
    seed: int,
    progress: Progress = no_progress,
    token_limit: int = BATCH_TOKENS,
) -> Iterator[Batch]:
    """Yield batches of inputs of similar length: at most `token_limit` tokens, or a single input."""
    read = choose_positions([len(tensor) for tensor in inputs.sequences], network, positions, seed)
    order = sorted(range(len(inputs)), key=lambda place: len(inputs.sequences[place]))
    places: list[int] = []
    for done, place in enumerate(order):
        length = len(inputs.sequences[place])
        mixed = places and not network.is_hugging_face and len(inputs.sequences[places[0]]) != length
        if places and (mixed or (len(places) + 1) * length > token_limit):
            yield _batch(inputs, network, places, read)
            progress(done, len(inputs))
            places = []
        places.append(place)
    yield _batch(inputs, network, places, read)
    progress(len(inputs), len(inputs))


def choose_positions(
    lengths: Sequence[int], network: Classifier, positions: str | Sequence[int], seed: int
) -> NDArray[np.int64]:
    """Return the position to read: the last, a random one from the second half, or the given one."""
    ends = np.asarray(lengths) - 1
    if not network.causal:
        return ends
    if not isinstance(positions, str):
        given = np.asarray(positions)
        if given.shape != ends.shape or (given < 0).any() or (given > ends).any():
            raise BadSetting(
                "positions", "expected one position for each input, counted from 0 and inside the input"
            )
        return given
    if check_value("positions", positions, str, choices=POSITIONS) == "last":
        return ends
    generator = np.random.default_rng(seed)
    return np.array([generator.integers(ceil(length / 2), length) if length > 1 else 0 for length in lengths])


def _batch(inputs: ModelInputs, network: Classifier, places: list[int], read_at: NDArray[np.int64]) -> Batch:
    import torch

    chosen = [inputs.sequences[place] for place in places]
    config = network.module.config if network.is_hugging_face else None
    padding = 0 if config is None else getattr(config, "pad_token_id", None) or 0
    tensor = torch.nn.utils.rnn.pad_sequence(chosen, batch_first=True, padding_value=padding)
    if tensor.is_floating_point():
        tensor = tensor.double()
    places_of_tokens = torch.arange(tensor.shape[1])
    mask = places_of_tokens < torch.tensor([len(sequence) for sequence in chosen])[:, None]
    positions = torch.from_numpy(read_at[places])
    return Batch(places, tensor, mask, mask & (places_of_tokens <= positions[:, None]), positions)


def _hook_block_inputs(blocks: Sequence[Any], enter: BlockInputHook | None) -> AbstractContextManager[None]:
    """Return a context in which `enter` can replace the hidden states that each block reads."""

    def hook(number: int) -> Callable[[Any, Any, Any], Any]:
        def swap(module: Any, words: Any, named: Any) -> Any:
            assert enter is not None
            if words:
                return (enter(number, words[0]), *words[1:]), named
            return words, {**named, "hidden_states": enter(number, named["hidden_states"])}

        return swap

    entered = () if enter is None else blocks
    return temporary_hooks(
        block.register_forward_pre_hook(hook(number), with_kwargs=True)
        for number, block in enumerate(entered)
    )


def _copy_in_float64(model: Any, blocks: Sequence[Any] | None) -> tuple[Any, Sequence[Any] | None]:
    """Return a float64 copy of the module in evaluation mode, with the blocks of the copy."""
    import torch

    if not isinstance(model, torch.nn.Module):
        raise InputError(
            f"expected the name of a directory or a torch module as the model, found {type(model).__name__}"
        )
    # One copy of both, so that the blocks are still parts of the module.
    module, copied_blocks = deepcopy((model, None if blocks is None else list(blocks)))
    module = module.to("cpu").double().eval()
    if hasattr(module, "base_model_prefix"):
        normalise_in_float64(module)
    return module, copied_blocks


def _find_blocks(module: Any) -> tuple[Any, ...]:
    """Return the first list of modules with as many entries as the config has layers; empty if none has."""
    import torch

    layers = getattr(getattr(module, "config", None), "num_hidden_layers", None)
    lists = (
        child for child in module.modules() if isinstance(child, torch.nn.ModuleList) and len(child) == layers
    )
    return tuple(next(lists, ()))


def _require_head(name: str, module: Any) -> None:
    config, kind = module.config, type(module).__name__
    labelled = kind.endswith("ForSequenceClassification")
    several = labelled and config.problem_type == "multi_label_classification"
    reasons = {words: kind.endswith(ending) for ending, words in UNSUPPORTED_HEADS.items()} | {
        "an encoder-decoder": getattr(config, "is_encoder_decoder", False),
        "a model without a head": module.base_model is module,
        "a classifier with several labels at once": several,
        "a regression model with one output": labelled and config.num_labels == 1,
    }
    if refused := next((words for words, holds in reasons.items() if holds), None):
        raise InputError(
            f"{name}: {kind} is {refused}; margins need a sequence classifier with two or more classes, "
            "or a causal language model"
        )


def _require_valid_ids(inputs: ModelInputs, config: Any) -> None:
    known = config.model_type in FAMILIES
    positions = max_input_tokens(config.model_type, config) if known else max(map(len, inputs.sequences))
    for number, ids in enumerate(inputs.sequences):
        RawInput("inputs", place=f"inputs, number {number}").require_inside(
            ids.tolist(), config.vocab_size, positions
        )
