"""What training prefers among factors of the same product: balance, flatness, early stopping, completion."""
