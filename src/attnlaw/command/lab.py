"""The command `attnlaw lab [PAGE] [PATH]`, which opens the lab in a browser."""

from __future__ import annotations

import importlib.util
import webbrowser
from collections.abc import Mapping
from functools import partial
from typing import ClassVar

from attnlaw.core.errors import InputError
from attnlaw.core.settings import Settings, setting, settings_dataclass
from attnlaw.render.charts.packages import PACKAGES
from attnlaw.render.terminal.console import print_message
from attnlaw.verbs import VERBS

server_setting = partial(setting, panel="Server")


@settings_dataclass
class Lab(Settings):
    """Explore a theory or a checkpoint with sliders, in a browser on this machine.

    The pages of theory, such as learn, limit and dynamics, need no PATH. The page of audit needs a
    checkpoint, or a directory that `attnlaw audit --out` wrote. Ctrl-C ends the lab. It needs the optional
    packages of attnlaw[lab].
    """

    examples: ClassVar[Mapping[str, str]] = {
        "attnlaw lab learn": "see how the error of a head depends on samples and noise",
        "attnlaw lab audit examples/tiny-decoder": "look at the spectra of a checkpoint",
    }

    page: str = setting(
        "learn",
        "Page to open in the browser, such as learn or audit.",
        positional=True,
        metavar="PAGE",
        choices=VERBS,
    )
    path: str | None = setting(
        None,
        "Checkpoint, or directory with results, that the page shows.",
        positional=True,
        is_path=True,
        metavar="PATH",
    )
    port: int | None = server_setting(
        None, "Port of the page (default: any free port).", minimum=1, maximum=65535
    )
    no_browser: bool = server_setting(False, "Only print the address; do not open a browser.")

    def execute(self) -> int:
        for package in ("marimo", *PACKAGES):
            if importlib.util.find_spec(package) is None:
                raise InputError(f"the lab needs {package}; install it with: pip install 'attnlaw[lab]'")
        from attnlaw.lab.serve import require_path, serve

        require_path(self.page, self.path)
        print_message("Starting the lab ...")

        def ready(address: str) -> None:
            print_message(f"The lab is at {address} (press Ctrl-C to stop it)")
            if not self.no_browser:
                webbrowser.open(address)  # does nothing if there is no browser

        serve(self.page, self.path, self.port, ready)
        return 0


COMMANDS = {"lab": Lab}
