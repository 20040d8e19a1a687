"""Sharp asymptotics of regression: ridge and kernel ridge, interpolation, covariate shift, ensembles."""
