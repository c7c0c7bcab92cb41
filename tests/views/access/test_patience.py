"""Half a request holds no connection for ever."""

import asyncio
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
import uvicorn
from uvicorn.config import HTTP_PROTOCOLS

from breakeven.runner.folders.data_dir import DataDir
from breakeven.views.access import patience
from tests.helpers.serving import served
from tests.helpers.waiting import PATIENCE_SECONDS, wait_until

pytestmark = pytest.mark.heavy
PATIENCE, ANSWERING = 0.4, 1.2
HALF = b"GET / HTTP/1.1\r\nHost: localhost\r\n"


async def app(scope: Any, receive: Any, send: Any) -> None:
    """Answers after a while; takes websockets and says nothing."""
    if scope["type"] == "websocket":
        await receive()
        await send({"type": "websocket.accept"})
        await receive()
    elif scope["type"] == "http":
        await asyncio.sleep(ANSWERING)
        await send({"type": "http.response.start", "status": 200,
                    "headers": [(b"content-length", b"2")]})  # fmt: skip
        await send({"type": "http.response.body", "body": b"ok"})


@pytest.fixture
def port(monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    monkeypatch.setattr(patience, "HEAD_SECONDS", PATIENCE)
    monkeypatch.setitem(HTTP_PROTOCOLS, "auto", "")
    patience.give_up_at_last()
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        config = uvicorn.Config(app, log_level="critical", lifespan="off", timeout_keep_alive=3600)
        server = uvicorn.Server(config)
        thread = threading.Thread(target=server.run, args=([listening],))
        thread.start()
        wait_until(lambda: server.started)
        yield listening.getsockname()[1]
        server.should_exit = server.force_exit = True
        thread.join()


def said(port: int, *parts: bytes, every: float = 0.0) -> tuple[bytes, float]:
    """What is answered until the connection is closed, and after how many seconds it is; fails
    where it stays open."""
    began = time.monotonic()
    with (
        socket.create_connection(("127.0.0.1", port), timeout=PATIENCE_SECONDS) as connection,
        suppress(ConnectionError),
    ):
        for part in parts:
            connection.sendall(part)
            time.sleep(every)
        answer = b""
        while got := connection.recv(4000):
            answer += got
        return answer, time.monotonic() - began
    return b"", time.monotonic() - began


def test_who_says_nothing_or_half_a_request_is_cut_off(port: int) -> None:
    for parts in ([], [HALF], [b"GET"], [b"x: y\r\n"] * 20):
        answer, _ = said(port, *parts, every=0.1)
        assert b"200 OK" not in answer
    # The second request of a connection, too, after its first one was answered.
    answer, seconds = said(port, HALF + b"\r\n" + HALF)
    assert answer.count(b"200 OK") == 1 and seconds > ANSWERING


@pytest.mark.slow
def test_the_dashboard_cuts_off_half_a_request(tmp_path: Path) -> None:
    with served(DataDir(tmp_path)) as (url, _server):
        _, seconds = said(urlsplit(url).port or 0, HALF)
        assert seconds >= patience.HEAD_SECONDS


def test_who_waits_for_an_answer_is_not_and_neither_is_a_websocket(port: int) -> None:
    answer, seconds = said(port, HALF + b"Connection: close\r\n\r\n")
    assert answer.endswith(b"ok") and seconds > ANSWERING > 2 * PATIENCE
    upgrade = (b"Upgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\n"
               b"Sec-WebSocket-Key: MDEyMzQ1Njc4OWFiY2RlZg==\r\n\r\n")  # fmt: skip
    with socket.create_connection(("127.0.0.1", port), timeout=4 * PATIENCE) as connection:
        connection.sendall(HALF + upgrade)
        assert b"101" in connection.recv(4000)
        with pytest.raises(TimeoutError):
            connection.recv(1)
