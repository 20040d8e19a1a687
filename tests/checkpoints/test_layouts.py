"""Directories that stand for a model, or for several: a hub's cache, the output of a training run."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import huggingface_hub
import pytest
import torch
import transformers
from checkpoints.spoiled import bert_state, config_with, refusal, write_good
from safetensors.torch import save_file

import attnlaw
from attnlaw.analysis.check.locations import model_file
from attnlaw.checkpoints.open import expand_run, open_model, single_model_path
from attnlaw.core.errors import InputError
from attnlaw.study.study_file import read_study

REVISIONS = ("a" * 40, "b" * 40)


def write_cache(folder: Path, *revisions: str) -> Path:
    """A cache as huggingface_hub lays it out: each snapshot is a folder of links into blobs."""
    name = huggingface_hub.file_download.repo_folder_name(repo_id="owner/name", repo_type="model")
    cache = folder / name
    for part in ("blobs", "refs"):
        (cache / part).mkdir(parents=True)
    for revision in revisions:
        snapshot = cache / "snapshots" / revision
        snapshot.mkdir(parents=True)
        for file in sorted(write_good(snapshot).iterdir()):
            blob = file.rename(cache / "blobs" / f"{revision[:8]}-{file.name}")
            file.symlink_to(Path("../../blobs") / blob.name)
    return cache


def test_the_directory_of_a_cache_is_the_snapshot_called_main(tmp_path: Path) -> None:
    cache = write_cache(tmp_path, *REVISIONS)
    line = refusal(cache, f"{cache}: this cache has 2 snapshots", *REVISIONS, "refs/main")
    assert line.endswith(str(cache / "snapshots" / REVISIONS[0]))
    for revision in REVISIONS:
        (cache / "refs" / "main").write_text(revision)
        model = open_model(cache)
        assert (model.name, len(model.layers)) == (str(cache), 3)
        assert model.tensors.source == str(cache / "snapshots" / revision / "model.safetensors")
        assert model_file(cache) == model.tensors.source  # where reports point at


def test_a_cache_of_one_snapshot_needs_no_name_for_it(tmp_path: Path) -> None:
    cache = write_cache(tmp_path, REVISIONS[0])
    assert len(open_model(cache).layers) == 3
    (cache / "refs" / "main").write_text(REVISIONS[1])  # of another, which was not downloaded
    assert single_model_path(cache) == cache / "snapshots" / REVISIONS[0]


@pytest.mark.parametrize("said", ["../../outside", "..", "/", "\0", "x" * 5000])
def test_what_a_cache_says_leads_nowhere_else(said: str, tmp_path: Path) -> None:
    write_good(tmp_path)
    (tmp_path / "outside").mkdir()
    write_good(tmp_path / "outside")
    cache = write_cache(tmp_path, *REVISIONS)
    (cache / "refs" / "main").write_text(said)
    refusal(cache, "2 snapshots")


def test_a_cache_without_snapshots(tmp_path: Path) -> None:
    cache = write_cache(tmp_path)
    (cache / "snapshots").mkdir()
    refusal(cache, "this cache of a hub holds no snapshot; download", "download the model again")


def test_an_adapter_in_a_cache(tmp_path: Path) -> None:
    cache = write_cache(tmp_path, REVISIONS[0])
    snapshot = cache / "snapshots" / REVISIONS[0]
    (snapshot / "model.safetensors").unlink()
    write_adapter(snapshot)
    assert attnlaw.audit(cache, jobs=1).matrices["kind"].to_list() == ["lora"]
    base = tmp_path / "base"
    base.mkdir()
    (change,) = attnlaw.diff(write_good(base), cache, jobs=1).summary["tensors"]
    assert change["tensor"].endswith("query.weight")


def write_adapter(folder: Path) -> None:
    name = "base_model.model.encoder.layer.0.attention.self.query"
    factors = {f"{name}.lora_A.weight": torch.ones(1, 8), f"{name}.lora_B.weight": torch.ones(8, 1)}
    save_file(factors, folder / "adapter_model.safetensors")
    (folder / "adapter_config.json").write_text(json.dumps({"peft_type": "LORA", "lora_alpha": 1, "r": 1}))


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The output of a Trainer that saves every second step: folders of steps 2 to 10, and nothing else."""
    pytest.importorskip("accelerate")
    folder = tmp_path_factory.mktemp("trained")
    torch.manual_seed(0)
    sizes = {"hidden_size": 8, "num_attention_heads": 2, "num_hidden_layers": 1, "intermediate_size": 12}
    model = transformers.BertForMaskedLM(
        transformers.BertConfig(vocab_size=10, max_position_embeddings=8, **sizes)
    )
    ids = torch.randint(0, 10, (10, 6))
    arguments = transformers.TrainingArguments(
        str(folder),
        max_steps=10,
        save_strategy="steps",
        save_steps=2,
        per_device_train_batch_size=1,
        learning_rate=1e-2,
        report_to=[],
        use_cpu=True,
        disable_tqdm=True,
    )
    rows: Any = [{"input_ids": row, "labels": row} for row in ids]
    transformers.Trainer(model, arguments, train_dataset=rows).train()
    return folder


