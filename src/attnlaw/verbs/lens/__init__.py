"""`attnlaw lens MODEL`: what heads do on one input, and the forward pass as an exact affine map."""

from __future__ import annotations

from typing import Any

from attnlaw.analysis.forward.heads import Head
from attnlaw.analysis.forward.inputs import InputSettings, single_input
from attnlaw.analysis.forward.lens import Lens, linearise
from attnlaw.core.errors import BadSetting
from attnlaw.core.progress import Progress
from attnlaw.core.quantity import Quantity, TableSpec
from attnlaw.core.settings import Settings, setting, settings_dataclass
from attnlaw.core.verb import Verb, run_each_case

PARTS = dict.fromkeys(("heads", "operator", "entrywise"))


@settings_dataclass
class LocalModel(Settings):
    """A local model that attnlaw runs."""

    model: str = setting(
        help="A local directory with config.json and weights.",
        positional=True,
        is_path=True,
        sweepable=True,
        metavar="MODEL",
    )


@settings_dataclass
class LensSettings(InputSettings, LocalModel):
    """Show what the heads of a model do on one input, and the forward pass as one exact affine map.

    For each head: how sharp it is, compared with the thresholds at which Gaussian logits condense, where it
    looks, how many directions its attention has compared with two random references, and its logits with
    their bound. For the pass, from the embeddings to the last hidden state in float64, vec F(X) = T(X) vec X
    + c(X) (TensorLens, arXiv 2601.17958): how well T and c rebuild the network's output, the largest singular
    values of T, and how much each input token moves each output token, next to attention rollout. The map of
    tokens takes long for a long input; --only heads leaves it out. With --entrywise: which rank would keep
    every attention weight of a head, and what lower ranks cost. This command needs the optional packages of
    attnlaw[lens].
    """

    entrywise: tuple[int, ...] | None = setting(
        None,
        "Ranks at which the attention of every head is cut off, to see its worst entry.",
        metavar="1,4,16",
    )
    only: str | None = setting(None, "One part alone.", choices=PARTS)
    top: int = setting(8, "Singular values to compute.", minimum=1, metavar="K")
    seed: int = setting(
        0, "Seed of the nulls, and of the probes that estimate the map of a large operator.", minimum=0
    )

    def check(self) -> None:
        super().check()
        if self.only == "entrywise" and self.entrywise is None:
            raise BadSetting("entrywise", "is missing; give its ranks, such as 1,4,16")


