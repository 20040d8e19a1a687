"""Record one forward pass: its input, its output, and the blocks and scores in between."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np

from attnlaw.analysis.forward.blocks import BlockChain
from attnlaw.analysis.forward.families import FAMILIES
from attnlaw.analysis.forward.inputs import RawInput, check_ids
from attnlaw.analysis.forward.operator import Operator
from attnlaw.analysis.forward.scores import FrozenScores
from attnlaw.core.arrays import Reals
from attnlaw.core.errors import InputError


@contextmanager
def temporary_hooks(hooks: Iterable[Any]) -> Iterator[None]:
    """Remove registered hooks at the end of the context, even after an error."""
    held = list(hooks)
    try:
        yield
    finally:
        for hook in held:
            hook.remove()


def record_calls(modules: Iterable[Any], seen: dict[Any, tuple[Any, Any]]) -> list[Any]:
    """Register and return hooks that store the first argument and the result of each module in `seen`."""

    def remember(module: Any, inputs: Any, output: Any) -> None:
        seen[module] = inputs[0] if inputs else None, output

    return [module.register_forward_hook(remember) for module in modules]


@dataclass(frozen=True, eq=False)
class Trace:
    states: Reals  # the hidden states X that enter the first layer
    output: Reals  # the output F(X) of the network
    chain: BlockChain  # the blocks, first to last
    scores: tuple[FrozenScores, ...]  # the scores of each attention block, first to last

    @property
    def operator(self) -> Operator:
        """The operator T of the pass with its offset c."""
        return Operator(self.chain, *self.states.shape)

    @property
    def reconstruction_error(self) -> float:
        """Relative error of the rebuilt output, |T vec X + c - vec F(X)| / |F(X)|."""
        rebuilt = self.operator.matvec(self.states.ravel(order="F")) + self.operator.offset
        missed = rebuilt - self.output.ravel(order="F")
        return float(np.linalg.norm(missed) / np.linalg.norm(self.output))


def trace_forward(kind: str, model: Any, ids: Sequence[int]) -> Trace:
    """Run a model without a head on token ids, and freeze everything that depends on the input."""
    import torch

    checked = check_ids(ids)
    RawInput("ids").require_inside(checked, model.config.vocab_size, max_input_tokens(kind, model.config))
    seen: dict[Any, tuple[Any, Any]] = {}

    def remember_mask(module: Any, inputs: Any, named: Any, output: Any) -> None:
        """Record the mask, which is the only argument of an attention module with four axes."""
        given = (argument for argument in (*inputs, *named.values()) if getattr(argument, "ndim", None) == 4)
        seen[module] = next(given, None), None

    hooks = record_calls((module for module in model.modules() if not any(module.children())), seen)
    scoring = [module for module in model.modules() if hasattr(module, "scaling")]
    hooks += [module.register_forward_hook(remember_mask, with_kwargs=True) for module in scoring]
    tokens = torch.tensor([checked])
    with temporary_hooks(hooks), torch.no_grad():
        result = model(
            tokens,
            attention_mask=torch.ones_like(tokens),
            output_attentions=True,
            output_hidden_states=True,
            use_cache=False,
        )
    output: Reals = result.last_hidden_state.numpy()[0]
    if not np.isfinite(output).all() or not output.any():
        raise InputError(
            "the model's output is NaN, infinite or all zeros, so its weights are damaged; "
            "use another checkpoint"
        )
    probabilities = [weights.numpy()[0] for weights in result.attentions]
    blocks = tuple(FAMILIES[kind].read_blocks(model, seen, probabilities))
    scores = tuple(FAMILIES[kind].read_scores(model, seen))
    return Trace(result.hidden_states[0].numpy()[0], output, BlockChain(blocks), scores)


def max_input_tokens(kind: str, config: Any) -> int:
    """Return the largest number of tokens that a model can read at once."""
    longest = int(config.max_position_embeddings)
    return longest - (config.pad_token_id + 1) if FAMILIES[kind].positions_after_padding else longest
