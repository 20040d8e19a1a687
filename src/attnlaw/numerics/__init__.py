"""Numerical tools that have nothing to do with attention."""
