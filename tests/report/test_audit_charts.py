"""Charts of an audit: their specifications hold the rows they were given, and they render."""

import json
import re
from dataclasses import replace

import numpy as np
import polars as pl
import pytest
import vl_convert
from checkpoints.small import bert_weights
from report.charts_of import assert_renders, named, spec_of, values_of

from attnlaw import audit
from attnlaw.analysis.audit.rows import fill_applied_sizes
from attnlaw.render.charts.encodings import integer_axis
from attnlaw.render.model_names import model_names
from attnlaw.verbs.audit.charts import compare, contribution_curves, draw_excesses, spectrum_decay


def state(depth, width, seed, gain=0.3):
    return bert_weights(np.random.default_rng([depth, width, seed]), depth, width, gain)


@pytest.fixture(scope="module")
def family():
    """Audits of depth 1, 2 by width 8, 16 by two seeds: (matrices, spectra)."""
    matrices, spectra = [], []
    for depth, width, seed in ((d, w, s) for d in (1, 2) for w in (8, 16) for s in (0, 1)):
        audit_result = audit(state(depth, width, seed), heads=2, jobs=1)
        name = f"{depth}-{width}-{seed}"
        place = {"depth": pl.lit(depth), "width": pl.lit(width), "seed": pl.lit(seed)}
        matrices.append(audit_result.matrices.with_columns(pl.lit(name).alias("model"), **place))
        spectra.append(audit_result.spectra.with_columns(pl.lit(name).alias("model")))
    return pl.concat(matrices), pl.concat(spectra)


def test_spectrum_decay_shows_the_median_at_each_rank(family):
    spectra = family[1]
    labels = {"2-16-0": "large", "1-8-0": "small"}
    chart = spectrum_decay(spectra, labels)
    spec = spec_of(chart)
    rows = values_of(spec)[1]  # the panel of VO
    assert list(dict.fromkeys(row["series"] for row in rows)) == ["large", "small"]
    model_spectra = spectra.filter((pl.col("kind") == "vo") & (pl.col("model") == "2-16-0"))[
        "singular_values"
    ].to_list()
    drawn = [row["value"] for row in rows if row["series"] == "large"]
    expected = np.median([np.array(values) / values[0] for values in model_spectra], axis=0)
    assert drawn == pytest.approx(expected, rel=1e-14)
    ranks = [row["rank"] for row in rows if row["series"] == "large"]
    assert max(ranks) == 8  # so few are labelled one by one, without halves
    assert spec["concat"][1]["encoding"]["x"]["axis"]["values"] == ranks
    assert_renders(spec)


def test_contribution_curves_show_layers_and_the_chosen_index_of_every_matrix(family):
    matrices = family[0].filter(pl.col("model") == "2-8-0")
    chart = contribution_curves(matrices)
    spec = spec_of(chart)
    panels = values_of(spec)
    assert len(panels) == 4 * 2
    lines, dots = panels[4:6]  # the panel of FFN in
    ffn = matrices.filter(pl.col("kind") == "ffn_in")
    drawn = [row["log10_C"] for row in lines if row["layer"] == 1]
    assert drawn == ffn.filter(pl.col("layer") == 1)["log10_curve"].to_list()[0]
    assert [row["p"] for row in lines[: len(drawn)]] == pytest.approx(np.linspace(0, 2, len(drawn)))
    assert [row["p"] for row in dots] == ffn["p"].to_list()
    assert [row["log10_C"] for row in dots] == ffn["log10_contribution"].to_list()
    assert_renders(spec)


def test_contribution_curves_of_a_deep_model_are_thinned():
    """At most 64 layers by 97 indices: each a median over the heads of that layer, beside all dots."""
    depth, points = 200, 407
    rng = np.random.default_rng(0)
    curves = rng.standard_normal((depth, 3, points))
    rows = [
        {"kind": "qk", "layer": layer, "p": 1.0, "log10_contribution": 0.0, "log10_curve": curve.tolist()}
        for layer, heads in enumerate(curves)
        for curve in heads
    ]
    chart = contribution_curves(pl.DataFrame(rows))
    lines, dots = values_of(spec_of(chart))
    assert len(dots) == depth * 3
    drawn = pl.DataFrame(lines)
    assert drawn["layer"].n_unique() == 64
    assert drawn["p"].n_unique() == 97
    assert drawn.height == 64 * 97
    for name, last in (("layer", depth - 1), ("p", 2)):
        places = drawn[name].unique().sort()
        assert (places[0], places[-1]) == (0, last)
        steps = places.diff().drop_nulls()
        assert steps.max() <= 2 * steps.min()
    indices = (drawn["p"].to_numpy() * (points - 1) / 2).round().astype(int)
    medians = np.median(curves, axis=1)[drawn["layer"].to_numpy(), indices]
    assert drawn["log10_C"].to_list() == medians.tolist()


def test_a_dead_head_is_left_out_of_the_curves():
    dead = state(1, 8, 0)
    dead["bert.encoder.layer.0.attention.self.value.weight"][:4] = 0
    matrices = audit(dead, heads=2, jobs=1).matrices
    panels = values_of(spec_of(contribution_curves(matrices)))
    assert sum(len(dots) for dots in panels[1::2]) == matrices.height - 2


