"""What a reader must know of a comparison: warnings cast doubt on it, notes explain it."""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from runner.folders.states import RunState
from runner.specs.experiment import ExperimentSpec
from storage.comparison.device_doubts import device_cautions, device_notes
from storage.comparison.endings import ending, single_repeats, too_wide
from storage.comparison.evidence import Evidence
from storage.comparison.roles import of_role
from storage.numbers.formats import format_share
from storage.statistics.resampling import MIN_PAIRS
from storage.statistics.speedups import MIN_MARGIN, Ratio

OWN_FOLDER_SUFFIX = "_DIR"
"""Ends the names of environment variables that point into the run's own folder, and so differ."""
WORKLOAD_FIELDS = {
    "weights_sha256": "initial weights",
    "data_sha256": "samples or their order",
    "num_parameters": "number of parameters",
    "samples_per_step": "samples per step",
}


def cautions(
    spec: ExperimentSpec,
    processes: Sequence[Evidence],
    runs: Sequence[Evidence],
    speedups: Sequence[Ratio | None],
    floor: float | None,
) -> tuple[str, ...]:
    """All warnings of a comparison: what casts doubt on its numbers, the gravest first.

    `processes` are pooled into `runs` where there are repeats, else the same.
    """
    widths = too_wide(spec, runs, speedups)
    return (
        *_about_runs(processes),
        *_about_unfinished(processes),
        *_about_lengths(spec, runs),
        *_about_resumed(processes),
        *_about_workload(processes),
        *_about_schedule(spec),
        *(_about_control(spec, runs, floor) if spec.compares_runs else ()),
        *(_about_rounds(runs, speedups) if spec.compares_runs else ()),
        *((*ending(spec, processes), widths) if widths else ()),
        *filter(None, [single_repeats(spec, runs)]),
        *device_cautions(spec, runs),
        *_notes(processes, of_all=False),
    )


def notes(
    spec: ExperimentSpec,
    processes: Sequence[Evidence],
    runs: Sequence[Evidence],
    speedups: Sequence[Ratio | None],
) -> tuple[str, ...]:
    """What the runs say of the workload that they share, and where all of them stopped early."""
    stops = () if len(_lengths(runs)) > 1 else tuple(_stops(runs))
    if spec.scenario == "speed":
        stops = () if too_wide(spec, runs, speedups) else ending(spec, processes)
    return (*_notes(processes, of_all=True), *stops, *device_notes(spec, runs))


def _notes(runs: Sequence[Evidence], *, of_all: bool) -> tuple[str, ...]:
    """Notes that all runs carry, or those that some lack: these tell of an unequal comparison."""
    told = [run.workload.get("notes") or [] for run in runs if run.workload]
    every = dict.fromkeys(note for notes in told for note in notes)
    return tuple(note for note in every if all(note in notes for notes in told) is of_all)


def _about_runs(runs: Sequence[Evidence]) -> Iterator[str]:
    if of_role(runs, "baseline") is None:
        yield "The baseline's run folder is missing or unreadable, so nothing can be compared."
    for run in runs:
        done = f"{len(run.steps)} of {run.num_steps} steps"
        if run.state.ended_early:
            why = f", {run.reason}" if run.reason else ""
            yield f"{run.label} did not finish: {run.state.replace('_', ' ')}{why} ({done})."
        wrong = run.losses.index[~np.isfinite(run.losses)]
        if len(wrong):
            yield f"{run.label} has a loss that is not finite, first at step {wrong[0]}."


def _about_unfinished(runs: Sequence[Evidence]) -> Iterator[str]:
    going_on = [
        f"{run.label} ({run.state}, {len(run.steps)} of {run.num_steps} steps)"
        for run in runs
        if not run.state.is_final
    ]
    if going_on:
        yield f"The numbers of runs that are not over are preliminary: {', '.join(going_on)}."


def _about_lengths(spec: ExperimentSpec, runs: Sequence[Evidence]) -> Iterator[str]:
    """Runs that stopped by rules of their own after different numbers of steps."""
    lengths = {} if spec.scenario == "speed" else _lengths(runs)
    if len(lengths) > 1 and any(run.stop for run in runs):
        yield from _stops(runs)
        parts = [f"{length} ({', '.join(labels)})" for length, labels in lengths.items()]
        yield (
            f"The runs trained for different numbers of steps: {', '.join(parts)}. Their final "
            "losses and accuracies are those of shorter and longer trainings."
        )


