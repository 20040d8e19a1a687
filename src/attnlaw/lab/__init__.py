"""The lab: a page with sliders for every verb, in a browser, served on this machine.

Only the lab uses marimo.

| file | content |
|---|---|
| `controls` | turn declared settings into sliders, choices, switches and texts |
| `page_model` | the controls of a verb's page, its state, and the command and Python code for it |
| `widgets` | the controls as elements of marimo |
| `html` | results as HTML: charts, a table, the code that repeats them |
| `background` | a simulation in a thread that can be stopped |
| `spectrum_page` | the page of an audit: laws over the spectrum of one matrix |
| `pages/` | the marimo apps, which only place what the other files make |
| `serve` | all pages on 127.0.0.1 |
"""
