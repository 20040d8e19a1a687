"""After a refusal there is no output directory, whichever command refused and for whatever reason."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from command.in_process import invoke
from safetensors.numpy import save_file

from attnlaw.core.errors import InputError
from attnlaw.core.files import remove_if_refused

TINY = Path(__file__).parents[2] / "examples" / "tiny-decoder"
STUDIES = {
    "absent.toml": 'verb = "audit"\n[grid]\nmodel = ["./absent.safetensors"]\n',
    "mistake.toml": 'verb = "limit"\n[grid]\nwidth = [1, "x"]\n',
    "fine.toml": 'verb = "limit"\n[grid]\nwidth = [8, 16]\n',
    "rules.toml": "version = 1\n[[rule]]\nname = 'a'\n",
}


@pytest.mark.parametrize(
    ("words", "status"),
    [
        ("audit absent", 1),
        ("audit absent --workers 2", 1),
        ("audit torn.safetensors", 1),
        ("audit torn.safetensors --workers 2", 1),
        ("audit nan.safetensors --heads 2", 1),
        ("audit TINY --layers 99", 2),
        ("audit TINY --layers 99 --workers 2", 2),
        ("audit TINY --slurm partition=x", 1),
        ("fit torn.safetensors", 1),
        ("diff TINY torn.safetensors", 1),
        ("check TINY --rules rules.toml", 2),
        ("init absent", 1),
        ("learn --alpha -1", 2),
        ("limit --width 3 --head-width 2", 2),
        ("report absent", 1),
        ("reproduce absent", 1),
        ("study run absent.toml", 1),
        ("study run mistake.toml", 2),
        ("study run fine.toml --slurm partition=x", 1),
        ("study resume fine.toml", 1),
    ],
)
def test_no_directory_exists_after_a_refusal(
    words: str, status: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for name, text in STUDIES.items():
        Path(name).write_text(text)
    Path("torn.safetensors").write_bytes((TINY / "model.safetensors").read_bytes()[:1000])
    block = {"in_proj_weight": np.full((24, 8), np.nan), "out_proj.weight": np.eye(8)}
    save_file(block, "nan.safetensors")
    before = sorted(Path().iterdir())
    invoke(*words.replace("TINY", str(TINY)).split(), "--out", "new/deep", status=status)
    assert sorted(Path().iterdir()) == before


def test_what_was_there_before_stays(tmp_path: Path) -> None:
    (tmp_path / "study.toml").write_text(STUDIES["absent.toml"])
    kept = tmp_path / "out" / "notes.txt"
    kept.parent.mkdir()
    kept.write_text("mine")
    invoke("study", "run", tmp_path / "study.toml", "--out", kept.parent, status=1)
    assert kept.read_text() == "mine"


def refuse_in(folder: Path, is_needed: bool) -> None:
    with remove_if_refused(folder, lambda: is_needed):
        folder.mkdir(parents=True)
        raise InputError("refused")


def test_a_directory_that_is_needed_stays(tmp_path: Path) -> None:
    for is_needed in (True, False):
        folder = tmp_path / "a" / str(is_needed)
        with pytest.raises(InputError):
            refuse_in(folder, is_needed)
        assert folder.exists() == is_needed
    assert (tmp_path / "a").exists()  # it is not empty


def test_linked_figures_are_refused_before_the_work(tmp_path):
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "figures").symlink_to(tmp_path / "elsewhere")
    done = invoke("learn", "--alpha", "0.3", "--out", tmp_path / "out", "--figures", "svg", status=1)
    assert done.stdout == ""
    assert "is a link to" in done.stderr
