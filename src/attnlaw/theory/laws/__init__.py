"""Limiting spectral laws. Each has a support, atoms, a density, a Stieltjes transform and a sampler."""
