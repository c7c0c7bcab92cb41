"""Alerts reach a real server, of what failed alone, without secrets and without keeping runs."""

import logging
import socket
from types import SimpleNamespace

import pytest

from breakeven.runner.alerts import events, outbox, told
from breakeven.runner.alerts.channels import NotTaken, Webhook
from breakeven.runner.alerts.events import Alerts
from breakeven.runner.alerts.settings import read_settings
from breakeven.runner.alerts.told import Told
from breakeven.runner.commands.cli import main
from breakeven.runner.folders.data_dir import DataDir
from breakeven.runner.folders.queue import submit
from breakeven.runner.folders.states import RunState
from breakeven.runner.specs.experiment import DataSpec, ExperimentSpec, TrainingSpec
from breakeven.runner.supervision import supervisor
from tests.helpers.fake_worker import COMMAND as FAKE_WORKER
from tests.helpers.serving import Chat
from tests.helpers.waiting import wait_until

pytestmark = pytest.mark.heavy


def spec(*backends: str) -> ExperimentSpec:
    return ExperimentSpec(
        name="trial", backends=backends, controls=0, data=DataSpec(num_train_samples=30),
        training=TrainingSpec(batch_size=1),
    )  # fmt: skip


def test_a_run_that_failed_is_told_once_and_those_that_finished_are_not(
    chat: Chat, data_dir: DataDir
) -> None:
    experiment_id = submit(data_dir, spec("crash"))
    supervisor.supervise(data_dir, FAKE_WORKER)
    (one,) = chat.told
    assert (one["kind"], one["run"], one["state"]) == ("run", f"{experiment_id}.crash", "failed")
    assert "SIGSEGV" in one["text"] and experiment_id in one["text"]


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
    assert [one["reason"] for one in chat.told] == ["said [masked]"]
    assert caplog.text.count("an alert was not taken") == 2 and "abcdefgh" not in caplog.text


def test_a_receiver_that_sends_on_has_nothing_else_asked_for_from_here(chat: Chat) -> None:
    chat.sends_to = f"{chat.address.partition('/hooks')[0]}/latest/meta-data"
    with pytest.raises(NotTaken, match="302"):
        Webhook(read_settings()).send({"text": "a run failed"})
    assert chat.asked == [] and chat.told == []


