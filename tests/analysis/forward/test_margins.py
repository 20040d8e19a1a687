"""Margins, condition and amplification: closed forms, published values, naive routes, and clear refusals."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from analysis.forward.sine_models import IDS, bert, gpt2

import attnlaw
from attnlaw.analysis.forward.amplification import amplification
from attnlaw.analysis.forward.classifier import as_inputs, open_classifier
from attnlaw.analysis.forward.condition import condition
from attnlaw.analysis.forward.margins import (
    compare_margins,
    measure_margins,
    median_with_interval,
    relative_margins,
)
from attnlaw.analysis.forward.scales import log10_worst_case
from attnlaw.checkpoints.open import open_model
from attnlaw.core.errors import InputError
from attnlaw.spectra.measure import Selection, measure
from attnlaw.theory.bounds.factors import lipschitz
from attnlaw.theory.bounds.holdout import holdout_bound

ROOT = Path(__file__).parents[3]
EXAMPLE = ROOT / "examples" / "tiny-decoder"
POINTS = [[3.0, 1.0], [1.0, -1.0], [-1.0, 1.0], [-3.0, -1.0]]
DIGITS = 1e-6  # published with seven or more digits, half a unit of the last


class Read(torch.nn.Module):
    """Logits by a function of the mean token."""

    def __init__(self, function) -> None:
        super().__init__()
        self.function = function

    def forward(self, x):
        return self.function(x.mean(dim=1))


def two(x):
    return torch.stack([x[:, 0], -x[:, 0]], dim=1)


def few(model, inputs, **settings):
    given = as_inputs(inputs)
    return relative_margins(open_classifier(model, given), given, **settings)


def distances(model, inputs, **settings):
    return [row.distance for row in few(model, inputs, **settings).rows]


def one_token(points):
    return torch.tensor(points, dtype=torch.float64)[:, None]


def naive(model, inputs, positions=None):
    """D of each input by itself: hidden states from transformers, the gradient by the full Jacobian."""
    states, margins = [], []
    for number, ids in enumerate(inputs):
        tokens = torch.tensor([ids])
        h0 = model(tokens, output_hidden_states=True).hidden_states[0].detach()
        states.append(h0[0])
        read = None if positions is None else positions[number]
        block = model.bert.encoder.layer[0] if hasattr(model, "bert") else model.transformer.h[0]

        def logits(x, tokens=tokens, read=read, block=block):
            hook = block.register_forward_pre_hook(lambda module, words: (x, *words[1:]))
            z = model(tokens).logits[0]
            hook.remove()
            return z if read is None else z[read]

        z, jacobian = logits(h0), torch.autograd.functional.jacobian(logits, h0)
        first, second = z.topk(2).indices
        length = len(ids) if read is None else read + 1
        margins.append(
            ((z[first] - z[second]).item(), (jacobian[first] - jacobian[second]).norm().item(), length)
        )
    total = freedom = 0.0
    for t in range(max(map(len, states))):
        here = torch.stack([state[t] for state in states if len(state) > t])
        total += ((here - here.mean(dim=0)) ** 2).sum().item()
        freedom += len(here) - 1
    s = np.sqrt(total / freedom)
    return s, [m / (g * s * np.sqrt(length)) for m, g, length in margins]


def test_a_linear_readout_has_the_distance_itself():
    s = np.sqrt(8)
    expected = [abs(x) / s for x, _ in POINTS]
    for scale in (1.0, 7.0):
        model = Read(lambda x, scale=scale: scale * two(x))
        np.testing.assert_allclose(distances(model, one_token(POINTS)), expected, rtol=1e-14)
    margins = few(Read(two), one_token(POINTS))
    assert margins.spread == pytest.approx(s, rel=1e-15)
    assert margins.mean_log.value == pytest.approx(-np.log(8 / 3) / 2, rel=1e-14)
    assert (margins.median.value, margins.mean) == pytest.approx((np.sqrt(0.5), np.sqrt(0.5)), rel=1e-14)
    np.testing.assert_allclose(distances(Read(two), one_token(POINTS), margin="smooth"), expected, rtol=1e-14)


def test_two_tokens_of_which_the_mean_is_read():
    both = torch.tensor([[point, point[::-1]] for point in POINTS], dtype=torch.float64)
    margins = few(Read(two), both)
    np.testing.assert_allclose([row.distance for row in margins.rows], [0.5**0.5, 0, 0, 0.5**0.5], rtol=1e-14)
    assert margins.ties == 2
    assert [row.status for row in margins.rows] == ["ok", "tie", "tie", "ok"]
    assert margins.mean == pytest.approx(0.5**0.5)


def test_three_classes_hard_and_smooth():
    points = one_token([[2.0, 1.0], [1.0, 3.0], [-1.0, -2.0], [0.5, 0.0]])
    model = Read(lambda x: torch.cat([x, torch.zeros_like(x[:, :1])], dim=1))
    hard = [0.2912141, 0.5824282, 0.4118389, 0.1456071]
    smooth = [0.2283194, 0.5607886, 0.3630818, -0.0711477]
    assert few(model, points).spread == pytest.approx(2.4281337, rel=DIGITS)
    np.testing.assert_allclose(distances(model, points), hard, rtol=DIGITS)
    np.testing.assert_allclose(distances(model, points, margin="smooth"), smooth, rtol=DIGITS)
    assert few(model, points, margin="smooth").mean_log is None


def test_a_saturated_head_is_far_too_large():
    values = distances(Read(lambda x: torch.tanh(two(x))), one_token(POINTS))
    closed = [np.sinh(2 * abs(x)) / (2 * np.sqrt(8)) for x, _ in POINTS]
    np.testing.assert_allclose(values, closed, rtol=1e-12)
    np.testing.assert_allclose(values[:2], [35.658185, 0.6411444], rtol=DIGITS)


PUBLISHED = {
    bert: (2.008980115617, [0.188020618, 0.171604648, 0.435474398, 0.170027577]),
    gpt2: (0.631867082328, [0.0002856915, 0.435753545, 0.406448540, 0.0106219358]),
}


@pytest.mark.parametrize("build", PUBLISHED)
def test_sine_models(build):
    model, (s, published) = build(), PUBLISHED[build]
    margins = few(model, IDS)
    values = [row.distance for row in margins.rows]
    assert margins.spread == pytest.approx(s, rel=1e-12)
    np.testing.assert_allclose(values, published, rtol=DIGITS)
    positions = None if build is bert else [len(ids) - 1 for ids in IDS]
    spread, expected = naive(model, IDS, positions)
    assert margins.spread == pytest.approx(spread, rel=1e-13)
    np.testing.assert_allclose(values, expected, rtol=1e-9)
    assert margins.causal == (build is gpt2)


def test_smooth_margins_and_other_positions():
    smooth = [-1.51840817, -0.524401388, -0.720163557, -1.02357066]
    np.testing.assert_allclose(distances(bert(), IDS, margin="smooth"), smooth, rtol=DIGITS)
    at = [1, 2, 3, 2]
    margins = few(gpt2(), IDS, positions=at)
    published = [0.0080264168, 0.0344695322, 0.558738355, 0.0106219358]
    np.testing.assert_allclose([row.distance for row in margins.rows], published, rtol=DIGITS)
    np.testing.assert_allclose([row.distance for row in margins.rows], naive(gpt2(), IDS, at)[1], rtol=1e-9)
    kappa = condition(gpt2(), IDS, positions=at).values
    np.testing.assert_allclose(kappa, [2153.72180, 1801.70831, 103.218901, 4767.18150], rtol=DIGITS)


def test_kernels_padding_and_masks_change_nothing():
    expected = distances(bert(), IDS)
    fast = bert(attn_implementation="sdpa")
    np.testing.assert_allclose(distances(fast, IDS), expected, rtol=1e-11)
    ids = torch.tensor([[0] * (5 - len(tokens)) + tokens for tokens in IDS])  # on the left
    given = {"input_ids": ids, "attention_mask": (ids > 0).long()}
    np.testing.assert_array_equal(distances(bert(), given), expected)


@pytest.mark.parametrize("build", [bert, gpt2])
def test_condition_and_amplification_do_not_see_kernels_or_padding(build):
    """Under sdpa, and each input by itself."""
    fast = build(attn_implementation="sdpa")
    kappa, grown = condition(build(), IDS), amplification(build(), IDS)
    np.testing.assert_allclose(condition(fast, IDS).values, kappa.values, rtol=1e-9)
    for number, tokens in enumerate(IDS):
        assert condition(build(), [tokens]).values[0] == pytest.approx(kappa.values[number], rel=1e-9)
    alone = [amplification(fast, [tokens], method="power", tolerance=1e-14) for tokens in IDS]
    for layer, row in enumerate(grown.rows):
        np.testing.assert_allclose([growth.rows[layer].values[0] for growth in alone], row.values, rtol=1e-9)


def test_condition_of_sine_models_and_of_one_readout():
    published = {
        bert: ([524.719605, 311.133991, 160.048609, 395.688864], 14),
        gpt2: ([47802.1524, 188.449589, 193.037000, 4767.18150], 9),
    }
    for build, (values, maps) in published.items():
        conditioning = condition(build(), IDS)
        np.testing.assert_allclose(conditioning.values, values, rtol=DIGITS)
        assert len(conditioning.rows) == maps
        assert conditioning.total == pytest.approx(np.median(values), rel=DIGITS)
    readout = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(2, 2, bias=False))
    with torch.no_grad():
        readout[1].weight.copy_(torch.tensor([[1.0, 0.0], [-1.0, 0.0]]))
    conditioning = condition(readout, one_token(POINTS))
    np.testing.assert_allclose(conditioning.values, [np.hypot(x, y) / abs(x) for x, y in POINTS], rtol=1e-14)


def test_condition_is_the_derivative_along_the_worst_change():
    """The steepest change of the classifier of norm eps |W| moves m by eps kappa m."""
    model = bert()
    row = next(candidate for candidate in condition(model, IDS[:1]).rows if candidate.name == "classifier")
    weight = model.classifier.weight

    def margin():
        first, second = model(torch.tensor(IDS[:1])).logits[0].topk(2).values
        return first - second

    before = margin()
    (slope,) = torch.autograd.grad(before, weight)
    reach = torch.linalg.matrix_norm(weight, 2) * torch.linalg.matrix_norm(slope, "nuc") / before
    assert row.kappa == pytest.approx(reach.item(), rel=1e-10)  # one row of Z, so the gradient has rank one


def test_amplification_by_both_routes():
    published = {
        bert: [
            [0.0559327015, 0.110389523, 0.0766582150, 0.0819487030],
            [0.110653100, 0.102437344, 0.0906513765, 0.104871975],
        ],
        gpt2: [[33.6922545, 3.23853354, 3.59490326, 16.0123688]],
    }
    for build, values in published.items():
        exact = amplification(build(), IDS)
        power = amplification(build(), IDS, method="power", tolerance=1e-14)
        for row, expected in zip(exact.rows, values, strict=False):
            np.testing.assert_allclose(row.values, expected, rtol=DIGITS)
        for block_row, other in zip(exact.rows, power.rows, strict=True):
            np.testing.assert_allclose(block_row.values, other.values, rtol=1e-10)
        assert power.converged
        # Some eigenvalue of J^T J lies within residual A^2 of A^2 (it is symmetric, v a unit vector).
        default = amplification(build(), IDS, method="power")
        for block_row, other in zip(default.rows, exact.rows, strict=True):
            np.testing.assert_allclose(block_row.values, other.values, rtol=block_row.residual)


def test_the_worst_case_is_the_product_of_factors():
    """The audit's products, and the last layer by plain singular values of its own weights."""
    worst = log10_worst_case(measure(open_model(EXAMPLE), Selection()))
    audited = attnlaw.audit(EXAMPLE, jobs=1).summary["log10_alpha"]
    np.testing.assert_allclose(worst[1:], audited[:-1], rtol=1e-12)
    layer = open_classifier(EXAMPLE, as_inputs([[1, 2]])).blocks[3]
    query, key, value = (part.numpy() for part in layer.attn.c_attn.weight.split(128, dim=1))
    output = layer.attn.c_proj.weight.numpy()
    attention = sum(
        np.linalg.norm(value[:, h] @ output[h], 2) * (1 + 4 * np.linalg.norm(query[:, h] @ key[:, h].T, 2))
        for h in (slice(32 * i, 32 * i + 32) for i in range(4))
    )
    inner, outer = (np.linalg.norm(linear.weight.numpy(), 2) for linear in (layer.mlp.c_fc, layer.mlp.c_proj))
    constant = lipschitz(open_model(EXAMPLE).network.activation)
    assert worst[3] - np.log10(inner * outer * constant) == pytest.approx(np.log10(attention), abs=1e-9)


