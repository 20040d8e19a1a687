"""What is measured on trained models: spectra become audits, fits, differences, findings, verdicts."""