def test_of_alerts_that_nobody_takes_only_so_many_wait(
    data_dir: DataDir, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BREAKEVEN_WEBHOOK", "http://127.0.0.1:9/nobody")
    sent = Alerts(data_dir)
    for number in range(2_000):
        sent.run_ended(str(number), RunState.FAILED, "")
    assert 0 < sent._outboxes[0].num_waiting <= outbox.MOST_WAITING


def test_a_receiver_that_never_answers_keeps_no_run_waiting(
    data_dir: DataDir, monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:  # takes connections, and that is all
        monkeypatch.setenv("BREAKEVEN_WEBHOOK", f"http://127.0.0.1:{silent.getsockname()[1]}/")
        monkeypatch.setattr(supervisor, "LINGER_SECONDS", 0.0)
        monkeypatch.setattr(events, "LAST_WORDS_SECONDS", 0.1)
        first, second = (submit(data_dir, spec("crash")) for _ in range(2))
        assert supervisor.supervise(data_dir, FAKE_WORKER)
    states = {data_dir.run_dir(f"{one}.baseline").state for one in (first, second)}
    assert states == {RunState.FINISHED}


def test_a_disk_that_fills_is_told_once_and_so_is_its_end(
    chat: Chat, data_dir: DataDir, monkeypatch: pytest.MonkeyPatch
) -> None:
    data_dir.path.mkdir(parents=True)
    monkeypatch.setattr(events, "LOOK_SECONDS", 0.0)
    free = [100]
    monkeypatch.setattr(events.shutil, "disk_usage",
                        lambda path: SimpleNamespace(free=free[0] * 10**9))  # fmt: skip
    monkeypatch.setenv("BREAKEVEN_ALERT_FREE", "50GB")
    for gigabytes in (100, 49, 48, 52, 49, 56, 51):
        free[0] = gigabytes
        for _ in range(2):  # two processes see it, and one tells
            one = Alerts(data_dir)
            one.look_at_disk()
            one.finish()
    assert [(one["kind"], one["is_over"]) for one in chat.told] == [
        ("disk", False), ("disk", True)
    ]  # fmt: skip
    assert "the disk fills: 49,000 MB are free" in chat.told[0]["text"]
    assert "50,000 MB should be" in chat.told[0]["text"]
    assert "there is room on the disk again: 56,000 MB" in chat.told[1]["text"]


def test_what_lasts_is_told_once_by_all_together_and_also_after_a_restart(
    chat: Chat, data_dir: DataDir
) -> None:
    data_dir.path.mkdir(parents=True)
    one, other = Alerts(data_dir), Alerts(data_dir)
    one.problem("supervisor", None)
    for said in ("it hangs for 31 s", "it hangs for 61 s", None, None, "it hangs again"):
        for who in (one, other, Alerts(data_dir)):
            who.problem("supervisor", said)
            who.finish()
    assert [one["text"].partition(": ")[2] for one in chat.told] == [
        "it hangs for 31 s", "supervising goes on again", "it hangs again"
    ]  # fmt: skip


def test_a_disk_that_cannot_even_keep_what_was_told_is_told_once_by_a_process(
    chat: Chat, data_dir: DataDir, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(told, "write_atomically", full)
    data_dir.path.mkdir(parents=True)
    sent = Alerts(data_dir)
    for _ in range(3):
        sent.problem("index", "stuck")
    sent.finish()
    assert len(chat.told) == 1


def test_a_trend_is_told_of_once_for_each_time_that_it_breaks(
    chat: Chat, data_dir: DataDir
) -> None:
    data_dir.path.mkdir(parents=True)
    for event, newest in (("e05", "e07"), ("e05", "e08"), ("e06", "e09"), ("e12", "e14")):
        Alerts(data_dir).trend_broke(
            "speedup bert inductor", event, event, newest, f"since {event}"
        )
        sent = Alerts(data_dir)
        sent.trend_broke("speedup bert inductor", event, event, newest, f"since {event}")
        sent.finish()
    Alerts(data_dir).trend_broke("speedup gpt inductor", "e05", "e05", "e07", "another")
    wait_until(lambda: len(chat.told) == 3)
    assert [one["experiment"] for one in chat.told] == ["e05", "e12", "e05"]


def test_what_was_told_never_moves_back_for_a_process_that_told_nothing_itself(
    data_dir: DataDir,
) -> None:
    data_dir.path.mkdir(parents=True)
    first, second = Told(data_dir), Told(data_dir)
    assert first.is_later("trend", "e05", "e09")
    assert not second.is_later("trend", "e04", "e07"), "the other has told up to e09"
    data_dir.alerts_file.write_text("{")  # as a full disk leaves a file of somebody else's
    assert not second.is_later("trend", "e08", "e10")
    assert second.is_later("trend", "e10", "e10")


def test_settings_that_cannot_be_meant_are_refused_in_a_sentence_without_what_is_secret(
    data_dir: DataDir, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("BREAKEVEN_WEBHOOK", "file:///etc/passwd")
    for wrong in ("mail.example.org", "http://x/?to=a@b", "smtp://n:canary123@h/", "smtp://[",
                  "smtp://n:canary123@h/?to=nobody", "smtp://h/?to=a@b%0ABcc:c@d",
                  "smtp://h:99999999/?to=a@b", "smtp://n:canary123%C3%B6@h/?to=a@b",
                  "smtp://h/?to=a@b&from=c"):  # fmt: skip
        monkeypatch.setenv("BREAKEVEN_SMTP", wrong)
        settings = read_settings()
        assert not settings.is_any and len(settings.problems) == 2, wrong
        assert "canary123" not in "".join(settings.problems)
    monkeypatch.setenv("BREAKEVEN_ALERT_FREE", "plenty")
    assert len(read_settings().problems) == 3
    assert main(["alerts", "--data-folder", str(data_dir.path)]) == 1
    said = capsys.readouterr()
    assert "must be an http or https address" in said.err and "'plenty' must be a size" in said.err
    sent = Alerts(data_dir)
    sent.run_ended("one", RunState.FAILED, "")
    assert not sent.is_any


def test_the_command_says_where_alerts_go_and_whether_a_test_was_taken(
    chat: Chat, data_dir: DataDir, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    data_dir.path.mkdir(parents=True)
    folder = ["--data-folder", str(data_dir.path)]
    assert main(["alerts", *folder]) == 0
    said = capsys.readouterr().out
    assert "http://127.0.0.1/[masked]: none was sent yet" in said and "abcdefgh" not in said
    assert main(["alerts", "--test", *folder]) == 0
    assert chat.told[0]["kind"] == "test" and "taken" in capsys.readouterr().out
    chat.refuse = 1
    assert main(["alerts", "--test", *folder]) == 1
    assert "NOT taken: HTTP Error 503" in capsys.readouterr().out
    assert main(["alerts", *folder]) == 0
    assert "was NOT taken: HTTP Error 503" in capsys.readouterr().out
    monkeypatch.delenv("BREAKEVEN_WEBHOOK")
    assert main(["alerts", *folder]) == 0
    assert "nobody is told: set BREAKEVEN_WEBHOOK or BREAKEVEN_SMTP" in capsys.readouterr().out
    assert main(["alerts", "--test", *folder]) == 1
