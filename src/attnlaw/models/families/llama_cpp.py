"""llama.cpp's names, which GGUF files have whatever the model: `blk.0.attn_q.weight` and so on."""

from dataclasses import replace

from attnlaw.models.families.family import Family, Stack

_BLOCK = Stack(
    layer="blk.{layer}.",
    attention={
        "query": "attn_q.weight",
        "key": "attn_k.weight",
        "value": "attn_v.weight",
        "output": "attn_output.weight",
    },
    feed_forward=(
        {"gate": "ffn_gate.weight", "in": "ffn_up.weight", "out": "ffn_down.weight"},
        {"gate": "ffn_gate_shexp.weight", "in": "ffn_up_shexp.weight", "out": "ffn_down_shexp.weight"},
    ),
    experts=({"gate": "ffn_gate_exps.weight", "in": "ffn_up_exps.weight", "out": "ffn_down_exps.weight"},),
    ignored=("ffn_gate_inp.weight", "ffn_gate_inp_shexp.weight"),
    query_norm="attn_q_norm.weight",
)
_PLAIN = ({"in": "ffn_up.weight", "out": "ffn_down.weight"},)

LLAMA_CPP = Family(
    name="llama.cpp",
    model_types=("llama", "qwen2", "qwen3", "qwen2moe", "qwen3moe", "gemma", "gemma2", "gemma3"),
    default_activation="silu",
    stacks=(_BLOCK,),
    embedding=("token_embd.weight",),
    unembedding=("output.weight",),
    pre_norm=True,
    rotary=True,
)

LLAMA_CPP_GPT2 = replace(
    LLAMA_CPP,
    model_types=("gpt2",),
    default_activation="gelu",
    stacks=(
        replace(
            _BLOCK,
            attention={"query,key,value": "attn_qkv.weight", "output": "attn_output.weight"},
            feed_forward=_PLAIN,
            experts=(),
        ),
    ),
    rotary=False,
)

LLAMA_CPP_BERT = replace(
    LLAMA_CPP,
    model_types=("bert",),
    default_activation="gelu",
    stacks=(replace(_BLOCK, feed_forward=_PLAIN, experts=()),),
    pre_norm=False,
    rotary=False,
)
