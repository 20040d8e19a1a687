"""The run of `attnlaw check`: read the rules, measure the model and judge it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from attnlaw.analysis.check.evaluate import judge
from attnlaw.analysis.check.locations import model_file
from attnlaw.analysis.check.rule_file import read_rules
from attnlaw.analysis.check.rules import BASELINE, OFF, RuleFile
from attnlaw.analysis.check.tables import Baseline, RuleTables
from attnlaw.analysis.findings.detectors import DETECTORS
from attnlaw.checkpoints.settings import ModelSettings, require_model_exists
from attnlaw.core.errors import BadSetting, BadUsage
from attnlaw.core.progress import Progress
from attnlaw.core.settings import IS_MISSING
from attnlaw.verbs.check import TABLES, CheckSettings
from attnlaw.verbs.check.reports import CheckVerdicts
from attnlaw.verbs.views import load


def require_valid(case: CheckSettings) -> None:
    """Raise an `InputError` for settings that cannot work together, before anything is measured."""
    rule_file = effective_rules(case)
    require_model_exists(case)
    if isinstance(rule_file.base, str):
        require_model_exists(ModelSettings.parse({"model": rule_file.base}, "check"))
    if case.baseline is not None:
        _read_baseline(case.baseline).known_identities()


def check_model(case: CheckSettings, progress: Progress) -> CheckVerdicts:
    """Measure the tables that the rules of a case need, and return the verdicts."""
    rule_file = effective_rules(case)
    tables = RuleTables(case, rule_file.base, TABLES, rule_file.thresholds or {}, case.approximate, progress)
    baseline = None if case.baseline is None else _read_baseline(case.baseline)
    names = case.title, model_file(case.model)
    verdicts = judge(
        rule_file, *names, TABLES, tables.rows, tables.findings, DETECTORS, baseline, tables.can_look
    )
    return CheckVerdicts(**vars(verdicts))


def effective_rules(case: CheckSettings) -> RuleFile:
    """Return the rules for a case, whose settings override those of the rule file."""
    if case.model is None:
        raise BadSetting("model", IS_MISSING)
    rule_file = RuleFile() if case.rules is None else read_rules(case.rules, TABLES, DETECTORS)
    given = {"fail_on": case.fail_on, "base": case.base}
    rule_file = replace(rule_file, **{name: value for name, value in given.items() if value is not None})
    active = [rule for rule in rule_file.rules if rule.level != OFF]
    for rule in active:
        if rule.of in ("diff", "diff_tensors") and rule_file.base is None:
            raise BadUsage(f"{case.rules}: rule {rule.name!r} compares with a base; add --base BASE")
    for rule in active:
        if rule.against == BASELINE and case.baseline is None:
            raise BadUsage(f"{case.rules}: rule {rule.name!r} compares with a baseline; add --baseline DIR")
    return rule_file


def _read_baseline(directory: str) -> Baseline:
    return Baseline(str(Path(directory)), load(directory))
