"""Implicit bias: which factors training prefers. Balance, flatness, early stopping and matrix completion."""
