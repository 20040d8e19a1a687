"""The law of an attention layer at initialisation: at infinite width, and exactly at any finite width."""
