"""Rules over a training run: a warning or its end, after the row of the step is written."""

from __future__ import annotations

import pickle
import statistics
import warnings
from itertools import pairwise

import numpy as np
import polars as pl
import pytest
import torch

from attnlaw.core.errors import BadSetting, BadUsage
from attnlaw.theory.bounds.logits import SLACK
from attnlaw.training import GateFailed, SpectralMonitor

RULES = """version = 1
[[rule]]
name = "grown"
of = "steps"
column = "stable_rank_ffn"
is = "{test}"
against = "first"
"""

FALLING = RULES.format(test="> -0.5")


def block(seed: int = 0) -> torch.nn.Module:
    torch.manual_seed(seed)
    return torch.nn.TransformerEncoderLayer(16, 2, 32)


def collapse(model: torch.nn.Module) -> None:
    """A feed-forward block of which one direction is left: its stable ranks fall to 1."""
    with torch.no_grad():
        for layer in (model.linear1, model.linear2):
            layer.weight[1:] = 0


def watch(model, folder, text=FALLING, **options):
    path = folder / "rules.toml"
    path.write_text(text)
    chosen = {"every": 2, "quantities": ["stable_rank"], "max_overhead": 1e9, "rules": path}
    return SpectralMonitor(model, folder / "run", **(chosen | options))


def steps(folder) -> list[int]:
    return pl.read_parquet(folder / "run" / "steps.parquet")["step"].to_list()


def test_a_rule_that_holds_says_nothing(tmp_path):
    monitor = watch(block(), tmp_path)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        taken = [monitor.step(step) for step in range(4)]
    assert taken[1] is taken[3] is None
    assert [taken[step].verdicts.passed for step in (0, 2)] == [True, True]


def test_a_rule_that_does_not_hold_warns_at_every_measured_step(tmp_path):
    model = block()
    monitor = watch(model, tmp_path)
    monitor.step(0)
    collapse(model)
    for step in (2, 4):
        message = rf"step {step}: rule grown failed: -0\.\d+, "
        with pytest.warns(UserWarning, match=message):
            taken = monitor.step(step)
        assert taken.verdicts.status == 3
    assert steps(tmp_path) == [0, 2, 4]


def test_the_end_of_a_run_comes_after_its_row(tmp_path):
    model = block()
    monitor = watch(model, tmp_path, on_fail="stop")
    monitor.step(0)
    collapse(model)
    with pytest.raises(GateFailed, match="step 2: rule grown failed: ") as stopped:
        monitor.step(2)
    assert steps(tmp_path) == [0, 2]
    assert stopped.value.verdicts.status == 3
    assert stopped.value.snapshot.step == 2
    assert str(pickle.loads(pickle.dumps(stopped.value))) == str(stopped.value)


def test_a_lower_level_never_stops(tmp_path):
    for level, warned in (("warning", True), ("note", False), ("off", False)):
        model = block()
        other = '[[rule]]\nname = "other"\nof = "steps"\ncolumn = "step"\nis = ">= 0"\n'
        text = FALLING + f'level = "{level}"\n' + other
        monitor = watch(model, tmp_path, text, on_fail="stop", name=level)
        monitor.step(0)
        collapse(model)
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            monitor.step(2)
        assert bool(said) is warned


def test_a_run_that_resumes_compares_with_its_own_first_step(tmp_path):
    model = block()
    watch(model, tmp_path).step(0)
    watch(model, tmp_path).step(6)  # is left by the run that resumes at step 4
    collapse(model)
    monitor = watch(model, tmp_path, on_fail="stop")
    with pytest.raises(GateFailed):
        monitor.step(4)
    assert steps(tmp_path) == [0, 4]


def test_a_number_over_all_rows(tmp_path):
    text = RULES.replace('against = "first"\n', 'over = "max"\n').format(test="< 100")
    counting = text.replace('"max"', '"count"').replace("< 100", "< 3").replace("grown", "many")
    model = block()
    monitor = watch(model, tmp_path, text + counting.removeprefix("version = 1\n"), on_fail="stop")
    monitor.step(0)
    monitor.step(2)
    with pytest.raises(GateFailed, match="many failed: found 3, expected count of stable_rank_ffn < 3"):
        monitor.step(4)


def test_weights_that_diverge_fail_every_rule(tmp_path):
    model = block()
    monitor = watch(model, tmp_path, on_fail="stop")
    monitor.step(0)
    with torch.no_grad():
        model.linear1.weight[0, 0] = torch.nan
    with pytest.raises(GateFailed, match="failed: no value"):
        monitor.step(2)
    assert steps(tmp_path) == [0, 2]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("version = 1\n", 'has no rule about steps; add one with of = "steps"'),
        (
            'version = 1\nbase = "a/b"\n' + RULES.partition("\n")[2],
            "base works only in attnlaw check",
        ),
        ('version = 1\n[findings]\nignore = ["x"]\n', "only attnlaw check can use the section"),
        (RULES.replace("steps", "matrices"), "but attnlaw has no such table here; expected one of steps"),
        (
            RULES.replace("stable_rank_ffn", "stable_rank"),
            "unknown column stable_rank in table steps; did you mean",
        ),
        (
            RULES.replace("first", "baseline"),
            'but the steps of a training run have no baseline; write "first"',
        ),
    ],
)
def test_a_bad_rule_file_is_told_before_training(tmp_path, text, message):
    with pytest.raises(BadUsage, match=message):
        watch(block(), tmp_path, text.format(test="< 1") if "{test}" in text else text)


