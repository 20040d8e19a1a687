"""The terminal: numbers, tables and progress, and the view of any verb without one of its own."""
