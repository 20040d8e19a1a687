"""A spectrum of one's own, from a file, a text and a study: the same as `Target.discrete`."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from command.in_process import invoke

import attnlaw
from attnlaw.core.errors import InputError
from attnlaw.study import read_study, run
from attnlaw.theory.learn.problem import Problem, Target
from attnlaw.theory.learn.state_evolution import state_evolution
from attnlaw.theory.learn.target import read_target

VALUES, WEIGHTS = (0.0, 0.4, 1.0, 2.2), (2.0, 1.0, 3.0, 2.0)
TEXT = "# a comment\n0 2\n0.4, 1\n\n1.0 3 # another\n2.2 2\n"


@pytest.fixture(name="file")
def _file(tmp_path: Path) -> Path:
    path = tmp_path / "spectrum.txt"
    path.write_text(TEXT)
    return path


def test_files_and_texts_are_the_same_target(file: Path, tmp_path: Path) -> None:
    expected = Target.discrete(VALUES, WEIGHTS)
    assert read_target(str(file)) == expected
    np.save(tmp_path / "pairs.npy", np.column_stack([VALUES, WEIGHTS]))
    assert read_target(str(tmp_path / "pairs.npy")) == expected
    each = np.repeat(VALUES, np.array(WEIGHTS, dtype=int))[::-1]
    np.save(tmp_path / "each.npy", each.astype(np.float32))
    target = read_target(str(tmp_path / "each.npy"))
    assert target.weights == expected.weights
    assert target.eigenvalues == pytest.approx(VALUES, rel=1e-7)
    assert read_target(",".join(map(str, each))) == expected


@pytest.mark.parametrize(
    "text", ["", "a\n", "1 2 3\n", "1\n2 3\n", "1 0\n", "1 -2\n", "-1\n", "0\n", "nan\n", "inf\n"]
)
def test_what_is_no_spectrum_is_told_in_a_line(text: str, tmp_path: Path) -> None:
    path = tmp_path / "bad.txt"
    path.write_text(text)
    with pytest.raises(InputError, match=r"bad\.txt: (not a spectrum|target eigenvalues: expected)"):
        read_target(str(path))


def test_a_pickle_is_not_read(tmp_path: Path) -> None:
    np.save(tmp_path / "bad.npy", np.array([{"a": 1}], dtype=object), allow_pickle=True)
    with pytest.raises(InputError, match=r"bad\.npy: not a spectrum"):
        read_target(str(tmp_path / "bad.npy"))
    with pytest.raises(InputError, match=r"none\.txt: no such file; give a file of eigenvalues"):
        read_target(str(tmp_path / "none.txt"))


def test_the_command_solves_the_problem_of_the_target(file: Path) -> None:
    problem = Problem(0.3, target=Target.discrete(VALUES, WEIGHTS), noise=0.5, weight_decay=0.2)
    expected = state_evolution(problem).estimation_error.value
    words = ("--alpha", 0.3, "--noise", 0.5, "--weight-decay", 0.2, "--json")
    case = json.loads(invoke("learn", "--target-eigenvalues", file, *words).stdout)
    assert case["quantities"]["estimation_error"]["value"] == expected
    assert (case["settings"]["target_eigenvalues"], case["settings"]["target_rank"]) == (str(file), None)
    spiked = attnlaw.learn(alpha=0.3, target_eigenvalues="0,1", target_spike=6.0)
    assert spiked.outlier is not None
    # Another target makes another case, also where cases are solved at once.
    both = attnlaw.learn(alpha=[0.3, 0.4], target_eigenvalues="0,1")
    assert both[0].estimation_error != both[1].estimation_error


def test_a_target_has_one_source(file: Path) -> None:
    for other in ("--target-rank", "--target-exponent"):
        ended = invoke("learn", "--target-eigenvalues", file, other, 0.7, status=2)
        assert "cannot be combined with --target-eigenvalues; choose one" in ended.stderr


def test_a_flow_of_the_target_starts_and_ends_where_it_must(file: Path) -> None:
    """Factors without decay end at S* itself: Tr S S*/d = Tr S*^2/d."""
    words = ("--target-eigenvalues", file, "--times", "0.01:4:9", "--json")
    quantities = json.loads(invoke("dynamics", *words).stdout)["quantities"]
    second = float(np.dot(WEIGHTS, np.square(VALUES)) / sum(WEIGHTS))
    assert quantities["overlap"]["value"] == pytest.approx(second, rel=2e-3)
    assert quantities["alignment"]["value"] == pytest.approx(1.0, abs=1e-3)


def test_a_study_finds_the_file_beside_itself(file: Path) -> None:
    study = file.parent / "s.toml"
    study.write_text(
        'verb = "learn"\n[fixed]\ntarget_eigenvalues = "spectrum.txt"\n[grid]\nalpha = [0.2, 0.3]\n'
    )
    tasks = read_study(study).tasks
    assert {task.case.target_eigenvalues for task in tasks} == {str(file)}
    assert run(read_study(study), file.parent / "out").done == 2
