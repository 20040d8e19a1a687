"""The options that only `attnlaw check` has: files for other tools, annotations for GitHub, explanations."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from attnlaw.core.errors import BadSetting
from attnlaw.core.result import Result
from attnlaw.core.settings import settings_dataclass
from attnlaw.render.output_options import OutputOptions, output_option

if TYPE_CHECKING:
    from attnlaw.verbs.check.reports import CheckVerdicts

FILES = ("junit", "sarif", "markdown")


@settings_dataclass
class Options(OutputOptions):
    """Options for the output of verdicts. They can be combined. None of them changes the exit status."""

    junit: str | None = output_option(None, "Write JUnit XML.", metavar="FILE")
    sarif: str | None = output_option(None, "Write SARIF 2.1.0.", metavar="FILE")
    markdown: str | None = output_option(None, "Write Markdown.", metavar="FILE")
    github: bool = output_option(False, "Annotations of a GitHub workflow, and its job's summary.")
    explain: str | None = output_option(None, "Say what a finding means; needs no MODEL.", metavar="RULE")

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
        from attnlaw.verbs.check.terminal import print_explanation

        print_explanation(self.explain, self.json)
        return 0

    def finish(self, result: Result) -> int:
        from attnlaw.verbs.check.reports import add_to_summary, github_annotations, write_reports

        verdicts: Sequence[CheckVerdicts] = result.records
        write_reports(verdicts, {form: getattr(self, form) for form in FILES})
        if self.github:
            # The runner reads both outputs. With --json, standard output must hold JSON alone.
            stream = sys.stderr if self.json else sys.stdout
            for line in (line for model in verdicts for line in github_annotations(model)):
                stream.write(f"{line}\n")
            add_to_summary(verdicts)
        return int(result.rows["exit_status"].max())  # type: ignore[arg-type]
