"""Which factors training prefers: balance, flatness, early stopping and matrix completion."""
