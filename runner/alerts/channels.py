"""The two ways that an alert takes, each tried once; `outbox.py` tries again."""

import json
import smtplib
import socket
import ssl
import urllib.request
from abc import ABC, abstractmethod
from collections.abc import Mapping
from contextlib import suppress
from email.message import EmailMessage
from email.utils import formatdate, make_msgid
from typing import Any

from breakeven.runner.alerts.settings import MailServer, Settings
from breakeven.runner.masking import MASKED, mask
from breakeven.runner.texts import printable

LIMIT_SECONDS = 10.0
"""For each answer of somebody else's server."""
LONGEST_SUBJECT = 150
Content = Mapping[str, Any]


class NotTaken(Exception):
    """Why an alert did not arrive; holds no secret."""


class _GoesNowhereElse(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *asked: Any, **more: Any) -> None:
        """Whom an alert is for would otherwise say what of this network is asked for from here, and
        an alert that was sent on came nowhere: it is asked for without what it says."""
        return


OPENER = urllib.request.build_opener(_GoesNowhereElse)


class Channel(ABC):
    """A way to the operator."""

    name: str
    described: str
    """Where to, without secrets."""

    @abstractmethod
    def send(self, content: Content) -> None:
        """Raises `NotTaken`."""


class Webhook(Channel):
    name = "webhook"

    def __init__(self, settings: Settings) -> None:
        assert settings.webhook is not None
        self._address = settings.webhook
        self.described = settings.webhook_described

    def send(self, content: Content) -> None:
        body = mask(json.dumps(content)).encode()
        kind = {"Content-Type": "application/json"}
        request = urllib.request.Request(self._address, body, kind, method="POST")
        try:
            with OPENER.open(request, timeout=LIMIT_SECONDS):
                return
        except (OSError, ValueError) as error:
            raise NotTaken(printable(mask(str(error)), 300)) from None


class Mail(Channel):
    name = "mail"

    def __init__(self, server: MailServer) -> None:
        self._server = server
        self.described = server.described

    def send(self, content: Content) -> None:
        try:
            with self._connected() as server:
                self._sign_in(server)
                server.send_message(self._message(content))
        except (OSError, smtplib.SMTPException, ValueError) as error:
            said = mask(printable(error, 300))
            if self._server.password:
                said = said.replace(self._server.password, MASKED)
            raise NotTaken(said) from None

    def _connected(self) -> smtplib.SMTP:
        where = self._server
        if where.is_tls:
            return smtplib.SMTP_SSL(where.host, where.port, timeout=LIMIT_SECONDS,
                                    context=ssl.create_default_context())  # fmt: skip
        server = smtplib.SMTP(where.host, where.port, timeout=LIMIT_SECONDS)
        try:
            server.ehlo()
            if server.has_extn("starttls"):
                server.starttls(context=ssl.create_default_context())
                server.ehlo()
            elif where.password:
                raise NotTaken(
                    "the server offers no encryption (STARTTLS), and no password is sent without"
                )
        except BaseException:
            with suppress(OSError, smtplib.SMTPException):
                server.close()
            raise
        return server

    def _sign_in(self, server: smtplib.SMTP) -> None:
        if self._server.password:
            server.login(self._server.name, self._server.password)

    def _message(self, content: Content) -> EmailMessage:
        text = mask(str(content["text"]))
        message = EmailMessage()
        message["Subject"] = printable(text, LONGEST_SUBJECT)
        message["From"] = self._server.sender
        message["To"] = ", ".join(self._server.receivers)
        message["Date"] = formatdate()
        message["Message-ID"] = make_msgid(domain=socket.gethostname())
        message["Auto-Submitted"] = "auto-generated"
        facts = "".join(f"{name}: {printable(mask(str(value)), 2000)}\n"
                        for name, value in content.items() if name != "text")  # fmt: skip
        message.set_content(f"{text}\n\n{facts}")
        return message


def channels(settings: Settings) -> list[Channel]:
    """The ways that are set."""
    found: list[Channel] = []
    if settings.webhook is not None:
        found.append(Webhook(settings))
    if settings.mail is not None:
        found.append(Mail(settings.mail))
    return found
