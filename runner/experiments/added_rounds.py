"""Adds rounds to a finished experiment: its runs are timed again.

Further processes of each run, one after another, repeat steps from the beginning of the training.
Their blocks follow the last step in the journal; losses, evaluations and profiles remain those of
the finished training. However a process ends, the run remains finished. The request is
`rounds.json` in the run folder.
"""

from collections.abc import Collection, Mapping, Sequence
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
from breakeven.runner.specs.scenario_fields import AddedRounds
from breakeven.runner.texts import printable

NOT_ADDED = "training is over; adding rounds ended early"
"""Start of the reason why a finished run has fewer rounds than requested."""


def add_rounds(experiment: Experiment, labels: Collection[str], rounds: AddedRounds) -> list[str]:
    """Queues baseline, controls and the backends `labels` (as in the comparison) of a finished
    experiment for further rounds; returns the labels of their runs. Raises `RunnerError` if rounds
    cannot be added, and `NotWritable`."""
    check_rounds_can_be_added(experiment)
    by_label = experiment.spec.repeats_by_label
    wanted = {member for label in labels for member in by_label[label]}
    chosen = [
        run
        for run, arm in zip(experiment.runs, experiment.arms, strict=True)
        if arm.role != "backend" or arm.label in wanted
    ]
    chosen = [run for run in chosen if run.state is RunState.FINISHED]
    # The baseline comes last: a working supervisor waits for it before it starts the others.
    for run in reversed(chosen):
        with writing(run.path):
            write_atomically(run.rounds_file, rounds.to_json())
            run.reopen()
    names = [run.run_id.partition(".")[2] for run in chosen]
    log_action(
        experiment.data_dir.logs, "add rounds", experiment.experiment_id, runs=", ".join(names)
    )
    return names


def compared_backends(spec: ExperimentSpec) -> list[str]:
    """Labels of the backends that an experiment compares."""
    backends = {arm.label for arm in spec.arms if arm.role == "backend"}
    return [
        label for label, members in spec.repeats_by_label.items() if backends.intersection(members)
    ]


def check_rounds_can_be_added(experiment: Experiment) -> None:
    """Raises `RunnerError` for an experiment whose rounds further rounds cannot extend."""
    baseline = experiment.runs[0]
    why = why_no_rounds(experiment.spec) or _why_not_here(baseline)
    if not experiment.is_over:
        raise RunnerError(
            f"no rounds can be added to {experiment.experiment_id} yet: it has not ended"
        )
    if baseline.state is not RunState.FINISHED:
        why = "its baseline did not finish, and without it rounds compare nothing"
    if why is not None:
        raise RunnerError(
            f"no rounds can be added to {experiment.experiment_id}: {why}. "
            f"{instead_of_rounds(experiment.spec, baseline)}"
        )


def instead_of_rounds(spec: ExperimentSpec, baseline: RunDir) -> str:
    """What to do instead of adding rounds."""
    if why := why_too_short(spec, baseline):
        return why
    return f"Run it again with {spec.kind.longer} instead"


def why_no_rounds(spec: ExperimentSpec) -> str | None:
    """Why no rounds can be added to such an experiment; None if they can."""
    if spec.kind.why_no_rounds is not None:
        return spec.kind.why_no_rounds
    if spec.family_level is not None:
        return "it is a proposal of a family, which is judged once"
    if not spec.kind.has_speedups or not spec.takes_turns:
        return "its runs do not take turns, so that it has no rounds"
    if spec.callbacks or spec.training.gradient_statistics_every or spec.stopping.nonfinite:
        return "its steps do more than train (callbacks, gradient statistics, stopping.nonfinite)"
    return None


def _why_not_here(baseline: RunDir) -> str | None:
    """Why this machine or its torch differs from the measured one; None if both are the same."""
    claim = baseline.read_claim()
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


def rounds_to_add(run: RunDir) -> AddedRounds | None:
    """The request for rounds of a finished run; None for a run that trains. Raises `RunnerError`
    for a damaged request."""
    return run.read(run.rounds_file, AddedRounds) if run.adds_rounds else None


def begin_next_process(runs: Sequence[RunDir]) -> list[RunDir]:
    """Queues the runs that have just added rounds for their next process; returns them. Returns
    none if no process is left, or if the baseline, or all other runs, did not end normally."""
    rounds = rounds_to_add(runs[0])
    ends = {run: run.read_exit() for run in runs}
    again = [run for run, ended in ends.items() if ended is not None and ended.returncode == 0]
    if rounds is None or rounds.processes == 1 or runs[0] not in again or len(again) == 1:
        return []
    left = replace(
        rounds,
        processes=rounds.processes - 1,
        max_seconds=rounds.max_seconds - rounds.max_seconds_each,
    )
    for run in again:
        write_atomically(run.rounds_file, left.to_json())
        run.reopen()
    return again


def require_same_work(run: RunDir, workload: Mapping[str, Any] | None = None) -> None:
    """Raises `WorkloadError` if the newest process adds rounds of another program than the first
    one's. `workload`: that of the newest process, if its journal has none."""
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
