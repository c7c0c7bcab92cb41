"""Controls who reaches the dashboard: only this machine, unless the settings allow others.

Streamlit listens on every interface and answers to any name. Here it listens on this machine only,
and a middleware in front of pages and websockets refuses names that are not ours: a stranger's page
could otherwise act with the reader's browser, if its name points to this machine (DNS rebinding).
The middleware also keeps browsers from loading anything from elsewhere, and exchanges the token of
the secret link for a cookie, before any page has an address with the token.
"""

import socket
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from ipaddress import ip_address
from typing import Any
from urllib.parse import urlsplit

from starlette import datastructures
from starlette.responses import PlainTextResponse
from streamlit import config

from breakeven.runner.errors import SettingsUnusable
from breakeven.runner.logs import log
from breakeven.runner.settings import Settings, read_settings
from breakeven.views.access.accounts import is_other_account
from breakeven.views.access.secret_link_cookie import exchange_token
from breakeven.views.shared.resources import data_dir, one_more_reader

LOCAL_NAMES = ("localhost", "127.0.0.1", "::1")
FORWARDED = (
    "forwarded",
    "via",
    "x-forwarded-for",
    "x-forwarded-host",
    "x-forwarded-proto",
    "x-forwarded-server",
    "x-real-ip",
)
"""Headers that only a proxy adds."""
OTHER_ACCOUNT = (b"via", b"another account of this machine")
"""Header that marks a request of another account for later checks."""
UPLOADS = "/_stcore/upload_file"
HEADERS = {
    b"content-security-policy": (
        b"default-src 'self'; script-src 'self' 'unsafe-inline' 'unsafe-eval' blob:; "
        b"style-src 'self' 'unsafe-inline'; img-src 'self' data: blob:; font-src 'self' data:; "
        b"worker-src 'self' blob:; media-src 'self' blob: data:; connect-src 'self' data: blob:; "
        b"frame-src 'none'; object-src 'none'; base-uri 'self'; form-action 'self'; "
        b"frame-ancestors 'self'"
    ),
    b"cross-origin-opener-policy": b"same-origin",
    b"cross-origin-resource-policy": b"same-origin",
    b"referrer-policy": b"same-origin",
    b"x-content-type-options": b"nosniff",
}
"""These headers keep browsers from sending requests to other hosts, whatever a page contains."""
COMPONENTS, LASTING = "/component/", "version"
"""Streamlit gives files of components no lifetime; browsers may cache a file with its version in
the address permanently, or they would load plotly.js, 5 MB, with every page."""
FOREVER = {b"cache-control": b"public, max-age=31536000, immutable"}
Headers = Mapping[str, str]


def settings() -> Settings:
    """The current settings; raises `SettingsUnusable`."""
    return read_settings(data_dir().path)


def own_names() -> list[str]:
    """Host names from the settings, in small letters."""
    return [name.lower().rstrip(".") for name in settings().serving.hostnames]


def serves_others(headers: Iterable[str] = ()) -> bool:
    """Whether people on other machines may be able to reach the dashboard: it listens on another
    address or has another name, or the names of a request's `headers` show a proxy."""
    listens = not _is_local(config.get_option("server.address") or "")
    named = any(not _is_local(name) for name in own_names())
    return listens or named or any(name.lower() in FORWARDED for name in headers)


def comes_from_other_account(headers: Headers) -> bool:
    """Whether another account of this machine sent the request with these headers."""
    name, value = (part.decode() for part in OTHER_ACCOUNT)
    return headers.get(name) == value


def is_ours(host: str) -> bool:
    """Whether a request's `Host` is a name of ours. Nobody can point a number elsewhere, so every
    number is accepted if others are served."""
    name = _name_of(f"//{host}")
    if name is None:
        return False
    known = [*LOCAL_NAMES, *own_names()]
    if serves_others():
        machine = socket.gethostname().lower()
        known += [machine, f"{machine}.local"]
        if _is_number(name):
            return True
    return name in known


def may_come_from(origin: str, host: str) -> bool:
    """Whether a page of that origin may send us requests: a page of the requested address, or of a
    name that the operator set, without a port. A page of another port is another program's, to
    whose requests browsers add our cookies."""
    try:
        netloc = urlsplit(origin).netloc.lower()
    except ValueError:
        return False
    return netloc == host.lower() or netloc in own_names()


