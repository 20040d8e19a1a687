"""Checkpoints of Lightning and fairseq: plain arguments beside the weights are read, nothing else is made.

The structure of the first is that of a file which lightning 2.6 wrote, that of the second of fairseq 0.12's
`Trainer.state_dict`; the reference is transformers' own model with the same weights under its own names.
"""

from __future__ import annotations

from argparse import Namespace
from collections import OrderedDict
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from time import sleep
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from checkpoints.spoiled import refusal
from checkpoints.test_families import SIZES

from attnlaw.checkpoints.blocks import Attention
from attnlaw.checkpoints.model import Model
from attnlaw.checkpoints.open import open_model

State = dict[str, torch.Tensor]
ROBERTA = {
    "attention.self.query": "self_attn.q_proj",
    "attention.self.key": "self_attn.k_proj",
    "attention.self.value": "self_attn.v_proj",
    "attention.output.dense": "self_attn.out_proj",
    "attention.output.LayerNorm": "self_attn_layer_norm",
    "intermediate.dense": "fc1",
    "output.dense": "fc2",
    "output.LayerNorm": "final_layer_norm",
    "encoder.layer.": "layers.",
    "embeddings.LayerNorm": "layernorm_embedding",
    "embeddings.word_embeddings": "embed_tokens",
    "embeddings.position_embeddings": "embed_positions",
}


def model_of(name: str, **changes: Any) -> torch.nn.Module:
    """A model of transformers whose gains and biases are random, too."""
    torch.manual_seed(3)
    kind = getattr(transformers, name)
    model: torch.nn.Module = kind(kind.config_class(**changes))
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_()
    return model


def lightning(state: State, **hyper_parameters: Any) -> dict[str, Any]:
    adam = {"state": {0: {"step": torch.tensor(2.0)}}, "param_groups": [{"lr": 1e-3, "betas": (0.9, 0.98)}]}
    return {
        "epoch": 0,
        "global_step": 2,
        "pytorch-lightning_version": "2.6.6",
        "state_dict": OrderedDict((f"model.{name}", value) for name, value in state.items()),
        "loops": {"fit_loop": {"state_dict": {}, "epoch_progress": {"total": {"ready": 1}}}},
        "callbacks": {"ModelCheckpoint{'mode': 'min'}": {"best_model_score": None, "dirpath": "runs"}},
        "optimizer_states": [adam],
        "lr_schedulers": [{"step_size": 1, "base_lrs": [1e-3]}],
        "hparams_name": "kwargs",
        "hyper_parameters": {"lr": 1e-3, "betas": (0.9, 0.98), **hyper_parameters},
    }


def fairseq(state: State, new: bool, **arguments: Any) -> dict[str, Any]:
    namespace = Namespace(arch="any", lr=[0.1], dropout=0.1, **arguments)
    where = (
        {"args": None, "cfg": {"_name": None, "model": namespace, "task": None}}
        if new
        else {"args": namespace}
    )
    return {
        **where,
        "model": state,
        "criterion": None,
        "optimizer_history": [{"optimizer_name": "FairseqAdam", "num_updates": 3}],
        "task_state": {},
        "extra_state": {"metrics": [], "train_iterator": {"epoch": 1}},
    }


def maps(model: Model) -> list[Any]:
    """Every map with its bias, and every norm that feeds one with its gain, in order."""
    arrays: list[Any] = []
    for layer in model.layers:
        blocks: list[Attention] = [block for block in (layer.attention, layer.cross) if block]
        views = [view for block in blocks for view in (block.query, block.key, block.value, block.output)]
        assert layer.feed_forward
        views += [layer.feed_forward.inner, layer.feed_forward.outer]
        for view in views:
            arrays += [model.read(view), model.bias(view)]
        norms = [norm for block in blocks for norm in (block.norm, block.source_norm)]
        for norm in (*norms, layer.feed_forward.norm):
            assert norm is not None
            arrays += [np.array(float(norm.gain is not None)), norm.epsilon]
            arrays += [model.gain(norm), model.shift(norm)] if norm.gain else []
    return arrays