def test_amplification_of_all_tokens_of_a_chain():
    layers = [torch.nn.Linear(4, 4, bias=False, dtype=torch.float64) for _ in range(3)]
    model = torch.nn.Sequential(*layers, torch.nn.Flatten(1))
    inputs = torch.randn(3, 1, 4, generator=torch.manual_seed(0), dtype=torch.float64)
    product, expected = torch.eye(4, dtype=torch.float64), []
    for layer in reversed(layers):
        product = product @ layer.weight.detach()
        expected.append(torch.linalg.matrix_norm(product, 2).item())
    for output in ("logits", "tokens"):
        growth = amplification(model, inputs, output, "power", tolerance=1e-14, blocks=layers)
        np.testing.assert_allclose([row.median for row in growth.rows], expected[::-1], rtol=1e-6)


def test_pairs():
    points = torch.randn(40, 1, 2, generator=torch.manual_seed(1), dtype=torch.float64)
    plain, other = Read(two), Read(lambda x: torch.tanh(two(x)))
    first, second = measure_margins(plain, points), measure_margins(other, points)
    comparison = compare_margins(second, first)
    logs = [np.log(b.distance / a.distance) for a, b in zip(first.rows, second.rows, strict=True)]
    assert comparison.log_ratio.value == pytest.approx(np.mean(logs), rel=1e-12)
    assert comparison.log_ratio.error == pytest.approx(np.std(logs, ddof=1) / np.sqrt(40), rel=1e-12)
    assert comparison.sentence.startswith(f"{100 * np.expm1(np.mean(logs)):.0f}% larger, ")
    assert compare_margins(first, first).sentence == "the same within 0.1%"
    with pytest.raises(InputError, match="different token ids"):
        compare_margins(first, measure_margins(plain, points + 1))
    third = measure_margins(Read(lambda x: torch.cat([x, x[:, :1] - 1], dim=1)), points)
    with pytest.raises(InputError, match="one model has 2 classes, the other 3"):
        compare_margins(first, third)


