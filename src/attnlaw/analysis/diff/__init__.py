"""Two checkpoints compared: what changed, by how much, in which directions, and what that amounts to."""
