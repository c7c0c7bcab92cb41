"""Roles of people who sign in: a proxy passes on the claims of their identity provider.

The section `team` of `breakeven.toml` lists the roles. Each request reads it again: a person loses
a removed role with the next click.
"""

import base64
import re
import string
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from breakeven.runner.settings import EVERYBODY, Team
from breakeven.runner.texts import read_json

LONGEST_CLAIM = 200
TOKEN = re.compile(r"[\w-]+\.(?P<payload>[\w-]+)\.[\w-]*", re.ASCII)
SMALL = str.maketrans(string.ascii_uppercase, string.ascii_lowercase)


class Role(StrEnum):
    VIEWER = "viewer"
    OPERATOR = "operator"


@dataclass(frozen=True, kw_only=True)
class Person:
    """A person who signed in."""

    subject: str
    name: str
    """The verified address, or else `subject` and the subject, so that nobody passes for an
    address. Characters outside ASCII are escaped, because they can look like the letters of another
    name."""
    role: Role | None


def person_of(token: str, team: Team) -> Person | None:
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
