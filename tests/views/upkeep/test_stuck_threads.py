"""The doctor and the probes report a thread that hangs in a process that continues."""

import json
import threading
from collections.abc import Iterator

import pytest
from starlette.requests import Request

from breakeven.runner.doctor import process_checks
from breakeven.runner.doctor.health_finding import Health
from breakeven.runner.experiments.queue import submit
from breakeven.runner.protocol import heartbeat
from breakeven.runner.protocol.data_dir import DataDir
from breakeven.runner.specs.experiment import DataSpec, ExperimentSpec, TrainingSpec
from breakeven.runner.supervision import supervisor
from breakeven.runner.supervision.run_process import RunProcess
from breakeven.storage.index import store as store_module
from breakeven.views.upkeep import serving
from breakeven.views.upkeep import serving as state
from tests.helpers.fake_worker import COMMAND as FAKE_WORKER
from tests.helpers.journals import record_experiment
from tests.helpers.waiting import awaited, wait_until

pytestmark = pytest.mark.heavy

SPEC = ExperimentSpec(
    name="trial",
    backends=(),
    controls=0,
    data=DataSpec(num_train_samples=20),
    training=TrainingSpec(batch_size=1),
)


@pytest.fixture
def gate(monkeypatch: pytest.MonkeyPatch) -> Iterator[threading.Event]:
    """The event that blocked threads wait for; set at the end."""
    monkeypatch.setattr(heartbeat, "THREAD_STUCK_SECONDS", 0.5)
    monkeypatch.setattr(process_checks, "STUCK_SECONDS", 0.5)
    monkeypatch.setattr(state, "STUCK_SECONDS", 0.5)
    monkeypatch.setattr(state, "SOONEST_LOOK_SECONDS", 0.0)
    monkeypatch.setattr(state, "PATIENCE_SECONDS", 0.2)
    monkeypatch.setattr(supervisor, "LINGER_SECONDS", 0.0)
    opened = threading.Event()
    yield opened
    opened.set()


def test_a_thread_that_no_longer_looks_after_its_experiment_is_told_until_it_goes_on(
    folder: DataDir, gate: threading.Event, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = RunProcess.enforce_limits

    def blocked(self: RunProcess) -> None:
        gate.wait()
        real(self)

    monkeypatch.setattr(RunProcess, "enforce_limits", blocked)
    experiment_id = submit(folder, SPEC)
    at_work = threading.Thread(target=supervisor.supervise, args=(folder, FAKE_WORKER))
    at_work.start()
    wait_until(lambda: bool(heartbeat.read_heartbeat(folder).stuck))
    beat = heartbeat.read_heartbeat(folder)
    assert not beat.is_hung and list(beat.stuck) == [experiment_id]
    finding = process_checks.check_supervisor(folder)
    assert finding.health is Health.WRONG and experiment_id in finding.evidence
    assert "kill -9" in finding.remedy and "queue start" in finding.remedy
    seen = state.look()
    assert "1 of the active experiments had no supervision for" in seen.problems[0]
    gate.set()
    at_work.join()
    assert not heartbeat.read_heartbeat(folder).stuck and state.look().is_healthy
    assert folder.run_dir(f"{experiment_id}.baseline").state.is_final


def test_what_the_last_supervisor_left_is_not_held_against_the_next(folder: DataDir) -> None:
    folder.stuck_file.write_text('{"x": 1}')
    assert not heartbeat.read_heartbeat(folder).stuck  # there is none
    heartbeat.Heartbeat(folder)
    assert not folder.stuck_file.exists()


def test_an_index_that_is_stuck_keeps_no_probe_waiting_and_is_told(
    folder: DataDir, gate: threading.Event, monkeypatch: pytest.MonkeyPatch
) -> None:
    record_experiment(folder.runs)
    wait_until(lambda: state.look().is_healthy and state.look().runs == {"finished": 3})
    assert process_checks.check_dashboard(folder).health is Health.OK
    real = store_module.run_tick

    def blocked(*arguments: object) -> tuple[int, bool]:
        gate.wait()
        return real(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(store_module, "run_tick", blocked)
    wait_until(lambda: not state.look().is_healthy)
    seen = state.look()
    assert "reading run folders has taken" in seen.problems[0]
    assert seen.runs == {"finished": 3}
    finding = process_checks.check_dashboard(folder)
    assert finding.health is Health.WRONG and "kill -9" in finding.remedy
    gate.set()
    wait_until(lambda: state.look().is_healthy)


def test_a_disk_that_hangs_gets_an_answer_that_says_so(
    folder: DataDir, gate: threading.Event, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(serving, "LIMIT_SECONDS", 0.2)
    monkeypatch.setattr(serving, "look", lambda: gate.wait())
    request = Request({"type": "http"})
    for _ in range(4):  # more than there are threads
        answer = awaited(serving.healthz(request))
        assert answer.status_code == 503
        assert json.loads(bytes(answer.body))["problems"] == [serving.SILENT]
