"""The secret link on real dashboards: what websockets may do, and what a real Chromium shows."""

import os
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from playwright.sync_api import Browser, Page

from breakeven.runner import secret_link
from breakeven.runner.logs import read_log
from breakeven.runner.processes import ProcessIdentity
from breakeven.runner.protocol.data_dir import DataDir
from breakeven.runner.settings import HOST_VARIABLE, Serving
from tests.helpers.journals import EXPERIMENT_ID, Recording, experiment_spec
from tests.helpers.serving import served
from tests.helpers.waiting import PATIENCE_SECONDS, wait_until
from tests.views.access.socket_client import Page as Socket
from tests.views.access.socket_client import buttons

pytestmark = [pytest.mark.heavy, pytest.mark.browser]
SERVED = Serving(host="0.0.0.0")
FORGED, RENEWED = EXPERIMENT_ID, "20261122-093015-000000-bbbb"
"""Experiments at work, each of which one test stops."""


class Server(NamedTuple):
    """A dashboard that serves others."""

    url: str
    data_dir: DataDir

    @property
    def token(self) -> str:
        return secret_link.ensure(self.data_dir)

    @property
    def link(self) -> str:
        return f"{self.url}/launch?token={self.token}"

    @property
    def cookie(self) -> dict[str, str]:
        return {secret_link.cookie_name(self.token): self.token}


@contextmanager
def serving(data_dir: DataDir) -> Iterator[Server]:
    """A dashboard with runs at work, so that there is something to stop."""
    me = ProcessIdentity.from_pid(os.getpid())
    for experiment_id in (FORGED, RENEWED):
        for arm in experiment_spec().arms:
            recording = Recording(data_dir.runs, arm.label, experiment_spec(), experiment_id)
            recording.claim(me).start()
    with served(data_dir, environment={HOST_VARIABLE: "0.0.0.0"}) as (url, _):
        yield Server(url, data_dir)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with serving(DataDir(tmp_path_factory.mktemp("served"))) as server:
        yield server


@pytest.fixture
def page(browser: Browser) -> Iterator[Page]:
    """A browser without cookies."""
    context = browser.new_context()
    yield context.new_page()
    context.close()


def takes_files(server: Server, cookie: dict[str, str]) -> bool:
    """Whether an upload passes the middleware; Streamlit refuses it later, because it has no
    session."""
    headers = {"Cookie": "; ".join(f"{name}={value}" for name, value in cookie.items())}
    address = f"{server.url}/_stcore/upload_file/a/b"
    request = urllib.request.Request(address, method="PUT", headers=headers)
    try:
        with urllib.request.urlopen(request, timeout=PATIENCE_SECONDS):
            return True
    except urllib.error.HTTPError as error:
        return b"for viewing only" not in error.read()


def test_in_a_browser_the_link_opens_once_and_its_token_is_nowhere_afterwards(
    server: Server, page: Page
) -> None:
    requests: list[tuple[str, str]] = []
    page.on(
        "request",
        lambda request: requests.append((request.url, request.headers.get("referer", ""))),
    )
    page.goto(f"{server.url}/launch")
    page.get_by_text("Viewing only.").wait_for()
    assert page.get_by_role("button", name="Launch", exact=True).count() == 0
    page.goto(server.link)
    page.get_by_role("button", name="Launch", exact=True).wait_for()
    assert page.url.partition("?")[0] == f"{server.url}/launch"
    script = """() => [document.title, document.referrer, document.cookie, location.href,
        JSON.stringify(history.state), JSON.stringify({...localStorage, ...sessionStorage}),
        ...performance.getEntries().map(entry => entry.name),
        document.documentElement.outerHTML].join(' ')"""
    shown = page.evaluate(script)
    assert server.token not in shown and server.url in shown
    (cookie,) = cookies_of_links(page)
    assert (cookie["name"], cookie["value"]) == (*server.cookie, server.token)
    assert cookie["httpOnly"] and cookie["sameSite"] == "Strict"
    # Only the request that exchanged the token has it, and none that followed.
    assert [url for url, _ in requests if server.token in url] == [server.link]
    assert not [referrer for _, referrer in requests if server.token in referrer]
    page.reload()
    page.get_by_role("button", name="Launch", exact=True).wait_for()
    assert files_with(server, server.token) == {"token", "dashboard.log"}, (
        "dashboard.log has what the start printed"
    )
    printed = (server.data_dir.path / "dashboard.log").read_text()
    assert printed.count(server.token) == len(secret_link.addresses(SERVED, server.token))


