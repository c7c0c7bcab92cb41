"""Team mode: people sign in with a provider of OpenID Connect, and have roles.

Whoever runs the dashboard names a file of TOML in `BREAKEVEN_TEAM` (docs/serving.md). Roles are
read anew whenever the file changes, so one that is taken away is gone with the next click; a file
that can no longer be read gives nobody a role.
"""

import hashlib
import hmac
import os
import stat
import string
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from breakeven.runner.errors import RunnerError
from breakeven.runner.logs import log

TEAM_VARIABLE = "BREAKEVEN_TEAM"
"""The file; without it there is no team mode."""
SECRET_VARIABLE = "BREAKEVEN_CLIENT_SECRET"
"""The provider's secret for this dashboard, where it is not in the file."""
MIN_SECRET_CHARACTERS = 16
MAX_FILE_BYTES = 1_000_000
LONGEST_CLAIM = 200
LOOPBACK = ("localhost", "127.0.0.1", "::1")
EVERYBODY = "*"
SMALL = str.maketrans(string.ascii_uppercase, string.ascii_lowercase)


class Role(StrEnum):
    VIEWER = "viewer"
    OPERATOR = "operator"


class TeamUnusable(RunnerError):
    """The file does not say who may sign in."""


@dataclass(frozen=True, kw_only=True)
class Team:
    """Who signs in where, and who may do what."""

    address: str
    """Under which people reach the dashboard: `https://bench.example.org`."""
    issuer: str
    client_id: str
    client_secret: str = field(repr=False)
    scopes: str
    prompt: str
    session_hours: float
    claim: str
    """Of the sign-in, in which groups stand; a point leads into an object: `realm_access.roles`."""
    trust_emails: bool
    """Whether an address counts of which the provider does not say whether it is verified."""
    members: Mapping[Role, frozenset[str]]
    """Addresses as `_folded` has them, and subjects, which hold no `@`; `*` is everybody who can
    sign in."""
    groups: Mapping[Role, frozenset[str]]
    blocked: frozenset[str]
    watch_token: str = field(repr=False)
    """With it `/metrics` and `/healthz` are told without a sign-in."""

    @property
    def is_secure(self) -> bool:
        return self.address.startswith("https:")

    @property
    def name(self) -> str:
        """The name that the dashboard is reached under."""
        return urlsplit(self.address).hostname or ""

    @property
    def cookie_secret(self) -> str:
        """Signs sessions. It follows from the client's secret: it outlives a restart, lies in no
        file of its own, and a new secret ends every session."""
        key, about = self.client_secret.encode(), f"breakeven {self.issuer} {self.client_id}"
        return hmac.new(key, about.encode(), hashlib.sha256).hexdigest()

    def secrets(self) -> dict[str, Any]:
        """What Streamlit's own sign-in asks for."""
        well_known = f"{self.issuer.rstrip('/')}/.well-known/openid-configuration"
        return {
            "auth": {
                "redirect_uri": f"{self.address}/oauth2callback",
                "cookie_secret": self.cookie_secret,
                "client_id": self.client_id,
                "client_secret": self.client_secret,
                "server_metadata_url": well_known,
                "client_kwargs": {"scope": self.scopes, "prompt": self.prompt},
            }
        }

    def role_of(self, claims: Mapping[str, Any]) -> Role | None:
        """What somebody may do, by what the provider said of them; None: nothing at all."""
        subject, email = (claims.get(name) for name in ("sub", "email"))
        # Who is blocked by an address stays so, verified or not.
        if {_folded(one) for one in (subject, email) if isinstance(one, str)} & self.blocked:
            return None
        # A subject may look like somebody's address, and an address like somebody's subject.
        known_as = {subject} if isinstance(subject, str) and "@" not in subject else set()
        address = self.address_of(claims)
        if address is not None:
            known_as.add(_folded(address))
        groups = _texts(claims, self.claim)
        for role in (Role.OPERATOR, Role.VIEWER):
            named = self.members.get(role, frozenset())
            if known_as & named or EVERYBODY in named:
                return role
            if groups & self.groups.get(role, frozenset()):
                return role
        return None

    def address_of(self, claims: Mapping[str, Any]) -> str | None:
        """The address of somebody, if the provider has verified it."""
        email, verified = claims.get("email"), claims.get("email_verified")
        is_verified = verified is True or (verified is None and self.trust_emails)
        return email if is_verified and isinstance(email, str) and "@" in email else None


def is_asked() -> bool:
    """Whether this dashboard has people sign in."""
    return bool(os.environ.get(TEAM_VARIABLE))


def read_team(file: Path) -> Team:
    """Raises `TeamUnusable` for a file that is not there, can be changed or read by others, or says
    something that cannot be meant."""
    try:
        content = _read(file)
        return _checked(content)
    except TeamUnusable as error:
        raise TeamUnusable(f"{TEAM_VARIABLE} = {file}: {error}") from None


class _Kept:
    """The last team that was read, and of which state of the file."""

    version: tuple[object, ...] | None = None
    team: Team | None = None


def current() -> Team | None:
    """The team as of now; None where there is no team mode, or while the file is of no use. Which
    of both, `is_asked` tells: without a team nobody is let in."""
    named = os.environ.get(TEAM_VARIABLE)
    if not named:
        return None
    file = Path(named)
    version = (named, os.environ.get(SECRET_VARIABLE), _version(file))
    if version != _Kept.version:
        try:
            _Kept.team = read_team(file)
        except TeamUnusable as error:
            log.error("nobody is let in: %s", error)
            _Kept.team = None
        _Kept.version = version
    return _Kept.team


