"""`attnlaw study` as a user runs it: run, status, resume, export, one-line errors, exit statuses."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import polars as pl
import pytest
from command.in_process import Ended, invoke

from attnlaw.core.errors import InputError
from attnlaw.core.settings import setting_fields
from attnlaw.study import read_study
from attnlaw.study.store import hold_lock
from attnlaw.verbs.audit import AuditSettings

TINY = Path(__file__).parents[2] / "examples" / "tiny-decoder"

ISSUE = """
verb = "learn"
[fixed]
output = "linear"
noise = 0.5
[grid]
alpha = [0.1, 0.2, 0.3]
target_rank = [0.3, 0.5]
[run]
seed = 0
seeds = 3
"""


def study(*arguments: object, status: int = 0) -> Ended:
    return invoke("study", *arguments, status=status)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "study.toml"
    path.write_text(ISSUE)
    return path


@pytest.mark.slow
def test_one_command_computes_and_draws(tmp_path: Path, file: Path) -> None:
    out = tmp_path / "out"
    done = study("run", file, "--out", out, "--figures", "svg")
    assert done.stdout == "6 of 6 tasks done.\n"
    drawn = {path.stem for path in (out / "figures").glob("*.svg")}
    assert f"wrote {out / 'report.html'} and in {out / 'figures'}: " in done.stderr
    assert "learning" in drawn
    assert (out / "report.html").exists()
    refused = study("run", file, "--out", out, "--figures", "bmp", status=2)
    assert "--figures bmp: expected" in refused.stderr


def test_run_status_export(tmp_path: Path, file: Path) -> None:
    out = tmp_path / "out"
    done = study("run", file, "--out", out)
    assert done.stdout.splitlines()[0] == "6 of 6 tasks done."
    assert f"attnlaw report {out}" in done.stdout
    assert "6 tasks to compute. The first took " in done.stderr
    assert " on 1 worker.\n" in done.stderr
    rows = pl.read_parquet(out / "rows.parquet")
    assert rows.columns[:6] == ["verb", "alpha", "tokens", "output", "beta", "loss"]
    assert rows.height == 6
    assert rows.filter(alpha=0.2, target_rank=0.5)["estimation_error"][0] == pytest.approx(0.802029, abs=5e-7)
    status = json.loads(study("status", file, "--out", out, "--json").stdout)
    assert (status["tasks"], status["done"], status["failed"], status["running"]) == (6, 6, 0, False)
    (out / "rows.parquet").unlink()
    assert study("export", file, "--out", out).stderr == f"wrote {out / 'rows.parquet'}\n"
    assert pl.read_parquet(out / "rows.parquet").equals(rows)
    again = study("resume", file, "--out", out, "--json")
    assert json.loads(again.stdout)["computed"] == 0
    assert again.stderr == ""
    assert json.loads(study("run", file, "--out", out, "--force", "--json").stdout)["computed"] == 6


def test_a_failure_says_how_to_retry(tmp_path: Path) -> None:
    file, out = tmp_path / "a study.toml", tmp_path / "out"
    for name in ("a", "b"):
        (tmp_path / "models" / name).mkdir(parents=True)
    file.write_text('verb = "audit"\n[grid]\nmodel = "models/*"\n')
    done = study("run", file, "--out", out, status=1)
    assert done.stdout == "0 of 2 tasks done, 2 failed.\n"
    assert f"1 task failed: {tmp_path}/models/a: this directory holds no checkpoint" in done.stderr
    command = f"attnlaw study resume '{file}' --out {out} --failed"
    assert f"Try them again with: {command}\n" in done.stderr
    study("resume", file, "--out", out, status=1)
    again = study("resume", file, "--out", out, "--failed", "--json", status=1)
    assert json.loads(again.stdout)["computed"] == 2


@pytest.mark.slow
def test_bad_input_is_one_line(tmp_path: Path, file: Path) -> None:
    with hold_lock(tmp_path / "busy"):
        refused = study("run", file, "--out", tmp_path / "busy", status=1)
    assert "another run is using this directory" in refused.stderr
    absent = tmp_path / "absent.toml"
    absent.write_text('verb = "audit"\n[grid]\nmodel = ["./no/such/model"]\n')
    for arguments in (
        ("resume", file, "--out", tmp_path / "none"),
        ("status", file, "--out", tmp_path / "none"),
        ("export", file, "--out", tmp_path / "none"),
        ("run", absent, "--out", tmp_path / "out"),
        ("run", file, "--out", file),
    ):
        assert study(*arguments, status=1).stderr.count("\n") == 1
    assert study("run", tmp_path / "none.toml", "--out", tmp_path / "out", status=2).stderr.count("\n") == 1
    for words in (("--jobs", 1, "--dask", "tcp://127.0.0.1:1"), ("--slurm", "cores")):
        assert study("run", file, "--out", tmp_path / "out", *words, status=2).stderr.count("\n") == 1
    assert "--jobs 0: expected" in study("run", file, "--out", tmp_path / "o", "--jobs", 0, status=2).stderr
    assert "--out is missing; try: attnlaw study run" in study("run", file, status=2).stderr


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("nonsense", "not valid TOML"),
        ('verb = "lern"', "verb: 'lern' is not a verb"),
        ('verb = "limit"\n[grid]\nwidth = [8, "x"]', "[grid] width: found 'x', expected a number"),
        ('verb = "limit"\n[grid]\nwdth = [8]', "[grid] wdth is not a setting of limit"),
        ('verb = "limit"\n[run]\nseeds = 0', "[run] seeds: found 0"),
        (  # what only the check before the run finds
            'verb = "limit"\n[fixed]\nhead_width = 3\nwidth = 8',
            "head_width: found 3, expected a divisor of the width, 8",
        ),
    ],
)
def test_a_mistake_in_the_file_has_status_2_as_in_a_rule_file(
    tmp_path: Path, text: str, message: str
) -> None:
    file, rules = tmp_path / "study.toml", tmp_path / "rules.toml"
    file.write_text(text)
    refused = study("run", file, "--out", tmp_path / "out", status=2)
    assert refused.stderr.startswith(f"attnlaw: {file}: ")
    assert message in refused.stderr
    assert refused.stderr.count("\n") == 1
    assert not (tmp_path / "out").exists()
    rules.write_text("nonsense")
    assert invoke("check", TINY, "--rules", rules, status=2).stderr.startswith(f"attnlaw: {rules}: ")


def test_an_unreadable_checkpoint_does_not_stop_the_others(tmp_path: Path) -> None:
    file, out, torn = tmp_path / "study.toml", tmp_path / "out", tmp_path / "torn.safetensors"
    torn.write_bytes((TINY / "model.safetensors").read_bytes()[:1000])
    models = [str(torn), "./absent.safetensors", str(TINY)]
    file.write_text(
        f'verb = "audit"\n[fixed]\nonly = "qk"\nlayers = 0\n[grid]\nmodel = {json.dumps(models)}\n'
    )
    done = study("run", file, "--out", out, status=1)
    assert done.stdout.startswith("1 of 3 tasks done, 2 failed.\n")
    assert "1 task failed: ./absent.safetensors: no such file or directory" in done.stderr
    assert f"1 task failed: {torn}: this is not a complete safetensors file" in done.stderr
    rows = pl.read_parquet(out / "rows.parquet")
    assert rows["model"].to_list() == models
    assert rows["status"].to_list() == ["failed", "failed", "done"]
    assert rows["remark"].str.contains("no such file").to_list() == [False, True, False]
    assert (out / "matrices.parquet").exists()
    again = study("resume", file, "--out", out, "--failed", "--json", status=1)
    assert json.loads(again.stdout)["failed"] == 2
    shown = invoke("report", out)
    assert (out / "report.html").exists(), shown.stderr
    shutil.copy(TINY / "model.safetensors", tmp_path / "absent.safetensors")
    shutil.copy(TINY / "config.json", tmp_path)
    assert json.loads(study("resume", file, "--out", out, "--failed", "--json", status=1).stdout)["done"] == 2


def test_a_directory_that_cannot_be_listed_does_not_stop_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Reading the study lists the checkpoints of training runs; this fails for one of them."""

    def expand(model: str) -> list[str]:
        if model.endswith("locked"):
            raise InputError(f"{model}: cannot be listed; check its permissions")
        return [model]

    field = setting_fields(AuditSettings)["model"]
    monkeypatch.setitem(
        setting_fields(AuditSettings), "model", replace(field, rule=replace(field.rule, expand=expand))
    )
    (tmp_path / "locked").mkdir()
    (tmp_path / "study.toml").write_text(f'verb = "audit"\n[grid]\nmodel = ["locked", "{TINY}"]\n')
    assert len(read_study(tmp_path / "study.toml").tasks) == 2


