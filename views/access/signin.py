"""The door of team mode: without a session nobody gets past it, to pages, files or the websocket.

A stranger is shown a page of a few lines that leads to the provider, and gets nothing else of the
dashboard, not even its scripts. What happens at the provider and on the way back is Streamlit's own
sign-in (`st.login`).
"""

import asyncio
import hmac
import json
import re
from collections.abc import Awaitable, Callable, Mapping
from html import escape
from typing import Any
from urllib.parse import parse_qs, quote, unquote

from streamlit.user_info import generate_login_redirect_url
from streamlit.web.server.starlette.starlette_server_config import (
    SESSION_COOKIE_NAME,
    TOKENS_COOKIE_NAME,
    USER_COOKIE_NAME,
)

from breakeven.runner.logs import log
from breakeven.views.access import session, team
from breakeven.views.access.session import (
    HOUR_SECONDS,
    Person,
    cookies_of,
    person_of,
    seal_name,
    seal_of,
)
from breakeven.views.access.team import Role, Team

SIGN_IN = "/sign-in"
LOGIN, LOGOUT, CALLBACK = "/auth/login", "/auth/logout", "/oauth2callback"
ALIVE = "/_stcore/health"
WATCHED = ("/healthz", "/metrics")
UPLOADS = "/_stcore/upload_file"
NEXT_COOKIE = "breakeven-next"
NEXT_SECONDS = 600
LONGEST_NEXT = 2000
LOOK_SECONDS = 2.0
"""How often an open page's session is looked at, whether or not the page says anything."""
PERSON = "breakeven.person"
"""Where a request's scope has who asks."""
OWN = b"__Host-"
"""Before the name of a cookie: browsers take it from the very host alone."""
Headers = list[tuple[bytes, bytes]]
Send = Callable[[Any], Awaitable[None]]
PAGE = """<!doctype html><html lang="en"><meta charset="utf-8"><title>Breakeven</title>
<meta name="viewport" content="width=device-width, initial-scale=1">
<style>:root {{ color-scheme: light dark }}
body {{ font: 16px/1.5 system-ui, sans-serif; display: grid; place-content: center; gap: .5rem;
  min-height: 90vh; margin: 0 1.5rem; max-width: 40rem; margin-inline: auto }}
h1 {{ font-size: 1.5rem; margin: 0 }} p {{ margin: 0 0 .75rem }}
a {{ display: inline-block; justify-self: start; padding: .45rem 1rem; border-radius: .35rem;
  background: #1a62bd; color: #fff; text-decoration: none }}
a:focus-visible {{ outline: 3px solid #4a93ee; outline-offset: 2px }}</style>
<main><h1>Breakeven</h1><p>{text}</p>{link}</main></html>
"""


