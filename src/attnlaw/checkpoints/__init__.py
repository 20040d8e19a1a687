"""Read trained checkpoints as the matrices of a Transformer.

| to add | write | and name it in |
|---|---|---|
| a file format | a subclass of `Tensors` in `formats/` | `FORMATS` in `formats/__init__.py` |
| a model family | a table of tensor names, `families/NAME.toml` | nothing: attnlaw reads every file there |
| a quantization scheme | a file in `quantization/` | `CODES` in `quantization/__init__.py` |

`open` finds the files of a model, a format reads them as `Tensors`, and `assembly` compares their names with
the families and builds a `Model`. Its matrices are the leaves of the tree in `network`. `modules` reads an
`nn.Module` as `Tensors`, and `adapted` adds a LoRA adapter to a model.
"""
