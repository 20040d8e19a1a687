"""`attnlaw check MODEL --rules FILE`: decide whether a checkpoint may pass."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from attnlaw.analysis.check.columns import FINDINGS, QUANTITIES, TENSORS, VERDICT_VALUES, VERDICTS
from attnlaw.analysis.check.rules import FAIL_ON
from attnlaw.analysis.columns import LAYERS, MATRICES
from attnlaw.analysis.diff.columns import DIFF, DIFF_TENSORS
from attnlaw.analysis.fit import FITS
from attnlaw.checkpoints.settings import MACHINE, ModelSettings, model_setting
from attnlaw.core.progress import Progress
from attnlaw.core.quantity import TableSpec
from attnlaw.core.settings import setting, settings_dataclass
from attnlaw.core.verb import Verb, run_each_case
from attnlaw.verbs.audit import QUANTITIES as SUMMARY

if TYPE_CHECKING:
    from attnlaw.verbs.check.reports import CheckVerdicts

GATE = "Gate"
_path_setting = partial(setting, None, is_path=True, panel=GATE)
# The tables that rules may use.
TABLES = {
    "matrices": MATRICES,
    "layers": LAYERS,
    "fits": FITS,
    "summary": SUMMARY,
    "tensors": TENSORS,
    "diff": DIFF,
    "diff_tensors": DIFF_TENSORS,
}


@settings_dataclass
class CheckSettings(ModelSettings):
    """Check whether a checkpoint is damaged or breaks your rules, and fail if it is or does.

    Without rules, the check fails if attnlaw finds a problem of severity error. Rules compare numbers of an
    audit, a fit or a diff with limits. The exit status is 0 if the model passed, 3 if it failed, 1 if
    something could not be read, and 2 if the command or the rule file is wrong.
    """

    model: Any = model_setting(None)
    rules: str | None = _path_setting(
        help="Rule file, or one that comes with attnlaw: export, fine-tune or release (watchdog is for "
        "training). By default there are no rules.",
        metavar="FILE.toml",
    )
    base: Any = _path_setting(
        help="Checkpoint that rules about a diff compare the model with. By default, the base in the rule "
        "file.",
        metavar="BASE",
    )
    baseline: str | None = _path_setting(
        help="Earlier result (directory of audit --out or diff --out). Its findings do not count again, "
        "and rules can "
        "limit changes since then.",
        metavar="DIR",
    )
    fail_on: str | None = setting(
        None,
        "Lowest severity of a finding or failed rule that fails the check (default: the level in the "
        "rule file, or error).",
        choices=dict.fromkeys(FAIL_ON),
        panel=GATE,
    )
    approximate: bool = setting(
        False,
        "Estimate the singular values of matrices whose shorter side is at least 8192, and show the errors.",
        panel=MACHINE,
    )


def precheck(case: CheckSettings) -> None:
    from attnlaw.verbs.check.gate import require_valid

    require_valid(case)


def run(case: CheckSettings, progress: Progress) -> CheckVerdicts:
    from attnlaw.verbs.check.gate import check_model

    return check_model(case, progress)


VERB = Verb(
    "check",
    "Gate",
    CheckSettings,
    QUANTITIES,
    run_each_case(run),
    tables=(
        TableSpec("verdicts", VERDICTS, lambda verdicts: verdicts.rule_table(), json=True),
        TableSpec("findings", FINDINGS, lambda verdicts: verdicts.finding_table(), json=True),
        TableSpec("verdict_values", VERDICT_VALUES, lambda verdicts: verdicts.value_table()),
    ),
    precheck=precheck,
    example="""
    >>> import attnlaw
    >>> attnlaw.check("examples/tiny-decoder").passed
    True
    """,
    examples={
        "attnlaw check examples/tiny-decoder": "exit with status 3 if the checkpoint has an error",
        "attnlaw check tuned --rules fine-tune --base base": (
            "also apply the rules for fine-tunes that come with attnlaw"
        ),
    },
)
