"""Team mode as it is used: a real provider, a real nginx with TLS as docs/serving.md has it, and a
real Chromium. `make test-slow`."""

import os
import ssl
import time
import urllib.error
import urllib.request
from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, BrowserContext, Page
from websockets.exceptions import ConnectionClosed, InvalidStatus

from breakeven.runner.folders import audit
from breakeven.runner.folders.process import ProcessIdentity
from tests.helpers.journals import EXPERIMENT_ID, Recording, experiment_spec
from tests.helpers.oidc.proxied import Proxied, proxied
from tests.helpers.oidc.sign_in import header
from tests.helpers.oidc.socket_client import Page as Socket
from tests.helpers.oidc.socket_client import buttons
from tests.helpers.waiting import PATIENCE_SECONDS, wait_until
from tests.views.access.test_team import EVERYTHING

pytestmark = [pytest.mark.slow, pytest.mark.browser]


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


def sign_in(page: Page, server: Proxied, who: str, path: str = "/system") -> None:
    page.goto(f"{server.address}{path}")
    page.get_by_role("link", name="Sign in").click()
    page.fill("input[name=login]", who)
    page.fill("input[name=password]", "any")
    page.get_by_role("button", name="Sign-in").click()
    page.get_by_role("button", name="Continue").click()
    page.wait_for_url(f"{server.address}/**")


def cookies(context: BrowserContext, server: Proxied) -> dict[str, str]:
    found = context.cookies(server.address)
    return {one["name"]: one["value"] for one in found}


def asked(address: str, path: str, method: str = "GET", **headers: str) -> tuple[int, str]:
    names = {name.replace("_", "-"): value for name, value in headers.items()}
    request = urllib.request.Request(f"{address}{path}", method=method, headers=names)
    try:
        with urllib.request.urlopen(
            request, timeout=PATIENCE_SECONDS, context=ssl._create_unverified_context()
        ) as answer:
            return answer.status, answer.read().decode(errors="replace")
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode(errors="replace")


def test_a_stranger_sees_the_sign_in_and_nothing_else_through_the_proxy_and_past_it(
    server: Proxied, browser: Browser
) -> None:
    context = browser.new_context(ignore_https_errors=True)
    page = context.new_page()
    page.goto(f"{server.address}/live?experiment={EXPERIMENT_ID}")
    said = "Breakeven Sign in to see what runs here. Sign in"
    assert " ".join(page.inner_text("body").split()) == said
    context.close()
    plain = [path for path in EVERYTHING if ".." not in path and path]
    for address in (server.address, server.behind):
        for path in plain:
            for method in ("GET", "POST", "PUT", "DELETE"):
                status, body = asked(address, path, method)
                assert status in (401, 403, 404, 405), (address, path, method)
                assert EXPERIMENT_ID not in body and "bert" not in body.lower()
        assert asked(address, "/healthz")[1] in ('{"status": "ok"}\n', '{"status": "wrong"}\n')
    for origin in ("", None, "https://evil.example"):
        with pytest.raises(InvalidStatus):
            Socket(server.address, {}, origin)


def test_whoever_has_no_role_is_told_so_and_an_unverified_address_gives_none(
    server: Proxied, browser: Browser
) -> None:
    for who in ("eve", "mal"):
        context = browser.new_context(ignore_https_errors=True)
        page = context.new_page()
        sign_in(page, server, who)
        assert "may not look at this dashboard" in page.inner_text("body")
        with pytest.raises(InvalidStatus):
            Socket(server.address, cookies(context, server))
        context.close()


def test_a_session_is_secure_short_and_no_scripts_business(
    server: Proxied, signed_in: dict[str, BrowserContext]
) -> None:
    ours = [one for one in signed_in["vic"].cookies(server.address)
            if "streamlit" in one["name"] or "breakeven" in one["name"]]  # fmt: skip
    assert {"_streamlit_user", "__Host-breakeven-seal"} <= {one["name"] for one in ours}
    for one in ours:
        assert one["secure"], one["name"]
        assert one["httpOnly"] or one["name"] == "_streamlit_xsrf"
        assert one["expires"] - time.time() < 12 * 3600 + 5


def test_a_viewer_looks_and_is_offered_nothing_that_acts(
    server: Proxied, signed_in: dict[str, BrowserContext]
) -> None:
    page = signed_in["vic"].new_page()
    page.goto(f"{server.address}/live?experiment={EXPERIMENT_ID}")
    page.get_by_text("vic").first.wait_for()
    page.get_by_text("inductor").first.wait_for()
    assert page.get_by_role("button", name="Stop").count() == 0
    page.goto(f"{server.address}/system")
    page.get_by_text("You are signed in as a viewer").wait_for()
    assert page.get_by_text("Who did what").count() == 0
    page.close()


