"""The page from papers to options: every letter of a verb is there, and no equation of a lost name."""

from __future__ import annotations

import importlib.util
import re

import pytest
from docs.sessions import ROOT

from attnlaw.core.settings import setting_fields
from attnlaw.verbs import find_verb

PAGE = (ROOT / "docs" / "theory" / "papers.md").read_text(encoding="utf-8")


@pytest.fixture(scope="module", name="hook")
def _hook():
    spec = importlib.util.spec_from_file_location("symbols", ROOT / "docs" / "hooks" / "symbols.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_verbs_of_papers_have_tables_of_their_letters():
    assert {"learn", "dynamics", "limit"} <= set(re.findall(r"<!-- symbols of (\w+) -->", PAGE))


def test_equations_are_of_settings_and_quantities_that_there_are(hook):
    for name, equations in hook.EQUATIONS.items():
        verb = find_verb(name)
        known = {*setting_fields(verb.settings), *(quantity.name for quantity in verb.quantities)}
        assert set(equations) <= known, name


def test_a_line_tells_letter_equation_option_and_column(hook):
    alpha, *_ = (line for line in hook.symbols_table("learn").splitlines() if "`alpha`" in line)
    assert alpha.startswith(r"| α | $\alpha = n / d^2$ | `--alpha` | `alpha` | ")
    assert "| key `ridge` of a study | `ridge` |" in hook.symbols_table("shift")
