"""The ground floor: errors, settings, quantities, results, files, tables. It imports no other room."""
