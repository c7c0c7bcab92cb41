"""Exchanges the token of the secret link for a cookie, and recognises this cookie."""

from collections.abc import Mapping
from typing import Any
from urllib.parse import parse_qsl, quote, urlencode

from starlette.responses import PlainTextResponse, RedirectResponse, Response

from breakeven.runner import secret_link
from breakeven.views.shared.resources import data_dir

WRONG_LINK = "This link is not valid, or not any more: `breakeven token` prints the present one."
COOKIE_SECONDS = 30 * 86400
NOT_STORED = {"cache-control": "no-store"}


def exchange_token(scope: Any, headers: Mapping[str, str]) -> Response | None:
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


def has_secret(headers: Mapping[str, str]) -> bool:
    """Whether a request has the cookie of the secret link. Of several cookies of its name one must
    be right: another program of this host can add cookies, and could otherwise lock people out."""
    token = secret_link.read(data_dir())
    if token is None:
        return False
    cookies = (cookie.partition("=") for cookie in headers.get("cookie", "").split(";"))
    values = [value for name, _, value in cookies if name.strip() == secret_link.cookie_name(token)]
    return any([secret_link.is_same(token, value) for value in values])