class RequestChecks:
    """ASGI middleware before the dashboard: refuses strangers, keeps browsers from other hosts.
    `may_upload` decides by the headers of a request whether it may upload files."""

    def __init__(self, app: Any, may_upload: Callable[[Headers], bool]) -> None:
        self.app, self.may_upload = app, may_upload

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] not in ("http", "websocket"):
            await self.app(scope, receive, send)
            return
        is_page, is_upload = scope["type"] == "websocket", UPLOADS in scope["path"]
        headers = _decoded(scope)
        try:
            status, problem = self._problem(scope, headers)
        except SettingsUnusable as error:
            log.error("all requests are refused: %s", error)
            status, problem = 503, "The dashboard stopped. Its administrator finds why in its log."
        acts = not problem and (is_page or is_upload) and not serves_others(headers)
        if acts and is_other_account(scope):
            scope = {**scope, "headers": [*scope["headers"], OTHER_ACCOUNT]}
            headers = _decoded(scope)
        if not problem and is_upload and not self.may_upload(headers):
            status, problem = 403, "This dashboard is for viewing only: it takes no files."
        if problem and is_page:
            await send({"type": "websocket.close", "code": 1008, "reason": ""})
        elif problem:
            refusal = PlainTextResponse(f"{problem}\n", status)
            await refusal(scope, receive, _with_headers(scope, send))
        elif is_page:
            with one_more_reader():
                await self.app(scope, receive, send)
        elif (exchanged := exchange_token(scope, headers)) is not None:
            await exchanged(scope, receive, _with_headers(scope, send))
        else:
            await self.app(scope, receive, _with_headers(scope, send))

    def _problem(self, scope: Any, headers: Headers) -> tuple[int, str]:
        """Status and reason if a request is refused; else an empty reason."""
        host = headers.get("host", "")
        if not is_ours(host):
            name = "If it is yours, name it in `hostnames` of breakeven.toml."
            return 403, f"Breakeven does not answer to this name. {name}"
        is_strangers = "origin" in headers and not may_come_from(headers["origin"], host)
        if is_strangers or (scope["type"] == "http" and _is_of_others(headers)):
            return 403, "Breakeven does not answer to pages of others."
        return 200, ""


def _with_headers(scope: Any, send: Any) -> Any:
    lasts = COMPONENTS in scope["path"] and f"{LASTING}=".encode() in scope["query_string"]

    async def sent(message: Any) -> None:
        if message["type"] == "http.response.start":
            added = {**HEADERS, **(FOREVER if lasts and message["status"] == 200 else {})}
            kept = [pair for pair in message.get("headers", ()) if pair[0] not in added]
            message = {**message, "headers": [*kept, *added.items()]}
        await send(message)

    return sent


def _is_of_others(headers: Headers) -> bool:
    """Whether a browser reports that another site's page sent the request, to load a picture, a
    script or a frame. Such a page cannot read the answer, but can see whether and when one comes,
    and can repeat the request. A followed link gets a page."""
    is_link = (
        headers.get("sec-fetch-mode") == "navigate" and headers.get("sec-fetch-dest") == "document"
    )
    return headers.get("sec-fetch-site") in ("cross-site", "same-site") and not is_link


def _decoded(scope: Any) -> Headers:
    """A request's headers by name; a repeated header gets both values, so that it matches no host
    or origin."""
    given = datastructures.Headers(scope=scope)
    return {name: ", ".join(given.getlist(name)) for name in given}


def _name_of(address: str) -> str | None:
    """The name or number of the host in an address, in small letters; None if invalid."""
    try:
        parts = urlsplit(address)
        _ = parts.port
    except ValueError:
        return None
    if parts.username or parts.password or parts.path or parts.query or parts.fragment:
        return None
    return parts.hostname and parts.hostname.lower().rstrip(".")


def _is_number(name: str) -> bool:
    with suppress(ValueError):
        return bool(ip_address(name))
    return False


def _is_local(name: str) -> bool:
    return name == "localhost" or (_is_number(name) and ip_address(name).is_loopback)
