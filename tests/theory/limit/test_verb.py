"""The verb `limit`: tables of widths, three kinds of tokens, further distances, errors in one line."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import attnlaw
from attnlaw.checkpoints.open import open_model
from attnlaw.core.errors import BadSetting, InputError
from attnlaw.core.result import Result
from attnlaw.theory.limit.depth import Depth
from attnlaw.theory.limit.distance import distances, kernel_kl
from attnlaw.theory.limit.inputs import GivenInputs, RandomInputs
from attnlaw.theory.limit.kernels import ACTIVATIONS
from attnlaw.theory.limit.layer import MASKS, AttentionLayer, ScoreSettings
from attnlaw.theory.limit.limit import compare_widths, density_rows
from attnlaw.theory.limit.mixture import gaussian_law, mean_of
from attnlaw.theory.limit.sampler import output_law
from attnlaw.verbs.limit import VERB

EXAMPLE = Path(__file__).parents[3] / "examples" / "tiny-decoder"
MEASURED = ("score_variance", "output_variance", "kurtosis", "kl_to_limit", "w1_to_limit", "ks_to_limit")


def test_widths_share_their_draws_and_the_points_of_their_densities():
    rows = attnlaw.limit(width=[16, math.inf], draws=2000, seed=3)
    same = compare_widths(Depth(AttentionLayer(RandomInputs(4), heads=2)), (16, math.inf), 2000, 3)
    for row, expected in zip(rows, same, strict=True):
        assert [getattr(row, name) for name in MEASURED] == [getattr(expected, name) for name in MEASURED]
        assert row.residual_of_distances == expected.residual_of_distances
    drawn = rows.densities.drop("case").to_dicts()
    expected = density_rows({row.width: row.law for row in same})
    assert drawn == [
        {name: point[name] for name in ("y", "density", "gaussian_density", "ratio")} for point in expected
    ]
    alone = attnlaw.limit(width=16, draws=2000, seed=3)
    assert alone.kl_to_limit == rows[0].kl_to_limit
    assert alone.densities["ratio"].null_count() == 161


def test_tables_are_told_apart_and_come_in_the_order_of_their_cases():
    seen: list[tuple[int, int]] = []
    cases = VERB.cases({"width": [16, math.inf], "heads": [1, 2], "draws": 100})
    comparisons = list(VERB.run(cases, lambda done, total: seen.append((done, total))))
    assert [row.width for row in comparisons] == [16, 16, math.inf, math.inf]
    assert seen == [(0, 4), (1, 4), (2, 4), (2, 4), (3, 4), (4, 4)]
    for case, row in zip(cases, comparisons, strict=True):
        (alone,) = VERB.run([case], lambda done, total: None)
        assert VERB.row(case, row) == VERB.row(case, alone)


def test_row_json_and_schema():
    (case,) = VERB.cases({"depth": 2, "draws": 100, "mask": "band:1", "width": "inf"})
    (comparison,) = VERB.run([case], lambda done, total: None)
    row, whole = VERB.row(case, comparison), Result.collect(VERB, [(case, comparison)]).summary
    assert list(row) == list(VERB.schema)
    assert json.loads(json.dumps(whole)) == whole
    assert whole["settings"]["width"] == "inf"
    assert whole["settings"]["mask"] == "band:1"
    assert whole["quantities"]["kl_to_limit"] is None
    assert whole["quantities"]["score_variance"].keys() == {"value", "error"}
    path = comparison.path
    cosines, lengths = (whole["quantities"][name] for name in ("path_cosine", "path_squared_length"))
    assert cosines["value"] == [mean_of(column).value for column in path.cosines.T]
    assert lengths["error"] == [mean_of(column).error for column in path.squared_lengths.T]


def test_further_distances():
    options = {"heads": 1, "width": 64, "draws": 2000, "seed": 5}
    comparison = attnlaw.limit(
        scaling="1/n", other_scaling="1/sqrt(n)", gaussian=True, kernel=True, **options
    )
    layer = AttentionLayer(RandomInputs(4), heads=1, width=64, scores=ScoreSettings(scaling="1/n"))
    law, limit = (output_law(layer.at_width(width), 2000, 5) for width in (64, math.inf))
    other = output_law(AttentionLayer(RandomInputs(4), heads=1), 2000, 5)
    assert comparison.kl_to_other_limit == distances(law, other).kl
    assert comparison.kl_to_gaussian == distances(law, gaussian_law(law.variance().value)).kl
    assert comparison.kernel_kl_to_limit == kernel_kl(law.draw(5), limit.draw(6))
    plain = attnlaw.limit(**options)
    assert (plain.kl_to_other_limit, plain.kl_to_gaussian, plain.kernel_kl_to_limit) == (None, None, None)


def test_tokens_of_a_checkpoint_and_of_a_gram_matrix(tmp_path):
    ids = (97, 98, 99)
    inputs = GivenInputs.from_tokens(open_model(EXAMPLE).embedding()[list(ids)])
    (same,) = compare_widths(Depth(AttentionLayer(inputs, heads=2)), (64,), 100, 0)
    assert attnlaw.limit(embeddings=EXAMPLE, ids=ids, width=64, draws=100).kurtosis == same.kurtosis
    np.save(tmp_path / "gram.npy", inputs.gram)
    (case,) = VERB.cases({"gram": tmp_path / "gram.npy", "width": 64, "draws": 100})
    assert (case.to_row()["tokens"], case.to_row()["activation"]) == (None, None)
    (comparison,) = VERB.run([case], lambda done, total: None)
    assert comparison.kurtosis == same.kurtosis


@pytest.mark.parametrize(
    ("given", "line"),
    [
        ({"width": 0}, "width: found 0, expected a number of at least 1 and of at most 1e+18, or inf"),
        ({"width": 2.5}, "width: found 2.5, expected a whole number, or inf"),
        (
            {"width": "wide"},
            "width: found 'wide', expected a number of at least 1 and of at most 1e+18, or inf",
        ),
        ({"heads": 0}, "heads: found 0, expected a whole number of at least 1 and of at most 1e+18"),
        ({"draws": 3}, "draws: found 3, expected a whole number of at least 40 and of at most 100000000"),
        ({"mask": "diagonal"}, f"mask: found 'diagonal', {MASKS.expected}"),
        ({"activation": "clip:-1"}, f"activation: found 'clip:-1', {ACTIVATIONS.expected}"),
        ({"token": 5}, "token: found 5, expected a number from 1 to 4, the count of tokens"),
        ({"token": 0}, "token: found 0, expected a whole number of at least 1"),
        (
            {"tokens": 20_000},
            "tokens: found 20000, expected at most 8757: their Gram matrix and its root take more than 4 GiB "
            "of memory",
        ),
        ({"width": 16, "head_width": 5}, "head_width: found 5, expected a divisor of the width, 16"),
        (
            {"head_width": 5},
            "head_width: found 5, but heads are infinitely wide in the limit (width inf); give finite "
            "widths only, which are compared with the limit anyway",
        ),
        ({"ids": [1]}, "ids needs embeddings"),
        ({"embeddings": "m"}, "embeddings needs ids"),
        ({"gram": "g.npy", "tokens": 3}, "tokens cannot be combined with gram; choose one"),
        ({"gram": "g.npy", "activation": "relu"}, "activation cannot be combined with gram; choose one"),
        (
            {"embeddings": "m", "ids": [1], "tokens": 3},
            "tokens cannot be combined with embeddings; choose one",
        ),
        ({"gram": "g", "embeddings": "m", "ids": [1]}, "embeddings cannot be combined with gram; choose one"),
        (
            {"embeddings": "m", "ids": [1], "token": 2},
            "token: found 2, expected a number from 1 to 1, the count of tokens",
        ),
        ({"score": "tanh"}, "score: found 'tanh', expected one of softmax, relu, sigmoid, linear"),
        (
            {"score": "relu", "scaling": "1/n"},
            "score: found 'relu', but there is no limit with scaling 1/n: all scores would be zero, and so "
            "would the output; choose softmax or sigmoid",
        ),
        (
            {"score": "linear", "other_scaling": "1/n"},
            "score: found 'linear', but there is no limit with other_scaling 1/n: all scores would be zero, "
            "and so would the output; choose softmax or sigmoid",
        ),
        ({"seed": -1}, "seed: found -1, expected a whole number of at least 0"),
        ({"witdh": 3}, "witdh is not a setting of limit; did you mean width?"),
    ],
)
def test_bad_settings_are_one_line(given: dict[str, Any], line: str):
    with pytest.raises(InputError) as caught:
        VERB.cases(given)
    assert str(caught.value) == line


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"tokens": 6000, "heads": 1, "depth": 2}, "more than 4: choose fewer tokens"),
        ({"activation": "relu", "width": 10**9}, "120 GiB of memory"),
        ({"gram": "missing.npy"}, "no such file; give an existing file"),
    ],
)
def test_what_cannot_work_is_refused_before_anything_runs(given: dict[str, Any], message: str):
    (case,) = VERB.cases(given)
    assert VERB.precheck is not None
    with pytest.raises(InputError, match=message):
        VERB.precheck(case)
    (error,) = VERB.run([case], lambda done, total: None)
    assert isinstance(error, InputError)


def test_what_one_width_cannot_do_the_others_still_do(tmp_path):
    np.save(tmp_path / "gram.npy", np.eye(3))
    narrow, wide = VERB.run(
        VERB.cases({"gram": tmp_path / "gram.npy", "width": [2, 3], "draws": 100}), lambda done, total: None
    )
    assert "rank 3, and tokens of width 2" in str(narrow)
    assert wide.width == 3


def test_compare_widths_raises_or_collects_the_error_of_a_width():
    stack, errors = Depth(AttentionLayer(GivenInputs(np.eye(3)))), {}
    rows = compare_widths(stack, (2, 3), 100, 0, errors=errors)
    assert ([row.width for row in rows], list(errors)) == ([3], [2])
    with pytest.raises(InputError, match="rank 3, and tokens of width 2"):
        compare_widths(stack, (2, 3), 100, 0)


def test_each_layer_of_a_table_is_built_once(monkeypatch):
    widths, check = [], AttentionLayer.__post_init__
    monkeypatch.setattr(
        AttentionLayer, "__post_init__", lambda layer: (widths.append(layer.width), check(layer))
    )
    attnlaw.limit(width=[16, 64, math.inf], draws=100)
    assert sorted(widths) == [16, 64, math.inf]


def test_an_id_outside_the_vocabulary_is_named():
    with pytest.raises(
        BadSetting, match=r"ids: found 999999, outside the vocabulary of .*; choose ids from 0 to"
    ):
        attnlaw.limit(embeddings=EXAMPLE, ids=[1, 999999], draws=100)


@pytest.mark.parametrize("name", ["width", "depth", "draws", "heads", "tokens", "mask"])
def test_a_number_of_hundreds_of_digits_is_refused_in_a_line(name):
    value = f"band:{'9' * 5000}" if name == "mask" else 10**400
    with pytest.raises(BadSetting) as caught:
        VERB.cases({name: value})
    assert str(caught.value).startswith(f"{name}: found")
    assert "\n" not in str(caught.value)


@pytest.mark.filterwarnings("error")
def test_a_law_of_atoms_is_found_without_a_warning():
    """One ReLU token of width 1 is zero in half of the draws, and in all draws of some batch."""
    comparison = attnlaw.limit(tokens=1, activation="relu", width=1, draws=40)
    assert comparison.kl_to_limit is None
    assert comparison.w1_to_limit.value > 0


@pytest.mark.parametrize("name", ["limit", "lens"])
def test_a_verb_is_declared_without_heavy_libraries(name):
    heavy = "polars", "altair", "torch", "scipy.special", "scipy.linalg", "scipy.optimize", "scipy.stats"
    code = f"import sys, attnlaw.verbs.{name}; print(*[one for one in {heavy} if one in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == ""
