"""Figures: charts that a verb declares are drawn here from rows, for a page, a paper and a notebook."""