def test_a_viewer_cannot_act_by_forging_what_an_operators_page_says(
    server: Proxied, signed_in: dict[str, BrowserContext]
) -> None:
    ada, vic = (cookies(signed_in[who], server) for who in ("ada", "vic"))
    cancel = next(server.data_dir.run_dirs()).path / "cancel"
    query = f"experiment={EXPERIMENT_ID}"
    with Socket(server.address, ada) as page:
        stop = buttons(page.ask("live", query))["Stop it"]
    with Socket(server.address, vic) as page:
        assert "Stop it" not in buttons(page.ask("live", query))
        page.ask("live", query, pressed=stop)
        page.ask("live", query, pressed=stop)
    whose = {"Cookie": header(vic), "Origin": server.address}
    for method in ("PUT", "POST", "DELETE"):
        assert asked(server.address, "/_stcore/upload_file/a/b", method, **whose)[0] == 403
    assert not cancel.exists()
    assert "stop" not in [one["action"] for one in audit.entries(server.data_dir)]
    # The very same message, of somebody who may: so it was the role that held it off.
    with Socket(server.address, ada) as page:
        page.ask("live", query)
        page.ask("live", query, pressed=stop)
    assert cancel.exists()
    (stopped,) = [one for one in audit.entries(server.data_dir) if one["action"] == "stop"]
    assert (stopped["who"], stopped["subject"], stopped["about"], stopped["via"]) == (
        "ada@example.org", "ada", EXPERIMENT_ID, "page",
    )  # fmt: skip


def test_an_operator_reads_who_did_what(
    server: Proxied, signed_in: dict[str, BrowserContext]
) -> None:
    page = signed_in["ada"].new_page()
    page.goto(f"{server.address}/system")
    page.get_by_text("Who did what").wait_for()
    page.get_by_text("ada@example.org").first.wait_for()
    page.close()


def test_a_large_sign_in_is_cut_into_pieces_and_leads_where_somebody_wanted_to_go(
    server: Proxied, browser: Browser
) -> None:
    context = browser.new_context(ignore_https_errors=True)
    page = context.new_page()
    sign_in(page, server, "big", "/definitions?a=b")
    assert page.url == f"{server.address}/definitions?a=b"
    page.get_by_text("big").first.wait_for()
    context.close()


def test_a_role_that_is_taken_away_cuts_off_an_open_page_without_a_restart(
    server: Proxied, signed_in: dict[str, BrowserContext]
) -> None:
    vic = cookies(signed_in["vic"], server)
    text = server.team_file.read_text()
    with Socket(server.address, vic) as page:
        page.ask("definitions")
        server.team_file.write_text(text.replace("vic@example.org", "nobody@example.org"))
        with pytest.raises(ConnectionClosed):
            page.connection.recv(timeout=PATIENCE_SECONDS)
            page.connection.recv(timeout=PATIENCE_SECONDS)
    with pytest.raises(InvalidStatus):
        Socket(server.address, vic)
    server.team_file.write_text(text)
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
    page.get_by_text("vic").first.click()
    page.get_by_role("link", name="Sign out").click()
    wait_until(lambda: asked(server.address, "/launch", Cookie=header(copy))[0] == 401)
    with pytest.raises(InvalidStatus):
        Socket(server.address, copy)
    page.goto(f"{server.address}/launch")
    page.get_by_role("link", name="Sign in").wait_for()
    context.close()


def test_the_proxy_passes_on_names_headers_and_encryption(server: Proxied) -> None:
    request = urllib.request.Request(f"{server.address}/", headers={"Host": "evil.example"})
    with pytest.raises(urllib.error.HTTPError) as refused:
        urllib.request.urlopen(
            request, timeout=PATIENCE_SECONDS, context=ssl._create_unverified_context()
        )
    assert refused.value.code == 403
    with pytest.raises(urllib.error.HTTPError) as stranger:
        urllib.request.urlopen(f"{server.address}/", timeout=PATIENCE_SECONDS,
                               context=ssl._create_unverified_context())  # fmt: skip
    told = stranger.value.headers
    assert told["strict-transport-security"] == "max-age=31536000"
    assert "frame-ancestors 'self'" in told["content-security-policy"]
    assert told["cache-control"] == "no-store"
