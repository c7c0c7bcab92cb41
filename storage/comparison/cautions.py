"""Finds the warnings of a comparison, which cast doubt on it, and its notes, which explain it."""

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import PurePath
from typing import Any

import numpy as np
import pandas as pd

from breakeven.runner.experiments.added_rounds import NOT_ADDED
from breakeven.runner.protocol.states import RunState
from breakeven.runner.specs.experiment import ExperimentSpec
from breakeven.runner.texts import printable
from breakeven.storage.comparison.caution import Caution, note
from breakeven.storage.comparison.device_doubts import device_cautions, device_notes
from breakeven.storage.comparison.evidence import Evidence, number, of_role
from breakeven.storage.comparison.pairs import SIZES, unequal_blocks
from breakeven.storage.comparison.rounds import ending, single_repeats, too_wide
from breakeven.storage.statistics.intervals import MIN_PAIRS
from breakeven.storage.statistics.speedups import MIN_MARGIN, Ratio

OWN_FOLDER_SUFFIX = "_DIR"
"""Suffix of environment variables that point into the run's own folder, and so differ."""
OPERATOR = re.compile(r"\baten\.\w+")
"""An operator of torch in the compiler's reason for giving up."""
OUTDATED_NOTE = "in their private pools; see the reserved memory instead."
"""End of a note in journals until version 0.1: the memory needed now includes these pools."""
WORKLOAD_FIELDS = {
    "weights_sha256": "initial weights",
    "data_sha256": "samples or their order",
    "code_sha256": "the script and its files",
    "num_parameters": "number of parameters",
    "samples_per_step": "samples per step",
}


def cautions(
    spec: ExperimentSpec,
    processes: Sequence[Evidence],
    runs: Sequence[Evidence],
    speedups: Sequence[Ratio | None],
    floor: float | None,
    doubts: Sequence[Sequence[Caution]],
) -> tuple[Caution, ...]:
    """All warnings of a comparison, the gravest first.

    `runs` are the `processes` with repeats pooled; without repeats the two are the same.
    `doubts`: the `device_doubts` of each run.
    """
    widths = too_wide(spec, runs, speedups)
    return (
        *_about_runs(spec, processes, runs, speedups),
        *_about_unfinished(processes),
        *_about_lengths(spec, processes),
        *_about_compiling(spec, runs),
        *_about_resumed(processes),
        *_about_lines(processes),
        *_about_workload(spec, processes),
        *_about_sizes(runs),
        *_about_schedule(spec),
        *(_about_control(spec, runs, floor) if spec.kind.has_speedups else ()),
        *(_about_rounds(spec, runs, speedups) if spec.kind.has_speedups else ()),
        *((*ending(spec, processes), widths) if widths else ()),
        *_about_repeats(spec, runs),
        *device_cautions(spec, runs, doubts),
        *_notes(processes, of_all=False),
    )


LONGEST_NOTE = 300
"""Characters shown of a text that a process recorded; an unknown author may have written it."""


def missing_runs(spec: ExperimentSpec, processes: Sequence[Evidence]) -> Iterator[Caution]:
    """The planned runs of an experiment without a readable folder."""
    found = {run.label for run in processes}
    missing = [one for one in spec.variants if one.label not in found]
    if missing:
        lacks_baseline = {"lacks_baseline": any(one.role == "baseline" for one in missing)}
        runs: dict[str, dict[str, Any]] = {one.label: {} for one in missing}
        yield Caution(kind="missing runs", runs=runs, figures=lacks_baseline)


def notes(
    spec: ExperimentSpec,
    processes: Sequence[Evidence],
    runs: Sequence[Evidence],
    speedups: Sequence[Ratio | None],
) -> tuple[Caution, ...]:
    """Notes on the workload that all runs share, and on an early stop of all of them."""
    stops = () if len(set(_lengths(processes).values())) > 1 else tuple(_stops(processes))
    if spec.kind.ends_by_width:
        stops = () if too_wide(spec, runs, speedups) else ending(spec, processes)
    elif spec.kind.has_candidates:
        stops = tuple(_about_search(runs))
    return (
        *_notes(processes, of_all=True),
        *_uncounted(runs),
        *_unasked(spec, runs),
        *_about_added_rounds(runs),
        *_about_confirmation(spec),
        *stops,
        *device_notes(spec, runs),
    )


