"""Whoever opens the secret link may act from elsewhere; whoever has a similar token may only
look."""

from collections.abc import Iterator
from typing import Any

import pytest
from streamlit import config

from breakeven.runner import secret_link
from breakeven.runner.protocol.data_dir import DataDir
from breakeven.views.access import permissions
from breakeven.views.access.request_checks import RequestChecks
from breakeven.views.access.secret_link_cookie import has_secret
from tests.helpers.waiting import awaited

STREAM, UPLOAD = "/_stcore/stream", "/_stcore/upload_file/a/b"


@pytest.fixture(autouse=True)
def served_to_others() -> Iterator[None]:
    before = config.get_option("server.address")
    config.set_option("server.address", "0.0.0.0")
    yield
    config.set_option("server.address", before)


@pytest.fixture
def token(folder: DataDir) -> str:
    return secret_link.ensure(folder)


def requested(
    path: str, query: str = "", *headers: tuple[str, str], kind: str = "http", method: str = "GET"
) -> tuple[int, dict[str, str]]:
    """Status and headers of the answer; 200 if the request reached the dashboard."""
    sent: list[Any] = []

    async def behind(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})

    async def send(message: Any) -> None:
        sent.append(message)

    given = [
        (b"host", b"10.1.2.3:8501"),
        *((name.encode(), value.encode("latin-1")) for name, value in headers),
    ]
    scope = {
        "type": kind,
        "path": path,
        "query_string": query.encode("latin-1"),
        "method": method,
        "headers": given,
        "scheme": "http",
    }
    awaited(RequestChecks(behind, permissions.may_act_by)(scope, None, send))
    answer = {name.decode(): value.decode() for name, value in sent[0].get("headers", ())}
    return sent[0].get("status", 101), answer


def test_the_link_becomes_a_cookie_and_an_address_without_the_token(token: str) -> None:
    status, answer = requested("/experiment", f"experiment=7&token={token}&why=a%26b")
    assert (status, answer["location"]) == (303, "/experiment?experiment=7&why=a%26b")
    cookie, *attributes = answer["set-cookie"].split("; ")
    assert cookie == f"{secret_link.cookie_name(token)}={token}"
    assert {text.lower() for text in attributes} == {
        "httponly",
        "samesite=strict",
        "path=/",
        "max-age=2592000",
    }
    assert answer["cache-control"] == "no-store"
    assert has_secret({"cookie": cookie})


def test_a_proxy_that_encrypts_gets_a_cookie_for_encrypted_connections_alone(token: str) -> None:
    _, answer = requested("/", f"token={token}", ("x-forwarded-proto", "https"))
    assert "; secure" in answer["set-cookie"].lower()


@pytest.mark.parametrize("path", ["//evil.example/", "///evil.example", "/\\evil.example", "//"])
def test_the_link_leads_to_no_other_host(token: str, path: str) -> None:
    location = requested(path, f"token={token}")[1]["location"]
    assert location.startswith("/") and not location.startswith(("//", "/\\"))


NEARLY = {
    "empty": lambda token: "",
    "first half": lambda token: token[:21],
    "all but one": lambda token: token[:-1],
    "longer": lambda token: f"{token}A",
    "other case": lambda token: token.swapcase(),
    "upper case": lambda token: token.upper(),
    "blank": lambda token: f"{token} ",
    "outside ASCII": lambda token: f"{token[:-1]}\xe9",
    "none": lambda token: "None",
}


@pytest.mark.parametrize("change", NEARLY.values(), ids=NEARLY)
def test_a_token_that_is_nearly_right_is_refused_in_links_and_cookies(
    token: str, change: Any
) -> None:
    wrong = change(token)
    for query in (f"token={wrong}", f"token={token}&token={wrong}", f"token={wrong}&token={token}"):
        status, answer = requested("/", query.replace(" ", "%20"))
        assert status == 403 and "set-cookie" not in answer, query
    assert not has_secret({"cookie": f"{secret_link.cookie_name(token)}={wrong}"})


@pytest.mark.parametrize("content", [None, "", "\n"])
def test_without_a_valid_token_nobody_acts_from_elsewhere(
    folder: DataDir, content: str | None
) -> None:
    if content is not None:
        folder.make()
        folder.token_file.write_text(content)
    for given in ("", "None", "%0A"):
        assert requested("/", f"token={given}")[0] == 403
    name = secret_link.cookie_name("")
    for cookie in ("", f"{name}=", f"{name}", "=", "breakeven-=None"):
        assert not has_secret({"cookie": cookie})


def test_a_renewed_token_ends_the_former_link_and_its_cookies(folder: DataDir, token: str) -> None:
    former = f"{secret_link.cookie_name(token)}={token}"
    assert has_secret({"cookie": former})
    present = secret_link.renew(folder)
    assert not has_secret({"cookie": former})
    assert requested("/", f"token={token}")[0] == 403
    # The former token under the present name, too, as a page of another port could set it.
    assert not has_secret({"cookie": f"{secret_link.cookie_name(present)}={token}"})
    assert has_secret({"cookie": f"{former}; {secret_link.cookie_name(present)}={present}"})


def test_cookies_of_other_dashboards_and_forged_doubles_disturb_nobody(token: str) -> None:
    name = secret_link.cookie_name(token)
    ours, other = f"{name}={token}", f"{secret_link.cookie_name('x')}={'x' * 43}"
    for cookie in (
        f"{other}; {ours}",
        f"{ours}; {other}",
        f"{name}=forged; {ours}",
        f"{ours}; {name}=forged",
        f"{name}; {ours}",
        f" {ours}; a=b",
        f"a=b;{ours}",
    ):
        assert has_secret({"cookie": cookie}), cookie
    for cookie in (
        f"{name}=forged; {name}=",
        f"{secret_link.cookie_name('x')}={token}",
        f"{name}x={token}",
        f"x{name}={token}",
        f"{name.upper()}={token}",
        f"{name}={token},",
        token,
        f"={token}",
    ):
        assert not has_secret({"cookie": cookie}), cookie


def test_uploads_need_the_cookie_and_no_token_in_an_address_replaces_it(token: str) -> None:
    cookie = ("cookie", f"{secret_link.cookie_name(token)}={token}")
    assert requested(UPLOAD, method="PUT")[0] == 403
    assert requested(UPLOAD, f"token={token}", method="PUT")[0] == 403
    assert requested(UPLOAD, "", cookie, method="PUT")[0] == 200
    # No browser sends two headers, one of them forged.
    assert requested(UPLOAD, "", cookie, ("cookie", "a=b"), method="PUT")[0] == 403


def test_only_a_page_of_the_very_address_uses_the_cookie(token: str) -> None:
    """Browsers add it also to requests of pages of other ports of this host."""
    cookie = ("cookie", f"{secret_link.cookie_name(token)}={token}")
    for origin, status in (("http://10.1.2.3:8501", 200), ("http://10.1.2.3:9999", 403)):
        assert requested(UPLOAD, "", cookie, ("origin", origin), method="PUT")[0] == status
    for origin, status in (("http://10.1.2.3:8501", 200), ("http://10.1.2.3:9999", 101)):
        connected = requested(STREAM, "", cookie, ("origin", origin), kind="websocket")
        assert connected[0] == status, "101 stands for a closed websocket"
    embedded = ("sec-fetch-site", "same-site"), ("sec-fetch-dest", "image")
    assert requested("/", f"token={token}", *embedded)[0] == 403
