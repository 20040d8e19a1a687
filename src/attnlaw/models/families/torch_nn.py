"""`torch.nn.TransformerEncoder`, `TransformerDecoder`, `Transformer` and a bare `MultiheadAttention`."""

from dataclasses import replace

from attnlaw.models.families.family import Family, Stack

_LAYERS = Stack(
    layer="layers.{layer}.",
    attention={
        "query,key,value": "self_attn.in_proj_weight",
        "output": "self_attn.out_proj.weight",
    },
    cross={
        "query,key,value": "multihead_attn.in_proj_weight",
        "output": "multihead_attn.out_proj.weight",
    },
    feed_forward=({"in": "linear1.weight", "out": "linear2.weight"},),
)

TORCH_TRANSFORMER = Family(
    name="torch.nn.Transformer",
    activation=("activation",),
    default_activation="relu",
    separate_prefixes=True,
    stacks=(_LAYERS,),
    unembedding=(),
)

# `TransformerEncoderLayer` and `TransformerDecoderLayer` alone, or under names of the user's own.
TORCH_LAYER = replace(TORCH_TRANSFORMER, stacks=(replace(_LAYERS, layer="", depth=()),))

TORCH_ATTENTION = Family(
    name="torch.nn.MultiheadAttention",
    activation=(),
    default_activation="identity",
    separate_prefixes=True,
    stacks=(
        Stack(
            layer="",
            attention={"query,key,value": "in_proj_weight", "output": "out_proj.weight"},
            depth=(),
        ),
    ),
    unembedding=(),
)
