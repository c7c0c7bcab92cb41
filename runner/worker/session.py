"""One run from its specification to its last event."""

from collections.abc import Callable

import transformers

from breakeven.runner.folders.run_dir import RunDir
from breakeven.runner.specs.experiment import ExperimentSpec, RunSpec
from breakeven.runner.specs.scenarios import ScenarioName
from breakeven.runner.worker.accuracy.scenario import AccuracyCheck
from breakeven.runner.worker.compiler.compiling import set_ddp_mode
from breakeven.runner.worker.compiler.gradients import explained
from breakeven.runner.worker.compiler.kept import keep_outputs
from breakeven.runner.worker.description import describe_workload
from breakeven.runner.worker.device.base import Device
from breakeven.runner.worker.device.finding import open_device
from breakeven.runner.worker.environment import describe_environment
from breakeven.runner.worker.event_log import EventLog
from breakeven.runner.worker.model.models import perturb
from breakeven.runner.worker.model.workload import Workload, load_workload
from breakeven.runner.worker.ranks.group import ALONE, Group
from breakeven.runner.worker.training.forward_passes import ForwardPasses
from breakeven.runner.worker.training.training import Trainer
from breakeven.runner.worker.turn_source import AnnouncedTurns, TurnSource
from breakeven.runner.worker.user_code import copy_sources

Work = Callable[[TurnSource], bool]


def run_session(
    run: RunDir,
    spec: RunSpec,
    log: EventLog,
    turns: TurnSource,
    device: Device | None = None,
    group: Group = ALONE,
) -> bool:
    """Sets up, waits for the first turn, does what the scenario says; False if it was stopped.

    `device` is that of this process, where a run has several.
    """
    experiment = spec.experiment
    transformers.utils.logging.disable_progress_bar()
    _enter(log, "preparing")
    device = device or open_device(spec.device)
    is_tf32 = experiment.training.precision == "tf32" or experiment.settings == "harness"
    device.allow_tf32(is_tf32)
    device.reduce_math_attention(spec.variant.math_attention == "reduced")
    set_ddp_mode(spec.variant)
    environment = describe_environment(spec.experiment_id, device, experiment.cpu_threads)
    log.append("environment", **environment)
    if group.rank == 0:
        _keep_sources(experiment, run, log)
        keep_outputs(experiment, run, log)
    workload = load_workload(experiment)
    workload.model.to(device.torch_device)
    log.append("workload", **describe_workload(spec, workload, device.torch_device))
    if spec.variant.perturbation:
        seed = experiment.training.seed + spec.variant.perturbation_seed
        perturb(workload.model, spec.variant.perturbation, seed)
    work = WORK[experiment.scenario](spec, workload, run, device, log, group)
    _enter(log, "waiting")
    turns.ready()
    with explained(spec.variant):
        finished = not turns.stop_requested and work(AnnouncedTurns(turns, log))
    if finished:
        _enter(log, "done")
    return finished


def _make_steps(
    spec: RunSpec, workload: Workload, run: RunDir, device: Device, log: EventLog, group: Group
) -> Work:
    if spec.experiment.is_inference:
        return ForwardPasses(spec, workload, run, device, log).measure
    return Trainer(spec, workload, run, device, log, group).train


def _check_accuracy(
    spec: RunSpec, workload: Workload, run: RunDir, device: Device, log: EventLog, group: Group
) -> Work:
    return AccuracyCheck(spec, workload, device, log).check


WORK: dict[ScenarioName, Callable[[RunSpec, Workload, RunDir, Device, EventLog, Group], Work]] = {
    "train": _make_steps,
    "speed": _make_steps,
    "accuracy": _check_accuracy,
    "cache": _make_steps,
}
"""What is left to do with the turns of a run, once it is prepared; it says whether it came to its
end."""


def _enter(log: EventLog, phase: str) -> None:
    log.append("phase", phase=phase)
    log.flush(durable=True)


def _keep_sources(experiment: ExperimentSpec, run: RunDir, log: EventLog) -> None:
    """Copies the Python files that the run executes: what they say later may be something else."""
    for source, file, sha256 in copy_sources(experiment.user_code, run.artifacts / "source"):
        log.append("source", source=source, file=f"artifacts/source/{file}", sha256=sha256)
