"""D of 200 inputs of a real classifier against a plain pass over the same batches, and its memory.

    python benchmarks/margins.py

The model is rxnfp fine-tuned on 10,000 reactions (12 layers of width 256, 50 classes); the inputs are
published reactions, the later ones with some of their last tokens cut off. The plain pass is what a step of
training does: forward and backward with the gradients of all weights, in float32 as stored, batch
by batch as D is measured, which is in float64. CPU time on one thread, both sides in turn, the least of two.
Exits with status 1 when a claim does not hold.
"""

from __future__ import annotations

import resource
import sys
import time
from collections.abc import Callable
from copy import deepcopy
from pathlib import Path

import torch
from claims import Claims

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))
from analysis.forward.reactions import reactions
from real_checkpoints import Unavailable, fetch

from attnlaw.analysis.forward.classifier import Classifier, ModelInputs, as_inputs, batches, open_classifier
from attnlaw.analysis.forward.margins import relative_margins

INPUTS, FEW, ROUNDS = 200, 64, 2
MOST_PASSES, MOST_GROWTH = 3.0, 1.1


def given(folder: Path) -> list[list[int]]:
    """Reactions, then the same without their last token, and so on: no two are alike."""
    inputs = reactions(folder)
    return [inputs[i % len(inputs)][: len(inputs[i % len(inputs)]) - i // len(inputs)] for i in range(INPUTS)]


def plain(network: Classifier, module: torch.nn.Module, inputs: ModelInputs) -> None:
    """Forward and backward of a training step, without the step."""
    for batch in batches(inputs, network, "last", 0):
        logits = module(input_ids=batch.tensor, attention_mask=batch.mask.long()).logits
        torch.nn.functional.cross_entropy(logits, logits.argmax(dim=1)).backward()
        module.zero_grad()


def seconds(work: Callable[[], object]) -> float:
    began = time.process_time()
    work()
    return time.process_time() - began


def peak() -> float:
    """The largest memory of the process so far, in megabytes."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def main() -> int:
    torch.set_num_threads(1)
    try:
        folder = fetch("rxnfp-10k")
    except Unavailable as error:
        sys.exit(f"rxnfp-10k is not there ({error}), so nothing was measured")
    inputs = as_inputs(given(folder))
    network = open_classifier(folder, inputs)
    relative_margins(network, ModelInputs(inputs.sequences[:FEW]))
    few = peak()
    ours = [seconds(lambda: relative_margins(network, inputs))]
    growth = peak() / few
    module = deepcopy(network.module).float().requires_grad_(True)
    peers = [seconds(lambda: plain(network, module, inputs))]
    for _ in range(ROUNDS - 1):
        ours.append(seconds(lambda: relative_margins(network, inputs)))
        peers.append(seconds(lambda: plain(network, module, inputs)))
    claims = Claims()
    claims.add(
        f"D of {INPUTS} inputs of a 12 x 256 classifier, CPU time",
        f"{min(ours):.1f} s in float64",
        f"forward and backward in float32: {min(peers):.1f} s",
        min(ours) / min(peers),
        MOST_PASSES,
        least=False,
    )
    claims.add(
        f"its memory, {INPUTS} inputs against {FEW}",
        f"{peak():.0f} MB",
        "no peer",
        growth,
        MOST_GROWTH,
        least=False,
    )
    return claims.finish()


if __name__ == "__main__":
    sys.exit(main())
