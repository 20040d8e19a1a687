"""The lab: a page with sliders for every verb, served on this machine and shown in a browser.

Only the lab uses marimo.

| file | content |
|---|---|
| `controls` | sliders, choices, switches and texts for declared settings |
| `page_model` | the controls of a verb's page, its state, and the command and Python code for it |
| `widgets` | the controls as elements of marimo |
| `html` | results as HTML: charts, a table, the code that reproduces them |
| `curve` | the curve of a quantity against a slider, with the current value marked |
| `background` | a simulation in a thread that can be stopped |
| `spectrum_page` | the page of an audit: laws over the spectrum of one matrix |
| `pages/` | the marimo apps, which only arrange what the other files make |
| `serve` | the server of all pages on 127.0.0.1 |
"""
