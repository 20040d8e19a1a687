"""Findings: what each rule sees in a damaged model, and that it is silent on a sound one."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from analysis.findings.damages import DAMAGES, Weights, int4, maps
from numpy.typing import NDArray
from real_checkpoints import audited

import attnlaw
from attnlaw.analysis.audit.audit import model_findings
from attnlaw.analysis.columns import MATRICES
from attnlaw.analysis.findings.apply import group_findings, run_detectors
from attnlaw.analysis.findings.detectors import DETECTORS, Finding
from attnlaw.analysis.findings.duplicates import cosine, project_map, sketch_heads
from attnlaw.analysis.findings.embeddings import noise_ratio
from attnlaw.analysis.findings.evidence import (
    BIAS,
    NORM_GAIN,
    OFFSET_GAIN,
    TOKENS,
    Balance,
    Evidence,
    StoredTensor,
    Subject,
    TensorLocation,
)
from attnlaw.analysis.findings.observer import EvidenceCollector
from attnlaw.analysis.findings.orientation import side_fits, side_grams
from attnlaw.analysis.findings.precision import decibels, median_significands
from attnlaw.analysis.findings.scan import is_mask, scan
from attnlaw.checkpoints.blocks import View
from attnlaw.checkpoints.model import Model
from attnlaw.checkpoints.open import open_model
from attnlaw.checkpoints.tensors import InMemoryTensors
from attnlaw.core.tables import quantity_frame
from attnlaw.spectra.measure import Selection, measure

TINY = "examples/tiny-decoder"
EMPTY = quantity_frame(MATRICES, [])
LAYER = 2
# What the note of a sound model says: notes, and no more.
SOUND = {
    "rxnmapper": {("random-head", "note"): 1},
    "rxnfp-pretrained": {},
    "minilm": {("random-head", "note"): 2},
}


@pytest.fixture(scope="module", name="tiny")
def _tiny(request: pytest.FixtureRequest) -> Model:
    return open_model(request.config.rootpath / TINY)


def rules_of(model: Model) -> dict[str, list[Finding]]:
    findings: dict[str, list[Finding]] = {}
    for finding in model_findings(model):
        findings.setdefault(finding.rule, []).append(finding)
    return findings


def counted(audit: attnlaw.Result) -> dict[tuple[str, str], int]:
    return {
        (group.rule, group.level): group.count
        for group in group_findings(audit.findings.iter_rows(named=True))
    }


def test_sound_models_have_no_findings_but_notes(tiny: Model) -> None:
    assert model_findings(tiny) == []


@pytest.mark.slow
@pytest.mark.parametrize("name", SOUND)
def test_trained_checkpoints_are_as_the_note_says(name: str) -> None:
    assert counted(audited(name)) == SOUND[name]


# Too small a model for these: four layers tell no outlier, and two of its turned matrices stay unseen.
TELLING = [name for name in DAMAGES if name not in ("transposed V", "transposed O", "query x 10")]


@pytest.mark.parametrize("name", TELLING)
def test_damages_are_found_where_they_are(name: str, tiny: Model) -> None:
    findings = rules_of(DAMAGES[name](tiny, LAYER))
    for rule in DAMAGES[name].rules:
        if rule == "norm-outlier":  # four layers are too few to tell one by its norm
            continue
        assert rule in findings, (rule, list(findings))
        layer = None if DAMAGES[name].whole else LAYER
        assert {finding.location.layer for finding in findings[rule]} == {layer}


def test_a_fresh_model_is_untrained() -> None:
    torch = pytest.importorskip("torch")
    torch.manual_seed(0)
    layer = torch.nn.TransformerEncoderLayer(64, 4, 128, activation="gelu", batch_first=True)
    fresh = torch.nn.TransformerEncoder(layer, 4, enable_nested_tensor=False)
    for encoder_layer in fresh.layers:  # torch copies one layer four times
        torch.nn.init.normal_(encoder_layer.self_attn.in_proj_weight, std=0.05)
        for linear in (encoder_layer.self_attn.out_proj, encoder_layer.linear1, encoder_layer.linear2):
            torch.nn.init.normal_(linear.weight, std=0.05)
    levels = {finding.rule: finding.level for finding in model_findings(fresh)}
    assert levels == {"untrained-model": "error", "untrained-layer": "error", "random-head": "note"}


def test_torch_encoders_are_born_with_copied_layers() -> None:
    torch = pytest.importorskip("torch")
    layer = torch.nn.TransformerEncoderLayer(32, 4, 64, batch_first=True)
    fresh = torch.nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
    assert {"identical-tensors", "duplicate-layers"} <= {finding.rule for finding in model_findings(fresh)}


def test_nan_is_a_finding_here_and_one_line_in_an_audit(tiny: Model, tmp_path: Path) -> None:
    from safetensors.numpy import save_file

    damaged = DAMAGES["a NaN"](tiny, LAYER)
    findings = model_findings(damaged)
    assert [finding.rule for finding in findings] == ["non-finite"]
    assert (findings[0].value, findings[0].location.tensor) == (1, "transformer.h.2.attn.c_attn.weight")
    tensors = {name: damaged.tensors.read(name) for name in damaged.tensors.shapes}
    save_file(tensors, tmp_path / "m.safetensors")
    with pytest.raises(attnlaw.InputError, match=r"c_attn\.weight has 1 NaN"):
        attnlaw.audit(tmp_path / "m.safetensors", heads=4)
    weights = Weights(tiny)
    for name in weights.tensors:
        weights.tensors[name] = np.full_like(weights.tensors[name], np.nan)
    assert {finding.rule for finding in model_findings(weights.changed)} == {"non-finite"}


def test_what_does_not_need_the_damaged_norm_is_still_measured(tiny: Model) -> None:
    weights = Weights(tiny)
    weights.tensors["transformer.h.1.ln_2.weight"][3] = np.inf
    from attnlaw.analysis.audit.audit import AuditOptions, audit_model

    audit = audit_model(weights.changed, options=AuditOptions(tolerant=True))
    assert audit.matrices.height == 39  # all but the map that reads this norm
    assert [finding.location.tensor for finding in model_findings(audit)] == ["transformer.h.1.ln_2.weight"]


def test_levels_thresholds_and_names() -> None:
    torch = pytest.importorskip("torch")
    layer = torch.nn.TransformerEncoderLayer(32, 4, 64, batch_first=True)
    audit = attnlaw.audit(torch.nn.TransformerEncoder(layer, 2, enable_nested_tensor=False))
    levels = {finding.level for finding in model_findings(audit, levels={"duplicate-layers": "note"})}
    assert "note" in levels
    quiet = model_findings(audit, ignore=["identical-tensors"], levels={"duplicate-layers": "off"})
    assert not {"identical-tensors", "duplicate-layers"} & {finding.rule for finding in quiet}
    others = set(DETECTORS) - {"untrained-model"}
    assert model_findings(audit, thresholds={"untrained-model": 1.0}, ignore=others) == []
    for thresholds in ({"non-finite": 1.0}, {"duplicate-heads": 0.2}, {"unbalanced": float("nan")}):
        with pytest.raises(attnlaw.InputError, match="threshold of"):
            model_findings(audit, thresholds=thresholds)
    with pytest.raises(attnlaw.InputError, match="did you mean unbalanced"):
        model_findings(audit, ignore=["unbalance"])


@pytest.mark.parametrize(
    "dtype", ["float64", "float32", "float16", "bfloat16", "float8_e4m3fn", "float8_e5m2"]
)
def test_bits_tell_what_numbers_tell(dtype: str) -> None:
    """Two routes: integer maxima of bits, and numpy on the numbers."""
    numpy_dtype = np.dtype(getattr(ml_dtypes, dtype, dtype) if "8" in dtype or "bf" in dtype else dtype)
    rng = np.random.default_rng(1)
    array = rng.standard_normal((40, 96)).astype(numpy_dtype)
    array[3], array[:, 5] = 0, 0
    seen, plain = scan(array), np.abs(array.astype(float))
    assert (seen.peak, seen.not_finite) == (plain.max(), 0)
    assert (seen.zero_rows, seen.zero_columns) == (
        (plain.max(axis=1) == 0).sum(),
        (plain.max(axis=0) == 0).sum(),
    )
    array[7, 8], array[9, 9] = np.nan, -np.nan
    assert (scan(array).not_finite, scan(array).peak) == (2, None)
    assert scan(np.full((4, 4), -0.5, numpy_dtype)).constant
    assert not scan(np.array([[0.5, -0.5]], numpy_dtype)).constant


def test_grids_are_told_by_their_values() -> None:
    """int4 has 15 values in a block, int8 keeps most of 32: the note's counts."""
    weights = np.random.default_rng(0).standard_normal((128, 256)).astype(np.float32)
    assert scan(weights).distinct == 32
    coarse = scan(int4(weights)).distinct
    assert coarse is not None
    assert 8 <= coarse <= 13
    assert scan(weights.astype(ml_dtypes.float8_e4m3fn)).distinct > 20


