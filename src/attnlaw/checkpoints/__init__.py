"""Read trained checkpoints as the matrices of a Transformer.

`open` finds the files of a model, a format reads them as `Tensors`, and `assembly` compares their names with
the families and builds a `Model`. Its matrices are the leaves of the tree in `network`. `modules` reads an
`nn.Module` as `Tensors`, and `adapted` adds a LoRA adapter to a model.
"""
