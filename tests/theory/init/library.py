"""Models of `transformers` at its own initialisers, and what they make of tokens."""

from __future__ import annotations

from typing import Any

import numpy as np
from checkpoints.forward_pass import require_transformers
from theory.init.two_samples import statistics

from attnlaw.theory.init.tokens import Tokens


def config(values: dict[str, Any]) -> Any:
    require_transformers("5.22", "initialisers of this version")
    from transformers import AutoConfig

    return AutoConfig.for_model(**values)


def drawn(values: dict[str, Any], seed: int) -> Any:
    import torch
    from transformers import AutoModelForCausalLM, AutoModelForMaskedLM

    kind = AutoModelForMaskedLM if values["model_type"] == "bert" else AutoModelForCausalLM
    torch.manual_seed(seed)
    eager = {"attn_implementation": "eager", "experts_implementation": "eager"}
    return kind.from_config(config(values), **eager).eval()


def words(tokens: Tokens) -> dict[str, Any]:
    """Tokens as a model of `transformers` is given them."""
    import torch

    given = {"input_ids": torch.tensor([tokens.ids])}
    given["attention_mask"] = torch.tensor([[1] * tokens.seen + [0] * tokens.padded])
    return given | ({"token_type_ids": torch.tensor([tokens.segments])} if tokens.segments else {})


def real_statistics(values: dict[str, Any], tokens: Tokens, draws: int, seed: int) -> dict[str, Any]:
    """Statistics of as many freshly initialised models; hidden states up to the last layer but one.

    The last hidden state of most models stands behind the final norm.
    """
    import torch

    causal = values["model_type"] != "bert"
    places, targets = tokens.targets(causal)
    given = words(tokens)
    grams, weights, token_logits, loss = [], [], [], []
    for draw in range(draws):
        model = drawn(values, seed + draw)
        with torch.no_grad():
            out = model(**given, output_hidden_states=True, output_attentions=True)
        states = [state[0].double().numpy() for state in out.hidden_states[:-1]]
        grams.append([state @ state.T / state.shape[1] for state in states])
        weights.append([a[0].double().numpy() for a in out.attentions])
        logits = out.logits[0].double()
        token_logits.append(logits[:, list(tokens.distinct)].numpy())
        loss.append(-float(logits.log_softmax(-1)[places, targets].mean()))
    stacked = [np.stack(part) for part in zip(*grams, strict=True)]
    return statistics(
        stacked,
        [np.stack(part) for part in zip(*weights, strict=True)],
        np.stack(token_logits),
        np.array(loss),
        tokens,
    )
