"""The command `attnlaw lab [PAGE] [PATH]`, which opens the lab in a browser."""

from __future__ import annotations

import importlib.util
import webbrowser

from attnlaw.core.errors import InputError
from attnlaw.core.settings import Settings, setting, settings_dataclass
from attnlaw.render.terminal.console import print_message
from attnlaw.verbs import VERBS


@settings_dataclass
class Lab(Settings):
    """Explore theory with sliders, in a browser on this machine; Ctrl-C ends it. Needs the extra lab.

    The pages of learn, limit and dynamics need no path. The page of audit takes a checkpoint, or a directory
    that `attnlaw audit --out` wrote. Other pages take what their commands take.
    """

    page: str = setting(
        "learn", "The verb whose page is opened.", positional=True, metavar="PAGE", choices=VERBS
    )
    path: str | None = setting(
        None, "What the verb is to look at.", positional=True, is_path=True, metavar="PATH"
    )
    port: int | None = setting(None, "The port, else one that is free.", minimum=1, maximum=65535)
    no_browser: bool = setting(False, "Print the address and open nothing.")

    def execute(self) -> int:
        if importlib.util.find_spec("marimo") is None:
            raise InputError("the lab needs marimo; install it with: pip install 'attnlaw[lab]'")
        from attnlaw.lab.serve import require_path, serve

        require_path(self.page, self.path)

        def ready(address: str) -> None:
            print_message(f"the lab is at {address} (Ctrl-C ends it)")
            if not self.no_browser:
                webbrowser.open(address)  # does nothing if there is no browser

        serve(self.page, self.path, self.port, ready)
        return 0


COMMANDS = {"lab": Lab}
