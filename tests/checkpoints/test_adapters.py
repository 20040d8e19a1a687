"""LoRA adapters in peft's layout: alone against a dense SVD, and on their base against merged weights."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from checkpoints.spoiled import refusal
from command.in_process import invoke
from polars.testing import assert_frame_equal
from safetensors.torch import load_file, save_file
from scipy.linalg import svdvals

from attnlaw import audit, check
from attnlaw.checkpoints.adapted import _targets
from attnlaw.checkpoints.open import open_model
from attnlaw.core.errors import InputError

RANK, ALPHA = 3, 12
SIZES = {"hidden_size": 16, "num_attention_heads": 4, "num_hidden_layers": 2, "intermediate_size": 24}


@pytest.fixture(scope="module")
def llama(tmp_path_factory: pytest.TempPathFactory) -> Path:
    torch.manual_seed(3)
    config = transformers.LlamaConfig(vocab_size=30, num_key_value_heads=2, **SIZES)
    folder = tmp_path_factory.mktemp("llama")
    transformers.LlamaForCausalLM(config).double().save_pretrained(folder)
    return folder


def write_adapter(
    folder: Path, targets: dict[str, tuple[int, int]], **changes: Any
) -> dict[str, torch.Tensor]:
    """An adapter on weights of shape (out, in), as `save_pretrained` of peft writes it; its tensors."""
    folder.mkdir(exist_ok=True)
    draw = torch.manual_seed(8)
    tensors = {}
    for module, (out, inputs) in targets.items():
        at = f"base_model.model.{module}"
        tensors[f"{at}.lora_A.weight"] = torch.randn(RANK, inputs, generator=draw)
        tensors[f"{at}.lora_B.weight"] = torch.randn(out, RANK, generator=draw)
    save_file(tensors, folder / "adapter_model.safetensors")
    config = {
        "peft_type": "LORA",
        "r": RANK,
        "lora_alpha": ALPHA,
        "use_rslora": False,
        "fan_in_fan_out": False,
        "target_modules": sorted({module.rsplit(".", 1)[-1] for module in targets}),
        "base_model_name_or_path": "never/followed",
    }
    (folder / "adapter_config.json").write_text(json.dumps(config | changes))
    return tensors


def llama_targets() -> dict[str, tuple[int, int]]:
    shapes = {"self_attn.q_proj": (16, 16), "self_attn.v_proj": (8, 16), "mlp.down_proj": (16, 24)}
    return {f"model.layers.{layer}.{name}": shape for layer in range(2) for name, shape in shapes.items()}


def merged(base: Path, tensors: dict[str, torch.Tensor], scale: float, into: Path) -> Path:
    """The same model with W + s B A in place of W, as peft's merge_and_unload would save it."""
    state = load_file(base / "model.safetensors")
    for name, down in tensors.items():
        if ".lora_A." in name:
            up = tensors[name.replace("lora_A", "lora_B")]
            weight = name.removeprefix("base_model.model.").replace(".lora_A", "")
            state[weight] = state[weight].double() + scale * up.double() @ down.double()
    into.mkdir()
    save_file(state, into / "model.safetensors")
    (into / "config.json").write_bytes((base / "config.json").read_bytes())
    return into


@pytest.mark.parametrize(
    ("changes", "scale"),
    [
        ({}, ALPHA / RANK),
        ({"use_rslora": True}, ALPHA / RANK**0.5),
        ({"fan_in_fan_out": True}, ALPHA / RANK),
        ({"init_lora_weights": "gaussian", "layer_replication": None, "use_dora": None}, ALPHA / RANK),
        ({"alpha_pattern": {"q_proj": 6, "v_proj": 6, "mlp.down_proj": 6}}, 6 / RANK),
    ],
    ids=["plain", "rslora", "wrong fan", "gaussian", "alpha_pattern"],
)
def test_base_and_adapter_are_the_merged_model(
    llama: Path, tmp_path: Path, changes: dict[str, Any], scale: float
) -> None:
    """Both sides add the same float64 products; they may be summed in another order."""
    tensors = write_adapter(tmp_path / "adapter", llama_targets(), **changes)
    dense = merged(llama, tensors, scale, tmp_path / "merged")
    ours = audit(llama, name="m", adapter=tmp_path / "adapter", jobs=1)
    expected = audit(dense, name="m", jobs=1)
    plain = audit(llama, name="m", jobs=1)
    place = ["layer", "kind", "head"]
    assert ours.spectra.select(place).equals(expected.spectra.select(place))
    columns = [audit_result.spectra["singular_values"].to_list() for audit_result in (ours, expected, plain)]
    for first, second in zip(columns[0], columns[1], strict=True):
        assert np.max(np.abs(np.subtract(first, second))) <= 1e-13 * first[0]
    changed = [not np.allclose(a, b, rtol=1e-6) for a, b in zip(columns[0], columns[2], strict=True)]
    assert 0 < sum(changed) < len(changed)  # gates and up-projections keep their own weights


