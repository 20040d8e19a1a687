"""Architectures described in TOML: the same model by our table and by a file, and errors by file and key."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from command.in_process import invoke
from safetensors.numpy import save_file

from attnlaw import audit
from attnlaw.checkpoints.families import FOLDER, Family, LayerTable
from attnlaw.checkpoints.families.read_toml import known_families, read_family
from attnlaw.checkpoints.open import open_model
from attnlaw.core.errors import InputError

MINE = """
name = "mine"
stored_out_in = false
default_activation = "relu"

[[stacks]]
layer = "tower.{layer}."
heads = "n_heads"
attention = { "query,key,value" = "mix.qkv", output = "mix.back" }
feed_forward = [{ in = "wide.up", out = "wide.down" }]
"""


def tensors(layers: int = 2) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    shapes = {"mix.qkv": (8, 24), "mix.back": (8, 8), "wide.up": (8, 12), "wide.down": (12, 8)}
    return {
        f"net.tower.{layer}.{name}": rng.standard_normal(shape)
        for layer in range(layers)
        for name, shape in shapes.items()
    }


def written(folder: Path, text: str) -> Path:
    path = folder / "mine.toml"
    path.write_text(text)
    return path


def test_an_architecture_of_ones_own(tmp_path: Path) -> None:
    state = tensors()
    with pytest.raises(InputError, match=r"does not know this architecture.*--map"):
        open_model(state, heads=2)
    audit_result = audit(state, heads=2, map=written(tmp_path, MINE), jobs=1)
    assert (
        audit_result.summary["family"],
        audit_result.summary["layers"],
        audit_result.summary["activation"],
    ) == (
        "mine",
        2,
        "relu",
    )
    model = open_model(state, heads=2, map=tmp_path / "mine.toml")
    assert np.array_equal(model.read(model.layers[1].attention.key), state["net.tower.1.mix.qkv"][:, 8:16])
    assert model.layers[0].feed_forward
    assert np.array_equal(model.read(model.layers[0].feed_forward.outer), state["net.tower.0.wide.down"])


def test_one_of_our_families_is_such_a_file() -> None:
    file = FOLDER / "gpt_neox.toml"
    assert read_family(file) in known_families()
    assert read_family(file).name == "gpt_neox"


def as_toml(family: Family) -> str:
    """A family written back: every field that differs from its default."""

    def text(value: Any) -> str:
        if isinstance(value, bool):
            return str(value).lower()
        if isinstance(value, dict):
            return "{ " + ", ".join(f'"{key}" = "{name}"' for key, name in value.items()) + " }"
        if isinstance(value, tuple):
            return "[" + ", ".join(text(part) for part in value) + "]"
        return f'"{value}"' if isinstance(value, str) else str(value)

    def lines(record: Family | LayerTable) -> list[str]:
        return [
            f"{entry.name} = {text(getattr(record, entry.name))}"
            for entry in dataclasses.fields(record)
            if entry.name not in ("stacks", "init") and getattr(record, entry.name) not in (None, {}, ())
        ] + [
            f"{entry.name} = []"
            for entry in dataclasses.fields(record)
            if getattr(record, entry.name) == () and entry.default not in (dataclasses.MISSING, ())
        ]

    stacks = ["\n".join(["[[stacks]]", *lines(stack)]) for stack in family.stacks]
    return "\n".join([*lines(family), *stacks])


@pytest.mark.parametrize("family", known_families(), ids=lambda family: family.name)
def test_every_family_can_be_written_as_a_file(family: Family, tmp_path: Path) -> None:
    """With all that it takes from another, and so like none; initialisers have tests of their own."""
    family = dataclasses.replace(family, like=None, init={})
    assert read_family(written(tmp_path, as_toml(family))) == family


WRONG: dict[str, tuple[str, tuple[str, ...]]] = {
    "no toml": ("name = ", ("not valid TOML",)),
    "no name": (MINE.replace('name = "mine"', ""), ("name: missing", "text")),
    "no stacks": ('name = "a"', ("stacks: missing",)),
    "empty stacks": ('name = "a"\nstacks = []', ("stacks: is missing", "[[stacks]]")),
    "unknown key": ("colour = 3\n" + MINE, ("colour: unknown key", "known: name, stacks")),
    "unknown key in a stack": (MINE + "colour = 3", ("stacks[0]: colour: unknown key",)),
    "wrong type": (MINE.replace("= false", '= "no"'), ("stored_out_in: found 'no'", "true or false")),
    "a number for a name": (
        MINE.replace('"mix.back"', "3"),
        ("stacks[0]: attention", "a table that maps roles"),
    ),
    "a role too few": (
        MINE.replace('"query,key,value"', '"query,key"'),
        ("stacks[0]: attention", "has the roles query, key, output", "key, output, query, value"),
    ),
    "a role twice": (MINE.replace('"query,key,value"', '"query,key,value,key"'), ("stacks[0]: attention",)),
    "a role of another": (MINE.replace("{ in =", "{ query ="), ("feed_forward", "has the roles query, out")),
    "feed-forward no list": (
        MINE.replace("[{ in", "{ in").replace("}]", "}"),
        ("feed_forward: found", "a list of tables"),
    ),
    "no index": (MINE.replace("tower.{layer}.", "tower."), ("layer: 'tower.' has 0 indices", "expected 1")),
}


@pytest.mark.parametrize("case", WRONG)
def test_errors_name_the_file_and_the_key(tmp_path: Path, case: str) -> None:
    text, said = WRONG[case]
    path = written(tmp_path, text)
    with pytest.raises(InputError) as caught:
        read_family(path)
    message = str(caught.value)
    assert message.startswith(f"{path}: ")
    assert "\n" not in message
    assert all(part in message for part in said), message


def test_the_options_of_the_command(tmp_path: Path) -> None:
    save_file(tensors(), tmp_path / "model.safetensors")
    (tmp_path / "config.json").write_text('{"model_type": "strange", "n_heads": 2, "hidden_act": "relu"}')
    path = written(tmp_path, MINE)
    done = invoke("audit", tmp_path, "--map", path, "--json", "--jobs", 1)
    summary = json.loads(done.stdout)
    assert (summary["family"], summary["heads"], summary["warnings"]) == ("strange", 2, [])
    wrong = written(tmp_path, "colour = 3\n" + MINE)
    done = invoke("audit", tmp_path, "--map", wrong, status=1)
    assert f"{wrong}: colour: unknown key" in " ".join(done.stderr.split())


def test_a_map_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"absent\.toml: no such file; give a TOML file"):
        open_model(tensors(), heads=2, map=tmp_path / "absent.toml")


NAMED = (
    "{path}: no tensor of weights is called {name} (its first tensor: net.tower.0.mix.qkv); correct the name"
)
MISFITS: dict[str, tuple[str, str, str]] = {
    "layer": ("tower", "spire", NAMED.replace("{name}", "spire.{layer}.mix.qkv")),
    "query": ("mix.qkv", "mix.qqkv", NAMED.replace("{name}", "tower.{layer}.mix.qqkv")),
    "output": ("mix.back", "mix.bakc", NAMED.replace("{name}", "tower.{layer}.mix.bakc")),
    "feed-forward": (
        "wide.up",
        "wide.upp",
        "weights: tensor net.tower.0.wide.upp is missing; correct its name in {path}, or save the "
        "whole checkpoint",
    ),
    "orientation": (
        "stored_out_in = false",
        "stored_out_in = true",
        "weights: tensor net.tower.0.mix.qkv has 8 outputs, which cannot be divided into key heads for 2 "
        "query heads of size 4; check the key stored_out_in and the order of the parts in {path}",
    ),
}


@pytest.mark.parametrize("case", MISFITS)
def test_a_map_that_does_not_fit_says_what(tmp_path: Path, case: str) -> None:
    old, new, line = MISFITS[case]
    path = written(tmp_path, MINE.replace(old, new))
    with pytest.raises(InputError) as caught:
        open_model(tensors(), heads=2, map=path, name="weights")
    assert str(caught.value) == line.replace("{path}", str(path))


def test_a_map_whose_parts_are_in_no_layer_together(tmp_path: Path) -> None:
    state = {
        name: tensor for name, tensor in tensors().items() if not name.endswith(("0.mix.qkv", "1.mix.back"))
    }
    path = written(tmp_path, MINE)
    with pytest.raises(InputError) as caught:
        open_model(state, heads=2, map=path, name="weights")
    assert (
        str(caught.value) == f"weights: no layer has all the attention tensors of {path}; save the whole "
        "checkpoint"
    )


CROSSED = """
name = "crossed"

