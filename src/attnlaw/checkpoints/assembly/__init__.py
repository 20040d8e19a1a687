"""Build a `Model` from the names and shapes of tensors, without reading weights.

| file | content |
|---|---|
| `match` | finds the family whose tensor names a checkpoint has |
| `layers` | builds the layers in order, and the `Model` |
| `attention`, `feed_forward` | build one block from its tensors |
| `norms` | finds the norm that each block reads |
| `scores` | finds how scores are scaled and positions applied |
| `shapes` | compares shapes with the config and with each other |
| `unread` | rejects tensors that belong to a weight and that nothing reads |
| `remarks` | lists extensions and warnings |
"""
