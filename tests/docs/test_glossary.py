"""The glossary's words are defined once, and pages link their first use."""

import importlib.util
from types import SimpleNamespace

import pytest
from docs.sessions import ROOT


@pytest.fixture(scope="module")
def glossary():
    path = ROOT / "docs" / "hooks" / "glossary.py"
    spec = importlib.util.spec_from_file_location("glossary", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def linked(glossary, content, uri="commands/audit.md"):
    return glossary.on_page_content(content, page=SimpleNamespace(file=SimpleNamespace(src_uri=uri)))


def test_every_form_of_a_word_belongs_to_one_entry(glossary):
    forms = [form.lower() for entry in glossary.terms() for form in (entry["word"], *entry.get("also", ()))]
    assert len(forms) == len(set(forms))


def test_every_meaning_is_a_sentence(glossary):
    assert [entry["word"] for entry in glossary.terms() if not entry["meaning"].endswith(".")] == []


def test_the_first_use_has_a_tooltip_and_later_ones_have_none(glossary):
    shown = linked(glossary, "<p>Stable ranks are small. A stable rank of 2 &amp; more.</p>")
    assert shown.count('class="term"') == 1
    assert shown.startswith('<p><a class="term" href="../concepts/glossary.html#stable-rank" title="How many')
    assert shown.endswith("A stable rank of 2 &amp; more.</p>")


@pytest.mark.parametrize(
    "content",
    [
        "<h2>Stable rank</h2>",
        '<p><a href="x.html">the <em>stable rank</em></a></p>',
        "<pre><code>stable rank</code></pre>",
        '<span class="filename">gate.toml</span>',
        "<p>The qk of it, in snake_case: stable_rank.</p>",
    ],
)
def test_headings_links_and_code_stay_as_they_are(glossary, content):
    assert linked(glossary, content) == content


def test_an_ordinary_word_is_a_term_only_where_it_has_its_meaning(glossary):
    text = "<p>A student learns.</p>"
    assert linked(glossary, text, "index.md") == text
    assert 'class="term"' in linked(glossary, text, "commands/learn.md")


def test_an_ordinary_word_is_no_term_next_to_words_that_change_its_meaning(glossary):
    text = "<p>It never runs code. See code scanning.</p>"
    assert linked(glossary, text, "how-to/quantised.md") == text
    assert 'class="term"' in linked(glossary, "<p>The code has 4 bits.</p>", "how-to/quantised.md")
    assert 'class="term"' not in linked(glossary, "<p>It has two of three cases.</p>", "commands/lens.md")


def test_the_page_of_the_glossary_has_every_word(glossary):
    page = glossary.on_page_markdown("<!-- glossary -->")
    assert page.count("<dt ") == len(glossary.terms())
    assert linked(glossary, "<p>stable rank</p>", glossary.PAGE) == "<p>stable rank</p>"
