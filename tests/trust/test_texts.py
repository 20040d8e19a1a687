"""Configs, adapters, maps and studies that attack: each ends in one line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from checkpoints.spoiled import CONFIG, write_good
from trust.targets import ADAPTER, MAP, STUDIES, TARGETS

from attnlaw.checkpoints.open import open_model
from attnlaw.core.errors import InputError

HUGE = 10**400
HEADS: tuple[Any, ...] = (
    "4",
    0,
    -1,
    10**9,
    HUGE,
    1e9,
    2.0,
    float("nan"),
    float("inf"),
    True,
    [2],
    {"a": 2},
    "",
)


def refusal(reader: str, data: bytes, folder: Path) -> str:
    """The line that a reader refuses bytes with."""
    target = TARGETS[reader]
    target.prepare(folder)
    path = target.write(folder, data)
    with pytest.raises(InputError) as caught:
        target.read(path)
    line = str(caught.value)
    assert line.isprintable()
    assert len(line) < 2500
    return line


@pytest.mark.parametrize("value", HEADS, ids=lambda value: f"{value!r:.20}")
@pytest.mark.parametrize("key", ["num_attention_heads", "num_hidden_layers", "hidden_size"])
def test_sizes_of_wrong_types_and_magnitudes(key: str, value: Any, tmp_path: Path) -> None:
    assert key in refusal("config", json.dumps(CONFIG | {key: value}).encode(), tmp_path) or value in (
        10**9,
        HUGE,
    )


@pytest.mark.parametrize(
    "value", ["4", 0, -1, HUGE, float("nan"), float("inf"), True, [2]], ids=lambda value: f"{value!r:.20}"
)
def test_numbers_of_wrong_types_and_magnitudes(value: Any, tmp_path: Path) -> None:
    config = json.dumps(CONFIG | {"routed_scaling_factor": value}).encode()
    assert "routed_scaling_factor is" in refusal("config", config, tmp_path)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("[" * 10**6, "not valid JSON"),
        ('{"a":' * 10**5, "not valid JSON"),
        ("9" * 10**6, "not valid JSON"),
        ('{"hidden_size": ' + "9" * 5000 + "}", "not valid JSON"),
        ("\x00" * 100, "not valid JSON"),
        (" " * (4 * 2**20 + 1), "larger than 4 MB"),
        ("null", "JSON object"),
        ('"text"', "JSON object"),
    ],
    ids=["nested lists", "nested tables", "digits", "digits inside", "zeros", "long", "null", "text"],
)
def test_configs_that_are_none(text: str, says: str, tmp_path: Path) -> None:
    assert says in refusal("config", text.encode(), tmp_path)


def test_a_depth_that_files_do_not_bound(tmp_path: Path) -> None:
    """ALBERT's layers share weights, so that no tensor speaks against a depth of 10^9."""
    import torch
    from safetensors.torch import save_file

    at = "encoder.albert_layer_groups.0.albert_layers.0."
    names = ("attention.query", "attention.key", "attention.value", "attention.dense", "ffn", "ffn_output")
    save_file({f"{at}{name}.weight": torch.ones(8, 8) for name in names}, tmp_path / "model.safetensors")
    config = {"model_type": "albert", "num_attention_heads": 2, "num_hidden_layers": 10**9}
    (tmp_path / "config.json").write_text(json.dumps(config))
    with pytest.raises(InputError, match="num_hidden_layers is 1000000000"):
        open_model(tmp_path)


@pytest.mark.parametrize("side", [10**12, HUGE], ids=["12 zeros", "400 zeros"])
def test_scales_of_huge_blocks_take_no_memory(side: int, tmp_path: Path) -> None:
    """Blocks of 4 x 10^12 entries: each scale must not be written out so often."""
    import torch
    from checkpoints.spoiled import QUERY, bert_state
    from safetensors.torch import save_file
    from trust.targets import read_everything

    state = bert_state()
    state[QUERY] = state[QUERY].to(torch.float8_e4m3fn)
    state[f"{QUERY}_scale"] = torch.tensor([[1.0], [2.0]])
    write_good(tmp_path)
    save_file(state, tmp_path / "model.safetensors")
    method = {"quant_method": "fp8", "weight_block_size": [4, side]}
    (tmp_path / "config.json").write_text(json.dumps(CONFIG | {"quantization_config": method}))
    read_everything(tmp_path)
    model = open_model(tmp_path)
    matrix = model.read(model.layers[0].attention.query)
    assert (matrix[:, 4:] == 2 * state[QUERY][4:].float().numpy().T).all()


