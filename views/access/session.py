"""Who somebody is that signed in, told by the cookies of a request; and which sessions have ended.

Streamlit's sign-in (`st.login`) puts what the provider said into a signed cookie and looks at it
once, when a page connects. Here it is looked at with every request, every message of a page and
every action: it must be signed by us, for this address, by this provider, not too old and not
signed out, and the team file must give a role.

Streamlit cuts a long cookie into pieces and signs each by itself, so that pieces of several
sign-ins could be put together to say what no provider said. Therefore a seal over the whole goes
with it, in a cookie of its own that no sibling of our name can set (`__Host-`).
"""

import hashlib
import hmac
import json
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import streamlit as st
from starlette.requests import cookie_parser
from streamlit.auth_util import get_cookie_with_chunks
from streamlit.web.server.starlette.starlette_app_utils import decode_signed_value
from streamlit.web.server.starlette.starlette_server_config import USER_COOKIE_NAME

from breakeven.runner.files import write_atomically
from breakeven.runner.folders.data_dir import DataDir
from breakeven.runner.logs import log
from breakeven.runner.texts import read_json
from breakeven.views.access import team
from breakeven.views.access.team import Role, Team

HOUR_SECONDS = 3600.0
CLOCKS_APART_SECONDS = 300.0
"""By which the provider's clock may be ahead of ours."""
MAX_SIGNED_OUT = 10_000


@dataclass(frozen=True, kw_only=True)
class Person:
    """Somebody who signed in."""

    subject: str
    name: str
    """Their verified address, or else their subject after the word `subject`, so that none passes
    for an address. What is not ASCII is escaped: letters of others look like those of somebody."""
    role: Role | None
    ends: float
    """When the session does, in seconds since the epoch."""
    session_id: str
    """Of this one sign-in."""


class SignedOut:
    """Sessions that people ended before their time; a copy of their cookie is worth nothing.

    Kept in the data folder, so that a restart brings none of them back.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._ends: dict[str, float] = {}
        self._folder: DataDir | None = None

    def open(self, folder: DataDir) -> None:
        """From now on kept there; what is there counts."""
        with self._lock, suppress(OSError, ValueError, AttributeError):
            self._folder = folder
            kept = read_json(folder.signed_out_file.read_text())
            self._ends |= {key: end for key, end in kept.items() if isinstance(end, int | float)}

    def add(self, person: Person) -> None:
        now = time.time()
        with self._lock:
            self._ends[person.session_id] = person.ends
            alive = sorted((end, key) for key, end in self._ends.items() if end > now)
            self._ends = {key: end for end, key in alive[-MAX_SIGNED_OUT:]}
            if self._folder is not None:
                try:
                    write_atomically(self._folder.signed_out_file, json.dumps(self._ends))
                except OSError as error:
                    log.error("a session that was ended is known until a restart: %s", error)

    def __contains__(self, person: object) -> bool:
        return isinstance(person, Person) and person.session_id in self._ends


signed_out = SignedOut()


def here() -> Person | None:
    """Who looks at the page that is being drawn; None for nobody, and without team mode."""
    return person_of(st.context.cookies)


def cookies_of(headers: Mapping[str, str]) -> dict[str, str]:
    """The cookies of a request, by the names of headers in small letters."""
    return cookie_parser(headers.get("cookie", ""))


def seal_name(known: Team) -> str:
    """Of the cookie that holds the seal. Browsers take one with such a beginning from the very host
    alone, and only where the connection is encrypted."""
    return "__Host-breakeven-seal" if known.is_secure else "breakeven-seal"


def seal_of(cookies: Mapping[str, str], known: Team) -> str | None:
    """The seal over what Streamlit's cookies say; None where they say nothing that we signed."""
    content = _content(cookies, known)
    if content is None:
        return None
    return hmac.new(known.cookie_secret.encode(), b"seal " + content, hashlib.sha256).hexdigest()


def person_of(cookies: Mapping[str, str]) -> Person | None:
    """Whom the cookies belong to, with the role that they have now; None for nobody."""
    known = team.current()
    claims = None if known is None else _claims(cookies, known)
    if known is None or claims is None:
        return None
    issued = claims.get("iat")
    if isinstance(issued, bool) or not isinstance(issued, int | float):
        return None
    ends = issued + known.session_hours * HOUR_SECONDS
    if not issued - CLOCKS_APART_SECONDS < time.time() < ends:
        return None
    subject = claims["sub"][: team.LONGEST_CLAIM]
    name = known.address_of(claims) or f"subject {subject}"
    person = Person(
        subject=subject,
        name=ascii(name[: team.LONGEST_CLAIM])[1:-1],
        role=known.role_of(claims),
        ends=ends,
        session_id=cookies[seal_name(known)][:32],
    )
    return None if person in signed_out else person


def _claims(cookies: Mapping[str, str], known: Team) -> dict[str, Any] | None:
    """What the provider said at the sign-in, if it was this provider, and for us."""
    content, seal = _content(cookies, known), seal_of(cookies, known)
    given = cookies.get(seal_name(known), "").encode()
    if content is None or seal is None or not hmac.compare_digest(seal.encode(), given):
        return None
    try:
        claims = read_json(content)
    except ValueError:
        return None
    if not isinstance(claims, dict) or claims.get("is_logged_in") is not True:
        return None
    subject = claims.get("sub")
    is_named = isinstance(subject, str) and bool(subject)
    is_ours = claims.get("origin") == known.address and is_named
    is_theirs = str(claims.get("iss", "")).rstrip("/") == known.issuer
    return claims if is_ours and is_theirs else None


def _content(cookies: Mapping[str, str], known: Team) -> bytes | None:
    """What Streamlit's cookies hold, put together from their pieces."""

    def opened(name: str) -> bytes | None:
        return decode_signed_value(known.cookie_secret, name, cookies.get(name, ""))

    return get_cookie_with_chunks(opened, USER_COOKIE_NAME)
