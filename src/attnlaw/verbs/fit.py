"""`attnlaw fit MODEL...`: which law each matrix of a checkpoint follows."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from attnlaw.auditing.quantities import CURVES, FITS
from attnlaw.base.declare import Progress, Verb, each
from attnlaw.base.quantity import Quantity, Table
from attnlaw.base.settings import setting, settings
from attnlaw.fits import LAWS
from attnlaw.models.settings import ModelSettings, require_there
from attnlaw.verbs.audit import LAW_MAP, NOT_RANDOM

if TYPE_CHECKING:
    from attnlaw.auditing.fits import Fits


@settings
class FitSettings(ModelSettings):
    seed: int = setting(0, "Seed of the nulls and of the bootstrap.", least=0, panel="Fit")


FitSettings.__doc__ = "\n".join(
    [
        "Tell noise from what attention learns in theory, heavy tails, and neither, matrix by matrix.\n",
        *(f"{name}: {law.says}" for name, law in LAWS.items()),
    ]
)


def run(case: FitSettings, progress: Progress) -> Fits:
    from attnlaw.auditing.fits import fit

    return fit(case, case.seed, progress)


VERB = Verb(
    "fit",
    "Fitted laws",
    FitSettings,
    (
        Quantity("matrix_count", "matrices measured", kind="int", brief=True),
        *(
            Quantity(law.column, f"matrices that are {name}: {law.says}", kind="int", brief=True)
            for name, law in LAWS.items()
        ),
        *NOT_RANDOM,
    ),
    each(run),
    tables=(
        Table("fits", FITS, lambda found: found.matrices, json=True),
        Table("curves", CURVES, lambda found: found.curves),
    ),
    charts=(replace(LAW_MAP, on_page=True),),
    refuse=require_there,
)
