"""A chat that alerts arrive at."""

import threading
from collections.abc import Iterator

import pytest

from breakeven.runner.alerts import outbox
from breakeven.runner.supervision import supervisor
from tests.helpers.serving import Chat


@pytest.fixture
def chat(monkeypatch: pytest.MonkeyPatch) -> Iterator[Chat]:
    server = Chat()
    threading.Thread(target=server.serve_forever, daemon=True).start()
    monkeypatch.setenv("BREAKEVEN_WEBHOOK", server.address)
    monkeypatch.setattr(outbox, "PAUSE_SECONDS", 0.01)
    monkeypatch.setattr(supervisor, "LINGER_SECONDS", 0.0)
    yield server
    server.shutdown()
