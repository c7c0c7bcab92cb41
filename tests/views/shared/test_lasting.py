"""What never changes under its address, browsers keep for good, and nothing else."""

from contextlib import suppress
from typing import Any

import pytest

from breakeven.views.access.lasting import FOREVER, Lasting


def headers(path: str, query: str, status: int = 200) -> dict[bytes, bytes]:
    """Of an answer that says `no-cache` of itself, as it leaves."""
    sent: list[Any] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        told = [(b"cache-control", b"no-cache"), (b"content-type", b"text/javascript")]
        await send({"type": "http.response.start", "status": status, "headers": told})
        await send({"type": "http.response.body", "body": b"1"})

    async def send(message: Any) -> None:
        sent.append(message)

    scope = {"type": "http", "path": path, "query_string": query.encode()}
    with suppress(StopIteration):  # It waits for nothing; and others' tests leave a loop running.
        Lasting(app)(scope, None, send).send(None)
    start, body = sent
    assert body["body"] == b"1"
    assert len(start["headers"]) == 2
    return dict(start["headers"])


def test_a_file_that_is_asked_for_by_its_version_lasts() -> None:
    found = headers("/component/plotly_js/plotly.min.js", "version=7.1.0")
    assert found == {FOREVER[0]: FOREVER[1], b"content-type": b"text/javascript"}


@pytest.mark.parametrize(
    ("path", "query", "status"),
    [
        ("/component/plotly_js/plotly.min.js", "", 200),
        ("/component/plotly_js/plotly.min.js", "version=7.1.0", 404),
        ("/media/file.csv", "version=7.1.0", 200),
        ("/", "version=7.1.0", 200),
    ],
)
def test_nothing_else_does(path: str, query: str, status: int) -> None:
    assert headers(path, query, status)[FOREVER[0]] == b"no-cache"