class SignIn:
    """ASGI middleware; it lets everything through where there is no team mode."""

    def __init__(self, app: Any) -> None:
        self.app = app

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] not in ("http", "websocket") or not team.is_asked():
            await self.app(scope, receive, send)
            return
        known = team.current()
        if known is None:
            await _page(scope, send, 503, "Nobody can sign in: whoever runs this dashboard finds "
                        "the reason in its log.")  # fmt: skip
            return
        headers = {name.decode("latin-1").lower(): value.decode("latin-1")
                   for name, value in scope["headers"]}  # fmt: skip
        person = person_of(cookies_of(headers))
        scope = {**scope, PERSON: person, "headers": _with_own_state(scope["headers"], known)}
        send = _with_headers(send, scope, headers, known)
        path, is_read = scope["path"], scope.get("method", "GET") in ("GET", "HEAD")
        if scope["type"] == "websocket":
            await self._connect(scope, receive, send, headers, person)
        elif is_read and path in (SIGN_IN, LOGIN, CALLBACK, LOGOUT):
            await self._sign(scope, receive, send, headers, person)
        elif (is_read and path == ALIVE) or (path in WATCHED and _may_watch(headers, known)):
            await self.app(scope, receive, send)
        elif is_read and path == WATCHED[0] and person is None:
            await self._tell_health(scope, receive, send)
        elif person is None:
            await _page(scope, send, 401, "Sign in to see what runs here.",
                        link=("Sign in", f"{SIGN_IN}?next={quote(_here(scope))}"))  # fmt: skip
        elif person.role is None:
            text = f"{person.name} may not look at this dashboard. Whoever runs it can allow that."
            await _page(scope, send, 403, text, link=("Sign out", LOGOUT))
        elif UPLOADS in path and person.role is not Role.OPERATOR:
            await _page(scope, send, 403, "Viewers look: no file is taken.")
        else:
            await self.app(scope, receive, send)

    async def _sign(
        self, scope: Any, receive: Any, send: Send, headers: Mapping[str, str],
        person: Person | None,
    ) -> None:  # fmt: skip
        """On the way in or out. A page of a stranger may have nobody signed out."""
        path = scope["path"]
        if path == SIGN_IN:
            wanted = parse_qs(scope["query_string"].decode("latin-1")).get("next", [""])[0]
            cookie = f"{NEXT_COOKIE}={quote(_inside(wanted), safe='')}; Path=/; HttpOnly; " \
                     f"SameSite=Lax; Max-Age={NEXT_SECONDS}"  # fmt: skip
            await _redirect(send, generate_login_redirect_url("default"), cookie)
        elif path == LOGOUT and headers.get("sec-fetch-site") in ("cross-site", "same-site"):
            await _page(scope, send, 403, "Breakeven does not answer to pages of others.")
        else:
            if path == LOGOUT and person is not None:
                session.signed_out.add(person)
                log.info("signed out", extra={"fields": {"who": person.name}})
            await self.app(scope, receive, send)

    async def _connect(
        self, scope: Any, receive: Any, send: Send, headers: Mapping[str, str],
        person: Person | None,
    ) -> None:  # fmt: skip
        """A page's connection, which is cut once its session ends or its role changes."""
        if person is None or person.role is None or "origin" not in headers:
            await send({"type": "websocket.close", "code": 1008, "reason": ""})
            return
        cookies, is_cut = cookies_of(headers), asyncio.Event()

        async def cut_once_over() -> None:
            while _is_same(person, cookies):
                await asyncio.sleep(LOOK_SECONDS)
            is_cut.set()
            await send({"type": "websocket.close", "code": 4401, "reason": ""})

        async def received() -> Any:
            message = await receive()
            if is_cut.is_set() or (
                message["type"] == "websocket.receive" and not _is_same(person, cookies)
            ):
                return {"type": "websocket.disconnect", "code": 4401}
            return message

        async def sent(message: Any) -> None:
            if not is_cut.is_set():
                await send(message)

        watch = asyncio.create_task(cut_once_over())
        try:
            await self.app(scope, received, sent)
        finally:
            watch.cancel()

    async def _tell_health(self, scope: Any, receive: Any, send: Send) -> None:
        """Whether all is well, and no more: a probe has no session, and neither has a stranger."""
        status = 0

        async def only_status(message: Any) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]

        await self.app(scope, receive, only_status)
        word = "ok" if status == 200 else "wrong"
        body = json.dumps({"status": word}) + "\n"
        await _answer(send, status, body, "application/json")


def _is_same(person: Person, cookies: Mapping[str, str]) -> bool:
    now = person_of(cookies)
    return now is not None and now.role == person.role


def _may_watch(headers: Mapping[str, str], known: Team) -> bool:
    given = headers.get("authorization", "").removeprefix("Bearer ")
    return bool(known.watch_token) and hmac.compare_digest(
        given.encode(), known.watch_token.encode()
    )


def _here(scope: Any) -> str:
    query = scope["query_string"].decode("latin-1")
    return _inside(scope["path"] + (f"?{query}" if query else ""))


def _inside(wanted: str) -> str:
    """Where somebody wanted to go, if it is here: a path of ours, and no other host's address."""
    is_path = re.fullmatch(r"/(?![/\\])[!-~]*", wanted) and "\\" not in wanted
    return wanted if is_path and len(wanted) <= LONGEST_NEXT else "/"


