"""A draw of a whole Transformer by its Gram matrices against one with every weight, and how the cost grows.

Run `python benchmarks/init.py`. Goals: GPT-2 (124M) at 32 tokens 40 times faster a draw than torch needs to
initialise it and to run it once; LLaMA of 7B parameters within 2 s and 1 GB a draw. Processor time, one
thread, both sides in turn, the least of several.
"""

from __future__ import annotations

import resource
import sys
import time
from collections.abc import Callable
from typing import Any

from claims import Claims

from attnlaw.theory.init.architecture import Architecture
from attnlaw.theory.init.law import initial_law
from attnlaw.theory.init.tokens import random_tokens

GPT2 = {"model_type": "gpt2"}
LLAMA = {"model_type": "llama"}


def seconds(run: Callable[[], object]) -> float:
    start = time.process_time()
    run()
    return time.process_time() - start


def chain(values: dict[str, Any], tokens: int, draws: int, depth: int = 0) -> Callable[[], object]:
    """Draws of the chain, to be timed."""
    model = Architecture.from_config(values, depth=depth)
    given = random_tokens(model, tokens, 0, 0)
    return lambda: initial_law(model, given, draws)


def real(values: dict[str, Any], tokens: int) -> Callable[[], object]:
    """One model of torch, initialised by its library and run once."""
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM

    torch.set_num_threads(1)
    config = AutoConfig.for_model(**values)
    ids = torch.arange(tokens)[None]

    def run() -> None:
        with torch.no_grad():
            AutoModelForCausalLM.from_config(config).eval()(input_ids=ids)

    return run


def against_torch(claims: Claims) -> None:
    ours, theirs = chain(GPT2, 32, 4), real(GPT2, 32)
    pairs = [(seconds(ours) / 4, seconds(theirs)) for _ in range(3)]
    mine, peer = (min(side) for side in zip(*pairs, strict=True))
    print(f"GPT-2, 32 tokens: {mine:.3f} s a draw, torch {peer:.2f} s")
    claims.add("a draw of GPT-2 (124M), 32 tokens", f"{mine:.3f} s", f"torch {peer:.2f} s", peer / mine, 40)


def large(claims: Claims) -> None:
    """First, while nothing else has taken memory."""
    mine = min(seconds(chain(LLAMA, 32, 2)) / 2 for _ in range(2))
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    print(f"LLaMA 7B, 32 tokens: {mine:.2f} s a draw, {memory:.2f} GB at the most")
    claims.add("a draw of LLaMA 7B, 32 tokens, seconds", f"{mine:.2f} s", "no peer", mine, 2.0, least=False)
    claims.add("its memory, GB", f"{memory:.2f} GB", "no peer", memory, 1.0, least=False)


def growth() -> None:
    """How the cost of a draw grows with the width, the depth and the tokens."""
    cases: dict[str, dict[Any, Callable[[], object]]] = {
        "width": {n: chain({**GPT2, "n_embd": n, "n_head": n // 64}, 8, 4) for n in (256, 1024, 4096)},
        "depth": {depth: chain(GPT2, 8, 4, depth) for depth in (6, 12, 24)},
        "tokens": {tokens: chain(GPT2, tokens, 4) for tokens in (8, 16, 32)},
    }
    for name, runs in cases.items():
        costs = (
            f"{value}: {min(seconds(run) for _ in range(3)) / 4 * 1e3:.1f} ms" for value, run in runs.items()
        )
        print(f"cost of a draw of GPT-2 against {name}  " + ", ".join(costs))


def main() -> int:
    claims = Claims()
    large(claims)
    against_torch(claims)
    growth()
    return claims.finish()


if __name__ == "__main__":
    sys.exit(main())
