"""Where the verdicts of `attnlaw check` go beside the table: files for other tools, GitHub."""

from __future__ import annotations

import sys
from pathlib import Path

from attnlaw.core.errors import BadSetting
from attnlaw.core.result import Result
from attnlaw.core.settings import setting, settings_dataclass
from attnlaw.render.output_options import OUTPUT, OutputOptions

FILES = ("junit", "sarif", "markdown")
EXPLAINED = ("name", "level", "threshold", "when", "meaning", "remedy")


@settings_dataclass
class Options(OutputOptions):
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

    def short_circuit(self) -> int | None:
        if self.explain is None:
            return None
        from attnlaw.analysis.check.rules import nearest
        from attnlaw.analysis.findings import RULES

        if self.explain not in RULES:
            raise BadSetting("explain", f"no such rule; {nearest(self.explain, RULES)}", self.explain)
        from attnlaw.render.terminal.console import output, print_json
        from attnlaw.verbs.check.terminal import explain

        rule = RULES[self.explain]
        if self.json:
            print_json({name: getattr(rule, name) for name in EXPLAINED})
        else:
            explain(rule, output)
        return 0

    def finish(self, result: Result) -> int:
        from attnlaw.analysis.check.reports import add_to_summary, commands, junit, markdown, sarif
        from attnlaw.core.files import write_all
        from attnlaw.render.terminal.console import print_message

        models = result.records
        writers = {"junit": junit, "sarif": sarif, "markdown": markdown}
        asked = {form: getattr(self, form) for form in FILES if getattr(self, form) is not None}
        write_all({Path(path): writers[form](models).encode() for form, path in asked.items()})
        for path in asked.values():
            print_message(f"wrote {path}")
        if self.github:
            # The runner reads both outputs; with --json one of them carries JSON alone.
            stream = sys.stderr if self.json else sys.stdout
            for line in (line for model in models for line in commands(model)):
                stream.write(f"{line}\n")
            add_to_summary(models)
        return int(result.rows["exit_status"].max())  # type: ignore[arg-type]
