"""`attnlaw lens MODEL`: what heads do on one input, and the forward pass as an exact affine map."""

from __future__ import annotations

from typing import Any, ClassVar

from attnlaw.analysis.forward.heads import Head
from attnlaw.analysis.forward.inputs import InputSettings, single_input
from attnlaw.analysis.forward.lens import Lens, linearise
from attnlaw.core.errors import BadSetting
from attnlaw.core.progress import Progress, no_progress
from attnlaw.core.quantity import Quantity, TableSpec
from attnlaw.core.settings import Settings, setting, settings_dataclass
from attnlaw.core.verb import Verb, run_each_case

PARTS = dict.fromkeys(("heads", "operator", "entrywise"))


@settings_dataclass
class LocalModel(Settings):
    """A model in a local directory that attnlaw runs."""

    model: str = setting(
        help="Directory of a Hugging Face model, with config.json and weights.",
        positional=True,
        is_path=True,
        sweepable=True,
        metavar="MODEL",
    )


@settings_dataclass
class LensSettings(InputSettings, LocalModel):
    """Show what the heads of a model do on one input, and which input tokens shape its output.

    For each head, attnlaw reports how sharply it attends, where it looks, how many directions its attention
    has, and how large its logits get. It also computes how much each input token moves each output token,
    from an exact linear form of the whole forward pass (TensorLens, arXiv 2601.17958). This takes long for a
    long input; --only heads leaves it out. With --entrywise, attnlaw reports to which rank the attention of a
    head can be reduced, and the error at lower ranks. This command needs the optional packages of
    attnlaw[lens].
    """

    example_input: ClassVar[tuple[str, str]] = ("text", "The cat sat on the mat")

    entrywise: tuple[int, ...] | None = setting(
        None,
        "Ranks to which every head's attention matrix is reduced, to measure the largest error of a weight.",
        metavar="1,4,16",
    )
    only: str | None = setting(
        None,
        "Compute only one part: heads, operator (how tokens move each other), or entrywise (errors "
        "of low-rank attention).",
        choices=PARTS,
    )
    top: int = setting(
        8,
        "Number of singular values to compute of the map from input tokens to output tokens.",
        minimum=1,
        metavar="K",
    )
    seed: int = setting(
        0,
        "Seed of the random heads that heads are compared with, and of random probes for long inputs.",
        minimum=0,
    )

    def check(self) -> None:
        super().check()
        if self.only == "entrywise" and self.entrywise is None:
            raise BadSetting("only", "needs ranks; add {entrywise} 1,4,16", self.only)


