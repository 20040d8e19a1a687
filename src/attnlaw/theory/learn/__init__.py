"""The attention-indexed model: what an attention layer learns, theory beside simulation."""
