"""Findings: problems of a checkpoint that a person can act on, such as NaN, copied layers or untrained heads.

Each `Detector` of the table `DETECTORS` looks at an audited model (a `Subject`) and reports findings.
"""