QUANTITIES = (
    Quantity(
        "median_rank_within",
        "the rank that keeps every attention weight within 0.01 in half of the heads",
        kind="int",
        display_name="rank for 0.01, half of the heads",
    ),
    Quantity(
        "largest_rank_within",
        "the rank that does so in all of them",
        kind="int",
        display_name="rank for 0.01, all heads",
    ),
    Quantity("family", "type of the model", kind="text", in_summary=True),
    Quantity("layers", "attention blocks", kind="int", in_summary=True),
    Quantity("tokens", "of the input", kind="int"),
    Quantity("hidden_size", "coordinates of a token", kind="int", in_summary=True),
    Quantity("head_count", "heads that were looked at", kind="int", display_name="heads"),
    Quantity("median_beta", "over the heads", "β", display_name="median β"),
    Quantity(
        "heads_below_beta_2",
        "heads so soft that the law of random heads could hold",
        kind="int",
        display_name="heads below β₂",
    ),
    Quantity(
        "heads_above_beta_c",
        "heads so sharp that Gaussian logits would attend a few tokens",
        kind="int",
        display_name="heads above β_c",
    ),
    Quantity("score_error", "largest difference of attention: rebuilt from scores, and the network's"),
    Quantity("reconstruction_error", "|T X + c − F(X)| / |F(X)|, F from the network itself", in_summary=True),
    Quantity("offset_share", "|c| / |F(X)|, what the biases give", in_summary=True),
    Quantity("singular_values", "the largest ones of T", kind="floats"),
    Quantity("singular_values_residual", "max |Tᵀu − σv| / σ₁"),
    Quantity("probes", "random probes per token behind the norms; none where these are exact", kind="int"),
)
TOKEN_MAP = (
    Quantity("output", "position of the token that is moved", kind="int", display_name="output token"),
    Quantity("output_id", "its id", kind="int"),
    Quantity("output_token", "what it stands for", kind="text"),
    Quantity("input", "position of the token that moves it", kind="int", display_name="input token"),
    Quantity("input_id", "its id", kind="int"),
    Quantity("input_token", "what it stands for", kind="text"),
    Quantity("norm", "Frobenius norm of the block of T between them", error=True),
    Quantity("share", "of the norm in those of the output token", display_name="exact operator: block norms"),
    Quantity("rollout", "the same by the weights of attention alone", display_name="attention rollout"),
)
HEADS = (
    Quantity("layer", "from 0", kind="int"),
    Quantity("head", "from 0", kind="int"),
    Quantity(
        "beta",
        "root mean square over rows of the standard deviation of a row's logits",
        display_name="β",
        axis="spread of logits β",
    ),
    Quantity(
        "beta_2",
        "√(ln n / 2): above it the law of random heads is lost",
        display_name="β₂",
        axis="β₂ = √(ln n / 2)",
    ),
    Quantity(
        "beta_c",
        "√(2 ln n): above it Gaussian logits attend a few tokens",
        display_name="β_c",
        axis="β_c = √(2 ln n)",
    ),
    Quantity("sharpness", "beta over beta_c", display_name="β / β_c", axis="sharpness β / β_c"),
    Quantity("perplexity", "exponential of the mean entropy of rows, in tokens"),
    Quantity("participation", "(Σs²)² / Σs⁴ of attention without its column means (causal: without uniform)"),
    Quantity("null_participation", "mean of 20 draws: Gaussian queries and keys at this beta", error=True),
    Quantity("random_participation", "mean of 20 draws: random weights on these tokens", error=True),
    Quantity(
        "participation_over_null",
        "below 1: rows share columns",
        display_name="participation / null",
        log=True,
    ),
    Quantity(
        "participation_over_random",
        "the same against random weights on these tokens",
        display_name="participation / random weights",
        log=True,
    ),
    Quantity("largest_column_mean", "of all weight, in the column that has most: the sink"),
    Quantity("sink", "position of that column", kind="int"),
    Quantity("sink_token", "what stands there", kind="text"),
    Quantity("top_column", "position that has the largest weight of most rows", kind="int"),
    Quantity("top_column_rows", "share of rows whose largest weight it has"),
    Quantity("top_offset", "distance at which most rows have their largest weight (−1: before)", kind="int"),
    Quantity("top_offset_rows", "share of rows that do"),
    Quantity("largest_logit", "largest |logit| over the allowed pairs"),
    Quantity("logit_bound", "what it can be for any input, by the weights"),
    Quantity("logit_typical", "beta for isotropic tokens, by the weights"),
    Quantity("spread_over_typical", "beta over that: how far tokens line up with the head"),
)
HEAD_REMARKS = (
    Quantity("rule", "what was found", kind="text"),
    Quantity("layer", "from 0", kind="int"),
    Quantity("head", "from 0", kind="int"),
    Quantity("size", "by which its heads are ranked"),
    Quantity("sentence", "in words", kind="text"),
    Quantity("meaning", "when the rule holds", kind="text"),
)
ENTRYWISE = (
    Quantity("layer", "from 0", kind="int"),
    Quantity("head", "from 0", kind="int"),
    Quantity("rank", "at which its attention A is cut off, by singular values", kind="int"),
    Quantity("largest", "largest |A − A_r| of an entry", display_name="worst entry", log=True),
    Quantity(
        "tail", "Σ_(l>r) s_l / n: what the spectrum alone predicts of it", display_name="tail / n", log=True
    ),
    Quantity("rms", "root mean square of the entries of A − A_r", log=True),
    Quantity("coherence", "worst entry over tail / n; null where only round-off is left"),
    Quantity("rank_within", "the least rank of this head that keeps every weight within 0.01", kind="int"),
)
TOKENS = (
    Quantity("position", "from 0", kind="int"),
    Quantity("id", "of the token", kind="int"),
    Quantity("token", "what it stands for", kind="text"),
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
    ),
    charts=("entrywise", "lens_map", "head_betas", "head_sharpness", "head_participation", "head_sinks"),
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
