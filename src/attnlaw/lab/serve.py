"""Serve the pages on this machine, only at 127.0.0.1, without contact to other machines. As other pages and
users can connect to that address too, every path starts with a random token that only attnlaw prints."""

from __future__ import annotations

import secrets
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
HOST_NAMES = (HOST, "localhost")
TOKEN_BYTES = 24
POLICY_VIOLATION = 1008  # the code that closes a WebSocket
READS = ("GET", "HEAD")  # requests that change nothing
PAGES = Path(__file__).parent / "pages"
# The page of any verb, and the pages of particular verbs.
DEFAULT_PAGE, CUSTOM_PAGES = "verb.py", {"audit": "audit.py"}
SCRIPT, STYLE = (Path(__file__).parent / "static" / name for name in ("lab.js", "lab.css"))


class Application:
    """All pages of the lab as one ASGI application.

    `page` opens first, and `path` is the model or file on this page, or None. Every address begins with
    `token`.
    """

    def __init__(self, page: str, path: str | None, token: str) -> None:
        import marimo

        _cache_plugin_lookup()
        self.page, self.path, self.token = page, path, token
        self.apps: dict[str, Any] = {
            name: marimo.create_asgi_app(quiet=True, include_code=False, html_head=_html_head())
            .with_app(path=f"/{token}/{name}", root=str(PAGES / CUSTOM_PAGES.get(name, DEFAULT_PAGE)))
            .build()
            for name in dict.fromkeys([page, *page_names()])
        }

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        from starlette.responses import PlainTextResponse, RedirectResponse

        refusal = self._refuse(scope)
        name = scope["path"].strip("/").partition("/")[2].partition("/")[0]
        if scope["type"] == "websocket" and (refusal is not None or name not in self.apps):
            await send({"type": "websocket.close", "code": POLICY_VIOLATION})
        elif refusal is not None:
            await PlainTextResponse(f"{refusal}\n", 403)(scope, receive, send)
        elif name in self.apps:
            arguments = {"name": name, "path": self.path if name == self.page else None}
            await self.apps[name](scope | {"meta": {"attnlaw": arguments}}, receive, send)
        else:
            await RedirectResponse(f"/{self.token}/{self.page}/")(scope, receive, send)

    def _refuse(self, scope: Any) -> str | None:
        """Return why a request must not be answered, or None if it has the token and comes from the lab."""
        token = scope["path"].strip("/").partition("/")[0].encode(errors="replace")
        if not secrets.compare_digest(token, self.token.encode()):
            return "this address has no valid token; open the complete address that attnlaw printed"
        return refuse_headers(scope)

    async def close(self) -> None:
        """Stop the kernels of pages that are still open. Python would wait for their threads."""
        for app in self.apps.values():
            for route in app.routes:
                state: Any = getattr(getattr(route, "app", None), "state", None)
                if hasattr(state, "session_manager"):
                    await state.session_manager.shutdown()


def refuse_headers(scope: Any) -> str | None:
    """Return why a request does not come from a page of the lab, or None if it does.

    For a WebSocket or a POST request, the browser names the page's site in the header Origin. This site must
    be the address of the request, including the port. The lab accepts only this machine's host names, because
    a foreign site may have its name resolve to this machine (DNS rebinding).
    """
    headers = {name: value.decode("latin-1") for name, value in scope["headers"]}
    host = headers.get(b"host", "")
    if host.rpartition(":")[0] not in HOST_NAMES:
        return (
            "the lab only answers requests to 127.0.0.1 and localhost; open the address that attnlaw printed"
        )
    if scope["type"] == "http" and scope["method"] in READS:
        return None
    origins = [value for name, value in scope["headers"] if name == b"origin"]
    if origins != [f"http://{host}".encode("latin-1")]:
        return "only the lab's pages may open a WebSocket or send a POST request here"
    return None


def page_address(place: socket.socket, token: str, name: str) -> str:
    """Return the address of a page. `place` is the server's socket."""
    return f"http://{HOST}:{place.getsockname()[1]}/{token}/{name}/"


def _cache_plugin_lookup() -> None:
    """Make marimo read the metadata of packages only once, instead of each time that cells run."""
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
    """Raise a `BadSetting` if a page needs a path and has none, or has a path that it does not need."""
    needs = page not in page_names()
    if needs and path is None:
        remedy = f"attnlaw lab {page} {{path}}"
        raise BadSetting("path", f"is missing: the page of {page} needs a file. Type: {remedy}")
    if path is None:
        return
    if not needs:
        raise BadSetting("path", f"the page of {page} does not use a file; leave it out", path)
    verb = find_verb(page)
    if verb.precheck is not None and not (Path(path) / MANIFEST).is_file():
        for case in verb.cases({positional_settings(verb)[0]: path}):
            verb.precheck(case)


def open_socket(port: int | None) -> socket.socket:
    """Return a socket that listens on the port. None means any free port."""
    server_socket = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    server_socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        server_socket.bind((HOST, port or 0))
    except OSError as error:
        server_socket.close()
        raise InputError(
            f"port {port}: attnlaw cannot use this port ({error.strerror}); choose another port"
        ) from error
    return server_socket


def build_server(page: str, path: str | None, token: str, on_ready: Callable[[], None]) -> Any:
    """Return a server that calls `on_ready` when its pages answer, and stops without waiting for them."""
    import uvicorn

    app = Application(page, path, token)

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
    """Serve the pages until Ctrl-C. Once the pages answer, call `on_ready` with the address."""
    place, token = open_socket(port), secrets.token_urlsafe(TOKEN_BYTES)
    address = page_address(place, token, page)
    with short_switch_interval():
        build_server(page, path, token, lambda: on_ready(address)).run([place])
