"""Analysis of trained models: audits, fitted laws, differences between checkpoints, findings, and gates."""
