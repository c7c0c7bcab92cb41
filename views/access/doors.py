"""Who reaches the dashboard: this machine alone, unless whoever starts it says otherwise.

Streamlit listens on every interface and answers to any name. Here it listens on this machine alone,
and a middleware in front of everything, pages and websocket alike, refuses names that are not ours:
a page of a stranger, whose name he has pointed to this machine (DNS rebinding), would otherwise
act with the reader's browser. It also has browsers load nothing from anywhere else.

What people may do who are let in, `views/access/permissions.py` decides.
"""

import errno
import os
import socket
from collections.abc import Iterable, Mapping
from ipaddress import ip_address
from typing import Any
from urllib.parse import urlsplit

from streamlit import config

from breakeven.runner.logs import log
from breakeven.views.access import team
from breakeven.views.access.accounts import is_anothers

HOST_VARIABLE = "BREAKEVEN_HOST"
"""The address to listen on: `0.0.0.0` for all of this machine's; by default this machine alone."""
PORT_VARIABLE = "BREAKEVEN_PORT"
NAMES_VARIABLE = "BREAKEVEN_HOSTNAMES"
"""Names under which others reach the dashboard, as through a proxy, separated by commas."""
PORTS = {"http": 80, "https": 443}
LOOPBACK = "127.0.0.1"
LOCAL_NAMES = ("localhost", "127.0.0.1", "::1")
FORWARDED = (
    "forwarded", "via", "x-forwarded-for", "x-forwarded-host", "x-forwarded-proto",
    "x-forwarded-server", "x-real-ip",
)  # fmt: skip
"""Headers by which a proxy gives itself away."""
ANOTHERS = (b"via", b"another account of this machine")
"""Marks a request as one of others, to whatever asks later."""
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
"""Whatever a page says, no browser asks another host because of it."""


def address() -> str:
    """The address to listen on."""
    return os.environ.get(HOST_VARIABLE) or LOOPBACK


def port() -> int:
    """The port to listen on."""
    return int(os.environ.get(PORT_VARIABLE) or 8501)


def own_names() -> list[str]:
    """The names that the operator gave, in small letters."""
    given = os.environ.get(NAMES_VARIABLE, "")
    names = [name.strip().lower().rstrip(".") for name in given.split(",") if name.strip()]
    known = team.current()
    return names if known is None or known.name in names else [known.name, *names]


def hold_the_other_loopback() -> socket.socket | None:
    """Takes our port on ::1, where we answer nobody; None where we listen elsewhere.

    `localhost` is both addresses, and browsers try ::1 first. Another account that listened there
    would be shown for us, and its page would be one of ours to us.
    """
    if address() != LOOPBACK:
        return None
    held = socket.socket(socket.AF_INET6)
    try:
        held.bind(("::1", port()))
    except OSError as error:
        held.close()
        if error.errno == errno.EADDRINUSE:
            log.warning("somebody else listens on [::1]:%s: open http://%s:%s instead of localhost",
                        port(), LOOPBACK, port())  # fmt: skip
        return None
    return held


def serves_others(headers: Iterable[str] = ()) -> bool:
    """Whether people on other machines can reach the dashboard, for all that can be known: it has
    people sign in, it listens for them, it has a name for them, or, by the names of the `headers`
    of a request, this request came through a proxy."""
    listens = not _is_local(config.get_option("server.address") or "")
    named = any(not _is_local(name) for name in own_names())
    return team.is_asked() or listens or named or any(name.lower() in FORWARDED for name in headers)


def are_anothers(headers: Mapping[str, str]) -> bool:
    """Whether they are of a request that another account of this machine sent."""
    name, value = (one.decode() for one in ANOTHERS)
    return headers.get(name) == value


def is_ours(host: str) -> bool:
    """Whether a request's `Host` is a name of ours.

    A number cannot be pointed anywhere, so where others are served every one is taken.
    """
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
    """Whether a page of that origin may speak to us: our own, or one of the operator's names. Where
    people sign in, theirs alone: browsers send cookies of a name to all of its ports."""
    known = team.current()
    if known is not None:
        return _origin(origin) == _origin(known.address)
    return urlsplit(origin).netloc.lower() == host.lower() or _name_of(origin) in own_names()


