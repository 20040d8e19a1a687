"""`attnlaw lab [PAGE] [PATH]`: the lab in a browser."""

from __future__ import annotations

import importlib.util
import webbrowser

from attnlaw.base.errors import InputError
from attnlaw.base.settings import Settings, setting, settings
from attnlaw.verbs import VERBS


@settings
class Lab(Settings):
    """Theory under sliders, in a browser, on this machine alone; Ctrl-C ends it. Needs the extra lab.

    Pages of theory (learn, limit, dynamics) need no path. That of audit takes what `attnlaw audit --out`
    wrote, or a checkpoint, those of other verbs what their commands take.
    """

    page: str = setting(
        "learn", "The verb whose page is opened.", positional=True, metavar="PAGE", choices=VERBS
    )
    path: str | None = setting(
        None, "What the verb is to look at.", positional=True, file=True, metavar="PATH"
    )
    port: int | None = setting(None, "The port, else one that is free.", least=1, most=65535)
    no_browser: bool = setting(False, "Print the address and open nothing.")


def lab(asked: Lab) -> int:
    from attnlaw.command.console import say

    if importlib.util.find_spec("marimo") is None:
        raise InputError("the lab needs marimo; install it with: pip install 'attnlaw[lab]'")
    from attnlaw.lab.serve import require_path, serve

    require_path(asked.page, asked.path)

    def ready(address: str) -> None:
        say(f"the lab is at {address} (Ctrl-C ends it)")
        if not asked.no_browser and has_browser():
            webbrowser.open(address)

    serve(asked.page, asked.path, asked.port, ready)
    return 0


def has_browser() -> bool:
    """Whether this machine has a browser to open."""
    try:
        webbrowser.get()
    except webbrowser.Error:
        return False
    return True


COMMANDS = {"lab": (Lab, lab)}
