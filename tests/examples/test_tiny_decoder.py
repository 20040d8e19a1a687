"""The decoder that ships in examples/tiny-decoder: complete, trained, and honest about its loss."""

from __future__ import annotations

import json
import sysconfig
from pathlib import Path

import numpy as np
import pytest
from safetensors import safe_open

from attnlaw.training import decoder as corpus

pytestmark = pytest.mark.slow

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
MODEL = EXAMPLES / "tiny-decoder"
SAMPLE_WINDOWS = 64
CLEARLY = 0.5  # nats per byte, a fifth of the bigram loss

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")


@pytest.fixture(scope="module")
def record() -> dict:
    return json.loads((MODEL / "training.json").read_text())


@pytest.fixture(scope="module")
def loaded() -> tuple:
    return transformers.AutoModelForCausalLM.from_pretrained(
        MODEL, local_files_only=True, output_loading_info=True
    )


@pytest.fixture(scope="module")
def sample(record) -> np.ndarray:
    """Windows spread evenly over the held-out files of the running interpreter."""
    text = corpus.read_bytes(corpus.source_files(held_out=True))
    windows = corpus.windows(text, record["context"])
    return windows[np.linspace(0, len(windows) - 1, SAMPLE_WINDOWS, dtype=int)]


@pytest.fixture(scope="module")
def window_losses(loaded, sample) -> np.ndarray:
    """The decoder's loss in nats per byte on each window, from its logits in float64."""
    model, _ = loaded
    with torch.no_grad():
        logits = model(torch.from_numpy(sample[:, :-1].astype(np.int64))).logits.double().numpy()
    logits -= logits.max(axis=-1, keepdims=True)
    log_p = logits - np.log(np.exp(logits).sum(axis=-1, keepdims=True))
    return -np.take_along_axis(log_p, sample[:, 1:, None].astype(np.int64), axis=-1)[..., 0].mean(axis=1)


def standard_error(values: np.ndarray) -> float:
    return values.std(ddof=1) / np.sqrt(len(values))


def test_transformers_finds_every_tensor_and_no_other(loaded):
    model, info = loaded
    assert not info["missing_keys"]
    assert not info["unexpected_keys"]
    assert not info["mismatched_keys"]
    with safe_open(MODEL / "model.safetensors", framework="numpy") as stored:
        names = set(stored.keys())
    assert names == set(model.state_dict()) - {"lm_head.weight"}  # the unembedding is tied to wte
    assert isinstance(model, transformers.GPT2LMHeadModel)
    assert (model.config.n_layer, model.config.vocab_size) == (4, 256)


def test_model_is_small_enough_to_ship():
    assert 1e6 < (MODEL / "model.safetensors").stat().st_size < 4e6


def test_predicts_held_out_source_better_than_a_bigram_model(sample, window_losses):
    train = corpus.read_bytes(corpus.source_files(held_out=False))
    gain = corpus.bigram_losses(train, sample) - window_losses
    assert gain.mean() - 5 * standard_error(gain) > CLEARLY


def test_bigram_losses_equal_a_count_by_hand():
    train = np.frombuffer(b"abracadabra", dtype=np.uint8)
    windows = np.frombuffer(b"abcacb", dtype=np.uint8).reshape(2, 3)
    # Five a: two before b, one each before c and d, one last. Add-one: p(b|a) = 3/260, p(c|a) = 2/260;
    # p(c|b) = 1/258 (two b before r); p(b|c) = 1/257 (one c before a).
    by_hand = [-np.log(3 / 260 / 258) / 2, -np.log(2 / 260 / 257) / 2]
    np.testing.assert_allclose(corpus.bigram_losses(train, windows), by_hand, rtol=1e-14)


def test_recorded_loss_is_the_loss_of_the_shipped_weights(record, window_losses):
    # Other Python versions have other held-out bytes, far less different than one window from the next.
    assert abs(window_losses.mean() - record["held_out_loss"]) < 5 * standard_error(window_losses)


def test_training_record_is_consistent(record):
    steps = [row["step"] for row in record["loss_curve"]]
    assert steps == sorted(set(steps))
    assert steps[-1] == record["steps"]
    assert record["held_out_loss"] < record["bigram_held_out_loss"]
    assert record["loss_curve"][-1]["held_out_loss"] < record["loss_curve"][0]["held_out_loss"]
    assert record["corpus"]["description"] == corpus.DESCRIPTION
    length = record["context"]
    assert record["predicted_bytes"] == (record["corpus"]["held_out_bytes"] - 1) // length * length
    card = (MODEL / "README.md").read_text()
    assert f"{record['held_out_loss']:.3f} nats per byte" in card
    assert f"{record['bigram_held_out_loss']:.3f} on the same bytes" in card


def test_split_is_a_partition_of_library_source_only():
    train, held_out = (corpus.source_files(held_out=flag) for flag in (False, True))
    assert not set(train) & set(held_out)
    assert 0.02 < len(held_out) / len(train + held_out) < 0.1
    assert any(path.name == "functools.py" for path in held_out)
    assert any(path.name == "argparse.py" for path in train)
    library = Path(sysconfig.get_path("stdlib"))
    folders = {part for path in train + held_out for part in path.relative_to(library).parts}
    assert folders.isdisjoint({"test", "tests", "site-packages", "dist-packages"})
