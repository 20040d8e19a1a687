"""Whisper, by Hugging Face's and by OpenAI's names: pre-norm encoder and decoder with cross attention."""

from attnlaw.models.families.family import Family, Stack


def _attention(block: str, query: str, key: str, value: str, output: str) -> dict[str, str]:
    names = {"query": query, "key": key, "value": value, "output": output}
    return {role: f"{block}.{name}.weight" for role, name in names.items()}


_HF = ("q_proj", "k_proj", "v_proj", "out_proj")
_OPENAI = ("query", "key", "value", "out")

WHISPER = Family(
    name="whisper",
    model_types=("whisper",),
    hidden_size="d_model",
    activation=("activation_function",),
    stacks=(
        Stack(
            name="encoder",
            layer="encoder.layers.{layer}.",
            attention=_attention("self_attn", *_HF),
            feed_forward=({"in": "fc1.weight", "out": "fc2.weight"},),
            heads="encoder_attention_heads",
            depth=("encoder_layers",),
            inner_size="encoder_ffn_dim",
        ),
        Stack(
            name="decoder",
            layer="decoder.layers.{layer}.",
            attention=_attention("self_attn", *_HF),
            cross=_attention("encoder_attn", *_HF),
            feed_forward=({"in": "fc1.weight", "out": "fc2.weight"},),
            heads="decoder_attention_heads",
            depth=("decoder_layers",),
            inner_size="decoder_ffn_dim",
        ),
    ),
    embedding=("decoder.embed_tokens.weight",),
    unembedding=("proj_out.weight",),
    pre_norm=True,
)

WHISPER_OPENAI = Family(
    name="whisper",
    hidden_size="n_text_state",
    activation=(),
    default_head_size=64,  # in every model OpenAI published
    stacks=(
        Stack(
            name="encoder",
            layer="encoder.blocks.{layer}.",
            attention=_attention("attn", *_OPENAI),
            feed_forward=({"in": "mlp.0.weight", "out": "mlp.2.weight"},),
            heads="n_audio_head",
            depth=("n_audio_layer",),
        ),
        Stack(
            name="decoder",
            layer="decoder.blocks.{layer}.",
            attention=_attention("attn", *_OPENAI),
            cross=_attention("cross_attn", *_OPENAI),
            feed_forward=({"in": "mlp.0.weight", "out": "mlp.2.weight"},),
            heads="n_text_head",
            depth=("n_text_layer",),
        ),
    ),
    embedding=("decoder.token_embedding.weight",),
    unembedding=(),
    pre_norm=True,
)
