"""Numerical tools that know nothing of attention."""