@pytest.mark.parametrize(
    "changes",
    [
        {"lora_alpha": float("nan")},
        {"lora_alpha": float("inf")},
        {"lora_alpha": HUGE},
        {"lora_alpha": "4"},
        {"lora_alpha": True},
        {"alpha_pattern": [1]},
        {"alpha_pattern": {"query": "2"}},
        {"alpha_pattern": {"query": float("nan")}},
        {"peft_type": ["LORA"]},
        {"peft_type": "\x1b[2J"},
    ],
    ids=lambda changes: f"{changes!r:.40}",
)
def test_adapters(changes: dict[str, Any], tmp_path: Path) -> None:
    refusal("adapter", json.dumps(ADAPTER | changes).encode(), tmp_path)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('name = "mine"', "name = " + "[" * 5000),
        ('name = "mine"', "name = " + "9" * 5000),
        ('name = "mine"', "name = 0x" + "f" * 5000),
        ('name = "mine"', f"name = [{{a = {2**63}}}]"),
        ('name = "mine"', "name = " + "[{a = " * 40 + "1" + "}]" * 40),
        ('name = "mine"', "name" + ".a" * 200_000 + " = 1"),
        ('name = "mine"', "name" + '."\\""' * 100_000 + " = 1"),
        ('name = "mine"', "name = 1979-05-27T07:32:00Z"),
        ('name = "mine"', 'name = "a"\n"\\u001b[2J" = 1'),
        ("encoder.layer.{layer}.", "{layer}{layer}{layer}"),
        ("encoder.layer.{layer}.", "(((((((((.*)*)*)*)*)*)*)*)*"),
        ("attention.self.query.weight", "../../etc/passwd"),
        ("[[stacks]]", "[stacks]"),
        ("[[stacks]]", "#" * (4 * 2**20) + "\n[[stacks]]"),
    ],
    ids=lambda text: f"{text:.24}",
)
def test_maps(old: str, new: str, tmp_path: Path) -> None:
    refusal("map", MAP.replace(old.encode(), new.encode()), tmp_path)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('verb = "learn"', "verb = " + "[" * 5000),
        ('verb = "learn"', 'verb = "\\u001b[2J"'),
        ('verb = "learn"', 'verb = "os.system"'),
        ('verb = "learn"', 'verb = ["learn", {a = 1}]'),
        ("tokens = 2", f"tokens = {HUGE}"),
        ("tokens = 2", "tokens = nan"),
        ("noise = 0.1", "noise = 1979-05-27"),
        ("noise = 0.1", f"noise = {HUGE}"),
        ('"0.05:1:4"', '"0.05:1:100001"'),
        ('"0.05:1:4"', '"nan:inf:3"'),
        ('"0.05:1:4"', '"' + "9" * 5000 + ':1:4"'),
        ("seeds = 2", "seeds = 2.5"),
        ("seed = 7", "seed = -1"),
        ("time_limit = 60", "time_limit = nan"),
        ("[run]", "[run]\n__class__ = 1"),
        ("[grid]", "[grid]\n" + "\n".join(f"x{i} = [1, 2]" for i in range(50))),
    ],
    ids=lambda text: f"{text:.24}",
)
def test_studies(old: str, new: str, tmp_path: Path) -> None:
    refusal("study", STUDIES[0].replace(old.encode(), new.encode()), tmp_path)


def test_a_study_of_a_billion_repetitions(tmp_path: Path) -> None:
    text = STUDIES[2] + b"[run]\nseeds = 1000000000\n"
    assert "split the study" in refusal("study", text, tmp_path)
