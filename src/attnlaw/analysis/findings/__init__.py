"""Findings: what a person can act on in a checkpoint, such as NaN, copied layers or untrained heads.

Each `Detector` of the table `DETECTORS` looks at an audited model (a `Subject`) and reports findings.
"""