def test_one_warning_for_a_model_on_a_coarse_grid(tiny: Model) -> None:
    """A dequantised model is sound, and its 16 matrices have one cause."""
    weights = Weights(tiny)
    for layer in tiny.layers:
        for view in maps(layer):
            weights.tensors[view.tensor] = int4(weights.tensors[view.tensor])
    (finding,) = rules_of(weights.changed)["coarse-grid"]
    assert (finding.level, finding.location) == ("warning", TensorLocation())
    assert "in 16 of 16 matrices" in finding.meaning
    (finding,) = rules_of(DAMAGES["an int4 layer"](tiny, LAYER))["coarse-grid"]
    assert finding.location == TensorLocation(LAYER)
    weights = Weights(tiny)
    name = tiny.layers[LAYER].attention.output.tensor
    weights.tensors[name] = int4(weights.tensors[name])
    (finding,) = rules_of(weights.changed)["coarse-grid"]
    assert finding.location.tensor == name


def test_a_code_whose_error_is_unknown_has_a_note_without_a_value() -> None:
    """The rounding error of 4-bit integers is not measured, because the file has only the rounded weights."""
    coded = Path(__file__).parents[2] / "checkpoints" / "quantization" / "codes" / "gptq-4-sym"
    findings = attnlaw.audit(coded).findings
    (note,) = findings.filter(rule="quantised").iter_rows(named=True)
    assert note["value"] is None
    assert "GPTQ 4-bit" in note["meaning"]
    assert "dB" not in note["meaning"]


