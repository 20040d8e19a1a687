"""Students of the attention-indexed model, trained on data: one file per solver, the table in `train`."""
