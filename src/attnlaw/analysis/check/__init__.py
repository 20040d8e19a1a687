"""A gate for checkpoints: rules over rows of numbers, findings by level, one verdict and an exit status.

    rule file --read_rules--> RuleFile --judge(rows, findings)--> Verdicts --> table | JSON | SARIF | ...

The caller provides the rows: `check` passes those of an audit and a diff, a monitor those of its steps.
"""
