"""Other accounts of the machine look; they act only with the secret link."""

import os
import socket
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

from breakeven.runner import secret_link
from breakeven.runner.protocol.data_dir import DataDir
from breakeven.views.access import accounts, permissions
from breakeven.views.access.accounts import is_other_account
from breakeven.views.access.request_checks import RequestChecks
from tests.helpers.waiting import awaited

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="Linux alone tells of accounts")
STREAM, UPLOAD = "/_stcore/stream", "/_stcore/upload_file/a/b"


@contextmanager
def connected(family: int, host: str, by: str | None = None) -> Iterator[dict[str, Any]]:
    """A connection to this machine, as in a request's scope; `by`: another way to it."""
    with ExitStack() as stack:
        server = stack.enter_context(socket.socket(family))
        server.bind((host, 0))
        server.listen()
        other = socket.AF_INET6 if by else family
        client = stack.enter_context(socket.socket(other))
        client.connect((by or host, server.getsockname()[1]))
        accepted, come_from = server.accept()
        stack.enter_context(accepted)
        yield {
            "client": come_from[:2],
            "server": accepted.getsockname()[:2],
            "socket": client,
            "headers": [(b"host", b"localhost")],
            "type": "websocket",
            "path": STREAM,
        }


WAYS = [
    (socket.AF_INET, "127.0.0.1", None),
    (socket.AF_INET, "127.0.0.1", "::ffff:127.0.0.1"),
    (socket.AF_INET6, "::1", None),
]


@pytest.mark.parametrize("way", WAYS)
def test_a_connection_is_ours_or_anothers_whichever_way_it_comes(
    way: tuple[int, str, str | None], monkeypatch: pytest.MonkeyPatch
) -> None:
    with connected(*way) as scope:
        assert not is_other_account(scope)
        become_somebody_else(monkeypatch)
        assert is_other_account(scope)


def test_who_hangs_up_at_once_is_not_taken_for_us() -> None:
    """The kernel lists root as the owner of such a connection."""
    with connected(*WAYS[0]) as scope:
        scope["socket"].close()
        assert is_other_account(scope)


def test_where_the_system_tells_nothing_everybody_here_may_act(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    with connected(*WAYS[0]) as scope:
        become_somebody_else(monkeypatch)
        monkeypatch.setattr(accounts, "TABLES", (tmp_path / "none",))
        assert not is_other_account(scope)
    assert not is_other_account({"client": None, "server": None})


def test_another_accounts_page_may_look_and_bring_no_files_without_the_secret_link(
    folder: DataDir, monkeypatch: pytest.MonkeyPatch
) -> None:
    with connected(*WAYS[0]) as scope:
        assert permissions.may_act_by(passed_on(scope))
        upload = {**scope, "type": "http", "method": "PUT", "path": UPLOAD}
        assert permissions.may_act_by(passed_on(upload))
        become_somebody_else(monkeypatch)
        assert passed_on(scope) and not permissions.may_act_by(passed_on(scope))
        assert passed_on(upload) == {}
        token = secret_link.ensure(folder)
        cookie = (b"cookie", f"{secret_link.cookie_name(token)}={token}".encode())
        scope["headers"].append(cookie)
        assert permissions.may_act_by(passed_on(scope)) and passed_on(upload)


def become_somebody_else(monkeypatch: pytest.MonkeyPatch) -> None:
    someone = os.getuid() + 1
    monkeypatch.setattr(accounts.os, "getuid", lambda: someone)
    monkeypatch.setattr(accounts, "ROOT", someone)


def passed_on(scope: dict[str, Any]) -> dict[str, str]:
    """The headers that reach the dashboard; none if the request does not reach it."""
    reached: dict[str, str] = {}

    async def behind(scope: Any, receive: Any, send: Any) -> None:
        reached.update((name.decode(), value.decode()) for name, value in scope["headers"])

    async def send(message: Any) -> None:
        assert message.get("status", 403) == 403

    awaited(
        RequestChecks(behind, permissions.may_act_by)({"query_string": b"", **scope}, None, send)
    )
    return reached
