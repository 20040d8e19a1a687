"""Charts and pages, drawn from rows only."""
