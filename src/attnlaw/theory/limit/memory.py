"""What a law takes of memory, told before anything of its size is drawn.

| here | means                                                                                    |
|------|------------------------------------------------------------------------------------------|
| C    | draws in a chunk: about 2^15 / (H s) for a layer, 2^15 / (H s^2) for a stack, at least 1 |
| D    | depth                                                                                    |

A layer holds C scores of one token for each head, the mask (a byte for each pair of tokens) and, unless its
tokens are many (see `one_row`), a root of the Gram matrix (at finite width C roots); a stack holds C
score matrices for each head and C Gram matrices for each depth. The factors count how many arrays of each
kind stand side by side at the peak.
"""

from __future__ import annotations

import math

from attnlaw.core.errors import InputError
from attnlaw.theory.limit.depth import Depth
from attnlaw.theory.limit.finite import chunk_size
from attnlaw.theory.limit.one_row import can_draw_row
from attnlaw.theory.limit.token_counts import MOST_BYTES, ROOT_ARRAYS


def peak_bytes(stack: Depth, draws: int) -> int:
    """Bytes that the law of one output coordinate takes at most, at the stack's width.

    Left out is what does not grow with the tokens: a few numbers a draw, and tables over points y.

    >>> from attnlaw.theory.limit import AttentionLayer, RandomInputs
    >>> peak_bytes(Depth(AttentionLayer(RandomInputs(1000), heads=2)), 50_000) // 2**20
    2
    """
    layer, s = stack.layer, stack.layer.tokens
    if stack.is_layer and can_draw_row(layer, stack.normalise):
        chunk = chunk_size(draws, layer.heads * s)
        return s * s + 8 * chunk * layer.heads * (6 * s + 5 * layer.heads)
    if stack.is_layer:
        chunk = chunk_size(draws, layer.heads * s)
        numbers = ROOT_ARRAYS * s * s + 6 * chunk * s * layer.heads
    else:
        chunk = chunk_size(draws, layer.heads * s * s)
        numbers = 8 * chunk * s * s * (layer.heads + stack.depth + 1)
    if layer.width != math.inf:
        numbers += 4 * layer.inputs.root_numbers(int(layer.width), chunk)
        if stack.mlp is not None:
            numbers += 3 * chunk * s * int(layer.width)
    return 8 * numbers


def check_memory(stack: Depth, draws: int) -> None:
    """An `InputError` where the law of a stack would take more than 4 GiB."""
    size = peak_bytes(stack, draws)
    if size > MOST_BYTES:
        layer = stack.layer
        width = "infinite width" if layer.width == math.inf else f"width {int(layer.width)}"
        raise InputError(
            f"tokens is {layer.tokens}; with heads {layer.heads}, depth {stack.depth} and {width} this takes "
            f"about {-(-size // 2**30)} GiB of memory, more than {MOST_BYTES // 2**30}: choose fewer tokens, "
            "or less of the others"
        )
