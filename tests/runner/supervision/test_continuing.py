"""Finished experiments that are timed further, by real workers and supervisors."""

import os
import threading
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from breakeven.runner.checks.allowed_code import CODE_VARIABLE
from breakeven.runner.errors import RunnerError
from breakeven.runner.experiments.continuing import NOT_CONTINUED, continue_experiment, plan_of
from breakeven.runner.experiments.queue import Experiment, cancel, find_experiment, submit
from breakeven.runner.processes import ProcessIdentity
from breakeven.runner.protocol.data_dir import DataDir
from breakeven.runner.protocol.events import read_events
from breakeven.runner.protocol.records import Claim
from breakeven.runner.protocol.run_dir import RunDir
from breakeven.runner.protocol.states import RunState
from breakeven.runner.specs.experiment import DataSpec, ExperimentSpec, ModelSpec, TrainingSpec
from breakeven.runner.specs.scenario_fields import PlanSpec
from breakeven.runner.supervision.exit_records import ExitRecords
from breakeven.runner.supervision.orphans import close_orphans
from breakeven.runner.supervision.supervisor import supervise
from breakeven.runner.worker.event_log import EventLog
from breakeven.runner.worker.session import run_session
from breakeven.storage.comparison.comparison import compare
from breakeven.storage.comparison.loading import load_evidence, pool
from breakeven.storage.comparison.measuring_warnings import RoundsAdded
from breakeven.storage.index.store import Store
from tests.helpers.comparisons import warnings_of
from tests.helpers.fake_worker import COMMAND as FAKE_WORKER
from tests.helpers.journals import (
    EXPERIMENT_ID,
    GONE,
    Recording,
    experiment_spec,
    falling_losses,
    record_experiment,
)
from tests.helpers.loop import FAULTS, TurnsOnPaper, torch_afresh
from tests.runner.supervision.supervised import impatience as impatience

NET = """
import torch

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(32, 4)

    def forward(self, x, labels=None):
        return self.layer(x)
"""
SOON = PlanSpec(steps=1000, max_seconds=3.0, target_width=1e-6)
"""Nothing is as equal as that, so three seconds are spent."""


def events_of(run: RunDir, kind: str) -> list[dict[str, Any]]:
    return [event for event in read_events(run.events_file)[0] if event["kind"] == kind]


def facts(data_dir: DataDir, experiment: Experiment) -> list[Any]:
    """What the training came to, which rounds do not touch."""
    with Store.in_memory(data_dir) as store:
        results = compare(store, experiment.experiment_id).results
    return [
        (
            result.state,
            result.parity,
            result.measured.metrics,
            result.value("final_loss"),
            result.value("compile_seconds"),
        )
        for result in results
    ]


def trained(data_dir: DataDir, spec: ExperimentSpec) -> Experiment:
    """An experiment that was executed in this process."""
    experiment, code = find_experiment(data_dir, submit(data_dir, spec)), os.environ[CODE_VARIABLE]
    for run in experiment.runs:
        run.write_claim(Claim.by(ProcessIdentity.from_pid(os.getpid())))
        log = EventLog(run.events_file)
        with torch_afresh(), mock.patch.dict(os.environ, {CODE_VARIABLE: code}):
            assert run_session(run, run.read_spec(), log, TurnsOnPaper())
        log.close()
        ExitRecords().write(run, RunState.FINISHED, "training is over", 0)
    return experiment


