"""Show results as charts, as HTML pages and in the terminal."""