QUANTITIES = (
    Quantity(
        "median_rank_within",
        "rank to which half of the heads can be reduced while every attention weight stays within 0.01",
        kind="int",
        display_name="rank for error 0.01, half of the heads",
    ),
    Quantity(
        "largest_rank_within",
        "rank to which all heads can be reduced while every attention weight stays within 0.01",
        kind="int",
        display_name="rank for error 0.01, all heads",
    ),
    Quantity("family", "model type that config.json states, such as gpt2", kind="text", in_summary=True),
    Quantity("layers", "number of attention blocks", kind="int", in_summary=True),
    Quantity("tokens", "number of tokens in the input", kind="int"),
    Quantity(
        "hidden_size",
        "width of the model: number of entries of a token's vector",
        kind="int",
        in_summary=True,
    ),
    Quantity("head_count", "number of heads that were measured", kind="int", display_name="heads"),
    Quantity(
        "median_beta",
        "median over heads of the sharpness β: standard deviation of a position's attention logits",
        "β",
        display_name="median sharpness β",
    ),
    Quantity(
        "heads_below_beta_2",
        "number of diffuse heads: sharpness below β₂ = √(ln n / 2) for n tokens, so theory of random "
        "attention can hold",
        kind="int",
        display_name="diffuse heads (β below β₂)",
    ),
    Quantity(
        "heads_above_beta_c",
        "number of sharp heads: sharpness above β_c = √(2 ln n) for n tokens, so positions attend to "
        "only a few tokens",
        kind="int",
        display_name="sharp heads (β above β_c)",
    ),
    Quantity(
        "score_error",
        "largest difference between the model's own attention weights and those that attnlaw "
        "computed, as a check",
    ),
    Quantity(
        "reconstruction_error",
        "relative difference between the model's own output and the one that attnlaw computed, as a check",
        in_summary=True,
    ),
    Quantity(
        "offset_share",
        "size of the part of the output that comes from biases, relative to the whole; above 1 if "
        "parts cancel",
        in_summary=True,
    ),
    Quantity(
        "singular_values",
        "largest singular values of the map from input tokens to output tokens, with attention and "
        "norms fixed",
        kind="floats",
    ),
    Quantity(
        "singular_values_residual",
        "numerical error of the singular values: largest residual |Tᵀu − σv|, divided by the largest "
        "singular value",
    ),
    Quantity(
        "probes",
        "number of random probes per token that estimate how tokens move each other; empty if exact",
        kind="int",
    ),
)
TOKEN_MAP = (
    Quantity("output", "position of the output token, from 0", kind="int", display_name="output token"),
    Quantity("output_id", "vocabulary id of the token at the output position", kind="int"),
    Quantity("output_token", "text of the token at the output position", kind="text"),
    Quantity("input", "position of the input token, from 0", kind="int", display_name="input token"),
    Quantity("input_id", "vocabulary id of the token at the input position", kind="int"),
    Quantity("input_token", "text of the token at the input position", kind="text"),
    Quantity(
        "norm",
        "how strongly the input token moves the output token, through the whole network (Frobenius norm)",
        error=True,
    ),
    Quantity(
        "share",
        "share of this input token in all that moves the output token, through the whole network",
        display_name="share through the whole network (exact)",
    ),
    Quantity(
        "rollout",
        "share of this input token according to attention weights alone (attention rollout), without "
        "values and feed-forward blocks",
        display_name="share by attention weights alone (rollout)",
    ),
)
LAYER = Quantity("layer", "index of the attention block, counting from 0", kind="int")
HEAD = Quantity("head", "index of the head in its layer, counting from 0", kind="int")
HEADS = (
    LAYER,
    HEAD,
    Quantity(
        "beta",
        "sharpness of the head: standard deviation of a position's attention logits (root mean "
        "square over positions)",
        display_name="sharpness β",
        axis="sharpness (β)",
    ),
    Quantity(
        "beta_2",
        "sharpness √(ln n / 2) for n tokens, up to which theory of random attention can hold",
        display_name="β₂",
        axis="β₂ = √(ln n / 2), below which theory of random attention can hold",
    ),
    Quantity(
        "beta_c",
        "sharpness √(2 ln n) for n tokens, above which a position with random logits attends to only "
        "a few tokens",
        display_name="β_c",
        axis="β_c = √(2 ln n), above which only a few tokens count",
    ),
    Quantity(
        "sharpness",
        "sharpness divided by the threshold β_c; above 1, a position looks at only a few tokens",
        display_name="β / β_c",
        axis="sharpness relative to the threshold (β / β_c)",
    ),
    Quantity(
        "perplexity",
        "number of tokens that a position effectively attends to (exponential of the mean entropy)",
        display_name="tokens attended",
    ),
    Quantity(
        "participation",
        "number of different directions among the head's attention rows: participation ratio of its "
        "singular values, mean removed",
        display_name="directions",
    ),
    Quantity(
        "null_participation",
        "number of directions that equally sharp heads with random queries and keys have (mean of 20 draws)",
        error=True,
        display_name="directions, random heads",
    ),
    Quantity(
        "random_participation",
        "number of directions that heads with random weights have on these tokens (mean of 20 draws)",
        error=True,
        display_name="directions, random weights",
    ),
    Quantity(
        "participation_over_null",
        "number of directions relative to equally sharp random heads; below 1 if positions "
        "attend to similar tokens",
        display_name="directions relative to random heads",
        log=True,
    ),
    Quantity(
        "participation_over_random",
        "number of directions relative to heads with random weights on these tokens",
        display_name="directions relative to random weights",
        log=True,
    ),
    Quantity(
        "largest_column_mean",
        "largest share of the head's attention that a single token gets (mean over positions)",
        display_name="largest share on one token",
    ),
    Quantity(
        "sink",
        "position of the token that gets the largest share of the head's attention, from 0",
        kind="int",
    ),
    Quantity(
        "sink_token", "text of the token that gets the largest share of the head's attention", kind="text"
    ),
    Quantity(
        "top_column",
        "position of the token on which most positions put their largest weight, from 0",
        kind="int",
    ),
    Quantity("top_column_rows", "share of positions that put their largest weight on the most common token"),
    Quantity(
        "top_offset",
        "most common distance from a position to the token with its largest weight: 0 is the token "
        "itself, −1 the token before",
        kind="int",
    ),
    Quantity("top_offset_rows", "share of positions whose largest weight is at the most common distance"),
    Quantity("largest_logit", "largest absolute value of the head's attention logits on this input"),
    Quantity(
        "logit_bound",
        "largest absolute value that the head's attention logits could reach on any input, from its weights",
    ),
    Quantity(
        "logit_typical",
        "expected sharpness of the head if tokens had random directions, computed from its weights",
    ),
    Quantity(
        "spread_over_typical",
        "how many times sharper the head is on this input than on tokens in random directions",
    ),
)
HEAD_REMARKS = (
    Quantity("rule", "name of the pattern that the head shows, such as previous-token", kind="text"),
    LAYER,
    HEAD,
    Quantity("size", "number that shows how clear the pattern is, such as a share of positions"),
    Quantity("sentence", "what the head does on this input, in words", kind="text"),
    Quantity("meaning", "condition under which attnlaw reports the pattern", kind="text"),
)
ENTRYWISE = (
    LAYER,
    HEAD,
    Quantity(
        "rank",
        "rank to which the attention matrix is reduced: number of singular values that are kept",
        kind="int",
    ),
    Quantity(
        "largest",
        "largest error of an attention weight if only the leading singular values are kept",
        display_name="largest error of a weight",
        log=True,
    ),
    Quantity(
        "tail",
        "sum of the singular values that are left out, divided by the number of tokens: the error "
        "they suggest",
        display_name="suggested error",
        log=True,
    ),
    Quantity(
        "rms",
        "root mean square error of a head's attention weights if only the leading singular values are kept",
        log=True,
    ),
    Quantity(
        "coherence",
        "largest error divided by the error that the left-out singular values suggest; empty if only "
        "rounding errors are left",
    ),
    Quantity(
        "rank_within",
        "smallest rank to which the head can be reduced while every attention weight stays within 0.01",
        kind="int",
    ),
)
TOKENS = (
    Quantity("position", "position of the token, from 0", kind="int"),
    Quantity("id", "id of the token in the model's vocabulary", kind="int"),
    Quantity("token", "text of the token", kind="text"),
)
HEAD_ATTENTION = (
    LAYER,
    HEAD,
    Quantity(
        "output",
        "position of the token that attends, from 0",
        kind="int",
        display_name="attending token (query)",
    ),
    Quantity("output_token", "text of the token that attends", kind="text"),
    Quantity(
        "input",
        "position of the token that is attended to, from 0",
        kind="int",
        display_name="attended token (key)",
    ),
    Quantity("input_token", "text of the token that is attended to", kind="text"),
    Quantity(
        "weight",
        "attention weight: share of this token in the attention of the position; the shares add up to 1",
        display_name="attention weight",
    ),
)