@pytest.mark.parametrize("code", ["float8_e4m3fn", "float8_e5m2"])
@pytest.mark.parametrize("stored", ["float32", "float16", "bfloat16"])
def test_float8_is_known_by_its_significands_at_any_scale(code: str, stored: str) -> None:
    """Of 3 or 2 bits: 8 or 4 significands, times a scale for the tensor, for a row, or for a block of 128."""
    rng = np.random.default_rng(0)
    weights = 0.02 * rng.standard_normal((96, 512))
    target, bits = np.dtype(getattr(ml_dtypes, code)), {"float8_e4m3fn": 3, "float8_e5m2": 2}[code]
    blocks = np.abs(weights.reshape(96, 4, 128)).max(axis=2).repeat(128, axis=1)
    wide = np.dtype(getattr(ml_dtypes, stored, stored))
    per_row = np.abs(weights).max(axis=1, keepdims=True)
    for scale in (1.0, np.abs(weights).max() / 200, per_row / 200, blocks / 200):
        rounded = ((weights / scale).astype(target).astype(np.float64) * scale).astype(wide)
        count = median_significands(rounded)
        assert count is not None
        assert 2**bits / 2 <= count <= 2**bits
    int8 = np.round(weights / per_row * 127) * per_row / 127
    for other in (weights, int8):
        kept = median_significands(other.astype(wide))
        assert kept is not None
        assert kept > 30
    pruned = np.where(rng.random(weights.shape) < 0.9, 0, weights)
    assert median_significands(pruned) is None  # 13 values of 128 are left in any format