def test_an_adapter_by_itself(tmp_path: Path) -> None:
    tensors = write_adapter(tmp_path / "adapter", llama_targets())
    audit_result = audit(tmp_path / "adapter", jobs=1)
    assert (
        audit_result.summary["family"],
        audit_result.summary["layers"],
        audit_result.summary["matrices"],
    ) == ("lora", 2, 6)
    assert audit_result.summary["proxies"] is None
    assert audit_result.layers["layer"].to_list() == [0, 1]
    assert audit_result.matrices["layer"].to_list() == [0, 0, 0, 1, 1, 1]
    for place, names in enumerate(audit_result.matrices["tensors"].to_list()):
        down, up = (tensors[name].double().numpy() for name in names)
        formed = ALPHA / RANK * up @ down
        values = audit_result.spectra["singular_values"][place].to_numpy()
        assert len(values) == RANK
        assert np.max(np.abs(values - svdvals(formed)[:RANK])) <= 1e-13 * values[0]
        row = audit_result.matrices.row(place, named=True)
        assert (row["kind"], row["rows"], row["cols"]) == ("lora", down.shape[1], up.shape[0])
        assert row["norm_21"] == pytest.approx(np.linalg.norm(formed.T, axis=0).sum(), rel=1e-12)


ORDERS = {
    "the first wins": {"layers.0.self_attn.q_proj": 48, "q_proj": 6},
    "a general one first": {"q_proj": 6, "layers.0.self_attn.q_proj": 48},
    "a whole name": {"model.layers.1.self_attn.q_proj": 24},
    "no part of a word": {"proj": 24, "elf_attn.q_proj": 24, "1.self_attn.q_proj": 6},
    "dots are any character": {"q.proj": 9, "s.0.self_attn.v_proj": 24, "layers.0.mlp-down_proj": 24},
    "longer than a name": {"base.model.layers.0.self_attn.q_proj": 24},
}


@pytest.mark.parametrize("case", ORDERS)
def test_alpha_pattern_is_read_as_peft_reads_it(tmp_path: Path, case: str) -> None:
    """Against peft's own rule, a search with regular expressions, times the norms of a plain adapter."""
    patterns = ORDERS[case]
    write_adapter(tmp_path / "plain", llama_targets())
    write_adapter(tmp_path / "adapter", llama_targets(), alpha_pattern=patterns)
    plain, ours = (audit(tmp_path / name, jobs=1).matrices for name in ("plain", "adapter"))
    for names, before, after in zip(
        ours["tensors"].to_list(), plain["spectral_norm"], ours["spectral_norm"], strict=True
    ):
        module = names[0].removeprefix("base_model.model.").removesuffix(".lora_A.weight")
        fitting = [key for key in patterns if re.match(rf"(.*\.)?({key})$", module)]
        alpha = patterns[fitting[0]] if fitting else ALPHA
        assert after == pytest.approx(before * alpha / ALPHA, rel=1e-12)


@pytest.mark.slow
def test_the_options_of_the_command(llama: Path, tmp_path: Path) -> None:
    write_adapter(tmp_path / "adapter", llama_targets())
    runs = [
        ["audit", str(tmp_path / "adapter")],
        ["audit", str(llama), "--adapter", str(tmp_path / "adapter")],
    ]
    alone, both = (invoke(*run, "--json", "--jobs", 1) for run in runs)
    assert json.loads(alone.stdout)["matrices"] == 6
    ours = audit(llama, adapter=tmp_path / "adapter", jobs=1).summary
    assert json.loads(both.stdout)["proxies"] == ours["proxies"]
    table = invoke(*runs[0], "--out", tmp_path / "out")
    assert "lora · 2 layers · 6 matrices" in table.stdout
    invoke("report", tmp_path / "out")
    assert "LoRA update" in (tmp_path / "out" / "report.html").read_text()


