"""The monitor in a Hugging Face Trainer: TensorBoard's event file, saved checkpoints, resuming."""

from __future__ import annotations

import contextlib
import shutil
import statistics
from pathlib import Path
from typing import Any

import polars as pl
import pytest
import torch
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments

from attnlaw import audit
from attnlaw.training import monitor_trainer
from attnlaw.training.callback import stop_everywhere

pytestmark = pytest.mark.slow

KINDS = {"qk": ["qk"], "vo": ["vo"], "ffn": ["ffn_in", "ffn_out"]}
STEPS = 6


def sequences() -> list[dict[str, torch.Tensor]]:
    """Tokens that count upwards from a random start."""
    starts = torch.randint(0, 16, (24,), generator=torch.Generator().manual_seed(1))
    tokens = [(start + torch.arange(8)) % 16 for start in starts]
    return [{"input_ids": row, "labels": row} for row in tokens]


def tiny_gpt2() -> GPT2LMHeadModel:
    """With dropout, so that training depends on every random number drawn."""
    torch.manual_seed(0)
    sizes = {"vocab_size": 16, "n_positions": 8, "n_embd": 16, "n_layer": 2, "n_head": 2}
    return GPT2LMHeadModel(GPT2Config(**sizes, resid_pdrop=0.3, bos_token_id=0, eos_token_id=0))


def build(folder: Path, **changes: Any) -> Trainer:
    arguments: dict[str, Any] = {
        "output_dir": str(folder),
        "max_steps": STEPS,
        "per_device_train_batch_size": 4,
        "learning_rate": 1e-2,
        "logging_steps": 1,
        "save_steps": 2,
        "report_to": "none",
        "disable_tqdm": True,
        "use_cpu": True,
        "seed": 3,
    }
    return Trainer(
        model=tiny_gpt2(), args=TrainingArguments(**(arguments | changes)), train_dataset=sequences()
    )


def losses(trainer: Trainer) -> dict[int, float]:
    return {entry["step"]: entry["loss"] for entry in trainer.state.log_history if "loss" in entry}


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> tuple[Trainer, Path]:
    """A monitored run: checkpoints beside the monitor's rows and TensorBoard's events."""
    folder = tmp_path_factory.mktemp("run")
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("TENSORBOARD_LOGGING_DIR", str(folder / "events"))
        trainer = build(folder, report_to="tensorboard")
        monitor_trainer(trainer, folder / "spectra", every=2, max_overhead=1e9, name="tiny")
        trainer.train()
    return trainer, folder


def test_rows_equal_a_fresh_audit_of_each_saved_checkpoint(run):
    _, folder = run
    rows = {row["step"]: row for row in pl.read_parquet(folder / "spectra" / "steps.parquet").to_dicts()}
    assert list(rows) == [0, 2, 4, 6]
    for step in (2, 4, 6):
        fresh = audit(folder / f"checkpoint-{step}").for_saving()
        for name in ("spectrum_adaptive", "edelman", "trauger_tewari"):
            assert rows[step][f"log10_{name}"] == fresh.summary["proxies"][name]["log10"]
        for group, kinds in KINDS.items():
            norms = fresh.matrices.filter(pl.col("kind").is_in(kinds))
            fits = fresh.fits.filter(pl.col("kind").is_in(kinds))
            assert rows[step][f"stable_rank_{group}"] == statistics.median(norms["stable_rank"])
            assert rows[step][f"outliers_{group}"] == sum(fits["outliers"])
            # Tails are fitted many at once here and one by one there: sums in another order.
            alpha = statistics.median(fits["alpha"])
            assert rows[step][f"alpha_{group}"] == pytest.approx(alpha, rel=1e-12)
    proxies = [row["log10_spectrum_adaptive"] for row in rows.values()]
    assert len(set(proxies)) == 4


