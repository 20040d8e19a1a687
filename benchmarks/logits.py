"""Logits of real forward passes against their bounds from weights, and what the bounds cost an audit.

    python benchmarks/logits.py [CHECKPOINT ...]     (default: all real checkpoints that download)

First random small models of every type in benchmarks/families.py, three draws each, run once on their inputs;
then trained models on text (where a tokenizer lies beside them, else on random tokens). Of every head the
largest logit of the pass over its bound; then the CPU time of the columns in an audit of a 12 x 768 encoder.
Exits with status 1 where a logit passes its bound, or a claim does not hold.
"""

from __future__ import annotations

import json
import logging
import re
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from audit import make_encoder
from claims import Claims
from safetensors.numpy import save_file

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))
import families
from real_checkpoints import Unavailable, fetch
from theory.bounds.largest_logits import Largest, loaded_model, small_model

import attnlaw
from attnlaw.analysis.audit import rows as rows_of_audit
from attnlaw.checkpoints.open import open_model
from attnlaw.spectra.scores import ScoreReader

ROOT = Path(__file__).parent.parent
CHECKPOINTS = ("rxnfp-pretrained", "rxnfp-finetuned", "rxnfp-10k", "minilm", "smollm2", "tiny-decoder")
TOKENS, DRAWS = 256, 3
REACTIONS = (
    "CC(=O)Oc1ccccc1C(=O)O.[Na+].[OH-]>>O=C(O)c1ccccc1O.CC(=O)[O-].[Na+]",
    "Brc1ccccc1.OB(O)c1ccncc1.CC(=O)[O-].[K+]>>c1ccc(-c2ccncc2)cc1",
    "CCN(CC)CC.O=C(Cl)c1ccccc1.NCCc1ccccc1>>O=C(NCCc1ccccc1)c1ccccc1",
)
# What llama.cpp calls the maps and norms of a layer, and Hugging Face.
PARTS = {
    **{f"attn_{end}": f"self_attn.{end}_proj" for end in "qkv"},
    "attn_output": "self_attn.o_proj",
    **{f"ffn_{end}": f"mlp.{end}_proj" for end in ("gate", "up", "down")},
    "attn_norm": "input_layernorm",
    "ffn_norm": "post_attention_layernorm",
}
SMILES = re.compile(r"\[[^\]]+]|Br|Cl|>>|%\d\d|.")