def _about_search(runs: Sequence[Evidence]) -> Iterator[Caution]:
    """Why each candidate ended, and why the search ended."""
    reasons = {
        run.label: run.stop.reason if run.stop else run.reason for run in runs if run.state.is_final
    }
    whole = next(
        (reasons[run.label] for run in runs if run.role == "baseline" and reasons.get(run.label)),
        None,
    )
    tried = [run for run in runs if run.role == "backend"]
    ended = {
        run.label: {"reason": printable(reasons[run.label] or "", LONGEST_NOTE)}
        for run in tried
        if reasons.get(run.label) not in (None, whole)
    }
    if ended:
        yield Caution(kind="candidates ended", runs=ended)
    if whole is not None:
        yield Caution(kind="search ended", figures={"reason": whole, "num_tried": len(tried)})


def _about_confirmation(spec: ExperimentSpec) -> Iterator[Caution]:
    if spec.confirms is not None:
        yield Caution(kind="confirms", figures={"experiment_id": spec.confirms})


def _unasked(spec: ExperimentSpec, runs: Sequence[Evidence]) -> Iterator[Caution]:
    """Backends whose parity does not cover inference, because no answers were compared: scripts,
    which evaluate by themselves, and models that cannot be computed with other rounding."""
    unasked = {
        run.label: {"error": printable(" ".join(run.answers["error"].dropna()), LONGEST_NOTE)}
        for run in runs
        if run.role == "backend" and len(run.evaluations) and run.answers["wrong"].isna().all()
        if not spec.workload.is_specified or len(run.answers)
    }
    if unasked:
        yield Caution(kind="answers not compared", runs=unasked)


def _uncounted(runs: Sequence[Evidence]) -> Iterator[Caution]:
    """Operations in a script's step that cannot be counted."""
    baseline = of_role(runs, "baseline")
    uncounted = baseline.workload.get("uncounted") if baseline else None
    if uncounted is not None and len(uncounted):
        yield Caution(
            kind="operations unknown", figures={"names": [printable(one) for one in uncounted]}
        )


def _about_repeats(spec: ExperimentSpec, runs: Sequence[Evidence]) -> Iterator[Caution]:
    if labels := single_repeats(spec, runs):
        repeats = {"repeats": spec.speed.repeats}
        yield Caution(kind="single repeats", runs={one: {} for one in labels}, figures=repeats)


def _notes(runs: Sequence[Evidence], *, of_all: bool) -> tuple[Caution, ...]:
    """Notes that all runs have, or those that some lack, which show an unequal comparison."""
    notes_of_runs = [run.workload.get("notes") or [] for run in runs if run.workload]
    every = dict.fromkeys(
        text for notes in notes_of_runs for text in notes if not text.endswith(OUTDATED_NOTE)
    )
    return tuple(
        note(printable(text, LONGEST_NOTE))
        for text in every
        if all(text in notes for notes in notes_of_runs) is of_all
    )


def _about_runs(
    spec: ExperimentSpec,
    processes: Sequence[Evidence],
    runs: Sequence[Evidence],
    speedups: Sequence[Ratio | None],
) -> Iterator[Caution]:
    yield from _about_rounds_not_added(processes)
    rounds = {
        run.label: 0 if ratio is None else ratio.n
        for run, ratio in zip(runs, speedups, strict=True)
    }
    for run in processes:
        # A search ends candidates itself; a note says why.
        is_dropped = spec.kind.has_candidates and run.role == "backend" and run.state.is_cancelled
        if run.state.ended_early and not is_dropped:
            end = {"state": run.state, "reason": run.reason, "role": run.role, **_done(run)}
            if spec.kind.has_speedups and run.label in rounds:  # no repeat of several
                of_it = [rounds[run.label]] if run.role == "backend" else rounds.values()
                end["num_rounds"] = max(of_it)
            yield Caution(kind="ended early", runs={run.label: end})
        wrong = run.losses.index[~np.isfinite(run.losses)]
        if len(wrong):
            yield Caution(kind="loss not finite", runs={run.label: {"step": int(wrong[0])}})


