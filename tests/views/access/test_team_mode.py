"""Team mode as it is used: a real provider, real proxies as docs/operating.md says, and a
real Chromium. `make test-slow`."""

import http.client
import os
import socket
import ssl
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import Browser, BrowserContext, Page
from websockets.exceptions import ConnectionClosed, InvalidStatus

from breakeven.runner.folders import audit
from breakeven.runner.folders.process import ProcessIdentity
from tests.helpers.journals import EXPERIMENT_ID, Recording, experiment_spec
from tests.helpers.oidc.proxied import ACCOUNT, Proxied, missing, proxied
from tests.helpers.oidc.sign_in import claims, header, token
from tests.helpers.oidc.socket_client import Page as Socket
from tests.helpers.oidc.socket_client import buttons
from tests.helpers.waiting import PATIENCE_SECONDS, wait_until

pytestmark = [
    pytest.mark.slow, pytest.mark.browser,
    pytest.mark.skipif(bool(missing()), reason=f"needs {missing()}"),
]  # fmt: skip


EVERYTHING = (
    "/", "/launch", "/compare", "/system", "/_stcore/host-config", "/_stcore/metrics",
    "/_stcore/script-health-check", "/_stcore/agent/openapi.json", "/_stcore/upload_file/a/b",
    "/_stcore/bidi-components/x", "/component/x/y.js", "/media/abc.png", "/static/index.html",
    "/app/static/x", "/report/20261121", "//healthz", "/healthz/", "//metrics", "/METRICS",
    "/_stcore/health", "/sign-out/x", "/oauth2callback/x",
)  # fmt: skip


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Proxied]:
    with proxied(tmp_path_factory.mktemp("team")) as running:
        me = ProcessIdentity.of(os.getpid())
        for variant in experiment_spec().variants:
            Recording(running.data_dir.runs, variant.label, experiment_spec()).claim(me).start()
        yield running


@pytest.fixture(scope="module")
def signed_in(server: Proxied, browser: Browser) -> Iterator[dict[str, BrowserContext]]:
    """Ada, who operates, and Vic, who looks, each in a browser of their own."""
    contexts = {who: browser.new_context(ignore_https_errors=True) for who in ("ada", "vic")}
    for who, context in contexts.items():
        sign_in(context.new_page(), server, who)
    yield contexts
    for context in contexts.values():
        context.close()


def sign_in(page: Page, server: Proxied, who: str, path: str = "/launch") -> None:
    page.goto(f"{server.address}{path}")
    page.fill("input[name=login]", who)
    page.fill("input[name=password]", "any")
    page.get_by_role("button", name="Sign-in").click()
    page.get_by_role("button", name="Continue").click()
    page.wait_for_url(lambda url: url.startswith(f"{server.address}{path}"))


def cookies(context: BrowserContext, server: Proxied) -> dict[str, str]:
    found = context.cookies(server.address)
    return {one["name"]: one["value"] for one in found}


class Staying(urllib.request.HTTPRedirectHandler):
    """Follows no redirection."""

    def redirect_request(self, *args: Any) -> None:
        return None


def asked(
    address: str, path: str, method: str = "GET", follow: bool = True, **headers: str
) -> tuple[int, str]:
    request = urllib.request.Request(f"{address}{path}", method=method, headers=headers)
    trusting = urllib.request.HTTPSHandler(context=ssl._create_unverified_context())
    opener = urllib.request.build_opener(trusting, *([] if follow else [Staying]))
    try:
        with opener.open(request, timeout=PATIENCE_SECONDS) as answer:
            return answer.status, answer.read().decode(errors="replace")
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode(errors="replace")


def test_a_stranger_is_led_to_the_provider_and_gets_nothing_else(server: Proxied, browser: Browser):
    context = browser.new_context(ignore_https_errors=True)
    page = context.new_page()
    page.goto(f"{server.address}/experiment?experiment={EXPERIMENT_ID}")
    assert page.get_by_role("button", name="Sign-in").count() == 1
    context.close()
    for path in EVERYTHING:
        for method in ("GET", "POST", "PUT", "DELETE"):
            status, body = asked(server.address, path, method, follow=False)
            assert status in (302, 401, 403), (path, method)
            assert EXPERIMENT_ID not in body and "bert" not in body.lower()
    for path in ("/healthz", "/metrics"):
        assert asked(server.address, path)[0] == 403
        assert asked(server.sign_in, path)[0] in (200, 503)
    for origin in ("", None, "https://evil.example"):
        with pytest.raises(InvalidStatus):
            Socket(server.address, {}, origin)


