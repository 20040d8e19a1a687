"""Models in a directory whose name is no UTF-8: every verb shows and saves them."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import pytest
from command.in_process import invoke

import attnlaw
from attnlaw.report import write_report

MODEL = Path(__file__).parents[2] / "examples" / "tiny-decoder"
NAME, SHOWN = b"model\xff\xfe", "model\\udcff\\udcfe"


@pytest.fixture(name="model")
def _model(tmp_path: Path) -> Path:
    path = tmp_path / os.fsdecode(NAME)
    try:
        shutil.copytree(MODEL, path)
    except OSError:
        pytest.skip("this system has only names in UTF-8")
    return path


@pytest.mark.slow
@pytest.mark.parametrize(
    "words",
    [("audit", "--no-laws"), ("fit",), ("check",), ("init",), ("lens", "--ids", "1,2,3")],
    ids=lambda words: words[0],
)
def test_a_name_that_is_no_text_is_written_out(words: tuple[str, ...], model: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    ended = invoke(words[0], model, *words[1:], "--out", out, "--json")
    assert SHOWN in json.dumps(json.loads(ended.stdout), ensure_ascii=False).replace("\\\\", "\\")
    texts = [value for value in attnlaw.load(out).row().values() if isinstance(value, str)]
    assert any(text.endswith(SHOWN) for text in texts)
    write_report([out])
    assert (out / "report.html").read_text()


def test_two_of_them_are_compared(model: Path, tmp_path: Path) -> None:
    invoke("diff", model, model, "--out", tmp_path / "out")
    assert attnlaw.load(tmp_path / "out").rows["model"][0].endswith(SHOWN)
