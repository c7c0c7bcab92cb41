"""Rounds that are added to an experiment which has finished, by real workers and supervisors."""

import json
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
from breakeven.runner.experiments.added_rounds import add_rounds
from breakeven.runner.experiments.queue import Experiment, cancel, find_experiment, submit
from breakeven.runner.processes import ProcessIdentity
from breakeven.runner.protocol.data_dir import DataDir
from breakeven.runner.protocol.events import read_events
from breakeven.runner.protocol.records import Claim
from breakeven.runner.protocol.run_dir import RunDir
from breakeven.runner.protocol.states import RunState
from breakeven.runner.specs.experiment import DataSpec, ExperimentSpec, ModelSpec, TrainingSpec
from breakeven.runner.specs.scenario_fields import AddedRounds
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
from tests.helpers.journals import EXPERIMENT_ID, GONE, experiment_spec, record_experiment
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
SOON = AddedRounds(processes=2, max_seconds=0.4)


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
def test_further_processes_add_rounds_to_a_training_unless_its_model_was_changed_since(
    data_dir: DataDir, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Baseline and `eager` trained 40 steps in blocks of 5; the rounds change nothing of that. The
    training is made in this process, the rounds are not."""
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
        block_steps=5,
        cpu_threads=1,
        profile_steps=0,
    )
    experiment = trained(data_dir, spec)
    before = {run: run.events_file.read_bytes() for run in experiment.runs}
    known = facts(data_dir, experiment)
    once = replace(SOON, processes=1)
    assert add_rounds(experiment, ["eager-forward"], once) == ["baseline", "eager-forward"]
    assert not experiment.is_over
    # The supervisor finds the backend first: the baseline is as before its turn to be reopened.
    (baseline, _) = experiment.runs
    for file in (baseline.claim_file, baseline.exit_file):
        file.write_text((baseline.attempts / "1" / file.name).read_text())
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
    assert [resumed["attempt"] for resumed in events_of(eager, "resumed")] == [2]
    rounds = [{event["round"] for event in events_of(run, "block")} for run in experiment.runs]
    assert rounds[0] == rounds[1]
    assert facts(data_dir, experiment) == known
    with Store.in_memory(data_dir) as store:
        runs = pool(*load_evidence(store, experiment.experiment_id))
        warnings = compare(store, experiment.experiment_id).warnings
    counts = {run.label: run.steady_blocks.groupby("process").size().tolist() for run in runs}
    assert counts.keys() == {"baseline", "eager-forward"}
    assert all(len(sizes) == 2 and min(sizes) >= 6 for sizes in counts.values())
    (added,) = (warning for warning in warnings if isinstance(warning, RoundsAdded))
    assert added.num_added >= 6

    # Its weights are the same, and it does twice the work.
    net.write_text(NET.replace("self.layer(x)", "self.layer(x) + 0 * self.layer(x)"))
    blocks = {run: len(events_of(run, "block")) for run in experiment.runs}
    add_rounds(experiment, ["eager-forward"], once)
    supervise(data_dir)
    assert {run: len(events_of(run, "block")) for run in experiment.runs} == blocks
    assert {run.state for run in experiment.runs} == {RunState.FINISHED}
    with Store.in_memory(data_dir) as store:
        text = "\n".join(warnings_of(compare(store, experiment.experiment_id)))
    assert "Adding rounds to " in text
    assert "net.py:Net is another one than in the first process" in text


SCRIPT = """
import breakeven, torch

model = torch.nn.Linear(8, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
compiled = breakeven.compile(model)
for number in range(40):
    points = torch.randn(16, 8)
    loss = torch.nn.functional.cross_entropy(compiled(points), (points[:, 0] > 0).long())
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    breakeven.step(loss, samples=16)
breakeven.evaluated(loss=float(loss))
"""


@pytest.mark.slow
def test_further_processes_of_a_script_add_rounds(
    data_dir: DataDir, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Baseline and `eager` make 40 steps in blocks of 5, and each of two further processes, too:
    its eight rounds are over before the time is spent. The first round of a process is in no
    speedup."""
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
    add_rounds(experiment, ["eager"], replace(SOON, max_seconds=1000.0, target_width=1e-6))
    supervise(data_dir)
    assert {run.state for run in experiment.runs} == {RunState.FINISHED}
    assert facts(data_dir, experiment) == known
    with Store.in_memory(data_dir) as store:
        runs = pool(*load_evidence(store, experiment_id))
        (eager,) = (
            result for result in compare(store, experiment_id).results if result.label == "eager"
        )
    assert [run.steady_blocks.groupby("process").size().tolist() for run in runs] == [[7, 7, 7]] * 2
    assert eager.speedup is not None and eager.speedup.n == 21


def recorded(data_dir: DataDir, torch: str = version("torch"), **changes: Any) -> Experiment:
    """A finished experiment of this machine and this torch."""
    environment = {"versions": {"torch": torch}}
    record_experiment(data_dir.runs, experiment_spec(**changes), environment=environment)
    return find_experiment(data_dir, EXPERIMENT_ID)


def with_request(data_dir: DataDir) -> Experiment:
    """One to which rounds are to be added."""
    experiment = recorded(data_dir)
    add_rounds(experiment, ["inductor"], SOON)
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
    add_rounds(experiment, ["inductor"], SOON)
    supervise(data_dir, ("/bin/false",))
    assert all("adding rounds ended early: exit status 1" in end for end in ends(experiment))
    assert {run.attempt for run in experiment.runs} == {2}, "no second process was tried"
    assert facts(data_dir, experiment) == known


@pytest.mark.heavy
def test_each_further_process_begins_when_the_one_before_it_has_ended(data_dir: DataDir) -> None:
    experiment = with_request(data_dir)
    supervise(data_dir, FAKE_WORKER)
    assert ends(experiment) and {run.attempt for run in experiment.runs} == {3}


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
    add_rounds(experiment, ["inductor"], SOON)
    cancel(experiment)
    assert {run.state for run in experiment.runs} == {RunState.FINISHED}


def test_a_request_that_cannot_be_read_ends_with_a_sentence_and_nothing_is_lost(
    data_dir: DataDir,
) -> None:
    experiment = with_request(data_dir)
    for run in experiment.runs:
        run.rounds_file.write_text('{"processes": 0}')
    supervise(data_dir, FAKE_WORKER)
    assert all("rounds.json cannot be used: rounds.processes" in end for end in ends(experiment))


def test_a_finished_run_that_begins_anew_adds_no_rounds_and_can_fail(data_dir: DataDir) -> None:
    """As on a cluster that lost a machine: all runs of the experiment begin anew elsewhere."""
    run = with_request(data_dir).runs[0]
    run.begin_anew()
    assert not run.adds_rounds
    ExitRecords().write(run, RunState.FAILED, "the device is gone", 1)
    assert run.state is RunState.FAILED


def test_only_the_backends_that_are_named_run_again(data_dir: DataDir) -> None:
    experiment = recorded(data_dir, backends=("eager", "inductor"))
    assert add_rounds(experiment, ["eager"], SOON) == ["baseline", "control", "eager"]
    assert experiment.runs[3].state is RunState.FINISHED
    written = json.loads((experiment.runs[0].path / "rounds.json").read_text())
    assert written == {"processes": 2, "target_width": 0.02, "max_seconds": 0.4}


def test_runs_of_all_environments_can_run_again_whatever_torch_is_installed_here(
    data_dir: DataDir,
) -> None:
    experiment = recorded(data_dir, "1.0.0", environments=("a=/a/python", "b=/b/python"))
    assert add_rounds(experiment, ["inductor@b"], SOON) == [
        "baseline@a",
        "control@a",
        "baseline@b",
        "control@b",
        "inductor@b",
    ]


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"schedule": "sequential"}, "its runs do not take turns"),
        ({"callbacks": ("hooks.py:Hook",)}, "its steps do more than train"),
        ({"scenario": "accuracy"}, "its runs do not take turns"),
        ({"torch": "1.0.0"}, r"torch 1.0.0 measured it, and torch .* is installed"),
    ],
)
def test_rounds_that_could_not_be_compared_are_refused(
    data_dir: DataDir, changes: dict[str, Any], why: str
) -> None:
    with pytest.raises(RunnerError, match=f"no rounds can be added to .*: {why}"):
        add_rounds(recorded(data_dir, **changes), [], SOON)


def test_another_machine_or_an_open_end_is_refused(data_dir: DataDir) -> None:
    experiment = recorded(data_dir)
    claim = experiment.runs[0].read_claim()
    assert claim is not None
    experiment.runs[0].write_claim(replace(claim, host="another"))
    with pytest.raises(RunnerError, match="it ran on another machine"):
        add_rounds(experiment, ["inductor"], SOON)
    experiment.runs[0].write_claim(claim)
    add_rounds(experiment, ["inductor"], SOON)
    with pytest.raises(RunnerError, match="it has not ended"):
        add_rounds(experiment, ["inductor"], SOON)
