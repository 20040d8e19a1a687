"""OPT: pre-norm decoder (post-norm in the 350M model, which its config says)."""

from attnlaw.models.families.family import Family, Stack

OPT = Family(
    name="opt",
    model_types=("opt",),
    activation=("activation_function",),
    default_activation="relu",
    stacks=(
        Stack(
            layer="decoder.layers.{layer}.",
            attention={
                "query": "self_attn.q_proj.weight",
                "key": "self_attn.k_proj.weight",
                "value": "self_attn.v_proj.weight",
                "output": "self_attn.out_proj.weight",
            },
            feed_forward=({"in": "fc1.weight", "out": "fc2.weight"},),
            inner_size="ffn_dim",
        ),
    ),
    embedding=("decoder.embed_tokens.weight",),
    pre_norm=True,
)