def test_what_stops_needs_rules(tmp_path):
    with pytest.raises(BadSetting, match="on_fail needs rules"):
        SpectralMonitor(block(), tmp_path, on_fail="stop")
    with pytest.raises(BadSetting, match="expected one of warn, stop"):
        watch(block(), tmp_path, on_fail="panic")


# The example that comes with attnlaw
WATCHDOG = {
    "quantities": ["scores"],
    "rules": "watchdog",
    "on_fail": "stop",
    "every": 1,
    "max_overhead": 1e9,
}


def encoder(lively: bool = True) -> torch.nn.Module:
    """Three layers, with gains of norms unlike one where they are `lively`."""
    torch.manual_seed(0)
    layer = torch.nn.TransformerEncoderLayer(16, 2, 32, dropout=0.0, batch_first=True)
    model = torch.nn.TransformerEncoder(layer, 3, enable_nested_tensor=False)
    for encoder_layer in model.layers:
        torch.nn.init.xavier_uniform_(encoder_layer.self_attn.in_proj_weight)
        if lively:
            torch.nn.init.uniform_(encoder_layer.norm2.weight, 0.5, 2.0)
    return model


def dense_scores(model: torch.nn.Module) -> tuple[float, float]:
    """The median spread and the largest bound, from whole matrices: c C diag(g) Wq^T Wk diag(g) C.

    Layer 0 reads what is given, which no norm bounds; the others what the norm behind the layer before makes.
    """
    spreads, bounds = [], []
    for before, layer in pairwise(model.layers):
        queries, keys = layer.self_attn.in_proj_weight.detach().double().numpy()[:32].reshape(2, 2, 8, 16)
        fold = (np.eye(16) - 1 / 16) @ np.diag(before.norm2.weight.detach().double().numpy())
        for query, key in zip(queries, keys, strict=True):
            scores = fold @ query.T @ key @ fold.T / np.sqrt(8)
            spreads.append(np.linalg.norm(scores) * 16 / 15)
            bounds.append(16 * np.linalg.norm(scores, 2) * (1 + SLACK))
    return statistics.median(spreads), max(bounds)


def test_scores_are_those_of_whole_matrices(tmp_path):
    model = encoder()
    row = SpectralMonitor(model, tmp_path, quantities=["scores"]).step(0).row
    # Sums of 256 products of float64, in another order.
    assert (row["score_spread_qk"], row["logit_bound"]) == pytest.approx(dense_scores(model), rel=1e-12)
    unbounded = "attnlaw has no bound for the logits of layer 0: there is no norm layer before this layer"
    assert row["remark"] == unbounded


def test_the_watchdog_by_its_numbers(tmp_path):
    model = encoder()
    monitor = SpectralMonitor(model, tmp_path, **WATCHDOG)
    monitor.step(0)
    grown = 1.0
    for step, factor in ((1, 19.9), (2, 20.1)):
        with torch.no_grad():  # queries alone: spread and bound grow by the factor
            for layer in model.layers:
                layer.self_attn.in_proj_weight[:16] *= factor / grown
        grown = factor
        if step == 1:
            verdicts = {rule.rule: rule for rule in monitor.step(step).verdicts.rules}
            assert verdicts["scores"].value == pytest.approx(18.9, rel=1e-6)
        else:
            with pytest.raises(GateFailed, match=r"step 2: rule scores failed: 19\.1"):
                monitor.step(step)


@pytest.mark.parametrize(("rate", "stopped"), [(1e-3, False), (0.3, True)])
def test_the_watchdog_over_runs(tmp_path, rate, stopped):
    """Tokens to be reversed: at one rate a run learns, at the other its scores explode."""
    model = encoder(lively=False)
    generator = torch.Generator().manual_seed(1)
    read, readout = torch.nn.Embedding(8, 16), torch.nn.Linear(16, 8)
    locations = torch.randn(6, 16, generator=generator) / 4
    optimizer = torch.optim.AdamW([*model.parameters(), *read.parameters(), *readout.parameters()], lr=rate)
    monitor = SpectralMonitor(model, tmp_path, **(WATCHDOG | {"every": 10}))
    losses = []

    def train() -> None:
        for step in range(41):
            monitor.step(step)
            tokens = torch.randint(0, 8, (32, 6), generator=generator)
            loss = torch.nn.functional.cross_entropy(
                readout(model(read(tokens) + locations)).flatten(0, 1), tokens.flip(1).flatten()
            )
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())

    if stopped:
        with pytest.raises(GateFailed):
            train()
    else:
        train()
        assert losses[-1] < losses[0]
