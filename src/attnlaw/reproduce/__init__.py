"""Repeat the figures of papers: run the shipped studies, draw them, and compare with published numbers."""
