"""The one call: its record, its rows, and the verb."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from analysis.forward.tiny_models import save_tiny

import attnlaw
from attnlaw.analysis.forward import lens
from attnlaw.analysis.forward.lens import Lens, linearise
from attnlaw.analysis.forward.load import load_base_model
from attnlaw.analysis.forward.operator import TopSingularValues
from attnlaw.analysis.forward.trace import trace_forward
from attnlaw.core.errors import BadSetting, InputError
from attnlaw.core.estimate import Estimate, Outcome
from attnlaw.core.tables import to_schema
from attnlaw.verbs.lens import VERB

EXAMPLE = Path(__file__).parents[3] / "examples" / "tiny-decoder"
IDS = [3, 1, 4]
LISTS = "expected whole numbers from 0 on, separated by commas, such as 1,2,3; or @FILE"


@pytest.fixture(scope="module")
def tiny(tmp_path_factory) -> tuple[Path, Lens]:
    folder = save_tiny("bert", tmp_path_factory.mktemp("bert"))
    return folder, linearise(folder, IDS, top=4)


def test_record_holds_what_its_parts_give(tiny):
    folder, tiny_lens = tiny
    passed = trace_forward(*load_base_model(folder), IDS)
    matrix = passed.operator.dense()
    rebuilt = matrix @ passed.states.ravel(order="F") + passed.operator.offset
    error = np.linalg.norm(rebuilt - passed.output.ravel(order="F")) / np.linalg.norm(passed.output)
    assert tiny_lens.reconstruction_error < 1e-12
    assert error < 1e-12
    assert (tiny_lens.outcome, tiny_lens.remark) == (Outcome.DONE, None)
    assert (tiny_lens.family, tiny_lens.layers, tiny_lens.ids, tiny_lens.model) == (
        "bert",
        2,
        (3, 1, 4),
        str(folder),
    )
    share = np.linalg.norm(passed.output.ravel(order="F") - matrix @ passed.states.ravel(order="F"))
    assert tiny_lens.offset_share == pytest.approx(share / np.linalg.norm(passed.output), rel=1e-10)
    expected = np.linalg.svd(matrix, compute_uv=False)[:4]
    np.testing.assert_allclose(tiny_lens.singular_values, expected, rtol=1e-10)
    # The squared norms of all blocks add up to that of T.
    assert (tiny_lens.token_map.norms**2).sum() == pytest.approx(np.linalg.norm(matrix) ** 2, rel=1e-12)


def test_rows(tiny):
    _, tiny_lens = tiny
    rows = tiny_lens.token_map_rows()
    assert len(rows) == 9
    assert rows[5] == {
        "output": 1,
        "output_id": 1,
        "output_token": "1",
        "input": 2,
        "input_id": 4,
        "input_token": "4",
        "norm": Estimate(tiny_lens.token_map.norms[1, 2], 0.0),
        "share": tiny_lens.token_map.shares[1, 2],
        "rollout": tiny_lens.rollout[1, 2],
    }


def test_the_verb_is_the_call(tiny):
    folder, tiny_lens = tiny
    shown = attnlaw.lens(folder, ids="3,1,4", top=4)
    whole = shown.summary
    assert shown.rows.columns == list(VERB.schema)
    assert json.loads(json.dumps(whole)) == whole
    nothing = {"text": None, "file": None, "only": None, "entrywise": None}
    assert whole["settings"] == nothing | {"model": str(folder), "ids": [3, 1, 4], "top": 4, "seed": 0}
    assert whole["quantities"] == {
        "median_rank_within": None,
        "largest_rank_within": None,
        "family": "bert",
        "layers": 2,
        "tokens": 3,
        "hidden_size": 8,
        "head_count": 8,
        "median_beta": np.median([head.beta for head in tiny_lens.heads]),
        "heads_below_beta_2": sum(head.beta < head.beta_2 for head in tiny_lens.heads),
        "heads_above_beta_c": sum(head.beta > head.beta_c for head in tiny_lens.heads),
        "score_error": tiny_lens.score_error,
        "reconstruction_error": tiny_lens.reconstruction_error,
        "offset_share": tiny_lens.offset_share,
        "singular_values": tiny_lens.singular_values,
        "singular_values_residual": tiny_lens.spectrum.residual,
        "probes": None,
    }
    tables = {name: table.drop("case") for name, table in shown.tables.items()}
    rows = tables["token_map"]
    assert dict(rows.schema) == to_schema(
        {"output": "int", "output_id": "int", "output_token": "text"}
        | {"input": "int", "input_id": "int", "input_token": "text"}
        | dict.fromkeys(("norm", "norm_error", "share", "rollout"), "float")
    )
    assert rows["norm"].to_list() == tiny_lens.token_map.norms.ravel().tolist()
    assert tables["input_tokens"].rows() == [(0, 3, "3"), (1, 1, "1"), (2, 4, "4")]
    heads = tables["heads"]
    assert heads["beta"].to_list() == [head.beta for head in tiny_lens.heads]
    first = tiny_lens.heads[0].participation
    assert heads["participation_over_null"][0] == first.value / first.null.value
    assert heads["participation_over_random"][0] == first.value / first.random.value
    assert heads["random_participation_error"][0] == first.random.error
    assert tables["head_findings"]["sentence"].to_list() == [
        remark.sentence for remark in tiny_lens.head_remarks
    ]


def test_one_part_alone(tiny):
    folder, tiny_lens = tiny
    heads = attnlaw.lens(folder, ids=IDS, only="heads")
    operator = attnlaw.lens(folder, ids=IDS, only="operator")
    record = heads.record
    assert (record.heads, record.token_map, record.spectrum) == (tiny_lens.heads, None, None)
    assert operator.record.heads is None
    np.testing.assert_array_equal(operator.record.token_map.norms, tiny_lens.token_map.norms)
    assert not hasattr(operator, "heads")
    assert operator.median_beta is None
    assert heads.singular_values is None


def test_a_text_through_a_byte_level_model():
    byte_lens = attnlaw.lens(EXAMPLE, text="a law", only="heads").record
    assert (byte_lens.ids, byte_lens.labels) == (tuple(b"a law"), ("a", "␣", "l", "a", "w"))
    assert byte_lens.heads == attnlaw.lens(EXAMPLE, ids=list(b"a law"), only="heads").record.heads


def test_scores_that_are_not_rebuilt_say_so(tiny):
    _, tiny_lens = tiny
    assert tiny_lens.score_error < 1e-14
    broken = replace(tiny_lens, score_error=1e-3)
    assert broken.outcome is Outcome.INEXACT
    assert "do not use the numbers of heads" in broken.remark


@pytest.mark.parametrize(
    ("given", "line"),
    [
        ({}, "lens needs an input. Try: text='The cat sat on the mat'"),
        ({"ids": "1,x"}, f"ids: found '1,x', {LISTS}"),
        ({"ids": [-1]}, f"ids: found '-1', {LISTS}"),
        ({"text": "a"}, None),
        ({"ids": [1], "top": 0}, "top: found 0, expected a whole number of at least 1"),
        ({"ids": [1], "top": 8}, "top: found 8, expected a whole number of at least 1 and of at most 7"),
        ({"ids": [20]}, "ids: found 20, expected ids of the vocabulary, from 0 to 19"),
    ],
)
def test_bad_settings_are_one_line(tiny, given, line):
    with pytest.raises(BadSetting) as caught:
        attnlaw.lens(tiny[0], **given)
    expected = (
        f"text needs a tokenizer: {tiny[0]} has no tokenizer.json, and its 20 ids are not bytes, so "
        "attnlaw cannot read text; "
    )
    assert str(caught.value) == (line or f"{expected}give token ids, such as 1,2,3")


def test_a_model_that_cannot_be_read_leaves_the_others_alone(tiny, tmp_path):
    cases = VERB.cases({"model": [str(tmp_path), str(tiny[0])], "ids": IDS})
    missing, bert_lens = VERB.run(cases, lambda done, total: None)
    assert isinstance(missing, InputError)
    assert "holds no config.json" in str(missing)
    assert bert_lens.family == "bert"


def test_missing_singular_values_are_null(tiny):
    _, tiny_lens = tiny
    nothing = replace(tiny_lens, spectrum=TopSingularValues(None, None, "ask for another number"))
    assert (nothing.singular_values, nothing.singular_values_residual) == (None, None)
    assert (nothing.outcome, nothing.remark) == (Outcome.NOT_CONVERGED, "ask for another number")


def test_a_pass_that_is_not_rebuilt_says_so(tiny, monkeypatch):
    _, tiny_lens = tiny
    monkeypatch.setattr(lens, "TOLERANCE", 0.0)
    assert tiny_lens.outcome is Outcome.INEXACT
    assert "do not use the map of tokens" in tiny_lens.remark


def test_shipped_decoder():
    decoder_lens = linearise(EXAMPLE, list(b"law"), top=3)
    assert decoder_lens.reconstruction_error < 1e-10
    assert not decoder_lens.token_map.norms[np.triu_indices(3, k=1)].any()
    assert decoder_lens.spectrum.residual < 1e-12
