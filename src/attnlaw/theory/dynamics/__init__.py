"""The theory of how one attention head learns from samples that it sees once (arXiv 2609.03858)."""
