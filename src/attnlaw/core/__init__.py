"""Errors, settings, quantities, results, files and tables, on which all other packages of attnlaw build.

This package imports no other package of attnlaw.
"""
