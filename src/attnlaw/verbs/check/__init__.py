"""`attnlaw check MODEL --rules FILE`: rules over the numbers of a checkpoint, and an exit status."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from attnlaw.analysis.check.columns import FINDINGS, QUANTITIES, TENSORS, VERDICT_VALUES, VERDICTS
from attnlaw.analysis.check.levels import FAIL_ON
from attnlaw.analysis.columns import LAYERS, MATRICES
from attnlaw.analysis.diff.columns import DIFF, DIFF_TENSORS
from attnlaw.analysis.fit import FITS
from attnlaw.checkpoints.settings import ModelSettings, model_setting, require_model_exists
from attnlaw.core.progress import Progress
from attnlaw.core.quantity import TableSpec
from attnlaw.core.settings import setting, settings_dataclass
from attnlaw.core.verb import Verb, run_each_case
from attnlaw.verbs.audit import QUANTITIES as SUMMARY

if TYPE_CHECKING:
    from attnlaw.analysis.check.rules import RuleFile
    from attnlaw.analysis.check.tables import Baseline
    from attnlaw.analysis.check.verdicts import Verdicts

GATE = "Gate"
# The tables that rules may be about.
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
    """Judge a checkpoint: findings by level, and rules over the numbers of its audit and its diff.

    Exit status 0: passed; 1: something could not be read; 2: bad usage or rule file; 3: the gate failed.
    """

    model: Any = model_setting(None)
    rules: str | None = setting(
        None,
        "Rule file, or the name of one that comes with attnlaw; findings alone unless given.",
        is_path=True,
        metavar="FILE.toml",
        panel=GATE,
    )
    base: Any = setting(
        None,
        "Checkpoint that rules of diff compare with; that of the rule file unless given.",
        is_path=True,
        metavar="BASE",
        panel=GATE,
    )
    baseline: str | None = setting(
        None,
        "Directory of audit --out or diff --out: its findings are known, its rows are old.",
        is_path=True,
        metavar="DIR",
        panel=GATE,
    )
    fail_on: str | None = setting(
        None,
        "Least level that fails the gate; that of the rule file, or error, unless given.",
        choices=dict.fromkeys(FAIL_ON),
        panel=GATE,
    )
    approximate: bool = setting(
        False, "Estimate matrices of shorter side 8192 and more, with errors.", panel=GATE
    )


def effective_rules(case: CheckSettings) -> RuleFile:
    """The rule file of a case with what the case itself says; what it lacks is told in one line."""
    from attnlaw.analysis.check.rule_file import BadUsage, read_rules
    from attnlaw.analysis.check.rules import BASELINE, RuleFile
    from attnlaw.analysis.findings import RULES

    if case.model is None:
        raise BadUsage("MODEL is missing; give a checkpoint, or a rule to --explain")
    asked = RuleFile() if case.rules is None else read_rules(case.rules, TABLES, RULES)
    given = {"fail_on": case.fail_on, "base": case.base}
    asked = replace(asked, **{name: value for name, value in given.items() if value is not None})
    for rule in asked.active_rules("diff", "diff_tensors"):
        if asked.base is None:
            raise BadUsage(f"{case.rules}: rule {rule.name!r}: of {rule.of} needs a base; give --base MODEL")
    for rule in asked.rules_against(BASELINE):
        if case.baseline is None:
            raise BadUsage(f"{case.rules}: rule {rule.name!r}: against needs a baseline; give --baseline DIR")
    return asked


def precheck(case: CheckSettings) -> None:
    """An `InputError` for what cannot work, before anything is measured."""
    asked = effective_rules(case)
    require_model_exists(case)
    if isinstance(asked.base, str):
        require_model_exists(ModelSettings.parse({"model": asked.base}, "check"))
    if case.baseline is not None:
        _read_baseline(case.baseline).known_identities()


def _read_baseline(directory: str) -> Baseline:
    from attnlaw.analysis.check.tables import Baseline
    from attnlaw.verbs.views import load

    return Baseline(str(Path(directory)), load(directory))


def run(case: CheckSettings, progress: Progress) -> Verdicts:
    from attnlaw.analysis.check.evaluate import judge
    from attnlaw.analysis.check.locations import model_file
    from attnlaw.analysis.check.tables import RuleTables
    from attnlaw.analysis.findings import RULES

    asked = effective_rules(case)
    model = RuleTables(case, asked.base, TABLES, asked.thresholds or {}, case.approximate, progress)
    return judge(
        asked,
        case.title,
        model_file(case.model),
        TABLES,
        model.rows,
        model.findings,
        RULES,
        None if case.baseline is None else _read_baseline(case.baseline),
    )


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
)