@pytest.mark.slow
def test_compare_shows_both_models_layer_by_layer(family):
    labels = {"2-8-0": "before", "2-8-1": "after"}
    matrices = fill_applied_sizes(family[0].filter(pl.col("model").is_in(list(labels))), applied=False)
    chart = compare(matrices, labels)
    spec = spec_of(chart)
    panels = values_of(spec)
    assert len(panels) == 4 * 4
    drawn = {(row["series"], row["layer"]): row["spectral_norm"] for row in panels[4]}  # the row of VO
    heads = matrices.filter((pl.col("kind") == "vo") & (pl.col("model") == "2-8-1") & (pl.col("layer") == 1))
    assert drawn["after", 1] == heads["spectral_norm"].median()
    assert set(drawn) == {(model, layer) for model in labels.values() for layer in (0, 1)}
    assert_renders(spec)


def test_the_balance_of_every_head_stands_beside_random_factors():
    """Rings where queries have a bias; a dead head has no dot."""
    weights = state(2, 8, 0)
    bias = "bert.encoder.layer.1.attention.self.query.bias"
    weights[bias] = np.ones(8)
    weights["bert.encoder.layer.0.attention.self.value.weight"][:4] = 0
    matrices = audit(weights, heads=2, jobs=1, name="a").matrices
    spec = spec_of(draw_excesses(matrices, {"a": "short"}))
    (dots, rings, lines), (others, plain) = (
        [json.loads(layer["data"]["values"]) for layer in panel["layer"]] for panel in spec["concat"]
    )
    qk, vo = (matrices.filter(pl.col("kind") == kind) for kind in ("qk", "vo"))
    assert [row["excess"] for row in dots] == qk["factor_excess"].to_list()
    assert [(row["layer"], row["excess"]) for row in rings] == [
        (1, value) for value in qk.filter(pl.col("layer") == 1)["factor_excess_weights"]
    ]
    assert [row["excess"] for row in lines] == [pytest.approx(1 / 7)] * 2
    assert len(others) == 3 == vo["factor_excess"].count()
    assert {row["series"] for row in plain} == {"short"}
    assert_renders(spec)


def test_shares_that_differ_by_layer_are_stacked():
    shares = {"share_qk": [0.5, 0.2], "share_vo": [0.25, 0.3], "share_ffn": [0.25, 0.5]}
    read = audit(state(2, 8, 0), heads=2, jobs=1, name="a")
    layers = read.tables["layers"].with_columns(pl.Series(name, values) for name, values in shares.items())
    figure = named(replace(read, tables={**read.tables, "layers": layers}))["shares"]
    (bars,) = values_of(spec_of(figure.draw()))
    assert [(row["x"], row["place"], row["value"]) for row in bars] == [
        (layer, place, values[layer]) for place, values in enumerate(shares.values()) for layer in (0, 1)
    ]
    assert "shares" not in named(read)  # the same in all layers


def test_a_model_that_could_not_be_read_leaves_the_numbers_of_others_alone():
    """The lines of a table belong to the case that they state; two models of one name have a number."""
    read = audit(state(2, 8, 0), heads=2, jobs=1, name="a")
    failed = replace(read, rows=read.rows.with_columns(status=pl.lit("failed")), tables={})
    both = failed + read + audit(state(2, 8, 1), heads=2, jobs=1, name="a")
    names = model_names(both)
    assert len(set(names)) == 3
    figures = named(both)
    (dots,) = values_of(spec_of(figures["proxies"].draw()))
    assert [*dict.fromkeys(row["series"] for row in dots)] == names[1:]
    (lines,) = values_of(spec_of(figures["amplification"].draw()))
    alphas = [row["y"] for row in lines if row["series"] == names[1]]
    assert alphas == read.layers["log10_alpha"].to_list()


def labels_of(spec):
    """The labels of a drawn chart's axes and legends."""
    return re.findall(r"<text[^>]*>([^<]*)</text>", vl_convert.vegalite_to_svg(spec))


def test_three_layers_are_labelled_once_each():
    three = audit(state(3, 8, 0), heads=2, jobs=1, name="a")
    compared = compare(three.matrices).vconcat[0].hconcat[0]
    for chart in (named(three)["amplification"].draw(), compared):
        spec = spec_of(chart)
        for layer in spec.get("layer", [spec]):
            layer["encoding"]["y"] = {"value": 0}  # no axis but that of the layers
        assert [text for text in labels_of(spec) if text.isdigit()] == ["0", "1", "2"]


def test_labels_of_many_layers_are_thinned():
    for last, most in ((5, 8), (47, 8), (125, 5)):
        values = integer_axis(range(last + 1), most).to_dict()["values"]
        steps = set(np.diff(values).tolist())
        assert values[0] == 0
        assert len(steps) == 1
        assert last - values[-1] < max(steps)
        assert len(values) <= most
    assert integer_axis([]).to_dict()["values"] == [0]
