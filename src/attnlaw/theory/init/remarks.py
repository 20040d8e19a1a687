"""What a person may want to know of a law first, in plain sentences. Remarks, not verdicts.

| said of                | where                                                        |
|------------------------|--------------------------------------------------------------|
| the loss               | it starts more than `LOSS`, and two errors, above ln V       |
| scores                 | their deviation in the first layer is above `SCORES`         |
| tokens                 | their mean cosine is above `ALIKE` from some layer on        |
| the embedding          | it is less than `SHARE` of the stream after the first layer  |
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from attnlaw.theory.init.records import PARALLEL, InitialLaw

LOSS, SCORES, ALIKE, SHARE = 0.1, 1.0, 0.99, 0.05


def remarks(law: InitialLaw, exact: bool = True) -> str | None:
    """All remarks on a law in one line; None where there is nothing to say."""
    lines = [line for rule in RULES for line in rule(law)]
    if not exact:
        lines.append("hidden units are matched in mean and covariance only")
    return "; ".join(lines) or None


def _loss(law: InitialLaw) -> Iterator[str]:
    above = 0.0 if law.loss is None else law.loss.value - law.uniform_loss
    if law.loss is not None and above > max(LOSS, 2 * (law.loss.error or 0.0)):
        std = law.architecture.deviations
        deviation = std.embedding if law.architecture.tied else std.head
        words = f"the loss starts {above:.2f} above ln V"
        if law.logit_sd.value > 1:
            words += f": a deviation of {deviation / law.logit_sd.value:.3g} would give logits of deviation 1"
        yield words


def _scores(law: InitialLaw) -> Iterator[str]:
    if law.score_sd is not None and law.entropy is not None and law.score_sd.value > SCORES:
        share = f"attention has {law.entropy.value:.0%} of the uniform entropy"
        yield f"scores of deviation {law.score_sd.value:.2g} in layer 1: {share}"


def _alike(law: InitialLaw) -> Iterator[str]:
    for limit, words in ((1 - PARALLEL, "parallel to rounding"), (ALIKE, f"of mean cosine above {ALIKE}")):
        for layer in law.layers:
            if layer.cosine is not None and layer.cosine.value > limit:
                yield f"tokens are {words} from layer {layer.layer} on"
                return


def _embedding(law: InitialLaw) -> Iterator[str]:
    before, after = law.layers[0].rms, law.layers[1].rms
    normed = law.architecture.norms.after
    if not normed and before and after and 0 < before.value < SHARE * after.value:
        yield f"the embedding is {before.value / after.value:.1%} of the stream after layer 1"


RULES: tuple[Callable[[InitialLaw], Iterator[str]], ...] = (_loss, _scores, _alike, _embedding)
