"""Sizes of a fairseq checkpoint: arguments of its training, beside the weights in the same pickle.

`args` is an `argparse.Namespace`, or `cfg` a table whose `model` is one (or a table). Their names begin with
`encoder_` and `decoder_` (`encoder_attention_heads`); here each side is a table of its own without that.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from attnlaw.checkpoints.formats.tables import table_of

SIDES = ("encoder", "decoder")
FAIRSEQ, SOUND = "fairseq", "fairseq_wav2vec2"  # the values of `model_type` in the families' files


def fairseq_sizes(checkpoint: Mapping[str, Any]) -> dict[str, Any]:
    """The sizes under config.json's names; none where the arguments are not fairseq's.

    >>> from argparse import Namespace
    >>> told = Namespace(encoder_embed_dim=8, encoder_attention_heads=2, encoder_normalize_before=True)
    >>> fairseq_sizes({"args": told, "model": {}})["encoder"]
    {'embed_dim': 8, 'attention_heads': 2, 'normalize_before': True, 'norm_first': True}
    """
    arguments = _arguments(checkpoint)
    if not any(f"{side}_embed_dim" in arguments for side in SIDES):
        return {}
    sides = {side: _side(arguments, side) for side in SIDES}
    first = any(side["norm_first"] for side in sides.values())
    kind = SOUND if "conv_feature_layers" in arguments else FAIRSEQ
    plain = {key: value for key, value in arguments.items() if isinstance(value, str)}
    return {**plain, **sides, "norm_first": first, "model_type": kind}


def current_name(name: str) -> str:
    """The name that newer versions give to a tensor of an older one, as their own loader does.

    >>> current_name("decoder.sentence_encoder.emb_layer_norm.weight")
    'decoder.sentence_encoder.layernorm_embedding.weight'
    """
    return name.replace(".emb_layer_norm.", ".layernorm_embedding.")


def _arguments(checkpoint: Mapping[str, Any]) -> Mapping[str, Any]:
    """The model's arguments; those of the wav2vec model inside one that was fine-tuned."""
    arguments = table_of(checkpoint.get("args")) or table_of(table_of(checkpoint.get("cfg")).get("model"))
    inner = table_of(arguments.get("w2v_args"))
    return table_of(inner.get("model")) or inner or arguments


def _side(arguments: Mapping[str, Any], side: str) -> dict[str, Any]:
    sizes = {
        key.removeprefix(f"{side}_"): value for key, value in arguments.items() if key.startswith(f"{side}_")
    }
    both = {"activation_fn": arguments["activation_fn"]} if "activation_fn" in arguments else {}
    return {
        **sizes,
        **both,
        "norm_first": bool(sizes.get("normalize_before") or arguments.get("layer_norm_first")),
    }
