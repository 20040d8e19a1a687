"""Repeat the figures of papers with the shipped studies, and compare them with published numbers."""
