"""Where the verdicts of `attnlaw check` go beside the table: files for other tools, GitHub."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from attnlaw.base.errors import BadSetting
from attnlaw.base.settings import setting, settings
from attnlaw.command.perform import OUTPUT, Shown

FILES = ("junit", "sarif", "markdown")
EXPLAINED = ("name", "level", "threshold", "when", "meaning", "remedy")


@settings
class CheckShown(Shown):
    """How verdicts are shown: all forms at once, and none changes the exit status."""

    junit: str | None = setting(None, "Write JUnit XML.", metavar="FILE", panel=OUTPUT)
    sarif: str | None = setting(None, "Write SARIF 2.1.0.", metavar="FILE", panel=OUTPUT)
    markdown: str | None = setting(None, "Write Markdown.", metavar="FILE", panel=OUTPUT)
    github: bool = setting(False, "Annotations of a GitHub workflow, and its job's summary.", panel=OUTPUT)
    explain: str | None = setting(
        None, "Say what a finding means; needs no MODEL.", metavar="RULE", panel=OUTPUT
    )

    def check(self) -> None:
        super().check()
        for name in ("figure", "figures"):
            if getattr(self, name) is not None:
                raise BadSetting(
                    name, "a gate has nothing to draw; attnlaw audit and diff have", getattr(self, name)
                )
        names = [name for name in (getattr(self, form) for form in FILES) if name is not None]
        for form in FILES:
            if getattr(self, form) == "":
                raise BadSetting(form, "found an empty name; give a file")
            if names.count(getattr(self, form)) > 1:
                raise BadSetting(form, "is the file of another form; give one for each", getattr(self, form))

    def instead(self) -> int | None:
        if self.explain is None:
            return None
        from attnlaw.auditing.findings import RULES
        from attnlaw.gating.condition import nearest

        if self.explain not in RULES:
            raise BadSetting("explain", f"no such rule; {nearest(self.explain, RULES)}", self.explain)
        from attnlaw.command.check_table import explain
        from attnlaw.command.console import output, print_json

        rule = RULES[self.explain]
        if self.json:
            print_json({name: getattr(rule, name) for name in EXPLAINED})
        else:
            explain(rule, output)
        return 0

    def finish(self, results: Sequence[Any]) -> int:
        from attnlaw.base.files import replace_all
        from attnlaw.command.console import say
        from attnlaw.gating.github import add_to_summary, commands
        from attnlaw.gating.junit import junit
        from attnlaw.gating.markdown import markdown
        from attnlaw.gating.sarif import sarif

        if not results:
            return 0
        writers = {"junit": junit, "sarif": sarif, "markdown": markdown}
        asked = {form: getattr(self, form) for form in FILES if getattr(self, form) is not None}
        replace_all({Path(path): writers[form](results).encode() for form, path in asked.items()})
        for path in asked.values():
            say(f"wrote {path}")
        if self.github:
            # The runner reads both outputs; with --json one of them carries JSON alone.
            stream = sys.stderr if self.json else sys.stdout
            for line in (line for one in results for line in commands(one)):
                stream.write(f"{line}\n")
            add_to_summary(results)
        return max(int(one.status) for one in results)
