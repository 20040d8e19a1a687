"""The options that only `attnlaw check` has: files for other tools, annotations for GitHub, explanations."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from attnlaw.core.errors import BadSetting
from attnlaw.core.result import Result
from attnlaw.core.settings import settings_dataclass
from attnlaw.render.output_options import Failure, OutputOptions, output_option

FILES = ("junit", "sarif", "markdown")


@settings_dataclass
class Options(OutputOptions):
    """Options for reports of the verdict. Several can be combined; none changes the exit status."""

    junit: str | None = output_option(
        None, "Write the results as a JUnit XML report, which CI systems show as tests.", metavar="FILE"
    )
    sarif: str | None = output_option(
        None, "Write the results as a SARIF 2.1.0 report, which code hosts show as alerts.", metavar="FILE"
    )
    markdown: str | None = output_option(
        None,
        "Write the results as a Markdown report, for example for a comment on a pull request.",
        metavar="FILE",
    )
    sarif_location: str | None = output_option(
        None,
        "With --sarif or --github: text file of your repository that the results are attached to, "
        "such as the rule file.",
        metavar="FILE",
    )
    github: bool = output_option(
        False,
        "Print the results as annotations of a GitHub workflow, and add them to the summary of its job.",
    )
    explain: str | None = output_option(
        None,
        "Explain a finding by its name: when attnlaw reports it, what it means and what to do (no "
        "MODEL needed).",
        metavar="RULE",
    )

    def check(self) -> None:
        super().check()
        for name in ("figure", "figures"):
            if getattr(self, name) is not None:
                raise BadSetting(
                    name, "check draws no figures; use attnlaw audit or attnlaw diff", getattr(self, name)
                )
        names = [name for name in (getattr(self, form) for form in FILES) if name is not None]
        for form in FILES:
            if getattr(self, form) == "":
                raise BadSetting(form, "expected the name of a file")
            if names.count(getattr(self, form)) > 1:
                raise BadSetting(
                    form,
                    "is also the file of another report; give each report its own file",
                    getattr(self, form),
                )

        if self.sarif_location is not None:
            if self.sarif is None and not self.github:
                raise BadSetting("sarif_location", "needs {sarif} or {github}")
            if not Path(self.sarif_location).is_file():
                raise BadSetting(
                    "sarif_location", "no such file; give a file of the repository", self.sarif_location
                )

    def short_circuit(self) -> int | None:
        if self.explain is None:
            return None
        from attnlaw.verbs.check.terminal import print_explanation

        print_explanation(self.explain, self.json)
        return 0

    def finish(self, result: Result, failures: Sequence[Failure] = ()) -> int:
        from attnlaw.analysis.check.locations import model_file
        from attnlaw.verbs.check import reports

        files = {} if self.sarif_location is None else {"location": self.sarif_location}
        verdicts = [replace(record, **files) for record in result.records]
        unread = [
            replace(reports.UnreadModel(case.title, model_file(case.model), str(error)), **files)
            for case, error in failures
        ]
        reports.write_reports(verdicts, {form: getattr(self, form) for form in FILES}, unread)
        if self.github:
            # The runner reads both outputs. With --json, standard output must hold JSON alone.
            stream = sys.stderr if self.json else sys.stdout
            lines = [line for model in verdicts for line in reports.github_annotations(model)]
            for line in (*lines, *map(reports.unread_annotation, unread)):
                stream.write(f"{line}\n")
            reports.add_to_summary(verdicts, unread)
        return max((model.status for model in verdicts), default=0)
