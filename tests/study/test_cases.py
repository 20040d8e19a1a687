"""Patterns of a study: what they match, and how far they may look."""

from __future__ import annotations

from pathlib import Path

import pytest

from attnlaw.base.errors import InputError
from attnlaw.study import cases
from attnlaw.study.verbs import VERBS


def models(pattern: str, folder: Path) -> list[str]:
    content = {"verb": "audit", "grid": {"model": [pattern]}}
    return [case["model"] for case in cases.read_cases(content, VERBS, folder, "study.toml")["audit"]]


def test_a_deep_pattern_finds_what_lies_below(tmp_path: Path) -> None:
    for name in ("a/one.safetensors", "a/b/two.safetensors", "three.safetensors"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    assert models("a/**/*.safetensors", tmp_path) == [
        str(tmp_path / "a/b/two.safetensors"),
        str(tmp_path / "a/one.safetensors"),
    ]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("0.5:0.1:3", "FROM must be below TO"),
        ("1:1:3", "FROM must be below TO"),
        ("0:inf:3", "FROM must be below TO, both finite"),
        ("nan:1:3", "FROM must be below TO, both finite"),
        ("0:1:1", "COUNT must be from 2 to 100000"),
        ("0:1:100001", "COUNT must be from 2 to 100000"),
        ("0:1:2.5", "expected FROM:TO:COUNT such as 0.05:1:40"),
        ("0:1", "expected FROM:TO:COUNT"),
        ("0:1:2:3", "expected FROM:TO:COUNT"),
        (f"0:1:{'9' * 5000}", "expected FROM:TO:COUNT"),
    ],
)
def test_a_span_that_cannot_be_is_told_by_what_is_wrong_with_it(text: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        cases.span(text, "study.toml: [grid] alpha")


def test_links_in_a_circle_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two links to their own folder make 2^40 paths before the system stops following."""
    for name in ("one", "two"):
        (tmp_path / name).symlink_to(tmp_path)
    monkeypatch.setattr(cases, "MOST_ENTRIES", 2000)
    with pytest.raises(InputError, match=r"'\*\*/nothing\*': \*\* reaches more than 2000 files") as caught:
        models("**/nothing*", tmp_path)
    assert "\n" not in str(caught.value)


def test_a_pattern_counts_what_it_visits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for i in range(4):
        (tmp_path / f"{i}.npz").touch()
    (tmp_path / ".hidden").mkdir()
    (tmp_path / ".hidden" / "5.npz").touch()
    monkeypatch.setattr(cases, "MOST_ENTRIES", 4)
    assert len(models("**/*.npz", tmp_path)) == 4
    monkeypatch.setattr(cases, "MOST_ENTRIES", 3)
    with pytest.raises(InputError, match="start it in a folder nearer"):
        models("**/*.npz", tmp_path)


def test_the_directory_of_the_study_is_no_pattern(tmp_path: Path) -> None:
    for name in ("exp1/m_one", "exp[1]/m_two", "exp[1]/deep/m_three"):
        (tmp_path / name).mkdir(parents=True)
    own = tmp_path / "exp[1]"
    assert models("m_*", own) == [str(own / "m_two")]
    assert models("**/m_*", own) == [str(own / "deep/m_three"), str(own / "m_two")]
    assert models(f"{tmp_path}/exp[1]/m_*", own) == [str(tmp_path / "exp1/m_one")]  # an absolute pattern


def test_a_reach_is_that_of_the_directory_of_the_study(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for i in range(4):
        (tmp_path / "exp[1]" / f"{i}.npz").parent.mkdir(exist_ok=True)
        (tmp_path / "exp[1]" / f"{i}.npz").touch()
    monkeypatch.setattr(cases, "MOST_ENTRIES", 3)
    with pytest.raises(InputError, match="start it in a folder nearer"):
        models("**/*.npz", tmp_path / "exp[1]")


def test_a_path_that_exists_is_no_pattern(tmp_path: Path) -> None:
    for name in ("m1", "m[1]", "m2"):
        (tmp_path / name).mkdir()
    assert models("m[1]", tmp_path) == [str(tmp_path / "m[1]")]
    assert models("m[2]", tmp_path) == [str(tmp_path / "m2")]


def test_dots_after_a_link_name_the_file_that_they_lead_to(tmp_path: Path) -> None:
    """`link/../model` is beside the target of the link, not beside the link."""
    for name in ("here/model", "far/away", "far/model"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "here" / "link").symlink_to(tmp_path / "far" / "away")
    far, here = (str((tmp_path / name / "model").resolve()) for name in ("far", "here"))
    assert models("link/../model", tmp_path / "here") == [far]
    assert models("link/../mod*", tmp_path / "here") == [far]
    assert models("../here/model", tmp_path / "far") == [here]
    (tmp_path / "far" / "same").symlink_to(here)
    assert models("./same", tmp_path / "far") == [str(tmp_path / "far" / "same")]  # a link keeps its name
    assert models("away/../same", tmp_path / "far") == [str(tmp_path / "far" / "same")]
