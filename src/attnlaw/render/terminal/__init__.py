"""Print numbers, tables and progress in the terminal, and results of verbs without a special view."""