def test_nobody_says_who_they_are_but_the_proxy(server: Proxied) -> None:
    """Its socket is closed to other accounts; what a client claims is replaced on the way."""
    forged = f"Bearer {token(claims('oda', groups=['ml-ops']))}"
    for name in ("Authorization", "OIDC_id_token", "OIDC-id-token", "OIDC_CLAIM_sub"):
        status, _ = asked(server.address, "/launch", follow=False, **{name: forged})
        assert status in (302, 401), name
    folder, found = server.socket.parent.stat(), server.socket.stat()
    assert folder.st_mode & 0o027 == 0 and found.st_mode & 0o007 == 0
    if os.getuid() == 0:
        for who, group, reached in (("nobody", "nogroup", 1), (ACCOUNT, ACCOUNT, 0)):
            looked = subprocess.run(["test", "-w", str(server.socket)], user=who, group=group,
                                    extra_groups=[], check=False)  # fmt: skip
            assert looked.returncode == reached, who


def test_the_same_claims_are_believed_from_the_socket(server: Proxied) -> None:
    """So it is the socket alone that holds a forger off."""
    for who, status in (("oda", 200), ("vic", 200), ("eve", 403), ("", 401)):
        bearer = f"Bearer {token(claims(who))}" if who else "Basic b2RhOm9kYQ=="
        assert from_socket(server, "/", Authorization=bearer) == status, who
    assert from_socket(server, "/") == 401
    assert from_socket(server, "/healthz") in (200, 503)


def from_socket(server: Proxied, path: str, **headers: str) -> int:
    connection = http.client.HTTPConnection("localhost", timeout=PATIENCE_SECONDS)
    connection.sock = socket.socket(socket.AF_UNIX)
    connection.sock.connect(str(server.socket))
    connection.request("GET", path, headers=headers)
    return connection.getresponse().status


def test_whoever_has_no_role_is_told_so_and_an_unverified_address_gives_none(
    server: Proxied, browser: Browser
) -> None:
    for who in ("eve", "mal"):
        context = browser.new_context(ignore_https_errors=True)
        page = context.new_page()
        sign_in(page, server, who)
        said = page.inner_text("body")
        assert f"subject {who} may not look" in said or f"{who}@example.org may not look" in said
        assert "ada@example.org" not in said
        with pytest.raises(InvalidStatus):
            Socket(server.address, cookies(context, server))
        context.close()


def test_a_session_is_secure_and_no_scripts_business(
    server: Proxied, signed_in: dict[str, BrowserContext]
) -> None:
    (ours,) = [one for one in signed_in["vic"].cookies(server.address)
               if one["name"].startswith("__Host-breakeven")]  # fmt: skip
    assert ours["secure"] and ours["httpOnly"] and ours["sameSite"] == "Lax"


def test_a_viewer_looks_and_is_offered_nothing_that_acts(
    server: Proxied, signed_in: dict[str, BrowserContext]
) -> None:
    page = signed_in["vic"].new_page()
    page.goto(f"{server.address}/experiment?experiment={EXPERIMENT_ID}")
    page.get_by_text("vic").first.wait_for()
    page.get_by_text("inductor").first.wait_for()
    assert page.get_by_role("button", name="Stop").count() == 0
    page.goto(f"{server.address}/machine?tab=Audit+log")
    page.get_by_text("You are signed in as a viewer").wait_for()
    assert page.get_by_label("Search").count() == 0
    page.close()


def test_a_viewer_cannot_act_by_forging_what_an_operators_page_says(
    server: Proxied, signed_in: dict[str, BrowserContext]
) -> None:
    ada, vic = (cookies(signed_in[who], server) for who in ("ada", "vic"))
    cancel = next(server.data_dir.run_dirs()).path / "cancel"
    query = f"experiment={EXPERIMENT_ID}"
    with Socket(server.address, ada) as page:
        stop = buttons(page.ask("experiment", query))["Stop it"]
    with Socket(server.address, vic) as page:
        assert "Stop it" not in buttons(page.ask("experiment", query))
        page.ask("experiment", query, pressed=stop)
        page.ask("experiment", query, pressed=stop)
    whose = {"Cookie": header(vic), "Origin": server.address}
    for method in ("PUT", "POST", "DELETE"):
        assert asked(server.address, "/_stcore/upload_file/a/b", method, **whose)[0] == 403
    assert not cancel.exists()
    assert "stop" not in [one["action"] for one in audit.entries(server.data_dir)]
    # The very same message, of somebody who may: so it was the role that held it off.
    with Socket(server.address, ada) as page:
        page.ask("experiment", query)
        page.ask("experiment", query, pressed=stop)
    assert cancel.exists()
    (stopped,) = [one for one in audit.entries(server.data_dir) if one["action"] == "stop"]
    assert (stopped["who"], stopped["subject"], stopped["about"], stopped["via"]) == (
        "ada@example.org", "ada", EXPERIMENT_ID, "page",
    )  # fmt: skip


