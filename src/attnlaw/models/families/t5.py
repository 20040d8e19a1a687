"""T5: pre-norm encoder and decoder, no 1/sqrt(d), position biases on the scores; plain or gated."""

from attnlaw.models.families.family import Family, Stack


def _attention(block: str) -> dict[str, str]:
    names = {"query": "q", "key": "k", "value": "v", "output": "o"}
    return {role: f"{block}.{name}.weight" for role, name in names.items()}


def _feed_forward(place: int) -> tuple[dict[str, str], ...]:
    block = f"layer.{place}.DenseReluDense"
    gated = {"gate": f"{block}.wi_0.weight", "in": f"{block}.wi_1.weight", "out": f"{block}.wo.weight"}
    return {"in": f"{block}.wi.weight", "out": f"{block}.wo.weight"}, gated


T5 = Family(
    name="t5",
    model_types=("t5", "mt5", "umt5"),
    hidden_size="d_model",
    activation=("dense_act_fn", "feed_forward_proj"),
    default_activation="relu",
    stacks=(
        Stack(
            name="encoder",
            layer="encoder.block.{layer}.",
            attention=_attention("layer.0.SelfAttention"),
            feed_forward=_feed_forward(1),
            ignored=("layer.0.SelfAttention.relative_attention_bias.weight",),
            heads="num_heads",
            depth=("num_layers",),
            inner_size="d_ff",
        ),
        Stack(
            name="decoder",
            layer="decoder.block.{layer}.",
            attention=_attention("layer.0.SelfAttention"),
            cross=_attention("layer.1.EncDecAttention"),
            feed_forward=_feed_forward(2),
            ignored=("layer.0.SelfAttention.relative_attention_bias.weight",),
            heads="num_heads",
            depth=("num_decoder_layers",),
            inner_size="d_ff",
        ),
    ),
    embedding=("shared.weight",),
    pre_norm=True,
    scaled_scores=False,
)
