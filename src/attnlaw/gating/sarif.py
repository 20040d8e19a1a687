"""Verdicts as SARIF 2.1.0 (OASIS): one result for each row that fails and for each finding.

A result keeps its identity from run to run by its rule and its place (`partialFingerprints`), whatever its
value. Locations are the model's file, line 1, relative to the working directory; the place inside the model
is a logical location.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from attnlaw import __version__
from attnlaw.base.errors import printable
from attnlaw.base.files import to_json
from attnlaw.gating.levels import OFF
from attnlaw.gating.location import relative_uri
from attnlaw.gating.places import Place, fingerprint, place_text
from attnlaw.gating.verdicts import Failure, Found, Verdict, Verdicts

SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"
FINGERPRINT = "attnlawRuleAndPlace/v1"


def sarif(models: Sequence[Verdicts]) -> str:
    """The JSON text: one run with the rules and the results of all models."""
    rules: dict[str, dict[str, Any]] = {}
    for one in models:
        rules |= {rule["id"]: rule for rule in _rules(one)}
    order = {name: place for place, name in enumerate(rules)}
    results = [{"ruleIndex": order[result["ruleId"]], **result} for one in models for result in _results(one)]
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
    levels = {one.rule: one.level for one in verdicts.findings}
    for name, one in verdicts.looked_for.items():
        yield _rule(name, levels.get(name, one.level), one.meaning)


def _rule(name: str, level: str, text: str) -> dict[str, Any]:
    return {
        "id": printable(name),
        "shortDescription": {"text": printable(text)},
        "defaultConfiguration": {"level": level},
    }


def _results(verdicts: Verdicts) -> Iterator[dict[str, Any]]:
    for rule in verdicts.failed_rules:
        for failure in _failures(rule):
            told = f"{failure}, asked for {rule.asked}" if rule.failures else str(rule)
            yield _result(verdicts, rule.rule, rule.level, told, failure.place)
    for one in verdicts.findings:
        yield _result(verdicts, one.rule, one.level, str(one), one.place) | _state(verdicts, one)


def _failures(rule: Verdict) -> Sequence[Failure]:
    """What a rule fails for, the model itself where no row does."""
    return rule.failures or (Failure({}),)


def _state(verdicts: Verdicts, finding: Found) -> dict[str, str]:
    if verdicts.known_of is None:
        return {}
    return {"baselineState": "unchanged" if finding.known else "new"}


def _result(verdicts: Verdicts, rule: str, level: str, text: str, place: Place) -> dict[str, Any]:
    physical = {
        "artifactLocation": {"uri": relative_uri(verdicts.location)},
        "region": {"startLine": 1},
    }
    logical = {"fullyQualifiedName": place_text(place), "kind": "tensor" if "tensor" in place else "module"}
    return {
        "ruleId": printable(rule),
        "level": level,
        "message": {"text": printable(text)},
        "locations": [{"physicalLocation": physical, "logicalLocations": [logical]}],
        "partialFingerprints": {FINGERPRINT: fingerprint(rule, place)},
    }
