"""`attnlaw audit MODEL...`: spectra of a checkpoint, which of them differ from noise, and findings."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from attnlaw.analysis.audit import AuditOptions
from attnlaw.analysis.columns import APPLICATIONS, ATLAS, FINDINGS, LAYERS, MATRICES, SPECTRA, TOWERS
from attnlaw.analysis.fit import CURVES, FITS
from attnlaw.checkpoints.network import KINDS
from attnlaw.checkpoints.settings import (
    PRECISIONS,
    STORAGE,
    Arithmetic,
    ModelSettings,
    require_model_exists,
)
from attnlaw.core.progress import Progress
from attnlaw.core.quantity import Quantity, TableSpec
from attnlaw.core.settings import OptionPanel, setting, settings_dataclass
from attnlaw.core.verb import CaseSplit, PartKeeper, Verb, run_each_case
from attnlaw.theory.bounds import BOUNDS
from attnlaw.verbs.audit.split import UNIT, join_units, split_into_units

if TYPE_CHECKING:
    import polars as pl

    from attnlaw.analysis.audit.audit import Audit, Keeper
    from attnlaw.core.result import Result


@settings_dataclass
class AuditSettings(ModelSettings):
    """Audit a trained Transformer: what is wrong with it, what differs from noise, the spectra of its heads.

    Proxies need every matrix. If --layers or --only leave some out, there are no proxies. A LoRA adapter is
    audited by itself, or added to its base model with --adapter.
    """

    samples: int | None = setting(
        None,
        "Training samples n: show proxy / sqrt(n) too (not a bound by itself).",
        minimum=1,
    )
    approximate: bool = setting(
        False, "Estimate matrices of shorter side 8192 and more, with errors.", panel=OptionPanel.PRECISION
    )
    precision: str = setting(
        STORAGE,
        "Weights stored in 16 bits or less are factorised in float32 where storing took more (storage), or "
        "all in float64 (double).",
        choices=PRECISIONS,
        panel=OptionPanel.PRECISION,
    )
    exact: bool = setting(
        False,
        "(1,1) norms of large products from every entry, not from a sample of columns.",
        panel=OptionPanel.PRECISION,
    )
    as_stored: bool = setting(
        False,
        "Show norms as stored, without the gain of the norm before.",
        machine_only=True,
    )
    experts: int | None = setting(
        None,
        "Measure only this many experts of each layer, the first ones. There are no proxies then.",
        minimum=1,
    )
    no_laws: bool = setting(False, "With --out: leave the fitted laws out.", machine_only=True)

    @property
    def arithmetic(self) -> Arithmetic:
        return Arithmetic(self.approximate, self.precision, self.exact)

    @property
    def options(self) -> AuditOptions:
        return AuditOptions(self.samples, self.as_stored, no_laws=self.no_laws, experts=self.experts)


NOT_RANDOM = (
    Quantity("not_random_tested", "matrices compared with noise", kind="int"),
    Quantity(
        "not_random_rejected", "matrices that differ from noise at level 0.01", kind="int", in_summary=True
    ),
    Quantity("not_random_expected", "of these, expected in a freshly initialised model"),
    Quantity("not_random_p_value", "chance of so many or more in a freshly initialised model"),
)
COMPARABLE_QUANTITIES = (
    Quantity(
        "rejected_share", "of the matrices that were tested: differ from noise", display_name="unlike noise"
    ),
    Quantity(
        "median_outliers",
        "median over matrices of the singular values beyond the edge of the random null",
        display_name="values beyond the edge",
    ),
    Quantity(
        "median_effective_rank_qk",
        "median over heads of the effective rank of QK",
        display_name="effective rank of QK",
    ),
    Quantity(
        "log10_amplification",
        "amplification by all layers above the first, as applied where that is known",
        display_name="log₁₀ amplification",
    ),
)
FINDING_COUNTS = (
    Quantity("findings_error", "findings of level error", kind="int", display_name="errors", in_summary=True),
    Quantity(
        "findings_warning", "findings of level warning", kind="int", display_name="warnings", in_summary=True
    ),
    Quantity("findings_note", "findings of level note", kind="int", display_name="notes", in_summary=True),
    Quantity("finding_rules", "rules that looked for findings", kind="int"),
)
LOGITS = (
    Quantity("logit_heads", "heads of attention measured", kind="int"),
    Quantity("logit_heads_bounded", "heads whose logits are bounded for any input", kind="int"),
    Quantity("logit_heads_beyond_float8", "heads whose bound is above 448 (float8 E4M3)", kind="int"),
    Quantity("logit_heads_beyond_float16", "heads whose bound is above 65504 (float16)", kind="int"),
    Quantity("logit_unbounded", "blocks without a bound, and why", kind="text"),
)
QUANTITIES = (
    Quantity("family", "family of the model", kind="text", in_summary=True),
    Quantity("codes", "codes in which matrices are stored; missing if none is", kind="text"),
    Quantity("depth", "layers, each as often as it is applied", "L", kind="int", in_summary=True),
    Quantity("distinct_layers", "layers, shared ones once", kind="int"),
    Quantity("hidden_size", "width of the layers", "N", kind="int", in_summary=True),
    Quantity("head_count", "heads of the first layer", kind="int"),
    Quantity("matrix_count", "matrices measured", kind="int", in_summary=True),
    Quantity("activation", "of the feed-forward blocks", kind="text"),
    *NOT_RANDOM,
    *COMPARABLE_QUANTITIES,
    *FINDING_COUNTS,
    *LOGITS,
    *(
        Quantity(
            f"log10_{name}",
            f"log10 of the proxy: {bound.label}",
            display_name=bound.short,
            error=True,
            in_summary=bound.headline,
        )
        for name, bound in BOUNDS.items()
    ),
    *(
        Quantity(
            f"per_application_log10_{name}",
            f"the same with shared layers counted at each application: {bound.label}",
            error=True,
        )
        for name, bound in BOUNDS.items()
    ),
    Quantity(
        "proxy_over_sqrt_samples_log10", "log10 of the spectrum-adaptive proxy over sqrt(samples)", error=True
    ),
    Quantity("value_of_adaptivity", "what the best single p costs over the post hoc choice", error=True),
    Quantity("rank_count", "p = 0 won everywhere: the proxy only counts ranks", kind="bool"),
    Quantity("norms", "which norms tables and maps show: applied or stored", kind="text"),
    Quantity(
        "norms_unknown",
        "kinds of matrix whose norm before is not known: shown as stored",
        kind="texts",
        choices=KINDS,
    ),
    Quantity("extensions", "what goes beyond the setting that the bounds were stated for", kind="texts"),
    Quantity("warnings", "what to know about the model", kind="texts"),
    Quantity("meaning", "what proxies are", kind="text"),
)


def run(case: AuditSettings, progress: Progress, keeper: Keeper | None = None) -> Audit:
    from attnlaw.analysis.audit.audit import audit

    return audit(case, case.options, case.arithmetic, progress, keeper)


def run_and_keep(case: AuditSettings, directory: Path, progress: Progress) -> Audit:
    from attnlaw.analysis.audit.unfinished import keep_units

    with keep_units(directory, case) as keeper:
        return run(case, progress, keeper)


def _has_kept_units(directory: Path) -> bool:
    from attnlaw.analysis.audit.unfinished import has_kept_units

    return has_kept_units(directory)


def _remove_kept_units(directory: Path) -> None:
    from attnlaw.analysis.audit.unfinished import remove_kept_units

    remove_kept_units(directory)


def _atlas_table(audit: Audit) -> pl.DataFrame | None:
    from attnlaw.analysis.atlas.atlas import load_atlas
    from attnlaw.analysis.atlas.compare import comparison_table

    return comparison_table(audit, load_atlas())


def _fitted(table: str) -> Callable[[Audit, Progress], pl.DataFrame | None]:
    def make(audit: Audit, progress: Progress) -> pl.DataFrame | None:
        return getattr(audit.fits(progress), table) if audit.fits_laws else None

    return make


def _growth(result: Result) -> dict[str, Any]:
    from attnlaw.analysis.audit.growth import growth_summary

    return growth_summary(result)


def _summary(result: Result) -> dict[str, Any]:
    from attnlaw.analysis.audit.summary import build_summary

    return build_summary(result)


KEEPER = PartKeeper(run_and_keep, _has_kept_units, _remove_kept_units)
VERB = Verb(
    "audit",
    "Spectral audit",
    AuditSettings,
    QUANTITIES,
    run_each_case(run),
    tables=(
        TableSpec("findings", FINDINGS, json=True),
        TableSpec("matrices", MATRICES),
        TableSpec("spectra", SPECTRA),
        TableSpec("layers", LAYERS),
        TableSpec("applications", APPLICATIONS),
        TableSpec("towers", TOWERS),
        TableSpec("atlas", ATLAS, _atlas_table),
        TableSpec("fits", FITS, on_save=_fitted("matrices")),
        TableSpec("curves", CURVES, on_save=_fitted("curves")),
    ),
    charts=(
        "proxies",
        "growth",
        "amplification",
        "shares",
        "comparison",
        "decay",
        "contributions",
        "balance",
        "heads",
        "laws",
    ),
    precheck=require_model_exists,
    split=CaseSplit(UNIT, split_into_units, join_units, "matrices", KEEPER),
    summary=_summary,
    joint_summary=_growth,
    example="""
    >>> import attnlaw
    >>> result = attnlaw.audit("examples/tiny-decoder", only="qk")
    >>> result.matrix_count, result.matrices["layer"].n_unique()
    (16, 4)
    """,
    examples={
        "attnlaw audit examples/tiny-decoder": "find out whether anything is wrong with a checkpoint",
        "attnlaw audit examples/tiny-decoder --out results": (
            "write an interactive report to results/report.html"
        ),
    },
)
