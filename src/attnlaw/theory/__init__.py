"""The mathematics of attnlaw, a folder for each subject: laws, limits, learning, dynamics, bounds."""
