"""Draw the charts of a verb from the rows of its results, for a page, a paper or a notebook."""
