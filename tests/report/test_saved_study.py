"""A study's audits as a report reads them: the summaries of the audits, and what a page must tell."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers

import attnlaw
from attnlaw import study
from attnlaw.analysis.audit.summary import MEANING
from attnlaw.core.result import Result
from attnlaw.report import write_report
from attnlaw.spectra import approximate, measure
from attnlaw.study.study_file import read_study

TINY = Path(__file__).parents[2] / "examples" / "tiny-decoder"


def run(folder: Path, text: str) -> Path:
    (folder / "study.toml").write_text(f'verb = "audit"\n{text}')
    report = study.run(read_study(folder / "study.toml"), folder / "out")
    assert not report.failures
    return folder / "out"


def summaries(folder: Path) -> list[dict[str, Any]]:
    """The summaries of a study's models, without what every verb's JSON has."""
    return [without_common_keys(case) for case in attnlaw.load(folder)]


def expected(**options: Any) -> dict[str, Any]:
    """The summary of the audit itself."""
    return without_common_keys(attnlaw.audit(options.pop("model"), **options))


def without_common_keys(result: Result) -> dict[str, Any]:
    common = ("verb", "settings", "quantities", "status", "remark", "tables", "version")
    return {name: value for name, value in result.summary.items() if name not in common}


@pytest.mark.slow
def test_the_label_the_disclaimer_and_the_samples_reach_the_page(tmp_path: Path) -> None:
    folder = run(tmp_path, f'[fixed]\nmodel = "{TINY}"\nsamples = 1000\n')
    (summary,) = summaries(folder)
    assert summary == expected(model=TINY, samples=1000)
    assert (summary["extensions"], summary["meaning"]) == (["pre-norm"], MEANING)
    source = write_report([folder]).read_text(encoding="utf-8")
    assert MEANING in source
    assert "The paper does not cover pre-norm; attnlaw extends its formula." in source
    assert "n = 1000" in source


@pytest.mark.slow
def test_errors_of_approximate_proxies_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measure, "LARGE", 128)
    monkeypatch.setattr(approximate, "DEFLATED", 32)
    folder = run(tmp_path, f'[fixed]\nmodel = "{TINY}"\n[grid]\napproximate = [true, false]\n')
    rough, exact = summaries(folder)
    assert rough == expected(model=TINY, approximate=True)
    assert rough["proxies"]["spectrum_adaptive"]["error"] > 0
    assert exact == expected(model=TINY)
    assert "error" not in exact["proxies"]["spectrum_adaptive"]


@pytest.mark.slow
def test_shared_layers_keep_both_counts(tmp_path: Path) -> None:
    torch.manual_seed(0)
    sizes = {"hidden_size": 16, "embedding_size": 8, "num_attention_heads": 2, "intermediate_size": 24}
    config = transformers.AlbertConfig(vocab_size=30, num_hidden_layers=3, **sizes)
    transformers.AlbertModel(config).save_pretrained(tmp_path / "albert")
    folder = run(tmp_path, f'[grid]\nmodel = ["albert", "{TINY}"]\n')
    shared, plain = summaries(folder)
    assert shared == expected(model=tmp_path / "albert")
    assert shared["per_application"] is not None
    assert plain == expected(model=TINY)
    assert plain["per_application"] is None


def test_a_part_of_a_model_has_a_page_without_proxies(tmp_path: Path) -> None:
    folder = run(tmp_path, f'[fixed]\nmodel = "{TINY}"\nonly = "qk"\nsamples = 1000\n')
    assert summaries(folder) == [expected(model=TINY, only="qk", samples=1000)]
    assert "No proxies: the proxies need every matrix" in write_report([folder]).read_text(encoding="utf-8")


def test_a_checkpoint_that_failed_is_told_on_the_page_of_the_others(tmp_path: Path) -> None:
    (tmp_path / "torn.safetensors").write_bytes(b"torn")
    text = f'verb = "audit"\n[grid]\nmodel = ["{TINY}", "torn.safetensors"]\n[fixed]\nonly = "qk"\n'
    (tmp_path / "study.toml").write_text(text)
    study.run(read_study(tmp_path / "study.toml"), tmp_path / "out")
    source = write_report([tmp_path / "out"]).read_text(encoding="utf-8")
    assert re.search(
        r'<p class="lead">[^<]* \d+ matrices\. 1 of 2 tasks failed: [^<]*torn\.safetensors', source
    )
