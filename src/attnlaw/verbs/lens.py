"""`lens`: the forward pass over some tokens as one exact affine map."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from attnlaw.base.charts import Cells
from attnlaw.base.declare import Progress, Quantity, Table, Verb, columns, each, flatten
from attnlaw.base.settings import Settings, setting, settings

if TYPE_CHECKING:
    from attnlaw.forward.lens import Lens


@settings
class LensSettings(Settings):
    """The forward pass over these tokens as one exact affine map, vec F(X) = T(X) vec X + c(X).

    F runs from the embeddings to the last hidden state, in float64 (TensorLens, arXiv 2601.17958). Shown
    are how well T and c rebuild the network's output, the largest singular values of T, and how much each
    input token moves each output token: block norms of T, beside attention rollout. Needs the extra lens.
    """

    model: str = setting(
        help="A local directory with config.json and weights.",
        positional=True,
        file=True,
        many=True,
        metavar="MODEL",
    )
    ids: tuple[int, ...] = setting(help="Token ids of the input.", least=0, metavar="1,2,3")
    top: int = setting(8, "Singular values to compute.", least=1, metavar="K")
    seed: int = setting(0, "Seed of the probes that estimate the map of a large operator.", least=0)


QUANTITIES = (
    Quantity("family", "type of the model", kind="text", brief=True),
    Quantity("layers", "attention blocks", kind="int", brief=True),
    Quantity("tokens", "of the input", kind="int"),
    Quantity("hidden_size", "coordinates of a token", kind="int", brief=True),
    Quantity("reconstruction_error", "|T X + c − F(X)| / |F(X)|, F from the network itself", brief=True),
    Quantity("offset_share", "|c| / |F(X)|, what the biases give", brief=True),
    Quantity("singular_values", "the largest ones of T", kind="floats"),
    Quantity("singular_values_residual", "max |Tᵀu − σv| / σ₁"),
    Quantity("probes", "random probes per token behind the norms; none where these are exact", kind="int"),
)
TOKEN_MAP = (
    Quantity("output", "position of the token that is moved", kind="int", called="output token"),
    Quantity("output_id", "its id", kind="int"),
    Quantity("input", "position of the token that moves it", kind="int", called="input token"),
    Quantity("input_id", "its id", kind="int"),
    Quantity("norm", "Frobenius norm of the block of T between them", error=True),
    Quantity("share", "of the norm in those of the output token", called="exact operator: block norms"),
    Quantity("rollout", "the same by the weights of attention alone", called="attention rollout"),
)


def look(case: LensSettings, progress: Progress) -> Lens:
    from attnlaw.forward.lens import linearise

    return linearise(case.model, case.ids, case.top, case.seed, progress)


def _token_map(lens: Lens) -> Any:
    from attnlaw.base.tables import frame, schema_of

    return frame((flatten(TOKEN_MAP, row) for row in lens.rows()), schema_of(columns(TOKEN_MAP)))


VERB = Verb(
    "lens",
    "What moves each token",
    LensSettings,
    QUANTITIES,
    each(look),
    tables=(Table("token_map", TOKEN_MAP, _token_map, json=True),),
    charts=(
        Cells(
            "lens_map",
            "What moves each token",
            table="token_map",
            x=("input", "input_id"),
            y=("output", "output_id"),
            colour=("share", "rollout"),
            scale="sqrt",
            tells=("output", "output_id", "input", "input_id", "norm", "norm_error", "share", "rollout"),
            caption="Each row is an output token, each column an input token (position · id); rows sum to 1. "
            "Left by the exact operator, right by attention rollout, on one scale of colour (a square root). "
            "Where they differ, attention alone tells another story than the network.",
        ),
    ),
)
