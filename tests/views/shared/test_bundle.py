"""Streamlit's files come from memory; a page names what it needs before it needs it."""

import gzip
import re
from pathlib import Path
from typing import Any

import pytest

from breakeven.views.access.bundle import FOLDER, NEEDED, SYMBOLS, TABLES, Bundle
from breakeven.views.access.lasting import FOREVER
from tests.helpers.waiting import awaited

PAGE = b"<html><head><title>Streamlit</title></head><body></body></html>"


@pytest.fixture
def files(tmp_path: Path) -> Path:
    scripts = tmp_path / "static" / "js"
    scripts.mkdir(parents=True)
    (tmp_path / "index.html").write_text('<script src="./static/js/index.1.js"></script>')
    (scripts / "index.1.js").write_text('import"./react.1.js";')
    (scripts / "Html.1.js").write_text(
        'import{a}from"./index.1.js";import"./purify.1.js";' + "x" * 2000
    )
    (scripts / "purify.1.js").write_text("1")
    (scripts / "DataFrame.1.js").write_text('import"./purify.1.js";import"./grid.1.js";')
    (scripts / "grid.1.js").write_text("1")
    return tmp_path


def answer(
    bundle: Bundle, path: str, method: str = "GET", **headers: str
) -> tuple[int, dict[str, str], bytes]:
    """Status, headers and body."""
    sent: list[Any] = []

    async def send(message: Any) -> None:
        sent.append(message)

    given = [(name.replace("_", "-").encode(), value.encode()) for name, value in headers.items()]
    scope = {"type": "http", "path": path, "method": method, "headers": given}
    awaited(bundle(scope, None, send))
    told = {name.decode(): value.decode() for name, value in sent[0]["headers"]}
    return sent[0]["status"], told, b"".join(one.get("body", b"") for one in sent)


async def streamlit(scope: Any, receive: Any, send: Any) -> None:
    """Answers with a page, and with a text for what it does not know."""
    is_page = scope["path"] in ("/", "/experiments")
    kind, body = (b"text/html; charset=utf-8", PAGE) if is_page else (b"text/plain", b"</head>")
    told = [(b"Content-Type", kind), (b"Content-Length", b"%d" % len(body)), (b"ETag", b"1")]
    await send({"type": "http.response.start", "status": 200, "headers": told})
    await send({"type": "http.response.body", "body": body})


def test_a_file_is_read_once_and_lasts(files: Path) -> None:
    bundle = Bundle(streamlit, files)
    whole = (files / "static/js/Html.1.js").read_bytes()
    for _ in range(2):
        status, told, body = answer(bundle, "/static/js/Html.1.js", accept_encoding="gzip, br")
        assert (status, body) == (200, whole)
        assert told["content-type"] == "text/javascript"
        assert told["cache-control"] == FOREVER[1].decode()
        assert told["content-length"] == str(len(whole))
        (files / "static/js/Html.1.js").write_text("2")
    assert answer(bundle, "/static/js/Html.1.js", "HEAD")[2] == b""


def test_who_comes_later_gets_it_compressed_if_they_can_read_that(files: Path) -> None:
    bundle = Bundle(streamlit, files)
    _, _, whole = answer(bundle, "/static/js/Html.1.js")
    bundle._compress()
    _, told, body = answer(bundle, "/static/js/Html.1.js", accept_encoding="gzip, br")
    assert told["content-encoding"] == "gzip" and told["content-length"] == str(len(body))
    assert gzip.decompress(body) == whole and len(body) < len(whole)
    _, told, body = answer(bundle, "/static/js/Html.1.js")
    assert body == whole and "content-encoding" not in told and told["vary"] == "Accept-Encoding"


def test_a_page_names_what_it_will_need_and_still_tells_its_length(files: Path) -> None:
    _, told, body = answer(Bundle(streamlit, files), "/")
    assert named_in(body) == ["Html.1.js", "purify.1.js"]  # index.1.js is in the page already
    assert body.index(b"purify") < body.index(b"</head>")
    assert told["content-length"] == str(len(body)) and "etag" not in told


def test_what_draws_tables_is_named_where_a_page_opens_with_one(files: Path) -> None:
    bundle = Bundle(streamlit, files)
    _, told, body = answer(bundle, "/experiments")
    assert named_in(body) == ["DataFrame.1.js", "Html.1.js", "grid.1.js", "purify.1.js"]
    assert told["content-length"] == str(len(body))
    assert "DataFrame.1.js" not in named_in(answer(bundle, "/")[2])


def named_in(page: bytes) -> list[str]:
    """The scripts that a browser is told to load, each as often as it is told."""
    link = rb'<link rel="modulepreload" crossorigin href="\./static/js/([\w.]+)">'
    return sorted(name.decode() for name in re.findall(link, page))


@pytest.mark.parametrize(
    "path", ["/static/js/../../index.html", "/static/js/none.js", "/media/1.txt"]
)
def test_everything_else_is_streamlits_to_answer(files: Path, path: str) -> None:
    assert answer(Bundle(streamlit, files), path)[2] == b"</head>"


def test_all_that_is_named_is_there_in_the_streamlit_that_is_installed() -> None:
    """Another version may call its parts otherwise: then `NEEDED` is to be looked at."""
    links = Bundle(streamlit)._links("/experiments").decode()
    for name in (*NEEDED, TABLES, SYMBOLS):
        assert f"/{name}." in links
    named = re.findall(r'href="\.(/static/[^"]+)"', links)
    assert len(named) > 50 and all((FOLDER / one[1:]).is_file() for one in named)