@pytest.mark.parametrize("said", [True, False])
def test_weights_stored_in_out(tmp_path: Path, said: bool) -> None:
    """GPT-2: B A is added transposed, whatever fan_in_fan_out says; a square weight does not tell."""
    torch.manual_seed(4)
    config = transformers.GPT2Config(vocab_size=30, n_embd=16, n_head=2, n_layer=1)
    transformers.GPT2LMHeadModel(config).save_pretrained(tmp_path / "base")
    shapes = {"transformer.h.0.attn.c_attn": (48, 16), "transformer.h.0.attn.c_proj": (16, 16)}
    tensors = write_adapter(tmp_path / "adapter", shapes, fan_in_fan_out=said)
    model = open_model(tmp_path / "base", adapter=tmp_path / "adapter")
    base = load_file(tmp_path / "base" / "model.safetensors")
    expected = {}
    for at in shapes:
        down, up = (tensors[f"base_model.model.{at}.lora_{part}.weight"].double() for part in "AB")
        expected[at] = (base[f"{at}.weight"].double() + ALPHA / RANK * (up @ down).T).numpy()
    block = model.layers[0].attention
    fused, output = expected.values()
    np.testing.assert_allclose(model.read(block.key), fused[:, 16:32], rtol=0, atol=1e-13)
    np.testing.assert_allclose(model.read(block.output), output, rtol=0, atol=1e-13)


def test_a_base_saved_without_its_prefix(tmp_path: Path) -> None:
    torch.manual_seed(5)
    config = transformers.BertConfig(vocab_size=30, max_position_embeddings=8, **SIZES)
    transformers.BertModel(config).save_pretrained(tmp_path / "base")
    target = "bert.encoder.layer.1.attention.self.query"
    tensors = write_adapter(tmp_path / "adapter", {target: (16, 16)})
    base, ours = open_model(tmp_path / "base"), open_model(tmp_path / "base", adapter=tmp_path / "adapter")
    view = base.layers[1].attention.query
    down, up = (tensors[f"base_model.model.{target}.lora_{part}.weight"].double().numpy() for part in "AB")
    np.testing.assert_allclose(
        ours.read(view) - base.read(view), (ALPHA / RANK * up @ down).T, rtol=0, atol=1e-13
    )


BAD: dict[str, tuple[dict[str, Any], tuple[str, ...]]] = {
    "not lora": ({"peft_type": "IA3"}, ("peft_type is IA3", "expected LORA")),
    "dora": ({"use_dora": True}, ("use_dora", "but attnlaw cannot read adapters", "merge")),
    "pissa": ({"init_lora_weights": "pissa_niter_16"}, ("init_lora_weights is 'pissa_niter_16'", "merge")),
    "olora": ({"init_lora_weights": "olora"}, ("but attnlaw cannot read adapters",)),
    "corda": ({"init_lora_weights": "corda"}, ("but attnlaw cannot read adapters",)),
    "loftq": ({"init_lora_weights": "loftq"}, ("but attnlaw cannot read adapters",)),
    "qalora": ({"use_qalora": True}, ("use_qalora", "but attnlaw cannot read adapters")),
    "replication": (
        {"layer_replication": [[0, 1], [0, 1]]},
        ("layer_replication", "but attnlaw cannot read adapters"),
    ),
    "rslora in words": ({"use_rslora": "false"}, ("use_rslora is 'false'", "expected true or false")),
    "fan in words": ({"fan_in_fan_out": 1}, ("fan_in_fan_out is 1", "expected true or false")),
    "alpha": ({"lora_alpha": "many"}, ("lora_alpha is 'many'",)),
    "expression": (
        {"alpha_pattern": {r"layers\.[0]\..*": 64}},
        ("regular expression", "list the modules by name"),
    ),
    "anchor": ({"alpha_pattern": {"^model.layers.0.self_attn.q_proj": 64}}, ("regular expression",)),
    "line": ({"alpha_pattern": {"q_proj\n": 64}}, ("regular expression",)),
}


@pytest.mark.parametrize("case", BAD)
def test_adapters_of_other_kinds(llama: Path, tmp_path: Path, case: str) -> None:
    changes, said = BAD[case]
    write_adapter(tmp_path / "adapter", llama_targets(), **changes)
    for refused in (lambda: audit(tmp_path / "adapter"), lambda: audit(llama, adapter=tmp_path / "adapter")):
        with pytest.raises(InputError) as caught:
            refused()
        assert all(part in str(caught.value) for part in said)
        assert "\n" not in str(caught.value)


