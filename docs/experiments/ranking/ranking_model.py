"""The small Transformer of the ranking study: pre-norm, head width 16, feed-forward 2N with GELU.

Biases are in the feed-forward's first map and in the head only; norms have a gain and no shift. Dropout is on
what block 0 reads and on both residual branches, none on attention. A classifier's head reads the mean over
tokens after the last norm, a causal model's head every token.
"""

from __future__ import annotations

from math import sqrt

import torch
from ranking_tasks import FAMILIES, SYMBOLS, Run
from torch import Tensor, nn
from torch.nn.functional import gelu

HEAD_SIZE = 16


class Block(nn.Module):
    def __init__(self, width: int, dropout: float, causal: bool) -> None:
        super().__init__()
        self.num_heads, self.causal = width // HEAD_SIZE, causal
        self.attention_norm = nn.LayerNorm(width, bias=False)
        self.query, self.key, self.value, self.output = (nn.Linear(width, width, bias=False) for _ in "qkvo")
        self.ffn_norm = nn.LayerNorm(width, bias=False)
        self.ffn_in = nn.Linear(width, 2 * width)
        self.ffn_out = nn.Linear(2 * width, width, bias=False)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.dropout(self.attention(self.attention_norm(x)))
        return x + self.dropout(self.ffn_out(gelu(self.ffn_in(self.ffn_norm(x)))))

    def attention(self, x: Tensor) -> Tensor:
        split = [part(x).unflatten(2, (self.num_heads, -1)) for part in (self.query, self.key, self.value)]
        q, k, v = (part.transpose(1, 2) for part in split)
        scores = q @ k.transpose(-1, -2) / sqrt(HEAD_SIZE)
        if self.causal:
            later = torch.ones(x.shape[1], x.shape[1], dtype=torch.bool).triu(1)
            scores = scores.masked_fill(later, float("-inf"))
        return self.output((scores.softmax(dim=-1) @ v).transpose(1, 2).flatten(2))


class Transformer(nn.Module):
    """Logits (B x K) from floats B x T x 8 or ids B x T; of a causal model B x T x K."""

    def __init__(self, run: Run) -> None:
        super().__init__()
        family, width = FAMILIES[run.family], run.width
        self.causal = family.causal
        self.embedding = EMBEDDINGS[run.family](width)
        self.positions = nn.Parameter(torch.empty(family.tokens, width))
        self.dropout = nn.Dropout(run.dropout)
        self.blocks = nn.ModuleList(Block(width, run.dropout, family.causal) for _ in range(run.depth))
        self.norm = nn.LayerNorm(width, bias=False)
        self.head = nn.Linear(width, family.classes)

    def forward(self, x: Tensor) -> Tensor:
        x = self.dropout(self.embedding(x) + self.positions)
        for block in self.blocks:
            x = block(x)
        x = self.norm(x)
        return self.head(x if self.causal else x.mean(dim=1))


EMBEDDINGS = {
    "digits": lambda width: nn.Linear(8, width, bias=False),
    "mod": lambda width: nn.Embedding(FAMILIES["mod"].classes, width),
    "bytes": lambda width: nn.Embedding(SYMBOLS, width),
    "causal": lambda width: nn.Embedding(SYMBOLS, width),
}


@torch.no_grad()
def new_model(run: Run) -> Transformer:
    """A model at its start; it draws from torch's global generator.

    Normal weights of variance 1 / inputs, the head's deviation times .3, positions .3, embeddings of ids .5,
    biases 0. The linear maps of a causal model keep torch's own start.
    """
    model = Transformer(run)
    model.positions.normal_(std=0.3)
    if isinstance(model.embedding, nn.Embedding):
        model.embedding.weight.normal_(std=0.5)
    if not model.causal:
        for part in model.modules():
            if isinstance(part, nn.Linear):
                scale = 0.3 if part is model.head else 1.0
                part.weight.normal_(std=scale / sqrt(part.in_features))
                if part.bias is not None:
                    part.bias.zero_()
    return model