def test_an_operator_reads_who_did_what(server: Proxied, signed_in: dict[str, BrowserContext]):
    page = signed_in["ada"].new_page()
    page.goto(f"{server.address}/machine?tab=Audit+log")
    page.get_by_label("Search").wait_for()
    page.get_by_text("ada@example.org").first.wait_for()
    page.close()


def test_a_large_sign_in_leads_where_somebody_wanted_to_go(server: Proxied, browser: Browser):
    context = browser.new_context(ignore_https_errors=True)
    page = context.new_page()
    sign_in(page, server, "big", "/definitions?a=b")
    page.get_by_text("big").first.wait_for()
    context.close()


def test_a_role_that_is_taken_away_cuts_off_an_open_page_without_a_restart(
    server: Proxied, signed_in: dict[str, BrowserContext]
) -> None:
    vic = cookies(signed_in["vic"], server)
    text = server.settings.read_text()
    with Socket(server.address, vic) as page:
        page.ask("definitions")
        server.settings.write_text(text.replace("vic@example.org", "nobody@example.org"))
        with pytest.raises(ConnectionClosed):
            page.ask("definitions")
    with pytest.raises(InvalidStatus):
        Socket(server.address, vic)
    server.settings.write_text(text)
    with Socket(server.address, vic):
        pass


def test_a_sign_out_ends_the_session_for_every_copy_of_its_cookie(
    server: Proxied, browser: Browser
) -> None:
    context = browser.new_context(ignore_https_errors=True)
    page = context.new_page()
    sign_in(page, server, "vic")
    copy = cookies(context, server)
    with Socket(server.address, copy):
        pass
    for site in ("cross-site", "same-site"):
        for path in ("/sign-out", "/oauth2callback?logout=https://evil.example"):
            forged = {"Cookie": header(copy), "Sec-Fetch-Site": site}
            assert asked(server.address, path, **forged)[0] == 403
    assert asked(server.address, "/launch", Cookie=header(copy))[0] == 200
    page.get_by_role("button", name="vic@example.org").click()
    page.get_by_role("link", name="Sign out").click()
    wait_until(
        lambda: asked(server.address, "/launch", Cookie=header(copy), follow=False)[0] == 302
    )
    with pytest.raises(InvalidStatus):
        Socket(server.address, copy)
    context.close()


def test_the_proxy_passes_on_names_and_encryption_and_limits_sizes_and_rates(
    server: Proxied, signed_in: dict[str, BrowserContext]
) -> None:
    vic = header(cookies(signed_in["vic"], server))
    assert asked(server.address, "/", Cookie=vic, Host="evil.example")[0] in (401, 403)
    with urllib.request.urlopen(
        urllib.request.Request(f"{server.address}/", headers={"Cookie": vic}),
        timeout=PATIENCE_SECONDS, context=ssl._create_unverified_context(),
    ) as answer:  # fmt: skip
        told = answer.headers
    assert told["strict-transport-security"] == "max-age=31536000"
    assert "frame-ancestors 'self'" in told["content-security-policy"]
    much = {"Cookie": vic, "Content-Length": str(300 * 2**20)}
    assert asked(server.address, "/_stcore/upload_file/a/b", "PUT", **much)[0] == 413
    with ThreadPoolExecutor(50) as many:
        every = many.map(
            lambda _: asked(server.address, "/_stcore/health", Cookie=vic)[0], range(900)
        )
        assert set(every) == {200, 429}


def test_the_proxy_cuts_off_who_says_half_a_request(server: Proxied) -> None:
    at, began = urlsplit(server.address), time.monotonic()
    with (
        socket.create_connection((at.hostname, at.port), timeout=PATIENCE_SECONDS) as plain,
        ssl._create_unverified_context().wrap_socket(plain, server_hostname="localhost") as half,
    ):
        half.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\n")
        assert b"200" not in half.recv(4000)
    assert time.monotonic() - began < 40
