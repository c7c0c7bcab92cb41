"""Alerts reach a real server, of what failed alone, without secrets and without keeping runs."""

import json
import logging
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from runner.folders.queue import submit
from runner.folders.run_dir import DataDir
from runner.folders.states import RunState
from runner.specs.experiment import DataSpec, ExperimentSpec, TrainingSpec
from runner.supervision import alerts, supervisor
from runner.supervision.alerts import Alerts
from tests.helpers.fake_worker import COMMAND as FAKE_WORKER

pytestmark = pytest.mark.heavy


class Chat(ThreadingHTTPServer):
    """Somebody's server: refuses so many requests first, and keeps what it then is told."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Hook)
        self.refuse = 0
        self.told: list[dict[str, Any]] = []
        self.address = f"http://127.0.0.1:{self.server_address[1]}/hooks/abcdefgh"


class Hook(BaseHTTPRequestHandler):
    server: Chat

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["content-length"]))
        self.server.refuse -= 1
        if self.server.refuse >= 0:
            self.send_error(503)
            return
        self.server.told.append(json.loads(body))
        self.send_response(204)
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:
        return


@pytest.fixture
def chat(monkeypatch: pytest.MonkeyPatch) -> Iterator[Chat]:
    server = Chat()
    threading.Thread(target=server.serve_forever, daemon=True).start()
    monkeypatch.setenv("BREAKEVEN_WEBHOOK", server.address)
    monkeypatch.setattr(alerts, "PAUSE_SECONDS", 0.01)
    monkeypatch.setattr(supervisor, "LINGER_SECONDS", 0.0)
    yield server
    server.shutdown()


def test_a_run_that_failed_is_told_once_and_those_that_finished_are_not(
    chat: Chat, data_dir: DataDir
) -> None:
    experiment_id = submit(data_dir, ExperimentSpec(
        name="trial", backends=("crash",), controls=0, data=DataSpec(num_train_samples=30),
        training=TrainingSpec(batch_size=1),
    ))  # fmt: skip
    supervisor.supervise(data_dir, FAKE_WORKER)
    (told,) = chat.told
    assert (told["kind"], told["run"], told["state"]) == ("run", f"{experiment_id}.crash", "failed")
    assert "SIGSEGV" in told["text"] and experiment_id in told["text"]


def test_a_server_that_refuses_is_asked_again_and_the_log_does_not_have_its_address(
    chat: Chat, data_dir: DataDir, caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.setenv("CLOUD_SECRET_KEY", "canary-0123456789")
    chat.refuse = 2
    sent = Alerts(data_dir)
    with caplog.at_level(logging.WARNING):
        sent.run_ended("one", RunState.FAILED, "said canary-0123456789")
        sent.run_ended("two", RunState.CANCELLED, "stopped on request")
        sent.finish()
    assert [told["reason"] for told in chat.told] == ["said [masked]"]
    assert caplog.text.count("an alert was not taken") == 2 and "abcdefgh" not in caplog.text


def test_of_alerts_that_nobody_takes_only_so_many_wait(
    data_dir: DataDir, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BREAKEVEN_WEBHOOK", "http://127.0.0.1:9/nobody")
    sent = Alerts(data_dir)
    for number in range(2_000):
        sent.run_ended(str(number), RunState.FAILED, "")
    assert sent._waiting.qsize() <= alerts.MOST_WAITING


def test_a_full_disk_is_told_once_and_so_is_its_end(
    chat: Chat, data_dir: DataDir, monkeypatch: pytest.MonkeyPatch
) -> None:
    data_dir.path.mkdir(parents=True)
    monkeypatch.setattr(alerts, "LOOK_SECONDS", 0.0)
    sent = Alerts(data_dir)
    sent.look_at_disk()
    monkeypatch.setattr(alerts, "MIN_FREE_BYTES", 10**18)
    sent.look_at_disk()
    sent.look_at_disk()
    monkeypatch.setattr(alerts, "MIN_FREE_BYTES", 0)
    sent.look_at_disk()
    sent.finish()
    assert [told["kind"] for told in chat.told] == ["disk", "disk"]
    assert "no room for another experiment" in chat.told[0]["text"]
    assert "there is room again" in chat.told[1]["text"]


def test_an_address_that_is_none_of_the_web_is_refused(
    data_dir: DataDir, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("BREAKEVEN_WEBHOOK", "file:///etc/passwd")
    sent = Alerts(data_dir)
    sent.run_ended("one", RunState.FAILED, "")
    assert "must be an http or https address" in caplog.text and not sent._waiting.qsize()
