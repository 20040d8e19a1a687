"""Trained checkpoints: files to tensors (formats), tensors to heads and feed-forward matrices (families).

| to add | write | and name it in |
|---|---|---|
| a file format | a `Tensors` in `formats/` | the table `FORMATS` in `open` |
| a model family | a table of names in `families/` (Python or TOML) | `families/__init__` |
| a way of storing weights (scales, adapters) | a `Tensors` around another, like `scales` | `open_model` |

Data run one way: `open` -> a format's `Tensors` -> `assembly` with a family -> `Model`, its matrices the
leaves of the tree in `network`.
"""
