"""Whole models: invariants, verdicts on models, other names and formats, what only one of them has."""

import json

import ml_dtypes
import numpy as np
import polars as pl
import pytest
from real_checkpoints import real_checkpoint
from safetensors.numpy import save_file

import attnlaw
from attnlaw.analysis.diff.columns import DIFF, DIFF_TENSORS
from attnlaw.analysis.diff.diff import diff
from attnlaw.analysis.diff.tensors import compare_tensors
from attnlaw.checkpoints.settings import ModelSettings

WIDTH, HEADS = 48, 4


def encoder(seed=0, layers=2, prefix="bert.", inner=96, vocabulary=50):
    rng = np.random.default_rng(seed)
    shapes = {
        **{f"attention.self.{part}": (WIDTH, WIDTH) for part in ("query", "key", "value")},
        "attention.output.dense": (WIDTH, WIDTH),
        "intermediate.dense": (inner, WIDTH),
        "output.dense": (WIDTH, inner),
    }
    state = {f"{prefix}embeddings.word_embeddings.weight": rng.standard_normal((vocabulary, WIDTH))}
    for layer in range(layers):
        for name, shape in shapes.items():
            at = f"{prefix}encoder.layer.{layer}.{name}"
            # A few strong directions, as trained weights have.
            strong = rng.standard_normal((shape[0], 3)) @ rng.standard_normal((3, shape[1]))
            state[f"{at}.weight"] = 0.2 * rng.standard_normal(shape) + 0.3 * strong
            state[f"{at}.bias"] = 0.1 * rng.standard_normal(shape[0])
    return {name: tensor.astype(np.float32) for name, tensor in state.items()}


def compared(base, model, **settings):
    return diff(base, ModelSettings(model=model, heads=HEADS, jobs=1, **settings))


def verdicts(comparison):
    return comparison.quantities["verdicts"]


def matrices_of(state, *parts):
    return [name for name in state if name.endswith(".weight") and any(part in name for part in parts)]


def test_a_model_against_itself():
    base = encoder()
    comparison = compared(base, base)
    assert verdicts(comparison) == ["identical"]
    assert comparison.maps["size"].to_list() == [0.0] * comparison.maps.height
    assert comparison.maps["cosine"].to_list() == [1.0] * comparison.maps.height
    assert comparison.maps["rank"].null_count() == comparison.maps.height
    assert comparison.quantities["verdict"] == "Identical: all 25 compared tensors are equal."
    assert comparison.quantities["compared"] == (
        "Compared: all 25 tensors (12 matrices, 1 embedding, 12 vectors)."
    )


def test_the_columns_are_those_that_are_declared():
    comparison = compared(encoder(), encoder(1))
    assert comparison.maps.columns == [column.name for column in DIFF]
    assert comparison.tensors.columns == [column.name for column in DIFF_TENSORS]
    places = comparison.maps.select("layer", "kind", "head").rows()
    assert places[:2] == [(0, "qk", 0), (0, "qk", 1)]
    assert places[8:10] == [(0, "ffn_in", None), (0, "ffn_out", None)]


def test_maps_against_dense_computation():
    base, model = encoder(), encoder(1)
    for name in base:
        model[name] = base[name] + 0.1 * model[name]
    comparison = compared(base, model)
    for row in comparison.maps.iter_rows(named=True):
        before, after = (_dense(state, row) for state in (base, model))
        update = after - before
        values = np.linalg.svd(update, compute_uv=False)
        assert row["size"] == pytest.approx(np.linalg.norm(update) / np.linalg.norm(before), rel=1e-6)
        assert row["size_2"] == pytest.approx(values[0] / np.linalg.norm(before, 2), rel=1e-6)
        assert row["scale"] == pytest.approx(np.vdot(before, after) / np.vdot(before, before), rel=1e-6)
        assert row["stable_rank"] == pytest.approx(np.sum(values**2) / values[0] ** 2, rel=1e-6)
        assert (row["rows"], row["cols"]) == before.shape


