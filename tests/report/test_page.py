"""The page as text: everything escaped, nothing fetched, the numbers of the rows. test_browser.py runs it."""

import base64
import hashlib
import json
import re
from dataclasses import replace
from html.parser import HTMLParser

import numpy as np
import polars as pl
import pytest
from jinja2 import UndefinedError
from report.charts_of import page_html, with_tables

import attnlaw
from attnlaw.render.pages.html import environment
from attnlaw.render.pages.page import inert_json

HOSTILE = '<script>alert("x")</script><img src=x onerror=alert(1)>&"\'\u2028</style>'


class Tags(HTMLParser):
    """Collects tags, and text by the element it stands in."""

    def __init__(self):
        super().__init__()
        self.tags, self.text, self.open = [], {}, []

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        self.open.append(tag)

    def handle_endtag(self, tag):
        while self.open and self.open.pop() != tag:
            pass

    def handle_data(self, data):
        self.text.setdefault(self.open[-1] if self.open else "", []).append(data)


@pytest.fixture(scope="module", name="model")
def _model():
    rng = np.random.default_rng(0)
    state = {"in_proj_weight": rng.standard_normal((24, 8)), "out_proj.weight": rng.standard_normal((8, 8))}
    return attnlaw.audit(state, heads=2)


@pytest.fixture(scope="module", name="page")
def _page(model, tmp_path_factory):
    texts = pl.lit([HOSTILE], dtype=pl.List(pl.String))
    hostile = dict.fromkeys(("model", "family"), pl.lit(HOSTILE)) | {"warnings": texts, "extensions": texts}
    named = [name for name, table in model.tables.items() if "model" in table.columns]
    renamed = {name: model.tables[name].with_columns(model=pl.lit(HOSTILE)) for name in named}
    renamed["matrices"] = renamed["matrices"].with_columns(tensors=texts)
    bad = replace(with_tables(model, **renamed), rows=model.rows.with_columns(**hostile))
    source = (bad.save(tmp_path_factory.mktemp("page")) / "report.html").read_text()
    parsed = Tags()
    parsed.feed(source)
    return source, parsed


def data_of(source):
    """The data as the page's script reads them."""
    return json.loads(re.search(r'<script type="application/json" id="data">(.*?)</script>', source, re.S)[1])


def test_hostile_names_stay_text(page):
    source, parsed = page
    tags = [tag for tag, _ in parsed.tags]
    assert tags.count("script") == 2  # the data and the code
    assert "img" not in tags
    assert HOSTILE in parsed.text["p"][0]
    assert data_of(source)["models"][0]["name"] == HOSTILE
    assert data_of(source)["columns"]["tensors"][0] == [HOSTILE]
    assert "\u2028" not in parsed.text["script"][0]


def test_nothing_is_fetched(page):
    source, parsed = page
    for _, attributes in parsed.tags:
        assert not {"src", "onerror", "onload", "onclick"} & set(attributes)
        assert attributes.get("href", "#").startswith("#")
    assert not re.search(r"url\((?!#)|@import", source)
    assert "fetch(" not in source


def test_only_the_script_of_the_page_may_run(page):
    source, parsed = page
    (policy,) = [tag["content"] for name, tag in parsed.tags if name == "meta" and "http-equiv" in tag]
    code = re.findall(r"<script>(.*?)</script>", source, re.S)[0]
    digest = base64.b64encode(hashlib.sha256(code.encode()).digest()).decode()
    assert policy == f"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{digest}'"


@pytest.mark.slow
def test_numbers_on_the_page_are_those_of_the_rows(model):
    source = page_html(model)
    data = data_of(source)
    for name, label in (
        ("spectrum_adaptive", "spectrum-adaptive, best exponent p for each matrix"),
        ("edelman", "norm-based, (2,1) norms of Edelman"),
    ):
        log10 = model.summary["proxies"][name]["log10"]
        assert f'<th scope="row">{label}</th><td>{log10:.4f}</td>' in source
    assert "not guarantees" in source
    assert data["columns"]["spectral_norm"] == model.matrices["spectral_norm"].to_list()
    packed = np.frombuffer(base64.b64decode(data["spectra"]["values"]), dtype="<f4")
    values = np.concatenate(model.spectra["singular_values"].to_list())
    # float32 keeps a relative 2^-24.
    assert packed == pytest.approx(values, rel=2.0**-24, abs=1e-30)
    assert data["spectra"]["lengths"] == model.spectra["singular_values"].list.len().to_list()


def test_missing_spectra_are_missing(model):
    gone = (
        pl.when(pl.col("head") == 0).then(None).otherwise(pl.col("singular_values")).alias("singular_values")
    )
    data = data_of(page_html(with_tables(model, spectra=model.tables["spectra"].with_columns(gone))))
    assert [length is None for length in data["spectra"]["lengths"]] == [
        head == 0 for head in model.spectra["head"]
    ]


def test_values_with_the_signs_of_templates_stay_text(model):
    name = "{{ 7 * 7 }}{% include 'page.html' %}{# #}"
    source = page_html(replace(model, rows=model.rows.with_columns(family=pl.lit(name))))
    assert "{{ 7 * 7 }}{% include &#39;page.html&#39; %}{# #}" in source


def test_a_template_escapes_values_and_refuses_names_that_are_missing():
    assert environment().from_string("{{ x }}").render(x="<b>") == "&lt;b&gt;"
    with pytest.raises(UndefinedError):
        environment().from_string("{{ x.y }}").render(x={})


def test_not_a_number_never_reaches_the_page():
    with pytest.raises(ValueError, match="not JSON compliant"):
        inert_json({"x": float("nan")})


def test_what_the_page_compares_is_a_proxy_and_no_bound(model):
    """The page speaks of bounds only to say that proxies are none, and for logits, which do have bounds."""
    source = page_html(model)
    said = re.findall(
        r"[^.]*\bbounds?\b[^.]*", re.sub(r"<svg.*?</svg>|<style.*?</style>", "", source, flags=re.S)
    )
    allowed = ("leading factors", "attnlaw knows no bound for", "logit")
    assert all(any(words in text for words in allowed) for text in said), said
