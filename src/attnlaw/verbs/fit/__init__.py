"""`attnlaw fit MODEL...`: which law the singular values of each matrix of a checkpoint follow."""

from __future__ import annotations

from typing import TYPE_CHECKING

from attnlaw.analysis.fit import CURVES, FITS, LAWS
from attnlaw.checkpoints.settings import ModelSettings, require_model_exists
from attnlaw.core.progress import Progress
from attnlaw.core.quantity import Quantity, TableSpec
from attnlaw.core.settings import setting, settings_dataclass
from attnlaw.core.verb import Verb, run_each_case
from attnlaw.verbs.audit import NOT_RANDOM

if TYPE_CHECKING:
    from attnlaw.analysis.fit.model_fits import Fits


@settings_dataclass
class FitSettings(ModelSettings):
    seed: int = setting(0, "Seed of the random matrices and of the bootstrap test.", minimum=0)


FitSettings.__doc__ = "\n".join(
    [
        "Find out which known distribution (law) the singular values of each matrix follow.\n",
        "A matrix may look random, follow the theory of trained attention, have heavy tails, or "
        "none of these.\n",
        *(f"{name}: {law.description}" for name, law in LAWS.items()),
    ]
)


def run(case: FitSettings, progress: Progress) -> Fits:
    from attnlaw.analysis.fit.model_fits import fit

    return fit(case, case.seed, progress)


VERB = Verb(
    "fit",
    "Fitted laws",
    FitSettings,
    (
        Quantity(
            "matrix_count",
            "number of weight matrices that were measured; QK and VO of each head count as one matrix each",
            kind="int",
            in_summary=True,
        ),
        *(
            Quantity(
                law.column,
                f"number of matrices that follow the law {name}: {law.description}",
                kind="int",
                in_summary=True,
            )
            for name, law in LAWS.items()
        ),
        *NOT_RANDOM,
    ),
    run_each_case(run),
    tables=(
        TableSpec("fits", FITS, lambda fits: fits.matrices, json=True),
        TableSpec("curves", CURVES),
    ),
    charts=("laws",),
    precheck=require_model_exists,
    example="""
    >>> import attnlaw
    >>> result = attnlaw.fit("examples/tiny-decoder", layers=0, only="qk")
    >>> result.fits["law"].to_list()
    ['heavy-tailed', 'heavy-tailed', 'heavy-tailed', 'heavy-tailed']
    """,
    examples={
        "attnlaw fit examples/tiny-decoder": "find the law that the spectrum of each matrix follows",
        "attnlaw fit examples/tiny-decoder --only qk --out laws": (
            "fit only the QK matrices and draw each spectrum with its law"
        ),
    },
)
