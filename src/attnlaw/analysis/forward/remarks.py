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
TIMES_UNIFORM = 2.0  # how clearly a share must be above that of uniform attention; see `_is_above_uniform`
MAX_SHARE_OF_NULL = 0.1  # relative to the participation number of independent Gaussian queries and keys
MAX_SHARE_OF_RANDOM = 0.5  # relative to the participation number of random weights on the same tokens
MIN_ALIGNMENT = 5.0  # times the spread of logits that isotropic tokens would have


@dataclass(frozen=True)
class RemarkKind:
    name: str
    meaning: str  # when it applies, in words
    label: str  # in one to three words, for the title of a chart
    singular: str  # what one head does, as the end of a sentence; `several` is the same for several heads
    several: str
    holds: Callable[[Head], bool]  # whether it applies to a head
    size: Callable[[Head], float]  # how clearly it applies; the clearest head comes first
    describe: Callable[[Head, Sequence[str]], str]  # what it says about a head, with the labels of tokens


@dataclass(frozen=True)
class HeadRemark:
    rule: str  # name of the kind of remark
    layer: int
    head: int
    size: float
    sentence: str
    meaning: str  # when this kind of remark applies


def _is_above_uniform(share: float, uniform: float) -> bool:
    """Return whether a share is twice that of uniform attention, or half of the rest if that is too much."""
    return share >= min(TIMES_UNIFORM * uniform, (1 + uniform) / 2)


def _describe_column(head: Head, labels: Sequence[str]) -> str:
    return (
        f'attends mainly to one fixed token: "{labels[head.top_column]}" at position {head.top_column} gets '
        f"{head.largest_column_mean:.0%} of its attention"
    )


def _describe_offset(head: Head, labels: Sequence[str]) -> str:
    steps, share = abs(head.top_offset), f"{head.top_offset_rows:.0%} of positions attend most to"
    if head.top_offset == -1:
        return f"is a previous-token head: {share} the token before"
    if steps == 0:
        return f"looks at the token itself: {share} their own token"
    way, place = ("back", "before") if head.top_offset < 0 else ("ahead", "after")
    count = f"{steps} token{'s' if steps > 1 else ''}"
    return f"looks {count} {way}: {share} the token {steps} {place}"


def _describe_few_directions(head: Head, labels: Sequence[str]) -> str:
    number = head.participation
    assert number is not None
    return (
        f"attends to the same tokens from every position: {number.value:.1f} distinct directions; an "
        f"equally sharp random head has {number.null.value:.0f} and random weights on these tokens have "
        f"{number.random.value:.0f}"
    )


def _describe_sharp(head: Head, labels: Sequence[str]) -> str:
    return (
        f"looks at only a few tokens: {head.perplexity:.1f} on average "
        f"(sharpness β {head.beta:.1f}, above {head.beta_c:.1f})"
    )


def _describe_aligned(head: Head, labels: Sequence[str]) -> str:
    return (
        "amplifies directions that these tokens share: its logits vary "
        f"{head.spread_over_typical or 0:.1f} times as far as for tokens in random directions"
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
        f"at least {MIN_ROW_SHARE:.0%} of positions attend most to the same token, and it gets at least "
        f"{MIN_COLUMN_SHARE:.0%} of all attention, clearly more than uniform attention would give it",
        "one fixed token",
        "attends mainly to one fixed token",
        "attend mainly to one fixed token",
        lambda head: (
            head.top_column_rows >= MIN_ROW_SHARE
            and head.sink == head.top_column
            and head.largest_column_mean >= MIN_COLUMN_SHARE
            and _is_above_uniform(head.largest_column_mean, head.uniform_column)
        ),
        lambda head: head.top_column_rows,
        _describe_column,
    ),
    RemarkKind(
        "one-offset",
        f"at least {MIN_ROW_SHARE:.0%} of positions attend most to a token at one fixed distance, which gets "
        "clearly more attention than uniform attention would give it",
        "one fixed distance",
        "looks at tokens at one fixed distance",
        "look at tokens at one fixed distance",
        lambda head: (
            head.top_offset_rows >= MIN_ROW_SHARE
            and _is_above_uniform(head.top_offset_mean, head.uniform_offset)
        ),
        lambda head: head.top_offset_rows,
        _describe_offset,
    ),
    RemarkKind(
        "few-directions",
        f"attention has fewer than {MAX_SHARE_OF_NULL:.0%} of the distinct directions of an equally sharp "
        f"random head, and fewer than {MAX_SHARE_OF_RANDOM:.0%} of those of random weights on these tokens",
        "same tokens everywhere",
        "attends to the same tokens from every position",
        "attend to the same tokens from every position",
        _has_few_directions,
        lambda head: head.participation.null.value / head.participation.value if head.participation else 0.0,
        _describe_few_directions,
    ),
    RemarkKind(
        "sharp",
        "sharpness β is above β_c = √(2 ln n), where random logits make a position attend to only a few "
        "tokens however long the text is",
        "few tokens",
        "looks at only a few tokens",
        "look at only a few tokens",
        lambda head: head.beta > head.beta_c,
        lambda head: head.beta / head.beta_c,
        _describe_sharp,
    ),
    RemarkKind(
        "aligned",
        f"sharpness β is at least {MIN_ALIGNMENT:g} times as large as the weights would give for tokens in "
        "random directions",
        "tokens line up",
        "amplifies directions that these tokens share",
        "amplify directions that these tokens share",
        lambda head: (head.spread_over_typical or 0) >= MIN_ALIGNMENT,
        lambda head: head.spread_over_typical or 0,
        _describe_aligned,
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