def _with_headers(send: Send, scope: Any, headers: Mapping[str, str], known: Team) -> Send:
    """Cookies that last as long as a session and travel encrypted; nothing that a shared cache may
    keep; and after the sign-in, the seal and the way to where somebody wanted to go."""
    seconds = int(known.session_hours * HOUR_SECONDS)

    async def sent(message: Any) -> None:
        if message["type"] != "http.response.start":
            await send(message)
            return
        pairs = [(name.lower(), value) for name, value in message.get("headers", ())]
        if scope["path"] == CALLBACK:
            pairs = _signed_in(pairs, cookies_of(headers), known)
        kept = [(name, _cookie(value, known, seconds) if name == b"set-cookie" else value)
                for name, value in pairs]  # fmt: skip
        names = {name for name, _ in kept}
        if b"immutable" not in dict(kept).get(b"cache-control", b""):
            kept = [pair for pair in kept if pair[0] != b"cache-control"]
            kept.append((b"cache-control", b"no-store"))
        else:  # Scripts and styles, the same for all; a browser keeps them, a proxy does not.
            kept = [(name, value.replace(b"public", b"private")) for name, value in kept]
        if known.is_secure and b"strict-transport-security" not in names:
            kept.append((b"strict-transport-security", b"max-age=31536000"))
        await send({**message, "headers": kept})

    return sent


def _signed_in(
    pairs: list[tuple[bytes, bytes]], asked: Mapping[str, str], known: Team
) -> list[tuple[bytes, bytes]]:
    """The answer that ends a sign-in, if it was one."""
    given = [value.decode("latin-1").partition(";")[0].partition("=")
             for name, value in pairs if name == b"set-cookie"]  # fmt: skip
    cookies = {name: value.strip('"') for name, _, value in given if value.strip('"')}
    seal = seal_of(cookies, known)
    if seal is None:
        return pairs
    goes_to = _inside(unquote(asked.get(NEXT_COOKIE, "")))
    pairs = [(name, goes_to.encode()) if name == b"location" else (name, value)
             for name, value in pairs]  # fmt: skip
    sealed = f"{seal_name(known)}={seal}; Path=/; HttpOnly; SameSite=Lax; Max-Age=2592000"
    return [*pairs, (b"set-cookie", sealed.encode())]


def _with_own_state(headers: Headers, known: Team) -> Headers:
    """The headers of a request without what a sibling of our name may have put into the browser:
    with somebody else's half of a sign-in, whose other half it leads there by a link, people would
    be signed in as that somebody. Ours is kept under a name that no sibling can set."""
    if not known.is_secure:
        return headers
    cookies = [one.strip() for name, value in headers if name.lower() == b"cookie"
               for one in value.split(b";")]  # fmt: skip
    plain = SESSION_COOKIE_NAME.encode()
    kept = [one.removeprefix(OWN) if one.startswith(OWN + plain + b"=") else one
            for one in cookies if one.partition(b"=")[0].strip() != plain]  # fmt: skip
    others = [(name, value) for name, value in headers if name.lower() != b"cookie"]
    return [*others, (b"cookie", b"; ".join(kept))] if cookies else headers


def _cookie(value: bytes, known: Team, seconds: int) -> bytes:
    name = value.partition(b"=")[0].decode("latin-1")
    if name == SESSION_COOKIE_NAME and known.is_secure:
        value = OWN + value
    if name.startswith((USER_COOKIE_NAME, TOKENS_COOKIE_NAME, seal_name(known))):
        value = re.sub(rb"(?i)max-age=2592000", f"Max-Age={seconds}".encode(), value)
    is_secure = re.search(rb"(?i);\s*secure(;|$)", value) is not None
    return value + b"; Secure" if known.is_secure and not is_secure else value


async def _redirect(send: Send, where: str, cookie: str) -> None:
    headers = [(b"location", where.encode()), (b"set-cookie", cookie.encode())]
    await send({"type": "http.response.start", "status": 302, "headers": headers})
    await send({"type": "http.response.body", "body": b""})


async def _page(
    scope: Any, send: Send, status: int, text: str, link: tuple[str, str] | None = None
) -> None:
    if scope["type"] == "websocket":
        await send({"type": "websocket.close", "code": 1008, "reason": ""})
        return
    shown = "" if link is None else f'<a href="{escape(link[1])}">{escape(link[0])}</a>'
    body = PAGE.format(text=escape(text), link=shown)
    await _answer(send, status, body if scope["method"] != "HEAD" else "", "text/html")


async def _answer(send: Send, status: int, body: str, kind: str) -> None:
    headers = [(b"content-type", f"{kind}; charset=utf-8".encode())]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body.encode(errors="replace")})
