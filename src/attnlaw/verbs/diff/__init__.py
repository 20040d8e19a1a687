"""`attnlaw diff BASE MODEL...`: compare checkpoints with their base, tensor by tensor and head by head."""

from __future__ import annotations

import os
from dataclasses import MISSING, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from attnlaw.analysis.diff.columns import DIFF, DIFF_SPECTRA, DIFF_TENSORS, MODEL_VERDICTS, TENSOR_VERDICTS
from attnlaw.checkpoints.network import KINDS, LAYER_GROUPS
from attnlaw.checkpoints.settings import CHECKPOINT, ModelSettings, require_model_exists
from attnlaw.core.errors import printable
from attnlaw.core.progress import Progress
from attnlaw.core.quantity import Quantity, TableSpec
from attnlaw.core.settings import Settings, setting, settings_dataclass
from attnlaw.core.verb import Verb, run_each_case

if TYPE_CHECKING:
    from attnlaw.analysis.diff.diff import Diff
    from attnlaw.core.result import Result

COMPARED = "Comparison"


@settings_dataclass
class BaseModelSettings(Settings):
    """The base model that other models are compared with. The command names the base model first."""

    base: Any = setting(
        MISSING,
        "Checkpoint to compare with: the model before training, quantising or merging.",
        is_path=True,
        positional=True,
        metavar="BASE",
        panel=CHECKPOINT,
    )


@settings_dataclass
class DiffSettings(ModelSettings, BaseModelSettings):
    """Compare checkpoints with their base: what changed, where, how much, and what it looks like.

    Each tensor gets a verdict, such as identical, rounded to bfloat16, low-rank (an adapter), dense (full
    fine-tuning), rescaled, or moved from another layer. Each head and feed-forward matrix gets the size and
    the rank of its change, and the number of its new directions. If you give a LoRA adapter in place of a
    model, attnlaw adds it to the base.
    """

    applied: bool = setting(
        False,
        "Include the gain of the norm layer before each matrix (default: compare the matrices as stored).",
        panel=COMPARED,
    )
    no_match: bool = setting(
        False, "Do not check whether heads or neurons are in another order than in the base.", panel=COMPARED
    )

    def to_row(self) -> dict[str, Any]:
        """Return the settings for a row. If the base is an object in memory, the name of its type is used."""
        name = os.fspath(self.base) if isinstance(self.base, str | os.PathLike) else type(self.base).__name__
        return super().to_row() | {"base": name}


# What JSON has about each tensor that is not identical.
LISTED = (
    *("tensor", "verdict", "rank", "rank_low", "rank_high", "directions", "size", "update_size"),
    *("update_size_most", "hidden", "roundings", "format", "factor", "factor_low", "factor_high", "along"),
    *("source", "then"),
)
LAYER_KINDS = [KINDS[name] for group in LAYER_GROUPS.values() for name in group]
QUANTITIES = (
    Quantity("verdict", "summary of what changed between the checkpoints, in a few sentences", kind="text"),
    Quantity(
        "compared",
        "sentence that says how many tensors were compared and how many were not",
        kind="text",
    ),
    Quantity("next_step", "what the changes probably mean, and what to do next", kind="text"),
    Quantity(
        "verdicts", "all different verdicts on the model and on its tensors, such as low-rank", kind="texts"
    ),
    Quantity(
        "map_count", "number of heads (QK, VO) and feed-forward matrices that were compared", kind="int"
    ),
    Quantity("tensor_count", "number of stored tensors that were compared", kind="int"),
    Quantity("not_compared", "names of the tensors that were not compared", kind="texts"),
    *(
        Quantity(
            verdict.column,
            f"number of tensors with the verdict {verdict.name}: {verdict.says}",
            kind="int",
            display_name=verdict.name,
        )
        for verdict in TENSOR_VERDICTS.values()
    ),
    *(
        Quantity(
            f"size_{kind.name}",
            f"median size of the change of {kind.label} matrices, |model − base| / |base|",
            display_name=kind.label,
        )
        for kind in LAYER_KINDS
    ),
    *(
        Quantity(
            f"scale_{kind.name}",
            f"median factor by which {kind.label} matrices grew; below 1 means that they shrank",
        )
        for kind in LAYER_KINDS
    ),
    Quantity(
        "largest_size",
        "largest change of a head or feed-forward matrix relative to the base, |model − base| / |base|",
        in_summary=True,
    ),
    Quantity("worst_map", "head or feed-forward matrix that changed most", kind="text", in_summary=True),
    Quantity("worst_tensor", "stored tensor that changed most", kind="text"),
    Quantity(
        "worst_tensor_size", "largest change of a stored tensor relative to the base, |model − base| / |base|"
    ),
    Quantity(
        "least_sqnr_db",
        "lowest signal-to-noise ratio of a tensor in dB, if its change is noise: −20 log₁₀ of the "
        "relative change",
    ),
    Quantity(
        "intruders",
        "number of the model's leading directions that resemble no single direction of the base "
        "(cosine below 1/2)",
        kind="int",
    ),
    Quantity(
        "new",
        "number of the model's leading directions that are not combinations of similarly strong base "
        "directions",
        kind="int",
        in_summary=True,
    ),
)


