"""Finds the statuses of the scenario `accuracy`: whether backends compute what the model defines.

The status is the one that the run recorded. If it recorded none, its state at the end determines
the status. `docs/metrics.md` has the rule.
"""

from dataclasses import dataclass
from typing import Literal

import pandas as pd

from breakeven.runner.folders.states import RunState
from breakeven.runner.specs.experiment import ExperimentSpec
from breakeven.runner.specs.scenarios import ACTIVATION, Part
from breakeven.storage import queries
from breakeven.storage.index.store import Store

MAX_WORST = 3
PASS = "pass"
Outcome = Literal["passes", "differs", "failed", "undecided", "open"]
"""Meaning of a status: the backend's numbers are right; they are wrong; the backend produced none;
the baseline or the model produced none to compare with; or the status is not known yet."""


@dataclass(frozen=True, kw_only=True)
class Check:
    """One part of one run. None means not known yet or never measured."""

    label: str
    state: RunState
    part: Part
    status: str | None
    """A status name of PyTorch's Dynamo harness."""
    message: str | None
    """Why nothing was compared."""
    tolerance: float | None
    num_tensors: int
    num_failed: int
    worst: tuple[str, ...]
    """The tensors with the largest errors, at most 3, each with its error over the limit."""
    notes: tuple[str, ...]

    @property
    def outcome(self) -> Outcome:
        if self.status is None:
            return "open"
        if self.status.startswith("eager_") or self.status == "model_fail_to_load":
            return "undecided"
        words: dict[str, Outcome] = {PASS: "passes", "fail_accuracy": "differs"}
        return words.get(self.status, "failed")

    @property
    def explanation(self) -> str:
        """Why the check did not pass; empty if it passed or is not over."""
        return self.message or "; ".join(self.worst)


def checks(store: Store, experiment_id: str, spec: ExperimentSpec) -> list[Check]:
    """All parts of all runs of an experiment of the scenario `accuracy`, run by run."""
    runs = queries.list_runs(store, experiment_id)
    loaded = set(queries.workloads(store, experiment_id)["run_id"])
    statuses = queries.accuracy_statuses(store, experiment_id)
    tensors = judged(queries.accuracy_tensors(store, experiment_id))
    return [
        _check(
            run, part, run["run_id"] in loaded, _of(statuses, run, part), _of(tensors, run, part)
        )
        for run in runs.to_dict("records")
        for part in spec.accuracy.parts
    ]


def judged(tensors: pd.DataFrame) -> pd.DataFrame:
    """The rows of `queries.accuracy_tensors` that decide the verdict, without outputs of layers."""
    return tensors[tensors["quantity"] != ACTIVATION]


def table(found: list[Check]) -> pd.DataFrame:
    """One row per check, as pages and downloads show it."""
    return pd.DataFrame(
        [
            {
                "run": check.label,
                "part": check.part,
                "status": check.status,
                "num_tensors": check.num_tensors,
                "num_failed": check.num_failed,
                "tolerance": check.tolerance,
                "worst": check.explanation,
            }
            for check in found
        ]
    )


def _of(frame: pd.DataFrame, run: dict[str, object], part: Part) -> pd.DataFrame:
    return frame[(frame["run_id"] == run["run_id"]) & (frame["part"] == part)]


def _check(
    run: dict[str, str], part: Part, loaded: bool, status: pd.DataFrame, tensors: pd.DataFrame
) -> Check:
    state = RunState(run["state"])
    recorded = status.iloc[-1].to_dict() if len(status) else {}
    failed = tensors[~tensors["passed"]]
    # A tensor whose error is not a number is the worst of all.
    worst = failed.sort_values("error_ratio", ascending=False, na_position="first", kind="stable")
    return Check(
        label=run["label"],
        state=state,
        part=part,
        status=recorded.get("status") or _status_of(state, loaded),
        message=recorded.get("message") or (None if recorded else _text(run["reason"])),
        tolerance=recorded.get("tolerance"),
        num_tensors=len(tensors),
        num_failed=len(failed),
        worst=tuple(map(_named, worst.head(MAX_WORST).to_dict("records"))),
        notes=tuple(recorded.get("notes") or ()),
    )


def _status_of(state: RunState, loaded: bool) -> str | None:
    """The harness's status for a run that ended without recording one."""
    if state in (RunState.FAILED, RunState.LOST):
        return "fail_to_run" if loaded else "model_fail_to_load"
    return {RunState.TIMEOUT: "timeout", RunState.OUT_OF_MEMORY: "OOM"}.get(state)


def _named(tensor: dict[str, object]) -> str:
    quantity, name, ratio = tensor["quantity"], tensor["tensor"], tensor["error_ratio"]
    title = f"{name}" if quantity in ("output", "loss") else f"{quantity} of {name}"
    return f"{title}, not comparable" if pd.isna(ratio) else f"{title}, {ratio:.3g} x the limit"


def _text(value: object) -> str | None:
    return None if pd.isna(value) else str(value)
