"""Notifications reach a real server through Apprise, without secrets and without delaying runs."""

import logging
import socket
import threading
from collections.abc import Iterator

import pytest

from breakeven.runner import notifications
from breakeven.runner.experiments.queue import find_experiment, submit
from breakeven.runner.notifications import Notifier
from breakeven.runner.protocol.data_dir import DataDir
from breakeven.runner.protocol.states import RunState
from breakeven.runner.specs.experiment import DataSpec, ExperimentSpec, TrainingSpec
from breakeven.runner.supervision import supervisor
from tests.helpers.fake_worker import COMMAND as FAKE_WORKER
from tests.helpers.nights import record_slower_torch
from tests.helpers.serving import Receiver
from tests.runner.supervision.supervised import impatience as impatience

pytestmark = pytest.mark.heavy
TREND_COMMAND = notifications.TREND_COMMAND


@pytest.fixture
def receiver(monkeypatch: pytest.MonkeyPatch) -> Iterator[Receiver]:
    server = Receiver()
    threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
    monkeypatch.setenv("BREAKEVEN_NOTIFY", server.address)
    monkeypatch.setattr(notifications, "PAUSE_SECONDS", 0.01)
    monkeypatch.setattr(notifications, "TREND_COMMAND", ("/bin/echo", "[]"))
    yield server
    server.shutdown()


def spec(*backends: str) -> ExperimentSpec:
    return ExperimentSpec(
        name="trial",
        backends=backends,
        controls=0,
        data=DataSpec(num_train_samples=30),
        training=TrainingSpec(batch_size=1),
    )


def test_a_supervisor_tells_of_runs_that_failed_of_experiments_that_ended_and_last_the_answer(
    receiver: Receiver, data_dir: DataDir
) -> None:
    """While others wait, reading an answer would disturb their measurements."""
    well, experiment_id = submit(data_dir, spec()), submit(data_dir, spec("crash"))
    submit(data_dir, spec("crash"))
    Notifier().experiment_ended(find_experiment(data_dir, well))  # It has not ended.
    assert supervisor.supervise(data_dir, FAKE_WORKER)
    success, failed, ended, _, last = receiver.received
    assert success["type"] == "success" and success["title"].endswith("ended: finished")
    host = f"Breakeven on {socket.gethostname()}"
    assert failed["title"] == f"{host}: {experiment_id}.crash: failed"
    assert "SIGSEGV" in failed["message"] and failed["type"] == "failure"
    assert ended["title"] == f"{host}: experiment {experiment_id} ended: partly failed"
    assert "trial on cpu: runs: 1 finished, 1 failed." in ended["message"]
    assert ended["type"] == "failure"
    answer = "Nothing worked: crash did not finish."
    assert answer in last["message"] and answer not in ended["message"]


def test_a_server_that_refuses_gets_further_attempts_and_nothing_secret_is_written(
    receiver: Receiver, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CLOUD_SECRET_KEY", "canary-0123456789")
    receiver.refuse = 2
    notifier = Notifier()
    notifier.run_ended("one", RunState.FAILED, "said canary-0123456789")
    notifier.run_ended("two", RunState.CANCELLED, "stopped on request")
    notifier.finish()
    assert [notification["message"] for notification in receiver.received] == ["said [masked]"]
    receiver.refuse = 10
    with caplog.at_level(logging.WARNING, logger="breakeven"):
        notifier.run_ended("three", RunState.FAILED, "")
        notifier.finish()
    said = [record.getMessage() for record in caplog.records if record.name == "breakeven"]
    assert len(said) == 1 and said[0].startswith("a notification did not arrive: ")
    assert "503" in said[0] and "abcdefgh" not in caplog.text and "canary" not in caplog.text


def test_a_server_that_redirects_gets_no_further_request(receiver: Receiver) -> None:
    receiver.sends_to = f"{receiver.url}/latest/meta-data"
    assert "302" in (Notifier().send_test() or "")
    assert receiver.looked_up == [] and receiver.received == []


def test_a_server_that_never_answers_delays_no_run(
    data_dir: DataDir, monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:  # It accepts connections only.
        monkeypatch.setenv("BREAKEVEN_NOTIFY", f"json://127.0.0.1:{silent.getsockname()[1]}/")
        monkeypatch.setattr(notifications, "FINISH_SECONDS", 0.1)
        monkeypatch.setattr(notifications, "TREND_COMMAND", ("/bin/echo", "[]"))
        monkeypatch.setattr(notifications, "SHOW_COMMAND", ("/bin/sh", "-c", "echo {}"))
        first, second = (submit(data_dir, spec("crash")) for _ in range(2))
        assert supervisor.supervise(data_dir, FAKE_WORKER)
        states = {
            data_dir.run_dir(f"{experiment_id}.baseline").state for experiment_id in (first, second)
        }
    assert states == {RunState.FINISHED}


def test_of_notifications_that_nobody_takes_only_so_many_wait(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("BREAKEVEN_NOTIFY", "json://127.0.0.1:9/")
    monkeypatch.setattr(notifications, "PAUSE_SECONDS", 3600.0)
    notifier = Notifier()
    for number in range(2_000):
        notifier.run_ended(str(number), RunState.FAILED, "")
    assert 0 < notifier._waiting.qsize() <= notifications.MAX_WAITING


def test_an_address_that_is_none_is_named_by_its_number_and_the_others_are_used(
    receiver: Receiver,
) -> None:
    notifier = Notifier(f"{receiver.address} nothing://canary0123456789 canary0123456789")
    assert notifier.service_names == ["JSON"]
    assert [problem.partition(" is unknown")[0] for problem in notifier.problems] == [
        "BREAKEVEN_NOTIFY: address 2 of 3",
        "BREAKEVEN_NOTIFY: address 3 of 3",
    ]
    assert "canary" not in "".join(notifier.problems)
    assert notifier.send_test() is None
    assert receiver.received[0]["message"] == "Notifications arrive."
    assert not Notifier("").has_addresses and not Notifier("canary0123456789").has_addresses


@pytest.mark.slow
def test_a_notification_of_a_broken_trend_names_the_experiment_that_shows_it(
    receiver: Receiver, data_dir: DataDir, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(notifications, "TREND_COMMAND", TREND_COMMAND)
    record_slower_torch(data_dir)
    notifier = Notifier()
    nights = [f"202611{day:02d}-093015-123456-7f3a" for day in range(1, 13)]
    for night in nights:
        notifier.trends_broke(data_dir, [night])
    notifier.finish()
    (notification,) = receiver.received
    assert notification["title"].endswith("a trend broke") and notification["type"] == "warning"
    # The first night with the torch that came on the ninth.
    assert "20261109-093015-123456-7f3a" in notification["message"]
    assert "torch 2.12.0 to 2.13.0" in notification["message"]


def test_trends_that_cannot_be_read_are_logged_and_stop_nothing(
    receiver: Receiver,
    data_dir: DataDir,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    notifier = Notifier()
    for command in (("/nowhere/python",), ("/bin/false",), ("/bin/echo", "{"), ("/bin/sleep", "9")):
        monkeypatch.setattr(notifications, "TREND_COMMAND", command)
        monkeypatch.setattr(notifications, "TREND_LIMIT_SECONDS", 0.1)
        notifier.trends_broke(data_dir, ["one"])
    assert caplog.text.count("trends could not be read") == 4
    assert receiver.received == []
