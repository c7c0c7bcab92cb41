"""Runs that go on on other devices: what is written down, who sees it, what is refused."""

from typing import Any

import pytest

from breakeven.runner.errors import InvalidRunFolder, InvalidSpec
from breakeven.runner.experiments.queue import find_experiment, resume, submit
from breakeven.runner.machine.occupancy import resource_request
from breakeven.runner.protocol.data_dir import DataDir
from breakeven.runner.protocol.records import Exit
from breakeven.runner.protocol.run_dir import RunDir, devices_in_use, moved_spec, spec_in_use
from breakeven.runner.protocol.states import RunState
from breakeven.runner.specs.experiment import CheckpointSpec, DataSpec, ExperimentSpec, TrainingSpec


def spec(**changes: Any) -> ExperimentSpec:
    return ExperimentSpec(
        **{
            "name": "trial",
            "backends": (),
            "controls": 0,
            "checkpoints": CheckpointSpec(every=2, unit="steps"),
            "data": DataSpec(num_train_samples=24),
            "training": TrainingSpec(batch_size=4, epochs=4),
            "devices": ("cpu", "cpu"),
            **changes,
        }
    )


def stopped(data_dir: DataDir, spec: ExperimentSpec) -> tuple[str, RunDir]:
    """An experiment of one run, with a checkpoint, that was stopped."""
    experiment_id = submit(data_dir, spec)
    (run,) = find_experiment(data_dir, experiment_id).runs
    stop(run)
    return experiment_id, run


def stop(run: RunDir) -> None:
    run.checkpoints.mkdir(parents=True, exist_ok=True)
    (run.checkpoints / "step-00000002.sharded").mkdir(exist_ok=True)
    run.write_exit(Exit.now(RunState.CANCELLED, "stopped on request", 75))


def test_a_run_goes_on_where_it_was_last_put_and_its_specification_stays(data_dir: DataDir) -> None:
    wanted = spec()
    experiment_id, run = stopped(data_dir, wanted)
    on_one = moved_spec(wanted, ("cpu",), None)
    resume(find_experiment(data_dir, experiment_id), on_one)
    experiment = find_experiment(data_dir, experiment_id)
    assert experiment.spec == wanted and run.read_spec().experiment == wanted
    assert spec_in_use(run).experiment == on_one
    assert resource_request(experiment).devices == ("cpu",)
    stop(run)
    resume(find_experiment(data_dir, experiment_id))
    assert spec_in_use(run).experiment == on_one, "and goes on there when it is resumed once more"
    stop(run)
    on_four = moved_spec(wanted, ("cpu",) * 4, "fsdp")
    resume(find_experiment(data_dir, experiment_id), on_four)
    assert devices_in_use(run, wanted) == ("cpu", "cpu", "cpu", "cpu")
    run.begin_anew()
    assert spec_in_use(run).experiment == wanted, "what begins anew is what was asked for"


@pytest.mark.parametrize(
    ("settings", "devices", "parallel", "words"),
    [
        ({}, ("cuda:0",), None, "another kind of device"),
        ({}, ("cpu",) * 3, None, "must be a multiple of 3"),
        ({}, ("cpu", "cpu"), "dp", "copies the model from one CUDA device"),
        ({"parallel": "fsdp"}, ("cuda:0", "cpu"), None, "must all be of one kind|another kind"),
    ],
)
def test_what_cannot_go_on_elsewhere_is_refused_with_the_reason(
    settings: dict[str, Any], devices: tuple[str, ...], parallel: str | None, words: str
) -> None:
    with pytest.raises(InvalidSpec, match=words):
        moved_spec(spec(**settings), devices, parallel)


@pytest.mark.parametrize("text", ["{}", "[", '{"devices": [1], "parallel": "ddp"}', "[" * 9999])
def test_devices_that_cannot_be_read_are_told_by_the_run_and_stop_no_plan(
    data_dir: DataDir, text: str
) -> None:
    experiment_id, run = stopped(data_dir, spec())
    run.reopen()
    run.devices_file.write_text(text)
    assert resource_request(find_experiment(data_dir, experiment_id)).devices == ("cpu", "cpu")
    with pytest.raises(InvalidRunFolder, match=r"devices\.json"):
        spec_in_use(run)