def test_decibels_are_those_of_the_rounding(tmp_path: Path) -> None:
    """By the steps of the blocks, and by the error that rounding made: uniform errors, so 12 mean square."""
    weights = np.random.default_rng(0).standard_normal((256, 256))
    blocks = weights.reshape(-1, 32)
    low, step = blocks.min(axis=1, keepdims=True), np.ptp(blocks, axis=1, keepdims=True) / 15
    stored = (low + step * np.round((blocks - low) / step)).reshape(weights.shape)
    made = 10 * np.log10(np.mean(weights**2) / np.mean((stored - weights) ** 2))
    # Of 32 the two extremes are exact (0.28 dB); 256 sampled blocks have steps of 15 percent spread.
    assert decibels(stored, "Q4_1") == pytest.approx(made - 10 * np.log10(32 / 30), abs=0.2)


def test_buffers_are_no_weights(tiny: Model) -> None:
    weights = Weights(tiny)
    weights.tensors["transformer.h.0.attn.bias"] = np.triu(np.full((8, 8), -np.inf, np.float32), 1)
    weights.tensors["masked_bias"] = np.array(-1e9, np.float32)
    assert is_mask(weights.tensors["masked_bias"])
    assert model_findings(weights.changed) == []
    weights.tensors["classifier.weight"] = np.array([[np.nan, 1.0, 2.0]], np.float32)
    assert [finding.location.tensor for finding in model_findings(weights.changed)] == ["classifier.weight"]


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize(
    "name", ["transformer.ln_f.weight", "transformer.wpe.weight", "router.weight", "cls"]
)
def test_tensors_of_one_value_that_is_not_finite_are_found(tiny: Model, name: str, value: float) -> None:
    """A buffer holds one value, too, and a mask minus infinity: these are neither."""
    weights = Weights(tiny)
    shape = weights.tensors[name].shape if name in weights.tensors else (4, 128)
    weights.tensors[name] = np.full(shape, value, np.float32)
    findings = model_findings(weights.changed)
    assert [(finding.rule, finding.location.tensor) for finding in findings] == [("non-finite", name)]


@pytest.mark.parametrize(
    "name", ["transformer.ln_f.weight", "transformer.wpe.weight", "transformer.wte.weight"]
)
def test_zeros_outside_of_the_layers_are_found(tiny: Model, name: str) -> None:
    weights = Weights(tiny)
    weights.tensors[name][:] = 0
    assert ("zero-tensor", name) in {
        (each.rule, each.location.tensor) for each in model_findings(weights.changed)
    }


def test_zeros_that_are_normal_pass(tiny: Model) -> None:
    """The only row of a table of types, and biases."""
    weights = Weights(tiny)
    weights.tensors["embeddings.token_type_embeddings.weight"] = np.zeros((1, 128), np.float32)
    weights.tensors["transformer.ln_f.bias"][:] = 0
    assert model_findings(weights.changed) == []
    weights.tensors["embeddings.token_type_embeddings.weight"] = np.zeros((2, 128), np.float32)
    assert [finding.rule for finding in model_findings(weights.changed)] == ["zero-tensor"]