def cookies_of_links(page: Page) -> list[Any]:
    """Cookies except Streamlit's own."""
    return [cookie for cookie in page.context.cookies() if cookie["name"].startswith("breakeven-")]


def files_with(server: Server, token: str) -> set[str]:
    files = [file for file in server.data_dir.path.rglob("*") if file.is_file()]
    return {file.name for file in files if token.encode() in contents(file)}


def contents(file: Path) -> bytes:
    return b"" if ".duckdb" in file.name else file.read_bytes()


@pytest.mark.slow
def test_two_dashboards_of_one_host_do_not_disturb_each_other(
    server: Server, page: Page, tmp_path: Path
) -> None:
    """Browsers send the cookies of a host to all of its ports."""
    with serving(DataDir(tmp_path / "second")) as second:
        for dashboard in (server, second):
            page.goto(dashboard.link)
            page.get_by_role("button", name="Launch", exact=True).wait_for()
        assert len(cookies_of_links(page)) == 2
        for dashboard in (server, second):
            page.goto(f"{dashboard.url}/launch")
            page.get_by_role("button", name="Launch", exact=True).wait_for()
        assert not takes_files(server, second.cookie)
        assert takes_files(server, {**second.cookie, **server.cookie})
        secret_link.renew(server.data_dir)
        page.goto(f"{server.url}/launch")
        page.get_by_text("Viewing only.").wait_for()
        page.goto(f"{second.url}/launch")
        page.get_by_role("button", name="Launch", exact=True).wait_for()


def cancel_file(server: Server, experiment_id: str) -> Path:
    return server.data_dir.run_dir(f"{experiment_id}.baseline").path / "cancel"


def test_a_viewer_cannot_act_by_forging_what_an_operators_page_says(
    server: Server, tmp_path: Path
) -> None:
    cancel, query = cancel_file(server, FORGED), f"experiment={FORGED}"
    with Socket(server.url, server.cookie) as acting:
        stop = buttons(acting.ask("experiment", query))["Stop it"]
    nearly = {name: value[:-1] for name, value in server.cookie.items()}
    another = Server("", DataDir(tmp_path)).cookie
    for cookie in ({}, nearly, another):
        with Socket(server.url, cookie) as looking:
            assert "Stop it" not in buttons(looking.ask("experiment", query))
            looking.ask("experiment", f"{query}&token={server.token}", pressed=stop)
            looking.ask("experiment", query, pressed=stop)
        assert not takes_files(server, cookie) and not cancel.exists()
    assert "stop" not in [line["message"] for line in read_log(server.data_dir.logs)]
    # The same message with the cookie is accepted, so the cookie decided.
    with Socket(server.url, server.cookie) as acting:
        acting.ask("experiment", query)
        acting.ask("experiment", query, pressed=stop)
    assert cancel.exists()
    lines = [line for line in read_log(server.data_dir.logs) if line["message"] == "stop"]
    assert [(line["part"], line["about"]) for line in lines] == [("dashboard", FORGED)]


def test_a_renewed_link_ends_what_open_pages_may_do_at_their_next_click(server: Server) -> None:
    cancel, query = cancel_file(server, RENEWED), f"experiment={RENEWED}"
    with Socket(server.url, server.cookie) as acting:
        stop = buttons(acting.ask("experiment", query))["Stop it"]
        secret_link.renew(server.data_dir)
        assert "Stop it" not in buttons(acting.ask("experiment", query, pressed=stop))
    assert not cancel.exists()
    with Socket(server.url, server.cookie) as acting:
        acting.ask("experiment", query)
        acting.ask("experiment", query, pressed=stop)
    wait_until(cancel.exists)
