"""GPT-2, weights stored (in, out), and nanoGPT: pre-norm decoders, query, key and value fused."""

from dataclasses import replace

from attnlaw.models.families.family import Family, Stack

GPT2 = Family(
    name="gpt2",
    model_types=("gpt2",),
    stored_out_in=False,
    hidden_size="n_embd",
    activation=("activation_function",),
    default_activation="gelu_new",
    stacks=(
        Stack(
            layer="h.{layer}.",
            attention={"query,key,value": "attn.c_attn.weight", "output": "attn.c_proj.weight"},
            cross={
                "query": "crossattention.q_attn.weight",
                "key,value": "crossattention.c_attn.weight",
                "output": "crossattention.c_proj.weight",
            },
            feed_forward=({"in": "mlp.c_fc.weight", "out": "mlp.c_proj.weight"},),
            heads="n_head",
            depth=("n_layer",),
            inner_size="n_inner",
        ),
    ),
    embedding=("wte.weight",),
    pre_norm=True,
)

# nanoGPT keeps the names and stores plain linear layers: told apart by their shapes.
NANOGPT = replace(GPT2, name="nanogpt", model_types=(), stored_out_in=True, default_activation="gelu")