@pytest.mark.parametrize("name", ["transformer.wpe.weight", "transformer.wte.weight"])
def test_rows_that_do_not_differ_are_found(tiny: Model, name: str) -> None:
    weights = Weights(tiny)
    table = weights.tensors[name].copy()
    for rows, level in (
        (np.repeat(table[3:4], len(table), 0), "error"),
        (table * (np.arange(table.shape[1]) == 0), "warning"),
    ):
        weights.tensors[name][:] = rows
        findings = rules_of(weights.changed)["alike-embedding-rows"]
        assert [(finding.level, finding.location.tensor) for finding in findings] == [(level, name)]
    weights.tensors[name][:] = table
    weights.tensors[name][1:] = table[0]
    weights.tensors[name][-1] = table[1]  # one row differs, which a sample of rows may miss
    assert "alike-embedding-rows" not in rules_of(weights.changed)


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("stored", [">f4", np.float16, ml_dtypes.bfloat16, np.float64], ids=str)
def test_damage_is_found_without_warnings(tiny: Model, stored: Any) -> None:
    """Swapped bytes give every kind of NaN, among them those that warn when they are cast."""
    weights = Weights(tiny)
    names = ["transformer.h.1.mlp.c_fc.weight", "transformer.h.1.ln_1.weight", "transformer.wte.weight"]
    for name in names:
        array = weights.tensors[name].astype(stored)
        signalling = {2: 0x7C01 if stored is np.float16 else 0x7F81, 4: 0x7F800001, 8: 0x7FF0000000000001}
        if array.dtype == ">f4":
            array = array.view(np.float32)
        array.view(f"u{array.itemsize}")[:3] = signalling[array.itemsize]
        weights.tensors[name] = array
    assert {each.location.tensor for each in rules_of(weights.changed)["non-finite"]} == set(names)


def test_sketches_estimate_cosines(tiny: Model) -> None:
    """Against exact cosines, which are those of the formed products; |error| about (1 - c^2) / 6."""
    for kind in ("qk", "vo"):
        for layer in tiny.layers:
            attention = layer.attention
            maps = {
                view: project_map(attention, view, tiny.read(view).astype(np.float32))
                for view in attention.views(kind)
            }
            rough = sketch_heads(attention, kind, maps)
            exact = list(attention.factors(tiny, kind))
            formed = [left @ right for left, right in exact]
            for i in range(attention.heads):
                for j in range(i):
                    true = cosine(exact[i], exact[j])
                    dense = (
                        np.vdot(formed[i], formed[j]) / np.linalg.norm(formed[i]) / np.linalg.norm(formed[j])
                    )
                    assert true == pytest.approx(dense, abs=1e-12)
                    assert abs(float(rough[i] @ rough[j]) - dense) < 5 * (1 - dense**2) / 6


def test_a_layer_is_a_copy_only_if_all_its_matrices_are(tiny: Model) -> None:
    copies = Weights(tiny)
    for layer in (1, 3):
        for view, source in zip(maps(tiny.layers[layer]), maps(tiny.layers[0]), strict=True):
            copies.tensors[view.tensor] = copies.tensors[source.tensor].copy()
    findings = rules_of(copies.changed)["copied-layer"]
    assert [(finding.level, finding.location) for finding in findings] == [
        ("error", TensorLocation(1)),
        ("error", TensorLocation(3)),
    ]
    assert all("are exact copies of those in layer 0" in finding.meaning for finding in findings)
    assert "[findings]" in DETECTORS[findings[0].rule].remedy  # how to switch it off
    copies.tensors[tiny.layers[3].attention.output.tensor][0, 0] += 1e-6
    findings = rules_of(copies.changed)["copied-layer"]
    assert [finding.location.layer for finding in findings] == [1]


def test_heads_of_zeros_are_found_even_if_most_heads_are(tiny: Model) -> None:
    """The median of the others is 0 then."""
    weights = Weights(tiny)
    for layer in tiny.layers[:3]:
        weights.change(layer.attention.value, np.zeros_like)
    findings = rules_of(weights.changed)["dead-map"]
    assert len(findings) == 12
    assert {(finding.level, finding.value) for finding in findings} == {("warning", 0.0)}


