"""A gate for checkpoints: rules over rows, findings by level, a verdict, and an exit status.

    rule file --read_rules--> RuleFile --judge(rows, findings)--> Verdicts --> table | JSON | SARIF | ...

Where the rows come from is the caller's affair: `check` passes those of an audit and of a diff, a monitor
those of its steps.
"""
