"""The typed Python API: the stub follows the declarations, type checkers find mistakes, `help` explains."""

from __future__ import annotations

import doctest
import importlib.util
import inspect
import os
import pydoc
import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

import attnlaw
from attnlaw.core.settings import setting_fields
from attnlaw.verbs import VERBS

ROOT = Path(__file__).resolve().parents[2]
RIGHT = """
import numpy as np

import attnlaw
from attnlaw import Estimate, InputError

result = attnlaw.learn(alpha=[0.1, 0.2], student="direct", noise=0.5)
error: Estimate | None = result[0].estimation_error
audit = attnlaw.audit("model", only="qk")
names: list[str] = audit.matrices.columns
tested: int | None = audit.not_random_tested
shapes = audit.record.matrices.shape
try:
    attnlaw.check("model", fail_on="error").passed
except InputError as problem:
    print(problem)
print(attnlaw.load("results").matrices)
print(attnlaw.learn(alpha=np.linspace(0.1, 0.5, 3)), attnlaw.learn(alpha="0.1:0.5:3"))
print(attnlaw.limit(width=range(4, 8)))
print(attnlaw.audit("first", "second", layers=[0, 1]), attnlaw.audit(model="first", layers=slice(0, 2)))
"""
WRONG = {
    "attnlaw.lern(alpha=1)": 'Module has no attribute "lern"',
    "attnlaw.learn(alhpa=1)": 'Unexpected keyword argument "alhpa" for "learn"',
    "attnlaw.learn(alpha=None)": 'Argument "alpha" to "learn" has incompatible type "None"',
    "attnlaw.audit()": 'Missing positional argument "model" in call to "audit"',
    "attnlaw.learn(alpha=1).estimated_error": '"LearnResult" has no attribute "estimated_error"',
    'attnlaw.learn(student="factorised")': 'Argument "student" to "learn" has incompatible type',
}


@pytest.fixture(scope="module")
def writer() -> ModuleType:
    spec = importlib.util.spec_from_file_location("stub", ROOT / "tools" / "stub.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_stub_is_what_the_declarations_say(writer: ModuleType) -> None:
    assert writer.PATH.read_text(encoding="utf-8") == writer.stub(), "run `make stub`"


def letters(text: str) -> str:
    """The letters of a text. Help spells `--target-rank` as `target_rank`."""
    return "".join(filter(str.isalnum, text))


@pytest.mark.parametrize("name", VERBS)
def test_help_has_summary_arguments_result_and_example(name: str) -> None:
    function = getattr(attnlaw, name)
    text = pydoc.render_doc(function, renderer=pydoc.plaintext)
    assert f"{name}(" in text
    assert "Verb" not in text
    joined = " ".join(text.split())
    for part in ("Args:", "Returns:", "Example:", ">>> import attnlaw"):
        assert part in text
    for setting, field in setting_fields(function.verb.settings).items():
        assert re.search(rf" {setting} \(.+?\): \S", joined), setting
        assert setting in inspect.signature(function).parameters
        assert letters(field.rule.help) in letters(text)


@pytest.mark.slow
@pytest.mark.parametrize("name", VERBS)
def test_the_example_in_help_runs(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    example = doctest.DocTestParser().get_doctest(getattr(attnlaw, name).__doc__, {}, name, None, 0)
    assert example.examples
    runner = doctest.DocTestRunner()
    runner.run(example)
    assert runner.failures == 0


@pytest.mark.slow
def test_a_type_checker_finds_mistakes_and_accepts_what_is_right(tmp_path: Path) -> None:
    (tmp_path / "right.py").write_text(RIGHT, encoding="utf-8")
    (tmp_path / "wrong.py").write_text("\n".join(["import attnlaw", *WRONG, ""]), encoding="utf-8")
    words = ["--strict", "--no-error-summary", "--hide-error-context", "--cache-dir", str(tmp_path / "cache")]
    done = subprocess.run(
        [sys.executable, "-m", "mypy", *words, "right.py", "wrong.py"],
        cwd=tmp_path,
        env=os.environ | {"MYPYPATH": str(ROOT / "src")},
        capture_output=True,
        text=True,
    )
    lines = [line for line in done.stdout.splitlines() if ": error:" in line]
    assert not [line for line in lines if line.startswith("right.py")], done.stdout
    for number, (call, message) in enumerate(WRONG.items(), start=2):
        assert any(line.startswith(f"wrong.py:{number}:") and message in line for line in lines), (
            call,
            lines,
        )
    assert len({line.split(":")[1] for line in lines if line.startswith("wrong.py")}) == len(WRONG)
