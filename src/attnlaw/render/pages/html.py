"""Jinja2 templates. Every value is escaped unless it is `Markup`, and a missing name is an error."""

from __future__ import annotations

from functools import cache
from importlib.resources import files
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined

PACKAGE = str(files("attnlaw"))
TEMPLATES = f"{PACKAGE}/render/pages/templates"


@cache
def environment() -> Environment:
    """Return the Jinja2 environment, which finds page.html in this folder and verbs/NAME/page.html."""
    return Environment(
        loader=FileSystemLoader([TEMPLATES, PACKAGE]),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )


def macros(template: str) -> Any:
    """Return the macros of a template as functions that return `Markup`."""
    return environment().get_template(template).module
