"""Reproduce the figures of papers with the studies that come with attnlaw, and compare published numbers."""
