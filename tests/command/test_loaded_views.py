"""Terminal views need rows and tables alone: a loaded result prints what the result that was saved did."""

import io
from dataclasses import replace
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from rich.console import Console

import attnlaw
from attnlaw.core.errors import InputError
from attnlaw.core.result import Result
from attnlaw.verbs import find_verb
from attnlaw.verbs.views import show

ROOT = Path(__file__).parents[2]
TINY = str(ROOT / "examples" / "tiny-decoder")
GATE = str(ROOT / "tests" / "frozen" / "inputs" / "gate.toml")
TIMES = {"times": "0.1:0.5:2", "learning_rate": 0.1}

STATICS = pl.DataFrame({"samples": [1.0], "minimiser_error": [0.5], "bayes_error": [0.25], "case": [0]})


def learn(**more):
    noise = {"noise": [0.2, 0.3]}
    return replace(attnlaw.learn(**noise), simulation=find_verb("learn.simulate")(**noise, **more))


def dynamics():
    theory = attnlaw.dynamics(times=TIMES["times"], learning_rate=[0.1, 2.0])
    return replace(theory, simulation=find_verb("dynamics.simulate")(**TIMES, simulate=8, seeds=2))


def block():
    """The weights of a small block of attention."""
    entries = np.random.default_rng(0).standard_normal((64, 16))
    return {"in_proj_weight": entries[:48], "out_proj.weight": entries[48:]}


RESULTS = {
    "audit": lambda: attnlaw.audit([TINY, TINY], layers="0", only=("qk",)),
    "fit": lambda: attnlaw.fit([block(), block()], heads=2, only=("qk",)),
    "diff": lambda: attnlaw.diff(TINY, [TINY, TINY], only=("qk",)),
    "check": lambda: attnlaw.check(TINY, rules=GATE),
    "init": lambda: attnlaw.init(TINY, tokens=4, draws=2, width=["own", "inf"]),
    "learn": lambda: learn(simulate=12, seeds=1),
    "dynamics": dynamics,
    "attention": lambda: attnlaw.attention(tokens=40, beta=[0.5, 1.0], draws=2),
    "limit": lambda: attnlaw.limit(width=[16.0, float("inf")], draws=100),
    "lens": lambda: attnlaw.lens([TINY, TINY], ids=[1, 2, 3], entrywise=[1]),
    "margins": lambda: attnlaw.margins(
        [TINY, TINY], file=str(ROOT / "examples/sentences.txt"), limit=12, kappa=True, amplification=True
    ),
}


def printed(result, capsys, width):
    screen = io.StringIO()
    show(result, Console(width=width, file=screen, highlight=False))
    return screen.getvalue(), capsys.readouterr().err


def loaded(result, folder):
    for name, data in result.files().items():
        (folder / name).write_bytes(data)
    return attnlaw.load(folder)


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=pytest.mark.slow) if name in ("lens", "margins") else name for name in RESULTS],
)
def test_a_loaded_result_prints_the_same(name, tmp_path, capsys):
    result = RESULTS[name]()
    again = loaded(result, tmp_path)
    capsys.readouterr()
    for width in (50, 120):
        shown = printed(result, capsys, width)
        assert shown[0].strip()
        assert printed(again, capsys, width) == shown
    assert again.to_json() == result.to_json()


def test_a_setting_and_a_quantity_of_one_name_are_told_apart(tmp_path):
    result = attnlaw.check(TINY, rules=GATE)
    for summary in (result.summary, loaded(result, tmp_path).summary):
        assert (summary["settings"]["fail_on"], summary["quantities"]["fail_on"]) == (None, "error")


def test_a_case_that_failed_is_one_line(capsys):
    audit = attnlaw.audit(TINY, layers="0", only=("qk",))
    case = audit.verb.cases({"model": "absent"})[0]
    failed = Result.collect(audit.verb, [(case, InputError("absent: no such file"))])
    alone = printed(audit, capsys, 100)
    assert printed(failed + audit, capsys, 100) == (alone[0], "attnlaw: absent: no such file\n")
    assert printed(failed, capsys, 100) == ("", "attnlaw: absent: no such file\n")


def test_a_table_that_a_case_may_be_without_is_null_in_json():
    plain = attnlaw.dynamics(times="0.1:0.5:2")
    compared = replace(plain, tables={**plain.tables, "statics": STATICS})
    statics = [case["tables"]["statics"] for case in (plain + compared).to_json()]
    assert statics == [None, [{"samples": 1.0, "minimiser_error": 0.5, "bayes_error": 0.25}]]
