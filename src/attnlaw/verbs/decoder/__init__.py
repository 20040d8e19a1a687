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
    """Train the small decoder of the examples on the source of Python's library, and measure its heads.

    The theory of one head (arXiv 2609.03858) is shown next to it. This is an analogy, not a fit. This command
    needs the optional packages of attnlaw[lens].
    """

    steps: int = setting(
        300, "Of AdamW; 16 windows of 128 bytes each.", minimum=1, maximum=10**6, sweepable=True
    )
    every: int = setting(10, "Steps from one measurement to the next.", minimum=1)
    seed: int = setting(0, "Seed of weights and data.", minimum=0)


KINDS = ("qk", "vo")
BY_KIND = (
    Quantity("modes", "of heads of {} beyond the bulk", kind="int"),
    Quantity(
        "stronger_first", "of {}: 1, larger modes left the bulk earlier, -1 later", "τ", in_summary=True
    ),
    Quantity("stronger_first_p", "its p-value of {}", "p"),
    Quantity("factor_difference_kept", "‖AᵀA − BᵀB‖ over its start, median of {}"),
    Quantity("factor_imbalance_kept", "factor_imbalance over its start, median of {}"),
)
QUANTITIES = (
    Quantity("held_out_loss", "nats per byte", in_summary=True),
    *(
        replace(quantity, name=f"{quantity.name}_{kind}", description=quantity.description.format(kind))
        for quantity in BY_KIND
        for kind in KINDS
    ),
)
LOCATION = (
    Quantity("layer", "number of the layer", kind="small"),
    Quantity("head", "number of the head", kind="small"),
    Quantity("kind", "qk or vo", kind="text"),
)
STRENGTH = Quantity("strength", "over the edge of the bulk", display_name="value over the bulk's edge")
VALUES = (Quantity("step", kind="int"), *LOCATION, STRENGTH)
MODES = (
    *LOCATION,
    Quantity("mode", "its number in the head", kind="int"),
    Quantity("left_step", "the measured step at which it left the bulk; null: before the first", kind="int"),
    STRENGTH,
)
BULK = (STRENGTH, Quantity("density", "of the null of heads there"))
THEORY = (Quantity("time", "lr·steps/d", "τ"), STRENGTH, Quantity("density", "of the student's eigenvalues"))
THEORY_MODES = (
    Quantity("time", "lr·steps/d", "τ"),
    Quantity("target", "the spike of the target"),
    Quantity("left_time", "the first of the times at which it stands out", "τ"),
    STRENGTH,
)


@run_each_case
def run(case: DecoderSettings, progress: Progress) -> DecoderRun:
    from attnlaw.training.decoder import run_decoder

    return run_decoder(case.steps, case.every, case.seed, progress)


VERB = Verb(
    "decoder",
    "A real training run beside the theory",
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
