"""Modules that every other part of attnlaw builds on: errors, settings, quantities, results, files and
tables.

This package imports no other package of attnlaw.
"""
