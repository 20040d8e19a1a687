"""From names and shapes to a `Model`: match a family, split heads, check sizes, remark on what is special.

| file | idea |
|---|---|
| `match` | which family's names are there |
| `layers` | its layers in order, as a `Model` |
| `attention`, `feed_forward` | one block from its tensors |
| `scores` | what its scores are multiplied by |
| `shapes` | shapes held against the config and each other |
| `remarks` | extensions and warnings |
"""

from attnlaw.checkpoints.assembly.layers import build_model

__all__ = ["build_model"]
