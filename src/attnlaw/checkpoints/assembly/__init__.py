"""Build a `Model` from the names and shapes of tensors, without reading weights."""
