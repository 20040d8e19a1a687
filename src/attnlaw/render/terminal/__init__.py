"""The terminal: numbers, tables, progress, and the view of verbs that have no view of their own."""
