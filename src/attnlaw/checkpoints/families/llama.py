"""LLaMA and its relatives: rotary positions, grouped queries, a gated feed-forward, pre-norm."""

from attnlaw.checkpoints.families.family import Family, Stack

LLAMA = Family(
    name="llama",
    model_types=(
        "llama",
        "mistral",
        "qwen2",
        "qwen3",
        "gemma",
        "gemma2",
        "gemma3",
        "gemma3_text",
    ),
    activation=("hidden_activation", "hidden_act"),
    default_activation="silu",
    stacks=(
        Stack(
            layer="layers.{layer}.",
            attention={
                "query": "self_attn.q_proj.weight",
                "key": "self_attn.k_proj.weight",
                "value": "self_attn.v_proj.weight",
                "output": "self_attn.o_proj.weight",
            },
            feed_forward={
                "gate": "mlp.gate_proj.weight",
                "in": "mlp.up_proj.weight",
                "out": "mlp.down_proj.weight",
            },
            query_norm="self_attn.q_norm.weight",
        ),
    ),
    embedding=("embed_tokens.weight",),
    pre_norm=True,
    rotary=True,
)

PHI3 = Family(
    name="phi3",
    model_types=("phi3",),
    activation=("hidden_act",),
    default_activation="silu",
    stacks=(
        Stack(
            layer="layers.{layer}.",
            attention={
                "query,key,value": "self_attn.qkv_proj.weight",
                "output": "self_attn.o_proj.weight",
            },
            feed_forward={"gate,in": "mlp.gate_up_proj.weight", "out": "mlp.down_proj.weight"},
        ),
    ),
    embedding=("embed_tokens.weight",),
    pre_norm=True,
    rotary=True,
)