def run(case: LensSettings, progress: Progress) -> Lens:
    given = single_input(case, "lens")
    return linearise(case.model, given, case.top, case.seed, progress, case.only, case.entrywise)


def _head_rows(lens: Lens) -> list[dict[str, Any]] | None:
    return None if lens.heads is None else [_head_row(head, lens) for head in lens.heads]


def _head_row(head: Head, lens: Lens) -> dict[str, Any]:
    participation = head.participation
    row = {column.name: getattr(head, column.name, None) for column in HEADS}
    return row | {
        "sharpness": head.beta / head.beta_c,
        "sink_token": lens.labels[head.sink],
        "participation": participation and participation.value,
        "null_participation": participation and participation.null,
        "random_participation": participation and participation.random,
        "participation_over_null": participation and participation.value / participation.null.value,
        "participation_over_random": participation and participation.value / participation.random.value,
    }


def _entrywise_rows(lens: Lens) -> list[dict[str, Any]] | None:
    if lens.entrywise is None:
        return None
    return [
        {"layer": head.layer, "head": head.head, "rank_within": head.rank_within} | vars(error)
        for head in lens.entrywise
        for error in head.errors
    ]


def _head_attention_rows(lens: Lens, progress: Progress = no_progress) -> list[dict[str, Any]] | None:
    labels = lens.labels
    return [
        {"layer": layer, "head": head, "output": i, "input": j, "weight": float(weights[i, j])}
        | {"output_token": labels[i], "input_token": labels[j]}
        for (layer, head), weights in lens.notable_attention.items()
        for i in range(lens.tokens)
        for j in range(lens.tokens)
    ] or None


def _input_tokens(lens: Lens) -> list[dict[str, Any]]:
    pairs = zip(lens.ids, lens.labels, strict=True)
    return [{"position": place, "id": number, "token": label} for place, (number, label) in enumerate(pairs)]


VERB = Verb(
    "lens",
    "One input through a model",
    LensSettings,
    QUANTITIES,
    run_each_case(run),
    tables=(
        TableSpec("entrywise", ENTRYWISE, _entrywise_rows, json=True, optional=True),
        TableSpec("heads", HEADS, _head_rows, json=True, optional=True),
        TableSpec("head_findings", HEAD_REMARKS, lambda lens: map(vars, lens.head_remarks), json=True),
        TableSpec("input_tokens", TOKENS, _input_tokens),
        TableSpec(
            "token_map", TOKEN_MAP, lambda lens: lens.token_map_rows() or None, json=True, optional=True
        ),
        TableSpec(
            "head_attention",
            HEAD_ATTENTION,
            optional=True,
            on_save=_head_attention_rows,
            on_plot=_head_attention_rows,
        ),
    ),
    charts=(
        "entrywise",
        "lens_map",
        "head_betas",
        "head_sharpness",
        "head_participation",
        "head_sinks",
        "head_attention",
    ),
    example="""
    >>> import attnlaw
    >>> result = attnlaw.lens("examples/tiny-decoder", ids=[84, 104, 101], only="heads")
    >>> result.head_count, result.heads.height
    (16, 16)
    """,
    examples={
        'attnlaw lens examples/tiny-decoder --text "the cat sat on the mat"': (
            "find out where each head looks in this text"
        ),
        'attnlaw lens examples/tiny-decoder --text "the cat sat on the mat" --only heads': (
            "skip the map of the tokens, which takes long for a long text"
        ),
    },
)
