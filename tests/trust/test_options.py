"""What stands beside a checkpoint, and paths themselves, through the real command line: one line each."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from checkpoints.spoiled import CONFIG, bert_state, write_good
from safetensors.torch import save_file
from trust.command import GIGABYTE, run
from trust.targets import ADAPTER, MAP

LONG = "a" * 5000
QUERY = "encoder.layer.0.attention.self.query"
# Twelve numbers in a row: a run of digits can be divided into them in very many ways.
TWELVE = b'depth = ["a", "b", "c", "d", "e", "f", "g", "h", "i", "j", "k", "l"]\nlayer = "%s"'


def adapter(folder: Path, *modules: str) -> list[str]:
    tensors = {}
    for module in modules:
        tensors |= {f"{module}.lora_A.weight": torch.ones(2, 8), f"{module}.lora_B.weight": torch.ones(8, 2)}
    save_file(tensors, folder / "adapter_model.safetensors")
    (folder / "adapter_config.json").write_text(json.dumps(ADAPTER))
    return ["audit", ".", "--adapter", "."]


def adapter_pipe(folder: Path) -> list[str]:
    command = adapter(folder, QUERY)
    (folder / "adapter_config.json").unlink()
    os.mkfifo(folder / "adapter_config.json")
    return command


def map_file(folder: Path, old: bytes, new: bytes) -> list[str]:
    (folder / "map.toml").write_bytes(MAP.replace(old, new))
    return ["audit", ".", "--map", "map.toml"]


def divisions(folder: Path, index: bytes) -> list[str]:
    save_file(bert_state() | {"1" * 60 + "x": torch.ones(2, 2)}, folder / "model.safetensors")
    return map_file(folder, b'layer = "encoder.layer.{layer}."', TWELVE % (index * 12))


def map_pipe(folder: Path) -> list[str]:
    os.mkfifo(folder / "map.toml")
    return ["audit", ".", "--map", "map.toml"]


def config(folder: Path) -> list[str]:
    (folder / "config.json").write_text(json.dumps(CONFIG | {"routed_scaling_factor": 10**400}))
    return ["audit", "."]


def padded_layer(folder: Path) -> list[str]:
    save_file(
        bert_state() | {f"encoder.layer.00{QUERY[15:]}.weight": torch.ones(8, 8)},
        folder / "model.safetensors",
    )
    return ["audit", "."]


def superscript(folder: Path) -> list[str]:
    """A digit to Python's `isdigit`, and no number."""
    names = {"in_proj_weight": torch.ones(12, 4), "out_proj.weight": torch.ones(4, 4)}
    state = {
        f"{part}.self_attn.{name}": value.clone()
        for part in ("²", "9" * 5000)
        for name, value in names.items()
    }
    save_file(state, folder / "odd.safetensors")
    (folder / "config.json").unlink()
    return ["audit", "odd.safetensors"]


ATTACKS: dict[str, tuple[Callable[[Path], list[str]], str]] = {
    "long path": (lambda _: ["audit", LONG], "File name too long"),
    "long file": (lambda _: ["fit", f"{LONG[:300]}.safetensors"], "File name too long"),
    "long adapter": (lambda _: ["audit", ".", "--adapter", LONG], "File name too long"),
    "long map": (lambda _: ["audit", ".", "--map", LONG], "File name too long"),
    "adapter, pipe": (adapter_pipe, "adapter_config.json: this is not a regular file"),
    "adapter, one weight twice": (lambda f: adapter(f, QUERY, f"bert.{QUERY}"), "both change"),
    "adapter, one matrix twice": (
        lambda f: adapter(f, QUERY, f"base_model.model.{QUERY}"),
        "are the same tensor",
    ),
    "map, hexadecimal": (lambda f: map_file(f, b'"mine"', b"0x" + b"f" * 5000), "more than 64 bits"),
    "map, pipe": (map_pipe, "map.toml: this is not a regular file"),
    "map, twelve numbers": (lambda f: divisions(f, b"{layer}"), "without text between them"),
    "map, digits between": (lambda f: divisions(f, b"{layer}1"), "without text between them"),
    "config, 401 digits": (config, "routed_scaling_factor is an integer of 1329 bits"),
    "one layer twice": (padded_layer, "describe the same layer"),
    "superscript": (superscript, "attnlaw cannot find the number"),
}


@pytest.mark.parametrize("name", ATTACKS)
def test_each_ends_in_one_line(name: str, tmp_path: Path) -> None:
    write, says = ATTACKS[name]
    outcome = run(*write(write_good(tmp_path)), folder=tmp_path, seconds=30)
    (line,) = outcome.refusals()
    assert outcome.status == 1
    assert line.startswith("attnlaw: ")
    assert line.isprintable()
    assert says in line
    assert ";" in line
    assert outcome.output == ""
    assert outcome.memory < GIGABYTE // 2


def test_a_path_too_long_leaves_the_others_audited(tmp_path: Path) -> None:
    outcome = run("audit", LONG, write_good(tmp_path), folder=tmp_path, seconds=30)
    (line,) = outcome.refusals()
    assert "File name too long" in line
    assert outcome.status == 1
    assert "bert · 3 layers" in outcome.output