def test_flat_inputs_are_counted_and_ranked():
    points = torch.linspace(-2.5, 20, 46, dtype=torch.float64).reshape(-1, 1, 1).expand(-1, 1, 2).contiguous()
    margins = measure_margins(Read(lambda x: two(x.clamp(max=17.0))), points)
    assert margins.flat == 6
    assert margins.ties == 1
    assert "left out 6 of 46 inputs whose margin does not depend on the input (gradient 0)" in margins.remark
    assert sum(row.distance == np.inf for row in margins.rows) == 6
    assert np.isfinite(margins.mean)
    dead = few(Read(lambda x: 0 * two(x)), points)
    assert (dead.median.value, dead.mean_log, dead.flat) == (None, None, 46)
    assert median_with_interval([1.0, np.inf, np.inf]).value == np.inf


def test_holdout_bound_is_the_binomial_tail():
    from scipy.stats import binom

    assert holdout_bound(41, 700) == pytest.approx(0.0753287, abs=5e-8)
    assert holdout_bound(0, 100) == pytest.approx(0.0295130, abs=5e-8)
    assert holdout_bound(7, 7) == 1
    for errors, examples, delta in ((3, 50, 0.1), (0, 9, 0.01), (41, 700, 0.05)):
        assert binom.cdf(errors, examples, holdout_bound(errors, examples, delta)) == pytest.approx(delta)
    for bad in ((-1, 5), (6, 5), (0, 0), (1, 5, 0.0), (1, 5, 1.0)):
        with pytest.raises(InputError):
            holdout_bound(*bad)