@pytest.mark.parametrize("shape", [(591, 256), (256, 300), (5000, 48), (4100, 300)])
@pytest.mark.parametrize("draw", ["uniform", "normal", "laplace"])
def test_noise_of_embeddings_against_all_singular_values(shape: tuple[int, int], draw: str) -> None:
    """Two routes: Lanczos's lower bound on a part of the table, and the singular values of all of it.

    For square noise, the largest of 24 Lanczos steps is low by less than 3%.
    """
    rng = np.random.default_rng(3)
    noise = rng.uniform(-1, 1, shape) if draw == "uniform" else getattr(rng, draw)(size=shape)
    shared = noise + 0.3 * np.outer(rng.choice([-1, 1], shape[0]), rng.choice([-1, 1], shape[1]))
    for table in (noise, shared):
        edge = np.sqrt(np.mean(table**2)) * (shape[0] ** 0.5 + shape[1] ** 0.5)
        exact = np.linalg.norm(table, 2) / edge
        assert noise_ratio(1e-30 * table) == pytest.approx(exact, rel=0.03)
        assert (exact < 1.2) == (table is noise)


def test_tables_whose_rows_have_other_lengths_are_no_noise() -> None:
    """Trained tokens differ more in length, or less where all of them are alike. Few rows show nothing."""
    rng = np.random.default_rng(3)
    noise = rng.standard_normal((300, 64))
    assert noise_ratio(noise) is not None
    assert noise_ratio(noise / np.linalg.norm(noise, axis=1, keepdims=True)) is None
    assert noise_ratio(noise * rng.uniform(0.5, 1.5, (300, 1))) is None
    assert noise_ratio(noise[:255]) is None
    noise[:45] = 0
    assert noise_ratio(noise) is None


def test_rows_of_zeros_at_the_end_of_a_table_are_padding(tiny: Model) -> None:
    view = tiny.embedding_view
    assert view is not None
    for rows, levels in (
        (slice(100, 101), []),  # one: a token for padding
        (slice(-40, None), []),
        (slice(0, 2), []),  # of 256, below one percent
        (slice(0, 20), ["warning"]),
        (slice(0, 40), ["error"]),
    ):
        weights = Weights(tiny)
        weights.tensors[view.tensor][rows] = 0
        findings = model_findings(weights.changed)
        assert [finding.level for finding in findings] == levels, rows
        assert {finding.rule for finding in findings} <= {"zero-embedding-rows"}


@pytest.mark.parametrize(("rows", "levels"), [(1, []), (2, ["warning"]), (7, ["error"])])
def test_one_row_of_zeros_is_the_padding_token_of_a_small_table(rows: int, levels: list[str]) -> None:
    location = TensorLocation(tensor="tokens")
    table = StoredTensor(
        *(location, "embedding", (64, 8), "float32", False, 0, 1.0, False, rows, 0),
        part=TOKENS,
        inner_zero_rows=rows,
    )
    assert [finding.level for finding in run_detectors(Subject(Evidence((table,)), EMPTY))] == levels


def test_a_new_head_of_a_classifier_is_no_table_of_tokens(tiny: Model) -> None:
    """It has another number of rows than the embedding, and may be random on purpose."""
    noise = np.random.default_rng(0).standard_normal((300, 128)).astype(np.float32)
    for rows, rules in ((300, set()), (256, {"random-embedding"})):
        weights = Weights(tiny)
        weights.tensors["lm_head.weight"] = noise[:rows]
        head = View("lm_head.weight", (128, rows), stored_out_in=True)
        model = replace(weights.changed, unembedding_view=head)
        assert {finding.rule for finding in model_findings(model)} == rules


def test_gains_stored_minus_one_are_reset_at_zero() -> None:
    def vector(part: str, value: float, name: str) -> StoredTensor:
        location = TensorLocation(0, tensor=name)
        return StoredTensor(location, "vector", (8,), "float32", False, 0, value, True, 0, 0, part=part)

    def rules(*tensors: StoredTensor) -> list[str]:
        return [finding.rule for finding in run_detectors(Subject(Evidence(tensors), EMPTY))]

    assert rules(vector(OFFSET_GAIN, 0, "a"), vector(NORM_GAIN, 1, "b")) == ["gains-one"]
    assert rules(vector(OFFSET_GAIN, 1, "a"), vector(NORM_GAIN, 1, "b")) == []
    biases = [vector(BIAS, 0, str(number)) for number in range(4)]
    assert rules(*biases) == ["biases-zero"]
    assert rules(*biases[:3]) == []


