"""The lab: theory that moves under a slider. A page for every verb, in a browser, served on this machine.

| file | idea |
|---|---|
| `controls` | declared settings -> sliders, choices, switches, texts |
| `state` | what controls say -> settings, and the words that repeat them in Python and on the command line |
| `html` | results -> HTML: charts, a table, those words |
| `page_model`, `widgets` | the controls of a page and their elements |
| `training` | a simulation in the background, which can be stopped |
| `spectrum_page` | a head of a model, laws over its spectrum |
| `pages/` | the marimo apps: they hold what is on the page, and nothing else |
| `serve` | all pages on 127.0.0.1 |

marimo lives here only.
"""