def same(model: Model, other: Model) -> None:
    assert (model.heads, model.hidden_size, model.network.activation) == (
        other.heads,
        other.hidden_size,
        other.network.activation,
    )
    assert ("pre-norm" in model.extensions) == ("pre-norm" in other.extensions)
    pairs = list(zip(maps(model), maps(other), strict=True))
    assert len(pairs) > 20
    assert all(np.array_equal(array, two) for array, two in pairs)


@pytest.mark.parametrize("holder", [None, Namespace(seed=1, path="x")])
def test_lightning_with_sizes_among_its_hyper_parameters(holder: Any, tmp_path: Path) -> None:
    bert = model_of("BertModel", **SIZES)
    sizes = {"hidden_size": 24, "num_attention_heads": 4, "model_type": "bert", "arguments": holder}
    torch.save(lightning(bert.state_dict(), **sizes), tmp_path / "last.ckpt")
    model = open_model(tmp_path / "last.ckpt")
    assert model.family == "bert"
    same(model, open_model(bert))

    torch.save(lightning(bert.state_dict()), tmp_path / "last.ckpt")
    refusal(tmp_path / "last.ckpt", "attnlaw cannot find the number", "--heads")
    same(open_model(tmp_path / "last.ckpt", heads=4), open_model(bert))
    torch.save(lightning(bert.state_dict(), num_hidden_layers=7), tmp_path / "last.ckpt")
    refusal(tmp_path / "last.ckpt", "expected 7 layers", heads=4)


def roberta_state(model: torch.nn.Module, prefix: str, fused: bool, norm: str) -> State:
    """The weights of transformers' RoBERTa under fairseq's names, newer or older ones."""
    state: State = {}
    for name, value in model.state_dict().items():
        for theirs, fairseqs in ROBERTA.items():
            name = name.replace(theirs, fairseqs)
        state[f"{prefix}.sentence_encoder.{name.replace('layernorm_embedding', norm)}"] = value.clone()
    state |= {f"{prefix}.lm_head.weight": torch.ones(40, 24), f"{prefix}.version": torch.ones(1)}
    for layer in range(2) if fused else ():
        at = f"{prefix}.sentence_encoder.layers.{layer}.self_attn."
        for kind in ("weight", "bias"):
            parts = [state.pop(f"{at}{role}_proj.{kind}") for role in "qkv"]
            state[f"{at}in_proj_{kind}"] = torch.cat(parts)
    return state


ROBERTA_ARGUMENTS = {
    "encoder_layers": 2,
    "encoder_embed_dim": 24,
    "encoder_ffn_embed_dim": 36,
    "encoder_attention_heads": 4,
    "activation_fn": "gelu",
}


@pytest.mark.parametrize(
    ("prefix", "fused", "norm", "new"),
    [
        ("encoder", False, "layernorm_embedding", True),
        ("decoder", False, "emb_layer_norm", False),
        ("decoder", True, "emb_layer_norm", False),
    ],
)
def test_roberta_of_fairseq(prefix: str, fused: bool, norm: str, new: bool, tmp_path: Path) -> None:
    roberta = model_of("RobertaModel", **SIZES, layer_norm_eps=1e-5, add_pooling_layer=False)
    state = roberta_state(roberta, prefix, fused, norm)
    torch.save(fairseq(state, new, **ROBERTA_ARGUMENTS), tmp_path / "model.pt")
    model = open_model(tmp_path)
    assert model.family == "fairseq"
    assert not any("norm" in line or "leaves out" in line for line in model.warnings)
    same(model, open_model(roberta))
    wrong = ROBERTA_ARGUMENTS | {"encoder_layers": 3}
    torch.save(fairseq(state, new, **wrong), tmp_path / "model.pt")
    refusal(tmp_path, "expected 3 layers, found layers 0-1")


BART = {
    "vocab_size": 40,
    "d_model": 24,
    "encoder_layers": 2,
    "decoder_layers": 1,
    "encoder_attention_heads": 4,
    "decoder_attention_heads": 4,
    "encoder_ffn_dim": 36,
    "decoder_ffn_dim": 30,
    "activation_function": "relu",
}


