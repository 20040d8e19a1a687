"""Heads on one input: against singular values and loops, made heads, and figures measured elsewhere."""

from __future__ import annotations

import csv
import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from analysis.forward.tiny_models import save_tiny
from real_checkpoints import real_checkpoint

from attnlaw.analysis.forward.heads import Head, measure_heads, random_weights_participation, row_spread
from attnlaw.analysis.forward.inputs import InputSettings, open_tokenizer, raw_inputs, read_input
from attnlaw.analysis.forward.lens import linearise
from attnlaw.analysis.forward.load import load_base_model
from attnlaw.analysis.forward.remarks import REMARK_KINDS, head_remarks
from attnlaw.analysis.forward.scores import FrozenScores
from attnlaw.analysis.forward.trace import Trace, trace_forward
from attnlaw.theory.bounds.logits import Logits

ROOT = Path(__file__).parents[3]
EXAMPLE = ROOT / "examples" / "tiny-decoder"
PUBLISHED = ROOT / "tests" / "published" / "heads"
TEXT = b"def attention(queries, keys):"


@pytest.fixture(scope="module")
def causal() -> Trace:
    return trace_forward(*load_base_model(EXAMPLE), list(TEXT))


@pytest.fixture(scope="module")
def full(tmp_path_factory: pytest.TempPathFactory) -> Trace:
    return trace_forward(
        *load_base_model(save_tiny("bert", tmp_path_factory.mktemp("bert"))), [3, 1, 4, 1, 5, 9, 2, 6]
    )


def made(logits: np.ndarray, allowed: np.ndarray | None = None) -> FrozenScores:
    """A block of one head with these scores: queries are the scores, keys the unit vectors."""
    n = len(logits)
    both = np.ones((n, n), dtype=bool) if allowed is None else allowed
    return FrozenScores(np.eye(n), logits, np.zeros(n), np.eye(n), np.zeros(n), 1, 1, 1.0, both)


def naive(scores: FrozenScores, head: int) -> dict[str, float]:
    """The same numbers row by row, and by singular values."""
    logits, n = scores.logits(head), scores.tokens
    variances, entropies, A = [], [], np.zeros((n, n))
    for i in range(n):
        columns = np.flatnonzero(scores.allowed[i])
        row = np.exp(logits[i, columns] - logits[i, columns].max())
        A[i, columns] = row / row.sum()
        entropies.append(-sum(p * math.log(p) for p in A[i, columns] if p > 0))
        variances += [np.var(logits[i, columns])] if len(columns) > 1 else []
    uniform = np.array([scores.allowed[i] / scores.allowed[i].sum() for i in range(n)])
    s = np.linalg.svd(A - (A.mean(axis=0) if scores.unmasked else uniform), compute_uv=False)
    return {
        "beta": math.sqrt(np.mean(variances)),
        "perplexity": math.exp(np.mean(entropies)),
        "participation": (s**2).sum() ** 2 / (s**4).sum(),
        "largest_column_mean": max(A.sum(axis=0) / n),
        "largest_logit": max(abs(logits[i, j]) for i in range(n) for j in np.flatnonzero(scores.allowed[i])),
    }


@pytest.mark.parametrize("mask", ["causal", "full"])
def test_numbers_are_those_of_loops_and_singular_values(mask: str, request: pytest.FixtureRequest) -> None:
    passed = request.getfixturevalue(mask)
    for head in measure_heads(passed.scores, {}):
        expected = naive(passed.scores[head.layer], head.head)
        assert head.participation is not None
        actual = {name: getattr(head, name) for name in expected} | {
            "participation": head.participation.value
        }
        assert actual == pytest.approx(expected, rel=1e-10)


def test_gaussian_heads_are_their_own_null() -> None:
    """Independent Gaussian queries and keys: beta as drawn, PR and perplexity those of the nulls."""
    n, d, beta = 160, 40, 1.0
    rng = np.random.default_rng(1)
    gaussian_heads = []
    for _ in range(6):
        X = np.eye(n)  # orthogonal tokens: queries and keys are the weights themselves
        Q, K = rng.standard_normal((2, n, d))
        scores = FrozenScores(
            X, Q, np.zeros(d), K, np.zeros(d), 1, 1, beta / math.sqrt(d), np.ones((n, n), dtype=bool)
        )
        gaussian_heads += measure_heads([scores], {}, seed=int(rng.integers(100)))
    for values, expected in (
        ([head.beta for head in gaussian_heads], beta),
        ([head.participation.value / head.participation.null.value for head in gaussian_heads], 1.0),
        ([head.participation.value / head.participation.random.value for head in gaussian_heads], 1.0),
        # n e^(-beta^2/2) for n = infinity; the entropy of a finite row has lost Var(e^l)/(2 n).
        ([math.log(head.perplexity / n) for head in gaussian_heads], -(beta**2) / 2),
    ):
        error = np.std(values, ddof=1) / math.sqrt(len(values))
        assert np.mean(values) == pytest.approx(expected, abs=4 * error + math.expm1(beta**2) / n)