SPOILED: dict[str, tuple[dict[str, torch.Tensor | None], str]] = {
    "one factor": ({"model.layers.0.self_attn.q_proj.lora_B.weight": None}, "has no lora_B"),
    "ranks differ": (
        {"model.layers.0.self_attn.q_proj.lora_B.weight": torch.ones(16, 4)},
        "expected the shapes r x",
    ),
    "another kind": (
        {"model.embed_tokens.lora_embedding_A": torch.ones(3, 30)},
        "not a lora_A or lora_B matrix",
    ),
    "nan": ({"model.layers.0.self_attn.q_proj.lora_B.weight": torch.full((16, 3), torch.nan)}, "NaN"),
}


@pytest.mark.parametrize("case", SPOILED)
def test_damaged_adapters(tmp_path: Path, case: str) -> None:
    changes, said = SPOILED[case]
    tensors: dict[str, torch.Tensor | None] = {**write_adapter(tmp_path / "adapter", llama_targets())}
    tensors |= {f"base_model.model.{name}": value for name, value in changes.items()}
    left = {name: value for name, value in tensors.items() if value is not None}
    save_file(left, tmp_path / "adapter" / "adapter_model.safetensors")
    with pytest.raises(InputError, match=said):
        audit(tmp_path / "adapter")


def test_an_adapter_of_another_model(llama: Path, tmp_path: Path) -> None:
    write_adapter(tmp_path / "adapter", {"model.layers.7.self_attn.q_proj": (16, 16)})
    with pytest.raises(InputError, match=r"layers\.7.*fits no tensor"):
        open_model(llama, adapter=tmp_path / "adapter")
    write_adapter(tmp_path / "adapter", {"model.layers.0.self_attn.q_proj": (32, 16)})
    with pytest.raises(InputError, match=r"\[32, 16\].*\[16, 16\]"):
        open_model(llama, adapter=tmp_path / "adapter")
    for path in (tmp_path / "absent", llama, llama / "model.safetensors"):
        with pytest.raises(InputError) as caught:
            open_model(llama, adapter=path)
        named = path / "adapter_config.json"
        assert str(caught.value) == f"{named}: no such file; give a directory with adapter_config.json"


@pytest.mark.parametrize(("down", "up"), [(1e300, 1e300), (1e308, 1e-300)], ids=["product", "scale"])
def test_factors_that_overflow_are_one_line(llama: Path, tmp_path: Path, down: float, up: float) -> None:
    at = "base_model.model.model.layers.0.self_attn.q_proj"
    write_adapter(tmp_path / "adapter", llama_targets(), lora_alpha=300)
    factors = {
        "A": torch.full((3, 16), down, dtype=torch.float64),
        "B": torch.full((16, 3), up, dtype=torch.float64),
    }
    save_file(
        {f"{at}.lora_{part}.weight": value for part, value in factors.items()},
        tmp_path / "adapter" / "adapter_model.safetensors",
    )
    for adapter in (None, tmp_path / "adapter"):
        with pytest.raises(InputError) as caught:
            audit(llama if adapter else tmp_path / "adapter", adapter=adapter, jobs=1)
        assert all(f"{at}.lora_{part}.weight" in str(caught.value) for part in "AB")
        assert str(tmp_path / "adapter") in str(caught.value)


def naive_targets(names: list[str], module: str) -> list[str]:
    """Every tensor that ends as the update's weight, or that it ends as, from a dot on."""
    wanted = f"{module}.weight"
    hits = [name for name in names if f".{name}".endswith(f".{wanted}") or f".{wanted}".endswith(f".{name}")]
    return [wanted] if wanted in hits else hits


def test_updates_find_their_weights_as_a_search_through_all_names_does() -> None:
    parts = ["a", "b", "ab", "0", "1"]
    draw = np.random.default_rng(0)
    outcomes = set()
    for _ in range(400):
        names = {".".join([*draw.choice(parts, draw.integers(0, 4)), "weight"]) for _ in range(6)}
        module = ".".join(draw.choice(parts, draw.integers(1, 4)))
        expected = naive_targets(list(names), module)
        outcomes.add(min(len(expected), 2))
        (targets,) = _targets(names, [f"{module}.weight"]).values()
        assert sorted(targets) == sorted(expected)
    assert outcomes == {0, 1, 2}


