"""Heads and activations of a trained sentence encoder on a shipped text (tests/published/entrywise)."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from real_checkpoints import real_checkpoint

from attnlaw.regression.effective_ranks import effective_ranks
from attnlaw.spectra.entrywise import entrywise_errors

TEXT = Path(__file__).parents[1] / "published" / "entrywise" / "text.txt"
RANKS = (1, 4, 16, 64)


@pytest.fixture(scope="module", name="seen")
def _seen():
    """What the encoder makes of the first 256 tokens."""
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    folder = real_checkpoint("minilm")
    tokens = transformers.AutoTokenizer.from_pretrained(folder)(
        TEXT.read_text(encoding="utf-8"), truncation=True, max_length=256, return_tensors="pt"
    )
    model = transformers.AutoModel.from_pretrained(folder, attn_implementation="eager")
    with torch.no_grad():
        return model(**tokens, output_attentions=True, output_hidden_states=True)


def test_the_worst_attention_weight(seen) -> None:
    """Medians over 72 heads, against those of another text within 30%: the rms hides the worst entry."""
    heads = [head for layer in seen.attentions for head in layer[0].double().numpy()]
    assert len(heads) == 72
    found = np.array(
        [
            [
                (one.largest / head.max(), one.rms / head.max(), one.coherence, one.largest / one.rms)
                for one in entrywise_errors(head, RANKS)
            ]
            for head in heads
        ]
    )
    largest, rms, coherence, understated = np.median(found, axis=0).T
    assert largest == pytest.approx([0.73, 0.38, 0.15, 0.031], rel=0.3)
    assert rms == pytest.approx([0.015, 0.0093, 0.0054, 0.0014], rel=0.3)
    assert coherence == pytest.approx([6.3, 4.7, 3.4, 2.3], rel=0.3)
    assert (understated > 14).all()
    assert (understated < 52).all()


def test_the_effective_ranks_of_activations(seen) -> None:
    """No tail is as long as the 256 tokens: fitting a label for each is not benign in any layer."""
    for layer in seen.hidden_states:
        X = layer[0].double().numpy()
        ranks = effective_ranks(np.linalg.svd(X - X.mean(0), compute_uv=False) ** 2)
        assert 8 < ranks.at(0)[0] < 23
        assert 30 < ranks.largest < 50
        assert ranks.split(20).k is not None
        assert ranks.split(256).k is None