def test_both_sides_of_a_sketch_are_drawn_apart(tiny: Model) -> None:
    """Projectors on orthogonal spaces have cosine 0; one draw for both sides would add their traces (0.33).

    Of rank 32 the products of sketches spread by about (1/4096 + 2/(64 * 32))^(1/2) = 0.035.
    """
    weights, attention = Weights(tiny), tiny.layers[0].attention
    basis = np.linalg.qr(np.random.default_rng(0).standard_normal((128, 128)))[0]
    for view in (attention.query, attention.key):
        weights.write(view, basis)
    model = weights.changed
    maps = {
        view: project_map(attention, view, model.read(view).astype(np.float32))
        for view in attention.views("qk")
    }
    rough = sketch_heads(attention, "qk", maps)
    assert np.abs(np.triu(rough @ rough.T, 1)).max() < 5 * 0.035


def test_a_head_in_another_basis_is_still_a_duplicate(tiny: Model) -> None:
    """A gauge changes every tensor of a head, and not what it computes."""
    weights, attention = Weights(tiny), tiny.layers[LAYER].attention
    gauge = np.eye(32) + 0.3 * np.random.default_rng(0).standard_normal((32, 32)) / 32**0.5
    for view, factor in ((attention.query, gauge), (attention.key, np.linalg.inv(gauge).T)):
        matrix = weights.read(view)
        matrix[:, 32:64] = matrix[:, :32] @ factor
        weights.write(view, matrix)
    for view, factor in ((attention.value, gauge), (attention.output, np.linalg.inv(gauge))):
        matrix = weights.read(view)
        if view == attention.value:
            matrix[:, 32:64] = matrix[:, :32] @ factor
        else:
            matrix[32:64] = factor @ matrix[:32]
        weights.write(view, matrix)
    (finding,) = rules_of(weights.changed)["duplicate-heads"]
    assert (finding.location.layer, finding.location.head) == (LAYER, 1)
    assert finding.value == pytest.approx(1, abs=1e-6)


def test_both_sides_of_a_matrix_are_told_apart(tiny: Model) -> None:
    """The fits of a transposed matrix are those of the matrix with its sides exchanged."""
    attention = tiny.layers[1].attention
    matrix_sides = {
        field: side_grams(field, tiny.read(getattr(attention, field)))
        for field in ("query", "key", "value", "output")
    }
    before = {role: pair for role, *pair in side_fits(matrix_sides)}
    turned = matrix_sides | {"query": side_grams("query", tiny.read(attention.query).T)}
    after = {role: pair for role, *pair in side_fits(turned)}
    assert after["query"] == pytest.approx(before["query"][::-1], abs=1e-5)


def test_ratios_are_compared_with_the_median_layer() -> None:
    def unbalanced_layers(ratios: list[float], threshold: float | None = None) -> list[int | None]:
        balance = tuple(
            Balance(TensorLocation(layer, kind="qk"), "Q/K", ratio) for layer, ratio in enumerate(ratios)
        )
        subject = Subject(Evidence(balances=balance), EMPTY)
        given = {} if threshold is None else {"unbalanced": threshold}
        return [finding.location.layer for finding in run_detectors(subject, thresholds=given)]

    assert unbalanced_layers([1, 1, 1, 3.1]) == [3]
    assert unbalanced_layers([1, 1, 1, 1 / 3.1]) == [3]
    assert unbalanced_layers([1, 1, 1, 2.9]) == []
    assert unbalanced_layers([1, 1, 1, 2.9], 2.5) == [3]
    assert unbalanced_layers([1, 1, 3.1]) == []  # three layers have no median to trust


