# /// script
# [tool.marimo.display]
# theme = "system"
# ///
"""The page of an audit: the user chooses a matrix of a model and sees laws over its spectrum."""

import marimo

app = marimo.App(width="full", app_title="attnlaw lab")


@app.cell
def _():
    import marimo as mo

    from attnlaw.core.errors import InputError
    from attnlaw.lab import html as shown
    from attnlaw.lab import spectrum_page as heads
    from attnlaw.lab import widgets
    from attnlaw.lab.page_model import PageModel

    arguments = mo.app_meta().request.meta["attnlaw"]
    return PageModel, InputError, heads, mo, shown, arguments, widgets


@app.cell
def _(PageModel, mo, arguments, shown):
    mo.Html(shown.head_html(PageModel.of(**arguments)))
    return


@app.cell
def _(InputError, heads, mo, shown, arguments):
    try:
        audited, _error = heads.AuditedModel.from_source(arguments["path"]), ""
    except InputError as error:
        audited, _error = None, shown.error_html(error)
    mo.Html(_error)
    return (audited,)


@app.cell
def _(mo):
    changed, set_changed = mo.state(None)
    return changed, set_changed


@app.cell
def _(audited, mo, set_changed, widgets):
    mo.stop(audited is None)
    panel = widgets.Panel(audited.controls, set_changed)
    mo.Html(panel.aside_html())
    return (panel,)


@app.cell
def _(InputError, changed, audited, heads, mo, panel, shown):
    def _page():
        changed()
        try:
            return heads.fitted_spectrum_html(audited.state(panel.values))
        except InputError as error:
            return shown.error_html(error)

    mo.Html(_page())
    return


if __name__ == "__main__":
    app.run()
