"""LLaMA and its relatives: rotary positions, grouped queries, a gated feed-forward (or many), pre-norm."""

from attnlaw.models.families.family import Family, Stack


def gated(block: str) -> dict[str, str]:
    """The names of a gated feed-forward block."""
    names = {"gate": "gate_proj", "in": "up_proj", "out": "down_proj"}
    return {role: f"{block}.{name}.weight" for role, name in names.items()}


# Alone in its layer, or the expert that every token passes beside a router's choice.
FEED_FORWARD = (gated("mlp"), gated("mlp.shared_expert"), gated("mlp.shared_experts"))
EXPERTS = (
    gated("mlp.experts.{expert}"),
    {"gate,in": "mlp.experts.gate_up_proj", "out": "mlp.experts.down_proj"},
    {
        "gate": "block_sparse_moe.experts.{expert}.w1.weight",
        "in": "block_sparse_moe.experts.{expert}.w3.weight",
        "out": "block_sparse_moe.experts.{expert}.w2.weight",
    },
)
ROUTERS = ("mlp.gate.weight", "mlp.shared_expert_gate.weight", "block_sparse_moe.gate.weight")

LLAMA = Family(
    name="llama",
    model_types=(
        "llama",
        "mistral",
        "mixtral",
        "qwen2",
        "qwen2_moe",
        "qwen3",
        "qwen3_moe",
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
            feed_forward=FEED_FORWARD,
            experts=EXPERTS,
            ignored=ROUTERS,
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
            feed_forward=({"gate,in": "mlp.gate_up_proj.weight", "out": "mlp.down_proj.weight"},),
        ),
    ),
    embedding=("embed_tokens.weight",),
    pre_norm=True,
    rotary=True,
)
