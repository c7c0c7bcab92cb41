"""Investigations: which runs have a fault to investigate, and what an investigation has found."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, Literal

import pandas as pd

from breakeven.runner.errors import RunnerError
from breakeven.runner.protocol.states import FINAL_EXPERIMENTS, RunState
from breakeven.runner.specs.arms import change_words
from breakeven.runner.specs.experiment import ExperimentSpec
from breakeven.runner.specs.follow_ups import (
    BUDGET_SECONDS,
    LONGEST_NAME,
    Finding,
    investigation,
    timed_again,
)
from breakeven.runner.specs.ladder import with_ladder
from breakeven.runner.specs.scenario_fields import Part, Problem
from breakeven.runner.texts import printable
from breakeven.storage import queries
from breakeven.storage.comparison.comparison import compare
from breakeven.storage.comparison.correctness import checks
from breakeven.storage.comparison.results import Comparison, Result
from breakeven.storage.errors import StoreError
from breakeven.storage.index.ingest import MAX_CHARACTERS
from breakeven.storage.index.store import Store
from breakeven.storage.queries import RunRecord
from breakeven.storage.statistics.parity import is_suspect, suspected_step

Cause = Literal[
    "searching",
    "own code",
    "not reproduced",
    "unstable",
    "stage",
    "setting",
    "backend",
    "training only",
    "out of time",
]
SENTENCE_TEXTS = (
    "cause",
    "compiler_stage",
    "subsystem",
    "operation",
    "problem",
    "quantity",
    "tensor",
    "program_note",
)
"""Texts of a finding that stand in sentences."""
LONGEST_SHOWN = 200
COMPILER_CAUSES: tuple[str, ...] = ("stage", "setting", "backend", "training only")
"""Causes for which a compiler is to blame."""
CUT_SHORT: tuple[str, ...] = ("searching", "out of time")
"""Findings of a search that ended before it was over; a larger budget continues it."""


SCRIPT_NOT_FINITE = (
    "the loss is not finite without a compiler either: the model, the data or the settings are the "
    "cause. Steps of a script cannot be repeated alone, so no layer is named"
)


class NoFault(StoreError, RunnerError):
    """A run without a fault that can be investigated; says why."""


@dataclass(frozen=True, kw_only=True)
class Fault:
    """What is wrong with a run."""

    kind: Literal["raises", "memory", "differs", "not finite", "slow"]
    """`not finite`: neither the run's loss is finite nor the baseline's."""
    step: int = 0
    """The first step without a record, or the first one outside the band; 0 if unknown."""
    error: str = ""
    """Class and message of the error that ended the run; empty without one."""
    part: Part = "training"
    """What it is a fault of, in a run that does both."""


@dataclass(frozen=True, kw_only=True)
class Trial:
    """One trial of an investigation; docs/events.md describes the fields."""

    number: int
    stage: str
    what: str
    outcome: str
    detail: str | None = None
    step: int | None = None
    trial_seconds: float | None = None


@dataclass(frozen=True, kw_only=True)
class Investigation:
    """An investigation as far as it has come."""

    record: RunRecord
    """Of the run that makes the trials."""
    investigated: str
    """Id of the run with the fault."""
    backend: str
    """Of that run, as written on the command line."""
    trials: tuple[Trial, ...]
    finding: Finding

    @property
    def is_over(self) -> bool:
        return self.record.state.is_final

    @property
    def label(self) -> str:
        """Of the run with the fault."""
        return self.investigated.partition(".")[2]


def load_investigation(store: Store, experiment_id: str) -> Investigation:
    """The present state of an investigation; raises `NotInStore`."""
    (run_id,) = queries.run_states(store, experiment_id)["run_id"]
    record = queries.run_record(store, run_id)
    trials = queries.investigation_trials(store, experiment_id)
    findings = queries.investigation_findings(store, experiment_id)
    finding = Finding(**_row(findings, Finding)) if len(findings) else Finding()
    if finding.program is not None and len(finding.program) >= MAX_CHARACTERS:
        note = f"the program has more than {MAX_CHARACTERS:,} characters"
        finding = replace(finding, program=None, program_note=note)
    labels = tuple(map(printable, finding.labels))
    shown = {name: _shown(getattr(finding, name)) for name in SENTENCE_TEXTS}
    finding = replace(finding, labels=labels, **shown)
    return Investigation(
        record=record,
        investigated=str(record.spec.investigates),
        backend=record.spec.backends[0],
        trials=tuple(
            Trial(**{name: _shown(value) for name, value in _row(trials.iloc[[at]], Trial).items()})
            for at in range(len(trials))
        ),
        finding=finding,
    )


def _shown(value: Any) -> Any:
    """A text without line ends and terminal controls: a journal may be a stranger's."""
    return printable(value, LONGEST_SHOWN) if isinstance(value, str) else value


def _row(frame: pd.DataFrame, kind: type) -> Mapping[str, Any]:
    """The fields of a frame's last row that have a value, in types of Python."""
    row = frame.astype(object).iloc[-1]
    known = [field.name for field in fields(kind)]
    values = {
        name: row[name] for name in known if isinstance(row[name], list) or pd.notna(row[name])
    }
    integers = {field.name for field in fields(kind) if field.type in (int, int | None)}
    return {
        name: tuple(value) if isinstance(value, list) else int(value) if name in integers else value
        for name, value in values.items()
    }


def finished_investigation(store: Store, run_id: str) -> str | None:
    """Id of the newest investigation of a run that has ended; None without one."""
    listed = queries.list_experiments(store)
    investigations = listed[listed["investigates"] == run_id]
    ended = investigations[investigations["state"].isin(FINAL_EXPERIMENTS)]
    return None if ended.empty else str(ended["experiment_id"].iloc[0])