def _about_rounds_not_added(processes: Sequence[Evidence]) -> Iterator[Caution]:
    """Yields each reason once, with all runs that it stopped."""
    stopped: dict[str, dict[str, dict[str, Any]]] = {}
    for run in processes:
        if run.reason is not None and run.reason.startswith(NOT_ADDED):
            stopped.setdefault(run.reason.removeprefix(f"{NOT_ADDED}: "), {})[run.label] = {}
    for why, runs in stopped.items():
        yield Caution(kind="rounds not added", runs=runs, figures={"reason": why})


def _about_unfinished(runs: Sequence[Evidence]) -> Iterator[Caution]:
    going_on = {
        run.label: {"state": run.state, **_done(run)} for run in runs if not run.state.is_final
    }
    if going_on:
        yield Caution(kind="not over", runs=going_on)


def _done(run: Evidence) -> dict[str, int]:
    return {"steps_done": len(run.steps), "num_steps": run.num_steps}


def _about_lengths(spec: ExperimentSpec, runs: Sequence[Evidence]) -> Iterator[Caution]:
    """Runs that their own rules stopped after different numbers of steps."""
    lengths = _lengths(runs) if spec.kind.trains_fully else {}
    chose = any(run.stop for run in runs) or not spec.workload.has_known_length
    if len(set(lengths.values())) > 1 and chose:
        yield from _stops(runs)
        done = {label: {"num_steps": length} for label, length in lengths.items()}
        places = list(dict.fromkeys(place for run in runs for place in run.clock_reads))
        yield Caution(kind="different lengths", runs=done, figures={"clock_reads": places})


def _lengths(runs: Sequence[Evidence]) -> dict[str, int]:
    """The number of steps of each finished run in batches of the same size, by label."""
    return {
        run.label: len(run.steps)
        for run in runs
        if run.state is RunState.FINISHED and run.batch_times == 1
    }


def _stops(runs: Sequence[Evidence]) -> Iterator[Caution]:
    for run in runs:
        if run.stop is not None:
            stop = {"step": run.stop.step, "num_steps": run.num_steps, "reason": run.stop.reason}
            yield Caution(kind="stopped", runs={run.label: stop})


def _about_compiling(spec: ExperimentSpec, runs: Sequence[Evidence]) -> Iterator[Caution]:
    """Functions that the compiler gave up on, and runs of which it compiled nothing for another
    reason."""
    backends = [run for run in runs if run.role == "backend" and len(run.steps)]
    gave_up = [run for run in backends if run.compiled_frames["failure"].notna().any()]
    explained = {run.label for run in gave_up}
    idle: dict[str, dict[str, Any]] = {
        run.label: {} for run in backends if run.is_idle and run.label not in explained
    }
    if idle:
        figures = {"is_script": spec.workload.decides_scope}
        yield Caution(kind="nothing compiled", runs=idle, figures=figures)
    for run in gave_up:
        yield Caution(kind="given up", runs={run.label: _given_up(run)})
    baseline = of_role(runs, "baseline")
    usual = baseline.step_seconds if baseline else None
    for run in backends:
        if run.never_ceases_to_compile:
            facts = _compiling_throughout(run) | {"baseline_step_seconds": usual}
            yield Caution(kind="compiles throughout", runs={run.label: facts})