@pytest.mark.slow
def test_ctrl_c_says_how_to_resume(tmp_path: Path) -> None:
    file, out = tmp_path / "study.toml", tmp_path / "out"
    text = 'verb = "limit"\n[fixed]\ndraws = 20000\nwidth = 64\n[run]\nseeds = 1000\n'
    file.write_text(text)
    code = "from attnlaw.command import main; main()"
    command = [sys.executable, "-c", code, "study", "run", str(file), "--out", str(out)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        end = time.monotonic() + 60
        while time.monotonic() < end:
            if (out / "store.sqlite").exists() and json.loads(
                study("status", file, "--out", out, "--json").stdout
            )["done"]:
                break
            time.sleep(0.1)
        os.kill(process.pid, signal.SIGINT)
        output, said = process.communicate()
    assert process.returncode == 130
    assert "Stopped. Every finished row is kept. Continue with: attnlaw study resume " in said
    assert "Traceback" not in said
    kept = pl.read_parquet(out / "rows.parquet").height
    assert output == f"{kept} of 1,000 tasks done, {1000 - kept} missing.\n"
    assert kept >= 1


def test_a_command_does_not_write_into_a_study(tmp_path: Path, file: Path) -> None:
    """It says so before it computes anything."""
    out = tmp_path / "out"
    study("run", file, "--out", out)
    before = (out / "rows.parquet").read_bytes()
    refused = invoke("learn", "--alpha", 0.3, "--out", out, status=1)
    assert (refused.stdout, refused.stderr) == (
        "",
        f"attnlaw: {out}: this directory has a study, which results would overwrite; "
        "choose another directory\n",
    )
    assert (out / "rows.parquet").read_bytes() == before
