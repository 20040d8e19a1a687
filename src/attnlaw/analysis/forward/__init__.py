"""Everything that needs a forward pass: the lens on one input, and margins of many inputs without labels."""
