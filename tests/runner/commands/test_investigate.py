"""`breakeven investigate`, from the command to the answer; only its runs are fake."""

from dataclasses import replace

import pytest

from breakeven.runner.commands.cli import main
from breakeven.runner.experiments.queue import experiments
from breakeven.runner.protocol.data_dir import DataDir
from breakeven.runner.specs.experiment import ExperimentSpec
from tests.faults.investigations import record_broken, record_failed
from tests.helpers.journals import EXPERIMENT_ID, experiment_spec, record_experiment
from tests.helpers.machine import MACHINE, keep
from tests.runner.commands.test_tune import supervised_here as supervised_here

pytestmark = pytest.mark.heavy


def investigated(data_dir: DataDir, run: str, *options: str) -> tuple[int, list[ExperimentSpec]]:
    """Exit status, and the experiments that were queued."""
    backends = (*MACHINE.backends, "aot_eager_decomp_partition")
    keep(data_dir, replace(MACHINE, backends=backends))
    status = main(["investigate", run, f"--data-folder={data_dir.path}", *options])
    others = [
        experiment.spec
        for experiment in experiments(data_dir)
        if experiment.experiment_id != EXPERIMENT_ID
    ]
    return status, others


def test_a_failed_run_is_investigated_at_its_step_within_the_budget(
    data_dir: DataDir, capfd: pytest.CaptureFixture[str]
) -> None:
    run = record_failed(data_dir, "inductor")
    status, (spec,) = investigated(data_dir, run, "--budget=10m")
    assert (spec.scenario, spec.investigates) == ("investigate", run)
    assert (spec.investigation.problem, spec.investigation.step) == ("raises", 10)
    assert spec.time_limit_seconds == 600
    # The fake run makes no trial, so its search is not over.
    assert status == 1
    assert "The search ended after 0 trials, before the cause was known." in capfd.readouterr().out


def test_a_run_with_broken_parity_is_investigated_from_its_first_step_outside(
    data_dir: DataDir,
) -> None:
    _, (spec,) = investigated(data_dir, record_broken(data_dir))
    assert (spec.investigation.problem, spec.investigation.step) == ("differs", 0)
    assert spec.time_limit_seconds == 900


@pytest.mark.slow
def test_of_a_slow_run_the_ladder_is_run_and_explained(
    data_dir: DataDir, capfd: pytest.CaptureFixture[str]
) -> None:
    long = experiment_spec(120, 10, name="nightly")
    record_experiment(data_dir.runs, long, backend_seconds=0.4)
    status, (spec,) = investigated(data_dir, f"{EXPERIMENT_ID}.inductor")
    assert (status, spec.scenario) == (0, "train")
    assert spec.backends[:2] == ("eager", "aot_eager")
    assert "AOTAutograd" in capfd.readouterr().out


@pytest.mark.parametrize("label", ["inductor", "nothing"])
def test_a_run_without_a_fault_is_refused_in_a_sentence_and_nothing_is_queued(
    label: str, data_dir: DataDir, capfd: pytest.CaptureFixture[str]
) -> None:
    record_experiment(data_dir.runs, experiment_spec(40, 10))
    status, queued = investigated(data_dir, f"{EXPERIMENT_ID}.{label}")
    assert (status, queued) == (2, [])
    said = {"inductor": "there is nothing to investigate", "nothing": "no run"}
    assert said[label] in capfd.readouterr().err
