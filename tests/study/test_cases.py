"""Patterns of a study: what they match, and how far they may look."""

from __future__ import annotations

from pathlib import Path

import pytest

from attnlaw.errors import InputError
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