class Doors:
    """ASGI middleware in front of the dashboard: refuses strangers' names, tells browsers to stay.

    `may_upload` says by the names of a request's headers whether files are taken; where people sign
    in, `SignIn` does.
    """

    def __init__(self, app: Any, may_upload: Any) -> None:
        self.app, self.may_upload = app, may_upload

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] not in ("http", "websocket"):
            await self.app(scope, receive, send)
            return
        names = [name.decode("latin-1").lower() for name, _ in scope["headers"]]
        acts = scope["type"] == "websocket" or UPLOADS in scope["path"]
        problem = self._problem(scope)
        if problem:
            await _refuse(scope["type"], problem, send)
            return
        if acts and not serves_others(names) and is_anothers(scope):
            scope = {**scope, "headers": [*scope["headers"], ANOTHERS]}
            names.append(ANOTHERS[0].decode())
        if UPLOADS in scope["path"] and not team.is_asked() and not self.may_upload(names):
            await _refuse(
                scope["type"], "This dashboard is for viewing only: it takes no files.\n", send
            )
            return

        async def send_with_headers(message: Any) -> None:
            if message["type"] == "http.response.start":
                kept = [pair for pair in message.get("headers", ()) if pair[0] not in HEADERS]
                message = {**message, "headers": [*kept, *HEADERS.items()]}
            await send(message)

        await self.app(scope, receive, send_with_headers)

    def _problem(self, scope: Any) -> str:
        """Why a request is refused; empty where it is not."""
        headers = [(name.decode("latin-1").lower(), value.decode("latin-1"))
                   for name, value in scope["headers"]]  # fmt: skip
        hosts = [value for name, value in headers if name == "host"]
        origins = [value for name, value in headers if name == "origin"]
        if len(hosts) != 1 or not is_ours(hosts[0]):
            return (
                f"Breakeven does not answer to this name. If it is yours, start it with the name "
                f"in {NAMES_VARIABLE}.\n"
            )
        if any(not may_come_from(origin, hosts[0]) for origin in origins):
            return "Breakeven does not answer to pages of others.\n"
        if scope["type"] == "http" and _is_of_others(dict(headers)):
            return "Breakeven does not answer to pages of others.\n"
        return ""


def _is_of_others(headers: Mapping[str, str]) -> bool:
    """Whether a browser says that a page of somebody else asks, to have what comes in a picture, a
    script or a frame. It could not read it, but see whether it is there, how long it took, and have
    it made over and over. Whoever follows a link gets a page."""
    is_link = (
        headers.get("sec-fetch-mode") == "navigate" and headers.get("sec-fetch-dest") == "document"
    )
    return headers.get("sec-fetch-site") in ("cross-site", "same-site") and not is_link


async def _refuse(kind: str, problem: str, send: Any) -> None:
    if kind == "websocket":
        await send({"type": "websocket.close", "code": 1008, "reason": ""})
        return
    headers = [(b"content-type", b"text/plain; charset=utf-8"), *HEADERS.items()]
    await send({"type": "http.response.start", "status": 403, "headers": headers})
    await send({"type": "http.response.body", "body": problem.encode()})


def _name_of(address: str) -> str | None:
    """The name or number of the host in an address, in small letters; None for nonsense."""
    try:
        parts = urlsplit(address)
        _ = parts.port
    except ValueError:
        return None
    if parts.username or parts.password or parts.path or parts.query or parts.fragment:
        return None
    return parts.hostname and parts.hostname.lower().rstrip(".")


def _origin(address: str) -> tuple[str, str | None, int | None]:
    """Scheme, name and port, which is left out where it is the scheme's own."""
    try:
        parts = urlsplit(address.lower())
        return parts.scheme, parts.hostname, parts.port or PORTS.get(parts.scheme)
    except ValueError:
        return "", None, None


def _is_number(name: str) -> bool:
    try:
        ip_address(name)
    except ValueError:
        return False
    return True


def _is_local(name: str) -> bool:
    return name == "localhost" or (_is_number(name) and ip_address(name).is_loopback)
