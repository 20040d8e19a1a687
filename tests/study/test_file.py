"""Study files: expansion, seeds, paths, and one clear line for whatever is wrong."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from study.sample_verbs import VERBS

from attnlaw.base.errors import InputError
from attnlaw.study import Study, Verb, read_study
from attnlaw.study.verbs import VERBS as REAL


def study(folder: Path, text: str, verbs: dict[str, Verb] | None = None) -> Study:
    file = folder / "study.toml"
    file.write_text(text)
    return read_study(file, VERBS if verbs is None else verbs)


def test_a_grid_is_a_product_with_the_last_key_fastest(tmp_path: Path) -> None:
    found = study(
        tmp_path,
        'verb = "learn"\n[fixed]\noutput = "linear"\nnoise = 0.5\n'
        "[grid]\nalpha = [0.1, 0.2, 0.3]\ntarget_rank = [0.3, 0.5]\n[run]\nseed = 0\nseeds = 3\n",
        REAL,
    )
    points = [(task.columns["alpha"], task.columns["target_rank"]) for task in found.tasks]
    assert points == [(a, r) for a in (0.1, 0.2, 0.3) for r in (0.3, 0.5)]
    assert {task.columns["noise"] for task in found.tasks} == {0.5}
    assert all(task.seed is None for task in found.tasks)  # learn draws nothing: seeds do not multiply it


def test_explicit_cases_are_crossed_with_the_grid(tmp_path: Path) -> None:
    text = 'verb = "square"\n[[list]]\nseconds = 1\n[[list]]\nseconds = 2\n[grid]\nx = [5, 7]\n'
    found = study(tmp_path, text)
    assert [(t.columns["seconds"], t.columns["x"]) for t in found.tasks] == [(1, 5), (1, 7), (2, 5), (2, 7)]
    alone = study(tmp_path, 'verb = "square"\n[[list]]\nx = 1\n[[list]]\nx = 2\nseconds = 3\n')
    assert [t.columns["seconds"] for t in alone.tasks] == [0.0, 3.0]


def test_a_span_has_both_ends(tmp_path: Path) -> None:
    found = study(tmp_path, 'verb = "square"\n[grid]\nx = "0.05:1:40"\n')
    assert [task.columns["x"] for task in found.tasks] == np.linspace(0.05, 1, 40).tolist()
    whole = study(tmp_path, 'verb = "torn"\n[fixed]\nx = 1\n[grid]\nat = "1:4:4"\n')
    assert [task.columns["at"] for task in whole.tasks] == [1, 2, 3, 4]
    assert isinstance(whole.tasks[0].columns["at"], int)


def test_equal_tasks_are_one(tmp_path: Path) -> None:
    assert len(study(tmp_path, 'verb = "square"\n[grid]\nx = [1, 1.0, 2]\n').tasks) == 2


def test_values_at_the_end_of_the_first_axis_leave_earlier_tasks_as_they_are(tmp_path: Path) -> None:
    """The first axis varies slowest; seeds come by position."""

    def keys(width: str, depth: str) -> set[str]:
        text = f'verb = "limit"\n[grid]\nwidth = [{width}]\ndepth = [{depth}]\n'
        return {task.key for task in study(tmp_path, text, REAL).tasks}

    before = keys("16, 32", "1, 2")
    assert before < keys("16, 32, 64", "1, 2")
    assert len(before & keys("16, 32", "1, 2, 3")) == 2  # those of the first width alone
    assert len(before & keys("8, 16, 32", "1, 2")) == 0


def test_seeds_multiply_verbs_that_draw_and_come_by_position(tmp_path: Path) -> None:
    text = 'verb = "draw"\n[grid]\nx = [{}]\n[run]\nseed = 5\nseeds = {}\n'
    few = study(tmp_path, text.format("1, 2", 2)).tasks
    more = study(tmp_path, text.format("1, 2, 3", 3)).tasks
    children = np.random.SeedSequence(5).spawn(2)
    expected = [
        int(grandchild.generate_state(1, np.uint64)[0]) >> 11 for c in children for grandchild in c.spawn(2)
    ]
    assert [task.seed for task in few] == expected
    assert len({task.key for task in more}) == 9
    assert {task.key for task in few} <= {task.key for task in more}  # what was there before stays
    other = study(tmp_path, text.format("1, 2", 2).replace("seed = 5", "seed = 6")).tasks
    assert not {task.seed for task in few} & {task.seed for task in other}


def test_keys_tell_apart_function_arguments_seed_and_version(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (task,) = study(tmp_path, 'verb = "square"\n[fixed]\nx = 1\n').tasks
    same = study(tmp_path, 'verb = "square"\n[fixed]\nseconds = 0\nx = 1.0\n').tasks[0]
    others = [
        study(tmp_path, 'verb = "square"\n[fixed]\nx = 2\n').tasks[0],
        study(tmp_path, 'verb = "poisoned"\n[fixed]\nx = 1\n').tasks[0],
        study(tmp_path, 'verb = "draw"\n[fixed]\nx = 1\n').tasks[0],
    ]
    assert same.key == task.key  # a default that is written out changes nothing
    monkeypatch.setattr("attnlaw.study.task.__version__", "9.9.9")
    others.append(study(tmp_path, 'verb = "square"\n[fixed]\nx = 1\n').tasks[0])
    assert len({task.key, *(other.key for other in others)}) == 5


def test_models_are_paths_patterns_or_hub_ids(tmp_path: Path) -> None:
    for name in ("b", "a"):
        (tmp_path / "models" / name).mkdir(parents=True)
    text = 'verb = "audit"\n[grid]\nmodel = ["models/*", "models/b", "org/name"]\n'
    models = [task.columns["model"] for task in study(tmp_path, text, REAL).tasks]
    assert models == [str(tmp_path / "models/a"), str(tmp_path / "models/b"), "org/name"]
    one = study(tmp_path, f'verb = "audit"\n[grid]\nmodel = "{tmp_path}/mod*/[a]"\n', REAL)
    assert [task.columns["model"] for task in one.tasks] == [str(tmp_path / "models/a")]


def test_several_verbs_share_the_cases(tmp_path: Path) -> None:
    text = 'verb = ["square", "poisoned"]\n[fixed]\nseconds = 0.5\n[grid]\nx = [1, 2]\n'
    found = study(tmp_path, text)
    assert [(t.verb, t.columns["x"]) for t in found.tasks] == [
        ("square", 1),
        ("square", 2),
        ("poisoned", 1),
        ("poisoned", 2),
    ]


def test_a_case_may_be_a_grid_with_a_verb_of_its_own(tmp_path: Path) -> None:
    text = """
    verb = "square"
    [fixed]
    how = "well"      # of poisoned alone
    [[list]]
    x = "1:3:3"
    [[list]]
    verb = "poisoned"
    x = [7, 8]
    at = 1
    """
    found = study(tmp_path, text)
    assert [(t.verb, t.columns["x"]) for t in found.tasks] == [
        ("square", 1),
        ("square", 2),
        ("square", 3),
        ("poisoned", 7),
        ("poisoned", 8),
    ]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("verb = ", "not valid TOML"),
        ("", "verb: found None, expected one of audit"),
        ('verb = "teach"', "verb: found 'teach', expected one of audit"),
        ('verb = "learn"\n[girds]\nalpha = [1]', "unknown key girds"),
        (
            'verb = "learn"\n[grid]\nalhpa = [0.1]',
            "[grid]: alhpa is not an argument of learn; did you mean alpha?",
        ),
        ('verb = "learn"\n[grid]\nalpha = []', "[grid] alpha: found [], expected a list of values"),
        ('verb = "learn"\n[grid]\nalpha = 0.1', "[grid] alpha: found 0.1, expected a list of values"),
        ('verb = "learn"\n[grid]\nalpha = "0.1:1"', "[grid] alpha: found '0.1:1', expected FROM:TO:COUNT"),
        ('verb = "learn"\n[grid]\nalpha = ["x"]', "[grid]: alpha: found 'x', expected a number"),
        ('verb = "learn"\n[grid]\nalpha = [true]', "alpha: found True, expected a number"),
        ('verb = "learn"\n[grid]\nalpha = [nan]', "alpha: found nan, expected a number"),
        ('verb = "learn"\n[fixed]\ntokens = 1.5', "[fixed]: tokens: found 1.5, expected a whole number"),
        ('verb = "learn"\n[fixed]\nalpha = [1, 2]', "[fixed] alpha: found [1, 2], expected one value"),
        ('verb = "learn"\n[fixed]\nalpha = 1\n[grid]\nalpha = [1]', "[grid] alpha: already given above"),
        ('verb = "learn"\nlist = 3', "list: found 3, expected tables [[list]]"),
        ('verb = "learn"\ngrid = 3', "grid: found 3, expected a table [grid]"),
        ('verb = "learn"\n[run]\nseeds = 0', "[run] seeds: found 0, expected a whole number from 1 on"),
        ('verb = "learn"\n[run]\nseed = -1', "[run] seed: found -1"),
        ('verb = "learn"\n[run]\nspeed = 1', "[run] has no speed; expected seed, seeds, time_limit, retries"),
        ('verb = "learn"\n[run]\ntime_limit = 0', "[run] time_limit: found 0, expected seconds above 0"),
        ('verb = "learn.simulate"', "simulate is missing; add it to [fixed], [grid] or [[list]]"),
        ('verb = "audit"\n[grid]\nmodel = ["*.none"]', "model: '*.none' matches nothing; paths start at"),
        (
            'verb = "limit"\n[grid]\nheads = "1:9999:9999"\ntokens = "1:9999:9999"',
            "cases, expected at most 1000000",
        ),
    ],
)
def test_bad_files_are_told_in_one_line(tmp_path: Path, text: str, expected: str) -> None:
    with pytest.raises(InputError) as caught:
        study(tmp_path, text, REAL)
    message = str(caught.value)
    assert message.startswith(str(tmp_path / "study.toml"))
    assert expected in message
    assert "\n" not in message


def test_a_missing_file_is_told(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot be read"):
        read_study(tmp_path / "none.toml", VERBS)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('verb = "learn"\n[grid]\nalpha = [0.2, -1]', "alpha: found -1"),
        ('verb = "learn"\n[fixed]\nstudent = "keen"', "student: found 'keen'"),
        ('verb = "learn.simulate"\n[fixed]\nsimulate = 11', "size 11 times target rank 0.5"),
        ('verb = "learn.simulate"\n[fixed]\nsimulate = 10\nsensing = "none"', "sensing: found 'none'"),
        ('verb = "limit"\n[fixed]\ntoken = 5', "token: found 5"),
        ('verb = "limit"\n[fixed]\nmask = "mask"', "mask 'mask' is unknown"),
        ('verb = "limit"\n[fixed]\ndraws = 0', "draws: found 0"),
        ('verb = "limit"\n[fixed]\ntokens = 20000\nwidth = 8', "more than 4 GiB of memory"),
        ('verb = "limit"\n[fixed]\nactivation = "relu"\nwidth = 1e9', "about 120 GiB of memory"),
        ('verb = "limit"\n[fixed]\ndraws = 39', "draws: found 39, expected at least 40"),
    ],
)
def test_arguments_that_cannot_work_are_told_before_the_run(tmp_path: Path, text: str, expected: str) -> None:
    found = study(tmp_path, text, REAL)
    with pytest.raises(InputError) as caught:
        found.check(list(found.tasks))
    assert expected in str(caught.value)
    assert str(caught.value).startswith(str(tmp_path / "study.toml"))
