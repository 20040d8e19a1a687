"""A gate for checkpoints. It judges rows of numbers by rules, and it judges findings by their level.

    rule file --read_rules--> RuleFile --judge(rows, findings)--> Verdicts --> table | JSON | SARIF | ...

The result is one verdict with an exit status. The caller provides the rows: `check` passes those of an audit
and a diff, a monitor passes those of its steps.
"""
