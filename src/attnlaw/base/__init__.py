"""Rows: the only thing that reports, files and studies exchange."""
