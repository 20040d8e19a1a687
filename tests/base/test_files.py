"""Files are written whole or not at all."""

import pytest

from attnlaw.base.errors import InputError
from attnlaw.base.files import replacing, to_json


def test_an_error_leaves_the_old_file_and_no_draft(tmp_path):
    target = tmp_path / "rows.json"
    target.write_text("old")
    with pytest.raises(ZeroDivisionError), replacing(target) as draft:
        draft.write_text("half") / 0
    assert target.read_text() == "old"
    assert [path.name for path in tmp_path.iterdir()] == ["rows.json"]


def test_the_new_file_has_the_rights_of_an_ordinary_one(tmp_path):
    plain = tmp_path / "plain"
    plain.write_text("")
    with replacing(tmp_path / "made") as draft:
        draft.write_text("")
    assert (tmp_path / "made").stat().st_mode == plain.stat().st_mode


def test_a_directory_that_cannot_be_made_is_one_clear_line(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="cannot be written"), replacing(tmp_path / "file" / "rows") as draft:
        draft.write_text("")


def test_json_refuses_nan():
    with pytest.raises(ValueError):
        to_json({"value": float("nan")})
