"""How a head learns in time: one pass over fresh samples (arXiv 2609.03858)."""
