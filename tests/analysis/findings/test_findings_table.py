"""The table of rules on trained and damaged models, printed: false findings, and damages that are found.

python -m pytest -m long -s tests/analysis/findings/test_findings_table.py
"""

from __future__ import annotations

import sys
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest
from analysis.findings.damages import DAMAGES, Weights
from analysis.findings.trained import FAMILIES, trained
from real_checkpoints import NAMES, audited, real_checkpoint

import attnlaw
from attnlaw.analysis.audit.audit import model_findings
from attnlaw.analysis.findings.apply import run_detectors
from attnlaw.analysis.findings.detectors import DETECTORS
from attnlaw.analysis.findings.evidence import Evidence, Subject
from attnlaw.checkpoints.model import Model
from attnlaw.checkpoints.open import open_model
from attnlaw.checkpoints.tensors import InMemoryTensors

pytestmark = pytest.mark.long

# What is found in models that are sound, and believed: heads as good as noise, ranks short of one, a code.
BELIEVED = {
    "minilm": {"random-head": 2},
    "rxnmapper": {"random-head": 1},
    "whisper-tiny.en": {"rank-deficient": 2},
    "smollm2": {"quantised": 2},
}
LOCATIONS = "damages found, at layers 0, 3, 7, 11 of rxnfp and 0, 2, 5 of MiniLM"
UNTRAINED = {"untrained-model", "untrained-layer", "random-head"}
LAYERS = {"rxnfp-pretrained": (0, 3, 7, 11), "minilm": (0, 2, 5)}
# Damages that a rule sees at least so often, of seven; all seven unless stated.
LEAST = {
    ("query x 10", "norm-outlier"): 3,
    ("transposed Q", "transposed"): 7,
    ("transposed K", "transposed"): 6,
    ("transposed V", "transposed"): 2,
    ("transposed O", "transposed"): 4,
}


@cache
def opened(name: str) -> Model:
    return open_model(real_checkpoint(name))


def counts(of: Any) -> Counter[str]:
    return Counter(finding.rule for finding in model_findings(of))


@pytest.fixture(scope="module", name="printed")
def _printed() -> Iterator[dict[str, list[str]]]:
    lines: dict[str, list[str]] = defaultdict(list)
    yield lines
    for title, section in lines.items():
        sys.stdout.write("\n".join([f"\n{title}", *(f"  {line}" for line in section), ""]))


def format_counts(rule_counts: Counter[str]) -> str:
    return ", ".join(f"{rule} {count}" for rule, count in sorted(rule_counts.items())) or "nothing"


@pytest.mark.parametrize("name", NAMES)
def test_trained_models_are_sound(name: str, printed: dict[str, list[str]]) -> None:
    audit = audited(name)
    rule_counts = counts(audit)
    printed["found in trained models"].append(
        f"{name}, {audit.matrices.height} maps: {format_counts(rule_counts)}"
    )
    assert rule_counts == BELIEVED.get(name, {})


def test_the_example_is_sound(request: pytest.FixtureRequest, printed: dict[str, list[str]]) -> None:
    audit = attnlaw.audit(request.config.rootpath / "examples/tiny-decoder", jobs=1)
    printed["found in trained models"].append(
        f"tiny-decoder, {audit.matrices.height} maps: {format_counts(counts(audit))}"
    )
    assert not counts(audit)


@pytest.mark.parametrize("damage", DAMAGES)
def test_damages_are_found(damage: str, printed: dict[str, list[str]]) -> None:
    seen: Counter[str] = Counter()
    cases = [(name, layer) for name, layers in LAYERS.items() for layer in layers]
    strangers: Counter[str] = Counter()
    for name, layer in cases:
        findings = model_findings(DAMAGES[damage](opened(name), layer))
        # Of two layers that are the same the later one is told.
        told_at = {1, layer} if damage == "a duplicated layer" else {layer}
        told_at = {None} if DAMAGES[damage].whole else told_at
        seen.update({finding.rule for finding in findings if finding.location.layer in told_at})
        elsewhere = Counter(finding.rule for finding in findings if finding.location.layer not in told_at)
        strangers.update(elsewhere - Counter(BELIEVED.get(name, {})))
    hits = ", ".join(f"{rule} {seen[rule]}/{len(cases)}" for rule in DAMAGES[damage].rules)
    beside = f"; in other layers: {format_counts(strangers)}" if strangers else ""
    printed["damages found, at layers 0, 3, 7, 11 of rxnfp and 0, 2, 5 of MiniLM"].append(
        f"{damage}: {hits}{beside}"
    )
    for rule in DAMAGES[damage].rules:
        assert seen[rule] >= LEAST.get((damage, rule), len(cases))


