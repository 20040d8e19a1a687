"""HTML pages: one self-contained file made of a result's rows and tables."""