def test_tensorboard_receives_the_rows(run):
    _, folder = run
    events = EventAccumulator(str(folder / "events")).Reload()
    rows = pl.read_parquet(folder / "spectra" / "steps.parquet")
    logged = {tag.removeprefix("train/spectra/") for tag in events.Tags()["scalars"] if "spectra/" in tag}
    known = {name for name in rows.columns if rows[name].dtype.is_numeric() and rows[name].count()}
    assert logged == known - {"step", "case"}
    assert {"log10_spectrum_adaptive", "stable_rank_qk", "outliers_ffn", "alpha_vo"} <= logged
    for name in logged:
        expected = rows.select("step", name).drop_nulls().rows()
        scalars = [(event.step, event.value) for event in events.Scalars(f"train/spectra/{name}")]
        assert [step for step, _ in scalars] == [step for step, _ in expected]
        for (_, value), (_, stored) in zip(scalars, expected, strict=True):
            assert value == pytest.approx(stored, rel=2**-24, abs=1e-37)  # events hold float32


def test_the_trainer_logs_and_learns_as_it_would_alone(run, tmp_path):
    trainer, _ = run
    alone = build(tmp_path, save_strategy="no")
    alone.train()
    assert list(losses(alone)) == list(range(1, STEPS + 1))
    assert losses(trainer) == losses(alone)
    for mine, theirs in zip(trainer.model.parameters(), alone.model.parameters(), strict=True):
        assert torch.equal(mine, theirs)


def test_a_resumed_trainer_continues_the_rows(run, tmp_path):
    _, folder = run
    before = pl.read_parquet(folder / "spectra" / "steps.parquet")
    for name in ("attnlaw.json", "rows.parquet"):
        shutil.copy(folder / "spectra" / name, tmp_path)
    for name in ("steps", "step_matrices", "step_modes"):
        rows = pl.read_parquet(folder / "spectra" / f"{name}.parquet")
        rows.filter(pl.col("step") <= 4).write_parquet(tmp_path / f"{name}.parquet")
    resumed = build(tmp_path / "again", save_strategy="no")
    callback = monitor_trainer(resumed, tmp_path, every=2, max_overhead=1e9, name="tiny")
    resumed.train(resume_from_checkpoint=str(folder / "checkpoint-4"))
    rows = pl.read_parquet(tmp_path / "steps.parquet")
    assert rows["step"].to_list() == [0, 2, 4, 6]
    timed = ["seconds", "overhead"]
    assert rows.drop(timed).equals(before.drop(timed))  # step 4 was measured again, from its checkpoint
    assert callback.monitor.model is resumed.model


def test_a_model_made_anew_is_the_one_that_is_watched(tmp_path):
    trainer = build(tmp_path, save_strategy="no", max_steps=2)
    trainer.model_init = tiny_gpt2
    callback = monitor_trainer(trainer, tmp_path / "spectra", every=2, quantities=["stable_rank"])
    first = trainer.model
    trainer.train()
    assert trainer.model is not first
    assert callback.monitor.model is trainer.model


@pytest.mark.parametrize("on_fail", ["warn", "stop"])
def test_rules_that_do_not_hold_end_the_training(tmp_path, on_fail):
    rules = tmp_path / "rules.toml"
    rules.write_text('version = 1\n[[rule]]\nname = "early"\nof = "steps"\ncolumn = "step"\nis = "< 2"\n')
    trainer = build(tmp_path, save_strategy="no")
    watched = {
        "every": 2,
        "max_overhead": 1e9,
        "quantities": ["stable_rank"],
        "rules": rules,
        "on_fail": on_fail,
    }
    callback = monitor_trainer(trainer, tmp_path / "spectra", **watched)
    stops = on_fail == "stop"
    with contextlib.nullcontext() if stops else pytest.warns(UserWarning, match="step 6: rule early failed"):
        trainer.train()
    assert trainer.state.global_step == (2 if stops else STEPS)
    assert (callback.failed is not None) is stops
    steps = pl.read_parquet(tmp_path / "spectra" / "steps.parquet")["step"].to_list()
    assert steps == ([0, 2] if stops else [0, 2, 4, 6])
    assert any("spectra/stable_rank_qk" in entry for entry in trainer.state.log_history if entry["step"] == 2)


def test_all_processes_stop_with_the_first(tmp_path):
    assert stop_everywhere(True, "cpu")
    torch.distributed.init_process_group("gloo", f"file://{tmp_path / 'store'}", rank=0, world_size=1)
    try:
        assert stop_everywhere(True, "cpu")
        assert not stop_everywhere(False, "cpu")
    finally:
        torch.distributed.destroy_process_group()
