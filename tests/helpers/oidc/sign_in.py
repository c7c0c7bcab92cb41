"""A team's file, and the cookies of people who signed in, as Streamlit writes them."""

import json
import time
from pathlib import Path
from typing import Any

from streamlit.auth_util import set_cookie_with_chunks
from streamlit.web.server.starlette.starlette_app_utils import create_signed_value
from streamlit.web.server.starlette.starlette_server_config import USER_COOKIE_NAME

from breakeven.views.access.session import seal_name, seal_of
from breakeven.views.access.team import Team

SECRET = "0123456789abcdef0123456789abcdef"
TEAM = """
address = "{address}"
issuer = "{issuer}"
client_id = "breakeven"
client_secret = "{secret}"
scopes = "openid email groups"
prompt = "login"
watch_token = "a token for Prometheus"
{more}
[operators]
groups = ["ml-ops"]
members = ["Oda@example.org"]
[viewers]
members = ["vic@example.org"]
"""
ADDRESS, ISSUER = "https://bench.example.org", "https://login.example.org"


def write_team(
    file: Path, address: str = ADDRESS, issuer: str = ISSUER, secret: str = SECRET, more: str = ""
) -> Path:
    file.write_text(TEAM.format(address=address, issuer=issuer, secret=secret, more=more))
    file.chmod(0o600)
    return file


def claims(subject: str = "vic", **others: Any) -> dict[str, Any]:
    """What Streamlit keeps of somebody who has just signed in."""
    return {
        "sub": subject, "email": f"{subject}@example.org", "email_verified": True, "groups": [],
        "iss": ISSUER, "origin": ADDRESS, "is_logged_in": True, "provider": "default",
        "iat": int(time.time()), "nonce": "n", **others,
    }  # fmt: skip


def pieces(content: dict[str, Any], secret: str) -> dict[str, str]:
    """Streamlit's cookies, in pieces where they are long; without our seal."""
    found: dict[str, str] = {}

    def signed(name: str, value: str) -> bytes:
        return create_signed_value(secret, name, value)

    def keep(name: str, value: str) -> None:
        found[name] = signed(name, value).decode()

    set_cookie_with_chunks(keep, signed, USER_COOKIE_NAME, content, cookie_attr_size=60)
    return found


def cookies(team: Team, content: dict[str, Any]) -> dict[str, str]:
    """All cookies that a browser has after a sign-in."""
    found = pieces(content, team.cookie_secret)
    seal = seal_of(found, team)
    assert seal is not None and json.dumps(content)
    return {**found, seal_name(team): seal}


def header(those: dict[str, str]) -> str:
    return "; ".join(f"{name}={value}" for name, value in those.items())
