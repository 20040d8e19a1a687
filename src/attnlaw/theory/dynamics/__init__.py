"""How one attention head learns in time, if every sample is seen once (arXiv 2609.03858)."""
