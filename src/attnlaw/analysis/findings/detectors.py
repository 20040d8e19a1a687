"""The table of detectors. Each entry says when it reports a finding, how grave that is, and what it means.

To add a detector, add an entry to `DETECTORS`. Users know it as a *rule* of findings: its name is in the
column `rule`, and users pass it to `ignore`, `levels` and `thresholds`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from attnlaw.analysis.columns import LEVELS
from attnlaw.analysis.findings import duplicates, embeddings, orientation, precision, scan, sizes, vectors
from attnlaw.analysis.findings.evidence import Hit, Subject, TensorLocation
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
    meaning: str  # what a finding says about the model
    remedy: str  # what the user can do
    least: float = 0.0  # the smallest threshold that a user may set
    needs_experts: bool = False  # whether it compares all experts, and does not look at some of them


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
        when="an entry is NaN or infinite",
        meaning="the tensor holds NaN or infinity, and whatever reads it gives NaN",
        remedy="use a checkpoint from before training diverged, or copy the file again",
    ),
    Detector(
        *("missing-tensor", ERROR, None, scan.missing_tensor),
        when="a layer lacks a gain or a bias that others of its stack have, or a norm has a bias and no "
        "gain (a warning if only the word embeddings are missing)",
        meaning="the file has lost the tensor, and the model is read without it, with other numbers",
        remedy="save or download the checkpoint again",
    ),
    Detector(
        *("zero-tensor", ERROR, None, scan.zero_tensor),
        when="all entries of a matrix, an embedding (tokens, positions or types) or a norm's gain are 0",
        meaning="the tensor was never written, or was erased",
        remedy="compare its name with what the training program saves",
    ),
    Detector(
        *("constant-tensor", ERROR, None, scan.constant_tensor),
        when="all entries of a matrix are one value, not 0",
        meaning="the matrix was filled, not trained",
        remedy="compare its name with what the training program saves",
    ),
    Detector(
        *("zero-rows", WARNING, 0.0, scan.zero_rows),
        when="a row or column of a matrix is 0 (embeddings are left out)",
        meaning="inputs or outputs of the map are cut off: pruned, or padded",
        remedy="none where it was pruned on purpose; else look at how it was saved",
    ),
    Detector(
        *("beyond-float16", WARNING, FLOAT16, scan.beyond_float16),
        when="an entry is larger than float16 can hold",
        meaning="cast to float16 the entry becomes infinite",
        remedy="serve the model in bfloat16 or float32",
    ),
    Detector(
        *("random-embedding", ERROR, 1.2, embeddings.random_embedding),
        when="the rows of a table of tokens (256 or more) have lengths as those of noise, and its spectral "
        "norm is less than this times that of noise, in a model whose layers are trained",
        meaning="the table has the weights of a fresh initialisation, so tokens have no meaning (unless it "
        "was frozen on purpose)",
        remedy="look for a tensor name that did not match when the model was loaded or saved",
    ),
    Detector(
        *("alike-embedding-rows", ERROR, None, embeddings.alike_rows),
        when="all rows of a table of tokens, positions or types (3 or more) are equal (a warning if they are "
        "multiples of one row)",
        meaning="the table does not distinguish its tokens, positions or types: it was filled, not trained",
        remedy="compare its name with what the training program saves",
    ),
    Detector(
        *("zero-embedding-rows", WARNING, 0.01, embeddings.zero_embedding_rows),
        when="two rows or more of a table of tokens, and more than this share, are 0 before the last row "
        "that is not (an error above 0.1)",
        meaning="these tokens have no embedding: they were erased, or never written",
        remedy="none where tokens were removed on purpose; else compare the table with that of the tokenizer",
    ),
    Detector(
        *("gains-one", WARNING, None, vectors.gains_one),
        when="every gain of the layers' norms is exactly 1, in a model whose layers are trained",
        meaning="the norms were reset, or their gains were folded into the matrices on purpose",
        remedy="none where they were folded; else compare the names of the norms with those of the program",
    ),
    Detector(
        *("biases-zero", WARNING, None, vectors.biases_zero),
        when="every bias of the layers' matrices (4 or more) is exactly 0, in a model whose layers are "
        "trained",
        meaning="the biases were reset, or the model has none and its format stores zeros",
        remedy="none where the model has no biases; else compare their names with those of the program",
    ),
    Detector(
        *("coarse-grid", WARNING, precision.COARSE, precision.coarse_grid),
        when="the median block of 32 neighbours in a row holds so few different values, in a file of floats",
        meaning="matrices were quantised and stored as floats again: their precision is that of a few bits",
        remedy="export them again from the original weights",
    ),
    Detector(
        *("float8-trace", WARNING, 16.0, precision.float8_trace),
        when="the median run of 128 neighbours in a row holds so few different significands, in a file of "
        "floats",
        meaning="matrices were rounded to float8 and stored as wider floats again: their precision is that "
        "of float8",
        remedy="none where training computes in float8; else export them again from the original weights",
    ),
    Detector(
        *("quantised", NOTE, None, precision.quantised),
        when="the file's own code quantises tensors",
        meaning="weights are rounded by the file's code; the numbers are of the rounded weights",
        remedy="audit the original weights where spectra are to be compared",
    ),
    Detector(
        *("identical-tensors", WARNING, None, scan.identical),
        when="two matrices of the layers have the same bits",
        meaning="one tensor was saved twice",
        remedy="compare the layers with those of the training program",
        needs_experts=True,
    ),
    Detector(
        *("copied-layer", ERROR, None, duplicates.copied_layer),
        when="all matrices of two layers have the same bits, and the config does not share the layers",
        meaning="one layer was saved twice, or a merge repeats it on purpose. To switch this rule off, write "
        'ignore = ["copied-layer"] under [findings] in the file of --rules',
        remedy="compare the layers with those of the training program; if a merge repeats them on purpose, "
        "switch the rule off",
    ),
    Detector(
        *("duplicate-layers", WARNING, 0.95, duplicates.duplicate_layers),
        when="the heads of two layers, in the median of QK and of VO, have cosines above it",
        meaning="two layers compute nearly the same: a layer was copied",
        remedy="none where the model was deepened by copies; else look at the merge",
        least=duplicates.LEAST,
    ),
    Detector(
        *("duplicate-heads", WARNING, 0.95, duplicates.duplicate_heads),
        when="two heads of a layer have cosines above it, in QK and in VO",
        meaning="two heads compute nearly the same: one is redundant",
        remedy="prune one of them, or look at how heads were split or repeated",
        least=duplicates.LEAST,
    ),
    Detector(
        *("dead-map", WARNING, 0.01, sizes.dead_map),
        when="the Frobenius norm is less than this share of its kind's median",
        meaning="the map contributes nothing",
        remedy="none where it was pruned; else look at the tensors that it is made of",
    ),
    Detector(
        *("random-head", NOTE, sizes.LEVEL, sizes.random_head),
        when="the p-values of QK and of VO are both above it",
        meaning="neither product of the head differs from noise: it was hardly trained",
        remedy="a candidate for pruning; many of them: look at how the head was initialised",
    ),
    Detector(
        *("untrained-layer", ERROR, 0.5, sizes.untrained_layer),
        when="more than this share of the layer's matrices do not differ from noise at level 0.01",
        meaning="the layer has the weights of a fresh initialisation",
        remedy="look for tensor names that did not match when the model was loaded or saved",
        needs_experts=True,
    ),
    Detector(
        *("untrained-model", ERROR, sizes.LEVEL, sizes.untrained_model),
        when="a fresh model would differ from noise as often, with a chance above it",
        meaning="the model has the weights of a fresh initialisation",
        remedy="look for tensor names that did not match when the model was loaded or saved",
        needs_experts=True,
    ),
    Detector(
        *("rank-deficient", NOTE, 1.0, sizes.rank_deficient),
        when="the numerical rank is below this share of the full rank (a warning below 0.9)",
        meaning="the map has directions that it does not use at all",
        remedy="none where it was pruned or merged at low rank; else look at the tensors that it is made of",
    ),
    Detector(
        *("unbalanced", ERROR, 3.0, sizes.unbalanced),
        when="the ratio of root mean squares of Q and K, V and O, or in and out is this factor from the "
        "median",
        meaning="one of the two tensors has a wrong scale: training keeps the ratio alike in all layers",
        remedy="look for a scale that was applied twice, or not at all, when the file was converted",
        least=1.0,
    ),
    Detector(
        *("norm-outlier", WARNING, 5.0, sizes.norm_outlier),
        when="a layer's median spectral norm is this factor, and 6 deviations, from its kind's median layer",
        meaning="the layer is scaled unlike all others",
        remedy="look for a wrong scale; after training, for a layer that diverges",
        least=1.0,
    ),
    Detector(
        *("saturated-scores", WARNING, 100.0, sizes.saturated_scores),
        when="the typical size of a head's logits (`logit_typical`) is above it",
        meaning="logits of isotropic tokens spread so far that softmax picks single ones "
        "(real tokens: further)",
        remedy="watch the logits of this head; train with norms of queries and keys, or a cap",
    ),
    Detector(
        *("logit-overflow", WARNING, FLOAT16, sizes.logit_overflow),
        when="the bound of a head's logits (`logit_bound`) is above it",
        meaning="no range of float16 is guaranteed: some input may overflow it "
        "(real inputs reach 0.02 to 0.3 of it)",
        remedy="compute scores in bfloat16 or float32, or measure the logits of your inputs",
    ),
    Detector(
        *("transposed", WARNING, 0.1, orientation.transposed),
        when="the head side of a square matrix fits the layer's stream better than its residual side, "
        "by this",
        meaning="the matrix seems to lie transposed (silence proves nothing)",
        remedy="compare the layout with the family's: (out, in) or (in, out)",
    ),
)
