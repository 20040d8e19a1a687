"""The monitor in a plain loop: its spacing on a given clock, its files, and that training does not notice."""

from __future__ import annotations

import random
import statistics
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import polars as pl
import pytest
import torch

import attnlaw
from attnlaw import audit
from attnlaw.core.errors import InputError
from attnlaw.core.quantity import column_kinds
from attnlaw.core.tables import to_schema
from attnlaw.report import write_report
from attnlaw.training import SpectralMonitor
from attnlaw.training.monitor.columns import PANELS, STEP_MATRICES, STEPS
from attnlaw.training.monitor.spectral_monitor import MARGIN, RECENT
from attnlaw.training.monitor.watchdog import Watchdog

KINDS = {"qk": ["qk"], "vo": ["vo"], "ffn": ["ffn_in", "ffn_out"]}


class TimedEncoder(torch.nn.Module):
    """A small encoder on a clock of its own: training steps and measurements take the seconds they are told.

    A measurement reads the state dict once, which is when its seconds pass.
    """

    def __init__(self, cost: float = 0.0, seed: int = 0) -> None:
        super().__init__()
        torch.manual_seed(seed)
        layer = torch.nn.TransformerEncoderLayer(16, 2, 32, dropout=0.5, batch_first=True)
        self.encoder = torch.nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.now, self.cost = 1000.0, cost
        for number, weight in enumerate(self.parameters()):
            torch.nn.init.normal_(weight, std=0.1 + 0.01 * number)

    def state_dict(self, *args, **options):
        self.now += self.cost
        return super().state_dict(*args, **options)

    def clock(self) -> float:
        return self.now


def run(monitor: SpectralMonitor, model: TimedEncoder, steps: range, seconds: float = 1.0) -> list[int]:
    """The steps that were measured, each step of training taking the given seconds."""
    measured = []
    for step in steps:
        if monitor.step(step) is not None:
            measured.append(step)
        model.now += seconds
    return measured


def stored(folder: Path) -> pl.DataFrame:
    return pl.read_parquet(folder / "steps.parquet").drop("case")


def watch(model: TimedEncoder, folder: Path, **options) -> SpectralMonitor:
    chosen = {"every": 8, "quantities": ["stable_rank"], "max_overhead": 1 / 64, "clock": model.clock}
    return SpectralMonitor(model, folder, **{**chosen, **options})


def test_cheap_measurements_are_made_at_every_due_step(tmp_path):
    model = TimedEncoder(cost=1 / 32)
    assert run(watch(model, tmp_path), model, range(50)) == [0, 8, 16, 24, 32, 40, 48]
    assert stored(tmp_path)["step"].to_list() == [0, 8, 16, 24, 32, 40, 48]


def test_dear_measurements_space_themselves_out(tmp_path):
    # One second each and a 64th of the time: the n-th is affordable once n + 1/4 <= T / 64, at the step T.
    model = TimedEncoder(cost=1.0)
    assert run(watch(model, tmp_path), model, range(330)) == [0, 144, 208, 272]
    rows = stored(tmp_path)
    assert rows["seconds"].to_list() == [1.0] * 4
    assert rows["overhead"].to_list() == [None, 2 / 144, 3 / 208, 4 / 272]


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
def test_the_bound_holds_and_is_used_up(tmp_path, seed):
    """Random costs and step times: never above the bound but by a dearer measurement, never idle below it."""
    rng = np.random.default_rng(seed)
    model = TimedEncoder()
    monitor = watch(model, tmp_path, max_overhead=0.1, every=4)
    spent = training = 0.0
    costs: list[float] = []
    for step in range(300):
        model.cost = cost = float(rng.uniform(0.5, 1.5))
        forecast = MARGIN * max(costs[-RECENT:], default=0.0)
        affordable = not costs or spent + forecast <= 0.1 * training
        taken = monitor.step(step)
        assert (taken is not None) == (step % 4 == 0 and affordable)
        if taken is not None:
            if costs:
                assert spent + cost <= 0.1 * training + max(0.0, cost - forecast) + 1e-9
            spent += cost
            costs.append(cost)
            assert taken.row["seconds"] == pytest.approx(cost, rel=1e-12)
        seconds = float(rng.uniform(0.0, 1.0))
        training += seconds
        model.now += seconds
    assert len(costs) > 5