@pytest.mark.slow
@pytest.mark.heavy
def test_a_training_is_timed_further_unless_its_model_was_changed_since(
    data_dir: DataDir, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Baseline and `eager` trained 40 steps in blocks of 10; more rounds change nothing of that.
    The training is made in this process, the rounds are not."""
    monkeypatch.setenv(CODE_VARIABLE, f"{tmp_path}:{FAULTS}")
    net = tmp_path / "net.py"
    net.write_text(NET)
    data = DataSpec(
        source=f"{FAULTS / 'relu_net.py'}:samples", num_train_samples=80, num_eval_samples=8
    )
    training = TrainingSpec(
        batch_size=4, max_steps=40, learning_rate=1e-3, losses=("CrossEntropyLoss",)
    )
    spec = ExperimentSpec(
        name="trial",
        backends=("eager:scope=forward",),
        controls=0,
        task="custom",
        model=ModelSpec(source=f"{net}:Net"),
        data=data,
        training=training,
        block_steps=10,
        cpu_threads=1,
        profile_steps=0,
    )
    experiment = trained(data_dir, spec)
    before = {run: run.events_file.read_bytes() for run in experiment.runs}
    known = facts(data_dir, experiment)
    # Its weights are the same, and it does twice the work.
    net.write_text(NET.replace("self.layer(x)", "self.layer(x) + 0 * self.layer(x)"))
    continue_experiment(experiment, SOON)
    supervise(data_dir)
    assert {len(events_of(run, "block")) for run in experiment.runs} == {4}
    assert {run.state for run in experiment.runs} == {RunState.FINISHED}
    with Store.in_memory(data_dir) as store:
        text = "\n".join(warnings_of(compare(store, experiment.experiment_id)))
    assert "Timing baseline further" in text
    assert "net.py:Net is another one than in the first process" in text

    net.write_text(NET)
    assert continue_experiment(experiment, SOON) == ["baseline", "eager-forward"]
    assert not experiment.is_over
    # The supervisor finds the backend first: the baseline is as before its turn to be reopened.
    (baseline, _) = experiment.runs
    for file in (baseline.claim_file, baseline.exit_file):
        file.write_text((baseline.attempts / "2" / file.name).read_text())
    opens = threading.Timer(1.0, baseline.reopen)
    opens.start()
    supervise(data_dir)
    opens.join()
    for run, journal in before.items():
        assert run.state is RunState.FINISHED and run.events_file.read_bytes().startswith(journal)
        later = read_events(run.events_file, len(journal))[0]
        kinds = {event["kind"] for event in later}
        assert {"resumed", "block"} <= kinds
        assert not {"step", "evaluation", "stopped", "random_numbers", "profile"} & kinds
        first = next(block["first_step"] for block in later if block["kind"] == "block")
        assert first == 40
    (_, eager) = experiment.runs
    assert [resumed["attempt"] for resumed in events_of(eager, "resumed")] == [3]
    rounds = [{event["round"] for event in events_of(run, "block")} for run in experiment.runs]
    assert rounds[0] == rounds[1]
    assert facts(data_dir, experiment) == known
    with Store.in_memory(data_dir) as store:
        runs = pool(*load_evidence(store, experiment.experiment_id))
        warnings = compare(store, experiment.experiment_id).warnings
    counts = {run.label: len(run.steady_blocks) for run in runs}
    assert counts.keys() == {"baseline", "eager-forward"} and min(counts.values()) >= 6
    (added,) = (warning for warning in warnings if isinstance(warning, RoundsAdded))
    assert added.num_added >= 3


SCRIPT = """
import breakeven, torch

model = torch.nn.Linear(8, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
compiled = breakeven.compile(model)
for number in range(20):
    points = torch.randn(16, 8)
    loss = torch.nn.functional.cross_entropy(compiled(points), (points[:, 0] > 0).long())
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    breakeven.step(loss, samples=16)
breakeven.evaluated(loss=float(loss))
"""


@pytest.mark.slow
def test_a_script_is_timed_further_and_starts_again_as_often_as_it_takes(
    data_dir: DataDir, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Baseline and `eager` make 20 steps in blocks of 5. So does each further training, in one more
    process, until the time is spent. The first round of a training is in no speedup."""
    monkeypatch.setenv(CODE_VARIABLE, str(tmp_path))
    script = tmp_path / "train.py"
    script.write_text(SCRIPT)
    spec = ExperimentSpec(
        name="trial",
        backends=("eager",),
        controls=0,
        task="script",
        model=ModelSpec(source=f"script:{script}"),
        data=DataSpec(source="script"),
        block_steps=5,
        cpu_threads=1,
        profile_steps=0,
    )
    experiment_id = submit(data_dir, spec)
    supervise(data_dir)
    experiment = find_experiment(data_dir, experiment_id)
    known = facts(data_dir, experiment)
    continue_experiment(experiment, SOON)
    supervise(data_dir)
    assert {run.state for run in experiment.runs} == {RunState.FINISHED}
    assert facts(data_dir, experiment) == known
    assert all(len(events_of(run, "resumed")) > 1 for run in experiment.runs)
    assert {run.attempt for run in experiment.runs} == {2}
    with Store.in_memory(data_dir) as store:
        runs = pool(*load_evidence(store, experiment_id))
        (eager,) = (
            result for result in compare(store, experiment_id).results if result.label == "eager"
        )
    sizes = [run.steady_blocks.groupby("process").size().tolist() for run in runs]
    assert sizes[0] == sizes[1] and sum(sizes[0]) >= 6
    assert eager.speedup is not None and eager.speedup.n == sum(sizes[0])


def recorded(data_dir: DataDir, torch: str = version("torch"), **changes: Any) -> Experiment:
    """A finished experiment of this machine and this torch."""
    environment = {"versions": {"torch": torch}}
    record_experiment(data_dir.runs, experiment_spec(**changes), environment=environment)
    return find_experiment(data_dir, EXPERIMENT_ID)


def with_request(data_dir: DataDir) -> Experiment:
    """One that is to be continued."""
    experiment = recorded(data_dir)
    continue_experiment(experiment, SOON)
    assert {run.state for run in experiment.runs} == {RunState.QUEUED}
    return experiment


def ends(experiment: Experiment) -> list[str]:
    """How all runs finished."""
    statuses = [run.status for run in experiment.runs]
    assert {status.state for status in statuses} == {RunState.FINISHED}
    return [str(status.reason) for status in statuses]


@pytest.mark.heavy
def test_runs_that_can_no_longer_be_made_remain_finished(data_dir: DataDir) -> None:
    experiment = recorded(data_dir)
    known = facts(data_dir, experiment)
    continue_experiment(experiment, SOON)
    supervise(data_dir, ("/bin/false",))
    assert all("continuing ended early: exit status 1" in end for end in ends(experiment))
    assert {run.attempt for run in experiment.runs} == {2}
    assert facts(data_dir, experiment) == known


def test_what_is_stopped_or_lost_before_its_process_begins_is_finished_still(
    data_dir: DataDir,
) -> None:
    """Other orphans without a checkpoint begin anew, and their journals are put aside."""
    experiment = with_request(data_dir)
    before = [run.events_file.read_bytes() for run in experiment.runs]
    for run in experiment.runs:
        run.write_claim(replace(Claim.by(GONE), supervisor=GONE))
    close_orphans(data_dir, ExitRecords())
    assert ends(experiment)
    assert [run.events_file.read_bytes() for run in experiment.runs] == before
    continue_experiment(experiment, SOON)
    cancel(experiment)
    assert {run.state for run in experiment.runs} == {RunState.FINISHED}


@pytest.mark.heavy
def test_what_is_stopped_while_it_is_timed_further_is_finished_still(data_dir: DataDir) -> None:
    """`hang` never ends a block."""
    experiment = recorded(data_dir, backends=("hang",))
    known = facts(data_dir, experiment)
    continue_experiment(experiment, SOON)
    stops = threading.Timer(2.0, cancel, [experiment])
    stops.start()
    supervise(data_dir, FAKE_WORKER)
    stops.join()
    assert any(f"{NOT_CONTINUED}: stopped" in end for end in ends(experiment)), ends(experiment)
    assert [fact[0] for fact in facts(data_dir, experiment)] == [fact[0] for fact in known]


def test_a_request_that_cannot_be_read_ends_with_a_sentence_and_nothing_is_lost(
    data_dir: DataDir,
) -> None:
    experiment = with_request(data_dir)
    for run in experiment.runs:
        run.plan_file.write_text('{"steps": 0}')
    supervise(data_dir, FAKE_WORKER)
    assert all("plan.json cannot be used: plan.steps" in end for end in ends(experiment))


def test_a_finished_run_that_begins_anew_trains_and_can_fail(data_dir: DataDir) -> None:
    """As on a cluster that lost a machine: all runs of the experiment begin anew elsewhere."""
    run = with_request(data_dir).runs[0]
    run.begin_anew()
    assert not run.only_times
    ExitRecords().write(run, RunState.FAILED, "the device is gone", 1)
    assert run.state is RunState.FAILED


@pytest.mark.heavy
def test_what_is_decided_already_starts_no_process(data_dir: DataDir) -> None:
    """`inductor` takes half the time in all rounds; ten of them suffice."""
    spec = experiment_spec(num_steps=200)
    for arm in spec.arms:
        recording = Recording(data_dir.runs, arm.label, spec).claim()
        recording.start(environment={"versions": {"torch": version("torch")}})
        seconds = 0.05 if arm.label == "inductor" else 0.1
        recording.blocks([seconds] * 20, falling_losses(200)).end()
    experiment = find_experiment(data_dir, EXPERIMENT_ID)
    continue_experiment(experiment, PlanSpec(steps=100_000, max_seconds=60.0))
    supervise(data_dir, ("/bin/false",))
    assert all(end.startswith(f"{NOT_CONTINUED}: ") for end in ends(experiment))
    assert all("inductor" in end and "exit status" not in end for end in ends(experiment))
    assert continue_experiment(experiment, SOON), "although no process of this machine began"


def test_the_plan_is_that_of_the_experiment_or_as_long_as_its_training(data_dir: DataDir) -> None:
    experiment = recorded(data_dir)
    assert plan_of(experiment, 60.0) == PlanSpec(steps=experiment.spec.num_steps, max_seconds=60.0)
    assert plan_of(experiment, 60.0, 7).steps == 7
    wide = replace(experiment.spec, plan=PlanSpec(steps=500, target_width=0.1))
    plan = plan_of(replace(experiment, spec=wide), 60.0)
    assert plan == PlanSpec(steps=500, max_seconds=60.0, target_width=0.1)


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"schedule": "sequential"}, "its runs do not take turns"),
        ({"callbacks": ("hooks.py:Hook",)}, "its steps do more than train"),
        ({"scenario": "accuracy"}, "its runs do not take turns"),
        ({"scenario": "speed"}, "its runs are no whole trainings"),
        ({"environments": ("a=/a/python", "b=/b/python")}, "it compares environments"),
        ({"torch": "1.0.0"}, r"torch 1.0.0 measured it, and torch .* is installed"),
    ],
)
def test_what_could_not_be_compared_is_refused(
    data_dir: DataDir, changes: dict[str, Any], why: str
) -> None:
    with pytest.raises(RunnerError, match=f"cannot be continued: {why}"):
        continue_experiment(recorded(data_dir, **changes), SOON)


def test_another_machine_or_an_open_end_is_refused(data_dir: DataDir) -> None:
    experiment = recorded(data_dir)
    claim = experiment.runs[0].read_claim()
    assert claim is not None
    experiment.runs[0].write_claim(replace(claim, host="another"))
    with pytest.raises(RunnerError, match="it ran on another machine"):
        continue_experiment(experiment, SOON)
    experiment.runs[0].write_claim(claim)
    continue_experiment(experiment, SOON)
    with pytest.raises(RunnerError, match="it has not ended"):
        continue_experiment(experiment, SOON)