def steps(folder: Path) -> list[str]:
    return [str(folder / f"checkpoint-{step}") for step in (2, 4, 6, 8, 10)]


def test_a_training_run_is_a_series(trained: Path) -> None:
    assert expand_run(str(trained)) == steps(trained)
    assert expand_run(trained) == [Path(step) for step in steps(trained)]
    audits = attnlaw.audit(trained, only="qk", jobs=1)
    assert [audit.summary["model"] for audit in audits] == steps(trained)
    alone = attnlaw.audit(steps(trained)[-1], only="qk", jobs=1)
    assert audits[-1].spectra.equals(alone.spectra)
    norms = [audit.matrices["spectral_norm"].to_list() for audit in audits]
    assert len({tuple(values) for values in norms}) == 5  # it was training
    fits = attnlaw.fit([trained, steps(trained)[0]], only="qk", jobs=1)
    assert [fit.fits["model"][0] for fit in fits] == [*steps(trained), steps(trained)[0]]


def test_a_base_against_a_series(trained: Path) -> None:
    first, *_ = steps(trained)
    diffs = attnlaw.diff(first, trained, only="qk", jobs=1)
    assert [diff.summary["model"] for diff in diffs] == steps(trained)
    sizes = [diff.largest_size for diff in diffs]
    assert sizes[0] == 0
    assert min(sizes[1:]) > 0


def test_one_line_where_one_model_is_expected(trained: Path) -> None:
    last = steps(trained)[-1]
    line = refusal(trained, f"{trained}: found 5 checkpoints of a training run", "expected one model")
    assert line.endswith(f"such as the last: {last}")
    with pytest.raises(InputError) as from_diff:
        attnlaw.diff(trained, last)
    with pytest.raises(InputError) as from_lens:
        attnlaw.lens(str(trained), ids=[1, 2])
    assert str(from_diff.value) == str(from_lens.value) == line


def test_a_series_in_a_study(trained: Path, tmp_path: Path) -> None:
    study = tmp_path / "study.toml"
    study.write_text(f'verb = "audit"\n[fixed]\nmodel = "{trained}"\n[grid]\nonly = [["qk"], ["vo"]]\n')
    models = [task.case.model for task in read_study(study).tasks]
    assert sorted(models) == sorted(2 * steps(trained))


def test_weights_of_its_own_make_a_folder_one_model(tmp_path: Path) -> None:
    for step in (1, 10, 9):
        (tmp_path / f"checkpoint-{step}").mkdir()
        write_good(tmp_path / f"checkpoint-{step}")
    for name in ("checkpoint-best", "checkpoint-", "tmp-checkpoint-11"):
        (tmp_path / name).mkdir()
    (tmp_path / "checkpoint-12").write_text("a file")
    (tmp_path / "training_args.bin").write_bytes(b"no weights")
    assert [Path(step).name for step in expand_run(str(tmp_path))] == [
        f"checkpoint-{step}" for step in (1, 9, 10)
    ]
    save_file(bert_state(), tmp_path / "model.safetensors")
    config_with(tmp_path)
    assert expand_run(str(tmp_path)) == [str(tmp_path)]
    assert open_model(tmp_path).tensors.source == str(tmp_path / "model.safetensors")
    (tmp_path / "model.safetensors").unlink()
    write_adapter(tmp_path)
    assert expand_run(str(tmp_path)) == [str(tmp_path)]


def test_a_run_that_saved_once_is_its_checkpoint(tmp_path: Path) -> None:
    (tmp_path / "checkpoint-7").mkdir()
    write_good(tmp_path / "checkpoint-7")
    assert single_model_path(tmp_path) == tmp_path / "checkpoint-7"
    assert attnlaw.audit(tmp_path, only="qk", jobs=1).summary["model"] == str(tmp_path / "checkpoint-7")
    refusal(tmp_path / "checkpoint-8", "no such file or directory")


@pytest.mark.parametrize("source", ["owner/name", "absent", "x" * 5000, "a\0b", 3, None, {"a": 1}])
def test_what_is_no_directory_stands_for_itself(source: Any) -> None:
    assert expand_run(source) == [source]
