"""Measured scales: nuclear norms from thin cores against autograd through added matrices, and real values."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path

import numpy as np
import pytest
import torch
from analysis.forward.reactions import reactions
from analysis.forward.sine_models import IDS, bert, gpt2
from analysis.forward.tiny_models import save_tiny, tiny_model
from real_checkpoints import real_checkpoint

import attnlaw
from attnlaw.analysis.audit.measured_proxy import measured_proxy
from attnlaw.analysis.forward.classifier import as_inputs, open_classifier
from attnlaw.analysis.forward.families import FAMILIES
from attnlaw.analysis.forward.inputs import RawInput
from attnlaw.analysis.forward.load import normalise_in_float64
from attnlaw.analysis.forward.margin_measurement import measure_model
from attnlaw.analysis.forward.margins import measure_margins
from attnlaw.analysis.forward.scales import log_scales, measure_at_scale
from attnlaw.core.errors import InputError
from attnlaw.numerics.logs import LN10
from attnlaw.theory.bounds.spectrum_adaptive import log_contribution

EXAMPLE = Path(__file__).parents[3] / "examples" / "tiny-decoder"


def llama():
    model = tiny_model("llama").double()
    normalise_in_float64(model)
    return model


def naive(model, inputs, patch) -> dict:
    """The scales by autograd through zero matrices that are added to QK and VO, and through the weights."""
    kind = model.config.model_type
    blocks = next(module for module in model.modules() if isinstance(module, torch.nn.ModuleList))
    parts = [FAMILIES[kind].find_modules(block) for block in blocks]
    size, heads = model.config.hidden_size, model.config.num_attention_heads
    added = {
        (layer, name): torch.zeros(heads, size, size, dtype=torch.float64, requires_grad=True)
        for layer in range(len(parts))
        for name in ("qk", "vo")
    }
    numbers, read, seen = {part.attention: layer for layer, part in enumerate(parts)}, {}, {}

    def attend(module, query, key, value, attention_mask, scaling=None, **_):
        layer, scaling = numbers[module], module.scaling if scaling is None else scaling
        groups = query.shape[1] // key.shape[1]
        key, value = (tensor.repeat_interleave(groups, dim=1) for tensor in (key, value))
        x = read[layer]
        more = torch.einsum("btn,hnm,bsm->bhts", x, added[layer, "qk"], x)
        scores = scaling * (query @ key.mT + more)
        scores = scores if attention_mask is None else scores + attention_mask
        seen[layer] = scores.softmax(dim=-1)
        return (seen[layer] @ value).transpose(1, 2).contiguous(), seen[layer]

    def keep(layer):
        return lambda module, words: read.__setitem__(layer, words[0])

    def add(layer):
        return lambda module, words, result: (
            result + torch.einsum("bhts,bsn,hnm->btm", seen[layer], read[layer], added[layer, "vo"])
        )

    patch.setattr(import_module(type(model).__module__), "eager_attention_forward", attend)
    model.set_attn_implementation("eager")
    for layer, part in enumerate(parts):
        part.query_module.register_forward_pre_hook(keep(layer))
        part.output.register_forward_hook(add(layer))
    weights = {
        (layer, name): linear.weight
        for layer, part in enumerate(parts)
        for name, linear in part.feed_forward_modules.items()
    }
    margins, squares = [], {}
    for ids in inputs:
        logits = model(torch.tensor([ids])).logits[0]
        first, second = (logits if logits.ndim == 1 else logits[-1]).topk(2).values
        margins.append((first - second).item())
        every = {**added, **weights}
        for (layer, name), slope in zip(
            every, torch.autograd.grad(first - second, list(every.values())), strict=True
        ):
            norms = torch.linalg.matrix_norm(slope, "nuc").reshape(-1)
            for head, norm in enumerate(norms.tolist()):
                key = (layer, name, head if (layer, name) in added else None)
                squares[key] = squares.get(key, 0.0) + norm**2
    middle = np.median(margins)
    return {key: len(parts) * np.sqrt(total / len(inputs)) / middle for key, total in squares.items()}


# Of LLaMA transformers takes the softmax in float32 at any precision, so a probability is good to 2^-24.
@pytest.mark.parametrize(("build", "error"), [(bert, 1e-9), (gpt2, 1e-9), (llama, 16 * 2**-24)])
def test_cores_are_autograd(build, error, monkeypatch):
    inputs = as_inputs(IDS)
    logs = log_scales(open_classifier(build(), inputs), inputs)
    expected = naive(build(), IDS, monkeypatch)
    assert logs.keys() == expected.keys()
    np.testing.assert_allclose([np.exp(logs[key]) for key in expected], list(expected.values()), rtol=error)


def test_one_input_longer_than_the_hidden_size():
    """Cores are then as large as the hidden size; tokens that are not read change nothing."""
    model = gpt2(n_positions=16)
    ids = [[1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 1, 2], [3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5, 8]]
    cut, whole = as_inputs([tokens[:10] for tokens in ids]), as_inputs(ids)
    short = log_scales(open_classifier(model, cut), cut)
    long = log_scales(open_classifier(model, whole), whole, positions=[9, 9])
    np.testing.assert_allclose(list(short.values()), list(long.values()), rtol=1e-9)


def test_columns_beside_those_of_an_audit(tmp_path):
    folder = save_tiny("gpt2", tmp_path / "gpt2")
    inputs = [[(7 * i + 3 * j + i * j) % 20 for j in range(6)] for i in range(12)]
    audit = attnlaw.audit(folder, jobs=1)
    rows = measured_proxy(audit, folder, inputs)
    assert rows.drop("log10_scale_measured", "p_measured", "effective_directions").equals(audit.matrices)
    measurement = measure_model(
        str(folder), [RawInput("ids", ids=tuple(ids)) for ids in inputs], amplification=True
    )
    for row, matrix in zip(rows.iter_rows(named=True), measurement.matrices, strict=True):
        assert (row["layer"], row["head"], row["kind"]) == (matrix.layer, matrix.head, matrix.kind)
        assert row["log10_scale_measured"] == pytest.approx(matrix.log10_scale_measured, rel=1e-12)
        assert row["effective_directions"] == matrix.effective_directions <= matrix.rank
        assert (row["log10_scale"], row["continuous_p"]) == pytest.approx(
            (matrix.log10_scale, matrix.p), abs=1e-9
        )
    some = attnlaw.audit(folder, jobs=1, only="qk")
    assert measured_proxy(some, folder, inputs).height == 8
    with pytest.raises(InputError, match="the result has 2 cases; choose one"):
        measured_proxy(audit + audit, folder, inputs)


def test_margins_of_0_have_no_scale():
    (_, spectrum), *_ = attnlaw.audit(EXAMPLE, jobs=1, only="qk", layers="0").record.tree.layers[0].leaves()
    assert set(vars(measure_at_scale(spectrum, None, 128)).values()) == {None}


def test_a_module_of_no_known_family_is_one_line():
    inputs = as_inputs(torch.randn(3, 2, 4, generator=torch.manual_seed(0)))
    network = open_classifier(torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(8, 2)), inputs)
    with pytest.raises(
        InputError, match="scales can only be measured for known types of models; give a model of"
    ):
        log_scales(network, inputs)


def test_gains_of_a_module_are_kept(tmp_path):
    """RMSNorm is replaced by one in float64, with the gains that it had."""
    folder = save_tiny("llama", tmp_path / "llama")
    distances = [
        [row.distance for row in measure_margins(model, IDS * 3).rows]
        for model in (tiny_model("llama", attn_implementation="eager"), folder)
    ]
    np.testing.assert_allclose(*distances, rtol=1e-12)


@pytest.mark.long
def test_rxnfp_directions():
    """Nine reactions of 37 and 49 tokens: published sums, indices and directions, with and without L."""
    folder = real_checkpoint("rxnfp-10k")
    inputs = as_inputs([reaction for reaction in reactions(folder) if len(reaction) in (37, 49)])
    assert len(inputs) == 9
    network = open_classifier(folder, inputs)
    logs = log_scales(network, inputs)
    audit = attnlaw.audit(folder, jobs=1)
    leaves = [leaf for layer in audit.trees[0].layers for leaf in layer.leaves()]
    published = {1.0: (18294.9, 14, 11282), 12.0: (16917.9, 50, 1426 + 2112 + 2799 + 2667)}
    for divided, (total, indices, directions) in published.items():
        sums, rows = np.sqrt(12), []
        for location, spectrum in leaves:
            log_scale = logs[location.layer, location.kind, location.head] - np.log(divided)
            rows.append((location.kind, measure_at_scale(spectrum, log_scale, 256)))
            sums += np.exp(log_contribution(np.array([rows[-1][1].p_measured]), spectrum, log_scale, 256)[0])
        assert sums == pytest.approx(total, abs=0.051)
        assert sum(scaled.p_measured > 0 for _, scaled in rows) == indices
        assert sum(scaled.effective_directions for _, scaled in rows) == directions
    by_kind = {
        kind: sum(scaled.effective_directions for row_kind, scaled in rows if row_kind == kind)
        for kind, _ in rows
    }
    assert by_kind == {"qk": 1426, "vo": 2112, "ffn_in": 2799, "ffn_out": 2667}
    worst = audit.matrices["log10_scale"].to_numpy()
    measured = [logs[p.layer, p.kind, p.head] / LN10 for p, _ in leaves]
    apart = worst - np.array(measured)
    assert (apart.max(), np.median(apart)) == pytest.approx((36.5, 17.0), abs=0.051)
    assert apart.min() == pytest.approx(0.26, abs=0.0051)
