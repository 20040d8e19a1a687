"""Files are written whole or not at all."""

import pytest

from attnlaw.core.errors import InputError
from attnlaw.core.files import parse_toml, to_json, write_atomically


def test_an_error_leaves_the_old_file_and_no_draft(tmp_path):
    target = tmp_path / "rows.json"
    target.write_text("old")
    with pytest.raises(ZeroDivisionError), write_atomically(target) as draft:
        draft.write_text("half") / 0
    assert target.read_text() == "old"
    assert [path.name for path in tmp_path.iterdir()] == ["rows.json"]


def test_the_new_file_has_the_rights_of_an_ordinary_one(tmp_path):
    plain = tmp_path / "plain"
    plain.write_text("")
    with write_atomically(tmp_path / "made") as draft:
        draft.write_text("")
    assert (tmp_path / "made").stat().st_mode == plain.stat().st_mode


def test_a_directory_that_cannot_be_made_is_one_clear_line(tmp_path):
    (tmp_path / "file").write_text("")
    with (
        pytest.raises(InputError, match="cannot be written"),
        write_atomically(tmp_path / "file" / "rows") as draft,
    ):
        draft.write_text("")


def test_json_refuses_nan():
    with pytest.raises(ValueError):
        to_json({"value": float("nan")})


def test_a_toml_file_of_a_stranger_is_small_whatever_its_keys(tmp_path):
    """A long key is refused as nested; a file that is larger than any map is not parsed at all."""
    with pytest.raises(InputError, match=r"map\.toml: a: its values are nested more than 32 deep"):
        parse_toml(b"a" + b".a" * 4000 + b" = 1", "map.toml")
    with pytest.raises(
        InputError, match=r"map\.toml: larger than 32 kB, which is too large for its kind; correct"
    ):
        parse_toml(b"a" + b".a" * 500_000 + b" = 1", "map.toml")
