"""Continues a finished experiment that is undecided: its runs are timed again until it is decided
which takes the least time for a planned length, or until a budget of time is spent.

A further process of each run trains from the beginning, as a training that is too short starts
again. Its blocks follow the last step in the journal; losses, evaluations and profiles remain those
of the finished training. However the process ends, the run remains finished. The request is
`plan.json` in the run folder.
"""

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Any

from breakeven.runner.errors import RunnerError, WorkloadError
from breakeven.runner.experiments.queue import Experiment, writing
from breakeven.runner.experiments.unconfirmed_searches import why_too_short
from breakeven.runner.files import write_atomically
from breakeven.runner.logs import log_action
from breakeven.runner.protocol.events import each_event
from breakeven.runner.protocol.run_dir import RunDir
from breakeven.runner.protocol.states import RunState
from breakeven.runner.specs.experiment import ExperimentSpec
from breakeven.runner.specs.scenario_fields import PlanSpec
from breakeven.runner.texts import printable

NOT_CONTINUED = "training is over; continuing ended early"
"""Start of the reason why a finished run was timed no further."""
USUAL_SECONDS = 600.0
"""The budget that the page offers."""


def continue_experiment(experiment: Experiment, plan: PlanSpec) -> list[str]:
    """Queues the finished runs of an undecided experiment to be timed further; returns their
    labels. Raises `RunnerError` if it cannot be continued, and `NotWritable`."""
    check_can_continue(experiment)
    chosen = [run for run in experiment.runs if run.state is RunState.FINISHED]
    # The baseline comes last: a working supervisor waits for it before it starts the others.
    for run in reversed(chosen):
        with writing(run.path):
            write_atomically(run.plan_file, plan.to_json())
            run.reopen()
    names = [run.run_id.partition(".")[2] for run in chosen]
    log_action(
        experiment.data_dir.logs, "continue", experiment.experiment_id, runs=", ".join(names)
    )
    return names


def plan_of(experiment: Experiment, max_seconds: float, steps: int | None = None) -> PlanSpec:
    """A plan for `steps` steps; by default for those of the experiment's plan, else of its
    training."""
    spec = experiment.spec
    steps = steps or spec.plan.steps or spec.num_steps or _steps_of_script(experiment.runs[0])
    return replace(spec.plan, steps=steps, max_seconds=max_seconds, parity="auto")


def _steps_of_script(baseline: RunDir) -> int:
    steps = [
        int(event.get("num_steps") or 0)
        for event in each_event(baseline.events_file)
        if event["kind"] == "workload"
    ]
    return max(steps, default=0) or max(1, steps_measured(baseline))


def check_can_continue(experiment: Experiment) -> None:
    """Raises `RunnerError` for an experiment that cannot be timed further."""
    baseline = experiment.runs[0]
    if not experiment.is_over:
        raise RunnerError(f"{experiment.experiment_id} cannot be continued yet: it has not ended")
    why = why_not_continued(experiment.spec) or _why_not_here(baseline)
    if baseline.state is not RunState.FINISHED:
        why = "its baseline did not finish, and without it rounds compare nothing"
    if why is not None:
        raise RunnerError(
            f"{experiment.experiment_id} cannot be continued: {why}. "
            f"{instead_of_continuing(experiment.spec, baseline)}"
        )


def instead_of_continuing(spec: ExperimentSpec, baseline: RunDir) -> str:
    """What to do instead, as a sentence."""
    if why := why_too_short(spec, baseline):
        return why
    return f"Run it again with {spec.kind.longer} instead."


def why_not_continued(spec: ExperimentSpec) -> str | None:
    """Why such an experiment cannot be timed further once it has ended; None if it can."""
    if why := why_no_rounds(spec):
        return why
    if not spec.kind.trains_fully:
        return "its runs are no whole trainings"
    if len(spec.environments) > 1:
        return "it compares environments"
    if spec.parallel == "fsdp" and spec.num_devices > 1:
        return "its devices each keep a part of the weights"
    return None


def why_no_rounds(spec: ExperimentSpec) -> str | None:
    """Why such an experiment cannot have more rounds than its trainings; None if it can."""
    return spec.kind.why_no_rounds or why_not_again(spec)


