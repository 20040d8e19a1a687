"""ALBERT: groups of layers, each applied many times."""

from attnlaw.models.families.family import Family, Stack

ALBERT = Family(
    name="albert",
    model_types=("albert",),
    default_activation="gelu_new",
    stacks=(
        Stack(
            layer="encoder.albert_layer_groups.{group}.albert_layers.{layer}.",
            attention={
                "query": "attention.query.weight",
                "key": "attention.key.weight",
                "value": "attention.value.weight",
                "output": "attention.dense.weight",
            },
            feed_forward=({"in": "ffn.weight", "out": "ffn_output.weight"},),
            depth=("num_hidden_groups", "inner_group_num"),
        ),
    ),
    embedding=("embeddings.word_embeddings.weight",),
    unembedding=("predictions.decoder.weight",),
)
