"""Controls who reaches the dashboard: only this machine, unless the settings allow others.

Streamlit listens on every interface and answers to any name. Here it listens on this machine only,
and a middleware in front of pages and websockets refuses names that are not ours: a stranger's page
could otherwise act with the reader's browser, if its name points to this machine (DNS rebinding).
The middleware also keeps browsers from loading anything from elsewhere.

With a sign-in, a proxy authenticates people and passes on the claims of their identity provider.
The dashboard believes it because only the proxy reaches the Unix socket on which it then listens.
"""

import base64
import os
import re
import socket
import stat
import string
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from enum import StrEnum
from ipaddress import ip_address
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from starlette import datastructures
from starlette.responses import PlainTextResponse
from streamlit import config

from breakeven.runner.errors import SettingsUnusable
from breakeven.runner.logs import log
from breakeven.runner.settings import EVERYBODY, Settings, Team, read_settings
from breakeven.runner.texts import read_json
from breakeven.views.shared.resources import data_dir, one_more_reader

LONGEST_CLAIM = 200
TOKEN = re.compile(r"[\w-]+\.(?P<payload>[\w-]+)\.[\w-]*", re.ASCII)
SMALL = str.maketrans(string.ascii_uppercase, string.ascii_lowercase)


class Role(StrEnum):
    VIEWER = "viewer"
    OPERATOR = "operator"


class Person(NamedTuple):
    """A person who signed in."""

    subject: str
    name: str
    """The verified address, or else `subject` and the subject, so that nobody passes for an
    address. Characters outside ASCII are escaped, because they can look like the letters of another
    name."""
    role: Role | None


def person_of_token(token: str, team: Team) -> Person | None:
    """The person of an ID token with the role that they have now; None without a role. The proxy
    has checked signature, issuer and age."""
    parts = TOKEN.fullmatch(token)
    if parts is None:
        return None
    payload = parts["payload"]
    try:
        claims = read_json(base64.urlsafe_b64decode(payload + "=" * (-len(payload) % 4)))
    except ValueError:
        return None
    subject = claims.get("sub") if isinstance(claims, dict) else None
    if not isinstance(subject, str) or not subject:
        return None
    name = address_of(claims, team) or f"subject {subject}"
    return Person(subject=subject[:LONGEST_CLAIM], name=ascii(name[:LONGEST_CLAIM])[1:-1],
                  role=role_of(claims, team))  # fmt: skip


def role_of(claims: Mapping[str, Any], team: Team) -> Role | None:
    """The role that a person has according to the provider's claims; None means no access."""
    subject, email = (claims.get(name) for name in ("sub", "email"))
    # A blocked address blocks its person, verified or not.
    if _folded(one for one in (subject, email) if isinstance(one, str)) & _folded(team.blocked):
        return None
    # A subject may look like somebody's address, and an address like somebody's subject.
    known_as = {subject} if isinstance(subject, str) and "@" not in subject else set()
    address = address_of(claims, team)
    known_as |= _folded([address] if address else [])
    groups = _texts(claims, team.claim)
    for role, people in ((Role.OPERATOR, team.operators), (Role.VIEWER, team.viewers)):
        named = _folded(people.members)
        if known_as & named or EVERYBODY in named or groups & set(people.groups):
            return role
    return None


def address_of(claims: Mapping[str, Any], team: Team) -> str | None:
    """The person's address, if the provider has verified it."""
    email, verified = claims.get("email"), claims.get("email_verified")
    is_verified = verified is True or (verified is None and team.trust_emails)
    return email if is_verified and isinstance(email, str) and "@" in email else None


def _folded(names: Iterable[str]) -> set[str]:
    """Addresses with ASCII letters in lower case (other letters can become those of another
    address); subjects, which have no `@`, unchanged."""
    return {name.translate(SMALL) if "@" in name else name for name in names}


def _texts(claims: Mapping[str, Any], path: str) -> set[str]:
    """The texts of a claim, which is a text or a list of texts; other values are ignored."""
    value: Any = claims.get(path)
    if value is None:
        value = claims
        for name in path.split("."):
            value = value.get(name) if isinstance(value, dict) else None
    values = value if isinstance(value, list) else [value]
    return {one for one in values if isinstance(one, str) and one}


LOOPBACK = "127.0.0.1"
LOCAL_NAMES = ("localhost", "127.0.0.1", "::1")
FORWARDED = (
    "forwarded", "via", "x-forwarded-for", "x-forwarded-host", "x-forwarded-proto",
    "x-forwarded-server", "x-real-ip",
)  # fmt: skip
"""Headers that only a proxy adds."""
ANOTHERS = (b"via", b"another account of this machine")
"""Header that marks a request of another account for later checks."""
UPLOADS = "/_stcore/upload_file"
WITHOUT_PERSON = ("/healthz", "/metrics", "/_stcore/health")
"""Paths that the proxy may request without a person; its configuration decides for whom."""
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
PAGE_SECONDS = 12 * 3600.0
"""Seconds until an open page has to reconnect, past the proxy's sign-in."""
Headers = Mapping[str, str]