def test_finding_the_weights_takes_each_name_once() -> None:
    """A search through all names for each update would look at 4000^2 of them."""
    looked = 0

    def names() -> Iterator[str]:
        nonlocal looked
        for module in modules:
            looked += 1
            yield f"model.{module}.weight"

    modules = [f"layers.{layer}.q" for layer in range(4000)]
    targets = _targets(names(), [f"{module}.weight" for module in modules])
    assert targets == {f"{module}.weight": [f"model.{module}.weight"] for module in modules}
    assert looked == len(modules)


def test_a_model_cannot_be_opened_from_an_adapter_alone(tmp_path: Path) -> None:
    write_adapter(tmp_path / "adapter", llama_targets())
    refusal(tmp_path / "adapter", "LoRA adapter", "--adapter")


@pytest.fixture(scope="module")
def biased(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A LLaMA with biases whose output matrix is its embedding."""
    torch.manual_seed(6)
    sizes = {**SIZES, "num_key_value_heads": 2, "attention_bias": True, "tie_word_embeddings": True}
    folder = tmp_path_factory.mktemp("biased")
    transformers.LlamaForCausalLM(transformers.LlamaConfig(vocab_size=30, **sizes)).double().save_pretrained(
        folder
    )
    return folder


def with_tensors(folder: Path, **added: torch.Tensor) -> dict[str, torch.Tensor]:
    """An adapter that also has the tensors in `added`, by the names that peft gives them (`__` for a dot)."""
    tensors = write_adapter(folder, llama_targets())
    tensors |= {f"base_model.model.{name.replace('__', '.')}": value for name, value in added.items()}
    save_file(tensors, folder / "adapter_model.safetensors")
    return tensors


def changed_state(base: Path, into: Path, change: Callable[[dict[str, torch.Tensor]], None]) -> Path:
    """The base model with another state."""
    into.mkdir()
    state = load_file(base / "model.safetensors")
    change(state)
    save_file(state, into / "model.safetensors")
    (into / "config.json").write_bytes((base / "config.json").read_bytes())
    return into


def test_norms_biases_and_embeddings_of_an_adapter_take_the_place_of_the_bases(
    biased: Path, tmp_path: Path
) -> None:
    """Against a model whose tensors were replaced by hand, in every column of an audit."""
    draw = torch.manual_seed(9)
    layer = "model.layers.0"
    shapes = ((16,), (16,), (8,), (33, 16), (33, 16))
    gain, query, key, tokens, words = (
        torch.randn(shape, generator=draw, dtype=torch.float64) for shape in shapes
    )
    update = torch.randn(16, generator=draw)
    at = layer.replace(".", "__")
    tensors = with_tensors(
        tmp_path / "adapter",
        **{
            f"{at}__input_layernorm__weight": 1000 * gain,
            f"{at}__self_attn__q_proj__base_layer__bias": query,
            f"{at}__self_attn__q_proj__lora_B__bias": update,
            f"{at}__self_attn__k_proj__bias": key,
            "model__embed_tokens__base_layer__weight": tokens,
            "lm_head__modules_to_save__default__weight": words,
            "lm_head__original_module__weight": torch.ones(30, 16),
        },
    )
    lora = {name: value for name, value in tensors.items() if re.search(r"lora_[AB]\.weight", name)}

    def change(state: dict[str, torch.Tensor]) -> None:
        state[f"{layer}.input_layernorm.weight"] = 1000 * gain
        state[f"{layer}.self_attn.q_proj.bias"] = query + ALPHA / RANK * update.double()
        state[f"{layer}.self_attn.k_proj.bias"] = key
        state["model.embed_tokens.weight"] = tokens
        state["lm_head.weight"] = words

    dense = merged(
        changed_state(biased, tmp_path / "replaced", change), lora, ALPHA / RANK, tmp_path / "merged"
    )
    ours = audit(biased, name="m", adapter=tmp_path / "adapter", jobs=1)
    expected = audit(dense, name="m", jobs=1)
    assert_frame_equal(ours.matrices, expected.matrices, rel_tol=1e-11, abs_tol=1e-12)
    plain = audit(biased, name="m", jobs=1).matrices
    model = open_model(biased, adapter=tmp_path / "adapter")
    assert np.array_equal(model.embedding(), tokens.numpy())
    assert model.unembedding_view
    assert np.array_equal(model.read(model.unembedding_view), words.numpy().T)
    before, after = (
        rows.filter(kind="qk", layer=0)["spectral_norm_applied"].max() for rows in (plain, ours.matrices)
    )
    assert after > 1000 * before
    (warning,) = (text for text in ours.summary["warnings"] if "adapter" in text)
    assert warning == "the adapter adds 1 tensor that its base model does not have, such as lm_head.weight"


def test_a_classifier_that_the_base_does_not_have_is_named(llama: Path, tmp_path: Path) -> None:
    with_tensors(tmp_path / "adapter", score__weight=torch.ones(3, 16))
    model = open_model(llama, adapter=tmp_path / "adapter")
    assert any("does not have, such as score.weight" in text for text in model.warnings)


def test_an_adapter_by_itself_says_what_it_replaces(tmp_path: Path) -> None:
    with_tensors(tmp_path / "adapter", model__norm__weight=torch.ones(16))
    warnings = audit(tmp_path / "adapter", jobs=1).summary["warnings"]
    (warning,) = (text for text in warnings if "replaces" in text)
    assert (
        "replaces tensors of its base model (1, such as model.norm.weight), which attnlaw leaves out"
        in warning
    )
    assert "give the base model with --adapter" in warning


MISFITS: dict[str, tuple[dict[str, torch.Tensor], str]] = {
    "another layer": ({"model__layers__7__input_layernorm__weight": torch.ones(16)}, "fits no tensor of"),
    "another width": ({"model__norm__weight": torch.ones(8)}, r"\[8\], but model\.norm\.weight .* \[16\]"),
    "twice": (
        {"model__norm__weight": torch.ones(16), "norm__weight": torch.ones(16)},
        "both replace model.norm.weight",
    ),
    "twice by a wrapper": (
        {"model__norm__weight": torch.ones(16), "model__norm__base_layer__weight": torch.ones(16)},
        "are the same tensor",
    ),
    "a bias for none": (
        {"model__layers__0__self_attn__q_proj__lora_B__bias": torch.ones(16)},
        "q_proj.bias in .* is missing; merge",
    ),
    "a magnitude": (
        {"model__layers__0__self_attn__q_proj__lora_magnitude_vector": torch.ones(16)},
        "merge the adapter into its base",
    ),
    "single tokens": (
        {"model__embed_tokens__token_adapter__trainable_tokens_delta": torch.ones(2, 16)},
        "merge the adapter into its base",
    ),
    "nan": ({"model__layers__0__input_layernorm__weight": torch.full((16,), torch.nan)}, "NaN or infinite"),
}


@pytest.mark.parametrize("case", MISFITS)
def test_tensors_of_an_adapter_that_do_not_fit(llama: Path, tmp_path: Path, case: str) -> None:
    added, said = MISFITS[case]
    with_tensors(tmp_path / "adapter", **added)
    with pytest.raises(InputError, match=said) as caught:
        audit(llama, adapter=tmp_path / "adapter", jobs=1)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("spoiled", "value"),
    [("lora_A", np.nan), ("lora_B", np.inf), ("lora_B", 1e300), ("lm_head.lora_B", np.nan)],
)
def test_the_gate_names_damage_in_an_adapter(llama: Path, tmp_path: Path, spoiled: str, value: float) -> None:
    """The damaged product is not measured, and must not vanish with its row."""
    tensors = write_adapter(tmp_path / "adapter", llama_targets() | {"lm_head": (30, 16)})
    name = next(name for name in tensors if spoiled in name)
    tensors = {key: tensor.double() for key, tensor in tensors.items()}
    if value == 1e300:  # only the product overflows
        tensors[name.replace("lora_B", "lora_A")].fill_(value)
    tensors[name].fill_(value)
    save_file(tensors, tmp_path / "adapter" / "adapter_model.safetensors")
    gate = check(llama, adapter=tmp_path / "adapter", jobs=1)
    assert gate.exit_status == 3
    errors = gate.findings.filter(gate.findings["level"] == "error")
    assert errors.select("rule", "tensor").rows() == [("non-finite", name)]


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_the_gate_names_damage_in_a_tensor_that_an_adapter_replaces(
    llama: Path, tmp_path: Path, value: float
) -> None:
    tensors = write_adapter(tmp_path / "adapter", llama_targets())
    tensors["base_model.model.model.norm.weight"] = torch.full((16,), value)
    save_file(tensors, tmp_path / "adapter" / "adapter_model.safetensors")
    gates = [
        check(tmp_path / "adapter", jobs=1),
        check(llama, adapter=tmp_path / "adapter", jobs=1),
    ]
    for gate in gates:
        (row,) = gate.findings.filter(gate.findings["rule"] == "non-finite").rows(named=True)
        assert row["tensor"].endswith("model.norm.weight")
        assert gate.exit_status == 3