def fault_of(store: Store, run_id: str) -> Fault:
    """The fault of a run; raises `NoFault` with the reason if there is none to investigate."""
    record = queries.run_record(store, run_id)
    label = record.arm.label
    runs = queries.list_runs(store, record.experiment_id).set_index("label")
    environment_by_label = record.spec.environment_by_label
    is_here = [
        environment_by_label.get(run_label) == record.arm.environment for run_label in runs.index
    ]
    baselines = runs[is_here].query("role == 'baseline'")
    why = _why_not_investigated(record, [RunState(state) for state in baselines["state"]])
    if why is not None:
        raise NoFault(why)
    if record.state.is_failed:
        error = record.error
        text = "" if error is None else f"{error.name}: {error.message}"
        kind: Problem = "memory" if record.state is RunState.OUT_OF_MEMORY else "raises"
        return Fault(kind=kind, step=int(runs.loc[label, "steps_done"]), error=text)
    if record.spec.kind.has_checks:
        known = checks(store, record.experiment_id, record.spec)
        for part in record.spec.accuracy.parts:
            outcomes = {
                check.outcome for check in known if (check.label, check.part) == (label, part)
            }
            if outcomes & {"failed", "differs"}:
                return Fault(kind="raises" if "failed" in outcomes else "differs", part=part)
    result = compare(store, record.experiment_id).result_of(label)
    if result.parity is not None and is_suspect(result.parity):
        return Fault(kind="differs", step=suspected_step(result.parity))
    wrong = queries.wrong_losses(store, record.experiment_id).set_index("run_id")["step"]
    if run_id in wrong:
        is_shared = baselines["run_id"].isin(wrong.index).any()
        if is_shared and not record.spec.workload.has_single_steps:
            raise NoFault(SCRIPT_NOT_FINITE)
        return Fault(kind="not finite" if is_shared else "differs", step=int(wrong[run_id]))
    if result.speed_verdict == "slower":
        return Fault(kind="slow")
    raise NoFault(
        f"{label} did not fail, its parity is not broken, and it is not surely slower than the "
        "baseline: there is nothing to investigate"
    )


def _why_not_investigated(record: RunRecord, baselines: Sequence[RunState]) -> str | None:
    """Why a run cannot be investigated, whatever its numbers are."""
    label, state = record.arm.label, record.state
    if record.spec.kind.makes_trials:
        return f"{record.run_id} is an investigation itself"
    if not state.is_final:
        return f"{label} has not ended yet; investigate it then"
    unknown = {RunState.LOST, RunState.TIMEOUT}
    if unknown.intersection(baselines):
        return "the baseline ended early, and not by a fault, so nothing is known to compare with"
    if any(baseline_state.is_failed for baseline_state in baselines):
        return (
            f"the baseline failed as well: nothing shows that the compiler of {label} is to blame, "
            "and not the model, the data or the settings"
        )
    if record.arm.backend is None:
        return f"{label} has no compiler, so no compiler is to blame for its fault"
    if change_words(record.arm):
        return (
            f"{label} changes more than its compiler ({change_words(record.arm)}): run the command "
            "with these changes, and investigate its backends"
        )
    ends = {
        RunState.CANCELLED: f"{label} was stopped, so nothing is known about a fault",
        RunState.LOST: f"{label} vanished without an error, as by a power cut: resume or repeat it",
        RunState.TIMEOUT: f"{label} reached its time limit, which is no fault; allow more time",
    }
    return ends.get(state)


def next_experiment(
    store: Store, run_id: str, budget_seconds: float = BUDGET_SECONDS
) -> ExperimentSpec:
    """The experiment that finds the cause of a run's fault: an investigation, or for a run that is
    only slow the ladder. Raises `NoFault`, `RunnerError` or `NotInStore`."""
    record = queries.run_record(store, run_id)
    return _finding_experiment(record, fault_of(store, run_id), budget_seconds)


def suspects(store: Store, comparison: Comparison) -> list[Result]:
    """The backends that may have learned something else. Only for these, and for those that
    did not finish, a reader asks for what `fault_to_find` needs."""
    backends = [result for result in comparison.results if result.role == "backend"]
    if not comparison.spec.kind.has_speedups:
        return backends
    wrong = set(queries.wrong_losses(store, comparison.experiment_id)["run_id"])
    return [result for result in backends if result.run_id in wrong or is_suspect(result.parity)]


def fault_to_find(store: Store, run_id: str) -> Fault | None:
    """The fault of a run if `next_experiment` can find its cause."""
    try:
        fault = fault_of(store, run_id)
        _finding_experiment(queries.run_record(store, run_id), fault)
        return fault
    except (StoreError, RunnerError):
        return None


def _finding_experiment(
    record: RunRecord, fault: Fault, budget_seconds: float = BUDGET_SECONDS
) -> ExperimentSpec:
    spec, label = record.spec, record.arm.label
    if fault.kind != "slow":
        problem: Problem = "differs" if fault.kind == "not finite" else fault.kind
        return investigation(
            spec,
            record.experiment_id,
            label,
            problem,
            fault.step,
            budget_seconds,
            fault.error,
            fault.part,
        )
    again = timed_again(spec, label)
    ladder = with_ladder(again.backends, again.device)
    if set(ladder) <= set(spec.backends):
        raise NoFault(
            f"the experiment has the whole ladder already: `breakeven explain --ladder "
            f"{record.experiment_id}` names the stage that loses time, and `breakeven show "
            f"{record.experiment_id} --issue` writes an issue for PyTorch"
        )
    name = f"stages of {label} in {spec.name}"[:LONGEST_NAME]
    return replace(again, backends=ladder, name=name, time_limit_seconds=budget_seconds)
