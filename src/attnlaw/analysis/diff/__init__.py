"""Comparison of two checkpoints: what changed, by how much, in which directions, and what that means."""
