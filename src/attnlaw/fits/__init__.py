"""Laws fitted to measured spectra: which law, with which parameters, and how far it can be trusted."""
