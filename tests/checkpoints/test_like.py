"""A family that is like another: what it does not say it takes from there, stack by stack and key by key."""

from __future__ import annotations

from pathlib import Path

import pytest

from attnlaw.checkpoints import families
from attnlaw.checkpoints.families.read_toml import known_families, read_family
from attnlaw.core.errors import InputError

BASE = """
name = "base"
model_types = ["base"]
priority = 3
pre_norm = true
epsilon = ["eps"]

[[stacks]]
name = "encoder"
layer = "a.{layer}."
first_norm = "before"
attention = { query = "q", key = "k", value = "v", output = "o" }
feed_forward = [{ in = "up", out = "down" }]

[[stacks]]
name = "decoder"
layer = "b.{layer}."
attention = { query = "q", key = "k", value = "v", output = "o" }
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of families with the base alone."""
    (tmp_path / "base.toml").write_text(BASE)
    monkeypatch.setattr(families, "FOLDER", tmp_path)
    return tmp_path


def read(folder: Path, text: str, file: str = "mine.toml") -> families.Family:
    (folder / file).write_text(text)
    return read_family(folder / file)


def test_what_is_not_said_is_taken_but_not_what_tells_them_apart(folder: Path) -> None:
    mine = read(folder, 'name = "mine"\nlike = "base"')
    assert (mine.name, mine.model_types, mine.priority) == ("mine", (), 0)
    base = read_family(folder / "base.toml")
    assert (mine.pre_norm, mine.epsilon, mine.stacks) == (base.pre_norm, base.epsilon, base.stacks)


def test_stacks_are_merged_in_their_places_and_tables_are_replaced(folder: Path) -> None:
    text = """
name = "mine"
like = "base"
pre_norm = false

[[stacks]]
first_norm = false
attention = { "query,key,value" = "qkv", output = "o" }
"""
    mine, base = read(folder, text), read_family(folder / "base.toml")
    assert not mine.pre_norm
    first, second = mine.stacks
    assert second == base.stacks[1]
    assert (first.name, first.layer, first.feed_forward) == (
        "encoder",
        "a.{layer}.",
        ({"in": "up", "out": "down"},),
    )
    assert (first.first_norm, base.stacks[0].first_norm) == (None, "before")
    assert first.attention == {"query,key,value": "qkv", "output": "o"}  # nothing of the other's stays


def test_a_chain_and_a_stack_more(folder: Path) -> None:
    read(folder, 'name = "middle"\nlike = "base"\nepsilon = ["other"]', "middle.toml")
    last = BASE[BASE.rindex("[[stacks]]") :].replace("b.", "c.")
    mine = read(folder, f'name = "mine"\nlike = "middle"\n[[stacks]]\n[[stacks]]\n{last}')
    assert mine.epsilon == ("other",)
    assert mine.pre_norm
    assert [stack.layer for stack in mine.stacks] == ["a.{layer}.", "b.{layer}.", "c.{layer}."]


@pytest.mark.parametrize(
    ("like", "message"),
    [
        ('"nothing"', r"mine\.toml: like: found 'nothing', expected a file that ships; known: base"),
        ('"../base"', r"like: found '../base', expected a file that ships"),
        ("3", r"like: found 3, expected text or false"),
    ],
)
def test_what_does_not_ship_is_refused(folder: Path, like: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        read(folder, f'name = "mine"\nlike = {like}\n{BASE[BASE.index("[[stacks]]") :]}')


def test_a_shipped_file_says_only_what_is_its_own() -> None:
    """No file repeats a whole table of the one that it is like."""
    by_file = {file.stem: read_family(file) for file in families.FOLDER.glob("*.toml")}
    for family in by_file.values():
        assert family.like is None or family.like in by_file
    assert len(by_file) == len(known_families())
