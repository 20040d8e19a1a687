"""Vision Transformers: pre-norm encoders of image patches, by three namings."""

from attnlaw.models.families.family import Family, Stack

# The names in files that `transformers` writes.
VIT = Family(
    name="vit",
    model_types=("vit", "deit", "vit_mae"),
    stacks=(
        Stack(
            layer="encoder.layer.{layer}.",
            attention={
                "query": "attention.attention.query.weight",
                "key": "attention.attention.key.weight",
                "value": "attention.attention.value.weight",
                "output": "attention.output.dense.weight",
            },
            feed_forward=({"in": "intermediate.dense.weight", "out": "output.dense.weight"},),
        ),
    ),
    unembedding=("classifier.weight",),
    pre_norm=True,
)

# The names of its modules in memory since version 5.
VIT_MODULE = Family(
    name="vit",
    model_types=VIT.model_types,
    stacks=(
        Stack(
            layer="layers.{layer}.",
            attention={
                "query": "attention.q_proj.weight",
                "key": "attention.k_proj.weight",
                "value": "attention.v_proj.weight",
                "output": "attention.o_proj.weight",
            },
            feed_forward=({"in": "mlp.fc1.weight", "out": "mlp.fc2.weight"},),
        ),
    ),
    unembedding=("classifier.weight",),
    pre_norm=True,
)

# `timm` fuses query, key and value; its config.json has no number of heads.
VIT_TIMM = Family(
    name="timm",
    activation=(),
    stacks=(
        Stack(
            layer="blocks.{layer}.",
            attention={"query,key,value": "attn.qkv.weight", "output": "attn.proj.weight"},
            feed_forward=({"in": "mlp.fc1.weight", "out": "mlp.fc2.weight"},),
            heads="num_heads",
        ),
    ),
    unembedding=("head.weight",),
    pre_norm=True,
)