def _dense(state, row):
    at = f"bert.encoder.layer.{row['layer']}"
    read = {
        part: state[f"{at}.{name}.weight"].astype(float).T
        for part, name in (
            *((part, f"attention.self.{part}") for part in ("query", "key", "value")),
            ("output", "attention.output.dense"),
            ("ffn_in", "intermediate.dense"),
            ("ffn_out", "output.dense"),
        )
    }
    if row["head"] is None:
        return read[row["kind"]]
    span = slice(row["head"] * WIDTH // HEADS, (row["head"] + 1) * WIDTH // HEADS)
    if row["kind"] == "qk":
        return read["query"][:, span] @ read["key"][:, span].T
    return read["value"][:, span] @ read["output"][span]


def regauged(state, seed=0):
    """Every head's query and key (value and output) multiplied by a matrix and by its inverse."""
    rng = np.random.default_rng(seed)
    changed = dict(state)
    d = WIDTH // HEADS
    for layer in range(2):
        at = f"bert.encoder.layer.{layer}.attention"
        names = [f"{at}.self.query", f"{at}.self.key", f"{at}.self.value", f"{at}.output.dense"]
        query, key, value, output = (state[f"{name}.weight"].astype(float) for name in names)
        for head in range(HEADS):
            span = slice(head * d, (head + 1) * d)
            for _ in range(2):
                gauge = np.eye(d) + 0.3 * rng.standard_normal((d, d)) / np.sqrt(d)
                inverse = np.linalg.inv(gauge)
                query[span], key[span] = gauge.T @ query[span], inverse @ key[span]
                value[span], output[:, span] = gauge.T @ value[span], output[:, span] @ inverse.T
        for name, weight in zip(names, (query, key, value, output), strict=True):
            changed[f"{name}.weight"] = weight.astype(np.float32)
    return changed


def test_a_change_of_gauge_is_told():
    base = encoder()
    comparison = compared(base, regauged(base))
    assert verdicts(comparison)[0] == "regauged"
    assert comparison.maps["size"].max() < 1e-6
    assert set(comparison.maps["rank"].drop_nulls()) == {0}
    assert comparison.maps["z_left"].null_count() == comparison.maps.height
    assert "dense" in verdicts(comparison)


def test_a_rounded_copy_is_not_called_regauged():
    base = encoder()
    model = {name: tensor.astype(ml_dtypes.bfloat16) for name, tensor in base.items()}
    comparison = compared(base, model)
    assert verdicts(comparison) == ["rounded"]
    assert set(comparison.maps["rank"].drop_nulls()) == {0}
    assert "Rounded to bfloat16: all 25 tensors" in comparison.quantities["verdict"]


def test_permuted_heads_and_neurons_leave_sizes():
    base = encoder()
    model = {
        name: tensor + 0.02 * other
        for (name, tensor), other in zip(base.items(), encoder(1).values(), strict=True)
    }
    plain = compared(base, model)
    order, d = [2, 0, 3, 1], WIDTH // HEADS
    rows = np.concatenate([np.arange(d) + head * d for head in order])
    neurons = np.random.default_rng(0).permutation(96)
    moved = dict(model)
    for name in matrices_of(model, "self."):
        moved[name] = model[name][rows]
    for name in matrices_of(model, "attention.output"):
        moved[name] = model[name][:, rows]
    for name in matrices_of(model, "intermediate"):
        moved[name] = model[name][neurons]
    for name in matrices_of(model, ".output.dense"):
        if "attention" not in name:
            moved[name] = model[name][:, neurons]
    for name in [name for name in model if name.endswith("bias")]:
        if "self." in name or "intermediate" in name:
            moved[name] = model[name][rows if "self." in name else neurons]
    comparison = compared(base, moved)
    assert verdicts(comparison)[:2] == ["rearranged", "reordered"]
    sentence = comparison.quantities["verdict"]
    assert "same function" not in sentence
    changed = "in the new order all 4 tensors changed further."
    assert f"Layers 0 and 1: heads reordered consistently; {changed}" in sentence
    for layer in (0, 1):
        assert f"Layer {layer}: neurons reordered consistently; in the new order" in sentence
    assert comparison.maps["size"].to_list() == pytest.approx(plain.maps["size"].to_list(), rel=1e-9)
    heads = comparison.maps.filter(pl.col("kind") == "qk", pl.col("layer") == 0)["matched_head"].to_list()
    assert [order[head] for head in heads] == [0, 1, 2, 3]
    unmatched = diff(base, ModelSettings(model=moved, heads=HEADS), match=False)
    assert unmatched.maps["size"].median() > 3 * comparison.maps["size"].median()


def test_a_rotated_stream_is_told():
    """y = x M for rotated x and y: the same values, other directions."""
    base = encoder()
    turn = np.linalg.qr(np.random.default_rng(0).standard_normal((WIDTH, WIDTH)))[0]
    model = dict(base)
    for name in matrices_of(base, "layer"):
        reads = "self." in name or "intermediate" in name  # stored (out, in)
        model[name] = (base[name] @ turn if reads else turn.T @ base[name]).astype(np.float32)
    comparison = compared(base, model)
    assert "rotated" in verdicts(comparison)
    row = comparison.maps.row(0, named=True)
    assert row["size"] == pytest.approx(np.sqrt(2 - 2 * row["cosine"]), rel=1e-5)
    assert "rotated" not in verdicts(compared(base, encoder(1)))


@pytest.mark.slow
def test_a_folded_gain_is_told():
    base = encoder()
    gain = np.random.default_rng(0).uniform(0.5, 2.0, WIDTH)
    model = dict(base)
    for name in matrices_of(base, "self."):
        model[name] = (base[name] * gain).astype(np.float32)
    assert verdicts(compared(base, model))[0] == "folded"
    assert "folded" not in verdicts(compared(base, encoder(1)))


def test_another_prefix_more_layers_and_a_grown_vocabulary():
    base = encoder()
    model = {name.removeprefix("bert."): tensor for name, tensor in encoder(layers=3, vocabulary=60).items()}
    comparison = compared(base, model)
    counts = dict(comparison.tensors["verdict"].value_counts().iter_rows())
    assert counts["added"] == 12
    assert counts["reshaped"] == 1
    assert comparison.maps["layer"].unique().sort().to_list() == [0, 1]
    names = comparison.tensors.filter(pl.col("verdict") == "added")["tensor"]
    assert all(name.startswith("encoder.layer.2.") for name in names)


def test_tensors_of_one_model_alone():
    base = encoder()
    model = {name: tensor for name, tensor in base.items() if not name.endswith("layer.1.output.dense.bias")}
    model["head.weight"] = np.ones((3, WIDTH), np.float32)
    model["steps"] = np.array([3])
    comparison = compared(base, model)
    tensor_verdicts = dict(
        comparison.tensors.filter(pl.col("verdict") != "identical").select("tensor", "verdict").iter_rows()
    )
    assert tensor_verdicts == {"bert.encoder.layer.1.output.dense.bias": "removed", "head.weight": "added"}


def test_a_nan_is_named_and_the_rest_is_measured():
    base, model = encoder(), encoder(1)
    name = "bert.encoder.layer.0.attention.self.query.weight"
    model[name] = model[name].copy()
    model[name][0, 0] = np.nan
    comparison = compared(base, model)
    assert comparison.tensors.filter(pl.col("verdict") == "non-finite")["tensor"].to_list() == [name]
    lost = comparison.maps.filter(pl.col("kind") == "qk", pl.col("layer") == 0)
    assert lost["size"].null_count() == HEADS
    assert comparison.maps.filter(pl.col("kind") == "vo")["size"].null_count() == 0


def test_nothing_shared_is_one_line():
    with pytest.raises(attnlaw.InputError, match="has no tensor in common"):
        compared({"in_proj_weight": np.ones((12, 4)), "out_proj.weight": np.ones((4, 4))}, encoder())


def test_selected_layers_and_kinds():
    comparison = compared(encoder(), encoder(1), layers="1:2", only=("qk",))
    assert set(comparison.maps["kind"]) == {"qk"}
    assert set(comparison.maps["layer"]) == {1}
    assert comparison.tensors.height == 4  # two matrices with their biases
    assert comparison.quantities["compared"] == (
        "Compared: 4 of 25 tensors (2 matrices, 2 vectors). Not selected: the other 21."
    )
    assert len(comparison.quantities["not_compared"]) == 21


def test_a_selected_layer_has_its_norms_and_biases():
    """Version 0.2.0 called a layer identical although its norm gains had changed."""
    base = encoder()
    for layer in range(2):
        base[f"bert.encoder.layer.{layer}.output.LayerNorm.weight"] = np.linspace(
            0.5, 2, WIDTH, dtype=np.float32
        )
        base[f"bert.encoder.layer.{layer}.extra.gain"] = np.linspace(1, 3, WIDTH, dtype=np.float32)
    rng = np.random.default_rng(0)
    changed = ["bert.encoder.layer.0.output.LayerNorm.weight", "bert.encoder.layer.0.extra.gain"]
    model = base | {name: base[name] * rng.uniform(0.5, 1.5, WIDTH).astype(np.float32) for name in changed}
    comparison = compared(base, model, layers="0:1")
    rows = comparison.tensors.filter(pl.col("verdict") == "changed")["tensor"]
    assert set(rows) == set(changed)
    assert comparison.quantities["verdict"].startswith("Other values: ")
    assert comparison.quantities["compared"].startswith("Compared: 14 of 29 tensors (6 matrices, 8 vectors).")
    assert compared(base, model, layers="1:2").quantities["verdict"].startswith("Identical: the 14 compared")


def test_tensors_without_weights_are_named():
    base = encoder() | {"bert.position_ids": np.arange(5)}
    comparison = compared(base, encoder())
    assert "Not compared: 1 tensor without weights (bert.position_ids)." in comparison.quantities["compared"]


def test_zero_maps_have_no_sizes():
    base, model = encoder(), encoder(1)
    for name in matrices_of(base, "layer.0.attention.self.value"):
        base[name] = np.zeros_like(base[name])
    row = compared(base, model).maps.filter(pl.col("kind") == "vo", pl.col("layer") == 0).row(0, named=True)
    assert [row[name] for name in ("size", "scale", "cosine", "overlap_left", "z_left")] == [None] * 5
    assert row["stable_rank"] > 0
    back = compared(model, base).maps.filter(pl.col("kind") == "vo", pl.col("layer") == 0).row(0, named=True)
    assert (back["size"], back["cosine"]) == (pytest.approx(1.0), None)


@pytest.fixture
def folders(tmp_path):
    """A base on disk and a LoRA adapter of its queries and values."""
    base, rng, rank = encoder(), np.random.default_rng(7), 2
    (tmp_path / "base").mkdir()
    config = {"model_type": "bert", "num_attention_heads": HEADS, "hidden_size": WIDTH}
    (tmp_path / "base/config.json").write_text(json.dumps(config))
    save_file(base, tmp_path / "base/model.safetensors")
    adapter = {}
    for layer in range(2):
        for part in ("query", "value"):
            at = f"base_model.model.bert.encoder.layer.{layer}.attention.self.{part}"
            adapter[f"{at}.lora_A.weight"] = rng.standard_normal((rank, WIDTH)).astype(np.float32)
            adapter[f"{at}.lora_B.weight"] = 0.1 * rng.standard_normal((WIDTH, rank)).astype(np.float32)
    (tmp_path / "adapter").mkdir()
    settings = {"peft_type": "LORA", "r": rank, "lora_alpha": 4, "target_modules": ["query", "value"]}
    (tmp_path / "adapter/adapter_config.json").write_text(json.dumps(settings))
    save_file(adapter, tmp_path / "adapter/adapter_model.safetensors")
    return tmp_path


def test_an_adapter_against_its_own_rows(folders):
    """What is added to each weight is what an audit of the adapter alone measures."""
    base, adapter = folders / "base", folders / "adapter"
    comparison = diff(str(base), ModelSettings(model=str(adapter)))
    again = diff(str(base), ModelSettings(model=str(base), adapter=str(adapter)))
    assert comparison.tensors.drop("model").equals(again.tensors.drop("model"))
    lora = attnlaw.audit(adapter).matrices
    changed = comparison.tensors.filter(pl.col("verdict") == "low-rank")
    assert changed["rank"].to_list() == [2] * 4
    stored = encoder()
    sizes = [row["size"] * np.linalg.norm(stored[row["tensor"]]) for row in changed.iter_rows(named=True)]
    assert sizes == pytest.approx(lora["frobenius_norm"].to_list(), rel=1e-5)
    assert set(comparison.maps.filter(pl.col("kind") == "qk")["rank"]) == {2}
    assert "Low-rank update of rank 2, in 4 of 12 matrices" in comparison.quantities["verdict"]


def test_files_of_other_types(folders, tmp_path):
    (tmp_path / "half").mkdir()
    half = {name.removeprefix("bert."): tensor.astype(np.float16) for name, tensor in encoder().items()}
    save_file(half, tmp_path / "half/model.safetensors")
    (tmp_path / "half/config.json").write_text((folders / "base/config.json").read_text())
    comparison = diff(str(folders / "base"), ModelSettings(model=str(tmp_path / "half")))
    assert set(comparison.tensors["verdict"]) == {"rounded"}
    assert set(comparison.tensors["format"]) == {"float16"}
    assert comparison.tensors.row(0, named=True)["dtype_model"] == "float16"


def test_a_model_that_fuses_its_queries_keys_and_values():
    """The same layer stored under other names, in one tensor and in three: each role by itself."""
    base = encoder(layers=1)
    at = "bert.encoder.layer.0"
    read = {part: base[f"{at}.attention.self.{part}.weight"] for part in ("query", "key", "value")}
    fused = {
        "self_attn.in_proj_weight": np.vstack([read["query"], 2 * read["key"], read["value"]]),
        "self_attn.out_proj.weight": base[f"{at}.attention.output.dense.weight"],
        "linear1.weight": base[f"{at}.intermediate.dense.weight"],
        "linear2.weight": base[f"{at}.output.dense.weight"],
    }
    for first, second in ((base, fused), (fused, base)):
        comparison = compared(first, second)
        rows = comparison.tensors.filter(~pl.col("verdict").is_in(["added", "removed"]))
        tensor_verdicts = dict(rows.select("tensor", "verdict").iter_rows())
        assert tensor_verdicts[f"{at}.attention.self.query.weight"] == "identical"
        assert tensor_verdicts[f"{at}.attention.self.key.weight"] == "rescaled"
        assert tensor_verdicts[f"{at}.attention.self.value.weight"] == "identical"
        assert rows.height == 6
        sizes = dict(comparison.maps.group_by("kind").agg(pl.col("size").max()).iter_rows())
        assert sizes["qk"] > 0
        assert sizes["vo"] == pytest.approx(0)
        assert sizes["ffn_in"] == 0


@pytest.mark.slow
def test_shared_layers_are_compared_once():
    folder = str(real_checkpoint("rxnmapper"))
    comparison = diff(folder, ModelSettings(model=folder))
    assert comparison.maps["layer"].unique().to_list() == [0]
    assert verdicts(comparison) == ["identical"]


def test_numbers_do_not_depend_on_the_number_of_threads():
    base, model = encoder(), encoder(1)
    serial, two = (diff(base, ModelSettings(model=model, heads=HEADS, jobs=jobs)) for jobs in (1, 3))
    assert serial.maps.equals(two.maps)
    assert serial.tensors.equals(two.tensors)


def reorder_block(state, order):
    """Put the neurons of BERT's layer 0 in another order, consistently."""
    at = "bert.encoder.layer.0"
    return state | {
        f"{at}.intermediate.dense.weight": state[f"{at}.intermediate.dense.weight"][order],
        f"{at}.intermediate.dense.bias": state[f"{at}.intermediate.dense.bias"][order],
        f"{at}.output.dense.weight": np.ascontiguousarray(state[f"{at}.output.dense.weight"][:, order]),
    }


def test_an_update_after_a_reordering_is_not_the_same_function():
    base, rng = encoder(), np.random.default_rng(0)
    moved = reorder_block(base, rng.permutation(len(base["bert.encoder.layer.0.intermediate.dense.bias"])))
    assert "Layer 0: same function, neurons reordered" in compared(base, moved).quantities["verdict"]
    name = "bert.encoder.layer.0.output.dense.weight"
    for factor, word in ((1.05, "neurons reordered consistently; in the new order"), (2, "another order")):
        sentence = compared(base, moved | {name: factor * moved[name]}).quantities["verdict"]
        assert word in sentence
        assert "same function" not in sentence
        assert "damaged" not in sentence


def test_heads_that_only_queries_keys_and_values_exchange_are_damage():
    base = encoder()
    rows = np.arange(WIDTH).reshape(HEADS, -1)[::-1].ravel()
    parts = [f"bert.encoder.layer.1.attention.self.{part}" for part in ("query", "key", "value")]
    names = [f"{part}.{kind}" for part in parts for kind in ("weight", "bias") if f"{part}.{kind}" in base]
    sentence = compared(base, base | {name: base[name][rows] for name in names}).quantities["verdict"]
    assert "Layer 1: damaged, because the heads of query, key and value are reordered" in sentence


def test_small_updates_in_bfloat16_are_neither_folded_nor_regauged():
    """Products of slightly changed factors can stay below their floor."""
    rng = np.random.default_rng(1)
    base = {f"bert.encoder.layer.0.attention.self.{part}.weight": None for part in ("query", "key", "value")}
    base = {name: rng.standard_normal((128, 128)).astype(np.float32) for name in base}
    base["bert.encoder.layer.0.attention.output.dense.weight"] = rng.standard_normal((128, 128))
    model = dict(base)
    for name in list(base)[:2]:
        update = rng.standard_normal((128, 8)) @ rng.standard_normal((8, 128))
        model[name] = base[name] + 0.002 * update * np.linalg.norm(base[name]) / np.linalg.norm(update)
    model = {name: tensor.astype(ml_dtypes.bfloat16) for name, tensor in model.items()}
    comparison = diff(base, ModelSettings(model=model, heads=HEADS))
    assert not {"folded", "regauged"} & set(verdicts(comparison))


def test_small_random_weights_are_not_a_tiny_factor_of_the_base():
    rng = np.random.default_rng(2)
    base = rng.standard_normal((64, 64)).astype(np.float32)
    drawn = (0.02 * rng.standard_normal((64, 64))).astype(np.float32)
    assert compare_tensors(base, drawn, "float32").verdict == "reinitialised"
    assert compare_tensors(base, 1e-3 * base, "float32").verdict == "rescaled"


def test_layers_of_fused_tensors_that_moved_are_recognised():
    """GPT-2 stores queries, keys and values in one tensor: also of a layer that one model alone has."""
    rng = np.random.default_rng(3)
    shapes = {"attn.c_attn.weight": (16, 48), "attn.c_proj.weight": (16, 16)}
    shapes |= {"mlp.c_fc.weight": (16, 64), "mlp.c_proj.weight": (64, 16)}
    base = {
        f"transformer.h.{layer}.{name}": rng.standard_normal(shape)
        for layer in range(3)
        for name, shape in shapes.items()
    }
    fewer = {name.replace("h.2.", "h.1."): value for name, value in base.items() if ".h.1." not in name}
    more = base | {name.replace("h.2.", "h.3."): value for name, value in base.items() if ".h.2." in name}
    sentences = [
        diff(base, ModelSettings(model=model, heads=2)).quantities["verdict"] for model in (fewer, more)
    ]
    assert sentences[0].startswith("Layer 1 is the base's layer 2 (6 tensors, bit for bit).")
    assert sentences[1].startswith("Layer 3 is a copy of the base's layer 2 (6 tensors, bit for bit).")


def test_a_tensor_with_another_name_and_a_stored_tied_table_are_no_change():
    """The last norm of a GGUF file has no role; `lm_head` may be stored next to the embedding that it is."""
    base = encoder()
    base = base | {"model.last.weight": np.linspace(0.5, 2, WIDTH, dtype=np.float32)}
    model = {name.replace("model.last", "output_norm"): tensor for name, tensor in base.items()}
    comparison = compared(base, model)
    assert set(comparison.tensors["verdict"]) == {"identical"}
    half = {name: tensor.astype(np.float16) for name, tensor in model.items()}
    assert set(compared(base, half).tensors["verdict"]) <= {"rounded", "identical"}
    other = model | {"output_norm.weight": 2 * model["output_norm.weight"]}
    assert {"added", "removed"} <= set(compared(base, other).tensors["verdict"])