def test_the_forecast_is_the_largest_recent_cost(tmp_path):
    """Cheap and dear measurements alternate: a forecast from the last one would break the bound each time."""
    model = TimedEncoder(cost=3.0)
    monitor = watch(model, tmp_path, max_overhead=0.1, every=1)
    spent, measured = 0.0, 0
    for step in range(400):
        model.cost = 1.0 if measured % 2 else 3.0
        if monitor.step(step) is not None:
            spent, measured = spent + model.cost, measured + 1
            assert measured == 1 or spent <= 0.1 * step
        model.now += 1.0
    assert 15 <= measured <= 20  # 40 s, of 1 or 3 s each


def test_one_dear_measurement_is_forgotten(tmp_path):
    model = TimedEncoder(cost=10.0)
    monitor = watch(model, tmp_path, max_overhead=0.1, every=1)
    monitor.step(0)
    model.cost = 1.0
    measured = run(monitor, model, range(1, 400))
    assert measured[:3] == [226, 236, 246]  # 10 s spent, and a forecast of 12.5 s
    assert len(measured) == 29  # 10 s and 29 s: the bound is used up


def test_time_without_work_of_the_processor_is_no_training_time(tmp_path):
    """By default the clock is the CPU time of the process: sleeping is no training."""
    monitor = SpectralMonitor(TimedEncoder(), tmp_path, every=1, quantities=["stable_rank"], max_overhead=1.0)
    assert monitor.step(0) is not None
    time.sleep(3.0)
    assert monitor.step(1) is None


@pytest.mark.parametrize(
    "options", [{"rules": "absent.toml"}, {"margins": (1, 2, 3)}, {"heads": 7}, {"layers": 9}]
)
def test_no_directory_exists_after_a_refusal(tmp_path, options):
    with pytest.raises(InputError):
        watch(TimedEncoder(), tmp_path / "new" / "run", **options)
    assert not (tmp_path / "new").exists()


def test_judging_counts_as_measuring(tmp_path, monkeypatch):
    model = TimedEncoder(cost=1.0)
    rule = '[[rule]]\nname = "any"\nof = "steps"\ncolumn = "step"\nis = ">= 0"\n'
    (tmp_path / "rules.toml").write_text(f"version = 1\n{rule}")
    monitor = watch(model, tmp_path / "run", rules=str(tmp_path / "rules.toml"), max_overhead=0.5, every=1)
    judge = Watchdog.judge

    def slowly(self, *given):
        model.now += 9.0
        return judge(self, *given)

    monkeypatch.setattr(Watchdog, "judge", slowly)
    assert run(monitor, model, range(50)) == [
        0,
        45,
    ]  # each costs 10 s; with the margin, 22.5 s may be spent at step 45


def test_steps_are_whole_numbers_of_any_kind(tmp_path):
    model = TimedEncoder()
    monitor = watch(model, tmp_path, every=np.int64(1), max_overhead=1e9)
    for step in (torch.tensor(0), np.int32(1), True, 2):
        assert monitor.step(step).step == int(step)
    assert monitor.measure(torch.tensor(3)).step == 3
    for step in (4.0, torch.tensor(4.0), "4", None, torch.tensor([4, 5])):
        for measure in (monitor.step, monitor.measure):
            with pytest.raises(InputError, match=r"^step is [^\n]*; expected a whole number$"):
                measure(step)
    assert stored(tmp_path)["step"].to_list() == [0, 1, 2, 3]


def test_time_before_the_first_step_is_no_training_time(tmp_path):
    model = TimedEncoder(cost=1.0)
    monitor = watch(model, tmp_path)
    model.now += 1e6
    assert run(monitor, model, range(64)) == [0]


def test_measuring_on_demand_counts(tmp_path):
    model = TimedEncoder(cost=1.0)
    monitor = watch(model, tmp_path)
    assert run(monitor, model, range(1, 5)) == []
    assert monitor.measure(5).step == 5
    assert run(monitor, model, range(5, 120)) == []
    assert stored(tmp_path)["step"].to_list() == [5]