[[stacks]]
layer = "dec.{layer}."
attention = { "query,key,value" = "qkv", output = "o" }
cross = { query = "cq", "key,value" = "ckv", output = "co" }
feed_forward = [{ in = "up", out = "down" }]
"""


@pytest.mark.parametrize("memory", [8, 12])
def test_a_decoder_beside_a_wider_encoder_has_no_proxies(tmp_path: Path, memory: int) -> None:
    """Its cross attention maps 12 numbers to 8: the formulas have one hidden size for both sides."""
    rng = np.random.default_rng(1)
    shapes = {"qkv": (24, 8), "o": (8, 8), "cq": (8, 8), "ckv": (16, memory), "co": (8, 8)}
    shapes |= {"up": (12, 8), "down": (8, 12)}
    path = tmp_path / "model.safetensors"
    save_file({f"dec.0.{name}": rng.standard_normal(shape) for name, shape in shapes.items()}, path)
    options = ["--heads", "2", "--map", str(written(tmp_path, CROSSED)), "--jobs", "1"]
    shown = invoke("audit", path, *options, "--details")
    assert f"width {8 if memory == 8 else 'varies'} " in shown.stdout
    refused = "No proxies: the proxies need one hidden size, but the layers have 8, 12" in shown.stdout
    assert refused == (memory == 12)