def _compiling_throughout(run: Evidence) -> dict[str, Any]:
    """The number of steps that compiled, the duration of those in the second half, and whether they
    produced new code; if not, they captured CUDA graphs."""
    compiled = run.steps[run.steps["compiled"].astype(bool)]
    late = compiled[compiled["step"] >= run.steps["step"].median()]
    frames = run.compiled_frames["step"]
    return {
        "num_compiled_steps": len(compiled),
        "steps_done": len(run.steps),
        "compiled_step_seconds": number(late["seconds"].median()),
        "is_code": bool((frames >= late["step"].min()).any()),
    }


def _given_up(run: Evidence) -> dict[str, Any]:
    """The functions, once each, and whether some of their calls are compiled nonetheless."""
    frames = run.compiled_frames
    has_failed = frames["failure"].notna()
    functions = []
    for _, mine in frames.groupby(frames["compile_id"].str.partition("/")[0], sort=False):
        if mine["failure"].notna().any():
            names = mine["function"].dropna()
            failed = mine[mine["failure"].notna()].iloc[0]
            functions.append(
                {
                    "name": None if names.empty else printable(names.iloc[0]),
                    "place": _place_given_up(failed, mine),
                    "operator": _operator_given_up(failed),
                    "is_part": bool(mine["failure"].isna().any()),
                }
            )
    reason = printable(frames.loc[has_failed, "failure"].iloc[0].partition("\n")[0])
    return {"functions": functions, "reason": reason, "is_all": run.runs_uncompiled}


def _place_given_up(failed: pd.Series, frames: pd.DataFrame) -> str | None:
    """`train.py:15`, the line at which the compiler gave up; in journals until version 0.1, the
    first line of the function."""
    if isinstance(failed["location"], str):
        return printable(PurePath(failed["location"]).name)
    file, line = (frames[name].dropna() for name in ("file", "line"))
    if file.empty or line.empty:
        return None
    return f"{printable(PurePath(file.iloc[0]).name)}:{int(line.iloc[0])}"


def _operator_given_up(failed: pd.Series) -> str | None:
    """The operator that could not be traced; None if the compiler's reason names none."""
    if isinstance(failed["operator"], str):
        return printable(failed["operator"])
    named = OPERATOR.search(str(failed["failure"]))
    return named and printable(named[0])


def _about_resumed(runs: Sequence[Evidence]) -> Iterator[Caution]:
    for run in runs:
        if run.resumed_at:
            how = {"steps": run.resumed_at, "has_compiled": run.has_compiled, "moves": run.moved_at}
            yield Caution(kind="resumed", runs={run.label: how})


def _about_added_rounds(runs: Sequence[Evidence]) -> Iterator[Caution]:
    """The number of rounds from processes that were started after the run had finished."""
    added: dict[str, dict[str, Any]] = {run.label: {} for run in runs if run.added_at}
    baseline = of_role(runs, "baseline")
    if added and baseline is not None and baseline.added_at:
        blocks = baseline.steady_blocks
        later = blocks[blocks["first_step"] >= min(baseline.added_at)]
        counts = {"num_added": later["round"].nunique(), "num_rounds": blocks["round"].nunique()}
        yield Caution(kind="rounds added", runs=added, figures=counts)


def _about_lines(runs: Sequence[Evidence]) -> Iterator[Caution]:
    """Journals with repeated lines or missing lines."""
    repeated = {run.label: {"num_lines": run.left_out} for run in runs if run.left_out}
    if repeated:
        yield Caution(kind="repeated lines", runs=repeated)
    missing = {run.label: {"num_lines": run.missing} for run in runs if run.missing}
    if missing:
        yield Caution(kind="missing lines", runs=missing)


def _about_workload(spec: ExperimentSpec, runs: Sequence[Evidence]) -> Iterator[Caution]:
    """Settings that should be equal in all runs but differ."""
    prepared = [run for run in runs if run.workload]
    tells_samples = all(run.tells_samples for run in prepared if len(run.steps))
    for field, title in WORKLOAD_FIELDS.items():
        if field == "samples_per_step" and tells_samples:
            continue  # The caution `different sizes` names the rounds.
        values = {
            run.label: run.workload.get(field)
            for run in prepared
            if len(run.steps) or run.workload.get(field) is not None
            if field != "samples_per_step" or run.batch_times == 1
        }
        yield from _difference(title, values)
    flat = {run.label: _flat(run.environment) for run in runs if run.environment}
    for name in sorted({name for settings in flat.values() for name in settings}):
        values = {label: settings.get(name) for label, settings in flat.items()}
        yield from _difference(name, values)