@pytest.mark.slow
def test_rows_are_those_of_an_audit_of_saved_weights(tmp_path):
    model = TimedEncoder()
    with torch.no_grad():
        model.encoder.layers[0].linear2.weight[0] += 2.0  # a direction beyond the noise
    taken = SpectralMonitor(model, tmp_path / "run", name="encoder").step(0)
    torch.save(model.state_dict(), tmp_path / "weights.pt")
    loaded = TimedEncoder(seed=1)
    loaded.load_state_dict(torch.load(tmp_path / "weights.pt"))
    fresh = audit(loaded, jobs=1).for_saving()
    assert stored(tmp_path / "run").schema == to_schema(column_kinds(STEPS))
    (row,) = stored(tmp_path / "run").to_dicts()
    assert row == {name: taken.row.get(name) for name in column_kinds(STEPS)}
    assert (row["step"], row["model"], row["status"]) == (0, "encoder", "done")
    for name in ("spectrum_adaptive", "edelman", "trauger_tewari"):
        assert row[f"log10_{name}"] == fresh.summary["proxies"][name]["log10"]
    places = zip(fresh.matrices.to_dicts(), fresh.fits.to_dicts(), strict=True)
    by_hand = [{**fit, **matrix} for matrix, fit in places]
    for group, kinds in KINDS.items():
        members = [matrix for matrix in by_hand if matrix["kind"] in kinds]
        assert row[f"stable_rank_{group}"] == statistics.median(matrix["stable_rank"] for matrix in members)
        assert row[f"outliers_{group}"] == sum(matrix["outliers"] for matrix in members)
        # The tails of many spectra are fitted at once here and one by one there: sums in another order.
        alphas = [matrix["alpha"] for matrix in members]
        assert row[f"alpha_{group}"] == pytest.approx(statistics.median(alphas), rel=1e-12)
    for kind in ("qk", "vo"):
        excesses = [matrix["factor_excess"] for matrix in by_hand if matrix["kind"] == kind]
        assert row[f"factor_excess_{kind}"] == statistics.median(excesses) > 0
    assert row["outliers_ffn"] > 0
    assert row["overhead"] is None  # there was no training yet
    assert row["stable_rank_cross"] is row["alpha_cross"] is row["outliers_cross"] is None

    matrices = pl.read_parquet(tmp_path / "run" / "step_matrices.parquet").drop("case")
    assert matrices.schema == to_schema(column_kinds(STEP_MATRICES))
    same = ("layer", "head", "kind", "spectral_norm", "stable_rank", "log10_contribution", "outliers")
    for name in (*same, "factor_excess", "factor_imbalance"):
        assert matrices[name].to_list() == [matrix[name] for matrix in by_hand]


def test_outliers_of_heads_of_low_rank_are_missing(tmp_path):
    """Rank one of eight in the first layer: round-off is no noise, what is beyond it no outlier."""
    model = TimedEncoder()
    with torch.no_grad():
        model.encoder.layers[0].self_attn.in_proj_weight[:16] = torch.arange(16.0)  # all queries are one
    SpectralMonitor(model, tmp_path, quantities=["outliers"]).step(0)
    matrices = pl.read_parquet(tmp_path / "step_matrices.parquet").filter(kind="qk")
    assert matrices.select("layer", pl.col("outliers").is_null()).rows() == [(0, True)] * 2 + [(1, False)] * 2


def test_only_the_chosen_quantities_are_there(tmp_path):
    model = TimedEncoder()
    columns = ("log10_contribution", "stable_rank", "outliers", "alpha", "factor_excess", "factor_imbalance")
    for quantity in ("proxies", *columns[1:], "scores", "means"):
        row = SpectralMonitor(model, tmp_path / quantity, quantities=[quantity]).step(0).row
        prefix = {"proxies": "log10"}.get(quantity, quantity)
        named = {name for panel in PANELS.values() for name in panel}
        known = {name for name, value in row.items() if value is not None and name in named}
        assert known
        several = {
            "scores": ("score_spread_qk", "logit_bound"),
            "factor_imbalance": ("factor_imbalance_kept_", "factor_difference_kept_"),
            "means": ("mean_", "frobenius_"),
        }
        prefixes = several.get(quantity, f"{prefix}_")
        assert all(name.startswith(prefixes) for name in known)
        matrices = pl.read_parquet(tmp_path / quantity / "step_matrices.parquet")
        column = {"proxies": "log10_contribution"}.get(quantity, quantity)
        for name in columns:
            assert (matrices[name].count() > 0) == (name == column)