def settings() -> Settings:
    """The current settings; raises `SettingsUnusable`."""
    return read_settings(data_dir().path)


def has_sign_in() -> bool:
    """Whether people sign in: the dashboard listens on a Unix socket."""
    return settings().serving.host.startswith("/")


def own_names() -> list[str]:
    """Host names from the settings, in small letters."""
    return [name.lower().rstrip(".") for name in settings().serving.hostnames]


def open_socket() -> socket.socket:
    """The Unix socket to listen on; only this account and the group of its folder can reach it.
    Raises `SettingsUnusable` if others can reach the folder, and pretend to be the proxy."""
    path = Path(settings().serving.host)
    try:
        folder = path.parent.stat()
        is_ours = folder.st_uid in (os.getuid(), 0)
        if not is_ours or folder.st_mode & (stat.S_IWGRP | stat.S_IRWXO):
            raise SettingsUnusable(f"{path.parent} must be this account's and closed to others, "
                                   "who could pretend to be the proxy: chmod 710")  # fmt: skip
        path.unlink(missing_ok=True)
        opened = socket.socket(socket.AF_UNIX)
        opened.bind(str(path))
        os.chown(path, -1, folder.st_gid)
        path.chmod(0o660)
    except OSError as error:
        raise SettingsUnusable(f"{path} cannot be listened on: {error}") from None
    return opened


def serves_others(headers: Iterable[str] = ()) -> bool:
    """Whether people on other machines may be able to reach the dashboard: people sign in, it
    listens on another address or has another name, or the names of a request's `headers` show a
    proxy."""
    listens = has_sign_in() or not _is_local(config.get_option("server.address") or "")
    named = any(not _is_local(name) for name in own_names())
    return listens or named or any(name.lower() in FORWARDED for name in headers)


def comes_from_other_account(headers: Headers) -> bool:
    """Whether another account of this machine sent the request with these headers."""
    name, value = (one.decode() for one in ANOTHERS)
    return headers.get(name) == value


def person_of(headers: Headers) -> Person | None:
    """The sender of a request, from the ID token that the proxy adds; None without a valid
    token."""
    given = headers.get("authorization") or ""
    if not has_sign_in():
        return None
    return person_of_token(given.removeprefix("Bearer "), settings().team)


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
    """Whether a page of that origin may send us requests: a page of ours, or of a name that the
    operator set. With a sign-in, the origin must be exactly the requested address, encrypted,
    because browsers send the cookies of a name to all of its ports."""
    if has_sign_in():
        return origin.lower() == f"https://{host}".lower()
    return urlsplit(origin).netloc.lower() == host.lower() or _name_of(origin) in own_names()


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
            scope = {**scope, "headers": [*scope["headers"], ANOTHERS]}
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
                await self.app(scope, *_watched(headers, receive, send))
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
        if has_sign_in() and scope["path"] not in WITHOUT_PERSON:
            person = person_of(headers)
            if person is None:
                return 401, "Sign in to see what runs here."
            if person.role is None:
                who = f"{person.name} may not look at this dashboard."
                return 403, f"{who} Its administrator can allow that."
        return 200, ""


def _watched(headers: Headers, receive: Any, send: Any) -> tuple[Any, Any]:
    """A page's connection, which is closed when its reader's role changes, or after
    `PAGE_SECONDS`."""
    began, whose, is_cut = time.monotonic(), person_of(headers), False

    async def received() -> Any:
        nonlocal is_cut
        message = await receive()
        is_over = time.monotonic() - began > PAGE_SECONDS or person_of(headers) != whose
        if has_sign_in() and is_over and not is_cut:
            await send({"type": "websocket.close", "code": 4401, "reason": ""})
            is_cut = True
        return {"type": "websocket.disconnect", "code": 4401} if is_cut else message

    async def sent(message: Any) -> None:
        if not is_cut:
            await send(message)

    return received, sent


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
    """A request's headers by name; a repeated header gets both values, so that it matches no host,
    origin or token."""
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
    owners = {int(row[7]) for row in rows
              if (_port(row[1]), _port(row[2])) == ends and row[9] != NOBODYS}  # fmt: skip
    return not owners or not owners <= {os.getuid(), ROOT}


def _rows(table: Path) -> list[list[str]]:
    try:
        return [line.split() for line in table.read_text().splitlines()[1:]]
    except OSError:  # Only Linux has them.
        return []


def _port(end: str) -> int:
    """The port of `0100007F:1F90`."""
    return int(end.partition(":")[2], 16)