def test_random_weights_keep_tokens_and_norms(full: Trace) -> None:
    """Two routes to one mean: the function, and weights redrawn here; they differ by chance alone."""
    scores, head, rng = full.scores[1], 2, np.random.default_rng(7)
    W_Q, W_K = scores.weights(head)
    assert W_Q.shape == W_K.shape == (8, 2)
    values = []
    for _ in range(400):
        fresh = []
        for weight in (W_Q, W_K):
            drawn = rng.standard_normal(weight.shape)
            fresh.append(drawn * math.sqrt((weight**2).sum() / (drawn**2).sum()))
        q, k = (scores.inputs @ weight for weight in fresh)
        rows = np.exp(q @ k.T / math.sqrt(2))
        A = rows / rows.sum(axis=1, keepdims=True)
        s = np.linalg.svd(A - A.mean(axis=0), compute_uv=False)
        values.append((s**2).sum() ** 2 / (s**4).sum())
    estimate = random_weights_participation(scores, head, np.random.default_rng(1), draws=400)
    error = np.std(values, ddof=1) / math.sqrt(400)
    assert estimate.error == pytest.approx(error, rel=0.3)
    assert estimate.value == pytest.approx(np.mean(values), abs=4 * math.hypot(error, estimate.error))


def test_made_heads_are_found() -> None:
    n = 40
    sink, before, both = np.zeros((3, n, n))
    sink[:, 0] = 20.0
    before[np.arange(1, n), np.arange(n - 1)] = 30.0
    both[:, :2] = 9.0  # all weight on two columns, the same in every row but for a little noise
    both += 0.01 * np.random.default_rng(0).standard_normal((n, n))
    made_heads = measure_heads([made(sink), made(before), made(both)], {})
    assert (made_heads[0].sink, made_heads[0].top_column, made_heads[0].top_column_rows) == (0, 0, 1.0)
    assert made_heads[0].largest_column_mean == pytest.approx(1.0, abs=n * math.exp(-20))
    assert (made_heads[1].top_offset, made_heads[1].top_offset_rows) == (-1, (n - 1) / n)
    assert made_heads[1].perplexity == pytest.approx(n ** (1 / n), rel=1e-6)  # the first row looks at all
    assert made_heads[2].perplexity == pytest.approx(2.0, abs=0.1)
    labels = ["[CLS]", *map(str, range(1, n))]
    text = {(remark.rule, remark.layer): remark.sentence for remark in head_remarks(made_heads, labels)}
    assert (
        text["one-column", 0]
        == 'head 0.0 attends mainly to one fixed token: "[CLS]" at position 0 gets 100% of its attention'
    )
    assert text["one-offset", 1] == (
        "head 1.0 is a previous-token head: 98% of positions attend most to the token before"
    )
    # One logit of 30 among 40 in each row but the first.
    assert made_heads[1].beta == pytest.approx(30 * 39 / 40**1.5)
    assert text["sharp", 1] == (
        "head 1.0 looks at only a few tokens: 1.1 on average (sharpness β 4.6, above 2.7)"
    )
    assert ("one-column", 1) not in text
    assert ("one-offset", 0) not in text


def test_remarks_need_their_thresholds() -> None:
    soft = measure_heads([made(0.1 * np.random.default_rng(0).standard_normal((20, 20)))], {})
    assert head_remarks(soft, ["x"] * 20) == ()
    few = replace(soft[0].participation, value=0.05 * soft[0].participation.null.value)
    (remark,) = head_remarks([replace(soft[0], participation=few)], ["x"] * 20)
    assert remark.rule == "few-directions"
    assert remark.size == pytest.approx(20)
    (remark,) = head_remarks([replace(soft[0], logit_typical=soft[0].beta / 5.5)], ["x"] * 20)
    assert (remark.rule, round(remark.size, 6)) == ("aligned", 5.5)
    sink = replace(soft[0], top_column=3, top_column_rows=0.8, sink=3, largest_column_mean=0.5)
    (remark,) = head_remarks([sink], ["x"] * 20)
    assert (remark.rule, remark.size) == ("one-column", 0.8)
    for other in ({"sink": 4}, {"largest_column_mean": 0.49}, {"top_column_rows": 0.74}):
        assert head_remarks([replace(sink, **other)], ["x"] * 20) == ()
    assert len({rule.name for rule in REMARK_KINDS}) == len(REMARK_KINDS)


def test_a_window_has_no_null(tmp_path: Path) -> None:
    passed = trace_forward(*load_base_model(save_tiny("mistral", tmp_path)), [3, 1, 4, 1, 5])
    window_heads = measure_heads(passed.scores, {})
    assert all(head.participation is None for head in window_heads)
    assert all(
        head.beta_c == pytest.approx(math.sqrt(2 * math.log(2))) for head in window_heads
    )  # two tokens a row


