"""One forward pass, recorded: its input, its output and the blocks in between."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from attnlaw.base.errors import InputError
from attnlaw.forward.blocks import Array, Chain
from attnlaw.forward.families import FAMILIES
from attnlaw.forward.operator import Operator


@dataclass(frozen=True, eq=False)
class Trace:
    """X as it enters the first layer (positions and the embedding's norm included), F(X), and the chain."""

    states: Array
    output: Array
    chain: Chain

    @property
    def operator(self) -> Operator:
        """T and c of the pass."""
        return Operator(self.chain, *self.states.shape)

    @property
    def reconstruction_error(self) -> float:
        """|T vec X + c - vec F(X)| / |F(X)|, F from the network itself."""
        rebuilt = self.operator.matvec(self.states.ravel(order="F")) + self.operator.offset
        missed = rebuilt - self.output.ravel(order="F")
        return float(np.linalg.norm(missed) / np.linalg.norm(self.output))


def trace(kind: str, model: Any, ids: Sequence[int]) -> Trace:
    """Run the model of type `kind` on the token ids and freeze what depends on the input.

    X is `hidden_states[0]` of transformers and F(X) its `last_hidden_state`, both s x D.
    """
    import torch

    checked = _checked(ids, model.config)
    seen: dict[Any, tuple[Any, Any]] = {}

    def remember(module: Any, inputs: Any, output: Any) -> None:
        seen[module] = inputs[0] if inputs else None, output

    leaves = [module for module in model.modules() if not any(module.children())]
    hooks = [module.register_forward_hook(remember) for module in leaves]
    tokens = torch.tensor([checked])
    try:
        with torch.no_grad():
            result = model(
                tokens,
                attention_mask=torch.ones_like(tokens),
                output_attentions=True,
                output_hidden_states=True,
                use_cache=False,
            )
    finally:
        for hook in hooks:
            hook.remove()
    output: Array = result.last_hidden_state.numpy()[0]
    if not np.isfinite(output).all() or not output.any():
        raise InputError("the forward pass gives NaN, infinity or only zeros; the weights are damaged")
    probabilities = [weights.numpy()[0] for weights in result.attentions]
    blocks = tuple(FAMILIES[kind].read(model, seen, probabilities))
    return Trace(result.hidden_states[0].numpy()[0], output, Chain(blocks))


def _checked(ids: Sequence[int], config: Any) -> list[int]:
    """The ids as a list, each in the vocabulary and no more of them than there are positions."""
    if not len(ids):
        raise InputError("no token ids were given; give at least one, for example --ids 1,2,3")
    longest = config.max_position_embeddings
    if config.model_type == "roberta":  # its positions start after the padding token's
        longest -= config.pad_token_id + 1
    if len(ids) > longest:
        raise InputError(
            f"{len(ids)} token ids were given, and the model has {longest} positions; give fewer"
        )
    for number in ids:
        if isinstance(number, bool) or not isinstance(number, int | np.integer):
            raise InputError(f"token id {number!r} is not an integer; give ids such as 1,2,3")
        if not 0 <= number < config.vocab_size:
            raise InputError(
                f"token id {number} is outside the vocabulary; choose ids from 0 to {config.vocab_size - 1}"
            )
    return [int(number) for number in ids]
