"""One run from its specification to its last event."""

from collections.abc import Callable

from breakeven.runner.folders.added_rounds import require_same_work
from breakeven.runner.folders.run_dir import RunDir
from breakeven.runner.specs.experiment import ExperimentSpec, RunSpec
from breakeven.runner.specs.variants import Variant
from breakeven.runner.worker.compiler.compiling import explained, set_ddp_mode
from breakeven.runner.worker.context import RunContext
from breakeven.runner.worker.correctness.accuracy import AccuracyCheck
from breakeven.runner.worker.description import describe_workload, record_environment
from breakeven.runner.worker.device.base import Device
from breakeven.runner.worker.device.devices import open_device
from breakeven.runner.worker.event_log import EventLog
from breakeven.runner.worker.group import ALONE, RankGroup
from breakeven.runner.worker.model.models import perturb
from breakeven.runner.worker.model.workload import Workload, load_workload
from breakeven.runner.worker.process import name_of_visible
from breakeven.runner.worker.training.forward_passes import ForwardPasses
from breakeven.runner.worker.training.training import Trainer
from breakeven.runner.worker.turn_source import RecordedTurns, TurnSource


def run_session(
    run: RunDir,
    spec: RunSpec,
    log: EventLog,
    turns: TurnSource,
    device: Device | None = None,
    group: RankGroup = ALONE,
) -> bool:
    """Sets up, waits for the first turn and executes the scenario; False if it was stopped.

    A run on several devices passes the `device` of this process.
    """
    context = open_context(run, spec, log, device, group)
    experiment, device = spec.experiment, context.device
    workload = load_workload(experiment)
    workload.model.to(device.torch_device)
    log.append("workload", **describe_workload(spec, workload, device.torch_device))
    if context.adds_rounds and group.rank == 0:
        log.flush()
        require_same_work(run)
    if spec.variant.perturbation:
        seed = experiment.training.seed + spec.variant.perturbation_seed
        perturb(workload.model, spec.variant.perturbation, seed)
    work = _work(context, workload)
    log.enter("waiting")
    turns.ready()
    with explained(spec.variant):
        finished = not turns.stop_requested and work(RecordedTurns(turns, log))
    if finished:
        log.enter("done")
    return finished


def name_of(spec: RunSpec) -> str:
    """The run's device as this process names it; a script sees no other one."""
    return name_of_visible(spec.device) if spec.experiment.is_script else spec.device


def apply_precision(experiment: ExperimentSpec, variant: Variant, device: Device) -> None:
    """Sets what float32 products and unfused attention may round to in this process."""
    by_experiment = experiment.training.precision == "tf32" or experiment.settings == "harness"
    device.allow_tf32(by_experiment or variant.tf32)
    device.reduce_math_attention(variant.math_attention == "reduced")


def open_context(
    run: RunDir,
    spec: RunSpec,
    log: EventLog,
    device: Device | None = None,
    group: RankGroup = ALONE,
) -> RunContext:
    """Opens the device with the run's settings, and records what the run executes on."""
    log.enter("preparing")
    device = device or open_device(name_of(spec))
    apply_precision(spec.experiment, spec.variant, device)
    set_ddp_mode(spec.variant)
    context = RunContext(spec, run, device, log, group)
    record_environment(context)
    return context


def _work(context: RunContext, workload: Workload) -> Callable[[TurnSource], bool]:
    """The function that uses the run's turns, by scenario; it returns whether it finished."""
    if context.experiment.kind.compares_tensors:
        return AccuracyCheck(context, workload).check
    if context.experiment.is_inference:
        return ForwardPasses(context, workload).measure
    return Trainer(context, workload).train
