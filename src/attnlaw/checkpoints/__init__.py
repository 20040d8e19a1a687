"""Trained checkpoints: files to tensors (formats), tensors to heads and feed-forward matrices (families).

| to add | write | and name it in |
|---|---|---|
| a file format | a `Tensors` in `formats/` | the table `FORMATS` in `formats/__init__` |
| a model family | a table of names in `families/` (TOML) | nothing: every file there is found |
| a way of storing weights (scales, adapters) | a `Tensors` around another, like `scales` | `open_model` |

Data run one way: `open` -> a format's `Tensors` -> `assembly` with a family -> `Model`, its matrices the
leaves of the tree in `network`.
"""
