"""The ranking study: its arithmetic by second routes, its tasks and training."""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict, replace
from itertools import combinations
from math import sqrt

import numpy as np
import polars as pl
import pytest
from scipy.stats import kendalltau

pytestmark = pytest.mark.slow

torch = pytest.importorskip("torch")

FACTORS = ("n", "decay", "width", "depth", "rate", "noise", "dropout", "draw")


def made_rows(seed, runs=30):
    """Random measures and gaps, with ties in the measure `coarse`, over two values of n."""
    rng = np.random.default_rng(seed)
    fine, gap = rng.normal(size=runs), rng.normal(size=runs)
    return pl.DataFrame(
        {"n": rng.choice([100, 400], runs), "fine": fine, "coarse": np.round(fine), "gap": gap, "same": 1.0}
    )


def naive_tau(rows, measure):
    """Kendall's tau-a over pairs with the same n, pair by pair."""
    signs = [
        np.sign(a[measure] - b[measure]) * np.sign(a["gap"] - b["gap"])
        for a, b in combinations(rows.to_dicts(), 2)
        if a["n"] == b["n"]
    ]
    return float(np.mean(signs))


@pytest.mark.parametrize("measure", ["fine", "coarse"])
def test_tau_is_that_of_scipy_with_ties_as_no_agreement(study, measure):
    rows = made_rows(0)
    total = pairs = tied = 0
    for n in (100, 400):
        group = rows.filter(n=n)
        count = group.height * (group.height - 1) // 2
        repeated = group[measure].value_counts()["count"]
        own_tied = int((repeated * (repeated - 1) // 2).sum())
        # scipy has tau-b = (concordant - discordant) / sqrt((pairs - ties of x) (pairs - ties of y)).
        total += kendalltau(group[measure], group["gap"]).statistic * sqrt((count - own_tied) * count)
        pairs, tied = pairs + count, tied + own_tied
    agreement = study.ranking_table.agreement(rows, measure)
    assert agreement.tau == pytest.approx(total / pairs, abs=1e-12)
    assert (agreement.pairs, agreement.tied) == (pairs, tied)


@pytest.mark.parametrize("measure", ["fine", "coarse"])
def test_the_jackknife_is_that_of_a_loop_over_runs(study, measure):
    rows = made_rows(1, runs=14)
    left = [naive_tau(rows.filter(pl.int_range(pl.len()) != i), measure) for i in range(rows.height)]
    expected = sqrt((len(left) - 1) / len(left) * sum((tau - np.mean(left)) ** 2 for tau in left))
    agreement = study.ranking_table.agreement(rows, measure)
    assert agreement.tau == pytest.approx(naive_tau(rows, measure), abs=1e-12)
    assert agreement.error == pytest.approx(expected, abs=1e-12)


def test_the_jackknife_error_is_about_the_spread_of_tau(study):
    """tau of 40 independent pairs of numbers has the standard deviation sqrt(2 (2R + 5) / (9 R (R - 1)))."""
    R, draws = 40, 60
    rng = np.random.default_rng(2)
    errors = [
        study.ranking_table.agreement(
            pl.DataFrame({"n": 1, "x": rng.normal(size=R), "gap": rng.normal(size=R)}), "x"
        ).error
        for _ in range(draws)
    ]
    exact = sqrt(2 * (2 * R + 5) / (9 * R * (R - 1)))
    assert np.mean(errors) == pytest.approx(exact, rel=0.1)  # the jackknife's bias is of order 1/R


def test_a_constant_measure_is_called_constant(study):
    agreement = study.ranking_table.agreement(made_rows(3), "same")
    assert (agreement.tau, agreement.error, str(agreement)) == (None, None, "constant")
    assert agreement.tied == agreement.pairs > 0
    assert study.ranking_table.sign_test([None, None]) == (0, 0, None)


def test_infinite_values_are_ranked(study):
    rows = pl.DataFrame({"n": 1, "x": [1.0, np.inf, 2.0], "gap": [0.1, 0.3, 0.2]})
    assert study.ranking_table.agreement(rows, "x").tau == 1


def test_psi_by_hand(study):
    """Four runs of two factors: width moves gap and measure alike in one pair and against in the other."""
    rows = pl.DataFrame(
        {
            **dict.fromkeys(FACTORS, 0),
            "width": [32, 64, 32, 64],
            "rate": [1, 1, 2, 2],
            "x": [1.0, 2.0, 3.0, 2.5],
            "gap": [0.1, 0.2, 0.3, 0.4],
        }
    )
    psi = study.ranking_table.psi(rows, "x")
    assert {name: value for name, value in psi.items() if value is not None} == {"width": 0.0, "rate": 1.0}


def test_the_gap_of_a_model_that_knows_the_task_is_zero(study):
    """Its training error is the share of flipped labels: nu (1 - 1/K) up to the error of that share."""
    run = replace(study.ranking_tasks.runs_of(study.ranking_tasks.FAMILIES["digits"], 0)[-1], noise=0.2)
    clean, noisy = (study.ranking_tasks.data_of(replace(run, noise=nu)) for nu in (0.0, run.noise))
    error = float((clean.labels != noisy.labels).double().mean())
    row = {"family": "digits", "noise": run.noise, "test_error": 0.0, "training_error": error}
    gap = study.ranking_table.with_gap(pl.DataFrame([row]))["gap"][0]
    share = run.noise * (1 - 1 / 10)
    assert gap == pytest.approx(share - error, abs=1e-12)
    assert abs(gap) < 3 * sqrt(share * (1 - share) / run.n)
    row = {"family": "digits", "noise": 0.2, "test_error": 0.3, "training_error": 0.05}
    assert study.ranking_table.with_gap(pl.DataFrame([row]))["gap"][0] == pytest.approx(0.24 + 0.18 - 0.05)


def test_inputs_of_d_are_neither_trained_nor_tested_on(study):
    for family in study.ranking_tasks.FAMILIES.values():
        run = study.ranking_tasks.runs_of(family, 0)[-1]
        data = study.ranking_tasks.data_of(run)
        assert len(data.inputs) == len(data.labels) == run.n
        assert len(data.held_out) >= 100
        if family.name == "mod":  # all pairs are different, so places can be told by them
            parts = [
                set(map(tuple, part.tolist())) for part in (data.inputs, data.held_out, data.test_inputs)
            ]
            assert sum(map(len, parts)) == len(set.union(*parts)) == 29**2
    again, other = (study.ranking_tasks.data_of(replace(run, seed=seed)).inputs for seed in (0, 1))
    assert torch.equal(again, data.inputs)
    assert not torch.equal(other, data.inputs)


def test_runs_are_all_combinations_of_the_factors(study):
    runs = study.train_ranking.all_runs()
    counts = Counter((run.family, run.seed) for run in runs)
    expected = {("digits", 128): (0, 1), ("mod", 32): (0, 1), ("bytes", 16): (0,), ("causal", 32): (0, 1)}
    assert counts == {(name, seed): size for (name, size), seeds in expected.items() for seed in seeds}
    assert len({run.name for run in runs}) == len(set(runs)) == len(runs) == 400


def test_a_model_starts_with_the_stated_deviations(study):
    run = study.ranking_tasks.Run("mod", 0, 0, n=420, width=64, decay=0.0, rate=1e-3, depth=3)
    torch.manual_seed(0)
    model = study.ranking_model.new_model(run)
    block = model.blocks[1]
    expected = {
        model.positions: 0.3,
        model.embedding.weight: 0.5,
        block.query.weight: 1 / 8,
        block.ffn_in.weight: 1 / 8,
        block.ffn_out.weight: 1 / sqrt(128),
        model.head.weight: 0.3 / 8,
    }
    for weight, deviation in expected.items():
        # A normal sample's deviation has a relative error of 1/sqrt(2 n).
        assert weight.std().item() == pytest.approx(deviation, rel=4 / sqrt(2 * weight.numel()))
    assert not block.ffn_in.bias.any()


def test_a_causal_model_sees_no_later_token_and_a_classifier_all(study):
    tasks, model_of = study.ranking_tasks, study.ranking_model.new_model
    torch.manual_seed(0)
    ids = torch.randint(48, (2, 16))
    changed = ids.clone()
    changed[:, 9] = (ids[:, 9] + 1) % 48
    causal = model_of(tasks.runs_of(tasks.FAMILIES["causal"], 0)[0]).eval()
    moved = (causal(ids) - causal(changed)).abs().amax(dim=(0, 2)) > 0
    assert moved.tolist() == [place >= 9 for place in range(16)]
    classifier = model_of(tasks.runs_of(tasks.FAMILIES["bytes"], 0)[0])
    assert (classifier(ids) != classifier(changed)).all()


@pytest.mark.parametrize("causal", [False, True])
def test_attention_is_that_of_torch(study, causal):
    torch.manual_seed(1)
    block = study.ranking_model.Block(32, 0.0, causal)
    x = torch.randn(3, 5, 32)
    q, k, v = (part(x).view(3, 5, 2, 16).transpose(1, 2) for part in (block.query, block.key, block.value))
    expected = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=causal)
    expected = block.output(expected.transpose(1, 2).reshape(3, 5, 32))
    torch.testing.assert_close(block.attention(x), expected)


def test_training_ends_at_the_first_check_below_the_loss(study):
    train, tasks = study.train_ranking, study.ranking_tasks
    run = next(r for r in train.all_runs() if r.rate == 4e-3 and r.width == 32 and not r.dropout)
    model, outcome = train.train(run)
    data = tasks.data_of(run)
    loss = torch.nn.functional.cross_entropy(model.eval()(data.inputs), data.labels).item()
    assert outcome.loss == pytest.approx(loss, rel=1e-4)  # float32, summed in another order
    assert loss < tasks.FAMILIES["digits"].loss
    assert outcome.steps % 10 == 0
    before = train.train(run, steps=outcome.steps - 10)[1]
    assert before.loss >= tasks.FAMILIES["digits"].loss
    again = train.train(run)[0]
    for tensor, other in zip(model.state_dict().values(), again.state_dict().values(), strict=True):
        assert torch.equal(tensor, other)


def test_a_check_that_stops_early_says_what_the_whole_loss_says(study):
    train, tasks = study.train_ranking, study.ranking_tasks
    family = tasks.FAMILIES["digits"]
    run = tasks.runs_of(family, 0)[-1]
    data = tasks.data_of(run)
    torch.manual_seed(0)
    model = study.ranking_model.new_model(replace(run, dropout=0.0))
    whole = torch.nn.functional.cross_entropy(model(data.inputs), data.labels).item()
    for factor in (0.99, 1.01):
        assert train.reached(model, data, replace(family, loss=factor * whole)) == (factor > 1)


def test_decay_leaves_positions_gains_and_biases_alone(study):
    run = study.ranking_tasks.Run("digits", 0, 0, n=100, width=32, decay=1.0, rate=0.1)
    model = study.ranking_model.new_model(run)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    for parameter in model.parameters():
        parameter.grad = torch.zeros_like(parameter)
    study.train_ranking.adamw(model, run).step()
    for name, value in model.state_dict().items():
        decayed = value.ndim == 2 and name != "positions"
        torch.testing.assert_close(value, before[name] * (0.9 if decayed else 1.0))


def test_measures_are_those_of_a_loop_over_inputs(study):
    """D, confidence and norms of a small model by hand, one input at a time."""
    tasks = study.ranking_tasks
    run = tasks.runs_of(tasks.FAMILIES["digits"], 0)[0]
    torch.manual_seed(0)
    model = study.ranking_model.new_model(run).double().eval()
    data = tasks.data_of(run)
    inputs = data.held_out[:20].double()
    h0 = (model.embedding(inputs) + model.positions).detach()
    spread = sqrt(float((h0 - h0.mean(dim=0)).square().sum()) / (8 * 19))
    logs, sure = [], []
    for embedding in h0:
        states = embedding[None].clone().requires_grad_()
        logits = model.head(model.norm(model.blocks[0](states)).mean(dim=1))[0]
        first, second = logits.topk(2).values
        (first - second).backward()
        logs.append(torch.log((first - second) / (states.grad.norm() * spread * sqrt(8))).item())
        sure.append(logits.softmax(dim=0).max().item())
    measures = study.ranking_measures.measures(model, replace(data, held_out=inputs))
    assert measures["mean_log_distance"] == pytest.approx(-np.mean(logs), rel=1e-9)
    assert measures["unsure"] == pytest.approx(1 - np.mean(sure), rel=1e-9)
    names = {f"blocks.0.{name}.weight" for name in ("query", "key", "value", "output", "ffn_in", "ffn_out")}
    squares = sum(value.square().sum().item() for name, value in model.state_dict().items() if name in names)
    assert measures["frobenius_squared"] == pytest.approx(squares, rel=1e-12)
    block = model.blocks[0]
    norm = lambda matrix: torch.linalg.matrix_norm(matrix, 2).item()  # noqa: E731
    heads = [slice(0, 16), slice(16, 32)]
    qk = [norm(block.query.weight[h].T @ block.key.weight[h]) for h in heads]
    vo = [norm(block.output.weight[:, h] @ block.value.weight[h]) for h in heads]
    maps = [norm(block.ffn_in.weight), norm(block.ffn_out.weight)]
    assert measures["mean_log_norm"] == pytest.approx(np.mean(np.log([*qk, *vo, *maps])), rel=1e-9)


def test_a_few_runs_are_trained_once_measured_and_ranked(study, tmp_path, monkeypatch, capsys):
    """The whole way on eight runs of a few steps, in this process."""
    tasks, train = study.ranking_tasks, study.train_ranking
    family = replace(tasks.FAMILIES["mod"], steps=3)
    monkeypatch.setitem(tasks.FAMILIES, "mod", family)
    runs = [run for run in tasks.runs_of(family, 0) if run.width == 32 and run.n == 420]
    for run in runs:
        train.train_and_save(run, tmp_path)
    monkeypatch.setattr(train, "in_workers", lambda task, jobs, workers: (task(*words) for words in jobs))
    train.train_all(runs, tmp_path, 1)
    assert "0 of 8 runs to train" in capsys.readouterr().out
    rows = pl.DataFrame([study.ranking_measures.row_of(train.file_of(run, tmp_path)) for run in runs])
    assert {measure.name for measure in study.ranking_measures.MEASURES} <= set(rows.columns)
    text = "\n".join(study.ranking_study.tables(rows, runs))
    assert text.startswith("| measure | needs | mod |")
    assert "| number of parameters | weights | constant |" in text
    assert "Missing" not in text
    more = [*runs, *tasks.runs_of(tasks.FAMILIES["bytes"], 0)]
    assert study.ranking_study.tables(rows, more)[-1] == "Missing runs: bytes 0 (16)."
    with pytest.raises(SystemExit, match="no family has all of its runs"):
        study.ranking_study.tables(rows[:7], runs)


def test_a_family_without_some_runs_shows_only_the_n_that_are_whole(study):
    tasks, table = study.ranking_tasks, study.ranking_table
    runs = tasks.runs_of(tasks.FAMILIES["mod"], 0)
    rows = pl.DataFrame([asdict(run) for run in runs])
    assert {name: column.height for name, column in table.columns_of(rows, runs).items()} == {"mod 0": 32}
    part = rows.filter(~((pl.col("n") == 600) & (pl.col("draw") == 1)))
    columns = table.columns_of(part, runs)
    assert {name: column["n"].unique().to_list() for name, column in columns.items()} == {
        "mod 0, n = 420": [420]
    }
    assert table.missing(part, runs) == {"mod 0": 8}
    assert table.columns_of(rows.filter(draw=0), runs) == {}
