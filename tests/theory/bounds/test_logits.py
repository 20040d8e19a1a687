"""Logits from weights: no real pass may pass a bound, and each number has a second route."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from checkpoints.forward_pass import make, recording, require_transformers
from checkpoints.test_family_table import TABLE
from checkpoints.test_variants import VARIANTS
from real_checkpoints import audited, real_checkpoint
from scipy.optimize import minimize
from scipy.stats import binomtest
from theory.bounds.largest_logits import Largest, loaded_model, run_once, small_model

import attnlaw
from attnlaw.checkpoints.blocks import Scores
from attnlaw.checkpoints.model import Model
from attnlaw.checkpoints.open import open_model
from attnlaw.spectra.head_sizes import Lengths, ScorePart, ScoreSizes
from attnlaw.spectra.scores import block_scores
from attnlaw.theory.bounds.logits import (
    APPLIED_AGAIN,
    CHANCE,
    TOKENS,
    largest_length,
    logit_bounds,
    logits_of,
)

# Families of the lens, and what is unlike them: norms of queries, of all heads together, with a bias, behind
# positions; a part that is turned; latent attention; cross attention; a cap.
FEW = (
    "bert", "roberta", "gpt2", "llama", "mistral", "qwen2", "qwen3", "olmo2", "cohere", "hunyuan_v1_dense",
    "gpt_neox", "deepseek_v3", "t5", "gemma2", "whisper", "clip",
)  # fmt: skip
N = 200
NORMS = ("input_layernorm", "post_attention_layernorm")
FALLING = np.geomspace(1, 0.03, 8)
UNKNOWN = {"it has no norm layer before it", APPLIED_AGAIN}
YARN = {"rope_type": "yarn", "rope_theta": 1e4, "factor": 8.0, "original_max_position_embeddings": 16}
LONG = {"rope_type": "longrope", "rope_theta": 1e4, "factor": 64.0, "original_max_position_embeddings": 8}
LONG |= {"short_factor": [1.0] * 3, "long_factor": [2.0] * 3}
CHANGES: dict[str, tuple[str, dict[str, Any]]] = {
    "yarn": ("llama", {"rope_parameters": YARN}),
    "yarn with its own factor": ("llama", {"rope_parameters": YARN | {"attention_factor": 5.0}}),
    "longrope": ("phi3", {"rope_parameters": LONG, "original_max_position_embeddings": 8}),
    "clipped": ("olmo", {"clip_qkv": 0.3}),
    "hardly clipped": ("olmo", {"clip_qkv": 2.0}),
    "clipped without positions": ("mpt", {"attn_config": {"clip_qkv": 0.5}}),
    "a low cap": ("gemma2", {"attn_logit_softcapping": 0.5}),
    **VARIANTS,
}


def check(name: str, changes: dict[str, Any] | None = None, seed: int = 0) -> float:
    """No logit beyond its bound; what has none has a reason. The largest ratio."""
    require_transformers("5.22", "these models in float64")
    small = TABLE.TYPES[name]
    inputs = TABLE.masked if (changes or {}).get("alibi") else small.inputs
    rows = small_model(small.kind, small.sizes | (changes or {}), inputs, seed)
    assert rows
    assert {row.logits.reason for row in rows if row.ratio is None} <= UNKNOWN
    ratios = [row.ratio for row in rows if row.ratio is not None]
    # Some types compute in float32 here and there.
    most = 1 + (TABLE.SINGLE if name in TABLE.ROUNDED else 0.0)
    assert all(ratio <= most for ratio in ratios)
    return max(ratios, default=0.0)


@pytest.mark.slow
@pytest.mark.parametrize("name", FEW)
def test_no_logit_of_a_real_pass_is_beyond_its_bound(name: str) -> None:
    assert check(name) > 0.05
    check(name, seed=1)


@pytest.mark.long
@pytest.mark.parametrize("name", sorted(TABLE.TYPES))
def test_no_logit_of_any_type_is_beyond_its_bound(name: str) -> None:
    for seed in range(4):
        check(name, seed=seed)


@pytest.mark.parametrize("change", list(CHANGES)[:7])
def test_no_logit_of_changed_scores_is_beyond_its_bound(change: str) -> None:
    name, changes = CHANGES[change]
    for seed in range(3):
        check(name, changes, seed)


@pytest.mark.long
@pytest.mark.parametrize("change", sorted(VARIANTS))
def test_no_logit_of_a_variant_is_beyond_its_bound(change: str) -> None:
    check(*CHANGES[change])


def crafted(name: str, changes: dict[str, Any], change: Callable[[torch.nn.Module], None]) -> list[Largest]:
    """A small model whose weights a function has changed."""
    require_transformers("5.22", "these models in float64")
    small = TABLE.TYPES[name]
    module = make(small.kind, **small.sizes | changes)
    with torch.no_grad():
        change(module)
    return run_once(module, small.inputs)


def test_positions_turn_keys_towards_queries_that_they_have_nothing_in_common_with() -> None:
    """Queries of number 0 alone, keys of the number that turns with it: QK is 0, the logits are not."""

    def change(module: torch.nn.Module) -> None:
        for layer in module.model.layers:
            for weight, kept in ((layer.self_attn.q_proj.weight, 0), (layer.self_attn.k_proj.weight, 3)):
                rows = weight.view(-1, 6, 24)
                rows[:, [row for row in range(6) if row != kept]] = 0.0

    for head_row in crafted("llama", {}, change):
        assert head_row.measured > 1e-3
        assert head_row.ratio is not None
        assert head_row.ratio <= 1


def test_clipping_undoes_what_cancels() -> None:
    """Queries (x, 9x) and keys (9y, -y): QK is 0, until 9x and 9y are clipped."""

    def change(module: torch.nn.Module) -> None:
        for block in module.transformer.blocks:
            weight = block.attn.Wqkv.weight.view(3, 4, 6, 24)
            weight[:2, :, 2:] = 0.0
            weight[0, :, 1] = 9 * weight[0, :, 0]
            weight[1, :, 0] = -9 * weight[1, :, 1]

    for head_row in crafted("mpt", {"attn_config": {"clip_qkv": 0.5}}, change):
        assert head_row.measured > 1e-3
        assert head_row.ratio is not None
        assert head_row.ratio <= 1


def test_one_head_may_have_all_that_a_norm_of_all_heads_leaves() -> None:
    """Head 0 is all of the queries: its logits pass the bound of a head that is normalised by itself."""

    def change(module: torch.nn.Module) -> None:
        for layer in module.model.layers:
            layer.self_attn.q_proj.weight[6:] = 0.0
            layer.self_attn.k_proj.weight[6:] = 0.0
            for norm in (layer.self_attn.q_norm, layer.self_attn.k_norm):
                norm.weight.fill_(1.0)

    first = [row for row in crafted("olmo2", {}, change) if row.head == 0]
    assert all(row.ratio is not None and row.ratio <= 1 for row in first)
    # By itself a head of 6 numbers has at most sqrt(6) sqrt(6) / sqrt(6).
    assert max(row.measured for row in first) > 6**0.5


def test_no_logit_of_the_shipped_decoder_is_beyond_its_bound(request: pytest.FixtureRequest) -> None:
    root = request.config.rootpath
    rows = loaded_model(root / "examples" / "tiny-decoder", [*(root / "README.md").read_bytes()[:128]])
    ratios = [row.ratio for row in rows if row.ratio is not None]
    assert len(ratios) == 16
    assert 0.1 < max(ratios) < 1


@pytest.mark.long
@pytest.mark.parametrize("name", ["rxnfp-pretrained", "rxnfp-finetuned", "rxnfp-10k", "minilm"])
def test_no_logit_of_a_trained_model_is_beyond_its_bound(name: str) -> None:
    """On random tokens; `python benchmarks/logits.py` does so on text."""
    ids = np.random.default_rng(0).integers(5, 590, 256).tolist()
    rows = loaded_model(real_checkpoint(name), ids)
    assert all(row.ratio is not None and row.ratio < 1 for row in rows)


def test_the_bound_is_reached_by_the_leading_singular_vectors() -> None:
    """GPT-2 without biases, of two tokens: those of the largest singular value, so long that epsilon is 0."""
    module = make("GPT2Model", **TABLE.TYPES["gpt2"].sizes, attn_implementation="eager")
    with torch.no_grad():
        module.wpe.weight.zero_()
        for layer in module.h:
            layer.attn.c_attn.bias.zero_()
            layer.ln_1.bias.zero_()
    bounds = [
        logits.bound for location, logits in logit_bounds(open_model(module)).items() if location.layer == 0
    ]
    weight = module.h[0].attn.c_attn.weight.detach().numpy().reshape(24, 3, 4, 6)
    fold = (np.eye(24) - 1 / 24) @ np.diag(module.h[0].ln_1.weight.detach().numpy())
    for head, bound in enumerate(bounds):
        left, _, right = np.linalg.svd(fold @ weight[:, 0, head] @ (fold @ weight[:, 1, head]).T)
        pair = torch.from_numpy(1e6 * np.stack([right[0], left[:, 0]]))[None]
        with recording(module, pytest.MonkeyPatch()) as run:
            module(inputs_embeds=pair)
        assert abs(run.scores[0][0, head, 1, 0].item()) == pytest.approx(bound, rel=1e-10)


def climbed(name: str, changes: dict[str, Any]) -> float:
    """How far gradient ascent over what the model is given brings the logits of layer 0, by the bound.

    Tokens are free vectors; every head has its own pair of them that it climbs with. The median over heads.
    """
    small = TABLE.TYPES[name]
    module = make(small.kind, **small.sizes | changes)
    bounds = [
        logits.bound for location, logits in logit_bounds(open_model(module)).items() if location.layer == 0
    ]
    embeddings = torch.randn(1, 12, 24, dtype=torch.float64, generator=torch.manual_seed(1))
    embeddings.requires_grad_()
    optimizer = torch.optim.Adam([embeddings], lr=0.1)
    softmax, seen = torch.nn.functional.softmax, list[torch.Tensor]()

    def recorded(scores: torch.Tensor, dim: int = -1, **_: Any) -> torch.Tensor:
        seen.append(scores)
        return softmax(scores, dim=dim)

    best, apart = np.zeros(len(bounds)), ~torch.eye(12, dtype=torch.bool)  # of two tokens, not of one
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(torch.nn.functional, "softmax", recorded)
        for _ in range(120):
            seen.clear()
            module(inputs_embeds=embeddings)
            first = seen[0][0]
            largest = torch.where((first > -1e4) & apart, first.abs(), 0.0).flatten(1).max(dim=1).values
            best = np.maximum(best, largest.detach().numpy())
            optimizer.zero_grad()
            (-largest / torch.tensor(bounds)).sum().backward()
            optimizer.step()
    assert (best <= bounds).all()
    return float(np.median(best / bounds))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "changes"),
    [
        ("gpt2", {}),
        ("qwen3", {}),
        ("deepseek_v3", {}),
        *(
            pytest.param(*more, marks=pytest.mark.long)
            for more in (
                ("hunyuan_v1_dense", {}),
                ("olmo", {"clip_qkv": 0.3}),
                ("llama", {}),
                ("qwen2", {}),
            )
        ),
    ],
)
def test_bounds_hold_and_are_within_two_of_inputs_made_for_them(name: str, changes: dict[str, Any]) -> None:
    """The factor is no claim of theory: a bound that is much too large would stand out here."""
    require_transformers("5.22", "these models in float64")
    assert climbed(name, changes) > 0.5


def sizes_of(rng: np.random.Generator, turned: bool) -> tuple[ScoreSizes, dict[str, np.ndarray]]:
    """Queries and keys of eight numbers from N: the sizes, and the maps that they are of."""
    maps = {"q": rng.normal(size=(N, 8)) / N**0.5, "k": rng.normal(size=(N, 8)) / N**0.5}
    if turned:  # what is large in queries is small in keys
        maps = {"q": maps["q"] * FALLING, "k": maps["k"] * FALLING[::-1]}
    maps |= {f"{name}0": rng.normal(size=8) * (0.0 if turned else 1.0) for name in "qk"}
    lengths = []
    for name in "qk":
        _, values, right = np.linalg.svd(maps[name])
        lengths.append(Lengths(values, (right @ maps[f"{name}0"]) ** 2, N))
    part = ScorePart(
        np.linalg.svd(maps["q"] @ maps["k"].T, compute_uv=False)[:8],
        float(np.linalg.norm(maps["q"] @ maps["k0"])),
        float(np.linalg.norm(maps["k"] @ maps["q0"])),
        float(maps["q0"] @ maps["k0"]),
        (N, N),
        (lengths[0], lengths[1]) if turned else None,
    )
    return ScoreSizes(part, (part,)), maps


@pytest.mark.parametrize("seed", range(6))
def test_the_largest_length_is_the_one_that_a_search_finds(seed: int) -> None:
    rng = np.random.default_rng(seed)
    rank = (8, 8, 5, 1, 8, 3)[seed]
    root = rng.normal(size=(rank, 8)) * np.geomspace(1, 0.01, 8)
    shift = rng.normal(size=8) * (1.0, 10.0, 0.1, 1.0, 0.0, 1.0)[seed]
    values = np.zeros(8)
    _, singular_values, right = np.linalg.svd(root)
    values[: singular_values.size] = singular_values
    exact = largest_length(Lengths(values, (right @ shift) ** 2, 7.0))

    def negative(z: np.ndarray) -> float:
        return -float(np.linalg.norm(z / np.linalg.norm(z) * 7**0.5 @ root + shift))

    starts = rng.normal(size=(10, rank))
    searched = max(-minimize(negative, start, method="BFGS", tol=1e-12).fun for start in starts)
    # A search stops at a maximum to the square of what is left of the gradient.
    assert exact == pytest.approx(searched, rel=1e-7)


def isotropic(rng: np.random.Generator, count: int) -> np.ndarray:
    """Tokens on the sphere of N dimensions whose numbers have variance one."""
    z = rng.normal(size=(count, N))
    return z * N**0.5 / np.linalg.norm(z, axis=1, keepdims=True)


def test_the_typical_size_is_the_spread_of_drawn_rows() -> None:
    rng = np.random.default_rng(1)
    sizes, maps = sizes_of(rng, turned=False)
    typical = logits_of(sizes, Scores(0.3)).typical
    keys = isotropic(rng, 20000) @ maps["k"] + maps["k0"]
    queries = isotropic(rng, 4000) @ maps["q"] + maps["q0"]
    covariance = np.cov(keys, rowvar=False)
    rows = 0.09 * np.einsum("ij,jk,ik->i", queries, covariance, queries)
    error = rows.std() / np.sqrt(len(rows)) + rows.mean() * np.sqrt(2 / 20000)
    assert abs(rows.mean() - typical**2) < 4 * error


@pytest.mark.slow
@pytest.mark.parametrize("turned", [False, True])
def test_the_probable_maximum_is_rarely_passed(turned: bool) -> None:
    """Of 200 draws of n tokens at most as many pass it as a chance delta lets; it is not far above them.

    Positions turn queries and keys by any rotation: here by one that brings together what is large.
    """
    rng = np.random.default_rng(2)
    sizes, maps = sizes_of(rng, turned)
    head_logits = logits_of(sizes, Scores(0.3))
    assert head_logits.probable is not None
    assert head_logits.bound is not None
    assert head_logits.typical is not None
    largest = []
    for _ in range(200):
        rotation = np.eye(8)[::-1] if turned else np.eye(8)
        tokens_ = isotropic(rng, TOKENS)
        logits = 0.3 * (tokens_ @ maps["q"] + maps["q0"]) @ rotation @ (tokens_ @ maps["k"] + maps["k0"]).T
        largest.append(np.abs(logits[~np.eye(TOKENS, dtype=bool)]).max())
    passed = int(np.sum(np.array(largest) > head_logits.probable))
    assert binomtest(passed, len(largest), CHANCE, alternative="greater").pvalue > 1e-3
    assert np.median(largest) > 0.5 * head_logits.probable
    assert max(largest) < head_logits.bound


def test_a_cap_is_taken_of_the_bound() -> None:
    sizes, _ = sizes_of(np.random.default_rng(3), turned=False)
    free, capped = logits_of(sizes, Scores(0.3)), logits_of(sizes, Scores(0.3, cap=20.0))
    assert free.bound is not None
    assert capped.bound == pytest.approx(20 * np.tanh(free.bound / 20))
    assert capped.typical is not None
    assert capped.typical <= 20


def test_eight_clipped_numbers_bound_the_logits() -> None:
    sizes, _ = sizes_of(np.random.default_rng(3), turned=True)
    free, clipped = logits_of(sizes, Scores(0.3)), logits_of(sizes, Scores(0.3, clip=0.05))
    assert free.bound is not None
    assert clipped.bound == pytest.approx(0.3 * 8 * 0.05**2)
    assert clipped.bound < free.bound


def test_what_exceeds_float64_has_no_bound() -> None:
    sizes, _ = sizes_of(np.random.default_rng(3), turned=False)
    head_logits = logits_of(sizes, Scores(1e308))
    assert (head_logits.bound, head_logits.typical, head_logits.probable) == (None, None, None)
    assert head_logits.reason == "its queries or keys are too large for float64"


def dense(model: Model, layer: int, head: int) -> float:
    """The bound of a head of a BERT from whole matrices of its file, by the names of their tensors."""
    whole = next(iter(model.tensors.shapes)).partition("embeddings")[0]
    before = f"encoder.layer.{layer - 1}.output.LayerNorm" if layer else "embeddings.LayerNorm"

    def read(name: str) -> np.ndarray:
        return model.tensors.read(whole + name).astype(np.float64)

    gain, shift = read(f"{before}.weight"), read(f"{before}.bias")
    n, size = gain.size, gain.size // model.layers[layer].attention.heads
    fold = (np.eye(n) - 1 / n) @ np.diag(gain)
    maps, constants = [], []
    for part in ("query", "key"):
        name, head_rows = (
            f"encoder.layer.{layer}.attention.self.{part}",
            slice(head * size, (head + 1) * size),
        )
        weight = read(f"{name}.weight")[head_rows]
        maps.append(fold @ weight.T)
        constants.append(weight @ shift + read(f"{name}.bias")[head_rows])
    linear = np.linalg.norm(maps[0] @ constants[1]) + np.linalg.norm(maps[1] @ constants[0])
    most = n * np.linalg.norm(maps[0] @ maps[1].T, 2) + n**0.5 * linear
    return float(most + abs(constants[0] @ constants[1])) / size**0.5


# How many heads may leave the range of float8 (E4M3, 448): counted apart from this code, over the same files.
@pytest.mark.slow
@pytest.mark.parametrize(("name", "heads", "beyond"), [("rxnfp-pretrained", 48, 0), ("minilm", 72, 2)])
def test_real_encoders(name: str, heads: int, beyond: int) -> None:
    audit = audited(name)
    rows = audit.matrices.filter(kind="qk")
    assert rows["logit_bound"].count() == heads
    assert (rows["logit_bound"] > 448).sum() == beyond
    assert audit.summary["logits"]["beyond_float8"] == beyond
    model = open_model(real_checkpoint(name))
    for layer, head in ((0, 1), (3, 2), (5, 0)):
        (bound,) = rows.filter(layer=layer, head=head)["logit_bound"]
        assert bound == pytest.approx(dense(model, layer, head), rel=1e-9)


def test_an_audit_has_the_numbers_of_the_function(tmp_path: Path) -> None:
    small = TABLE.TYPES["deepseek_v3"]
    make(small.kind, **small.sizes).save_pretrained(tmp_path)
    matrices = attnlaw.audit(tmp_path, jobs=1).matrices
    head_logits = logit_bounds(open_model(tmp_path))
    for location, logits in head_logits.items():
        (row,) = matrices.filter(layer=location.layer, kind=location.kind, head=location.head).iter_rows(
            named=True
        )
        row_values = [row[f"logit_{name}"] for name in ("bound", "typical", "probable")]
        assert row_values == pytest.approx([logits.bound, logits.typical, logits.probable], rel=1e-12)
    assert matrices.filter(kind="vo")["logit_bound"].null_count() == len(head_logits)


def test_heads_of_odd_size_have_a_bound() -> None:
    """No model has them; a file may. Rotary numbers come in pairs, one more than the head has."""
    rng = np.random.default_rng(0)
    state = {f"model.layers.0.self_attn.{name}_proj.weight": rng.normal(size=(9, 9)) for name in "qkvo"}
    state |= {f"model.layers.0.{name}.weight": np.ones(9) for name in NORMS}
    state |= {
        f"model.layers.0.mlp.{name}_proj.weight": rng.normal(size=(9, 9)) for name in ("gate", "up", "down")
    }
    for location, logits in logit_bounds(open_model(state, heads=3)).items():
        query, key = (
            state[f"model.layers.0.self_attn.{name}_proj.weight"][3 * location.head : 3 * location.head + 3]
            for name in "qk"
        )
        longest = 9 * np.linalg.norm(query, 2) * np.linalg.norm(key, 2)
        assert logits.bound == pytest.approx(longest / 3**0.5, rel=1e-9)


def test_scores_that_grow_with_the_position_have_no_bound() -> None:
    small = TABLE.TYPES["llama4_text"]
    for tuned, reason in ((True, "the logits of this layer grow with the position"), (False, None)):
        sizes = small.sizes | {"no_rope_layers": [1, 0], "attn_temperature_tuning": tuned}
        head_logits = logit_bounds(open_model(make(small.kind, **sizes)))
        assert {logits.reason for location, logits in head_logits.items() if location.layer == 0} == {None}
        assert {logits.reason for location, logits in head_logits.items() if location.layer == 1} == {reason}


def test_a_block_without_a_norm_says_so(tmp_path: Path) -> None:
    module = torch.nn.TransformerEncoder(
        torch.nn.TransformerEncoderLayer(16, 2, 32), 2, enable_nested_tensor=False
    )
    audit = attnlaw.audit(module)
    assert audit.summary["logits"]["unbounded"] == "layer 0 qk (there is no norm layer before this layer)"
    assert audit.matrices.filter(kind="qk")["logit_bound"].is_null().to_list() == [True, True, False, False]


def test_sizes_do_not_depend_on_the_scale_of_the_weights() -> None:
    """Weights far from one: sizes scale by the same powers of two."""
    module = make("GPT2Model", **TABLE.TYPES["gpt2"].sizes)
    model = open_model(module)
    block = model.layers[0].attention
    (first, *_) = block_scores(model, block, "qk")
    assert first is not None
    with torch.no_grad():
        for layer in module.h:
            layer.attn.c_attn.weight.mul_(2.0**200)
            layer.attn.c_attn.bias.mul_(2.0**200)
    (large, *_) = block_scores(open_model(module), open_model(module).layers[0].attention, "qk")
    assert large is not None
    assert large.whole.values == pytest.approx(first.whole.values * 2.0**400, rel=1e-12)
