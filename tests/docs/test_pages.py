"""Every command and snippet of the documentation runs, and prints what the page shows."""

from __future__ import annotations

import re
import sys
from importlib.metadata import version
from pathlib import Path

import pytest
from docs.sessions import PAGES, ROOT, Session, agree, attnlaw_here, blocks, commands, in_a_process
from real_checkpoints import Unavailable

from attnlaw.verbs import VERBS

pytestmark = pytest.mark.slow

RUN = ("console", "python", "toml")
CONSTRAINTS = (ROOT / "constraints.txt").read_text().split()
# An older rich may make a column one wider, and break lines elsewhere.
SAME_RICH = f"rich=={version('rich')}" in CONSTRAINTS


def name(page):
    return str(page.relative_to(ROOT))


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_a_page_runs_and_prints_what_it_shows(page, tmp_path):
    try:
        exchanges = Session(page, tmp_path).run()
    except Unavailable as error:
        pytest.skip(str(error))
    for done in exchanges:
        assert done.agrees or (not SAME_RICH and done.agrees_in_words), (
            f"{name(page)}:{done.first}: {done.source}\nprinted:\n{done.printed}\n"
            f"the page has:\n{done.expected}\n(write it anew with: python tests/docs/capture.py {name(page)})"
        )


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_a_block_that_is_not_run_says_why(page):
    for block in blocks(page.read_text(encoding="utf-8")):
        place = f"{name(page)}:{block.first}"
        marked = block.title.startswith("no-run") or block.title == "prints"
        assert not marked, f"{place}: readers see titles; tests/docs/sessions.py says what to write instead"
        if block.unrun:
            assert block.language in RUN, place
        elif block.language not in RUN:
            assert block.language not in ("sh", "bash", "shell", "py"), f"{place}: write console or python"
            assert not any(line.startswith(("$ ", "attnlaw ")) for line in block.lines), (
                f"{place}: a command that nobody runs; make it a console block"
            )


def listed_commands(*group):
    """Return the commands that the help of `attnlaw`, or of a group of commands, lists; none for a verb."""
    _, printed = attnlaw_here([*group, "--help"])
    if f"Usage: {' '.join(['attnlaw', *group])} COMMAND" not in printed:
        return []
    return re.findall(r"^  ([a-z][a-z-]*) {2,}[A-Z]", printed, re.MULTILINE)


def every_command():
    """Return all commands as one types them: `audit`, `study run`, ..."""
    groups = {name: listed_commands(name) for name in listed_commands()}
    return [f"{name} {part}".rstrip() for name, parts in groups.items() for part in parts or [""]]


def test_the_help_lists_verbs_and_groups_of_commands():
    listed = every_command()
    assert set(VERBS) < set(listed)
    assert {"report", "lab", "reproduce", "study run", "study export"} < set(listed)
    assert "study" not in listed


def test_every_command_is_shown_with_its_output():
    shown = [
        f"{command} "
        for page in PAGES
        for block in blocks(page.read_text(encoding="utf-8"))
        if block.language == "console" and not block.unrun
        for _, command, expected in commands(block)
        if expected and "--help" not in command
    ]
    for name in every_command():
        assert any(text.startswith(f"attnlaw {name} ") for text in shown), f"no page shows attnlaw {name}"


def test_the_installed_command_prints_the_same_as_the_one_run_here():
    arguments = ["learn", "--alpha", "0.2", "--noise", "0.5"]
    installed = [str(Path(sys.executable).with_name("attnlaw")), *arguments]
    assert in_a_process(installed) == attnlaw_here(arguments)


def test_expected_output_may_leave_out_what_varies():
    assert agree("took ... ms\nE 0.55", "took 12 ms  \nE 0.55\n")
    assert agree("first\n...\nlast", "first\na\nb\nlast")
    assert not agree("E 0.55", "E 0.56")
    assert not agree("first\nlast", "first\na\nlast")


def test_a_session_reports_a_wrong_output(tmp_path):
    page = tmp_path / "page.md"
    page.write_text("```python\nprint(1 + 1)\n```\n```text\n3\n```\n")
    folder = tmp_path / "work"
    folder.mkdir()
    (done,) = Session(page, folder).run()
    assert (done.expected, done.printed, done.agrees) == ("3", "2", False)


def test_a_block_below_a_reason_is_left_out(tmp_path):
    unrun = "<!-- no-run: takes hours -->\n```python\nraise SystemExit\n```\n\n"
    text = f"{unrun}```python\nx = 1\n```\n\n```text\nno output\n```\n"
    page = tmp_path / "page.md"
    page.write_text(text)
    (tmp_path / "work").mkdir()
    first, second, _ = blocks(text)
    assert (first.unrun, second.unrun) == ("takes hours", None)
    assert Session(page, tmp_path / "work").run() == []  # what stands further below is not its output
