"""The study verb `growth`: how proxies grow with depth and width over models that were audited before, such
as the 18 encoders of `family.parquet` that `docs/experiments/family` trained."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from attnlaw.core.errors import InputError
from attnlaw.core.estimate import Estimate
from attnlaw.core.progress import Progress
from attnlaw.core.quantity import Quantity, TableSpec
from attnlaw.core.settings import Settings, setting, settings_dataclass
from attnlaw.core.verb import Verb, run_each_case
from attnlaw.theory.bounds import BOUNDS

if TYPE_CHECKING:
    import polars as pl

FAMILY = Path(__file__).with_name("family.parquet")


@settings_dataclass
class GrowthSettings(Settings):
    """Fit how generalization proxies (leading factors of bounds) grow with the depth and width of models."""

    audits: str | None = setting(
        None,
        "A directory that `attnlaw audit A B C --out DIR` wrote (default: numbers of 18 trained "
        "encoders that come with attnlaw).",
        is_path=True,
        metavar="DIR",
    )


MODELS = (
    Quantity("model", "name of the model", kind="text"),
    Quantity("depth", "number of layers of the model", "L", kind="int"),
    Quantity("hidden_size", "width of the layers (hidden size)", "N", kind="int"),
    *(
        Quantity(f"log10_{name}", f"log10 of the generalization proxy: {bound.label}")
        for name, bound in BOUNDS.items()
    ),
)
QUANTITIES = (
    Quantity(
        "model_count", "number of models that the power laws are fitted to", kind="int", in_summary=True
    ),
    Quantity(
        "sentence",
        "sentence that says how the spectrum-adaptive and the norm-based proxies grow",
        kind="text",
    ),
    *(
        Quantity(
            f"{name}_{axis}",
            f"exponent of the power law with which a generalization proxy grows with {axis}: {bound.label}",
            display_name=f"{bound.short}, exponent of {axis}",
            error=True,
            in_summary=bound.headline,
        )
        for name, bound in BOUNDS.items()
        for axis in ("depth", "width")
    ),
)


@dataclass(frozen=True)
class FamilyGrowth:
    """The proxies of several models as rows, and the exponents with which they grow."""

    models: pl.DataFrame
    exponents: pl.DataFrame

    @property
    def quantities(self) -> dict[str, Any]:
        from attnlaw.analysis.audit.growth import growth_sentence

        values: dict[str, Any] = {
            "model_count": self.models.height,
            "sentence": growth_sentence(self.models, self.exponents),
        }
        for fit in self.exponents.iter_rows(named=True):
            for axis in ("depth", "width"):
                if fit[axis] is not None:
                    values[f"{fit['proxy']}_{axis}"] = Estimate(fit[axis], fit[f"{axis}_error"])
        return values


def run(case: GrowthSettings, progress: Progress) -> FamilyGrowth:
    from attnlaw.analysis.audit.growth import growth_reason, growth_table

    rows = _audited_rows(case.audits)
    reason = growth_reason(rows)
    if reason is not None:
        raise InputError(f"{case.audits}: {reason}")
    return FamilyGrowth(rows.select(quantity.name for quantity in MODELS), growth_table(rows))


def _audited_rows(directory: str | None) -> pl.DataFrame:
    import polars as pl

    from attnlaw.verbs.views import load

    if directory is None:
        return pl.read_parquet(FAMILY)
    result = load(directory)
    if result.verb.name != "audit":
        raise InputError(f"{directory}: holds a result of {result.verb.name}; expected one of audit")
    return result.finished_rows


VERB = Verb(
    "growth",
    "Growth of proxies with depth and width",
    GrowthSettings,
    QUANTITIES,
    run_each_case(run),
    tables=(TableSpec("models", MODELS),),
    charts=("growth",),
)
