"""The ground floor: errors, estimates, declarations, files and tables. It imports nothing of attnlaw."""