def test_a_selection_has_no_proxies_and_says_so(tmp_path):
    row = SpectralMonitor(TimedEncoder(), tmp_path, only="qk").step(0).row
    assert row.get("log10_spectrum_adaptive") is None
    assert row["remark"].startswith("no proxies")
    assert row["stable_rank_vo"] is None
    assert row["stable_rank_qk"] > 0


def trained_losses(model: TimedEncoder, monitor: SpectralMonitor | None) -> list[float]:
    """Losses of a few steps with dropout and data drawn from torch's and numpy's global generators."""
    torch.manual_seed(5)
    np.random.seed(5)  # noqa: NPY002
    random.seed(5)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    losses = []
    for step in range(6):
        inputs = torch.randn(2, 5, 16) + float(np.random.normal()) + random.random()  # noqa: NPY002
        loss = model.encoder(inputs).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
        if monitor is not None:
            monitor.step(step)
    return losses


def test_training_is_the_same_to_the_bit(tmp_path):
    watched, alone = TimedEncoder(), TimedEncoder()
    monitor = SpectralMonitor(watched, tmp_path, every=2, max_overhead=1e9)
    assert trained_losses(watched, monitor) == trained_losses(alone, None)
    assert stored(tmp_path)["step"].to_list() == [0, 2, 4]
    for mine, theirs in zip(watched.parameters(), alone.parameters(), strict=True):
        assert torch.equal(mine, theirs)


@pytest.mark.parametrize("training", [True, False])
def test_the_model_is_left_as_it_was(tmp_path, training):
    model = TimedEncoder().train(training)
    model.encoder(torch.randn(2, 5, 16)).square().mean().backward()
    before = {
        name: (weight.clone(), weight.grad.clone(), weight.requires_grad, weight._version)
        for name, weight in model.named_parameters()
    }
    threads, state = torch.get_num_threads(), torch.get_rng_state()
    numpy_state = np.random.get_state()  # noqa: NPY002
    with torch.enable_grad():
        assert SpectralMonitor(model, tmp_path).step(0) is not None
        assert torch.is_grad_enabled()
    for name, weight in model.named_parameters():
        value, gradient, requires, version = before[name]
        assert torch.equal(weight, value)
        assert torch.equal(weight.grad, gradient)
        assert (weight.requires_grad, weight._version) == (requires, version)
    assert all(part.training == training for part in model.modules())
    assert torch.get_num_threads() == threads
    assert torch.equal(torch.get_rng_state(), state)
    assert all(np.array_equal(a, b) for a, b in zip(np.random.get_state(), numpy_state, strict=True))  # noqa: NPY002


def test_a_resumed_run_keeps_earlier_rows_and_doubles_none(tmp_path):
    model = TimedEncoder()
    run(watch(model, tmp_path), model, range(41))
    first, matrices = stored(tmp_path), pl.read_parquet(tmp_path / "step_matrices.parquet")
    with torch.no_grad():
        model.encoder.layers[0].linear1.weight.add_(torch.eye(32, 16))
    # Killed after step 40, resumed from a checkpoint at step 20: the rows of 24 to 40 are of lost weights.
    run(watch(model, tmp_path, quantities=["stable_rank", "proxies"]), model, range(21, 30))
    resumed = stored(tmp_path)
    assert resumed["step"].to_list() == [0, 8, 16, 24]
    assert resumed.head(3).equals(first.head(3))
    assert resumed["log10_edelman"].is_not_null().to_list() == [False, False, False, True]
    again = pl.read_parquet(tmp_path / "step_matrices.parquet")
    count = matrices.filter(step=0).height
    assert again["step"].to_list() == [step for step in (0, 8, 16, 24) for _ in range(count)]
    assert again.filter(pl.col("step") < 24).equals(matrices.filter(pl.col("step") < 24))
    changed = again.filter(step=24)["stable_rank"] != matrices.filter(step=24)["stable_rank"]
    assert again.filter(step=24).filter(changed).select("layer", "kind").rows() == [(0, "ffn_in")]


