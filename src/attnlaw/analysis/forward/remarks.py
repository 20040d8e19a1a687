"""Remarks about single heads on one input, in sentences.

Each record of the table `REMARK_KINDS` is one kind of remark. It says when the remark applies, what the
remark says, and how heads are ranked. All remarks describe this input only. None of them says that a head is
good or bad.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from attnlaw.analysis.forward.heads import Head

MIN_ROW_SHARE = 0.75  # share of rows that have their largest weight at one column or distance
MIN_COLUMN_SHARE = 0.5  # share of all weight that is in one column
MAX_SHARE_OF_NULL = 0.1  # relative to the participation number of independent Gaussian queries and keys
MAX_SHARE_OF_RANDOM = 0.5  # relative to the participation number of random weights on the same tokens
MIN_ALIGNMENT = 5.0  # times the spread of logits that isotropic tokens would have


@dataclass(frozen=True)
class RemarkKind:
    """One kind of remark about a head."""

    name: str
    meaning: str  # when it applies, in words
    holds: Callable[[Head], bool]  # whether it applies to a head
    size: Callable[[Head], float]  # how clearly it applies; the clearest head comes first
    describe: Callable[[Head, Sequence[str]], str]  # what it says about a head, with the labels of tokens


@dataclass(frozen=True)
class HeadRemark:
    """A remark about one head."""

    rule: str  # name of the kind of remark
    layer: int
    head: int
    size: float
    sentence: str
    meaning: str  # when this kind of remark applies


def _offset_sentence(head: Head, labels: Sequence[str]) -> str:
    steps = abs(head.top_offset)
    way = "before" if head.top_offset < 0 else "after"
    where = f"{steps} token{'s' if steps > 1 else ''} {way}" if steps else "the token itself"
    return f"looks at {where} in {head.top_offset_rows:.0%} of rows"


def _few_directions_sentence(head: Head, labels: Sequence[str]) -> str:
    number = head.participation
    assert number is not None
    return (
        f"has {number.value:.1f} directions, where random heads as sharp have {number.null.value:.0f} "
        f"and random weights on these tokens {number.random.value:.0f}"
    )


def _has_few_directions(head: Head) -> bool:
    participation = head.participation
    return (
        participation is not None
        and participation.value < MAX_SHARE_OF_NULL * participation.null.value
        and participation.value < MAX_SHARE_OF_RANDOM * participation.random.value
    )


REMARK_KINDS = (
    RemarkKind(
        "one-column",
        f"one column has the largest weight of {MIN_ROW_SHARE:.0%} of rows or more, "
        f"and {MIN_COLUMN_SHARE:.0%} of all weight",
        lambda head: (
            head.top_column_rows >= MIN_ROW_SHARE
            and head.sink == head.top_column
            and head.largest_column_mean >= MIN_COLUMN_SHARE
        ),
        lambda head: head.top_column_rows,
        lambda head, labels: (
            f"attends one column in {head.top_column_rows:.0%} of rows: {labels[head.top_column]} at "
            f"{head.top_column}, {head.largest_column_mean:.0%} of all weight"
        ),
    ),
    RemarkKind(
        "one-offset",
        f"the largest weight of {MIN_ROW_SHARE:.0%} of rows or more is at one distance "
        "from the row's own token",
        lambda head: head.top_offset_rows >= MIN_ROW_SHARE,
        lambda head: head.top_offset_rows,
        _offset_sentence,
    ),
    RemarkKind(
        "few-directions",
        f"the participation number is below {MAX_SHARE_OF_NULL:.0%} of the Gaussian null's "
        f"and {MAX_SHARE_OF_RANDOM:.0%} of that of random weights on the same tokens",
        _has_few_directions,
        lambda head: head.participation.null.value / head.participation.value if head.participation else 0.0,
        _few_directions_sentence,
    ),
    RemarkKind(
        "sharp",
        "beta is above beta_c, where Gaussian logits attend a few tokens however many there are",
        lambda head: head.beta > head.beta_c,
        lambda head: head.beta / head.beta_c,
        lambda head, labels: (
            f"is sharp: beta {head.beta:.1f} is above beta_c {head.beta_c:.1f}, "
            f"a row attends {head.perplexity:.1f} tokens"
        ),
    ),
    RemarkKind(
        "aligned",
        f"beta is {MIN_ALIGNMENT:g} times or more what isotropic tokens would give, by its weights",
        lambda head: (head.spread_over_typical or 0) >= MIN_ALIGNMENT,
        lambda head: head.spread_over_typical or 0,
        lambda head, labels: (
            f"has tokens that line up with it: its logits spread {head.spread_over_typical or 0:.1f} times "
            "as far as those of isotropic tokens"
        ),
    ),
)


def head_remarks(heads: Sequence[Head], labels: Sequence[str]) -> tuple[HeadRemark, ...]:
    """Return the remarks that apply to heads, kind by kind. The clearest case of each kind comes first."""
    remarks = []
    for kind in REMARK_KINDS:
        for head in sorted(filter(kind.holds, heads), key=kind.size, reverse=True):
            sentence = f"head {head.layer}.{head.head} {kind.describe(head, labels)}"
            place = head.layer, head.head
            remarks.append(HeadRemark(kind.name, *place, kind.size(head), sentence, kind.meaning))
    return tuple(remarks)
