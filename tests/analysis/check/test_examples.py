"""The rule files that come with attnlaw, on pairs of checkpoints whose difference is known."""

from __future__ import annotations

from pathlib import Path

import pytest
from analysis.check.pairs import absmax, changed, low_rank, read, to_bfloat16, write
from command.in_process import invoke
from real_checkpoints import real_checkpoint

import attnlaw
from attnlaw.analysis.check.rule_file import EXAMPLES, example_names
from attnlaw.analysis.check.verdicts import Verdicts

TINY = Path("examples/tiny-decoder").resolve()


def failed(verdicts: Verdicts) -> dict[str, int]:
    """How many rows of each rule do not hold, where the rule fails."""
    return {rule.rule: len(rule.failures) for rule in verdicts.failed_rules}


def matrices(state, *parts: str) -> set[str]:
    """The names of matrices inside the layers, with one of these parts in them."""
    inside = [name for name, array in state.items() if (array.ndim == 2 and ".layer" in name) or "h." in name]
    return {
        name
        for name in inside
        if state[name].ndim == 2 and (not parts or any(part in name for part in parts))
    }


def check(folder: Path, state, base: Path, rules: str) -> Verdicts:
    return attnlaw.check(write(state, base, folder), base=str(base), rules=rules, jobs=1).record


def test_every_example_is_on_the_page():
    page = Path("docs/commands/check.md").read_text(encoding="utf-8")
    for name in example_names():
        assert f"| `{name}` |" in page
        assert (EXAMPLES / f"{name}.toml").read_text().startswith("# ")


@pytest.mark.slow
def test_an_export_of_the_small_decoder(tmp_path):
    state = read(TINY)
    assert failed(check(tmp_path / "half", changed(state, to_bfloat16), TINY, "export")) == {}
    assert (
        failed(check(tmp_path / "int4", changed(state, absmax(4, 32), matrices(state)), TINY, "export")) == {}
    )
    name = sorted(matrices(state))[3]
    moved = check(
        tmp_path / "one", changed(state, lambda _, matrix: matrix * (1 + 1e-4), {name}), TINY, "export"
    )
    assert failed(moved) == {"nothing but rounding": 1}
    assert moved.failed_rules[0].failures[0].location == {"tensor": name}


@pytest.mark.slow
def test_a_fine_tune_of_the_small_decoder(tmp_path):
    state = read(TINY)
    near = write(changed(state, low_rank(2, 0.01), matrices(state)), TINY, tmp_path / "near")
    shown = invoke("check", near, "--base", TINY, "--rules", "fine-tune", "--jobs", 1).stdout
    assert "checks; all 2 rules hold)." in shown
    far = write(changed(state, low_rank(2, 0.6), matrices(state)), TINY, tmp_path / "far")
    shown = invoke("check", far, "--base", TINY, "--rules", "fine-tune", "--jobs", 1, status=3).stdout
    assert "checks; 2 of 2 rules failed)." in shown


RXN = "rxnfp-pretrained"


@pytest.fixture(scope="module", name="pretrained")
def _pretrained():
    base = real_checkpoint(RXN)
    return base, read(base)


@pytest.mark.long
@pytest.mark.parametrize(
    ("tuned", "rows"),
    [("rxnfp-finetuned", {"near the base": 82, "no intruders": 40}), ("rxnfp-10k", {"no intruders": 3})],
)
def test_fine_tuned_models(tuned, rows):
    verdicts = attnlaw.check(
        real_checkpoint(tuned), base=str(real_checkpoint(RXN)), rules="fine-tune", jobs=1
    )
    assert failed(verdicts.record) == rows


@pytest.mark.long
def test_an_adapter_is_near_its_base(tmp_path, pretrained):
    base, state = pretrained
    adapted = changed(state, low_rank(4, 0.02), matrices(state, "query", "value"))
    assert failed(check(tmp_path / "adapted", adapted, base, "fine-tune")) == {}


@pytest.mark.long
@pytest.mark.parametrize(
    ("change", "rows"),
    [
        (to_bfloat16, {}),
        (absmax(8, None), {}),
        (absmax(4, 32), {}),
        (absmax(4, 128), {"precision": 18}),
        (absmax(3, 32), {"precision": 72}),
    ],
    ids=["bfloat16", "int8-row", "int4-32", "int4-128", "int3-32"],
)
def test_exports_of_a_real_model(tmp_path, pretrained, change, rows):
    base, state = pretrained
    names = None if change is to_bfloat16 else matrices(state)
    assert failed(check(tmp_path / "export", changed(state, change, names), base, "export")) == rows


@pytest.mark.long
def test_what_is_more_than_an_export(tmp_path, pretrained):
    base, state = pretrained
    adapted = changed(state, low_rank(4, 0.02), matrices(state, "query", "value"))
    halves = check(tmp_path / "adapted", changed(adapted, to_bfloat16), base, "export")
    assert failed(halves) == {"nothing but rounding": 24}
    tuned = attnlaw.check(real_checkpoint("rxnfp-finetuned"), base=str(base), rules="export", jobs=1).record
    dense = [
        failure for failure in tuned.failed_rules[0].failures if failure.location["tensor"] in matrices(state)
    ]
    assert len(dense) == 72