def _require_both(case: DiffSettings) -> None:
    require_model_exists(case)
    require_model_exists(replace(case, model=case.base))


def run(case: DiffSettings, progress: Progress) -> Diff:
    from attnlaw.analysis.diff.diff import diff

    return diff(case.base, case, not case.no_match, case.applied, progress)


def build_summary(result: Result) -> dict[str, Any]:
    """Return the part of summary.json that no other verb has, for a result with one model."""
    row = result.row()
    maps = result.tables["diff"]
    sizes = {
        kind.name: maps.filter(kind=kind.name)["size"].drop_nulls() for kind in KINDS.values() if kind.group
    }
    return {
        "base": row["base"],
        "model": printable(row["model"]),
        "sentence": row["verdict"],
        "compared": row["compared"],
        "next_step": row["next_step"],
        "not_compared": list(row["not_compared"]),
        "verdicts": {
            verdict.name: row[verdict.column] for verdict in TENSOR_VERDICTS.values() if row[verdict.column]
        },
        "model_verdicts": [name for name in row["verdicts"] if name in MODEL_VERDICTS],
        "median_size": {name: float(np.median(known)) for name, known in sizes.items() if len(known)},
        "worst_map": {"place": row["worst_map"], "size": row["largest_size"]},
        "worst_tensor": {"tensor": row["worst_tensor"], "size": row["worst_tensor_size"]},
        "tensors": [
            {name: line[name] for name in LISTED}
            for line in result.tables["diff_tensors"].iter_rows(named=True)
            if line["verdict"] != "identical"
        ],
    }


VERB = Verb(
    "diff",
    "Comparison",
    DiffSettings,
    QUANTITIES,
    run_each_case(run),
    tables=(
        TableSpec("diff", DIFF, lambda comparison: comparison.maps),
        TableSpec("diff_tensors", DIFF_TENSORS, lambda comparison: comparison.tensors),
        TableSpec("diff_spectra", DIFF_SPECTRA, lambda comparison: comparison.spectra),
    ),
    charts=("worst_update", "sizes", "heads_size", "heads_rank", "heads_z"),
    precheck=_require_both,
    summary=build_summary,
    example="""
    >>> import attnlaw
    >>> model = "examples/tiny-decoder"
    >>> attnlaw.diff(model, model, only="qk").verdict
    'Identical: the 8 compared tensors are equal.'
    """,
    examples={
        "attnlaw diff base tuned": "find out what a fine-tune changed",
        "attnlaw diff base tuned --only qk,vo --out changes": (
            "compare only the attention, and write a report"
        ),
    },
)
