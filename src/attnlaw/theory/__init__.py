"""The mathematics of attnlaw, one subject in each folder: spectral laws, limits, learning, dynamics, bounds."""
