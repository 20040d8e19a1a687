"""Serve the pages on this machine, only at 127.0.0.1. No page contacts another machine."""

from __future__ import annotations

import socket
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

from attnlaw.core.errors import BadSetting, InputError
from attnlaw.core.result import MANIFEST
from attnlaw.lab.page_model import page_names, positional_settings
from attnlaw.numerics.threads import short_switch_interval
from attnlaw.render.pages.page import read_asset
from attnlaw.verbs import find_verb

HOST = "127.0.0.1"
PAGES = Path(__file__).parent / "pages"
# The page of any verb, and the pages of particular verbs.
DEFAULT_PAGE, CUSTOM_PAGES = "verb.py", {"audit": "audit.py"}
SCRIPT, STYLE = (Path(__file__).parent / "static" / name for name in ("lab.js", "lab.css"))


class Application:
    """All pages as one ASGI application.

    `page` is the page that opens first, and `path` is the model or file that it shows, or None.
    """

    def __init__(self, page: str, path: str | None = None) -> None:
        import marimo

        _cache_plugin_lookup()
        self.page, self.path = page, path
        self.apps: dict[str, Any] = {
            name: marimo.create_asgi_app(quiet=True, include_code=False, html_head=_html_head())
            .with_app(path=f"/{name}", root=str(PAGES / CUSTOM_PAGES.get(name, DEFAULT_PAGE)))
            .build()
            for name in dict.fromkeys([page, *page_names()])
        }

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        from starlette.responses import PlainTextResponse, RedirectResponse

        host = dict(scope["headers"]).get(b"host", b"").decode("latin-1").rpartition(":")[0]
        name = scope["path"].strip("/").partition("/")[0]
        if host not in (HOST, "localhost"):  # another name that resolves to this machine (DNS rebinding)
            await PlainTextResponse("not here", 400)(scope, receive, send)
        elif name in self.apps:
            arguments = {"name": name, "path": self.path if name == self.page else None}
            await self.apps[name](scope | {"meta": {"attnlaw": arguments}}, receive, send)
        else:
            await RedirectResponse(f"/{self.page}/")(scope, receive, send)

    async def close(self) -> None:
        """End the kernels of pages that are still open. Otherwise Python would wait for their threads."""
        for app in self.apps.values():
            for route in app.routes:
                state: Any = getattr(getattr(route, "app", None), "state", None)
                if hasattr(state, "session_manager"):
                    await state.session_manager.shutdown()


def _cache_plugin_lookup() -> None:
    """Make marimo read the metadata of installed packages only once, instead of each time that cells run.

    This patches an internal function of marimo. If a version does not have it, nothing is changed.
    """
    with suppress(ImportError, AttributeError):
        from marimo._entrypoints import registry

        if not hasattr(registry.get_entry_points, "cache_info"):
            registry.get_entry_points = cache(registry.get_entry_points)


def _html_head() -> str:
    # Variables are limited to the class .lab, because marimo has some with the same names.
    variables = read_asset("colours.css").replace(":root", ".lab")
    style = f"{variables}\n{STYLE.read_text(encoding='utf-8')}"
    return f"<style>{style}</style><script>{SCRIPT.read_text(encoding='utf-8')}</script>"


def require_path(page: str, path: str | None) -> None:
    """Raise a `BadSetting` if a page lacks the path that it needs, or gets one that it does not take."""
    needs = page not in page_names()
    if needs and path is None:
        remedy = f"attnlaw lab {page} {{path}}"
        raise BadSetting("path", f"is missing: the page of {page} looks at a file; {remedy}")
    if path is None:
        return
    if not needs:
        raise BadSetting("path", f"the page of {page} looks at no file; leave it out", path)
    verb = find_verb(page)
    if verb.precheck is not None and not (Path(path) / MANIFEST).is_file():
        for case in verb.cases({positional_settings(verb)[0]: path}):
            verb.precheck(case)


def open_socket(port: int | None) -> socket.socket:
    """Return a socket at the port. None chooses any free port."""
    server_socket = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    server_socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        server_socket.bind((HOST, port or 0))
    except OSError as error:
        server_socket.close()
        raise InputError(f"port {port}: cannot be used ({error.strerror}); choose another") from error
    return server_socket


def build_server(page: str, path: str | None, on_ready: Callable[[], None] = lambda: None) -> Any:
    """Return a server that calls `on_ready` when its pages answer. It ends without waiting for open pages."""
    import uvicorn

    app = Application(page, path)

    class Server(uvicorn.Server):
        async def startup(self, sockets: list[socket.socket] | None = None) -> None:
            await super().startup(sockets)
            on_ready()

        async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
            await app.close()
            await super().shutdown(sockets)

    options: dict[str, Any] = {"log_level": "error", "lifespan": "off", "timeout_graceful_shutdown": 1}
    # Compression is of no use on one machine.
    return Server(uvicorn.Config(app, ws_per_message_deflate=False, **options))


def serve(page: str, path: str | None, port: int | None, on_ready: Callable[[str], None]) -> None:
    """Serve the pages until Ctrl-C. Call `on_ready` with the address when they answer."""
    place = open_socket(port)
    address = f"http://{HOST}:{place.getsockname()[1]}/{page}/"
    with short_switch_interval():
        build_server(page, path, lambda: on_ready(address)).run([place])
