"""The static report: everything escaped, nothing fetched, the numbers of the rows."""

import re
from html.parser import HTMLParser

import numpy as np
import pytest

import attnlaw

HOSTILE = '<script>alert("x")</script><img src=x onerror=alert(1)>&"\''


class Tags(HTMLParser):
    """Collects tags and text."""

    def __init__(self):
        super().__init__()
        self.tags, self.text = [], []

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data):
        self.text.append(data)


@pytest.fixture(scope="module", name="page")
def _page(tmp_path_factory):
    rng = np.random.default_rng(0)
    state = {"in_proj_weight": rng.standard_normal((24, 8)), "out_proj.weight": rng.standard_normal((8, 8))}
    model = attnlaw.audit(state, heads=2)
    summary = {
        **model.summary,
        "model": HOSTILE,
        "family": HOSTILE,
        "warnings": [HOSTILE],
        "extensions": [HOSTILE],
    }
    renamed = {
        name: getattr(model, name).with_columns(model=np.array([HOSTILE] * getattr(model, name).height))
        for name in ("matrices", "spectra", "layers")
    }
    folder = attnlaw.Audit((summary,), **renamed).save(tmp_path_factory.mktemp("page"))
    parsed = Tags()
    source = (folder / "report.html").read_text()
    parsed.feed(source)
    return source, parsed, model


def test_hostile_names_stay_text(page):
    _, parsed, _ = page
    assert not [tag for tag, _ in parsed.tags if tag in ("script", "img")]
    assert HOSTILE in "".join(parsed.text)


def test_nothing_is_fetched(page):
    source, parsed, _ = page
    for _, attributes in parsed.tags:
        assert not {"src", "onerror", "onload"} & set(attributes)
        assert attributes.get("href", "#").startswith("#")
    assert not re.search(r"url\((?!#)|@import", source)


def test_proxies_on_the_page_are_those_of_the_summary(page):
    _, parsed, model = page
    text = "|".join(parsed.text)
    for name in ("spectrum_adaptive", "edelman", "trauger_tewari"):
        assert f"{model.summary['proxies'][name]['log10']:.4g}" in text
    assert text.count("not guarantees") == 1
