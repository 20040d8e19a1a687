"""Whatever a page shows is repeated, number by number, by its Python and by its command."""

import json
import shlex
import time
from dataclasses import replace

import pytest
from command.in_process import invoke

import attnlaw
from attnlaw.analysis.audit.audit import spectrum_at
from attnlaw.core.errors import InputError
from attnlaw.core.estimate import format_value
from attnlaw.lab import html as shown
from attnlaw.lab import spectrum_page as heads
from attnlaw.lab.background import BackgroundSimulation
from attnlaw.lab.page_model import PageModel
from attnlaw.lab.serve import Application

EXAMPLE = "examples/tiny-decoder"
STATES = {
    "learn": [
        {"thresholds": True, "alpha": 0.317, "noise": 0.5},
        {"target_spike": 6.0, "weight_decay": 0.3, "tokens": 2, "output": "softmax", "beta": 2.0},
        {"target_exponent": 1.2, "target_dimension": 1000, "target_rank": 0.3, "student": "direct"},
    ],
    "limit": [{"width": 16, "heads": 3, "depth": 2, "draws": 500, "residual": True}],
    "attention": [{"tokens": 64, "matrix": "output", "beta": 0.5, "value_size": 16}],
    "dynamics": [{"times": "0.01:0.1:4", "alpha": None}],
}
CASES = [(name, values) for name, several in STATES.items() for values in several]


def shown_of(state):
    """The cells of the page, by quantity, a list over cases."""
    result = shown.solve(state)
    return {
        quantity.name: [format_value(case.values()[quantity.name]) for case in result]
        for quantity in state.verb.quantities
        if not quantity.hidden
    }


def words_of(text):
    return shlex.split(text)[1:]


def ran(text):
    names = {}
    exec(text, names)
    return names


@pytest.mark.slow
@pytest.mark.parametrize(("name", "values"), CASES)
def test_a_state_is_repeated_by_its_words(name, values):
    desk = PageModel.of(name)
    state = desk.state({key: value for key, value in values.items() if value is not None})
    page = shown_of(state)
    assert any(any(cells) for cells in page.values())

    python = ran(state.as_python())["found"]
    for quantity, cells in page.items():
        assert [format_value(case.values()[quantity]) for case in python] == cells

    cases = json.loads(invoke(*words_of(state.as_command()), "--json").stdout)
    cases = cases if isinstance(cases, list) else [cases]
    for ours, theirs in zip(shown.solve(state).to_json(), cases, strict=True):
        assert json.loads(json.dumps(ours["quantities"])) == theirs["quantities"]
        assert ours["settings"] == theirs["settings"]


@pytest.mark.slow
def test_trained_students_are_repeated_too():
    desk = PageModel.of("learn")
    state = desk.state({"noise": 0.5}, {"simulate": 10, "seeds": 2, "seed": 3, "sensing": "goe"})
    run = BackgroundSimulation(state)
    run.wait()
    simulation = run.result
    assert ran(state.as_python())["trained"].estimation_error == simulation.estimation_error
    _, theirs = json.loads(invoke(*words_of(state.as_command()), "--json").stdout)
    assert theirs["quantities"]["estimation_error"]["value"] == simulation.estimation_error.value
    both = replace(shown.solve(state), simulation=simulation)
    page = shown.numbers_html(state, both)
    assert format_value(simulation.estimation_error) in page
    assert f'<th scope="col">{simulation.verb.title}</th>' in page
    assert "weight at zero: predicted" in shown.charts_html(both)


def test_training_stops_when_it_is_told_to():
    run = BackgroundSimulation(PageModel.of("learn").state({}, {"simulate": 100, "seeds": 32}))
    while not run.total:
        time.sleep(0.01)
    run.stop()
    run.wait(30)
    assert run.is_over
    assert run.result is None
    assert run.error is None
    assert "stopped after" in shown.progress_html(run)


def test_what_cannot_be_is_one_line():
    desk = PageModel.of("learn")
    with pytest.raises(InputError, match="whole"):
        BackgroundSimulation(desk.state({"target_rank": 0.123}, {"simulate": 10}))
    with pytest.raises(InputError) as error:
        shown.solve(desk.state({"output": "softmax"}))
    assert shown.error_html(error.value).strip() == (
        '<p class="lab lab-error" role="alert">tokens: found 1, expected at least 2 with output softmax: '
        "with a single token, attention is always 1 and labels show nothing</p>"
    )
    assert "&lt;b&gt;" in shown.error_html(InputError("<b>"))


@pytest.mark.slow
@pytest.mark.parametrize("saved", [False, True])
def test_a_head_is_repeated_by_its_words(saved, tmp_path):
    source = EXAMPLE
    if saved:
        source = str(attnlaw.audit(EXAMPLE).save(tmp_path / "audited"))
    audited = heads.AuditedModel.from_source(source)
    first = {control.name: control.value for control in audited.controls}
    laid = audited.state(first | {"kind": "vo", "layer": 2, "head": 1, "power-law": True})
    fits = laid.fits()
    assert list(fits) == ["random", "power-law", "heavy-tailed", "learned"]
    again = ran(laid.as_python())["fits"]
    assert {law: fit.parameters for law, fit in again.items()} == {
        law: fit.parameters for law, fit in fits.items()
    }
    case = json.loads(invoke(*words_of(laid.as_command())).stdout)
    (row,) = (row for row in case["tables"]["fits"] if row["head"] == 1)
    assert row["random_p_value"] == fits["random"].p_value
    assert row["kappa"]["value"] == fits["heavy-tailed"].parameters["kappa"]
    every = audited.state(first | dict.fromkeys(heads.COLOURS, True))
    drawn = heads.fitted_spectrum_html(every)
    assert all(law in drawn for law, fit in every.fits().items() if fit.curve is not None)
    page = heads.fitted_spectrum_html(laid)
    assert format_value(fits["random"].p_value) in page
    assert "VO, layer 2, head 1" in page


@pytest.mark.slow
def test_a_matrix_without_heads_needs_none():
    audited = heads.AuditedModel.from_source(EXAMPLE)
    first = {control.name: control.value for control in audited.controls}
    laid = audited.state(first | {"kind": "ffn_in", "layer": 1, "head": 3})
    assert laid.location == {"kind": "ffn_in", "layer": 1}
    same = spectrum_at(EXAMPLE, layer=1, kind="ffn_in")
    assert (same.values == laid.spectrum.values).all()
    with pytest.raises(InputError, match="found 4 matrices, expected one"):
        spectrum_at(EXAMPLE, layer=1, kind="qk")


@pytest.mark.slow
def test_packages_are_asked_for_plugins_once(monkeypatch):
    from marimo._entrypoints import registry
    from marimo._runtime.executor.evaluator import resolve_executor

    asked = []
    monkeypatch.setattr(registry, "get_entry_points", lambda group: asked.append(group) or [])
    Application("learn", None, "token")
    resolve_executor()
    Application("learn", None, "token")
    resolve_executor()
    assert asked.count("marimo.cell.executor") == 1