@pytest.mark.parametrize("kind", ["BartModel", "MBartModel"])
def test_encoders_with_decoders_of_fairseq(kind: str, tmp_path: Path) -> None:
    """BART is post-norm, mBART pre-norm with a norm behind all layers; fairseq tells by an argument."""
    bart = model_of(kind, **BART)
    first = kind == "MBartModel"
    state = {name: value for name, value in bart.state_dict().items() if name != "shared.weight"}
    arguments = {f"{side}_normalize_before": first for side in ("encoder", "decoder")}
    arguments |= {f"{side}_embed_dim": 24 for side in ("encoder", "decoder")}
    arguments |= {f"{side}_attention_heads": 4 for side in ("encoder", "decoder")}
    arguments |= {"encoder_ffn_embed_dim": 36, "decoder_ffn_embed_dim": 30, "activation_fn": "relu"}
    torch.save(fairseq(state, new=True, **arguments), tmp_path / "model.pt")
    model = open_model(tmp_path)
    assert [layer.stack for layer in model.layers] == ["encoder", "encoder", "decoder"]
    same(model, open_model(bart))


@pytest.mark.parametrize("first", [False, True])
def test_wav2vec_of_fairseq(first: bool, tmp_path: Path) -> None:
    sizes = SIZES | {"conv_dim": (8,), "conv_stride": (2,), "conv_kernel": (3,), "num_feat_extract_layers": 1}
    sizes |= {"num_conv_pos_embeddings": 4, "num_conv_pos_embedding_groups": 2}
    sound = model_of("Wav2Vec2Model", **sizes, do_stable_layer_norm=first)
    state = {}
    names = {
        "attention.": "self_attn.",
        ".layer_norm": ".self_attn_layer_norm",
        "feed_forward.intermediate_dense": "fc1",
        "feed_forward.output_dense": "fc2",
    }
    for name, value in sound.state_dict().items():
        if name.startswith("encoder.layers."):
            for theirs, fairseqs in names.items():
                name = name.replace(theirs, fairseqs)
        state[f"w2v_encoder.w2v_model.{name}"] = value
    w2v_arguments = ROBERTA_ARGUMENTS | {"layer_norm_first": first, "conv_feature_layers": "[(8, 3, 2)]"}
    inner = {"model": w2v_arguments} if first else Namespace(**w2v_arguments)
    torch.save(fairseq(state, not first, w2v_args=inner), tmp_path / "model.pt")
    model = open_model(tmp_path)
    assert model.family == "fairseq_wav2vec2"
    same(model, open_model(sound))


def test_other_classes_stay_refused(tmp_path: Path) -> None:
    """What a Namespace holds is looked at as strictly as all else."""
    state = {"a": torch.ones(2, 2)}
    for value, said in ((Path("x"), "pathlib.PosixPath"), (np.float64(1), "numpy"), (print, "print")):
        torch.save(fairseq(state, new=False, held=value), tmp_path / "model.pt")
        refusal(tmp_path / "model.pt", said, "but attnlaw only loads plain", "state_dict")


def test_what_others_allow_is_left_as_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """PyTorch's list of plain classes belongs to the whole process: one file is loaded at a time."""
    torch.save(fairseq({"a": torch.ones(2, 2)}, new=False), tmp_path / "model.pt")

    def read(_: int = 0) -> None:
        refusal(tmp_path / "model.pt", "does not know this architecture")

    load, inside = torch.load, []

    def slow(*words: Any, **given: Any) -> Any:
        inside.append(1)
        sleep(0.01)
        assert len(inside) == 1
        inside.pop()
        return load(*words, **given)

    monkeypatch.setattr(torch, "load", slow)
    before = set(torch.serialization.get_safe_globals())
    with ThreadPoolExecutor(8) as threads:
        list(threads.map(read, range(8)))
    assert set(torch.serialization.get_safe_globals()) == before
    with torch.serialization.safe_globals([Namespace]):
        read()
        assert Namespace in torch.serialization.get_safe_globals()
