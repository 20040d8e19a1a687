"""`attnlaw check MODEL --rules FILE`: rules over the numbers of a checkpoint, and an exit status."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from attnlaw.auditing.quantities import FITS, LAYERS, MATRICES
from attnlaw.base.declare import Progress, Verb, each
from attnlaw.base.quantity import Table
from attnlaw.base.settings import setting, settings
from attnlaw.comparing.quantities import DIFF, DIFF_TENSORS
from attnlaw.gating.levels import FAIL_ON
from attnlaw.gating.quantities import FINDINGS, QUANTITIES, VERDICTS
from attnlaw.gating.tensors import TENSORS
from attnlaw.models.settings import ModelSettings, model_setting, require_there
from attnlaw.verbs.audit import QUANTITIES as SUMMARY

if TYPE_CHECKING:
    from attnlaw.gating.rules import RuleFile
    from attnlaw.gating.verdicts import Verdicts

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


@settings
class CheckSettings(ModelSettings):
    """Judge a checkpoint: findings by level, and rules over the numbers of its audit and its diff.

    Exit status 0: passed; 1: something could not be read; 2: bad usage or rule file; 3: the gate failed.
    """

    model: Any = model_setting(None)
    rules: str | None = setting(
        None,
        "Rule file, or the name of one that comes with attnlaw; findings alone unless given.",
        file=True,
        metavar="FILE.toml",
        panel=GATE,
    )
    base: Any = setting(
        None,
        "Checkpoint that rules of diff compare with; that of the rule file unless given.",
        file=True,
        metavar="BASE",
        panel=GATE,
    )
    baseline: str | None = setting(
        None,
        "Directory of audit --out or diff --out: its findings are known, its rows are old.",
        file=True,
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


def asked_of(case: CheckSettings) -> RuleFile:
    """The rule file of a case with what the case itself says; what it lacks is told in one line."""
    from attnlaw.auditing.findings import RULES
    from attnlaw.gating.rule_file import BadUsage, read_rules
    from attnlaw.gating.rules import BASELINE, RuleFile

    if case.model is None:
        raise BadUsage("MODEL is missing; give a checkpoint, or a rule to --explain")
    asked = RuleFile() if case.rules is None else read_rules(case.rules, TABLES, RULES)
    given = {"fail_on": case.fail_on, "base": case.base}
    asked = replace(asked, **{name: value for name, value in given.items() if value is not None})
    for rule in asked.of("diff", "diff_tensors"):
        if asked.base is None:
            raise BadUsage(f"{case.rules}: rule {rule.name!r}: of {rule.of} needs a base; give --base MODEL")
    for rule in asked.against(BASELINE):
        if case.baseline is None:
            raise BadUsage(f"{case.rules}: rule {rule.name!r}: against needs a baseline; give --baseline DIR")
    return asked


def refuse(case: CheckSettings) -> None:
    """An `InputError` for what cannot work, before anything is measured."""
    from attnlaw.gating.baseline import Baseline

    asked = asked_of(case)
    require_there(case)
    if isinstance(asked.base, str):
        require_there(ModelSettings.of({"model": asked.base}, "check"))
    if case.baseline is not None:
        Baseline(Path(case.baseline)).known()


def run(case: CheckSettings, progress: Progress) -> Verdicts:
    from attnlaw.auditing.findings import RULES
    from attnlaw.gating.judge import judge
    from attnlaw.gating.location import model_file
    from attnlaw.gating.measured import Measured

    asked = asked_of(case)
    model = Measured(case, asked.base, TABLES, asked.thresholds or {}, case.approximate, progress)
    found = judge(
        asked,
        case.title,
        model_file(case.model),
        TABLES,
        model.rows,
        model.findings,
        RULES,
        case.baseline,
    )
    return replace(found, summary=VERB.json(case, found))


VERB = Verb(
    "check",
    "Gate",
    CheckSettings,
    QUANTITIES,
    each(run),
    tables=(
        Table("verdicts", VERDICTS, lambda found: found.rule_table(), json=True),
        Table("findings", FINDINGS, lambda found: found.finding_table(), json=True),
    ),
    refuse=refuse,
)