def _version(file: Path) -> tuple[int, ...]:
    try:
        found = file.stat()
    except OSError:
        return ()
    return (found.st_mtime_ns, found.st_size, found.st_ino, found.st_mode, found.st_ctime_ns)


def _read(file: Path) -> dict[str, Any]:
    try:
        with file.open("rb") as opened:
            found = os.fstat(opened.fileno())
            text = opened.read(MAX_FILE_BYTES + 1).decode()
        content = tomllib.loads(text)
    except (OSError, ValueError, RecursionError) as error:
        raise TeamUnusable(f"cannot be read: {error}") from None
    if found.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise TeamUnusable(f"others may write it, and so give themselves a role; chmod 600 {file}")
    if "client_secret" in content and found.st_mode & (stat.S_IRGRP | stat.S_IROTH):
        raise TeamUnusable(
            f"others may read the secret in it; chmod 600 {file}, or have the secret in "
            f"{SECRET_VARIABLE}"
        )
    return content


def _checked(content: dict[str, Any]) -> Team:
    texts = {name: _text(content, name) for name in ("address", "issuer", "client_id")}
    for name in ("address", "issuer"):
        texts[name] = _secure(name, texts[name].rstrip("/"))
    if urlsplit(texts["address"]).path:
        raise TeamUnusable(f"address = {texts['address']!r} must end with the name, or its port")
    secret = os.environ.get(SECRET_VARIABLE) or _text(content, "client_secret")
    if len(secret) < MIN_SECRET_CHARACTERS:
        raise TeamUnusable(f"client_secret must have {MIN_SECRET_CHARACTERS} characters or more")
    hours = content.get("session_hours", 12.0)
    if isinstance(hours, bool) or not isinstance(hours, int | float) or not 0 < hours <= 720:
        raise TeamUnusable(f"session_hours = {hours!r} must be a number above 0, at most 720")
    trusts = content.get("trust_emails", False)
    if not isinstance(trusts, bool):
        raise TeamUnusable(f"trust_emails = {trusts!r} must be true or false")
    known = {*texts, "client_secret", "scopes", "prompt", "session_hours", "claim", "trust_emails",
             "operators", "viewers", "blocked", "watch_token"}  # fmt: skip
    if unknown := sorted(content.keys() - known):
        raise TeamUnusable(f"{unknown[0]!r} is none of {', '.join(sorted(known))}")
    parts = {Role.OPERATOR: "operators", Role.VIEWER: "viewers"}
    team = Team(
        address=texts["address"], issuer=texts["issuer"], client_id=texts["client_id"],
        client_secret=secret, session_hours=float(hours), trust_emails=trusts,
        members={role: _names(content, part, "members") for role, part in parts.items()},
        groups={role: _names(content, part, "groups") for role, part in parts.items()},
        blocked=_names({"blocked": {"members": content.get("blocked", [])}}, "blocked", "members"),
        scopes=_text(content, "scopes", "openid email profile"),
        prompt=_text(content, "prompt", "select_account"),
        claim=_text(content, "claim", "groups"),
        watch_token=_text(content, "watch_token", ""),
    )  # fmt: skip
    if EVERYBODY in team.members[Role.OPERATOR] | team.groups[Role.OPERATOR]:
        raise TeamUnusable("operators are named one by one, or by a group; '*' is for viewers")
    return team


def _text(content: Mapping[str, Any], name: str, default: str | None = None) -> str:
    value = content.get(name)
    if value is None and default is not None:
        return default
    if not isinstance(value, str) or not value.strip():
        raise TeamUnusable(f"{name} = {'nothing' if value is None else repr(value)} must be a text")
    return value.strip()


def _secure(name: str, address: str) -> str:
    try:
        parts = urlsplit(address)
        _ = parts.port
    except ValueError:
        parts = urlsplit("")
    is_here = parts.scheme == "http" and parts.hostname in LOOPBACK
    odd = parts.query or parts.fragment or parts.username or parts.password
    if not parts.hostname or odd or not (parts.scheme == "https" or is_here):
        raise TeamUnusable(f"{name} = {address!r} must begin with https:// (or http://localhost)")
    return address


def _names(content: Mapping[str, Any], part: str, kind: str) -> frozenset[str]:
    """Groups count as they are written, members as `_folded` has them."""
    section = content.get(part, {})
    if not isinstance(section, dict) or section.keys() - {"members", "groups"}:
        raise TeamUnusable(f"[{part}] must have members, groups or both, and nothing else")
    names = section.get(kind, [])
    if not isinstance(names, list) or not all(isinstance(one, str) and one for one in names):
        raise TeamUnusable(f"{kind} of [{part}] = {names!r} must be a list of texts")
    return frozenset(_folded(one) if kind == "members" else one for one in names)


def _folded(name: str) -> str:
    """An address in small letters, of ASCII alone: others have letters that become those of
    somebody else. A subject, which has no `@`, as it is."""
    return name.translate(SMALL) if "@" in name else name


def _texts(claims: Mapping[str, Any], path: str) -> frozenset[str]:
    """What stands in a claim: a text, or a list of texts; nothing else is taken for one."""
    value: Any = claims.get(path)
    if value is None:
        value = claims
        for name in path.split("."):
            value = value.get(name) if isinstance(value, dict) else None
    values = value if isinstance(value, list) else [value]
    return frozenset(one for one in values if isinstance(one, str) and one)
