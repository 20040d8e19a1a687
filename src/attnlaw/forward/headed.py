"""A network with logits and its inputs, in batches: what margins, condition and amplification run.

| given | inputs | h0 |
|---|---|---|
| a directory, or a model of `transformers` | lists of token ids, or a tensor of them | what block 0 reads |
| a torch module | a tensor of floats, n x T x N | the tensor; with `blocks`, what `blocks[0]` reads |
| a torch module and its `blocks` | a tensor of ids, n x T | what `blocks[0]` reads |

Logits of shape (n, K) are a classifier's; of shape (n, T, K) a causal language model's, read at one position
of each input. Everything runs in float64, on a copy where the model has another precision.
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

from attnlaw.base.errors import BadSetting, InputError, needing
from attnlaw.base.settings import require
from attnlaw.forward.families import FAMILIES
from attnlaw.forward.hooks import hooked
from attnlaw.forward.load import load_headed, normalise_in_float64
from attnlaw.forward.trace import most_tokens
from attnlaw.models.inputs import POSITIONS, Given, whole_ids

TOKENS = 2048  # of a batch: memory does not grow with the number of inputs
REFUSED = {
    "ForMaskedLM": "a masked language model",
    "ForTokenClassification": "a classifier of tokens",
    "ForMultipleChoice": "a model of multiple choice",
    "ForQuestionAnswering": "a model of question answering",
}
Enter = Callable[[int, Any], Any]  # from the number of a block and what it reads to what it shall read


@dataclass(frozen=True, eq=False)
class Batch:
    """Some inputs, padded on the right: ids (B x T) or floats (B x T x N), and which tokens count.

    `visible` are the tokens up to the position that is read, all of them for a classifier.
    """

    places: list[int]
    tensor: Any
    mask: Any
    visible: Any
    positions: Any

    @property
    def tokens(self) -> Any:
        """Visible tokens of each input."""
        return self.visible.sum(dim=1)


@dataclass(frozen=True, eq=False)
class Headed:
    """A network with logits in float64, for evaluation, its parameters frozen."""

    name: str
    module: Any
    blocks: tuple[Any, ...]
    hugging: bool
    causal: bool
    classes: int

    def logits(self, batch: Batch, enter: Enter | None = None) -> Any:
        """Logits (B x K), at the position that is read; `enter` may swap what each block reads."""
        import torch

        if enter is not None and not self.blocks:
            return self._read(batch, self.module(enter(0, batch.tensor)))
        with _entering(self.blocks, enter):
            if not self.hugging:
                return self._read(batch, self.module(batch.tensor))
            given = {"input_ids": batch.tensor, "attention_mask": batch.mask.to(torch.int64)}
            if "use_cache" in signature(self.module.forward).parameters:
                given["use_cache"] = False
            return self._read(batch, self.module(**given).logits)

    def _read(self, batch: Batch, logits: Any) -> Any:
        import torch

        read = logits[torch.arange(len(logits)), batch.positions] if self.causal else logits
        lost = ~torch.isfinite(read).all(dim=1)
        if lost.any():
            number = batch.places[int(lost.nonzero()[0, 0])]
            raise InputError(
                f"{self.name}: the logits of input {number} (from 0) are not finite; "
                "leave it out, or use an earlier checkpoint"
            )
        return read


@dataclass(frozen=True, eq=False)
class Inputs:
    """Inputs of a network: one tensor each, of ids (T) or floats (T x N)."""

    each: tuple[Any, ...]

    def __len__(self) -> int:
        return len(self.each)

    @property
    def sha256(self) -> str:
        """Of ids as decimal numbers with commas, a line each; of floats, of their bytes."""
        digest = hashlib.sha256()
        for one in self.each:
            if one.is_floating_point():
                digest.update(one.double().contiguous().numpy().tobytes())
            else:
                digest.update((",".join(map(str, one.tolist())) + "\n").encode())
        return digest.hexdigest()

    @property
    def repeated(self) -> int:
        """Inputs that are equal to an earlier one."""
        return len(self) - len({(tuple(one.shape), one.numpy().tobytes()) for one in self.each})


def open_headed(
    model: str | os.PathLike[str] | Any, inputs: Inputs, blocks: Sequence[Any] | None = None
) -> Headed:
    """The network of a directory or a torch module, tried on the first input."""
    import torch

    if isinstance(model, str | os.PathLike):
        name, module = str(model), load_headed(model)[1]
    else:
        name, (module, blocks) = type(model).__name__, _copied(model, blocks)
    hugging = hasattr(module, "base_model_prefix")
    if hugging:
        _require_head(name, module)
    for parameter in module.parameters():
        parameter.requires_grad_(False)
    found = _blocks(module) if blocks is None else tuple(blocks)
    if not found and not inputs.each[0].is_floating_point():
        raise InputError(
            f"{name}: no list of its blocks is known; give blocks=, or a tensor of floats, n x T x N"
        )
    network = Headed(name, module, found, hugging, causal=False, classes=0)
    first = next(batches(inputs, network, "last", 0, most=1))
    if hugging:
        _require_inside(inputs, module.config)
    with torch.no_grad():
        logits = network.logits(first)
    if logits.ndim not in (2, 3) or len(logits) != 1 or logits.shape[-1] < 2:
        raise InputError(
            f"{name}: its output for one input has the shape {tuple(logits.shape)}, expected (1, K) of a "
            "classifier or (1, T, K) of a causal language model, with at least two classes"
        )
    return Headed(name, module, found, hugging, causal=logits.ndim == 3, classes=int(logits.shape[-1]))


def as_inputs(inputs: Any) -> Inputs:
    """Inputs from a tensor, from lists of ids, or from `input_ids` with `attention_mask`.

    Padding is cut off by the mask, so it may stand on either side.
    """
    with needing("a forward pass", "lens"):
        import torch
    if isinstance(inputs, Inputs):
        return inputs
    if isinstance(inputs, Mapping):
        ids = torch.as_tensor(inputs["input_ids"])
        mask = torch.as_tensor(inputs.get("attention_mask", torch.ones_like(ids))).bool()
        return Inputs(tuple(row[kept] for row, kept in zip(ids, mask, strict=True)))
    if isinstance(inputs, torch.Tensor):
        expected = 3 if inputs.is_floating_point() else 2
        if inputs.ndim != expected or 0 in inputs.shape:
            raise InputError(
                f"inputs: the shape is {tuple(inputs.shape)}, expected n x T of ids or n x T x N of floats"
            )
        return Inputs(tuple(inputs.detach().cpu()))
    rows = [whole_ids(one) for one in inputs]
    if not rows or not all(rows):
        raise BadSetting("inputs", "has no tokens; give at least one list of ids, and an id in each")
    return Inputs(tuple(torch.tensor(row) for row in rows))


def batches(
    inputs: Inputs, network: Headed, positions: str | Sequence[int], seed: int, most: int = TOKENS
) -> Iterator[Batch]:
    """All inputs in batches of at most `most` tokens (or one input), those of similar length together."""
    read = read_positions([len(one) for one in inputs.each], network, positions, seed)
    order = sorted(range(len(inputs)), key=lambda place: len(inputs.each[place]))
    own: list[int] = []
    for place in order:
        length = len(inputs.each[place])
        mixed = own and not network.hugging and len(inputs.each[own[0]]) != length
        if own and (mixed or (len(own) + 1) * length > most):
            yield _batch(inputs, network, own, read)
            own = []
        own.append(place)
    yield _batch(inputs, network, own, read)


def read_positions(
    lengths: Sequence[int], network: Headed, positions: str | Sequence[int], seed: int
) -> NDArray[np.int64]:
    """The position that is read of each input: its last, one drawn from its second half, or as given."""
    ends = np.asarray(lengths) - 1
    if not network.causal:
        return ends
    if not isinstance(positions, str):
        given = np.asarray(positions)
        if given.shape != ends.shape or (given < 0).any() or (given > ends).any():
            raise BadSetting("positions", "expected one for each input, inside it, counted from 0")
        return given
    if require("positions", positions, str, choices=POSITIONS) == "last":
        return ends
    generator = np.random.default_rng(seed)
    return np.array([generator.integers(ceil(length / 2), length) if length > 1 else 0 for length in lengths])


def _batch(inputs: Inputs, network: Headed, places: list[int], read: NDArray[np.int64]) -> Batch:
    import torch

    chosen = [inputs.each[place] for place in places]
    config = network.module.config if network.hugging else None
    padding = 0 if config is None else getattr(config, "pad_token_id", None) or 0
    tensor = torch.nn.utils.rnn.pad_sequence(chosen, batch_first=True, padding_value=padding)
    if tensor.is_floating_point():
        tensor = tensor.double()
    places_of_tokens = torch.arange(tensor.shape[1])
    mask = places_of_tokens < torch.tensor([len(one) for one in chosen])[:, None]
    positions = torch.from_numpy(read[places])
    return Batch(places, tensor, mask, mask & (places_of_tokens <= positions[:, None]), positions)


def _entering(blocks: Sequence[Any], enter: Enter | None) -> AbstractContextManager[None]:
    """Let `enter` see, and swap, what each block reads: its first argument, or `hidden_states`."""

    def hook(number: int) -> Callable[[Any, Any, Any], Any]:
        def swap(module: Any, words: Any, named: Any) -> Any:
            assert enter is not None
            if words:
                return (enter(number, words[0]), *words[1:]), named
            return words, {**named, "hidden_states": enter(number, named["hidden_states"])}

        return swap

    entered = () if enter is None else blocks
    return hooked(
        block.register_forward_pre_hook(hook(number), with_kwargs=True)
        for number, block in enumerate(entered)
    )


def _copied(model: Any, blocks: Sequence[Any] | None) -> tuple[Any, Sequence[Any] | None]:
    """The module in float64 for evaluation, a copy of it; and its blocks in the copy."""
    import torch

    if not isinstance(model, torch.nn.Module):
        raise InputError(
            f"a model is the name of a directory or a torch module, found {type(model).__name__}"
        )
    # One copy of both, so that the blocks are still parts of the module.
    module, own = deepcopy((model, None if blocks is None else list(blocks)))
    module = module.to("cpu").double().eval()
    if hasattr(module, "base_model_prefix"):
        normalise_in_float64(module)
    return module, own


def _blocks(module: Any) -> tuple[Any, ...]:
    """The list of as many modules as a model of `transformers` has layers."""
    import torch

    layers = getattr(getattr(module, "config", None), "num_hidden_layers", None)
    lists = (one for one in module.modules() if isinstance(one, torch.nn.ModuleList) and len(one) == layers)
    return tuple(next(lists, ()))


def _require_head(name: str, module: Any) -> None:
    config, kind = module.config, type(module).__name__
    refused = next((words for ending, words in REFUSED.items() if kind.endswith(ending)), None)
    if refused is None and getattr(config, "is_encoder_decoder", False):
        refused = "an encoder-decoder"
    if refused is None and module.base_model is module:
        refused = "a model without a head"
    labelled = kind.endswith("ForSequenceClassification")
    if refused is None and labelled and config.problem_type == "multi_label_classification":
        refused = "a classifier with several labels at once"
    if refused is None and labelled and config.num_labels == 1:
        refused = "a regression, of one label"
    if refused is not None:
        raise InputError(
            f"{name}: {kind} is {refused}; margins are read from a sequence classifier of two or more "
            "classes or from a causal language model"
        )


def _require_inside(inputs: Inputs, config: Any) -> None:
    """Ids inside the vocabulary, no more of them than the model has positions."""
    known = config.model_type in FAMILIES
    positions = most_tokens(config.model_type, config) if known else max(map(len, inputs.each))
    for number, one in enumerate(inputs.each):
        Given("inputs", place=f"inputs, number {number}").require_inside(
            one.tolist(), config.vocab_size, positions
        )
