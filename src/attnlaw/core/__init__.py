"""The ground floor: errors, settings, quantities, results, files and tables.

It imports no other room of attnlaw.
"""