def _lengths(runs: Sequence[Evidence]) -> dict[int, list[str]]:
    """How many steps the runs did that came to their end, and which ones."""
    lengths: dict[int, list[str]] = {}
    for run in runs:
        if run.state is RunState.FINISHED:
            lengths.setdefault(len(run.steps), []).append(run.label)
    return lengths


def _stops(runs: Sequence[Evidence]) -> Iterator[str]:
    for run in runs:
        if run.stop is not None:
            step, reason = run.stop.step, run.stop.reason.rstrip(".")
            yield f"{run.label} stopped at step {step} of {run.num_steps}: {reason}."


def _about_resumed(runs: Sequence[Evidence]) -> Iterator[str]:
    for run in runs:
        if run.resumed_at:
            steps = " and ".join(f"step {step}" for step in run.resumed_at)
            later = "its later part ran in a new process"
            if run.has_compiled:
                later = (
                    "its later part compiled again, and compile latency, graph breaks and "
                    "recompiles count the first part only"
                )
            yield (
                f"{run.label} was resumed at {steps}: {later}; rounds that it did without the "
                "baseline are not paired."
            )


def _about_workload(runs: Sequence[Evidence]) -> Iterator[str]:
    """Names what the runs should have in common and have not."""
    prepared = [run for run in runs if run.workload]
    for field, title in WORKLOAD_FIELDS.items():
        yield from _difference(title, [(run.label, run.workload.get(field)) for run in prepared])
    flat = [(run.label, _flat(run.environment)) for run in runs if run.environment]
    for name in sorted({name for _, settings in flat for name in settings}):
        yield from _difference(name, [(label, settings.get(name)) for label, settings in flat])


def _flat(environment: dict[str, Any]) -> dict[str, Any]:
    """The environment with package versions and variables beside its other fields."""
    flat: dict[str, Any] = {}
    for name, value in environment.items():
        if not isinstance(value, dict):
            flat[name] = value
            continue
        prefix = "version of " if name == "versions" else ""
        flat |= {f"{prefix}{key}": entry for key, entry in value.items()}
    return {name: value for name, value in flat.items() if not name.endswith(OWN_FOLDER_SUFFIX)}


def _difference(title: str, told: Sequence[tuple[str, Any]]) -> Iterator[str]:
    groups: dict[str, list[str]] = {}
    for label, value in told:
        groups.setdefault("not set" if value is None else str(value), []).append(label)
    if len(groups) > 1:
        parts = [f"{_short(value)} ({', '.join(labels)})" for value, labels in groups.items()]
        yield f"The runs differ in {title}: {', '.join(parts)}."


def _short(text: str) -> str:
    """Whole if it fits; of a hash or a path the ends, which tell them apart."""
    return text if len(text) <= 60 else f"{text[:20]}...{text[-20:]}"


def _about_schedule(spec: ExperimentSpec) -> Iterator[str]:
    if spec.fallback_of is not None:
        yield (
            f"This repeats experiment {spec.fallback_of} one run at a time, because the device "
            "could not hold all runs at once."
        )
    if spec.schedule == "sequential":
        yield (
            "The runs took place one after another, so that drift of clocks, heat and neighbours "
            "is part of the speedups."
        )


def _about_control(
    spec: ExperimentSpec, runs: Sequence[Evidence], floor: float | None
) -> Iterator[str]:
    control = of_role(runs, "control")
    if control is None or control.steps.empty:
        why = _why_no_control(spec, control)
        what = (
            "this machine's noise cannot"
            if spec.is_inference
            else ("neither this machine's noise nor parity can")
        )
        yield f"{why}: {what} be judged."
    elif floor is not None and floor > MIN_MARGIN:
        yield (
            f"This machine is noisy: two equal runs differ by up to {format_share(floor)}, and "
            "speedups below that are not called faster or slower."
        )


def _why_no_control(spec: ExperimentSpec, control: Evidence | None) -> str:
    if control is None:
        missing = "The control's run folder is missing or unreadable"
        return missing if spec.controls else "There is no control"
    if control.state.is_final:
        return f"The control recorded no step ({control.state.replace('_', ' ')})"
    return f"The control has recorded no step yet ({control.state})"


def _about_rounds(runs: Sequence[Evidence], speedups: Sequence[Ratio | None]) -> Iterator[str]:
    few = [
        f"{run.label} ({0 if ratio is None else ratio.n})"
        for run, ratio in zip(runs, speedups, strict=True)
        if run.role != "baseline" and len(run.steps) and (ratio is None or ratio.n < MIN_PAIRS)
    ]
    if few:
        yield (
            f"Fewer than {MIN_PAIRS} rounds can be paired with the baseline, so no interval is "
            f"claimed: {', '.join(few)}. Train for more steps."
        )