def test_a_measurement_out_of_order_leaves_the_others(tmp_path):
    model = TimedEncoder()
    run(watch(model, tmp_path), model, range(41))
    monitor = watch(model, tmp_path)
    for step in (16, 30, 50, 20, 50):  # steps 16, 24, 32 and 40 of the run before are left behind, once
        monitor.measure(step)
    assert stored(tmp_path)["step"].to_list() == [0, 8, 16, 30, 20, 50]
    assert set(pl.read_parquet(tmp_path / "step_matrices.parquet")["step"]) == {0, 8, 16, 20, 30, 50}
    monitor.measure(4)
    assert sorted(stored(tmp_path)["step"]) == [0, 4, 8, 16, 20, 30, 50]


def test_two_models_share_a_directory(tmp_path):
    model, other = TimedEncoder(), TimedEncoder(seed=1)
    monitors = [watch(model, tmp_path, name="student"), watch(other, tmp_path, name="teacher")]
    for step in range(0, 17, 8):
        for monitor in monitors:
            monitor.step(step)
    assert sorted(stored(tmp_path).select("model", "step").rows()) == [
        (name, step) for name in ("student", "teacher") for step in (0, 8, 16)
    ]


OTHER_PROCESS = """
import sys, time
from pathlib import Path
import torch
from attnlaw.training import SpectralMonitor

folder = Path(sys.argv[1])
model = torch.nn.TransformerEncoderLayer(16, 2, 32)
monitor = SpectralMonitor(
    model, folder / "run", every=1, quantities=["stable_rank"], max_overhead=1e9, name="other"
)
(folder / "ready").touch()
while not (folder / "go").exists():
    time.sleep(0.001)
for step in range(15):
    monitor.step(step)
"""


@pytest.mark.slow
def test_two_processes_share_a_directory(tmp_path):
    other = subprocess.Popen([sys.executable, "-c", OTHER_PROCESS, str(tmp_path)])
    monitor = watch(TimedEncoder(), tmp_path / "run", every=1, max_overhead=1e9, name="own")
    while not (tmp_path / "ready").exists():
        assert other.poll() is None
        time.sleep(0.001)
    (tmp_path / "go").touch()
    step = 0
    while step < 15 or other.poll() is None:
        monitor.measure(step)
        step += 1
    assert other.returncode == 0
    expected = [("other", count) for count in range(15)] + [("own", count) for count in range(step)]
    assert sorted(stored(tmp_path / "run").select("model", "step").rows()) == expected
    matrices = pl.read_parquet(tmp_path / "run" / "step_matrices.parquet")
    assert sorted(matrices.select("model", "step").unique().rows()) == expected


def test_a_directory_that_cannot_be_locked_is_told_before_training(tmp_path):
    (tmp_path / "steps.lock").mkdir()
    with pytest.raises(InputError, match=r"steps\.lock: cannot be locked \(Is a directory\)"):
        watch(TimedEncoder(), tmp_path)


FILES = [
    *("attnlaw.json", "rows.parquet"),
    *("step_matrices.parquet", "step_modes.parquet", "steps.lock", "steps.parquet"),
]


def test_an_interrupted_write_loses_nothing(tmp_path, monkeypatch):
    model = TimedEncoder()
    monitor = watch(model, tmp_path)
    monitor.step(0)
    whole = stored(tmp_path)
    failures = [
        (Path, "write_bytes", OSError(28, "No space left on device"), "No space left on device"),
        (pl.DataFrame, "write_parquet", pl.exceptions.ComputeError("disk"), "disk"),
    ]
    for owner, method, failure, message in failures:

        def full(self, target, failure=failure):
            if isinstance(self, Path):
                with self.open("wb") as file:
                    file.write(b"PAR1 half a file")
            raise failure

        with monkeypatch.context() as patched:
            patched.setattr(owner, method, full)
            with pytest.warns(UserWarning, match=f"{message}.*keeps these rows in memory"):
                monitor.step(8)
        assert stored(tmp_path).equals(whole)
        assert sorted(path.name for path in tmp_path.iterdir()) == FILES

    def killed(self, target):
        raise KeyboardInterrupt

    monkeypatch.setattr(Path, "write_bytes", killed)
    with pytest.raises(KeyboardInterrupt):
        monitor.step(16)
    monkeypatch.undo()
    assert stored(tmp_path).equals(whole)
    monitor.step(24)
    assert stored(tmp_path)["step"].to_list() == [0, 8, 16, 24]
    assert set(pl.read_parquet(tmp_path / "step_matrices.parquet")["step"]) == {0, 8, 16, 24}


