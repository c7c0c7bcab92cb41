"""A team's roles, and what a provider says of people who signed in."""

import base64
import json
from pathlib import Path
from typing import Any

from breakeven.runner.settings import FILE_NAME

SECRET = "0123456789abcdef0123456789abcdef"
TEAM = """
[team]
{more}
[team.operators]
groups = ["ml-ops"]
members = ["Oda@example.org"]
[team.viewers]
members = ["vic@example.org"]
"""


def write_team(folder: Path, more: str = "") -> Path:
    file = folder / FILE_NAME
    file.write_text(TEAM.format(more=more))
    file.chmod(0o600)
    return file


def claims(subject: str = "vic", **others: Any) -> dict[str, Any]:
    """What a provider says of somebody who has just signed in."""
    return {
        "sub": subject, "email": f"{subject}@example.org", "email_verified": True, "groups": [],
        "iss": "https://login.example.org", "nonce": "n", **others,
    }  # fmt: skip


def token(content: Any) -> str:
    """An ID token as a proxy passes it on, whose signature the proxy has checked."""
    parts = ({"alg": "RS256"}, content)
    encoded = [base64.urlsafe_b64encode(json.dumps(one).encode()).rstrip(b"=") for one in parts]
    return b".".join([*encoded, b"signature"]).decode()


def header(cookies: dict[str, str]) -> str:
    return "; ".join(f"{name}={value}" for name, value in cookies.items())
