"""The number that scores are multiplied by: 1/sqrt(d) unless the family or config.json says otherwise.

| in config.json | scores q . k times | of |
|---|---|---|
| nothing | d^(-1/2); 1 where the family's `scaled_scores` is false | all others; T5 |
| `attention_multiplier` a | a | Granite |
| `query_pre_attn_scalar` s | s^(-1/2) | Gemma 2 and 3 |
| `scale_attn_weights` false | 1 | GPT-2 |
| `scale_attn_by_inverse_layer_idx` true | besides, 1 / (layer + 1) | GPT-2 |
| `mscale_all_dim` m, `factor` f of yarn | besides, (m ln(f) / 10 + 1)^2 | DeepSeek |

Other keys (of muP, of unknown model types) are not followed, and headers of GGUF files are not asked.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import log

from attnlaw.models.config import Config
from attnlaw.models.families import Family
from attnlaw.models.model import Attention


def score_scale(config: Config, family: Family, attention: Attention, depth: int) -> float:
    """The factor of self-attention in the layer at `depth` of its stack."""
    scale = config.number("attention_multiplier")
    if scale is None:
        scaled = family.scaled_scores and config.values.get("scale_attn_weights") is not False
        size = config.number("query_pre_attn_scalar") or attention.head_size
        scale = size**-0.5 if scaled else 1.0
    if config.values.get("scale_attn_by_inverse_layer_idx") is True:
        scale /= depth + 1
    if attention.shared_key is not None:
        scale *= _yarn(config)
    return scale


def _yarn(config: Config) -> float:
    """What latent attention multiplies its scores by besides where its rotary positions are stretched."""
    for key in ("rope_parameters", "rope_scaling"):
        values = config.values.get(key)
        if isinstance(values, Mapping) and values.get("mscale_all_dim"):
            stretch = Config(values, f"{config.source}: {key}")
            weight, factor = stretch.number("mscale_all_dim"), stretch.number("factor")
            growth = 1 + (weight or 0.0) * log(max(factor or 1.0, 1.0)) / 10
            return growth * growth
    return 1.0
