"""HTML pages: one self-contained file made from a result's rows and tables."""