def _about_sizes(runs: Sequence[Evidence]) -> Iterator[Caution]:
    """Rounds whose times do not compare, because a script gave runs different amounts of work."""
    baseline = of_role(runs, "baseline")
    if baseline is None:
        return
    unequal_runs: dict[str, dict[str, Any]] = {}
    for run in runs:
        unequal = unequal_blocks(baseline, run)
        if len(unequal):
            first = unequal.iloc[0]
            of = next(one for one in SIZES if first[one] != first[f"{one}_baseline"])
            size, usual = (float(first[one] / first["num_steps"]) for one in (of, f"{of}_baseline"))
            unequal_runs[run.label] = {
                "num_rounds": len(unequal),
                "of": of,
                "size": size,
                "baseline_size": usual,
            }
    if unequal_runs:
        yield Caution(kind="different sizes", runs=unequal_runs)


def _flat(environment: dict[str, Any]) -> dict[str, Any]:
    """The environment, with package versions and variables as further fields."""
    flat: dict[str, Any] = {}
    for name, value in environment.items():
        if not isinstance(value, dict):
            flat[name] = value
            continue
        prefix = "version of " if name == "versions" else ""
        flat |= {f"{prefix}{key}": entry for key, entry in value.items()}
    return {name: value for name, value in flat.items() if not name.endswith(OWN_FOLDER_SUFFIX)}


def _difference(setting: str, by_label: Mapping[str, Any]) -> Iterator[Caution]:
    values = {label: None if value is None else str(value) for label, value in by_label.items()}
    if len(set(values.values())) > 1:
        runs = {label: {"value": value} for label, value in values.items()}
        yield Caution(kind="different setting", runs=runs, figures={"setting": setting})


def _about_schedule(spec: ExperimentSpec) -> Iterator[Caution]:
    if spec.fallback_of is not None:
        yield Caution(kind="fallback", figures={"experiment_id": spec.fallback_of})
    if spec.schedule == "sequential":
        yield Caution(kind="sequential")
    if spec.compiling_together:
        yield Caution(kind="compiled together")


def _about_control(
    spec: ExperimentSpec, runs: Sequence[Evidence], floor: float | None
) -> Iterator[Caution]:
    control = of_role(runs, "control")
    if control is None or control.steps.empty:
        facts = {
            "state": None if control is None else control.state,
            "was_asked_for": spec.controls > 0,
            "environment": spec.environment_by_label[runs[0].label] if runs else None,
            "is_inference": spec.is_inference,
        }
        yield Caution(kind="no control", figures=facts)
    elif floor is not None and floor > MIN_MARGIN:
        yield Caution(kind="noisy", figures={"noise_floor": floor})


def _about_rounds(
    spec: ExperimentSpec, runs: Sequence[Evidence], speedups: Sequence[Ratio | None]
) -> Iterator[Caution]:
    baseline = of_role(runs, "baseline")
    if baseline is not None and baseline.state.ended_early:
        return
    untimed = {variant.label for variant in spec.further_controls}
    few = {
        run.label: {"num_rounds": 0 if ratio is None else ratio.n}
        for run, ratio in zip(runs, speedups, strict=True)
        if run.role != "baseline" and len(run.steps) and (ratio is None or ratio.n < MIN_PAIRS)
        # More steps would not help the runs that the following lines exclude.
        if run.label not in untimed
        if not run.never_ceases_to_compile and not run.state.ended_early and not run.is_idle
        if baseline is None or unequal_blocks(baseline, run).empty
    }
    if few:
        yield Caution(kind="few rounds", runs=few)