@pytest.mark.parametrize("factor", [10.0, 4.0, 3.0])
def test_wrong_scales_are_found(factor: float, printed: dict[str, list[str]]) -> None:
    """A tensor times a factor moves one ratio by it, which is all that the rule sees."""
    hits = cases = 0
    for name in ("rxnfp-pretrained", "rxnfp-finetuned", "minilm", "whisper-tiny.en", "smollm2"):
        subject = audited(name).record.subject
        for number, original in enumerate(subject.evidence.balances):
            for moved in (original.ratio * factor, original.ratio / factor):
                balance = list(subject.evidence.balances)
                balance[number] = replace(original, ratio=moved)
                findings = run_detectors(Subject(Evidence(balances=tuple(balance)), subject.matrices.clear()))
                hits += any(other.location == original.location for other in findings)
                cases += 1
    printed["tensors with a wrong scale"].append(f"x {factor:g}: unbalanced {hits}/{cases}")
    assert hits >= {10.0: 1.0, 4.0: 0.95, 3.0: 0.3}[factor] * cases


def fresh(kind: str, seed: int) -> Any:
    """rxnfp with the weights of a fresh BERT."""
    model, rng = opened("rxnfp-pretrained"), np.random.default_rng([seed, len(kind)])
    tensors = Weights(model).tensors
    for name, stored in tensors.items():
        if stored.ndim == 2:
            bound = {"xavier": (6 / sum(stored.shape)) ** 0.5, "torch": stored.shape[1] ** -0.5}
            drawn = (
                0.02 * rng.standard_normal(stored.shape)
                if kind == "normal"
                else rng.uniform(-bound[kind], bound[kind], stored.shape)
            )
            tensors[name] = drawn.astype(np.float32)
    return replace(model, tensors=InMemoryTensors(tensors))


@pytest.mark.parametrize("kind", ["normal", "xavier", "torch"])
def test_fresh_models_are_untrained_and_nothing_else(kind: str, printed: dict[str, list[str]]) -> None:
    untrained = 0
    for seed in range(4):
        rule_counts = counts(fresh(kind, seed))
        printed["found in fresh BERTs"].append(f"{kind}, seed {seed}: {format_counts(rule_counts)}")
        untrained += rule_counts["untrained-model"]
        assert rule_counts["untrained-layer"] == 12
        assert set(rule_counts) <= UNTRAINED
    # The null is of Gaussian entries: uniform ones differ from it a little more often than its level says.
    assert untrained >= (4 if kind == "normal" else 3)


@pytest.mark.parametrize("family", FAMILIES)
def test_other_families(family: str, printed: dict[str, list[str]]) -> None:
    """Small models of families that no threshold was chosen by: trained, fresh, and damaged."""
    before, after = trained(family)
    printed["other families"].append(f"{family}, trained: {format_counts(counts(after))}")
    printed["other families"].append(f"{family}, fresh: {format_counts(counts(before))}")
    grave = {"note"}
    assert {finding.level for finding in model_findings(after)} <= grave
    assert counts(before)["untrained-model"] == 1
    assert {finding.rule for finding in model_findings(before)} <= {
        "untrained-model",
        "untrained-layer",
        "random-head",
    }
    model = open_model(after)
    for damage in ("a NaN", "a tensor of zeros", "a copied head", "a re-initialised layer", "FFN in x 10"):
        rule_counts = counts(DAMAGES[damage](model, 2))
        rules = [rule for rule in DAMAGES[damage].rules if rule in DETECTORS and rule != "norm-outlier"]
        printed["other families"].append(f"{family}, {damage}: {format_counts(rule_counts)}")
        assert all(rule_counts[rule] for rule in rules)
