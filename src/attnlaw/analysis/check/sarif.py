"""Verdicts as SARIF 2.1.0 (OASIS): one result for each row that fails and for each finding.

A result keeps its identity from run to run by its rule and its place (`partialFingerprints`), whatever its
value. Locations are the model's file, line 1, relative to the working directory; the place inside the model
is a logical location.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from attnlaw import __version__
from attnlaw.analysis.check.files import relative_uri
from attnlaw.analysis.check.levels import OFF
from attnlaw.analysis.check.locations import Place, fingerprint, row_place_text
from attnlaw.analysis.check.verdicts import FailedRow, GateFinding, Verdict, Verdicts
from attnlaw.core.errors import printable
from attnlaw.core.files import to_json

SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"
FINGERPRINT = "attnlawRuleAndPlace/v1"


def sarif(models: Sequence[Verdicts]) -> str:
    """The JSON text: one run with the rules and the results of all models."""
    rules: dict[str, dict[str, Any]] = {}
    for model in models:
        rules |= {rule["id"]: rule for rule in _rules(model)}
    order = {name: place for place, name in enumerate(rules)}
    results = [
        {"ruleIndex": order[result["ruleId"]], **result} for model in models for result in _results(model)
    ]
    driver = {"name": "attnlaw", "semanticVersion": _semantic(__version__), "rules": list(rules.values())}
    run = {"tool": {"driver": driver}, "columnKind": "unicodeCodePoints", "results": results}
    return to_json({"$schema": SCHEMA, "version": "2.1.0", "runs": [run]}, ascii_only=True) + "\n"


def _semantic(version: str) -> str:
    """The version in the writing of semantic versions: 0.2.0.dev0 is 0.2.0-dev0."""
    return ".".join(version.split(".")[:3]) + "".join(f"-{part}" for part in version.split(".")[3:])


def _rules(verdicts: Verdicts) -> Iterator[dict[str, Any]]:
    for rule in verdicts.rules:
        if rule.level != OFF:
            yield _rule(rule.rule, rule.level, rule.asked)
    levels = {finding.rule: finding.level for finding in verdicts.findings}
    for name, finding_rule in verdicts.rules_for_findings.items():
        yield _rule(name, levels.get(name, finding_rule.level), finding_rule.meaning)


def _rule(name: str, level: str, text: str) -> dict[str, Any]:
    return {
        "id": printable(name),
        "shortDescription": {"text": printable(text)},
        "defaultConfiguration": {"level": level},
    }


def _results(verdicts: Verdicts) -> Iterator[dict[str, Any]]:
    for rule in verdicts.failed_rules:
        for failure in _failures(rule):
            message = f"{failure}, asked for {rule.asked}" if rule.failures else str(rule)
            yield _result(verdicts, rule.rule, rule.level, message, failure.place)
    for finding in verdicts.findings:
        yield _result(verdicts, finding.rule, finding.level, str(finding), finding.place) | _state(
            verdicts, finding
        )


def _failures(rule: Verdict) -> Sequence[FailedRow]:
    """What a rule fails for, the model itself where no row does."""
    return rule.failures or (FailedRow({}),)


def _state(verdicts: Verdicts, finding: GateFinding) -> dict[str, str]:
    if verdicts.baseline is None:
        return {}
    return {"baselineState": "unchanged" if finding.known else "new"}


def _result(verdicts: Verdicts, rule: str, level: str, text: str, place: Place) -> dict[str, Any]:
    physical = {
        "artifactLocation": {"uri": relative_uri(verdicts.location)},
        "region": {"startLine": 1},
    }
    logical = {
        "fullyQualifiedName": row_place_text(place),
        "kind": "tensor" if "tensor" in place else "module",
    }
    return {
        "ruleId": printable(rule),
        "level": level,
        "message": {"text": printable(text)},
        "locations": [{"physicalLocation": physical, "logicalLocations": [logical]}],
        "partialFingerprints": {FINGERPRINT: fingerprint(rule, place)},
    }
