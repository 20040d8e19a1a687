"""Post-norm encoders: BERT and its relatives, which differ in names only."""

from attnlaw.models.families.family import Family, Stack

_FEED_FORWARD = {"in": "intermediate.dense.weight", "out": "output.dense.weight"}
_EMBEDDING = ("embeddings.word_embeddings.weight",)

BERT = Family(
    name="bert",
    model_types=("bert", "roberta", "xlm-roberta", "camembert", "electra"),
    stacks=(
        Stack(
            layer="encoder.layer.{layer}.",
            attention={
                "query": "attention.self.query.weight",
                "key": "attention.self.key.weight",
                "value": "attention.self.value.weight",
                "output": "attention.output.dense.weight",
            },
            cross={
                "query": "crossattention.self.query.weight",
                "key": "crossattention.self.key.weight",
                "value": "crossattention.self.value.weight",
                "output": "crossattention.output.dense.weight",
            },
            feed_forward=(_FEED_FORWARD,),
        ),
    ),
    embedding=_EMBEDDING,
    unembedding=("cls.predictions.decoder.weight", "lm_head.decoder.weight"),
)

MPNET = Family(
    name="mpnet",
    model_types=("mpnet",),
    stacks=(
        Stack(
            layer="encoder.layer.{layer}.",
            attention={
                "query": "attention.attn.q.weight",
                "key": "attention.attn.k.weight",
                "value": "attention.attn.v.weight",
                "output": "attention.attn.o.weight",
            },
            feed_forward=(_FEED_FORWARD,),
        ),
    ),
    embedding=_EMBEDDING,
    unembedding=("lm_head.decoder.weight",),
)

DISTILBERT = Family(
    name="distilbert",
    model_types=("distilbert",),
    hidden_size="dim",
    activation=("activation",),
    stacks=(
        Stack(
            layer="transformer.layer.{layer}.",
            attention={
                "query": "attention.q_lin.weight",
                "key": "attention.k_lin.weight",
                "value": "attention.v_lin.weight",
                "output": "attention.out_lin.weight",
            },
            feed_forward=({"in": "ffn.lin1.weight", "out": "ffn.lin2.weight"},),
            heads="n_heads",
            depth=("n_layers",),
            inner_size="hidden_dim",
        ),
    ),
    embedding=_EMBEDDING,
    unembedding=("vocab_projector.weight",),
)