def summarised(name: str, rows: Sequence[Largest]) -> str:
    ratios = sorted(row.ratio for row in rows if row.ratio is not None)
    if not ratios:
        return f"{name:<26} no bounds: {rows[0].logits.reason}"
    middle = ratios[len(ratios) // 2]
    typical = [row.measured / row.logits.typical for row in rows if row.logits.typical]
    return (
        f"{name:<26} {len(ratios):5d}   {ratios[0]:.3f} {middle:.3f} {ratios[-1]:.3f}"
        f"   {max(row.measured for row in rows):8.1f}   {np.median(typical):6.1f}"
    )


def small() -> list[Largest]:
    """Random small models of all types, a line for each."""
    every = []
    for name, family in families.TYPES.items():
        draws = (small_model(family.kind, family.sizes, family.inputs, seed) for seed in range(DRAWS))
        rows_of_type = [row for rows in draws for row in rows]
        print(summarised(name, rows_of_type) if rows_of_type else f"{name:<26} refused", flush=True)
        every += rows_of_type
    return every


def trained(name: str) -> list[Largest]:
    """A trained model on its own kind of text."""
    folder = ROOT / "examples" / name if name == "tiny-decoder" else fetch(name)
    with tempfile.TemporaryDirectory() as other:
        path = as_llama(folder, Path(other)) if name == "smollm2" else folder
        return loaded_model(path, tokens_of(folder, name))


def tokens_of(folder: Path, name: str) -> list[int]:
    text = (ROOT / "docs" / "commands" / "audit.md").read_text(encoding="utf-8")
    if name == "tiny-decoder":
        return list(text.encode())[:128]
    if name.startswith("rxnfp"):
        words = (folder / "vocab.txt").read_text(encoding="utf-8").splitlines()
        number = {word: place for place, word in enumerate(words)}
        parts = SMILES.findall(".".join(REACTIONS))
        return [number["[CLS]"], *(number.get(part, number["[UNK]"]) for part in parts), number["[SEP]"]]
    if (folder / "tokenizer.json").is_file():
        from tokenizers import Tokenizer

        return list(Tokenizer.from_file(str(folder / "tokenizer.json")).encode(text).ids[:TOKENS])
    return torch.randint(0, 49152, (TOKENS,), generator=torch.manual_seed(0)).tolist()


def as_llama(folder: Path, into: Path) -> Path:
    """SmolLM2 with the names, the order of rows and the config that Hugging Face gives it."""
    tensors = open_model(folder).tensors
    state = {"embed_tokens": tensors.read("token_embd.weight"), "norm": tensors.read("output_norm.weight")}
    layers = 1 + max(int(name.split(".")[1]) for name in tensors.shapes if name.startswith("blk."))
    for layer in range(layers):
        for part, name in PARTS.items():
            weight = tensors.read(f"blk.{layer}.{part}.weight")
            if part in ("attn_q", "attn_k"):  # neighbours turn together in llama.cpp
                weight = weight.reshape(-1, 32, 2, weight.shape[1]).swapaxes(1, 2).reshape(weight.shape)
            state[f"layers.{layer}.{name}"] = weight
    stored = {f"model.{name}.weight": weight.astype(np.float32).copy() for name, weight in state.items()}
    save_file(stored, into / "model.safetensors")
    sizes = {"num_attention_heads": 9, "num_key_value_heads": 3, "num_hidden_layers": layers}
    sizes |= {"hidden_size": 576, "intermediate_size": 1536, "vocab_size": 49152, "rms_norm_eps": 1e-5}
    config = {"model_type": "llama", "rope_theta": 100000.0, "max_position_embeddings": 8192, **sizes}
    (into / "config.json").write_text(json.dumps(config))
    return into


def cost() -> float:
    """The share of an audit's CPU time that the columns of logits take, over 12 layers of width 768."""
    spent = 0.0

    def timed(function: Callable[..., Any]) -> Callable[..., Any]:
        def run(*args: Any) -> Any:
            nonlocal spent
            began = time.thread_time()
            result = function(*args)
            spent += time.thread_time() - began
            return result

        return run

    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        make_encoder(Path(folder))
        attnlaw.audit(folder, jobs=1)  # draws the nulls of its shapes
        for name in ("__init__", "__call__"):
            patch.setattr(ScoreReader, name, timed(getattr(ScoreReader, name)))
        patch.setattr(rows_of_audit, "head_logits", timed(rows_of_audit.head_logits))
        began = time.process_time()
        attnlaw.audit(folder, jobs=1)
        whole = time.process_time() - began
    print(f"\nan audit of 12 x 768: {whole:.2f} s of CPU, columns of logits {spent:.3f} s")
    return spent / whole


def main(names: Sequence[str]) -> int:
    print("                           heads   largest logit / bound   largest   median over")
    print("                                   least median largest      logit   typical")
    rows = small() if not names else []
    for name in names or CHECKPOINTS:
        try:
            model_rows = trained(name)
        except Unavailable as error:
            print(f"{name:<26} not there: {error}")
            continue
        print(summarised(name, model_rows), flush=True)
        rows += model_rows
    ratios = [row.ratio for row in rows if row.ratio is not None]
    claims = Claims()
    claims.add("heads with a bound", f"{len(ratios)} heads", "real passes", len(ratios), 0 if names else 1000)
    most = 1 + families.SINGLE  # some types compute in float32
    beyond = sum(ratio > most for ratio in ratios)
    claims.add("logits beyond their bound", f"{beyond} heads", "real passes", beyond, 0, least=False)
    claims.add("logits in an audit", "share of CPU time", "12 x 768", cost(), 0.05, least=False)
    return claims.finish()


if __name__ == "__main__":
    logging.disable()
    warnings.simplefilter("ignore")
    sys.exit(main(sys.argv[1:]))