class Flash(torch.nn.Module):
    """Attention by a kernel of torch that has no second derivative."""

    def forward(self, x):
        heads = x[:, None]
        mixed = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu(heads, heads, heads)[0]
        return two(mixed[:, 0].mean(dim=1))


def refusals():
    import transformers

    alike = torch.ones(20, 1, 2, dtype=torch.float64)
    points = torch.randn(20, 1, 2, generator=torch.manual_seed(0), dtype=torch.float64)
    headless, masked = bert().bert, transformers.BertForMaskedLM(bert().config)
    attends = Read(two)
    attends.attention = torch.nn.MultiheadAttention(2, 1)
    pairs = points.reshape(10, 2, 2)
    return [
        (lambda: measure_margins(headless, IDS * 3), "BertModel is a model without a head"),
        (lambda: measure_margins(masked, IDS * 3), "a masked language model"),
        (lambda: measure_margins(bert(num_labels=1), IDS * 3), "a regression model with one output"),
        (lambda: measure_margins(bert(), IDS[:1]), "found 1, expected at least 12"),
        (lambda: measure_margins(Read(two), alike), "inputs: all inputs are the"),
        (lambda: few(Read(two), points[:1]), "inputs: no two inputs have a token at"),
        (
            lambda: measure_margins(bert(), [*IDS * 3, [11]]),
            "number 12: found 11, expected ids of the vocabulary, from 0 to 10",
        ),
        (
            lambda: measure_margins(bert(), [*IDS * 3, [1] * 9]),
            "number 12: has 9 tokens, but the model reads at most 8",
        ),
        (lambda: condition(attends, points), "is an nn.MultiheadAttention"),
        (lambda: condition(Read(two), points), "it has no nn.Linear and no"),
        (lambda: measure_margins(Read(lambda x: x / 0), points), "the logits of input 0 "),
        (
            lambda: amplification(Flash(), pairs, method="power"),
            "its attention kernel (flash attention) has no second",
        ),
        (lambda: measure_margins(torch.nn.Embedding(3, 2), IDS[:3] * 4), "pass them as blocks="),
    ]


@pytest.mark.parametrize("number", range(13))
def test_refusals_are_one_line(number):
    call, words = refusals()[number]
    with pytest.raises(InputError) as caught:
        call()
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


def test_the_model_is_left_as_it_was():
    model = bert().float().train()
    measure_margins(model, IDS * 3)
    assert model.training
    assert all(
        parameter.requires_grad and parameter.dtype == torch.float32 for parameter in model.parameters()
    )
