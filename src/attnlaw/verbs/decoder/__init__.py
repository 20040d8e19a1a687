"""The verb `decoder`, for studies. It shows a real training run next to the theory of how a head learns."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from attnlaw.core.progress import Progress
from attnlaw.core.quantity import Quantity, TableSpec
from attnlaw.core.settings import Settings, setting, settings_dataclass
from attnlaw.core.verb import Verb, run_each_case

if TYPE_CHECKING:
    from attnlaw.training.decoder import DecoderRun


@settings_dataclass
class DecoderSettings(Settings):
    """Train a small example decoder on the source code of Python's library, and measure its attention heads.

    The theory of one head (arXiv 2609.03858) is shown next to it, as an analogy and not as a fit. This
    command needs the optional packages of attnlaw[lens].
    """

    steps: int = setting(
        300,
        "Number of AdamW steps. Each step sees 16 windows of 128 bytes.",
        minimum=1,
        maximum=10**6,
        sweepable=True,
    )
    every: int = setting(10, "Number of training steps between two measurements.", minimum=1)
    seed: int = setting(0, "Seed of the initial weights and of the data.", minimum=0)


KINDS = ("qk", "vo")
BY_KIND = (
    Quantity(
        "modes",
        "number of singular values of {} that grew out of the random bulk, over all heads",
        kind="int",
    ),
    Quantity(
        "stronger_first",
        "order in which singular values of {} left the random bulk: 1 if larger ones left first, −1 "
        "if last (Kendall's τ)",
        "τ",
        in_summary=True,
    ),
    Quantity(
        "stronger_first_p",
        "p-value of this order for {}: probability that a random order gives the same τ or a larger one",
        "p",
    ),
    Quantity(
        "factor_difference_kept",
        "imbalance ‖AᵀA − BᵀB‖ of the factors A and B of {}, relative to the start (median over heads)",
    ),
    Quantity(
        "factor_imbalance_kept",
        "imbalance of the factors of {} as a share of their size, relative to the start (median over heads)",
    ),
)
QUANTITIES = (
    Quantity("held_out_loss", "loss on held-out text, in nats per byte", in_summary=True),
    *(
        replace(quantity, name=f"{quantity.name}_{kind}", description=quantity.description.format(kind))
        for quantity in BY_KIND
        for kind in KINDS
    ),
)
LOCATION = (
    Quantity("layer", "index of the layer, counting from 0", kind="small"),
    Quantity("head", "index of the attention head, counting from 0", kind="small"),
    Quantity("kind", "matrix of the head: qk (query-key) or vo (value-output)", kind="text"),
)
STRENGTH = Quantity(
    "strength",
    "singular value, divided by the largest that random weights have (edge of the random bulk)",
    display_name="singular value relative to random weights",
)
VALUES = (Quantity("step", "training step", kind="int"), *LOCATION, STRENGTH)
MODES = (
    *LOCATION,
    Quantity("mode", "index of the singular value within its head, largest first", kind="int"),
    Quantity(
        "left_step",
        "first measured step at which the singular value was above random ones (empty if it always was)",
        kind="int",
    ),
    STRENGTH,
)
BULK = (STRENGTH, Quantity("density", "density of the singular values of random heads at this value"))
THEORY = (
    Quantity(
        "time", "training time: learning rate times number of steps, divided by the token dimension d", "τ"
    ),
    STRENGTH,
    Quantity("density", "predicted density of the learned matrix's eigenvalues at this value"),
)
THEORY_MODES = (
    Quantity(
        "time", "training time: learning rate times number of steps, divided by the token dimension d", "τ"
    ),
    Quantity("target", "large eigenvalue of the target matrix, apart from all others (spike)"),
    Quantity(
        "left_time",
        "first time at which the eigenvalue that belongs to the spike is outside the random bulk",
        "τ",
    ),
    STRENGTH,
)


@run_each_case
def run(case: DecoderSettings, progress: Progress) -> DecoderRun:
    from attnlaw.training.decoder import run_decoder

    return run_decoder(case.steps, case.every, case.seed, progress)


VERB = Verb(
    "decoder",
    "A real training run next to the theory",
    DecoderSettings,
    QUANTITIES,
    run,
    tables=(
        TableSpec("singular_values", VALUES),
        TableSpec("modes", MODES),
        TableSpec("bulk", BULK),
        TableSpec("theory", THEORY),
        TableSpec("theory_modes", THEORY_MODES),
    ),
    charts=("run", "order"),
    is_random=True,
)