def test_uniform_attention_has_no_directions_and_one_token_no_heads() -> None:
    (head,) = measure_heads([made(np.zeros((8, 8)))], {})
    assert (head.beta, head.participation, round(head.perplexity, 9)) == (0.0, None, 8.0)
    assert measure_heads([made(np.zeros((1, 1)))], {}) == ()


def test_a_seed_decides_the_draws(full: Trace) -> None:
    first, again, other = (
        measure_heads(full.scores[:1], {}, seed=seed)[0].participation for seed in (0, 0, 1)
    )
    assert first == again
    assert first.value == other.value
    assert first.null != other.null
    assert first.random != other.random


def test_rows_with_one_pair_do_not_count() -> None:
    logits = np.array([[5.0, 0.0], [1.0, 3.0]])
    assert row_spread(logits, np.tri(2, dtype=bool)) == 1.0


def test_bounds_of_the_weights_stand_beside_what_was_measured() -> None:
    lens = linearise(EXAMPLE, list(TEXT), only="heads")
    assert lens.heads is not None
    assert lens.token_map is None
    assert lens.singular_values is None
    for head in lens.heads:
        assert 0 < head.largest_logit <= head.logit_bound
        assert head.spread_over_typical == head.beta / head.logit_typical
    known = {(0, 0): Logits(bound=9.0)}
    (alone,) = measure_heads([made(np.ones((3, 3)))], known)
    assert (alone.logit_bound, alone.logit_typical, alone.spread_over_typical) == (9.0, None, None)


def measured(name: str, path: Path) -> list[Head]:
    kind, model = load_base_model(path)
    all_heads: list[Head] = []
    lines = (PUBLISHED / "inputs.jsonl").read_text().splitlines()
    inputs = raw_inputs(InputSettings(file=str(PUBLISHED / "inputs.jsonl")))
    for line, given in zip(lines, inputs, strict=True):
        if f'"model": "{name}"' in line:
            read = read_input(given, open_tokenizer(path, model.config.vocab_size), 512)
            all_heads += measure_heads(trace_forward(kind, model, read.ids).scores, {})
    return all_heads


def compare(name: str, path: Path) -> None:
    """Medians within 30% of those measured on other texts, shares of heads within 0.15."""
    with (PUBLISHED / "real_heads.csv").open() as file:
        (published,) = [row for row in csv.DictReader(file) if row["model"] == name]
    model_heads = measured(name, path)
    assert len(model_heads) % int(published["heads"]) == 0
    medians = {
        "beta_50": [head.beta for head in model_heads],
        "over_null_50": [head.participation.value / head.participation.null.value for head in model_heads],
        "largest_column_mean_50": [head.largest_column_mean for head in model_heads],
    }
    for column, values in medians.items():
        assert np.median(values) == pytest.approx(float(published[column]), rel=0.3), column
    shares = {
        "below_beta_2": [head.beta < head.beta_2 for head in model_heads],
        "above_beta_c": [head.beta > head.beta_c for head in model_heads],
    }
    for column, held in shares.items():
        assert np.mean(held) == pytest.approx(float(published[column]), abs=0.15), column


@pytest.mark.slow
def test_heads_of_the_shipped_decoder() -> None:
    compare("tiny-decoder", EXAMPLE)


@pytest.mark.long
@pytest.mark.parametrize("name", ["rxnfp-pretrained", "minilm"])
def test_heads_of_real_encoders(name: str) -> None:
    compare(name, real_checkpoint(name))


@pytest.mark.parametrize("n", [2, 4, 6])
def test_uniform_causal_attention_is_not_notable(n: int) -> None:
    """On a short text the first token gets a large share anyway: (1 + 1/2 + ... + 1/n) / n."""
    rng = np.random.default_rng(0)
    allowed = np.tri(n, dtype=bool)
    labels = [str(number) for number in range(n)]
    for _ in range(40):
        flat = replace(made(0.01 * rng.standard_normal((n, n))), allowed=allowed)
        (head,) = measure_heads([flat], {})
        share = sum(1 / (row + 1) for row in range(n)) / n
        assert head.uniform_column == pytest.approx(share)
        assert not {"one-column", "one-offset"} & {remark.rule for remark in head_remarks([head], labels)}
    logits = np.zeros((n, n))
    logits[:, 0] = 30.0
    (sink,) = measure_heads([replace(made(logits), allowed=allowed)], {})
    assert "one-column" in {remark.rule for remark in head_remarks([sink], labels)}
    (before,) = measure_heads([replace(made(30.0 * np.eye(n, k=-1)), allowed=allowed)], {})
    expected = n >= 4  # of two positions, only one has a token before it
    assert ("one-offset" in {remark.rule for remark in head_remarks([before], labels)}) == expected
