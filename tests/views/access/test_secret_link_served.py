"""The secret link on real dashboards: what websockets may do, and what a real Chromium shows."""

import os
import urllib.error
import urllib.request
from collections.abc import Iterator
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
EXPERIMENT = f"experiment={EXPERIMENT_ID}"


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


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Server, Server]]:
    """Two of one host; each has a run at work, so that there is something to stop."""
    me = ProcessIdentity.from_pid(os.getpid())
    data_dirs = [DataDir(tmp_path_factory.mktemp(name)) for name in ("first", "second")]
    for data_dir in data_dirs:
        for arm in experiment_spec().arms:
            Recording(data_dir.runs, arm.label, experiment_spec()).claim(me).start()
    environment = {HOST_VARIABLE: "0.0.0.0"}
    with (
        served(data_dirs[0], environment=environment) as (first, _),
        served(data_dirs[1], environment=environment) as (second, _),
    ):
        yield Server(first, data_dirs[0]), Server(second, data_dirs[1])


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
    servers: tuple[Server, Server], page: Page
) -> None:
    server, _ = servers
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


def test_two_dashboards_of_one_host_do_not_disturb_each_other(
    servers: tuple[Server, Server], page: Page
) -> None:
    """Browsers send the cookies of a host to all of its ports."""
    for server in servers:
        page.goto(server.link)
        page.get_by_role("button", name="Launch", exact=True).wait_for()
    assert len(cookies_of_links(page)) == 2
    for server in servers:
        page.goto(f"{server.url}/launch")
        page.get_by_role("button", name="Launch", exact=True).wait_for()
    first, second = servers
    assert not takes_files(first, second.cookie)
    assert takes_files(first, {**second.cookie, **first.cookie})
    secret_link.renew(first.data_dir)
    page.goto(f"{first.url}/launch")
    page.get_by_text("Viewing only.").wait_for()
    page.goto(f"{second.url}/launch")
    page.get_by_role("button", name="Launch", exact=True).wait_for()


def test_a_viewer_cannot_act_by_forging_what_an_operators_page_says(
    servers: tuple[Server, Server],
) -> None:
    server, other = servers
    cancel = next(server.data_dir.run_dirs()).path / "cancel"
    with Socket(server.url, server.cookie) as acting:
        stop = buttons(acting.ask("experiment", EXPERIMENT))["Stop it"]
    nearly = {name: value[:-1] for name, value in server.cookie.items()}
    for cookie in ({}, nearly, other.cookie):
        with Socket(server.url, cookie) as looking:
            assert "Stop it" not in buttons(looking.ask("experiment", EXPERIMENT))
            looking.ask("experiment", f"{EXPERIMENT}&token={server.token}", pressed=stop)
            looking.ask("experiment", EXPERIMENT, pressed=stop)
        assert not takes_files(server, cookie) and not cancel.exists()
    assert "stop" not in [line["message"] for line in read_log(server.data_dir.logs)]
    # The same message with the cookie is accepted, so the cookie decided.
    with Socket(server.url, server.cookie) as acting:
        acting.ask("experiment", EXPERIMENT)
        acting.ask("experiment", EXPERIMENT, pressed=stop)
    assert cancel.exists()
    lines = [line for line in read_log(server.data_dir.logs) if line["message"] == "stop"]
    assert [(line["part"], line["about"]) for line in lines] == [("dashboard", EXPERIMENT_ID)]


def test_a_renewed_link_ends_what_open_pages_may_do_at_their_next_click(
    servers: tuple[Server, Server],
) -> None:
    _, server = servers
    cancel = next(server.data_dir.run_dirs()).path / "cancel"
    with Socket(server.url, server.cookie) as acting:
        stop = buttons(acting.ask("experiment", EXPERIMENT))["Stop it"]
        secret_link.renew(server.data_dir)
        assert "Stop it" not in buttons(acting.ask("experiment", EXPERIMENT, pressed=stop))
    assert not cancel.exists()
    with Socket(server.url, server.cookie) as acting:
        acting.ask("experiment", EXPERIMENT)
        acting.ask("experiment", EXPERIMENT, pressed=stop)
    wait_until(cancel.exists)
