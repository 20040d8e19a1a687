# /// script
# [tool.marimo.display]
# theme = "system"
# ///
"""The page of any verb: controls for its settings, its charts and numbers, and its simulation."""

import marimo

app = marimo.App(width="full", app_title="attnlaw lab")


@app.cell
def _():
    from dataclasses import replace

    import marimo as mo

    from attnlaw.core.errors import InputError
    from attnlaw.lab import html as shown
    from attnlaw.lab import widgets
    from attnlaw.lab.background import BackgroundSimulation
    from attnlaw.lab.page_model import PageModel

    desk = PageModel.of(**mo.app_meta().request.meta["attnlaw"])
    return InputError, BackgroundSimulation, desk, mo, replace, shown, widgets


@app.cell
def _(mo):
    changed, set_changed = mo.state(None)
    return changed, set_changed


@app.cell
def _(desk, mo, shown):
    mo.Html(shown.head_html(desk))
    return


@app.cell
def _(desk, mo, set_changed, widgets):
    panel = widgets.Panel(desk.controls, set_changed, slow=desk.verb.is_random)
    mo.Html(panel.aside_html())
    return (panel,)


@app.cell
def _():
    runs = []  # what the start button started
    return (runs,)


@app.cell
def _(changed, desk, mo, panel, shown):
    changed()
    values = panel.values
    mo.Html(shown.idle_style(desk.idle(values), {name for name in values if values[name] is None}))
    return (values,)


@app.cell
def _(mo):
    trained, set_trained = mo.state(None)
    return set_trained, trained


@app.cell
def _(InputError, desk, mo, replace, shown, trained, values):
    def _found():
        """Return the state of the page and its result. If a setting is wrong, return None and the error."""
        try:
            state, run = desk.state(values), trained()
            if run is None or run.state.arguments != state.arguments:
                return state, shown.solve(state)
            return run.state, replace(shown.solve(state), simulation=run.result)
        except InputError as error:
            return None, error

    state, result = _found()
    mo.Html(shown.charts_html(result, state))
    return result, state


@app.cell
def _(desk, mo, widgets):
    beside = widgets.Panel(desk.simulation_controls, lambda values: None, slow=True)
    start, stop = mo.ui.run_button(label="Start"), mo.ui.run_button(label="Stop")
    mo.Html(
        beside.simulation_html(desk.verb.simulation.title, start, stop) if desk.simulation_controls else ""
    )
    return beside, start, stop


@app.cell
def _(InputError, BackgroundSimulation, beside, desk, mo, panel, runs, shown, start, stop):
    def _pressed():
        """Start or stop the simulation. Return a clock if it started, and an error message."""
        if stop.value or start.value:
            for run in runs:
                run.stop()
        if not start.value:
            return None, ""
        try:
            runs[:] = [BackgroundSimulation(desk.state(panel.values, beside.values))]
        except InputError as error:
            return None, shown.error_html(error)
        return mo.ui.refresh(default_interval="0.5s"), ""

    clock, _error = _pressed()
    mo.Html(_error)
    return (clock,)


@app.cell
def _(clock, mo, runs, set_trained, shown):
    def _status():
        if not runs:
            return ""
        run = runs[-1]
        if run.is_over and run.result is not None:
            set_trained(run)
        return shown.progress_html(run, clock)

    mo.Html(_status())
    return


@app.cell
def _(mo, result, shown, state):
    mo.Html(shown.numbers_html(state, result))
    return


if __name__ == "__main__":
    app.run()