def test_queries_with_norms_of_their_own_have_no_balance(tiny: Model) -> None:
    from attnlaw.checkpoints.blocks import Norm

    layers = tuple(
        replace(
            layer,
            attention=replace(
                layer.attention, scores=replace(layer.attention.scores, query_norm=Norm("rms"))
            ),
        )
        for layer in tiny.layers
    )
    free = replace(tiny, layers=layers)
    watched = EvidenceCollector(free)
    for layer in layers:
        for view in layer.views:
            watched.model.read(view)
    noted = watched.evidence(Selection(layers=[0]))
    assert {balance.pair for balance in noted.balances} == {"V/O", "in/out"}


def test_logits_are_those_of_the_folded_product(tiny: Model) -> None:
    """From M = C g Q K^T g C and the biases, formed densely here: every head's own typical size and bound."""
    damaged = DAMAGES["query x 1000"](tiny, LAYER)
    findings = rules_of(damaged)
    attention, norm = damaged.layers[LAYER].attention, damaged.layers[LAYER].attention.norm
    assert norm is not None
    gain, shift, n = damaged.gain(norm), damaged.shift(norm), 128
    typical, bound = {}, {}
    for number in range(4):
        head, maps, constants = slice(32 * number, 32 * number + 32), [], []
        for view in (attention.query, attention.key):
            matrix = damaged.read(view)[:, head]
            folded = gain[:, None] * matrix
            maps.append(folded - folded.mean(axis=0))
            constants.append(shift @ matrix + damaged.bias(view)[head])
        (left, right), (q, k), f = maps, constants, n / (n - 1)
        linear = np.linalg.norm(left @ k) + np.linalg.norm(right @ q)
        spread = (f * np.linalg.norm(left @ right.T)) ** 2 + f * np.linalg.norm(right @ q) ** 2
        typical[number] = np.sqrt(spread / 32)
        bound[number] = (n * np.linalg.norm(left @ right.T, 2) + n**0.5 * linear + abs(q @ k)) / 32**0.5
    for rule, values, threshold in (("saturated-scores", typical, 100.0), ("logit-overflow", bound, 65504.0)):
        expected = {head: value for head, value in values.items() if value > threshold}
        assert expected
        sizes = {
            finding.location.head: finding.value
            for finding in findings[rule]
            if finding.location.layer == LAYER
        }
        assert sizes == pytest.approx(expected, rel=1e-9)


def test_evidence_does_not_depend_on_threads(tiny: Model) -> None:
    noted = []
    for jobs in (1, 2):
        watched = EvidenceCollector(tiny)
        measure(watched.model, Selection(), jobs)
        noted.append(replace(watched.evidence(Selection()), seconds=0.0))
    assert noted[0] == noted[1]


def test_every_tensor_is_read_once_for_findings(tiny: Model) -> None:
    """A whole audit reads no tensor more often than measuring does, and those that no map reads once."""

    class Counting(InMemoryTensors):
        def __init__(self, tensors: dict[str, Any]) -> None:
            super().__init__(tensors)
            self.reads: Counter[str] = Counter()

        def read(self, name: str, member: int | None = None) -> NDArray[Any]:
            self.reads[name] += 1
            return super().read(name, member)

    def reads(look: bool) -> dict[str, int]:
        tensors = Counting(Weights(tiny).tensors)
        model = replace(tiny, tensors=tensors)
        watched = EvidenceCollector(model)
        measure(watched.model if look else model, Selection(), 1)
        if look:
            watched.evidence(Selection())
        return tensors.reads

    plain, watched = reads(look=False), reads(look=True)
    assert {name: watched[name] for name in plain} == plain
    assert set(watched) == set(tiny.tensors.shapes)
    assert all(watched[name] == 1 for name in watched if name not in plain)


def test_rules_say_what_they_mean() -> None:
    for rule in DETECTORS.values():
        assert rule.level in ("note", "warning", "error")
        for text in (rule.when, rule.meaning, rule.remedy):
            assert text
            assert not text.endswith(".")
