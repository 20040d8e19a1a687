"""The theory of how one attention head learns in time if it sees every sample once (arXiv 2609.03858)."""
