"""Equations of a page become MathML while the site is built; what is not understood is told."""

from __future__ import annotations

import importlib.util
import re
from types import SimpleNamespace

import markdown
import pytest
from docs.sessions import ROOT
from mkdocs.exceptions import PluginError

PAGE = SimpleNamespace(file=SimpleNamespace(src_uri="page.md"))


@pytest.fixture(scope="module", name="hook")
def _hook():
    spec = importlib.util.spec_from_file_location("equations", ROOT / "docs" / "hooks" / "equations.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def page(hook, text):
    """The page as mkdocs.yml has it read."""
    arithmatex = {"generic": True, "inline_syntax": ["dollar"], "block_syntax": ["dollar"]}
    extensions = ["tables", "pymdownx.superfences", "pymdownx.arithmatex"]
    html = markdown.markdown(
        text, extensions=extensions, extension_configs={"pymdownx.arithmatex": arithmatex}
    )
    return hook.on_page_content(html, page=PAGE)


def test_equations_in_a_line_and_of_their_own(hook):
    html = page(hook, "With $a < b$:\n\n$$\nE = \\frac{1}{d} \\lVert S - S_0 \\rVert_F^2\n$$\n")
    inline, block = re.findall(r"<math.*?</math>", html)
    assert 'display="inline"' in inline
    assert "<mo>&#x0003C;</mo>" in inline  # escaped once
    assert 'display="block"' in block
    assert "<mfrac>" in block
    assert "$" not in html
    assert "arithmatex" not in html


def test_code_keeps_its_dollars(hook):
    html = page(hook, "`$x$` and\n\n```console\n$ attnlaw audit $HOME\n```\n")
    assert "<math" not in html
    assert html.count("$") == 4


@pytest.mark.parametrize("latex", [r"\foo", r"\frac{a", r"a & b", r"\begin{aligned} a &= b \end{aligned}"])
def test_what_is_not_understood_names_the_page_and_the_equation(hook, latex):
    with pytest.raises(PluginError, match=r"^page\.md: \$" + re.escape(latex)):
        page(hook, f"${latex}$")
