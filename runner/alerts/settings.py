"""Where alerts go, and from when on: what the operator set in environment variables.

BREAKEVEN_WEBHOOK      https://chat.example.org/hooks/...
BREAKEVEN_SMTP         smtp://name:password@mail.example.org:587/?to=ops@example.org
BREAKEVEN_ALERT_FREE   20GB
"""

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from email.utils import parseaddr
from urllib.parse import parse_qs, unquote, urlsplit

from breakeven.runner.folders.queue import MIN_FREE_BYTES
from breakeven.runner.folders.sizes import parse_size
from breakeven.runner.masking import MASKED
from breakeven.runner.texts import printable

WEBHOOK_VARIABLE, SMTP_VARIABLE = "BREAKEVEN_WEBHOOK", "BREAKEVEN_SMTP"
"""Their names say that they are secret, as such addresses are."""
FREE_VARIABLE = "BREAKEVEN_ALERT_FREE"
PORTS = {"smtp": 587, "smtps": 465}
ADDRESS = re.compile(r"[^\s@<>,;:\"]+@[^\s@<>,;:\"]+")


@dataclass(frozen=True, kw_only=True)
class MailServer:
    """Who takes mail, for whom."""

    host: str
    port: int
    is_tls: bool
    """From the first byte on (`smtps`); otherwise STARTTLS is used where the server offers it."""
    name: str = field(repr=False)
    password: str = field(repr=False)
    sender: str
    receivers: tuple[str, ...]

    @property
    def described(self) -> str:
        whom = ", ".join(self.receivers)
        return f"mail to {printable(whom)} through {printable(self.host)}:{self.port}"


@dataclass(frozen=True, kw_only=True)
class Settings:
    """What is set; `problems` says what of it cannot be used."""

    webhook: str | None = field(default=None, repr=False)
    mail: MailServer | None = None
    min_free_bytes: int = MIN_FREE_BYTES
    problems: tuple[str, ...] = ()

    @property
    def is_any(self) -> bool:
        return self.webhook is not None or self.mail is not None

    @property
    def webhook_described(self) -> str:
        """Its server alone: the rest of such an address is a secret."""
        parts = urlsplit(self.webhook or "")
        return f"{parts.scheme}://{printable(parts.hostname or '')}/{MASKED}"


def read_settings(environment: Mapping[str, str] = os.environ) -> Settings:
    """What the variables say; raises nothing."""
    problems: list[str] = []
    webhook = environment.get(WEBHOOK_VARIABLE) or None
    if webhook is not None and not _is_web(webhook):
        problems.append(f"{WEBHOOK_VARIABLE} must be an http or https address")
        webhook = None
    mail = None
    try:
        if environment.get(SMTP_VARIABLE):
            mail = _mail_server(environment[SMTP_VARIABLE])
    except ValueError as error:
        problems.append(f"{SMTP_VARIABLE} must be as smtp://NAME:PASSWORD@HOST:587/?to=ADDRESS: "
                        f"{error}")  # fmt: skip
    free = MIN_FREE_BYTES
    if environment.get(FREE_VARIABLE):
        try:
            free = parse_size(environment[FREE_VARIABLE])
        except ValueError as error:
            problems.append(f"{FREE_VARIABLE}: {error}")
    return Settings(webhook=webhook, mail=mail, min_free_bytes=free, problems=tuple(problems))


def _is_web(address: str) -> bool:
    try:
        parts = urlsplit(address)
    except ValueError:
        return False
    return parts.scheme in ("http", "https") and bool(parts.hostname)


def _mail_server(address: str) -> MailServer:
    """Raises `ValueError`, which does not quote the address: it holds a password."""
    try:
        parts = urlsplit(address)
        port = parts.port
    except ValueError:
        raise ValueError("it is no address") from None
    if parts.scheme not in PORTS or not parts.hostname:
        raise ValueError("it must begin with smtp:// or smtps:// and name a server")
    asked = parse_qs(parts.query)
    receivers = [one.strip() for text in asked.get("to", []) for one in text.split(",")]
    sender = asked.get("from", receivers)[0] if receivers else ""
    for one in (sender, *receivers):
        if not ADDRESS.fullmatch(parseaddr(one)[1]) or parseaddr(one)[1] != one:
            raise ValueError(f"{printable(repr(one), 100)} is no mail address")
    name, password = unquote(parts.username or ""), unquote(parts.password or "")
    if not (name + password).isascii():
        raise ValueError("name and password must be ASCII, which is all that Python sends there")
    return MailServer(host=parts.hostname, port=port or PORTS[parts.scheme],
                      is_tls=parts.scheme == "smtps", name=name, password=password,
                      sender=sender, receivers=tuple(receivers))  # fmt: skip
