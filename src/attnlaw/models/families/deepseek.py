"""DeepSeek-V2 and V3: latent attention, experts beside a shared one; the lite models have plain queries."""

from dataclasses import replace

from attnlaw.models.families.family import Family, Stack
from attnlaw.models.families.llama import EXPERTS, FEED_FORWARD, ROUTERS

_KEYS = {
    "latent,shared_key": "self_attn.kv_a_proj_with_mqa.weight",
    "key,value": "self_attn.kv_b_proj.weight",
    "output": "self_attn.o_proj.weight",
}
_LAYERS = Stack(
    layer="layers.{layer}.",
    attention={
        "query_latent": "self_attn.q_a_proj.weight",
        "query": "self_attn.q_b_proj.weight",
        **_KEYS,
    },
    feed_forward=FEED_FORWARD,
    experts=EXPERTS,
    ignored=ROUTERS,
)

DEEPSEEK = Family(
    name="deepseek",
    model_types=("deepseek_v2", "deepseek_v3"),
    default_activation="silu",
    stacks=(_LAYERS,),
    embedding=("embed_tokens.weight",),
    pre_norm=True,
    rotary=True,
)

DEEPSEEK_LITE = replace(
    DEEPSEEK, stacks=(replace(_LAYERS, attention={"query": "self_attn.q_proj.weight", **_KEYS}),)
)
