"""For training loops in PyTorch: penalties that move the tail of a spectrum."""