@pytest.mark.parametrize("files", range(5))
def test_a_run_that_is_killed_between_two_files_goes_on(tmp_path, monkeypatch, files):
    """Killed after so many of the five files were replaced: in the first measurement, and in a later one."""
    for folder, first in ((tmp_path / "first", 0), (tmp_path / "later", 8)):
        other = TimedEncoder()
        run(watch(other, folder, name="other", max_overhead=1e9), other, range(first))
        monitor, replaced = watch(TimedEncoder(), folder, name="own"), []

        def replace(self, target, replaced=replaced, rename=Path.rename):
            if len(replaced) == files:
                raise KeyboardInterrupt
            replaced.append(target)
            return rename(self, target)

        with monkeypatch.context() as patched:
            patched.setattr(Path, "replace", replace)
            with pytest.raises(KeyboardInterrupt):
                monitor.step(0)
        watch(TimedEncoder(), folder, name="own").step(0)
        result = attnlaw.load(folder)
        assert result.rows["model"].to_list() == ["other", "own"][0 if first else 1 :]
        assert result.tables["steps"]["step"].to_list() == [0] * len(result)


def test_other_processes_do_nothing(tmp_path, monkeypatch):
    monkeypatch.setenv("RANK", "1")
    monitor = SpectralMonitor(TimedEncoder(), tmp_path / "run")
    assert monitor.step(0) is None
    assert monitor.measure(0) is None
    assert not (tmp_path / "run").exists()
    monkeypatch.setenv("RANK", "0")
    assert SpectralMonitor(TimedEncoder(), tmp_path / "run").step(0) is not None


def test_diverged_weights_are_a_row_that_says_so(tmp_path):
    model = TimedEncoder()
    monitor = watch(model, tmp_path, max_overhead=1e9)
    run(monitor, model, range(1))
    with torch.no_grad():
        model.encoder.layers[1].linear2.weight[0, 0] = float("nan")
    assert run(monitor, model, range(8, 9)) == [8]
    last = stored(tmp_path).to_dicts()[-1]
    assert last["status"] == "failed"
    assert "linear2" in last["remark"]
    assert all(last[f"stable_rank_{group}"] is None for group in KINDS)
    # Also where no weights could be measured before, as in a resumed process.
    resumed = watch(model, tmp_path, max_overhead=1e9)
    assert run(resumed, model, range(16, 17)) == [16]
    rows = stored(tmp_path)
    assert rows["step"].to_list() == [0, 8, 16]
    assert ["linear2" in (remark or "") for remark in rows["remark"]] == [False, True, True]
    with torch.no_grad():
        model.encoder.layers[1].linear2.weight[0, 0] = 0.0
    assert resumed.measure(17).row["status"] == "done"


def test_wrapped_modules_are_unwrapped(tmp_path):
    model = TimedEncoder()
    plain = SpectralMonitor(model, tmp_path / "plain").step(0)
    wrapped = SpectralMonitor(torch.nn.DataParallel(model), tmp_path / "wrapped").step(0)
    assert wrapped.matrices.equals(plain.matrices)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"every": 0}, "every: found 0, expected a whole number of at least 1"),
        ({"every": 2.5}, "every is 2.5; expected a whole number"),
        ({"max_overhead": 0.0}, "max_overhead: found 0, expected a number above 0"),
        ({"max_overhead": float("nan")}, "max_overhead: found nan"),
        ({"quantities": ["norms"]}, "quantities: found 'norms', expected some of proxies, stable_rank"),
        ({"quantities": []}, "quantities: found "),
        ({"layers": "9"}, "layers: found .*9.*, selects none of the 2 layers"),
        ({"only": "foo"}, "only: found 'foo'"),
        ({"only": "cross"}, "has no matrices of kind cross"),
        ({"jobs": 0}, "jobs: found 0"),
        ({"colour": "red"}, "colour is not a setting of SpectralMonitor"),
    ],
)
def test_bad_options_are_told_before_training(tmp_path, options, message):
    with pytest.raises(InputError, match=message):
        SpectralMonitor(TimedEncoder(), tmp_path, **options)


def test_options_are_given_by_name(tmp_path):
    with pytest.raises(TypeError, match="positional argument"):
        SpectralMonitor(TimedEncoder(), tmp_path, 10)


