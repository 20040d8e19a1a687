"""The mathematics, one subject a folder: laws of spectra, limits, learning, dynamics, bounds."""
