"""Study files: expansion, seeds, paths, and one clear line for whatever is wrong."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from study.sample_verbs import find, study

from attnlaw.core.errors import InputError
from attnlaw.study import read_study
from attnlaw.verbs import VERBS


def points(folder: Path, text: str, *names: str) -> list[tuple[object, ...]]:
    """The settings of all tasks of a study."""
    return [tuple(getattr(task.case, name) for name in names) for task in study(folder, text).tasks]


def models(folder: Path, pattern: str) -> list[str]:
    file = folder / "study.toml"
    file.write_text(f"verb = \"cut\"\n[grid]\nmodel = ['{pattern}']\n")
    return [task.case.model for task in read_study(file, find).tasks]  # type: ignore[attr-defined]


def test_a_grid_is_a_product_with_the_last_key_fastest(tmp_path: Path) -> None:
    text = 'verb = "square"\n[fixed]\nlog = "none"\n[grid]\nx = [1, 2]\nseconds = [0, 1]\n[run]\nseeds = 3\n'
    assert points(tmp_path, text, "x", "seconds", "log") == [(x, s, "none") for x in (1, 2) for s in (0, 1)]


def test_explicit_cases_are_crossed_with_the_grid(tmp_path: Path) -> None:
    text = 'verb = "square"\n[[list]]\nseconds = 1\n[[list]]\nseconds = 2\n[grid]\nx = [5, 7]\n'
    assert points(tmp_path, text, "seconds", "x") == [(1, 5), (1, 7), (2, 5), (2, 7)]
    alone = 'verb = "square"\n[[list]]\nx = 1\n[[list]]\nx = 2\nseconds = 3\n'
    assert points(tmp_path, alone, "seconds") == [(0.0,), (3.0,)]


def test_a_span_has_both_ends(tmp_path: Path) -> None:
    text = 'verb = "square"\n[grid]\nx = "0.05:1:40"\n'
    assert points(tmp_path, text, "x") == [(x,) for x in np.linspace(0.05, 1, 40).tolist()]
    whole = points(tmp_path, 'verb = "torn"\n[fixed]\nx = 1\n[grid]\nat = "1:4:4"\n', "at")
    assert whole == [(1,), (2,), (3,), (4,)]
    assert isinstance(whole[0][0], int)


def test_equal_tasks_are_one(tmp_path: Path) -> None:
    """Also those that differ in what plays no part."""
    assert len(study(tmp_path, 'verb = "square"\n[grid]\nx = [1, 1.0, 2]\n').tasks) == 2
    text = 'verb = "cut"\n[grid]\ntool = ["knife", "spoon"]\nedge = [1, 2]\n'
    assert points(tmp_path, text, "tool") == [("knife",), ("knife",), ("spoon",)]


def test_values_at_the_end_of_the_first_axis_leave_earlier_tasks_as_they_are(tmp_path: Path) -> None:
    """The first axis varies slowest; seeds come by position."""

    def keys(first: str) -> set[str]:
        return {task.key for task in study(tmp_path, f'verb = "draw"\n[grid]\nx = [{first}]\n').tasks}

    before = keys("16, 32")
    assert before < keys("16, 32, 64")
    assert len(before & keys("8, 16, 32")) == 0


def test_seeds_multiply_verbs_that_draw_and_come_by_position(tmp_path: Path) -> None:
    text = 'verb = "draw"\n[grid]\nx = [{}]\n[run]\nseed = 5\nseeds = {}\n'
    few = study(tmp_path, text.format("1, 2", 2)).tasks
    more = study(tmp_path, text.format("1, 2, 3", 3)).tasks
    children = np.random.SeedSequence(5).spawn(2)
    expected = [
        int(grandchild.generate_state(1, np.uint64)[0]) >> 11 for c in children for grandchild in c.spawn(2)
    ]
    assert [task.case.seed for task in few] == expected  # type: ignore[attr-defined]
    assert {(task.case.seeds, task.case.jobs) for task in few} == {(1, 1)}  # type: ignore[attr-defined]
    assert len({task.key for task in more}) == 9
    assert {task.key for task in few} <= {task.key for task in more}  # what was there before stays
    other = study(tmp_path, text.format("1, 2", 2).replace("seed = 5", "seed = 6")).tasks
    assert not {task.key for task in few} & {task.key for task in other}


def test_keys_tell_apart_verb_settings_seed_and_version(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (task,) = study(tmp_path, 'verb = "square"\n[fixed]\nx = 1\n').tasks
    same = study(tmp_path, 'verb = "square"\n[fixed]\nseconds = 0\nx = 1.0\n').tasks[0]
    others = [
        study(tmp_path, 'verb = "square"\n[fixed]\nx = 2\n').tasks[0],
        study(tmp_path, 'verb = "torn"\n[fixed]\nx = 1\n').tasks[0],
        study(tmp_path, 'verb = "draw"\n[fixed]\nx = 1\n').tasks[0],
        study(tmp_path, 'verb = "draw"\n[fixed]\nx = 1\n[run]\nseed = 1\n').tasks[0],
    ]
    assert same.key == task.key  # a default that is written out changes nothing
    keys = {task.key, *(other.key for other in others)}
    monkeypatch.setattr("attnlaw.study.task.__version__", "9.9.9")
    keys.add(study(tmp_path, 'verb = "square"\n[fixed]\nx = 1\n').tasks[0].key)
    assert len(keys) == 6


def test_several_verbs_share_the_cases(tmp_path: Path) -> None:
    """A fixed key may belong to another verb of the study alone."""
    text = 'verb = ["square", "poisoned"]\n[fixed]\nseconds = 0.5\n[grid]\nx = [1, 2]\n'
    pairs = [(task.verb.name, task.case.x) for task in study(tmp_path, text).tasks]  # type: ignore[attr-defined]
    assert pairs == [("square", 1), ("square", 2), ("poisoned", 1), ("poisoned", 2)]


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
    pairs = [(task.verb.name, task.case.x) for task in study(tmp_path, text).tasks]  # type: ignore[attr-defined]
    assert pairs == [("square", 1), ("square", 2), ("square", 3), ("poisoned", 7), ("poisoned", 8)]


def test_a_key_without_a_part_in_some_cases_is_null_in_their_rows(tmp_path: Path) -> None:
    def stated(text: str, *names: str) -> list[tuple[object, ...]]:
        cases = (task.case.to_row() for task in study(tmp_path, f'verb = "cut"\n{text}').tasks)
        return [tuple(case[name] for name in names) for case in cases]

    text = '[fixed]\nedge = 2\n[grid]\ntool = ["knife", "spoon"]\n'
    assert stated(text, "tool", "edge") == [("knife", 2.0), ("spoon", None)]
    text = "[fixed]\nthickness = 3\nplates = 4\n[[list]]\nslices = 5\n[[list]]\n"
    assert stated(text, "slices", "thickness", "plates") == [(5, None, 4), (None, 3.0, None)]


def test_a_setting_of_several_values_is_one_value_where_it_is_fixed(tmp_path: Path) -> None:
    assert points(tmp_path, 'verb = "cut"\n[fixed]\nonly = ["qk", "vo"]\n', "only") == [(("qk", "vo"),)]
    text = 'verb = "cut"\n[grid]\nonly = ["qk,vo", ["ffn"]]\n'
    assert points(tmp_path, text, "only") == [(("qk", "vo"),), (("ffn",),)]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("verb = ", "not valid TOML"),
        ("", "verb is missing; begin the file with a line such as"),
        ('verb = "teach"', "verb: 'teach' is not a verb; expected one of square"),
        ('verb = "square"\n[girds]\nx = [1]', "unknown key girds"),
        ('verb = "cut"\n[grid]\nedeg = [0.1]', "[grid] edeg is not a setting of cut; did you mean edge?"),
        ('verb = "square"\n[grid]\nx = []', "[grid] x: found [], expected a list of values"),
        ('verb = "square"\n[grid]\nx = 0.1', "[grid] x: found 0.1, expected a list of values"),
        ('verb = "square"\n[grid]\nx = "0.1:1"', "[grid] x: found '0.1:1', expected FROM:TO:COUNT"),
        ('verb = "square"\n[[list]]\nx = "1:0:3"', "[[list]] x: found '1:0:3', FROM must be smaller than TO"),
        ('verb = "square"\n[grid]\nx = ["y"]', "[grid] x: found 'y', expected a number"),
        ('verb = "square"\n[grid]\nx = [true]', "[grid] x: found True, expected a number"),
        ('verb = "square"\n[grid]\nx = [nan]', "[grid] x: found nan, expected a number"),
        ('verb = "cut"\n[grid]\nedge = [0.1, -0.2]', "[grid] edge: found -0.2, expected a number above 0"),
        ('verb = "cut"\n[fixed]\ntool = "fork"', "[fixed] tool: found 'fork', expected one of knife, spoon"),
        ('verb = "cut"\n[fixed]\nslices = 1.5', "[fixed] slices: found 1.5, expected a whole number"),
        ('verb = "cut"\n[fixed]\nedge = 2', "[fixed] edge needs tool knife"),
        ('verb = "cut"\n[fixed]\nplates = 2', "[fixed] plates needs slices"),
        (
            'verb = "cut"\n[fixed]\nslices = 2\n[grid]\nthickness = [1]',
            "[grid] thickness cannot be combined with slices; choose one",
        ),
        ('verb = "square"\n[fixed]\nx = [1, 2]', "[fixed] x: found [1, 2], expected one value; to vary this"),
        ('verb = "square"\n[fixed]\nx = 1\n[grid]\nx = [1]', "[grid] x: this key appears twice; keep"),
        (
            'verb = "draw"\n[fixed]\nx = 1\nseed = 3',
            "[fixed] seed: every task needs a different seed; set this key under [run]",
        ),
        ('verb = "draw"\n[fixed]\nx = 1\njobs = 3', "[fixed] jobs is not a setting of draw"),
        ('verb = "square"\nlist = 3', "list: found 3, expected tables [[list]]"),
        ('verb = "square"\ngrid = 3', "grid: found 3, expected a table [grid]"),
        ('verb = "square"\n[run]\nseeds = 0', "[run] seeds: found 0, expected a whole number of at least 1"),
        ('verb = "square"\n[run]\nseed = -1', "[run] seed: found -1"),
        (
            'verb = "square"\n[run]\nspeed = 1',
            "[run] speed is not a setting of this table; did you mean seed?",
        ),
        ('verb = "square"\n[run]\ntime_limit = 0', "[run] time_limit: found 0, expected a number above 0"),
        ('verb = "square"\n[run]\ntime_limit = 1e300', "[run] time_limit: found 1e+300, expected a number"),
        (f'verb = "square"\n[run]\nseed = 0x{"f" * 5000}', "an integer of more than 64 bits"),
        ('verb = "square"', "x is missing"),
        (
            'verb = "cut"\n[grid]\nmodel = ["*.none"]',
            "[grid] model: '*.none' matches no file; give a",
        ),
        (
            'verb = "torn"\n[grid]\nx = "1:9:9999"\nat = "1:9999:9999"',
            "tasks are too many, expected at most 1000000",
        ),
    ],
)
def test_bad_files_are_told_in_one_line(tmp_path: Path, text: str, expected: str) -> None:
    with pytest.raises(InputError) as caught:
        study(tmp_path, text)
    message = str(caught.value)
    assert message.startswith(f"{tmp_path / 'study.toml'}: ")
    assert expected in message
    assert "\n" not in message
    assert len(message) < 500


def test_a_missing_file_is_told(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"none\.toml: no such file; give a study file"):
        read_study(tmp_path / "none.toml")


def test_the_verbs_are_those_of_attnlaw(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(VERBS, "coin", ("house.coin", "Toss a coin."))
    (tmp_path / "study.toml").write_text('verb = "coin"\n[grid]\nbias = "0.1:0.9:9"\n')
    assert len(read_study(tmp_path / "study.toml").tasks) == 9


def test_what_a_verb_refuses_is_told_with_the_file(tmp_path: Path) -> None:
    sample_study = study(tmp_path, 'verb = "draw"\n[fixed]\nx = -13\n')
    with pytest.raises(InputError, match="x: -13 brings bad luck; choose another") as caught:
        sample_study.check(list(sample_study.tasks))
    assert str(caught.value).startswith(f"{tmp_path / 'study.toml'}: ")


def test_models_are_paths_patterns_or_hub_ids(tmp_path: Path) -> None:
    for name in ("models/a", "models/b", "models/a/deep"):
        (tmp_path / name).mkdir(parents=True, exist_ok=True)
    text = 'verb = "cut"\n[grid]\nmodel = ["models/*", "models/b", "org/name"]\n'
    assert points(tmp_path, text, "model") == [
        (str(tmp_path / "models/a"),),
        (str(tmp_path / "models/b"),),
        ("org/name",),
    ]
    fixed_text = f'verb = "cut"\n[fixed]\nmodel = "{tmp_path}/mod*/[a]"\n'
    assert points(tmp_path, fixed_text, "model") == [(str(tmp_path / "models/a"),)]
    assert models(tmp_path, "**/d*p") == [str(tmp_path / "models/a/deep")]


def test_the_directory_of_the_study_is_no_pattern(tmp_path: Path) -> None:
    for name in ("exp1/m_one", "exp[1]/m_two", "exp[1]/deep/m_three"):
        (tmp_path / name).mkdir(parents=True)
    folder = tmp_path / "exp[1]"
    assert models(folder, "m_*") == [str(folder / "m_two")]
    assert models(folder, "**/m_*") == [str(folder / "deep/m_three"), str(folder / "m_two")]
    assert models(folder, f"{tmp_path}/exp[1]/m_*") == [str(tmp_path / "exp1/m_one")]  # an absolute pattern


def test_a_path_that_exists_is_no_pattern(tmp_path: Path) -> None:
    for name in ("m1", "m[1]", "m2"):
        (tmp_path / name).mkdir()
    assert models(tmp_path, "m[1]") == [str(tmp_path / "m[1]")]
    assert models(tmp_path, "m[2]") == [str(tmp_path / "m2")]


def test_dots_after_a_link_name_the_file_that_they_lead_to(tmp_path: Path) -> None:
    """`link/../model` is beside the target of the link, not beside the link."""
    for name in ("here/model", "far/away", "far/model"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "here" / "link").symlink_to(tmp_path / "far" / "away")
    far, here = (str((tmp_path / name / "model").resolve()) for name in ("far", "here"))
    assert models(tmp_path / "here", "link/../model") == [far]
    assert models(tmp_path / "here", "link/../mod*") == [far]
    assert models(tmp_path / "far", "../here/model") == [here]
    (tmp_path / "far" / "same").symlink_to(here)
    assert models(tmp_path / "far", "./same") == [str(tmp_path / "far" / "same")]  # a link keeps its name
    assert models(tmp_path / "far", "away/../same") == [str(tmp_path / "far" / "same")]