def why_not_again(spec: ExperimentSpec) -> str | None:
    """Why a training that ends while its experiment still measures cannot start again; None if it
    can."""
    if spec.family_level is not None:
        return "it is a proposal of a family, which is judged once"
    if not spec.kind.has_speedups or not spec.takes_turns:
        return "its runs do not take turns, so that it has no rounds"
    if spec.callbacks or spec.training.gradient_statistics_every or spec.stopping.nonfinite:
        return "its steps do more than train (callbacks, gradient statistics, stopping.nonfinite)"
    return None


def _why_not_here(baseline: RunDir) -> str | None:
    """Why this machine or its torch differs from the measured one; None if both are the same."""
    # A process that was not needed, or stopped before it began, has none.
    folders = (baseline, *map(RunDir, baseline.attempts.glob("*")))
    claim = next(filter(None, (folder.read_claim() for folder in folders)), None)
    if claim is None or not claim.is_from_this_host or claim.node is not None:
        return "it ran on another machine"
    environments = (
        event for event in each_event(baseline.events_file) if event["kind"] == "environment"
    )
    versions = next(environments, {}).get("versions")
    measured = str(versions.get("torch")) if isinstance(versions, dict) else None
    if baseline.read_spec().arm.environment is not None:
        return None  # Each run compares its versions with those of its first process.
    from importlib.metadata import PackageNotFoundError, version  # takes a sixth of a run's start

    with suppress(PackageNotFoundError):
        here = version("torch").partition("+")[0]
        if measured is not None and measured.partition("+")[0] != here:
            return f"torch {printable(measured)} measured it, and torch {here} is installed now"
    return None


def plan_to_continue(run: RunDir) -> PlanSpec | None:
    """The request to time a finished run further; None for a run that trains. Raises `RunnerError`
    for a damaged request."""
    return run.read(run.plan_file, PlanSpec) if run.only_times else None


def require_same_work(run: RunDir, workload: Mapping[str, Any] | None = None) -> None:
    """Raises `WorkloadError` if the newest process times another program than the first one.
    `workload`: that of the newest process, if its journal has none."""
    if changed := _what_changed(run, workload or {}):
        verb = "is another one" if len(changed) == 1 else "are others"
        raise WorkloadError(
            f"{', '.join(changed)} {verb} than in the first process; run the experiment again"
        )


def _what_changed(run: RunDir, workload: Mapping[str, Any]) -> list[str]:
    """Names of the facts that differ between a run's first and newest process: versions of
    packages, device, initial weights, data, and a user's own files. A fact that one process did not
    record counts as the same."""
    processes: list[dict[str, Any]] = []
    for event in each_event(run.events_file):
        if event["kind"] == "environment":
            versions = event.get("versions")
            processes.append(
                {
                    "device": event.get("device_name"),
                    **(versions if isinstance(versions, dict) else {}),
                }
            )
        elif event["kind"] == "workload" and processes:
            # A later one also tells of models that the script called later.
            for name, fact in _facts(event).items():
                processes[-1].setdefault(name, fact)
        elif event["kind"] == "source" and processes:
            processes[-1][str(event.get("source"))] = event.get("sha256")
    if not processes:
        return []
    first, newest = processes[0], {**processes[-1], **(_facts(workload) if workload else {})}
    return [
        name
        for name in first
        if None not in (first[name], newest.get(name)) and first[name] != newest[name]
    ]


def _facts(workload: Mapping[str, Any]) -> dict[str, Any]:
    hashes = {"the model": "weights_sha256", "the data": "data_sha256", "the code": "code_sha256"}
    return {name: workload.get(field) for name, field in hashes.items()}


def steps_measured(run: RunDir) -> int:
    """The step after the last block in the run's journal."""
    blocks: list[dict[str, Any]] = [
        event for event in each_event(run.events_file) if event["kind"] == "block"
    ]
    return max((int(block["first_step"]) + int(block["num_steps"]) for block in blocks), default=0)


def steps_trained(run: RunDir) -> int | None:
    """Steps of the finished training if it ended before its last one."""
    ends = [event["step"] for event in each_event(run.events_file) if event["kind"] == "stopped"]
    return int(ends[0]) if ends else None
