"""The table of detectors: when each reports a finding, how serious that is, what it means and what to do.

To add a detector, add an entry to `DETECTORS`. Users know it as a *rule* of findings: its name is in the
column `rule`, and users pass it to `ignore`, `levels` and `thresholds`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from attnlaw.analysis.columns import LEVELS
from attnlaw.analysis.findings import duplicates, embeddings, orientation, precision, scan, sizes
from attnlaw.analysis.findings.evidence import (
    EXPERTS,
    HEADS,
    LAYERS,
    MATRICES,
    REST,
    Hit,
    Subject,
    TensorLocation,
)
from attnlaw.core.variants import by_name
from attnlaw.theory.bounds.logits import FLOAT16

NOTE, WARNING, ERROR = LEVELS

Detect = Callable[[Subject, float], Iterator[Hit]]


@dataclass(frozen=True)
class Detector:
    """A check that looks for one kind of problem in a model."""

    name: str  # name in rows and settings
    level: str  # default level of its findings; a `Hit` may replace it
    threshold: float | None  # the number that a value must pass; None if it has no threshold
    detect: Detect  # function that yields hits, given a subject and the threshold (0 if there is none)
    when: str  # when it reports a finding, in words
    meaning: str  # what a finding says about the model: the cause, and the effect
    remedy: str  # what the user can do
    # The value in words: {} is the number, {}% a share. A bar separates singular and plural. None if the
    # value is not shown, because there is none or because the details have it.
    measure: str | None = None
    least: float = 0.0  # the smallest threshold that a user may set
    # The parts of the model that it needs whole (names of `evidence`). It does not run if one was left out.
    needs: tuple[str, ...] = ()


@dataclass(frozen=True)
class Finding:
    """A problem that a detector found in a model."""

    rule: str  # name of the detector
    level: str
    location: TensorLocation
    value: float | None  # the number that passed the threshold
    threshold: float | None  # None if the detector has none
    meaning: str  # what was found, and what that means for the model

    def row(self, model: str) -> dict[str, Any]:
        """Return the finding as a row of the table of findings."""
        fields = {name: value for name, value in vars(self).items() if name != "location"}
        return {"model": model, **vars(self.location), **fields}


DETECTORS = by_name(
    Detector(
        *("non-finite", ERROR, None, scan.not_finite),
        when="an entry of a tensor is NaN or infinite",
        meaning="every result that is computed from this tensor is NaN",
        remedy="use a checkpoint from before training diverged, or copy the file again",
    ),
    Detector(
        *("missing-tensor", ERROR, None, scan.missing_tensor),
        when="a layer lacks a gain or bias that other layers have, or a norm has a bias but no gain "
        "(missing word embeddings: a warning)",
        meaning="the file has lost this tensor; attnlaw reads the model without it, so its numbers are wrong",
        remedy="save or download the checkpoint again",
    ),
    Detector(
        *("zero-tensor", ERROR, None, scan.zero_tensor),
        when="all entries of a matrix, of an embedding table or of a norm's gain are 0",
        meaning="every entry of the tensor is 0: it was never written, or it was erased",
        remedy="compare the tensor's name with the name under which your training program saves it",
    ),
    Detector(
        *("constant-tensor", ERROR, None, scan.constant_tensor),
        when="all entries of a matrix have the same value, which is not 0",
        meaning="the matrix was filled with one value and never trained",
        remedy="compare the tensor's name with the name under which your training program saves it",
    ),
    Detector(
        *("zero-rows", WARNING, 0.0, scan.zero_rows),
        when="the number of all-zero rows and columns of a matrix (other than an embedding) is above the "
        "threshold",
        meaning="the matrix ignores some of its inputs, or some of its outputs are always 0: they were "
        "pruned, or they are padding",
        remedy="nothing to do if you pruned these rows or columns; otherwise check how the file was saved",
        measure="{} row or column of zeros|{} rows or columns of zeros",
    ),
    Detector(
        *("beyond-float16", WARNING, FLOAT16, scan.beyond_float16),
        when="an entry of a tensor is larger than float16 can hold",
        meaning="the entry becomes infinite if the model is cast to float16",
        remedy="serve the model in bfloat16 or float32",
        measure="largest entry {}",
    ),
    Detector(
        *("random-embedding", ERROR, 1.2, embeddings.random_embedding),
        when="a large embedding table looks random although the layers are trained: its spectral norm is "
        "near that of a random table (ratio below the threshold)",
        meaning="the embedding table looks freshly initialised, so tokens have no meaning (unless it was "
        "frozen on purpose)",
        remedy="look for a tensor whose name did not match when the model was loaded or saved",
        measure="{} times the norm of a random table",
        needs=(REST,),
    ),
    Detector(
        *("alike-embedding-rows", ERROR, None, embeddings.alike_rows),
        when="all rows of an embedding table (3 or more) are equal, or multiples of one row, which is "
        "only a warning",
        meaning="the embedding table does not distinguish its tokens, positions or types: it was filled, "
        "not trained",
        remedy="compare the tensor's name with the name under which your training program saves it",
        needs=(REST,),
    ),
    Detector(
        *("zero-embedding-rows", WARNING, 0.01, embeddings.zero_embedding_rows),
        when="the share of token embeddings that are all 0 is above the threshold, not counting padding "
        "at the end; above 10%, it is an error",
        meaning="some tokens have no embedding: their rows were erased, or never written",
        remedy="nothing to do if you removed these tokens; otherwise compare the embedding with the "
        "tokenizer's vocabulary",
        measure="{}% of its rows are 0",
        needs=(REST,),
    ),
    Detector(
        *("gains-one", WARNING, None, embeddings.gains_one),
        when="every gain of the layers' norms is exactly 1, although the layers are trained",
        meaning="the norms were reset, or their gains were folded into the matrices on purpose",
        remedy="nothing to do if the gains were folded; otherwise compare the names of the norms with "
        "those of "
        "your training program",
        needs=(REST,),
    ),
    Detector(
        *("biases-zero", WARNING, None, embeddings.biases_zero),
        when="all biases of the layers' matrices (4 or more) are exactly 0, although the layers are trained",
        meaning="the biases were reset, or the model has none and its file format stores zeros",
        remedy="nothing to do if the model has no biases; otherwise compare their names with those of your "
        "training program",
        needs=(REST,),
    ),
    Detector(
        *("coarse-grid", WARNING, precision.COARSE, precision.coarse_grid),
        when="the file stores floats, but the number of different values among 32 neighbouring entries "
        "(median) is at most the threshold",
        meaning="matrices were quantised and stored as floats again, so they have the precision of a few "
        "bits",
        remedy="export the matrices again from the original weights",
        measure="{} different values among 32 neighbouring entries",
    ),
    Detector(
        *("float8-trace", WARNING, 16.0, precision.float8_trace),
        when="the file stores wide floats, but the number of different significands among 128 "
        "neighbouring entries (median) is at most the threshold",
        meaning="matrices were rounded to float8 and stored as wider floats, so they have the precision of "
        "float8",
        remedy="nothing to do if training computes in float8; otherwise export the matrices again from the "
        "original weights",
        measure="{} different significands among 128 neighbouring entries",
    ),
    Detector(
        *("quantised", NOTE, None, precision.quantised),
        when="the file stores quantised tensors",
        meaning="the file stores rounded weights, so attnlaw measures these and not the original ones",
        remedy="audit the original weights if you want to compare spectra",
    ),
    Detector(
        *("identical-tensors", WARNING, None, scan.identical),
        when="two weight matrices of the model have exactly the same bits",
        meaning="one tensor was saved twice",
        remedy="compare both tensors with those of your training program",
        needs=(LAYERS, EXPERTS, *MATRICES),
    ),
    Detector(
        *("copied-layer", ERROR, None, duplicates.copied_layer),
        when="all matrices of two layers have exactly the same bits, although config.json does not say "
        "that layers share weights",
        meaning="one layer was saved twice, or a merge of models repeats the layer on purpose",
        remedy="compare these layers with those of your training program. If a merge repeats them on "
        "purpose, "
        'write ignore = ["copied-layer"] under [findings] in the file of --rules',
        needs=(LAYERS, *MATRICES),
    ),
    Detector(
        *("duplicate-layers", WARNING, 0.95, duplicates.duplicate_layers),
        when="the heads of two layers are nearly equal: the median cosines between their QK and between "
        "their VO matrices are above the threshold",
        meaning="two layers compute nearly the same function: one of them is a copy",
        remedy="nothing to do if you deepened the model with copies of layers; otherwise check how the "
        "model was merged",
        measure="cosine {}",
        least=duplicates.LEAST,
        needs=(LAYERS, *HEADS),
    ),
    Detector(
        *("duplicate-heads", WARNING, 0.95, duplicates.duplicate_heads),
        when="two heads of a layer are nearly equal: the cosines between their QK and between their VO "
        "matrices are above the threshold",
        meaning="two heads compute nearly the same function: one of them is redundant",
        remedy="prune one of the two heads, or check how heads were split or repeated",
        measure="cosine {}",
        least=duplicates.LEAST,
        needs=HEADS,
    ),
    Detector(
        *("dead-map", WARNING, 0.01, sizes.dead_map),
        when="the Frobenius norm of a matrix, divided by the median over matrices of the same kind, is "
        "below the threshold",
        meaning="the matrix adds almost nothing to the output",
        remedy="nothing to do if you pruned the matrix; otherwise look at the tensors that form it",
        measure="{}% of the median norm",
        needs=(LAYERS,),
    ),
    Detector(
        *("random-head", NOTE, sizes.LEVEL, sizes.random_head),
        when="both QK and VO of a head look random: their p-values in the test against random matrices "
        "are above the threshold",
        meaning="QK and VO of the head look like random numbers: training hardly changed the head",
        remedy="nothing to do if there are few such heads, which you could prune; if there are many, check "
        "how heads were initialised",
        measure="p-value at least {}",
        needs=HEADS,
    ),
    Detector(
        *("untrained-layer", ERROR, 0.5, sizes.untrained_layer),
        when="the share of a layer's matrices that look random (p-value above 0.01) is above the threshold",
        meaning="the layer looks freshly initialised",
        remedy="look for tensor names that did not match when the model was loaded or saved",
        measure="{}% of its matrices look random",
        needs=(EXPERTS, *MATRICES),
    ),
    Detector(
        *("untrained-model", ERROR, sizes.LEVEL, sizes.untrained_model),
        when="by chance alone, an untrained model would have as many matrices that look trained (p-value "
        "above the threshold)",
        meaning="the whole model looks freshly initialised",
        remedy="look for tensor names that did not match when the model was loaded or saved",
        measure="an untrained model looks like this with a probability of {}%",
        needs=(LAYERS, EXPERTS, *MATRICES),
    ),
    Detector(
        *("rank-deficient", NOTE, 1.0, sizes.rank_deficient),
        when="the rank of a matrix, divided by its shorter side, is below the threshold; below 90%, it is "
        "a warning",
        meaning="the matrix ignores some directions of its input completely",
        remedy="nothing to do if you pruned the matrix or merged it at low rank; otherwise look at the "
        "tensors that form it",
        measure="{}% of the full rank",
    ),
    Detector(
        *("unbalanced", ERROR, 3.0, sizes.unbalanced),
        when="the size of Q relative to K (V to O, FFN in to out) differs from the median layer by a "
        "factor above the threshold",
        meaning="one of the two tensors has a wrong scale, because training keeps the ratio of their sizes "
        "similar in all layers",
        remedy="look for a scale that was applied twice, or not at all, when the file was converted",
        measure="differs from the median layer by a factor of {}",
        least=1.0,
        needs=(LAYERS,),
    ),
    Detector(
        *("norm-outlier", WARNING, 5.0, sizes.norm_outlier),
        when="the median spectral norm of a layer differs from that of the median layer by a factor above "
        "the threshold, and by more than 6 standard deviations",
        meaning="the weights of the layer are much larger or smaller than those of all other layers",
        remedy="look for a wrong scale in the file; after training, look for a layer that diverges",
        measure="differs from the median layer by a factor of {}",
        least=1.0,
        needs=(LAYERS,),
    ),
    Detector(
        *("saturated-scores", WARNING, 100.0, sizes.saturated_scores),
        when="the standard deviation of a head's logits for random tokens (`logit_typical`) is above the "
        "threshold",
        meaning="attention logits differ so much that softmax picks single tokens; with real tokens they "
        "differ even more",
        remedy="watch the logits of this head; normalise queries and keys in training, or cap the logits",
        measure="typical size of a logit: {}",
        needs=("qk",),
    ),
    Detector(
        *("logit-overflow", WARNING, FLOAT16, sizes.logit_overflow),
        when="the largest attention logit that any input can produce in a head (`logit_bound`) is above "
        "the threshold",
        meaning="some input may overflow float16, although real inputs reach only 0.02 to 0.3 of the bound",
        remedy="compute attention scores in bfloat16 or float32, or measure the logits on your inputs",
        measure="logits of at most {}",
        needs=("qk",),
    ),
    Detector(
        *("transposed", WARNING, 0.1, orientation.transposed),
        when="a square matrix correlates better with the other matrices of its layer if it is transposed; "
        "the difference is above the threshold",
        meaning="the matrix seems to be stored transposed (attnlaw cannot find every such matrix)",
        remedy="compare its layout, (out, in) or (in, out), with that of the model family",
        measure="the correlation is higher by {} if the matrix is transposed",
        needs=MATRICES,
    ),
)
