"""A trend that breaks is told once: by the supervisor when nothing waits, or by a nightly job."""

from pathlib import Path

import pytest

from breakeven.runner.alerts import trends
from breakeven.runner.alerts.events import Alerts
from breakeven.runner.alerts.told import Told
from breakeven.runner.commands.cli import main
from breakeven.runner.folders.data_dir import DataDir
from breakeven.runner.folders.queue import submit
from breakeven.runner.specs.experiment import DataSpec, ExperimentSpec, TrainingSpec
from breakeven.runner.supervision import supervisor
from tests.helpers.fake_worker import COMMAND as FAKE_WORKER
from tests.helpers.nights import NOISE, record_night, record_slower_torch
from tests.helpers.serving import Chat

pytestmark = pytest.mark.heavy


@pytest.mark.slow
def test_the_supervisor_tells_once_it_has_nothing_to_do_and_a_nightly_job_does_not_again(
    chat: Chat, data_dir: DataDir, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(supervisor, "LINGER_SECONDS", 0.0)
    record_slower_torch(data_dir)
    submit(data_dir, ExperimentSpec(
        name="trial", backends=(), controls=0, data=DataSpec(num_train_samples=10),
        training=TrainingSpec(batch_size=1),
    ))  # fmt: skip
    assert supervisor.supervise(data_dir, FAKE_WORKER)
    (told,) = chat.told
    # The first night with the torch that came on the ninth.
    assert (told["kind"], told["experiment"]) == ("trend", "20261109-093015-123456-7f3a")
    assert "a trend broke: speedup of inductor" in told["text"]
    assert "torch 2.12.0 to 2.13.0" in told["text"]
    assert main(["alerts", "--check", "--data-folder", str(data_dir.path)]) == 0
    record_night(data_dir, 13, 0.125 * NOISE[1])
    assert main(["alerts", "--check", "--data-folder", str(data_dir.path)]) == 0
    assert len(chat.told) == 1
    # It breaks again: by more than before.
    for day in range(14, 20):
        record_night(data_dir, day, 0.16 * NOISE[day % 6])
    assert main(["alerts", "--check", "--data-folder", str(data_dir.path)]) == 0
    assert [one["experiment"][:8] for one in chat.told] == ["20261109", "20261114"]


def test_what_cannot_be_asked_is_logged_and_keeps_nobody(
    data_dir: DataDir, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture,
    tmp_path: Path,
) -> None:  # fmt: skip
    for command in (("/nowhere/python",), ("/bin/false",), ("/bin/echo", "{"), ("/bin/sleep", "9")):
        monkeypatch.setattr(trends, "COMMAND", command)
        monkeypatch.setattr(trends, "LIMIT_SECONDS", 0.5)
        assert trends.tell_broken_trends(data_dir, Alerts(data_dir)) == 0
    assert caplog.text.count("trends could not be asked for") == 4
    assert Told(data_dir).last("webhook") is None
