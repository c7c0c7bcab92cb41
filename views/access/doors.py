"""Controls who reaches the dashboard: only this machine, unless the settings allow others.

Streamlit listens on every interface and answers to any name. Here it listens on this machine only,
and a middleware in front of pages and websockets refuses names that are not ours: a stranger's page
could otherwise act with the reader's browser, if its name points to this machine (DNS rebinding).
The middleware also keeps browsers from loading anything from elsewhere, and exchanges the token of
the secret link for a cookie, before any page has an address with the token.
"""

import os
import socket
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from ipaddress import ip_address
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, quote, urlencode, urlsplit

from starlette import datastructures
from starlette.responses import PlainTextResponse, RedirectResponse, Response
from streamlit import config

from breakeven.runner import secret_link
from breakeven.runner.errors import SettingsUnusable
from breakeven.runner.logs import log
from breakeven.runner.settings import Settings, read_settings
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
WRONG_LINK = "This link is not valid, or not any more: `breakeven token` prints the present one."
COOKIE_SECONDS = 30 * 86400
NOT_STORED = {"cache-control": "no-store"}
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


class Doors:
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
        elif (exchanged := _exchanged(scope, headers)) is not None:
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


def _exchanged(scope: Any, headers: Headers) -> Response | None:
    """The answer to a request with the token of the secret link: a cookie, and the same address
    without the token. None for a request without a token."""
    query = parse_qsl(scope["query_string"].decode("latin-1"), keep_blank_values=True)
    tokens = [value for name, value in query if name == secret_link.PARAMETER]
    if not tokens or scope["method"] != "GET":
        return None
    token = secret_link.read(data_dir())
    if token is None or not all(secret_link.is_same(token, given) for given in tokens):
        return PlainTextResponse(f"{WRONG_LINK}\n", 403)
    kept = urlencode([pair for pair in query if pair[0] != secret_link.PARAMETER])
    # Two slashes in front would be the name of another host.
    path = "/" + quote(scope["path"]).lstrip("/")
    answer = RedirectResponse(f"{path}?{kept}" if kept else path, 303, NOT_STORED)
    is_encrypted = "https" in (scope.get("scheme"), headers.get("x-forwarded-proto"))
    answer.set_cookie(
        secret_link.cookie_name(token),
        token,
        max_age=COOKIE_SECONDS,
        secure=is_encrypted,
        httponly=True,
        samesite="strict",
    )
    return answer


def has_secret(headers: Headers) -> bool:
    """Whether a request has the cookie of the secret link. Of several cookies of its name one must
    be right: another program of this host can add cookies, and could otherwise lock people out."""
    token = secret_link.read(data_dir())
    if token is None:
        return False
    cookies = (cookie.partition("=") for cookie in headers.get("cookie", "").split(";"))
    values = [value for name, _, value in cookies if name.strip() == secret_link.cookie_name(token)]
    return any([secret_link.is_same(token, value) for value in values])


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


TABLES = (Path("/proc/net/tcp"), Path("/proc/net/tcp6"))
LISTENS = "0A"
ROOT = 0
NOBODYS = "0"
"""The inode number that Linux lists for a closed connection, whose owner is unknown."""


def is_other_account(scope: Any) -> bool:
    """Whether a request comes from an account other than ours or root, or from a closed connection.
    False if the system does not list owners. If several connections have these two ports, all must
    be ours."""
    client, server = scope.get("client"), scope.get("server")
    rows = [row for table in TABLES for row in _rows(table)]
    is_listed = server and any(row[3] == LISTENS and _port(row[1]) == server[1] for row in rows)
    if not client or not is_listed:
        return False
    ends = client[1], server[1]
    owners = {
        int(row[7]) for row in rows if (_port(row[1]), _port(row[2])) == ends and row[9] != NOBODYS
    }
    return not owners or not owners <= {os.getuid(), ROOT}


def _rows(table: Path) -> list[list[str]]:
    try:
        return [line.split() for line in table.read_text().splitlines()[1:]]
    except OSError:  # Only Linux has them.
        return []


def _port(end: str) -> int:
    """The port of `0100007F:1F90`."""
    return int(end.partition(":")[2], 16)
