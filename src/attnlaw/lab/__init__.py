"""The lab: a page with sliders for every verb, served on this machine and shown in a browser by marimo."""
