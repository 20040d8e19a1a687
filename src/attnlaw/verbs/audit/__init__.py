"""`attnlaw audit MODEL...`: problems of a checkpoint, its spectra, and which of them differ from random."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from attnlaw.analysis.audit import AuditOptions
from attnlaw.analysis.audit.kept_units import has_kept_units, remove_kept_units
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

    from attnlaw.analysis.audit.audit import Audit
    from attnlaw.analysis.audit.unfinished import UnfinishedAudit
    from attnlaw.core.result import Result


@settings_dataclass
class AuditSettings(ModelSettings):
    """Check a trained Transformer: look for problems, untrained weights, and unusual spectra.

    An audit reads only the weights. It needs no data, no GPU, and no PyTorch for safetensors. It looks for
    broken tensors, compares every weight matrix with random ones, and compares the model with other trained
    models. A LoRA adapter is audited alone, or added to its base model with --adapter. Generalization proxies
    (leading factors of bounds) need every matrix, so there are none with --layers, --only or --experts.
    """

    samples: int | None = setting(
        None,
        "Number of training samples n. Also shows the generalization proxy divided by √n, which is "
        "not a bound.",
        minimum=1,
    )
    approximate: bool = setting(
        False,
        "Estimate the singular values of matrices whose shorter side is at least 8192, and show the errors.",
        panel=OptionPanel.PRECISION,
    )
    precision: str = setting(
        STORAGE,
        "Precision of the computation: float64 only (double), or float32 for weights of at most 16 "
        "bits if exact enough (storage).",
        choices=PRECISIONS,
        panel=OptionPanel.PRECISION,
    )
    exact: bool = setting(
        False,
        "Add up every entry of large matrices for the (1,1) norm (default: a random sample of columns).",
        panel=OptionPanel.PRECISION,
    )
    as_stored: bool = setting(
        False,
        "Show the norms of the stored matrices, without the gain of the norm layer before each.",
        machine_only=True,
    )
    experts: int | None = setting(
        None,
        "Measure only the first N experts of each layer.",
        minimum=1,
        panel=OptionPanel.INPUT,
    )
    no_laws: bool = setting(
        False,
        "With --out: do not fit distributions (laws) to the spectra, which saves time.",
        machine_only=True,
    )

    @property
    def arithmetic(self) -> Arithmetic:
        return Arithmetic(self.approximate, self.precision, self.exact)

    @property
    def options(self) -> AuditOptions:
        return AuditOptions(self.samples, self.as_stored, no_laws=self.no_laws, experts=self.experts)


NOT_RANDOM = (
    Quantity("not_random_tested", "number of matrices that were tested against random ones", kind="int"),
    Quantity(
        "not_random_rejected",
        "number of matrices that do not look random (p-value at most 0.01)",
        kind="int",
        in_summary=True,
        display_name="matrices unlike random",
    ),
    Quantity(
        "not_random_expected",
        "number of matrices that would not look random by chance alone, if the model were untrained",
    ),
    Quantity(
        "not_random_p_value",
        "p-value: probability that at least as many matrices of an untrained model do not look random",
    ),
)
COMPARABLE_QUANTITIES = (
    Quantity(
        "rejected_share",
        "share of the tested weight matrices that do not look random",
        display_name="matrices unlike random",
    ),
    Quantity(
        "median_outliers",
        "number of singular values above those of a random matrix of the same shape (median over matrices)",
        display_name="strong directions",
    ),
    Quantity(
        "median_effective_rank_qk",
        "effective rank of a head's QK matrix: number of directions that it uses, including weak "
        "ones (median over heads)",
        display_name="QK effective rank",
    ),
    Quantity(
        "log10_amplification",
        "log10 of the largest factor by which layers 2 to L can amplify a change in the first "
        "layer's output (norm gains included if known)",
        display_name="amplification (log₁₀ α)",
    ),
)
FINDING_COUNTS = (
    Quantity(
        "findings_error",
        "number of findings of severity error: results are wrong or useless",
        kind="int",
        display_name="errors",
        in_summary=True,
    ),
    Quantity(
        "findings_warning",
        "number of findings of severity warning: look at these before you use the model",
        kind="int",
        display_name="warnings",
        in_summary=True,
    ),
    Quantity(
        "findings_note",
        "number of findings of severity note: worth knowing, and often intended",
        kind="int",
        display_name="notes",
        in_summary=True,
    ),
    Quantity("finding_rules", "number of checks for damage that attnlaw ran on the model", kind="int"),
)
LOGITS = (
    Quantity("logit_heads", "number of attention heads whose logits attnlaw tried to bound", kind="int"),
    Quantity(
        "logit_heads_bounded",
        "number of heads whose attention logits stay below a known bound for any input",
        kind="int",
    ),
    Quantity(
        "logit_heads_beyond_float8",
        "number of heads whose logit bound is above 448, the largest float8 E4M3 number",
        kind="int",
    ),
    Quantity(
        "logit_heads_beyond_float16",
        "number of heads whose logit bound is above 65504, the largest float16 number",
        kind="int",
    ),
    Quantity(
        "logit_unbounded",
        "attention blocks whose logits have no known upper bound, with the reason",
        kind="text",
    ),
)
QUANTITIES = (
    Quantity("family", "model family, such as gpt2", kind="text", in_summary=True),
    Quantity(
        "codes", "quantised formats in which the matrices are stored; empty if none is quantised", kind="text"
    ),
    Quantity(
        "depth",
        "number of layers; a layer that is used several times counts each time",
        "L",
        kind="int",
        in_summary=True,
    ),
    Quantity(
        "distinct_layers", "number of layers; a layer that is used several times counts once", kind="int"
    ),
    Quantity("hidden_size", "width of the layers (hidden size)", "N", kind="int", in_summary=True),
    Quantity("head_count", "number of attention heads in the first layer", kind="int"),
    Quantity(
        "matrix_count",
        "number of weight matrices that were measured; QK and VO of each head count as one matrix each",
        kind="int",
        in_summary=True,
    ),
    Quantity("activation", "activation function of the feed-forward blocks", kind="text"),
    *NOT_RANDOM,
    *COMPARABLE_QUANTITIES,
    *FINDING_COUNTS,
    *LOGITS,
    *(
        Quantity(
            f"log10_{name}",
            f"log10 of the generalization proxy: {bound.label}",
            display_name=bound.short,
            error=True,
            in_summary=bound.headline,
        )
        for name, bound in BOUNDS.items()
    ),
    *(
        Quantity(
            f"per_application_log10_{name}",
            f"log10 of the generalization proxy, in which a shared layer counts each time: {bound.label}",
            error=True,
        )
        for name, bound in BOUNDS.items()
    ),
    Quantity(
        "proxy_over_sqrt_samples_log10",
        "log10 of the spectrum-adaptive generalization proxy divided by the square root of the "
        "number of training samples",
        error=True,
    ),
    Quantity(
        "value_of_adaptivity",
        "how many times larger the generalization proxy is if all matrices must share one exponent p",
        error=True,
    ),
    Quantity(
        "rank_count",
        "whether the best exponent is p = 0 for every matrix, so that the generalization proxy only "
        "depends on ranks",
        kind="bool",
    ),
    Quantity(
        "norms",
        "norms in tables and charts: with the gain of the norm layer before (applied), or without (stored)",
        kind="text",
    ),
    Quantity(
        "norms_unknown",
        "kinds of matrices whose norms do not include a gain, because attnlaw does not know their norm layer",
        kind="texts",
        choices=KINDS,
    ),
    Quantity(
        "extensions",
        "features of the model that the theory of generalization proxies (arXiv 2605.07297) does not cover",
        kind="texts",
    ),
    Quantity("warnings", "warnings about the model and its file", kind="texts"),
    Quantity("meaning", "what the generalization proxies mean, and what they do not show", kind="text"),
)


def run(case: AuditSettings, progress: Progress, keeper: UnfinishedAudit | None = None) -> Audit:
    from attnlaw.analysis.audit.audit import audit

    return audit(case, case.options, case.arithmetic, progress, keeper)


def run_and_keep(case: AuditSettings, directory: Path, progress: Progress) -> Audit:
    from attnlaw.analysis.audit.unfinished import keep_units

    with keep_units(directory, case) as keeper:
        return run(case, progress, keeper)


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


KEEPER = PartKeeper(run_and_keep, has_kept_units, remove_kept_units)
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
