"""The page of a verb has the tables of its settings and quantities, read off its declaration."""

from __future__ import annotations

import importlib.util
import re

import pytest
from docs.sessions import ROOT

from attnlaw.core.settings import setting_fields
from attnlaw.verbs import STUDY_VERBS, VERBS, find_verb

DOCS = ROOT / "docs"
PAGES = {path: path.read_text(encoding="utf-8") for path in DOCS.rglob("*.md")}
EVERY = VERBS | STUDY_VERBS
VERBS_AND_BESIDE = [
    verb for name in EVERY for verb in (find_verb(name), find_verb(name).simulation) if verb is not None
]


@pytest.fixture(scope="module", name="hook")
def _hook():
    spec = importlib.util.spec_from_file_location("hook", DOCS / "hooks" / "verbs.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_a_mark_in_a_sentence_stays(hook):
    text = "write `<!-- settings of NAME -->` there"
    assert hook.on_page_markdown(text) == text


@pytest.mark.parametrize("verb", VERBS_AND_BESIDE, ids=lambda verb: verb.name)
def test_the_page_of_a_verb_tells_its_settings_and_quantities(verb, hook):
    mark = f"<!-- settings of {verb.name.partition('.')[0]} -->"
    page = hook.on_page_markdown(next(text for text in PAGES.values() if f"\n{mark}\n" in text))
    firsts = {name for line in page.splitlines() for name in re.findall(r"`(\w+)`", line.split(" | ")[0])}
    columns = {name for quantity in verb.quantities for name in quantity.columns}
    assert {*setting_fields(verb.settings), *columns} <= firsts
    for setting in setting_fields(verb.settings).values():
        assert setting.rule.help in page


@pytest.mark.parametrize("verb", VERBS_AND_BESIDE, ids=lambda verb: verb.name)
def test_the_columns_of_every_table_are_on_a_page(verb):
    marks = set(re.findall(r"^<!-- table (\w+) of [\w.]+ -->$", "\n".join(PAGES.values()), re.MULTILINE))
    assert {table.name for table in verb.tables} <= marks


def test_every_mark_stands_for_a_table(hook):
    for path, text in PAGES.items():
        # Marks that other hooks fill in, marks around the numbers of benchmarks, and marks for tests.
        written = re.sub(
            r"<!-- ((end of )?(measured|ranking|growth|glossary)\b|no-run: |symbols of |pictures of |"
            r"model types|keys of a family|exactness of codes|codes without support)",
            "",
            hook.on_page_markdown(text),
        )
        assert "\n<!-- " not in written, path


def test_what_a_table_of_settings_tells(hook):
    known = setting_fields(find_verb("limit").settings)
    width, seed = (hook.settings_table([known[name]]).splitlines()[-1] for name in ("width", "seed"))
    assert width == (
        "| `width` n | a number of at least 1 and of at most 1e+18, or inf, or several | "
        "`inf`; on the command line `16,64,256,1024,inf` | "
        "Width of the layer; inf is the infinite-width limit. |"
    )
    assert seed.startswith("| `seed` | a whole number of at least 0 | `0` |")
    jobs = setting_fields(find_verb("audit").settings)["jobs"]
    assert "Not available in a study." in hook.settings_table([jobs])
