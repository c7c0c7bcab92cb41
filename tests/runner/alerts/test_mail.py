"""Alerts arrive at a mail server that others wrote, encrypted, and no password is told."""

import socket
import ssl
import subprocess
from collections.abc import Callable, Iterator
from email import message_from_bytes
from email.message import Message
from pathlib import Path
from typing import Any

import pytest
from aiosmtpd.controller import Controller
from aiosmtpd.smtp import SMTP, AuthResult, Envelope, LoginPassword, Session

from breakeven.runner.alerts import outbox
from breakeven.runner.alerts.channels import Mail, NotTaken
from breakeven.runner.alerts.events import Alerts, content_of
from breakeven.runner.alerts.settings import read_settings
from breakeven.runner.alerts.told import Told
from breakeven.runner.folders.data_dir import DataDir
from breakeven.runner.folders.states import RunState

pytestmark = pytest.mark.heavy

PASSWORD = "p@ss :wrd/1"
WRITTEN = "p%40ss%20%3Awrd%2F1"
"""The same in an address."""


class Postbox:
    """Keeps what it is given; refuses so many letters first."""

    def __init__(self) -> None:
        self.refuse = 0
        self.letters: list[Message] = []
        self.receivers: list[list[str]] = []
        self.was_encrypted: list[bool] = []

    async def handle_DATA(self, server: SMTP, session: Session, envelope: Envelope) -> str:
        self.refuse -= 1
        if self.refuse >= 0:
            return "451 Try again later"
        assert isinstance(envelope.content, bytes)
        self.letters.append(message_from_bytes(envelope.content))
        self.receivers.append(envelope.rcpt_tos)
        self.was_encrypted.append(session.ssl is not None)
        return "250 OK"


def check_password(
    server: SMTP, session: Session, envelope: Envelope, mechanism: str, data: Any
) -> AuthResult:
    assert isinstance(data, LoginPassword)
    is_right = (data.login, data.password) == (b"ops", PASSWORD.encode())
    return AuthResult(success=is_right, handled=False)


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of `localhost`, signed by itself, with its key."""
    folder = tmp_path_factory.mktemp("certificate")
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj",
         "/CN=localhost", "-addext", "subjectAltName=DNS:localhost", "-keyout", "key.pem", "-out",
         "cert.pem"],
        cwd=folder, check=True, capture_output=True,
    )  # fmt: skip
    return folder


Start = Callable[..., tuple[Postbox, int]]


@pytest.fixture
def start(certificate: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Start]:
    """Starts a mail server; returns its postbox and port."""
    monkeypatch.setattr(outbox, "PAUSE_SECONDS", 0.01)
    started: list[Controller] = []

    def begin(*, encrypted: bool = True) -> tuple[Postbox, int]:
        postbox = Postbox()
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        context.load_cert_chain(certificate / "cert.pem", certificate / "key.pem")
        options: dict[str, Any] = {}
        if encrypted:
            options = {"tls_context": context, "require_starttls": True, "auth_required": True,
                       "authenticator": check_password}  # fmt: skip
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
        server = Controller(postbox, hostname="127.0.0.1", port=port, **options)
        server.start()
        started.append(server)
        return postbox, port

    yield begin
    for server in started:
        server.stop()


def test_a_run_that_failed_arrives_by_mail_encrypted_and_without_secrets(
    start: Start, certificate: Path, data_dir: DataDir, monkeypatch: pytest.MonkeyPatch
) -> None:
    postbox, port = start()
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate / "cert.pem"))
    address = (
        f"smtp://ops:{WRITTEN}@localhost:{port}/?from=bench@here.example&to=a@b.example,c@d.example"
    )
    monkeypatch.setenv("BREAKEVEN_SMTP", address)
    monkeypatch.setenv("CLOUD_SECRET_KEY", "canary-0123456789")
    data_dir.path.mkdir(parents=True)
    postbox.refuse = 2
    sent = Alerts(data_dir)
    sent.run_ended("20261121-1.inductor", RunState.FAILED, "said canary-0123456789\r\nBcc: x@y.z")
    sent.finish()
    (letter,) = postbox.letters
    assert postbox.was_encrypted == [True] and postbox.receivers == [["a@b.example", "c@d.example"]]
    assert letter["From"] == "bench@here.example" and letter["Bcc"] is None
    assert "20261121-1.inductor: failed, said [masked]" in str(letter["Subject"]).replace("\n", "")
    body = letter.get_payload(decode=True)
    assert isinstance(body, bytes) and b"reason: said [masked]" in body
    assert b"canary" not in bytes(letter)
    last = Told(data_dir).last("mail")
    assert last is not None and last["error"] is None


def test_a_wrong_password_is_told_of_and_neither_it_nor_the_right_one_is_in_the_words(
    start: Start, certificate: Path, data_dir: DataDir, monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:  # fmt: skip
    postbox, port = start()
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate / "cert.pem"))
    monkeypatch.setenv("BREAKEVEN_SMTP", f"smtp://ops:wrong-one@localhost:{port}/?to=a@b.example")
    data_dir.path.mkdir(parents=True)
    sent = Alerts(data_dir)
    sent.run_ended("one", RunState.FAILED, "x")
    sent.finish()
    last = Told(data_dir).last("mail")
    assert last is not None and "535" in last["error"] and not postbox.letters
    assert caplog.text.count("was not taken by mail") == outbox.ATTEMPTS
    assert "wrong-one" not in caplog.text + str(last)


def test_a_certificate_that_nobody_vouches_for_gets_no_password(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    postbox, port = start()
    monkeypatch.setenv("BREAKEVEN_SMTP", f"smtp://ops:{WRITTEN}@localhost:{port}/?to=a@b.example")
    with pytest.raises(NotTaken, match="CERTIFICATE_VERIFY_FAILED"):
        mail().send(content_of("test", "x"))
    assert not postbox.letters


def test_no_password_goes_out_unencrypted_and_without_one_the_letter_does(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    postbox, port = start(encrypted=False)
    monkeypatch.setenv("BREAKEVEN_SMTP", f"smtp://ops:{WRITTEN}@localhost:{port}/?to=a@b.example")
    with pytest.raises(NotTaken, match="no password is sent without"):
        mail().send(content_of("test", "x"))
    monkeypatch.setenv("BREAKEVEN_SMTP", f"smtp://localhost:{port}/?to=a@b.example")
    mail().send(content_of("test", "x"))
    assert len(postbox.letters) == 1 and postbox.letters[0]["To"] == "a@b.example"


def test_a_server_that_is_not_there_is_told_in_words(monkeypatch: pytest.MonkeyPatch) -> None:
    for scheme in ("smtp", "smtps"):
        monkeypatch.setenv("BREAKEVEN_SMTP", f"{scheme}://ops:{WRITTEN}@localhost:9/?to=a@b.c")
        with pytest.raises(NotTaken, match="Connection refused"):
            mail().send(content_of("test", "x"))


def mail() -> Mail:
    server = read_settings().mail
    assert server is not None
    assert PASSWORD not in repr(server) and PASSWORD not in server.described
    return Mail(server)
