"""Limiting spectral laws: each has a support, atoms, a density, a Stieltjes transform and a sampler."""