def test_bad_models_and_directories_are_told_before_training(tmp_path):
    with pytest.raises(InputError, match="found a dict, expected a torch"):
        SpectralMonitor({}, tmp_path)
    with pytest.raises(InputError, match="Linear"):
        SpectralMonitor(torch.nn.Linear(4, 4), tmp_path)
    split = TimedEncoder()
    next(split.parameters()).ds_id = 0  # as ZeRO-3 marks the weights that it splits
    with pytest.raises(InputError, match="split among several processes"):
        SpectralMonitor(split, tmp_path)
    pl.DataFrame({"model": ["a"]}).write_parquet(tmp_path / "steps.parquet")
    with pytest.raises(InputError, match=r"has steps that attnlaw 0\.2 or earlier wrote; give"):
        SpectralMonitor(TimedEncoder(), tmp_path)
    SpectralMonitor(TimedEncoder(), tmp_path / "run").step(0)
    pl.DataFrame({"model": ["a"]}).write_parquet(tmp_path / "run" / "steps.parquet")
    with pytest.raises(InputError, match="found no column"):
        SpectralMonitor(TimedEncoder(), tmp_path / "run")
    (tmp_path / "run" / "steps.parquet").write_text("not a table")
    with pytest.raises(InputError, match=r"steps\.parquet: cannot be read"):
        SpectralMonitor(TimedEncoder(), tmp_path / "run")
    (tmp_path / "run" / "attnlaw.json").write_text('{"verb": "audit"}')
    with pytest.raises(
        InputError, match="has files that were not written by a monitor; give the monitor another directory"
    ):
        SpectralMonitor(TimedEncoder(), tmp_path / "run")


def test_a_run_is_a_result_with_a_case_for_each_model(tmp_path):
    for seed, name in enumerate(("student", "teacher")):
        model = TimedEncoder(seed=seed)
        run(watch(model, tmp_path, name=name, max_overhead=1e9), model, range(9 + 8 * seed))
    result = attnlaw.load(tmp_path)
    assert (result.verb.name, len(result)) == ("monitor", 2)
    assert result.rows.select("model", "every", "measured_steps", "last_step").rows() == [
        ("student", 8, 2, 8),
        ("teacher", 8, 3, 16),
    ]
    assert result[1].steps["step"].to_list() == [0, 8, 16]
    assert set(result[0].step_matrices["model"]) == {"student"}
    assert result.steps["case"].to_list() == [0, 0, 1, 1, 1]
    assert "median stable rank" in str(result.plot().to_dict())
    run(watch(TimedEncoder(), tmp_path, name="student", max_overhead=1e9), TimedEncoder(), range(24, 25))
    again = attnlaw.load(tmp_path)
    assert again.rows["measured_steps"].to_list() == [3, 3]
    assert again[1].steps.equals(result[1].steps)
    with pytest.raises(InputError, match=r"use attnlaw\.training\.SpectralMonitor in its loop"):
        result.verb(TimedEncoder())


def test_the_report_draws_the_run(tmp_path):
    model = TimedEncoder()
    run(watch(model, tmp_path, quantities=["proxies", "alpha"], max_overhead=1e9), model, range(17))
    page = write_report([tmp_path]).read_text(encoding="utf-8")
    assert {title for title in PANELS if title in page} == {"proxy (log₁₀)", "median tail exponent (α)"}
    named = [name for panel in PANELS.values() for name in panel]
    assert [name for name in column_kinds(STEPS) if name in named] == named


def test_a_directory_with_a_name_like_a_pattern_has_rows_of_its_own(tmp_path):
    """Rows of `run1` do not get into `run[1]`."""
    for name, steps in (("run1", range(4)), ("run[1]", range(8, 12)), ("run[1]", range(20, 22))):
        model = TimedEncoder()
        monitor = SpectralMonitor(
            model, tmp_path / name, every=1, quantities=["stable_rank"], max_overhead=10.0, clock=model.clock
        )
        assert run(monitor, model, steps) == list(steps)
    rows = pl.read_parquet(tmp_path / "run[1]" / "steps.parquet", glob=False)
    assert rows["step"].to_list() == [8, 9, 10, 11, 20, 21]
    assert stored(tmp_path / "run1")["step"].to_list() == [0, 1, 2, 3]
